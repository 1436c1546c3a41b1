"""One channel of an episode in several files, as windows need it: the chunks' rows one after another."""

from __future__ import annotations

import functools
from bisect import bisect_right
from itertools import accumulate
from typing import TypeAlias

import numpy as np

from warpdata.formats.wshard import Array, cut_rows
from warpdata.kinds.episodes.channel_reader import Aligned, Track, aligned_rows
from warpdata.kinds.episodes.chunked import ChunkedEpisode
from warpdata.kinds.episodes.description import ChannelLayout
from warpdata.kinds.episodes.episode import FileEpisode, StoredEpisode
from warpdata.primitives.cached_property import cached_property

__all__ = ["AnyTrack", "ChunkedTrack", "open_track"]


class ChunkedTrack(Aligned):
    """Rows of one channel over all chunks. A window within one chunk is what it would be without the others."""

    def __init__(self, episode: ChunkedEpisode, channel: ChannelLayout) -> None:
        self.episode = episode
        self._channel = channel
        self._part = functools.cache(self._open_part)
        if channel.rate_hz is None:
            rows = [chunk.length for chunk in episode.chunks]
            super().__init__(episode.length, None)
        else:
            rows = [self._part(number).reader.block_type.rows for number in range(len(episode.chunks))]
            super().__init__(episode.length, aligned_rows(episode, channel, sum(rows)))
        self._starts = [0, *accumulate(rows)]

    @property
    def is_in_place(self) -> bool:
        parts = self.cut(0, self._starts[-1])
        return bool(parts) and all(part.is_in_place for _, part, _, _ in parts)

    @property
    def step_bytes(self) -> int:
        return self._part(0).step_bytes

    @cached_property
    def decodes_here(self) -> bool:
        """As of a `Track`."""
        return all(part.decodes_here for _, part, _, _ in self.cut(0, self._starts[-1]))

    def decode(self, first: int, last: int, out: Array) -> None:
        """As of a `Track`; each file writes its rows behind those of the one before."""
        begin = 0
        for _, part, low, high in self.cut(first, last):
            part.decode(low, high, out[begin : begin + high - low])
            begin += high - low

    @property
    def is_here(self) -> bool:
        return all(chunk.source.mapped is not None for chunk in self.episode.chunks)

    @property
    def is_apart(self) -> bool:
        """As of a `Track`; asked for rows that `ready` does not have, which then are not in place."""
        return self._row_numbers is None

    def ready(self, first: int, last: int) -> Array | None:
        """As of a `Track`. Rows that are there and not compared yet are compared now."""
        starts = self._starts
        if self._row_numbers is not None or first < 0 or last > starts[-1]:
            return None
        number = bisect_right(starts, first) - 1
        if last <= starts[number + 1]:  # what most windows come to
            rows = self._part(number).ready(first - starts[number], last - starts[number])
            if rows is not None:
                return rows
        return self.in_place(first, last)

    def in_place(self, first: int, last: int) -> Array | None:
        """As of a `Track`; put together where a border lies between them."""
        found = []
        for _, part, low, high in self.cut(first, last):
            rows = part.in_place(low, high)
            if rows is None:
                return None
            found.append(rows)
        if len(found) == 1:
            return found[0]
        return np.concatenate(found) if found else None

    def cut(self, first: int, last: int) -> list[tuple[int, Track, int, int]]:
        """As of a `Track`."""
        return [(number, self._part(number), low, high) for number, low, high in cut_rows(self._starts, first, last)]

    def _open_part(self, number: int) -> Track:
        return Track(self.episode.chunks[number], self._channel, is_chunk=True)


AnyTrack: TypeAlias = Track | ChunkedTrack


def open_track(episode: StoredEpisode, channel: ChannelLayout) -> AnyTrack:
    """A channel of an episode, wherever that lies."""
    if isinstance(episode, ChunkedEpisode):
        return ChunkedTrack(episode, channel)
    assert isinstance(episode, FileEpisode), "there is no third kind"
    return Track(episode, channel)
