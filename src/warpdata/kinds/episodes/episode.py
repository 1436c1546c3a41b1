"""One episode of a version: opened from the index alone, its blocks read by range when they are asked for.

Here is what any episode has, and the usual one, which lies in one file.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TypeVar

from warpdata.errors import BadInputError, EpisodeCorruptedError, NotFoundError
from warpdata.formats.wshard import (
    Array,
    BlockReader,
    Episode,
    EpisodeInfo,
    JoinedBlock,
    JoinedFile,
    Timebase,
    WShardFile,
    identity,
    load_wshard,
    open_wshard,
)
from warpdata.kinds.episodes.index import IndexRow
from warpdata.kinds.episodes.source import EpisodeSource, checked_block
from warpdata.primitives.cached_property import cached_property
from warpdata.repository.manifest import JsonObject
from warpdata.storage import Reader

__all__ = ["FileEpisode", "StoredEpisode"]

_T = TypeVar("_T")


class StoredEpisode(ABC):
    """An episode where it lies. `episode["rgb"]` reads one block: `read()`, or `window(start, stop)`.

    Opening it asks nobody: the index of the set has the header and the metadata of every file.
    """

    def __init__(self, number: int, name: str, length: int, identity: str) -> None:
        self.number = number
        self.id = name
        self.length = length
        """How many steps."""
        self.identity = identity
        """64 hex digits that name the content, however it is compressed."""

    def __repr__(self) -> str:
        return f"StoredEpisode({self.id!r}, length={self.length}, bytes={self.size_bytes})"

    def __len__(self) -> int:
        return self.length

    @property
    @abstractmethod
    def chunks(self) -> tuple[FileEpisode, ...]:
        """The files it lies in, in order, each an episode of its own: usually itself alone."""

    @property
    def size_bytes(self) -> int:
        """The size of its files."""
        return sum(chunk.size_bytes for chunk in self.chunks)

    @property
    @abstractmethod
    def hash(self) -> str:
        """The SHA-256 of its file, which is what was published, byte for byte; empty where there are several."""

    @property
    @abstractmethod
    def file(self) -> WShardFile | JoinedFile:
        """The file, open as `open_wshard` opens one; several of them look like one."""

    @property
    @abstractmethod
    def info(self) -> EpisodeInfo:
        """All that the metadata blocks say."""

    @property
    def env_id(self) -> str:
        return self.info.env_id

    @property
    def timebase(self) -> Timebase:
        return self.info.timebase

    @property
    def metadata(self) -> JsonObject:
        """The user's, whole: also what is no scalar and so no column of the table."""
        return self.info.metadata

    @property
    def blocks(self) -> tuple[str, ...]:
        """The names of all blocks; of an episode in several files, of those that go on from one to the next."""
        return self.file.blocks

    def __getitem__(self, name: str) -> BlockReader | JoinedBlock:
        return self.file[self.block_name(name)]

    def block_name(self, name: str) -> str:
        """The block that a channel's id, or a block's own name, means."""
        file = self.chunks[0].file
        if name in file:
            return name
        by_id = [spec.block for spec in self.info.channels.values() if spec.id == name]
        found = dict.fromkeys(block for block in (*by_id, f"signal/{name}", f"action/{name}") if block in file)
        if len(found) > 1:
            raise BadInputError(
                f"channel {name!r} of episode {self.id!r} may be {' or '.join(found)}", hint="Name the block."
            )
        if not found:
            listed = ", ".join(block for block in file.blocks[:20] if not block.startswith("meta/"))
            raise NotFoundError(f"episode {self.id!r} has no channel {name!r}", hint=f"There are: {listed}.")
        return next(iter(found))

    @abstractmethod
    def read(self, channels: Sequence[str]) -> dict[str, Array]:
        """Some channels whole, checked, fetched together: neighbours in a file share a request."""

    @abstractmethod
    def load(self, channels: Sequence[str] | None = None) -> Episode:
        """The episode in memory, as `load_wshard` gives it; `channels` picks some."""

    @abstractmethod
    def verify(self) -> None:
        """Read all of it; `CorruptError` unless every block is what was published."""


class FileEpisode(StoredEpisode):
    """An episode in one file, or a chunk of a longer one."""

    def __init__(self, number: int, row: IndexRow, reader: Reader, check_bytes: int) -> None:
        super().__init__(number, row.id, row.length, row.identity)
        self._row = row
        self.source = EpisodeSource(reader, row.blob, row.pieces)
        self._check_bytes = check_bytes

    @property
    def chunks(self) -> tuple[FileEpisode, ...]:
        return (self,)

    @property
    def size_bytes(self) -> int:
        return self._row.blob.byte_size

    @property
    def hash(self) -> str:
        return self._row.blob.hash

    @cached_property
    def file(self) -> WShardFile:
        file = open_wshard(self.source)
        info = file.info
        knows_head = file.header.data_offset <= len(self.source.head)
        if not knows_head or info is None or (info.id, info.length) != (self.id, self.length) or self._is_astray(info):
            raise EpisodeCorruptedError(f"the index and the file {self.hash} disagree about episode {self.id!r}")
        entries = {name: file[name].entry for name in self._row.checks if name in file}
        self.source.watch(
            checked_block(name, entry.offset, entry.end, self._check_bytes, self._row.checks[name])
            for name, entry in entries.items()
        )
        return file

    def _is_astray(self, info: EpisodeInfo) -> bool:
        """Whether a chunk says that it stands elsewhere."""
        told, place = info.chunk, self._row.place
        return place is not None and told is not None and (told.index, told.first_step) != place

    @property
    def info(self) -> EpisodeInfo:
        info = self.file.info
        assert info is not None, "it was there when the file was opened"
        return info

    def __getitem__(self, name: str) -> BlockReader:
        return self.file[self.block_name(name)]

    def read(self, channels: Sequence[str]) -> dict[str, Array]:
        def read() -> dict[str, Array]:
            readers = {name: self[name] for name in channels}
            spans = [(reader.entry.offset, reader.entry.end) for reader in readers.values()]
            fetched = self.source.fetched(spans)
            return {name: reader.with_source(fetched).read() for name, reader in readers.items()}

        return self.trusting(read)

    def load(self, channels: Sequence[str] | None = None) -> Episode:
        wanted = None if channels is None else [self.block_name(name) for name in channels]

        def load() -> Episode:
            if wanted is None:
                return load_wshard(self.source.fetched([(0, self.source.size_bytes)]))
            entries = [self.file[name].entry for name in wanted]
            return load_wshard(self.source.fetched([(entry.offset, entry.end) for entry in entries]), wanted)

        return self.trusting(load)

    def verify(self) -> None:
        found = self.trusting(lambda: identity(self.source))
        if found != self.identity:
            raise EpisodeCorruptedError(
                f"the file {self.hash} has the identity {found}, and the index says {self.identity}"
            )

    def trusting(self, read: Callable[[], _T]) -> _T:
        """What `read` gives; once more, from the store, where a nearer copy turns out to be damaged."""
        copy = self.source.copy
        try:
            return read()
        except EpisodeCorruptedError:
            if not self.source.invalidate(copy):
                raise
            self.file.clear_cache()
        return read()
