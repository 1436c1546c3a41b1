"""The surroundings of an edit: blobs that are written but not uploaded, and tables that can already be read.

Nothing reaches the store before the commit. Until then new blobs are files in a staging directory, under the keys they
will have, and a reader looks there first. So every step of an edit sees the steps before it.
"""

from __future__ import annotations

import functools
import itertools
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from warpdata.formats.parquet import ShardOpener, WrittenFile, describe_parquet
from warpdata.kinds import MemoryBlob, StagedBlob, StagedEntry, VersionContext
from warpdata.kinds.tables import SchemaTransform, Table
from warpdata.limits import COALESCE_GAP_BYTES, MIB
from warpdata.primitives.cached_property import cached_property
from warpdata.primitives.hashing import Blob, Fingerprint, blob_key, fingerprint_bytes, fingerprint_file
from warpdata.repository.catalog import VersionRef
from warpdata.repository.manifest import Footer, Manifest, Page, Payload, TableEntry, page_shards
from warpdata.session import Session
from warpdata.storage import ByteRange, GetResult, ObjectInfo, Reader, ReaderWrapper, open_store
from warpdata.storage.cache import StagingDirectory

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["EditWorkspace", "FindTransform", "StagedFile"]

FindTransform: TypeAlias = Callable[[str], SchemaTransform | None]
"""Returns the function that types the bound columns of a table as references."""

_drafts = itertools.count()
_HELD_BYTES = 16 * MIB
"""Small staged blobs that one edit keeps in memory. Later ones are written to files."""


class EditWorkspace:
    """Staged blobs over a store. Remove it when the edit ends."""

    def __init__(self, session: Session, find_transform: FindTransform) -> None:
        self.session = session
        self.find_transform = find_transform
        self._blobs: dict[str, StagedBlob] = {}
        self._pages: dict[str, bytes] = {}
        self._reader = _StagedReader(session.reader, lambda: self._staged_store, self._blobs, self._write_content)
        self._writing = threading.Lock()
        self._shards = ShardOpener(self._reader)
        self._number = 0
        self._held_bytes = 0

    @cached_property
    def _staging(self) -> StagingDirectory:
        """The directory of staged files, made when the first one needs it."""
        return StagingDirectory(self.session.settings.cache_dir)

    @cached_property
    def _staged_store(self) -> Reader:
        return open_store(f"file://{self._staging.path}", self.session.settings)

    @property
    def shards(self) -> ShardOpener:
        """Opens staged and stored shards."""
        return self._shards

    @property
    def reader(self) -> Reader:
        """Reads staged blobs, and everything else from the store."""
        return self._reader

    def read_generations(self, generations: Mapping[str, str]) -> None:
        """Read these blobs of the store at the keys of their generations."""
        self._reader.rebase(self.session.at_generations(generations).reader)

    def remove(self) -> None:
        """Remove the staged files. The workspace cannot be used after that."""
        if "_staging" in self.__dict__:
            self._staging.remove()

    def new_directory(self) -> Path:
        """Return an empty directory for files on their way to `add_file`."""
        self._number += 1
        path = self._staging.path / f"new-{self._number}"
        path.mkdir()
        return path

    def lazy_directory(self) -> Callable[[], Path]:
        """Return a function that returns one directory, made when it is first called."""
        return functools.cache(self.new_directory)

    def add_written(self, file: WrittenFile) -> Blob:
        """Stage a new file, in memory or of the staging directory. The latter moves."""
        return self.add_file(file.path) if file.data is None else self.add_bytes(file.data)

    def add_file(self, path: Path) -> Blob:
        """Stage a file of the staging directory as a blob. The file moves."""
        fingerprint = fingerprint_file(path)
        return self._keep(fingerprint, path)

    def add_bytes(self, data: bytes) -> Blob:
        """Stage bytes as a blob. They stay in memory while all of them are few."""
        fingerprint = fingerprint_bytes(data)
        self._hold(StagedBlob(Path(fingerprint.blob.hash), fingerprint, MemoryBlob(data)))
        return fingerprint.blob

    def add_blobs(self, blobs: Iterable[StagedBlob]) -> None:
        """Stage blobs that a payload kind has made. Files of the user stay where they are."""
        for staged in blobs:
            if isinstance(staged.content, MemoryBlob):
                self._hold(staged)
            elif staged.content is not None or not staged.path.is_relative_to(self._staging.path):
                self._blobs.setdefault(staged.fingerprint.blob.hash, staged)
                if staged.content is None:
                    self._link(staged)
            else:
                self._keep(staged.fingerprint, staged.path)

    def add_pages(self, pages: dict[str, bytes]) -> None:
        self._pages |= pages

    def page(self, digest: str) -> bytes | None:
        """Return a page that is not stored yet."""
        return self._pages.get(digest)

    def load_page(self, page: Page) -> bytes:
        data = self._pages.get(page.hash)
        return self.session.catalog.load_page(page) if data is None else data

    def blob(self, digest: str) -> StagedBlob | None:
        return self._blobs.get(digest)

    def add_payload(self, staged: StagedEntry) -> Payload:
        """Stage the blobs and pages of an entry that a payload kind has made, and return the entry with its shards."""
        self.add_blobs(staged.blobs)
        assert isinstance(staged.entry, Payload)
        paged = page_shards(staged.shards)
        self.add_pages(paged.new_pages)
        return replace(staged.entry, shards=paged.shards)

    def context(self, manifest: Manifest) -> VersionContext:
        """Return a version that may have staged entries, for payload kinds to open.

        It has no version hash, so that nothing takes its entries for those of another version.
        """
        session = replace(self.session, reader=self._reader, media=None)
        return VersionContext(
            session, VersionRef(manifest.dataset_id, f"uncommitted-{next(_drafts)}"), manifest, self.load_page
        )

    def open_table(self, name: str, entry: TableEntry, *, with_references: bool = False) -> Table:
        transform = self.find_transform(name) if with_references else None
        settings = self.session.settings
        return Table(name, entry, self._shards, self.load_page, settings, schema_transform=transform)

    def _hold(self, staged: StagedBlob) -> None:
        """Keep a small blob in memory, or write it to a file if there are too many of them."""
        blob = staged.fingerprint.blob
        if blob.hash not in self._blobs:
            self._blobs[blob.hash] = staged
            self._held_bytes += blob.byte_size
            if self._held_bytes > _HELD_BYTES:
                self._write_content(blob.hash)

    def _keep(self, fingerprint: Fingerprint, path: Path) -> Blob:
        blob = fingerprint.blob
        if blob.hash in self._blobs:
            path.unlink()
            return blob
        target = self._staging.path / blob_key(blob.hash)
        target.parent.mkdir(parents=True, exist_ok=True)
        path.rename(target)
        self._blobs[blob.hash] = StagedBlob(target, fingerprint)
        return blob

    def _write_content(self, digest: str) -> None:
        """Write a blob whose content is made only when it is needed, because a step of the edit reads it."""
        with self._writing:
            staged = self._blobs[digest]
            if staged.content is None:
                return
            target = self._staging.path / blob_key(digest)
            target.parent.mkdir(parents=True, exist_ok=True)
            self._blobs[digest] = StagedBlob(target, staged.content.write(target, staged.fingerprint))

    def _link(self, staged: StagedBlob) -> None:
        """Make a file of the user readable under the key of its blob."""
        target = self._staging.path / blob_key(staged.fingerprint.blob.hash)
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            target.symlink_to(staged.path.absolute())


