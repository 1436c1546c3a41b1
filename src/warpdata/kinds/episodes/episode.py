"""One episode of a version, opened from the index alone. Its blocks are read by range on demand.

A `FileEpisode` is stored in one file, which is usual. A `ChunkedEpisode` is stored in several and reads like one.
Implements "Chunked episodes" of docs/specs/episodes.md.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from warpdata.errors import BadInputError, CorruptError, NotFoundError
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
    join_episodes,
    joined_identity,
    load_wshard,
    open_file,
)
from warpdata.kinds.episodes.camera import CameraReader
from warpdata.kinds.episodes.encoded_frames import EncodedFrames, Size
from warpdata.kinds.episodes.source import EpisodeSource, Piece, make_checked_block
from warpdata.primitives.arguments import check_arguments
from warpdata.primitives.cached_property import cached_property
from warpdata.primitives.hashing import Blob
from warpdata.primitives.reprs import short_repr
from warpdata.repository.manifest import JsonObject
from warpdata.storage import Reader, retry_corrupt

__all__ = ["ChunkedEpisode", "ChunkedRow", "FileEpisode", "IndexRow", "StoredEpisode"]

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class IndexRow:
    """The columns of the index that open one episode file."""

    id: str
    length: int
    blob: Blob
    identity: str
    pieces: tuple[Piece, ...]
    checks: Mapping[str, bytes]
    """Checksums by block name."""
    chunk_position: tuple[int, int] | None = None
    """Of a chunk: its index, and the number of its first step in the whole episode."""


@dataclass(frozen=True, slots=True)
class ChunkedRow:
    """The columns of the index that open one episode in several files."""

    id: str
    length: int
    identity: str
    chunks: tuple[IndexRow, ...]


@check_arguments
class StoredEpisode(ABC):
    """An episode in a store. `episode["rgb"]` reads one channel: `read()`, or `window(start, stop)`.

    Channels of encoded images or video are read as frames, by a `CameraReader`; `file` has their stored bytes.
    Opening it sends no request, because the index of the set has the header and the metadata of every file.
    """

    def __init__(self, number: int, name: str, length: int, identity: str) -> None:
        self.number = number
        self.id = name
        self.length = length
        """Number of steps."""
        self.identity = identity
        """64 hex digits that name the content, independent of its compression."""

    def __repr__(self) -> str:
        return short_repr("StoredEpisode", self.id, length=self.length, bytes=self.size_bytes)

    def __len__(self) -> int:
        return self.length

    @property
    @abstractmethod
    def chunks(self) -> tuple[FileEpisode, ...]:
        """The files of the episode in order, each an episode too. Usually this is the episode alone."""

    @property
    def size_bytes(self) -> int:
        """Total size of the files."""
        return sum(chunk.size_bytes for chunk in self.chunks)

    @property
    @abstractmethod
    def hash(self) -> str:
        """The SHA-256 of the file, which is stored byte for byte as published; empty if there are several files."""

    @property
    @abstractmethod
    def file(self) -> WShardFile | JoinedFile:
        """The file, open as by `open_wshard`. Several files appear as one."""

    @property
    @abstractmethod
    def info(self) -> EpisodeInfo:
        """The content of the metadata blocks."""

    @property
    def env_id(self) -> str:
        return self.info.env_id

    @property
    def timebase(self) -> Timebase:
        return self.info.timebase

    @property
    def metadata(self) -> JsonObject:
        """The user's metadata, including lists and objects, which are not columns of the table."""
        return self.info.metadata

    @property
    def blocks(self) -> tuple[str, ...]:
        """Names of all blocks. For an episode in several files: of the blocks that continue across files."""
        return self.file.blocks

    def __getitem__(self, name: str) -> BlockReader | JoinedBlock | CameraReader:
        block = self.block_name(name)
        return self._camera(block) if self.is_encoded(block) else self.file[block]

    def is_encoded(self, block: str) -> bool:
        """Return whether a block holds encoded images or video."""
        spec = self.info.channels.get(block)
        return spec is not None and "encoding" in spec.attributes

    def _camera(self, block: str) -> CameraReader:
        spec = self.info.channels[block]
        name = f"channel {spec.id!r} of episode {self.id!r}"
        return CameraReader(name, [EncodedFrames(chunk, block) for chunk in self.chunks])

    def _read_cameras(self, channels: Sequence[str], resize: Size | None) -> dict[str, Array]:
        blocks = {name: self.block_name(name) for name in channels}
        found = {name: self._camera(block) for name, block in blocks.items() if self.is_encoded(block)}
        if resize is not None and not found:
            raise BadInputError(f"resize={resize!r} applies to encoded cameras; {list(channels)} has none")
        return {name: camera.read(resize=resize) for name, camera in found.items()}

    def block_name(self, name: str) -> str:
        """Return the name of the block for a channel id or a block name."""
        file = self.chunks[0].file
        if name in file:
            return name
        by_id = [spec.block for spec in self.info.channels.values() if spec.id == name]
        found = dict.fromkeys(block for block in (*by_id, f"signal/{name}", f"action/{name}") if block in file)
        if len(found) > 1:
            raise BadInputError(
                f"{name!r} is ambiguous in episode {self.id!r}: {' or '.join(found)}", hint="Use the block name."
            )
        if not found:
            listed = ", ".join(block for block in file.blocks[:20] if not block.startswith("meta/"))
            raise NotFoundError(f"episode {self.id!r} has no channel {name!r}", hint=f"Blocks: {listed}.")
        return next(iter(found))

    @abstractmethod
    def read(self, channels: Sequence[str], *, resize: tuple[int, int] | None = None) -> dict[str, Array]:
        """Read whole channels, verified. Channels that are adjacent in a file share a request.

        Encoded cameras are decoded: height × width × 3, RGB, uint8, scaled to `resize` (height, width) if given.
        """

    @abstractmethod
    def load(self, channels: Sequence[str] | None = None) -> Episode:
        """Load the episode into memory, as `load_wshard` does; `channels` restricts it to some."""

    @abstractmethod
    def verify(self) -> None:
        """Read everything. Raise `CorruptError` unless every block is what was published."""


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
        file = open_file(self.source)
        info = file.info
        has_head = file.header.data_offset <= len(self.source.head)
        if not has_head or info is None or (info.id, info.length) != (self.id, self.length) or self._is_moved(info):
            raise CorruptError(f"the index and the file {self.hash} disagree about episode {self.id!r}")
        entries = {name: file[name].entry for name in self._row.checks if name in file}
        self.source.set_checked_blocks(
            [
                make_checked_block(name, entry.offset, entry.end, self._check_bytes, self._row.checks[name])
                for name, entry in entries.items()
            ]
        )
        return file

    def _is_moved(self, info: EpisodeInfo) -> bool:
        """Return whether a chunk claims another position than the index."""
        chunk, position = info.chunk, self._row.chunk_position
        return position is not None and chunk is not None and (chunk.index, chunk.first_step) != position

    @property
    def info(self) -> EpisodeInfo:
        info = self.file.info
        assert info is not None, "checked when the file was opened"
        return info

    def __getitem__(self, name: str) -> BlockReader | CameraReader:
        block = self.block_name(name)
        return self._camera(block) if self.is_encoded(block) else self.file[block]

    def read(self, channels: Sequence[str], *, resize: tuple[int, int] | None = None) -> dict[str, Array]:
        cameras = self._read_cameras(channels, resize)

        def read() -> dict[str, Array]:
            readers = {name: self.file[self.block_name(name)] for name in channels if name not in cameras}
            spans = [(reader.entry.offset, reader.entry.end) for reader in readers.values()]
            fetched = self.source.fetch(spans)
            return {name: reader.with_source(fetched).read() for name, reader in readers.items()}

        found = self.retry_corrupt(read) | cameras
        return {name: found[name] for name in channels}

    def load(self, channels: Sequence[str] | None = None) -> Episode:
        wanted = None if channels is None else [self.block_name(name) for name in channels]

        def load() -> Episode:
            if wanted is None:
                return load_wshard(self.source.fetch([(0, self.source.size_bytes)]))
            entries = [self.file[name].entry for name in wanted]
            return load_wshard(self.source.fetch([(entry.offset, entry.end) for entry in entries]), wanted)

        return self.retry_corrupt(load)

    def verify(self) -> None:
        found = self.retry_corrupt(lambda: identity(self.source))
        if found != self.identity:
            raise CorruptError(f"the file {self.hash} has the identity {found}; the index says {self.identity}")

    def retry_corrupt(self, read: Callable[[], _T]) -> _T:
        """Return `read()`. If a cached copy is corrupt, drop it and read once more, from the store."""
        generation = self.source.generation

        def drop_copy() -> bool:
            if not self.source.invalidate(generation):
                return False
            self.file.clear_cache()
            return True

        return retry_corrupt(read, drop_copy, CorruptError)


class ChunkedEpisode(StoredEpisode):
    """An episode in several files. Blocks continue from one chunk to the next."""

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

    def read(self, channels: Sequence[str], *, resize: tuple[int, int] | None = None) -> dict[str, Array]:
        cameras = self._read_cameras(channels, resize)
        blocks = {name: self.file[self.block_name(name)].name for name in channels if name not in cameras}
        parts = [chunk.read(list(blocks.values())) for chunk in self._chunks]
        found = {name: np.concatenate([part[block] for part in parts]) for name, block in blocks.items()} | cameras
        return {name: found[name] for name in channels}

    def load(self, channels: Sequence[str] | None = None) -> Episode:
        wanted = None if channels is None else [self.block_name(name) for name in channels]
        return join_episodes([chunk.load(wanted) for chunk in self._chunks])

    def verify(self) -> None:
        for chunk in self._chunks:
            chunk.verify()
        found = joined_identity([chunk.identity for chunk in self._chunks])
        if found != self.identity:
            raise CorruptError(
                f"the chunks of episode {self.id!r} have the identity {found}; the index says {self.identity}"
            )
