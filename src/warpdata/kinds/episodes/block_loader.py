"""Rows that are not in place, brought into memory a block of windows at a time, some blocks ahead.

Windows of a block are neighbours, mostly of one episode, so a block takes one range of each channel. What it
holds is dropped when the order has moved on.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple, TypeAlias

import numpy as np

from warpdata.formats.wshard import Array
from warpdata.kinds.episodes.channel_reader import Rows, Track
from warpdata.kinds.episodes.chunked_channel import AnyTrack
from warpdata.kinds.episodes.gather import Gathering, Group, Part, Stretch, intervals
from warpdata.kinds.episodes.open_channels import OpenTracks
from warpdata.kinds.episodes.source import Fetched
from warpdata.limits import EPISODES_DECODED_BYTES, EPISODES_LOAD_THREADS
from warpdata.primitives.parallel import usable_cores

__all__ = ["BlockLoads", "Loaded"]

_MOST_AHEAD = 8
"""Of small groups so many are held at once, with the one that batches are made of."""

Loaded: TypeAlias = dict[tuple[int, int], Rows]
"""Rows by the position of their episode and the position of their key. Only of tracks that are not in place."""


class BlockLoads:
    """Blocks in groups, held while they are needed. Where they would be too much, windows one by one.

    The first window that is asked for begins to load all blocks of its group. Those of the next groups follow at
    once, where groups are small, or else of one when the group before was let go. `groups` tells the blocks of a
    group; without it, nothing is loaded ahead. Batches are made side by side, and those of one of many workers or
    ranks lie far apart, so groups are held until all batches of theirs were handed out: `most_groups` at the most.
    """

    def __init__(
        self,
        gathering: Gathering,
        episodes: OpenTracks,
        groups: Callable[[int], Sequence[int]] | None,
        most_groups: int,
    ) -> None:
        self._gathering = gathering
        self._places = gathering.places
        self.block_rows = gathering.block_rows
        self._episodes = episodes
        self._groups = groups
        self._most_groups = most_groups
        self._most_ahead = min(most_groups - 1, _MOST_AHEAD)
        self._held: dict[int, LoadingGroup] = {}
        self._begun: set[int] = set()
        self._oldest = 0
        self._lock = threading.Lock()
        # Files on this machine make nobody wait, and more threads than cores would only get into each other's way.
        threads = usable_cores() if episodes.are_here else EPISODES_LOAD_THREADS
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="warp-episodes")
        self._decoded = DecodedBlocks()

    def for_batch(self, samples: Sequence[int], groups: Sequence[LoadingGroup | None]) -> BatchLoads:
        """What a batch of these windows, which belong to these groups, will ask for."""
        return BatchLoads(self, samples, groups)

    def group(self, number: int) -> LoadingGroup | None:
        """A group whose loading has begun; None where windows are loaded one by one, or it was let go."""
        if self._groups is None:
            return None
        if number not in self._begun:
            with self._lock:
                if number < self._oldest or self._span_with(number) > self._most_groups:
                    return None
                if number not in self._begun:
                    self._begin(number, self._groups)
        return self._held.get(number)

    def is_here(self, position: int) -> bool:
        """Whether the file of an episode lies on this machine."""
        return self._episodes.tracks(position)[0].is_here

    def alone(self, sample: int) -> Loaded:
        """One window, now."""
        out: Loaded = {}
        for position, low, high in self._places.parts(sample, sample + 1):
            self._load_part(Part(position, low, high, {}), None, out)
        return out

    def begin(self, samples: Iterable[int]) -> dict[int, Future[Loaded]]:
        """Ask for windows one by one, all at once; not for those of files on this machine, which make nobody wait."""
        far = [sample for sample in samples if not self.is_here(self._places.parts(sample, sample + 1)[0][0])]
        return {sample: self._pool.submit(self.alone, sample) for sample in far}

    def close(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)

    def let_go(self, group: int) -> None:
        """Nobody will ask for earlier groups, but for what fills up the last batch."""
        if group > self._oldest:
            with self._lock:
                self._oldest = group
                self._begun = {number for number in self._begun if number >= group}
                for old in [number for number in self._held if number < group]:
                    del self._held[old]
                if self._groups is not None:
                    self._look_ahead(group, self._groups)

    def _span_with(self, group: int) -> int:
        """How many groups lie between the first and the last that would be held."""
        numbers = {*self._begun, group}
        return max(numbers) - min(numbers) + 2

    def _begin(self, number: int, groups: Callable[[int], Sequence[int]]) -> None:
        if number not in self._held:
            self._held[number] = self._loading(groups(number))
        self._begun.add(number)
        self._look_ahead(number, groups)

    def _look_ahead(self, number: int, groups: Callable[[int], Sequence[int]]) -> None:
        """Load the groups after this one, as far as there is room."""
        while len(self._held) < self._most_ahead:
            number += 1
            if number not in self._held:
                self._held[number] = self._loading(groups(number))

    def _loading(self, blocks: Sequence[int]) -> LoadingGroup:
        group = Group(self._gathering, blocks)
        return LoadingGroup(group, {block: self._pool.submit(self._load, group, block) for block in blocks})

    def _load(self, group: Group, block: int) -> Loaded:
        out: Loaded = {}
        for part in group.parts[block]:
            self._load_part(part, group.arrays, out)
        return out

    def _load_part(self, part: Part, arrays: Mapping[int, Array] | None, out: Loaded) -> None:
        """Windows of one episode, all channels in one go: into the arrays of a group, or on their own.

        On their own, decoded chunks are kept for other windows.
        """
        tracks = self._episodes.tracks(part.position)
        wanted = self._wanted(part, tracks)
        found: dict[tuple[int, int], list[Array]] = {}
        for asked in _by_file(tracks, wanted, arrays or {}):
            for each, rows in zip(asked, self._read(asked, keep=arrays is None), strict=True):
                if each.out is None:
                    found.setdefault(each.where, []).append(rows)
        for at, stretches in wanted.items():
            if arrays is None or at not in arrays:
                parts = [_joined(found[at, number]) for number in range(len(stretches))]
                out[part.position, at] = Rows([first for first, _, _ in stretches], parts)

    def _wanted(self, part: Part, tracks: Sequence[AnyTrack]) -> dict[int, Sequence[Stretch]]:
        """Rows by the position of their key. A key that is not gathered and lies in place needs none."""
        spec = self._places.spec
        out: dict[int, Sequence[Stretch]] = dict(part.stretches)
        for at, (key, track) in enumerate(zip(spec.keys, tracks, strict=True)):
            if at not in out and not track.is_in_place:
                steps = intervals(key, range(part.low, part.high + 1, spec.stride), track.length)
                out[at] = [Stretch(track.row_of(a), track.row_of(b) + 1, 0) for a, b in steps]
        return out

    def _read(self, asked: Sequence[_Asked], *, keep: bool) -> list[Array]:
        """Rows of one file."""
        episode = asked[0].track.episode

        def read() -> list[Array]:
            is_here = episode.source.mapped is not None
            spans = [] if is_here else [a.track.reader.span(a.first, a.last) for a in asked if not a.track.is_whole]
            fetched = episode.source.fetched(spans) if spans else None
            return [self._rows(each, fetched, keep=keep) for each in asked]

        return episode.trusting(read)

    def _rows(self, asked: _Asked, fetched: Fetched | None, *, keep: bool) -> Array:
        _, track, first, last, out = asked
        rows = track.in_place(first, last)
        if rows is None and track.is_whole:
            rows = self._decoded.get(track)[first:last]
        if rows is not None:
            if out is None:
                return rows.copy()
            out[...] = rows
            return out
        if fetched is not None:
            return track.reader.with_source(fetched).window(first, last, out=out)
        return (track.reader if keep else track.passing).window(first, last, out=out)


class _Asked(NamedTuple):
    """Some rows of a track: of which key, which of its stretches they are a part of, and perhaps where they go."""

    where: tuple[int, int]
    track: Track
    first: int
    last: int
    out: Array | None


def _by_file(
    tracks: Sequence[AnyTrack], wanted: Mapping[int, Sequence[Stretch]], arrays: Mapping[int, Array]
) -> Iterator[list[_Asked]]:
    """What is wanted of each file of an episode, in their order."""
    files: dict[int, list[_Asked]] = {}
    for at, stretches in wanted.items():
        for number, stretch in enumerate(stretches):
            begin = stretch.begin
            for file, track, first, last in tracks[at].cut(stretch.first, stretch.last):
                end = begin + last - first
                out = arrays[at][begin:end] if at in arrays else None
                files.setdefault(file, []).append(_Asked((at, number), track, first, last, out))
                begin = end
    for file in sorted(files):
        yield files[file]


def _joined(parts: Sequence[Array]) -> Array:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


class LoadingGroup:
    """A group whose blocks are being loaded."""

    def __init__(self, group: Group, blocks: Mapping[int, Future[Loaded]]) -> None:
        self.rows = group
        self._blocks = {block: _Block(future) for block, future in blocks.items()}
        self._waiting = set(self._blocks)

    @property
    def is_complete(self) -> bool:
        """Whether every block was waited for."""
        return not self._waiting

    def block(self, number: int) -> Loaded:
        """What a block has beside gathered rows, when all of it is here."""
        loaded = self._blocks[number].wait()
        self._waiting.discard(number)
        return loaded


class _Block:
    """A block that is being loaded. Asking a future takes locks, so what it gave is kept beside it."""

    __slots__ = ("_future", "_loaded")

    def __init__(self, future: Future[Loaded]) -> None:
        self._future = future
        self._loaded: Loaded | None = None

    def wait(self) -> Loaded:
        if self._loaded is None:
            self._loaded = self._future.result()
        return self._loaded


class BatchLoads:
    """The rows of one batch. Windows that come from elsewhere one by one are all begun when the first is asked for."""

    def __init__(self, loads: BlockLoads, samples: Sequence[int], groups: Sequence[LoadingGroup | None]) -> None:
        self._loads = loads
        self._samples = samples
        self._groups = groups
        self._loaded: dict[int, Loaded] = {}
        self._begun: dict[int, Future[Loaded]] | None = None

    def rows(self, at: int, position: int, key: int) -> Rows:
        """Those of one key of the window at this place of the batch, waiting for them if need be."""
        sample = self._samples[at]
        loaded = self._loaded.get(sample)
        if loaded is None:
            loaded = self._loaded[sample] = self._wait(sample, self._groups[at], position)
        found = loaded.get((position, key))
        if found is None:  # it was in place a moment ago, and its copy on this machine turned out to be damaged
            found = self._loads.alone(sample)[position, key]
        return found

    def _wait(self, sample: int, group: LoadingGroup | None, position: int) -> Loaded:
        if group is not None:
            return group.block(sample // self._loads.block_rows)
        if self._begun is None and not self._loads.is_here(position):
            self._begun = self._loads.begin(dict.fromkeys(self._samples))
        future = self._begun.get(sample) if self._begun is not None else None
        return self._loads.alone(sample) if future is None else future.result()


class DecodedBlocks:
    """The latest blocks that had to be decoded whole, up to a bound of bytes."""

    def __init__(self, limit_bytes: int = EPISODES_DECODED_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._held: OrderedDict[tuple[str, str], Array] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def get(self, track: Track) -> Array:
        name = (track.episode.hash, track.reader.entry.name)
        with self._lock:
            found = self._held.get(name)
            if found is not None:
                self._held.move_to_end(name)
                return found
        decoded = track.reader.read()
        with self._lock:
            if name not in self._held and decoded.nbytes <= self._limit_bytes:
                self._held[name] = decoded
                self._bytes += decoded.nbytes
            while self._bytes > self._limit_bytes:
                self._bytes -= self._held.popitem(last=False)[1].nbytes
        return decoded
