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

from warpdata.episodes.chunked_tracks import AnyTrack
from warpdata.episodes.open_tracks import OpenTracks
from warpdata.episodes.spec import Key, Places
from warpdata.episodes.tracks import Rows, Track
from warpdata.limits import EPISODES_DECODED_BYTES, EPISODES_LOAD_THREADS
from warpdata.wshard import Array

__all__ = ["BlockLoads", "Loaded"]

Loaded: TypeAlias = dict[tuple[int, int], Rows]
"""Rows by the position of their episode and the position of their key. Only of tracks that are not in place."""


class BlockLoads:
    """Blocks by number, held while they are needed. Where they would be too much, windows one by one.

    The first row that is asked for begins to load all blocks of its group, and of the next. `groups` tells the
    blocks of a group; without it, nothing is loaded ahead. Batches are made side by side, and those of one of many
    workers or ranks lie far apart, so groups are held until all batches of theirs were handed out: `most_groups`
    at the most.
    """

    def __init__(
        self,
        places: Places,
        block_rows: int,
        episodes: OpenTracks,
        groups: Callable[[int], Sequence[int]] | None,
        most_groups: int,
    ) -> None:
        self._places = places
        self._block_rows = block_rows
        self._episodes = episodes
        self._groups = groups
        self._most_groups = most_groups
        self._held: dict[int, dict[int, _Block]] = {}
        self._begun: set[int] = set()
        self._oldest = 0
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(EPISODES_LOAD_THREADS, thread_name_prefix="warp-episodes")
        self._decoded = DecodedBlocks()

    def for_batch(self, samples: Sequence[int], groups: Sequence[int]) -> BatchLoads:
        """What a batch of these windows, which belong to these groups, will ask for."""
        return BatchLoads(self, samples, groups)

    def block(self, sample: int, group: int) -> Loaded | None:
        """What was loaded for a window, waiting for it if need be; None where windows are loaded one by one."""
        if self._groups is None:
            return None
        if group not in self._begun:
            with self._lock:
                if group < self._oldest or self._span_with(group) > self._most_groups:
                    return None
                if group not in self._begun:
                    self._begin(group, self._groups)
        block = self._held.get(group, _NO_BLOCKS).get(sample // self._block_rows)
        return None if block is None else block.wait()

    def is_here(self, position: int) -> bool:
        """Whether the file of an episode lies on this machine."""
        return self._episodes.tracks(position)[0].is_here

    def alone(self, sample: int) -> Loaded:
        """One window, now."""
        return self._load(sample, sample + 1)

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

    def _span_with(self, group: int) -> int:
        """How many groups lie between the first and the last that would be held."""
        numbers = {*self._begun, group}
        return max(numbers) - min(numbers) + 2

    def _begin(self, group: int, groups: Callable[[int], Sequence[int]]) -> None:
        """Load a group and the one after it."""
        rows, count = self._block_rows, self._places.count
        for number in (group, group + 1):
            if number not in self._held:
                self._held[number] = {
                    block: _Block(self._pool.submit(self._load, block * rows, min((block + 1) * rows, count)))
                    for block in groups(number)
                }
        self._begun.add(group)

    def _load(self, first: int, last: int) -> Loaded:
        out: Loaded = {}
        for position, low, high in self._places.parts(first, last):
            self._load_part(position, low, high, out)
        return out

    def _load_part(self, position: int, low: int, high: int, out: Loaded) -> None:
        """Windows of one episode, from the current step `low` to `high`: all channels in one go."""
        spec = self._places.spec
        tracks = self._episodes.tracks(position)
        wanted: dict[int, list[tuple[int, int]]] = {}
        for at, (key, track) in enumerate(zip(spec.keys, tracks, strict=True)):
            if track.is_in_place:
                continue
            steps = _intervals(key, range(low, high + 1, spec.stride), track.length)
            wanted[at] = [(track.row_of(a), track.row_of(b) + 1) for a, b in steps]
        found: dict[tuple[int, int], list[Array]] = {}
        for asked in _by_file(tracks, wanted):
            for (where, *_), rows in zip(asked, self._read(asked), strict=True):
                found.setdefault(where, []).append(rows)
        for at, spans in wanted.items():
            parts = [_joined(found[at, i]) for i in range(len(spans))]
            out[position, at] = Rows([first for first, _ in spans], parts)

    def _read(self, asked: Sequence[_Asked]) -> list[Array]:
        """Rows of one file."""
        episode = asked[0].track.episode

        def read() -> list[Array]:
            is_here = episode.source.mapped is not None
            spans = [] if is_here else [a.track.reader.span(a.first, a.last) for a in asked if not a.track.is_whole]
            fetched = episode.source.fetched(spans) if spans else None
            found = []
            for _, track, first, last in asked:
                if track.is_whole:
                    found.append(self._decoded.get(track)[first:last].copy())
                else:
                    reader = track.reader if fetched is None else track.reader.over(fetched)
                    found.append(reader.window(first, last))
            return found

        return episode.trusting(read)


class _Asked(NamedTuple):
    """Some rows of a track: of which key, and which of its stretches they are a part of."""

    where: tuple[int, int]
    track: Track
    first: int
    last: int


def _by_file(tracks: Sequence[AnyTrack], wanted: Mapping[int, Sequence[tuple[int, int]]]) -> Iterator[list[_Asked]]:
    """What is wanted of each file of an episode, in their order."""
    files: dict[int, list[_Asked]] = {}
    for at, spans in wanted.items():
        for i, span in enumerate(spans):
            for number, track, first, last in tracks[at].cut(*span):
                files.setdefault(number, []).append(_Asked((at, i), track, first, last))
    for number in sorted(files):
        yield files[number]


def _joined(parts: Sequence[Array]) -> Array:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


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


_NO_BLOCKS: Mapping[int, _Block] = {}


class BatchLoads:
    """The rows of one batch. Windows that come from elsewhere one by one are all begun when the first is asked for."""

    def __init__(self, loads: BlockLoads, samples: Sequence[int], groups: Sequence[int]) -> None:
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

    def _wait(self, sample: int, group: int, position: int) -> Loaded:
        loaded = self._loads.block(sample, group)
        if loaded is not None:
            return loaded
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


def _intervals(key: Key, steps: range, length: int) -> list[tuple[int, int]]:
    """The steps that some windows need of a channel, both ends included: one interval, or one for each window."""
    if steps.step <= key.steps:
        return [(_clipped(steps[0] + key.start, length), _clipped(steps[-1] + key.stop - 1, length))]
    out: list[tuple[int, int]] = []
    for step in steps:
        low, high = _clipped(step + key.start, length), _clipped(step + key.stop - 1, length)
        if out and low <= out[-1][1]:
            out[-1] = (out[-1][0], max(high, out[-1][1]))
        else:
            out.append((low, high))
    return out


def _clipped(step: int, length: int) -> int:
    return min(max(step, 0), length - 1)
