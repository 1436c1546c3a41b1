"""Films of a LeRobot dataset, of which one file may hold many episodes: cut without encoding where that is possible."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from warpdata.errors import InvalidSourceError
from warpdata.formats.convert.episode_fields import Array
from warpdata.formats.convert.libraries import load
from warpdata.formats.wshard import index_film

__all__ = ["FilmPart", "cut_film", "frame_count", "read_frames"]


@dataclass(frozen=True, slots=True)
class FilmPart:
    """The frames of one episode within a film."""

    path: Path
    first: int
    count: int


def frame_count(path: Path) -> int:
    """How many frames a film has, from its packets."""
    rows, _ = index_film(path, "film", is_verified=False)
    found = rows.attributes["frame_count"]
    assert isinstance(found, int)
    return found


def cut_film(part: FilmPart, target: Path) -> bool:
    """Write the part as a film of its own, packet by packet as they are.

    `False`, and nothing is written, where it does not begin with a key frame, or leans on frames outside.
    """
    av = load("av")
    with _opened(av, part.path) as source:
        packets = [(packet.pts, packet.is_keyframe, packet.is_discard) for packet in _packets(source)]
    shown = sorted(pts for pts, _, is_hidden in packets if not is_hidden)
    wanted = set(shown[part.first : part.first + part.count])
    places = [number for number, (pts, _, _) in enumerate(packets) if pts in wanted]
    if len(places) != part.count or not places:
        raise InvalidSourceError(f"{part.path} has {len(shown)} frames; {part.first + part.count} are told")
    begin, first = places[0], min(wanted)
    if places[-1] - begin + 1 != part.count or packets[begin][:2] != (first, True):
        return False
    # Read again, so that no more than a packet is in memory.
    with _opened(av, part.path) as source, av.open(str(target), "w", format="mp4") as out:
        made = out.add_stream_from_template(source.streams.video[0], opaque=True)
        for packet in islice(_packets(source), begin, begin + part.count):
            packet.pts -= first
            packet.dts = None if packet.dts is None else packet.dts - first
            packet.stream = made
            out.mux(packet)
    return True


def _opened(av: Any, path: Path) -> Any:
    return av.open(str(path), options={"protocol_whitelist": "file", "format_whitelist": "mov"})


def _packets(source: Any) -> Iterator[Any]:
    """Packets with a frame in them, in the order of the file."""
    return (packet for packet in source.demux(source.streams.video[0]) if packet.pts is not None and packet.size)


def read_frames(part: FilmPart) -> Array:
    """All frames of the part, decoded."""
    av = load("av")
    out: list[Any] = []
    with _opened(av, part.path) as source:
        for number, frame in enumerate(source.decode(video=0)):
            if number >= part.first + part.count:
                break
            if number >= part.first:
                out.append(frame.to_ndarray(format="rgb24"))
    if len(out) != part.count:
        raise InvalidSourceError(f"{part.path} ends before frame {part.first + part.count}")
    return np.stack(out)
