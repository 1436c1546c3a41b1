"""Channels of episodes, read for windows: the row of each step, and rows from the mapped file or from memory.

A channel with its own rate is aligned by time: a step has the latest row that is not later than the step.
Implements "Alignment" of docs/specs/episodes.md.
"""

from __future__ import annotations

import functools
import math
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from warpdata.errors import BadInputError, CorruptError
from warpdata.formats.wshard import Array, BlockReader, Codec, DType, cut_rows
from warpdata.kinds.episodes.episode import ChunkedEpisode, FileEpisode, StoredEpisode
from warpdata.kinds.episodes.index import ChannelLayout, EpisodeIndex, find_channel
from warpdata.kinds.episodes.source import CheckedBlock
from warpdata.limits import KIB
from warpdata.primitives.cached_property import cached_property

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["AnyChannelReader", "ChannelReader", "OpenChannels", "align_rows", "row_format", "step_seconds"]

_TIMESTAMPS = "time/timestamps_ns"
_TOLERANCE = 1e-6
"""In rows. Times that differ by less are equal, because rates such as 1/3 are rounded."""
_GATHERED_ROW_BYTES = 4 * KIB
"""Mapped rows up to this size are gathered; copying windows of larger ones costs more than finding them."""


class StepAlignment:
    """The row of a channel for each step."""

    def __init__(self, length: int, row_numbers: NDArray[np.int64] | None) -> None:
        self.length = length
        self._row_numbers = row_numbers

    def rows_of(self, steps: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the rows of steps within the episode."""
        return steps if self._row_numbers is None else self._row_numbers[steps]

    def row_of(self, step: int) -> int:
        return step if self._row_numbers is None else int(self._row_numbers[step])

    @property
    def is_stepwise(self) -> bool:
        """True if every row has the number of its step."""
        return self._row_numbers is None


class ChannelReader(StepAlignment):
    """Rows of one channel in one file. Rows of an uncompressed block in a local file are used in place.

    The reader of a chunk is used by row only, because steps count over the whole episode.
    """

    def __init__(self, episode: FileEpisode, channel: ChannelLayout, *, is_chunk: bool = False) -> None:
        self.episode = episode
        self.reader: BlockReader = episode.file[channel.block]
        block_type = self.reader.block_type
        is_as_indexed = (channel.dtype, channel.shape) == (str(block_type.dtype), block_type.shape)
        if not is_as_indexed or (channel.rate_hz is None and block_type.rows != episode.length):
            raise CorruptError(f"the index and the file disagree about {channel.block!r} of episode {episode.id!r}")
        has_rate = channel.rate_hz is not None and not is_chunk
        super().__init__(episode.length, align_rows(episode, channel, block_type.rows) if has_rate else None)
        self.step_bytes = block_type.step_bytes
        self.is_whole = self.reader.entry.codec is not Codec.NONE and not self.reader.entry.is_chunked
        """True if reading any row decodes the whole block."""
        self._mapped: memoryview | None = None
        self._array: Array | None = None
        self._block: CheckedBlock | None = None
        self._offset = self.reader.entry.offset
        self._offset_in_block = 0
        self._uncached: tuple[BlockReader, int] | None = None
        self._verified: Array | None = None
        """The mapped rows when the whole block is verified in the copy of `_verified_generation`."""
        self._verified_generation = 0
        self._map_rows()

    @property
    def uncached_reader(self) -> BlockReader:
        """A reader of the same rows that caches no decoded chunks. Replaced when a corrupt copy is dropped."""
        generation = self.episode.source.generation
        if self._uncached is None or self._uncached[1] != generation:
            self._uncached = self.reader.with_source(self.episode.source), generation
        return self._uncached[0]

    def _map_rows(self) -> None:
        """View the rows of the mapped file as an array, if possible."""
        entry, block_type, self._mapped = self.reader.entry, self.reader.block_type, self.episode.source.mapped
        self._block = self.episode.source.block_at(entry.offset, entry.end)
        if self._mapped is None or entry.codec is not Codec.NONE or self._block is None or not entry.size_bytes:
            self._array = None
            return
        # Any byte but 0 is a true boolean. A uint8 becomes a boolean when it is copied into a batch.
        dtype = np.dtype(np.uint8) if str(block_type.dtype) == "bool" else block_type.dtype.numpy
        flat = np.frombuffer(self._mapped[entry.offset : entry.end], dtype)
        self._offset_in_block = entry.offset - self._block.start
        self._array = flat.reshape(block_type.rows, *block_type.shape)

    @property
    def is_mapped(self) -> bool:
        return self._array is not None

    @property
    def is_local(self) -> bool:
        """True if the file is locally available."""
        return self.episode.source.mapped is not None

    @property
    def must_load(self) -> bool:
        """True if rows have to be loaded into memory, and have the numbers of their steps."""
        return self._array is None and self._row_numbers is None

    def verified_rows(self, first: int, last: int) -> Array | None:
        """Return the mapped rows of the steps [first, last) if all are verified; else None.

        Most windows of a local file take this path, so it is short.
        """
        if first < 0 or last > self.length:
            return None
        verified, source = self._verified, self.episode.source
        if verified is not None and self._verified_generation == source.generation:
            return verified[first:last]
        array, block, generation = self._array, self._block, source.generation
        if array is None or block is None or self._row_numbers is not None:
            return None
        start = self._offset_in_block + first * self.step_bytes
        end = self._offset_in_block + last * self.step_bytes
        if block.has_unverified(start // block.unit_bytes, -(-end // block.unit_bytes)):
            return None
        if self._mapped is source.mapped and block.is_verified:
            self._verified, self._verified_generation = array, generation
        return array[first:last]

    @property
    def decodes_locally(self) -> bool:
        """True if single rows can be decoded, from a local file."""
        return self.reader.entry.is_chunked and self.episode.source.mapped is not None

    def decode(self, first: int, last: int, out: Array) -> None:
        """Write verified rows into `out`."""
        self.episode.retry_corrupt(lambda: self.reader.window(first, last, out=out))

    def mapped_rows(self, first: int, last: int) -> Array | None:
        """Return the rows [first, last) of the mapped file, verified; None if they must be loaded into memory."""
        if self._array is not None:
            self._verify(first, last)
        array = self._array  # another thread may drop it
        return None if array is None else array[first:last]

    def split_by_file(self, first: int, last: int) -> list[tuple[int, ChannelReader, int, int]]:
        """Return the rows [first, last) as (number of the file, its reader, range of its rows)."""
        return [(0, self, first, last)]

    def _verify(self, first: int, last: int) -> None:
        block = self._block
        assert block is not None, "mapped rows belong to a checked block"
        source, step_bytes = self.episode.source, self.step_bytes
        source.verify_mapped(block, self._offset + first * step_bytes, self._offset + last * step_bytes)
        if source.mapped is not self._mapped:
            self._map_rows()


class ChunkedChannelReader(StepAlignment):
    """Rows of one channel across all chunks of an episode, with the interface of `ChannelReader`."""

    def __init__(self, episode: ChunkedEpisode, channel: ChannelLayout) -> None:
        self.episode = episode
        self._channel = channel
        self._part = functools.cache(self._open_part)
        if channel.rate_hz is None:
            rows = [chunk.length for chunk in episode.chunks]
            super().__init__(episode.length, None)
        else:
            rows = [self._part(number).reader.block_type.rows for number in range(len(episode.chunks))]
            super().__init__(episode.length, align_rows(episode, channel, sum(rows)))
        self._starts = [0, *accumulate(rows)]

    @property
    def is_mapped(self) -> bool:
        parts = self.split_by_file(0, self._starts[-1])
        return bool(parts) and all(part.is_mapped for _, part, _, _ in parts)

    @property
    def step_bytes(self) -> int:
        return self._part(0).step_bytes

    @cached_property
    def decodes_locally(self) -> bool:
        return all(part.decodes_locally for _, part, _, _ in self.split_by_file(0, self._starts[-1]))

    def decode(self, first: int, last: int, out: Array) -> None:
        begin = 0
        for _, part, low, high in self.split_by_file(first, last):
            part.decode(low, high, out[begin : begin + high - low])
            begin += high - low

    @property
    def is_local(self) -> bool:
        return all(chunk.source.mapped is not None for chunk in self.episode.chunks)

    @property
    def must_load(self) -> bool:
        """True if rows have the numbers of their steps. Meaningful only for rows without `verified_rows`."""
        return self._row_numbers is None

    def verified_rows(self, first: int, last: int) -> Array | None:
        """Return the mapped rows of the steps [first, last). Unlike a `ChannelReader`, verify them if needed."""
        starts = self._starts
        if self._row_numbers is not None or first < 0 or last > starts[-1]:
            return None
        number = bisect_right(starts, first) - 1
        if last <= starts[number + 1]:  # most windows are within one chunk
            rows = self._part(number).verified_rows(first - starts[number], last - starts[number])
            if rows is not None:
                return rows
        return self.mapped_rows(first, last)

    def mapped_rows(self, first: int, last: int) -> Array | None:
        """Return verified rows of the mapped files, concatenated if they span several."""
        found = []
        for _, part, low, high in self.split_by_file(first, last):
            rows = part.mapped_rows(low, high)
            if rows is None:
                return None
            found.append(rows)
        if len(found) == 1:
            return found[0]
        return np.concatenate(found) if found else None

    def split_by_file(self, first: int, last: int) -> list[tuple[int, ChannelReader, int, int]]:
        return [(number, self._part(number), low, high) for number, low, high in cut_rows(self._starts, first, last)]

    def _open_part(self, number: int) -> ChannelReader:
        return ChannelReader(self.episode.chunks[number], self._channel, is_chunk=True)


AnyChannelReader: TypeAlias = ChannelReader | ChunkedChannelReader


class OpenChannels:
    """Channel readers by the position of their episode in `numbers`, one for each name. Caches the latest."""

    def __init__(self, index: EpisodeIndex, numbers: NDArray[np.int64], names: Sequence[str]) -> None:
        summary = index.summary
        self._index = index
        self.numbers = numbers
        self.names = tuple(names)
        self.lengths = summary.lengths[numbers]
        self._layout_numbers = summary.layout_numbers[numbers]
        self._channels = self._check_layouts(summary.layouts, names)
        self.readers = functools.lru_cache(maxsize=index.max_open)(self._open)

    @property
    def channels(self) -> tuple[ChannelLayout, ...]:
        """The channels of the first episode. All others have the same types and shapes."""
        return self._channels[int(self._layout_numbers[0])] if len(self.numbers) else ()

    @property
    def has_whole_blocks(self) -> bool:
        """True if some channel of some episode can only be decoded whole."""
        return any(spec.is_whole for specs in self._channels.values() for spec in specs)

    @property
    def are_mapped(self) -> bool:
        """True if the rows of the first episode are used in place. An estimate for the others."""
        return bool(len(self.numbers)) and all(reader.is_mapped for reader in self.readers(0))

    @property
    def are_local(self) -> bool:
        """True if the first episode is locally available. An estimate for the others."""
        return bool(len(self.numbers)) and all(reader.is_local for reader in self.readers(0))

    @cached_property
    def gathered(self) -> tuple[int, ...]:
        """Positions of the names whose rows are gathered before windows are made of them.

        Gathered channels have a row for every step of every episode. Large mapped rows are used in place, estimated
        by the first episode.
        """
        if not len(self.numbers):
            return ()
        first, all_specs = self.readers(0), list(self._channels.values())
        return tuple(
            at
            for at, reader in enumerate(first)
            if all(specs[at].rate_hz is None for specs in all_specs)
            and (not reader.is_mapped or reader.step_bytes <= _GATHERED_ROW_BYTES)
        )

    def _open(self, position: int) -> tuple[AnyChannelReader, ...]:
        episode = self._index.open(int(self.numbers[position]))
        channels = self._channels[int(self._layout_numbers[position])]
        return tuple(_open_channel(episode, channel) for channel in channels)

    def _check_layouts(
        self, layouts: Sequence[Sequence[ChannelLayout]], names: Sequence[str]
    ) -> dict[int, tuple[ChannelLayout, ...]]:
        """Return the channels of each layout. Raise `BadInputError` unless windows of all fit into one array."""
        out: dict[int, tuple[ChannelLayout, ...]] = {}
        first: tuple[ChannelLayout, ...] | None = None
        for number, position in zip(*np.unique(self._layout_numbers, return_index=True), strict=True):
            owner = f"episode {int(self.numbers[position])} of {self._index.name!r}"
            found = tuple(find_channel(name, layouts[int(number)], owner) for name in names)
            first = first or found
            for channel, other in zip(found, first, strict=True):
                if (channel.dtype, channel.shape) != (other.dtype, other.shape):
                    raise BadInputError(
                        f"channel {channel.id!r} is {channel.dtype}{list(channel.shape)} in {owner}, "
                        f"and {other.dtype}{list(other.shape)} in another",
                        hint="Select episodes with equal channels: filter(…).",
                    )
            out[int(number)] = found
        return out


def row_format(channel: ChannelLayout) -> tuple[tuple[int, ...], np.dtype[Any], int]:
    """Return shape, type and size in bytes of one row."""
    dtype = DType(channel.dtype)
    return channel.shape, dtype.numpy, math.prod(channel.shape) * dtype.size_bytes


def _open_channel(episode: StoredEpisode, channel: ChannelLayout) -> AnyChannelReader:
    if isinstance(episode, ChunkedEpisode):
        return ChunkedChannelReader(episode, channel)
    assert isinstance(episode, FileEpisode), "there is no third kind of episode"
    return ChannelReader(episode, channel)


def align_rows(episode: StoredEpisode, channel: ChannelLayout, row_count: int) -> NDArray[np.int64]:
    """Return for each step the latest row that is not later."""
    rate = channel.rate_hz
    assert rate is not None, "only a channel with its own rate is aligned"
    if not row_count:
        raise BadInputError(f"channel {channel.id!r} of episode {episode.id!r} has no rows")
    found = np.floor(step_seconds(episode, channel) * rate + _TOLERANCE).astype(np.int64)
    return np.clip(found, 0, row_count - 1)


def step_seconds(episode: StoredEpisode, channel: ChannelLayout) -> NDArray[np.float64]:
    """Return the time of each step since the first. `BadInputError`, with the channel, if the steps have no time."""
    if _TIMESTAMPS in episode.blocks:
        times = episode.read([_TIMESTAMPS])[_TIMESTAMPS].astype(np.int64)
        seconds: NDArray[np.float64] = (times - times[:1]) / 1e9
        return seconds
    if episode.timebase.hz is None:
        raise BadInputError(
            f"channel {channel.id!r} has its own rate, but episode {episode.id!r} has neither rate nor timestamps",
            hint="Leave out the channel, or record a timebase.",
        )
    return np.arange(episode.length) / episode.timebase.hz
