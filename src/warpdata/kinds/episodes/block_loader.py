"""Rows of windows, loaded into memory by blocks of windows, some blocks ahead.

Windows of a block are adjacent, mostly in one episode, so a block needs one range of each channel. Groups of blocks
are dropped when the order has moved past them.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import NamedTuple, TypeAlias

import numpy as np

from warpdata.formats.wshard import Array
from warpdata.kinds.episodes.channel_reader import AnyChannelReader, ChannelReader, OpenChannels
from warpdata.kinds.episodes.gather import BlockGroups, EpisodeSlice, GatherPlan, RowSpan, WindowGroup, step_intervals
from warpdata.kinds.episodes.source import PrefetchedSource
from warpdata.limits import MIB
from warpdata.primitives.byte_lru import ByteLRU
from warpdata.primitives.cached_property import cached_property
from warpdata.primitives.parallel import CPU_POOL, IO_POOL

__all__ = ["BatchLoader", "BlockLoader", "PendingGroup", "RowBuffer"]

_MAX_GROUPS = 8
"""Bound on the groups in memory, the current one included, where groups are small."""
"""Blocks of remote files that load at a time. Local files use one thread for each core."""
_DECODED_BYTES = 128 * MIB
"""Bound on cached blocks that can only be decoded whole."""


class RowBuffer:
    """Rows of a channel in memory, as runs of adjacent rows."""

    __slots__ = ("_runs", "_starts")

    def __init__(self, starts: Sequence[int], runs: Sequence[Array]) -> None:
        self._starts = starts
        self._runs = runs

    def between(self, first: int, last: int) -> Array:
        """Return the rows [first, last), which must be in one run."""
        at = bisect_right(self._starts, first) - 1
        begin = self._starts[at]
        return self._runs[at][first - begin : last - begin]


LoadedBlock: TypeAlias = dict[tuple[int, int], RowBuffer]
"""Rows by the positions of their episode and their key. Without gathered and mapped rows."""


class BlockLoader:
    """Loads groups of blocks ahead, and keeps them until their batches are delivered.

    The first window of a group starts loading all its blocks and the groups after it. Batches are made in parallel,
    and batches of one of many workers are far apart, so up to `max_groups` are kept. With `max_groups=0` nothing is
    loaded ahead, and windows are loaded one by one.
    """

    def __init__(self, plan: GatherPlan, channels: OpenChannels, groups: BlockGroups, max_groups: int) -> None:
        self._plan = plan
        self._windows = plan.windows
        self.block_rows = plan.block_rows
        self._channels = channels
        self._groups = groups
        self._max_groups = max_groups
        self._max_ahead = min(max_groups - 1, _MAX_GROUPS)
        self._loading: dict[int, PendingGroup] = {}
        self._started: set[int] = set()
        self._oldest = 0
        self._lock = threading.Lock()
        self._executor = CPU_POOL.executor() if channels.are_local else IO_POOL.executor()

    def group(self, number: int) -> PendingGroup | None:
        """Return a group that is loading; None if its windows are loaded one by one, or it was released."""
        if not self._max_groups:
            return None
        if number not in self._started:
            with self._lock:
                if number < self._oldest or self._span_with(number) > self._max_groups:
                    return None
                if number not in self._started:
                    self._start(number)
        return self._loading.get(number)

    def is_local(self, position: int) -> bool:
        """Return whether the file of an episode is locally available."""
        return self._channels.readers(position)[0].is_local

    def load_window(self, sample: int) -> LoadedBlock:
        """Load one window now."""
        out: LoadedBlock = {}
        for position, low, high in self._windows.split_by_episode(sample, sample + 1):
            self._load_slice(EpisodeSlice(position, low, high, {}), None, out)
        return out

    def start_windows(self, samples: Iterable[int]) -> dict[int, Future[LoadedBlock]]:
        """Start loading the windows of remote files, one by one."""
        remote = [
            sample for sample in samples if not self.is_local(self._windows.split_by_episode(sample, sample + 1)[0][0])
        ]
        return {sample: self._executor.submit(self.load_window, sample) for sample in remote}

    def close(self) -> None:
        self._executor.shutdown(wait=True, cancel_futures=True)

    def release_before(self, group: int) -> None:
        """Drop all earlier groups. Only the last batch may still need them, and loads its windows one by one."""
        if group > self._oldest:
            with self._lock:
                self._oldest = group
                self._started = {number for number in self._started if number >= group}
                for old in [number for number in self._loading if number < group]:
                    del self._loading[old]
                if self._max_groups:
                    self._load_ahead(group)

    def _span_with(self, group: int) -> int:
        """Return the number of groups between the first and the last started one, if `group` is started too."""
        numbers = {*self._started, group}
        return max(numbers) - min(numbers) + 2

    def _start(self, number: int) -> None:
        if number not in self._loading:
            self._loading[number] = self._submit(self._groups.blocks(number))
        self._started.add(number)
        self._load_ahead(number)

    def _load_ahead(self, number: int) -> None:
        """Start loading the groups after this one, up to the bound."""
        while len(self._loading) < self._max_ahead:
            number += 1
            if number not in self._loading:
                self._loading[number] = self._submit(self._groups.blocks(number))

    def _submit(self, blocks: Sequence[int]) -> PendingGroup:
        group = WindowGroup(self._plan, blocks)
        return PendingGroup(group, {block: self._executor.submit(self._load, group, block) for block in blocks})

    def _load(self, group: WindowGroup, block: int) -> LoadedBlock:
        out: LoadedBlock = {}
        for part in group.slices[block]:
            self._load_slice(part, group.arrays, out)
        return out

    def _load_slice(self, part: EpisodeSlice, arrays: Mapping[int, Array] | None, out: LoadedBlock) -> None:
        """Load all channels of windows of one episode: gathered rows into `arrays`, others into `out`.

        Without arrays the windows are loaded alone, and decoded chunks are cached for other windows.
        """
        readers = self._channels.readers(part.position)
        wanted = self._wanted(part, readers)
        found: dict[tuple[int, int], list[Array]] = {}
        for reads in _by_file(readers, wanted, arrays or {}):
            for each, rows in zip(reads, self._read_file(reads, keeps_chunks=arrays is None), strict=True):
                if each.out is None:
                    found.setdefault(each.where, []).append(rows)
        for at, spans in wanted.items():
            if arrays is None or at not in arrays:
                runs = [_joined(found[at, number]) for number in range(len(spans))]
                out[part.position, at] = RowBuffer([span.first for span in spans], runs)

    def _wanted(self, part: EpisodeSlice, readers: Sequence[AnyChannelReader]) -> dict[int, Sequence[RowSpan]]:
        """Return the rows to load, by the position of their key. Mapped rows that are not gathered need no load."""
        spec = self._windows.spec
        out: dict[int, Sequence[RowSpan]] = dict(part.spans)
        for at, (key, reader) in enumerate(zip(spec.keys, readers, strict=True)):
            if at not in out and not reader.is_mapped:
                steps = step_intervals(key, range(part.low, part.high + 1, spec.stride), reader.length)
                out[at] = [RowSpan(reader.row_of(a), reader.row_of(b) + 1, 0) for a, b in steps]
        return out

    def _read_file(self, reads: Sequence[_RowRead], *, keeps_chunks: bool) -> list[Array]:
        """Read rows of one file."""
        episode = reads[0].reader.episode

        def read() -> list[Array]:
            is_local = episode.source.mapped is not None
            remote = [] if is_local else [each for each in reads if not each.reader.is_whole]
            spans = [each.reader.reader.span(each.first, each.last) for each in remote]
            fetched = episode.source.fetch(spans) if spans else None
            return [self._read_rows(each, fetched, keeps_chunks=keeps_chunks) for each in reads]

        return episode.retry_corrupt(read)

    def _read_rows(self, read: _RowRead, fetched: PrefetchedSource | None, *, keeps_chunks: bool) -> Array:
        _, reader, first, last, out = read
        rows = reader.mapped_rows(first, last)
        if rows is None and reader.is_whole:
            rows = self._decode_whole(reader)[first:last]
        if rows is not None:
            if out is None:
                return rows.copy()
            out[...] = rows
            return out
        if fetched is not None:
            return reader.reader.with_source(fetched).window(first, last, out=out)
        return (reader.reader if keeps_chunks else reader.uncached_reader).window(first, last, out=out)

    @cached_property
    def _decoded(self) -> ByteLRU[tuple[str, str], Array]:
        """Blocks that can only be decoded whole. Most streams have none."""
        return ByteLRU(_DECODED_BYTES)

    def _decode_whole(self, reader: ChannelReader) -> Array:
        key = (reader.episode.hash, reader.reader.entry.name)
        return self._decoded.get_or_create(key, reader.reader.read, lambda rows: rows.nbytes)


class PendingGroup:
    """A group whose blocks are loading."""

    def __init__(self, group: WindowGroup, blocks: Mapping[int, Future[LoadedBlock]]) -> None:
        self.windows = group
        self._futures = dict(blocks)
        self._loaded: dict[int, LoadedBlock] = {}

    @property
    def is_loaded(self) -> bool:
        """True when every block was waited for."""
        return len(self._loaded) == len(self._futures)

    def wait(self, block: int) -> LoadedBlock:
        """Wait until a block is loaded. Return its rows that are not gathered."""
        loaded = self._loaded.get(block)  # cheaper than a future, which takes locks
        if loaded is None:
            loaded = self._loaded[block] = self._futures[block].result()
        return loaded


class BatchLoader:
    """The loaded rows of one batch. The first access starts loading all windows that have no group."""

    def __init__(self, loader: BlockLoader, samples: Sequence[int], groups: Sequence[PendingGroup | None]) -> None:
        self._loader = loader
        self._samples = samples
        self._groups = groups
        self._loaded: dict[int, LoadedBlock] = {}
        self._started: dict[int, Future[LoadedBlock]] | None = None

    def rows(self, at: int, position: int, key: int) -> RowBuffer:
        """Wait for the rows of one key of the window at position `at` of the batch."""
        sample = self._samples[at]
        loaded = self._loaded.get(sample)
        if loaded is None:
            loaded = self._loaded[sample] = self._wait(sample, self._groups[at], position)
        found = loaded.get((position, key))
        if found is None:  # the rows were mapped when the block was loaded, but that copy was corrupt and is dropped
            found = self._loader.load_window(sample)[position, key]
        return found

    def _wait(self, sample: int, group: PendingGroup | None, position: int) -> LoadedBlock:
        if group is not None:
            return group.wait(sample // self._loader.block_rows)
        if self._started is None and not self._loader.is_local(position):
            self._started = self._loader.start_windows(dict.fromkeys(self._samples))
        future = self._started.get(sample) if self._started is not None else None
        return self._loader.load_window(sample) if future is None else future.result()


class _RowRead(NamedTuple):
    """Rows to read: the position of their key and of their span, their reader, and perhaps their destination."""

    where: tuple[int, int]
    reader: ChannelReader
    first: int
    last: int
    out: Array | None


def _by_file(
    readers: Sequence[AnyChannelReader], wanted: Mapping[int, Sequence[RowSpan]], arrays: Mapping[int, Array]
) -> Iterator[list[_RowRead]]:
    """Yield the reads of each file of an episode, in the order of the files."""
    files: dict[int, list[_RowRead]] = {}
    for at, spans in wanted.items():
        for number, span in enumerate(spans):
            begin = span.begin
            for file, reader, first, last in readers[at].split_by_file(span.first, span.last):
                end = begin + last - first
                out = arrays[at][begin:end] if at in arrays else None
                files.setdefault(file, []).append(_RowRead((at, number), reader, first, last, out))
                begin = end
    for file in sorted(files):
        yield files[file]


def _joined(parts: Sequence[Array]) -> Array:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)
