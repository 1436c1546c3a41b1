"""One channel of one episode, as windows need it: which row belongs to a step, and rows in place or in memory.

A channel with a rate of its own is aligned by time: a step has the latest row that is not later than the step.
Implements "Alignment" of docs/specs/episodes.md.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from warpdata.errors import BadInputError, EpisodeCorruptedError
from warpdata.formats.wshard import Array, BlockReader, Codec
from warpdata.kinds.episodes.description import ChannelLayout
from warpdata.kinds.episodes.episode import FileEpisode, StoredEpisode
from warpdata.kinds.episodes.source import CheckedBlock

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Aligned", "Rows", "Track", "aligned_rows"]

_TIMESTAMPS = "time/timestamps_ns"
_TOLERANCE = 1e-6
"""Of a row: times that differ by less are the same, as rates like 1/3 are rounded."""


class Aligned:
    """Which row of a channel belongs to a step."""

    def __init__(self, length: int, row_numbers: NDArray[np.int64] | None) -> None:
        self.length = length
        self._row_numbers = row_numbers

    def rows_of(self, steps: NDArray[np.int64]) -> NDArray[np.int64]:
        """The rows of steps within the episode."""
        return steps if self._row_numbers is None else self._row_numbers[steps]

    def row_of(self, step: int) -> int:
        return step if self._row_numbers is None else int(self._row_numbers[step])

    @property
    def is_stepwise(self) -> bool:
        """Whether row and step have the same number."""
        return self._row_numbers is None


class Track(Aligned):
    """Rows of one channel in one file. Those of an uncompressed block on this machine are used where they lie.

    Of a chunk only rows are asked for, as steps are counted over the whole episode.
    """

    def __init__(self, episode: FileEpisode, channel: ChannelLayout, *, is_chunk: bool = False) -> None:
        self.episode = episode
        self.reader: BlockReader = episode.file[channel.block]
        meaning = self.reader.block_type
        told = (channel.dtype, channel.shape) == (str(meaning.dtype), meaning.shape)
        if not told or (channel.rate_hz is None and meaning.rows != episode.length):
            raise EpisodeCorruptedError(f"index and file disagree about {channel.block!r} of episode {episode.id!r}")
        own_rate = channel.rate_hz is not None and not is_chunk
        super().__init__(episode.length, aligned_rows(episode, channel, meaning.rows) if own_rate else None)
        self.step_bytes = meaning.step_bytes
        self.is_whole = self.reader.entry.codec is not Codec.NONE and not self.reader.entry.is_chunked
        """Whether any row takes decoding all of them."""
        self._mapped: memoryview | None = None
        self.array: Array | None = None
        self._block: CheckedBlock | None = None
        self._offset = self.reader.entry.offset
        self._in_block = 0
        self._passing: tuple[BlockReader, int] | None = None
        self._sound: Array | None = None
        """The array, when all of its block was compared, in the copy with this number."""
        self._sound_copy = 0
        self._place()

    @property
    def passing(self) -> BlockReader:
        """Reads the same rows and keeps nothing of what it decodes. The same one, until a copy was dropped."""
        copy = self.episode.source.copy
        if self._passing is None or self._passing[1] != copy:
            self._passing = self.reader.with_source(self.episode.source), copy
        return self._passing[0]

    def _place(self) -> None:
        """Take up the rows in place, if they are there."""
        entry, meaning, self._mapped = self.reader.entry, self.reader.block_type, self.episode.source.mapped
        self._block = self.episode.source.block_at(entry.offset, entry.end)
        if self._mapped is None or entry.codec is not Codec.NONE or self._block is None or not entry.size_bytes:
            self.array = None
            return
        # A true boolean may be any byte but 0. As a number it becomes a boolean when it is copied into a batch.
        dtype = np.dtype(np.uint8) if str(meaning.dtype) == "bool" else meaning.dtype.numpy
        flat = np.frombuffer(self._mapped[entry.offset : entry.end], dtype)
        self._in_block = entry.offset - self._block.start
        self.array = flat.reshape(meaning.rows, *meaning.shape)

    @property
    def is_in_place(self) -> bool:
        return self.array is not None

    @property
    def is_here(self) -> bool:
        """Whether its file lies on this machine."""
        return self.episode.source.mapped is not None

    @property
    def is_apart(self) -> bool:
        """Whether rows have to be brought into memory, and row and step have the same number."""
        return self.array is None and self._row_numbers is None

    def ready(self, first: int, last: int) -> Array | None:
        """The rows of these steps where they lie, if all are there and compared; None if there is more to do.

        What most windows of a local file come to, so it is kept short.
        """
        if first < 0 or last > self.length:
            return None
        sound, source = self._sound, self.episode.source
        if sound is not None and self._sound_copy == source.copy:
            return sound[first:last]
        array, block, copy = self.array, self._block, source.copy
        if array is None or block is None or self._row_numbers is not None:
            return None
        start, end = self._in_block + first * self.step_bytes, self._in_block + last * self.step_bytes
        if block.unseen(start // block.unit_bytes, -(-end // block.unit_bytes)):
            return None
        if self._mapped is source.mapped and block.is_seen:
            self._sound, self._sound_copy = array, copy
        return array[first:last]

    @property
    def decodes_here(self) -> bool:
        """Whether some rows can be decoded without the others, from a file on this machine."""
        return self.reader.entry.is_chunked and self.episode.source.mapped is not None

    def decode(self, first: int, last: int, out: Array) -> None:
        """Write rows into `out`, checked."""
        self.episode.trusting(lambda: self.reader.window(first, last, out=out))

    def in_place(self, first: int, last: int) -> Array | None:
        """Rows from `first` up to `last` where they lie, compared; None if they have to be brought into memory."""
        if self.array is not None:
            self._check(first, last)
        array = self.array  # another thread may drop it
        return None if array is None else array[first:last]

    def cut(self, first: int, last: int) -> list[tuple[int, Track, int, int]]:
        """Rows by file: its number, its track, and which of its rows."""
        return [(0, self, first, last)]

    def _check(self, first: int, last: int) -> None:
        """Rows in place from `first` up to `last` are about to be used: compare checksums not compared yet."""
        block = self._block
        assert block is not None, "only rows in place are checked here"
        start, end = self._offset + first * self.step_bytes, self._offset + last * self.step_bytes
        unit = block.unit_bytes
        if block.unseen((start - block.start) // unit, -((block.start - end) // unit)):
            self.episode.source.check(block, start, end)
            if self.episode.source.mapped is not self._mapped:
                self._place()


class Rows:
    """Some rows of a channel in memory: stretches of neighbours."""

    __slots__ = ("_parts", "_starts")

    def __init__(self, starts: Sequence[int], parts: Sequence[Array]) -> None:
        self._starts = starts
        self._parts = parts

    def stretch(self, row: int) -> tuple[int, Array]:
        """The stretch that holds a row, and the number of its first."""
        at = bisect_right(self._starts, row) - 1
        return self._starts[at], self._parts[at]

    def between(self, first: int, last: int) -> Array:
        """Neighbours that were loaded together."""
        begin, part = self.stretch(first)
        return part[first - begin : last - begin]


def aligned_rows(episode: StoredEpisode, channel: ChannelLayout, rows: int) -> NDArray[np.int64]:
    """For each step the latest row that is not later."""
    rate, hz, length = channel.rate_hz, episode.timebase.hz, episode.length
    assert rate is not None, "only a channel with a rate of its own is aligned"
    if not rows:
        raise BadInputError(f"channel {channel.id!r} of episode {episode.id!r} has no rows")
    if _TIMESTAMPS in episode.blocks:
        times = episode.read([_TIMESTAMPS])[_TIMESTAMPS].astype(np.int64)
        seconds = (times - times[:1]) / 1e9
    elif hz is not None:
        seconds = np.arange(length) / hz
    else:
        raise BadInputError(
            f"channel {channel.id!r} has a rate of its own, and episode {episode.id!r} has neither rate nor timestamps",
            hint="Leave the channel out, or record a timebase.",
        )
    found = np.floor(seconds * rate + _TOLERANCE).astype(np.int64)
    return np.clip(found, 0, rows - 1)
