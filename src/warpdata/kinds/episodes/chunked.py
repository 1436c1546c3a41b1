"""One episode of a version that lies in several files: read as if it were in one.

Implements "Chunked episodes" of docs/specs/episodes.md.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from warpdata.errors import EpisodeCorruptedError
from warpdata.formats.wshard import Array, Episode, EpisodeInfo, JoinedFile, join_episodes, joined_identity
from warpdata.kinds.episodes.episode import FileEpisode, StoredEpisode
from warpdata.kinds.episodes.index import ChunkedRow
from warpdata.primitives.cached_property import cached_property
from warpdata.storage import Reader

__all__ = ["ChunkedEpisode"]


class ChunkedEpisode(StoredEpisode):
    """An episode in several files. What its chunks hold goes on from one to the next."""

    def __init__(self, number: int, row: ChunkedRow, reader: Reader, check_bytes: int) -> None:
        super().__init__(number, row.id, row.length, row.identity)
        self._chunks = tuple(FileEpisode(number, chunk, reader, check_bytes) for chunk in row.chunks)

    @property
    def chunks(self) -> tuple[FileEpisode, ...]:
        return self._chunks

    @property
    def hash(self) -> str:
        return ""

    @cached_property
    def file(self) -> JoinedFile:
        return JoinedFile([chunk.file for chunk in self._chunks])

    @property
    def info(self) -> EpisodeInfo:
        return self.file.info

    def read(self, channels: Sequence[str]) -> dict[str, Array]:
        blocks = {name: self.file[self.block_name(name)].name for name in channels}
        parts = [chunk.read(list(blocks.values())) for chunk in self._chunks]
        return {name: np.concatenate([part[block] for part in parts]) for name, block in blocks.items()}

    def load(self, channels: Sequence[str] | None = None) -> Episode:
        wanted = None if channels is None else [self.block_name(name) for name in channels]
        return join_episodes([chunk.load(wanted) for chunk in self._chunks])

    def verify(self) -> None:
        for chunk in self._chunks:
            chunk.verify()
        found = joined_identity([chunk.identity for chunk in self._chunks])
        if found != self.identity:
            raise EpisodeCorruptedError(
                f"the chunks of episode {self.id!r} have the identity {found}, and the index says {self.identity}"
            )