class StagedFile:
    """A staged Parquet file: its blob, its footer and its rows."""

    def __init__(self, workspace: EditWorkspace, file: WrittenFile) -> None:
        described = describe_parquet(file.path, file.data)
        self.footer: Footer = described.footer
        self.row_count: int = described.row_count
        self.schema: pa.Schema = described.schema
        self.blob = workspace.add_written(file)


class _StagedReader(ReaderWrapper):
    """Reads staged blobs from the staging directory, and other objects from the wrapped reader."""

    def __init__(
        self,
        reader: Reader,
        staging: Callable[[], Reader],
        blobs: dict[str, StagedBlob],
        write_content: Callable[[str], None],
    ) -> None:
        super().__init__(reader)
        self._write_content = write_content
        self._staging = staging
        self._blobs = blobs

    def rebase(self, reader: Reader) -> None:
        """Read everything that is not staged from another reader."""
        self._reader = reader

    def _home(self, key: str) -> Reader:
        digest = key.rpartition("/")[2]
        staged = self._blobs.get(digest)
        if staged is None:
            return self._reader
        if staged.content is not None:
            self._write_content(digest)
        return self._staging()

    def read(self, key: str) -> GetResult:
        return self._home(key).read(key)

    def read_range(self, key: str, span: ByteRange) -> memoryview:
        return self._home(key).read_range(key, span)

    def read_ranges(
        self, key: str, spans: Sequence[ByteRange], *, gap_bytes: int = COALESCE_GAP_BYTES
    ) -> list[memoryview]:
        return self._home(key).read_ranges(key, spans, gap_bytes=gap_bytes)

    def stream(self, key: str) -> Iterator[memoryview]:
        return self._home(key).stream(key)

    def stat(self, key: str) -> ObjectInfo:
        return self._home(key).stat(key)

    def local_path(self, key: str) -> Path | None:
        return self._home(key).local_path(key)

    def is_local(self, key: str) -> bool:
        return self._home(key).is_local(key)

    def expect_size(self, key: str, size_bytes: int) -> None:
        self._home(key).expect_size(key, size_bytes)

    def invalidate(self, key: str) -> bool:
        return self._home(key).invalidate(key)
