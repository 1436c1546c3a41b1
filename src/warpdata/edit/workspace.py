"""The surroundings of an edit: blobs that are written but not uploaded, and tables that can already be read.

Nothing reaches the store before the commit. Until then new blobs are files in a staging directory, under the keys they
will have, and a reader looks there first. So every step of an edit sees the steps before it.
"""

from __future__ import annotations

import functools
import itertools
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from warpdata.formats.parquet import ShardOpener, WrittenFile, describe_parquet
from warpdata.jobs import Job, Plan, TaskBlob, TaskResult, run_here, stored_copy
from warpdata.kinds import MemoryBlob, StagedBlob, StagedEntry, VersionContext, copied_blob
from warpdata.kinds.tables import SchemaTransform, Table
from warpdata.limits import COALESCE_GAP_BYTES, MIB
from warpdata.primitives.cached_property import cached_property
from warpdata.primitives.hashing import Blob, Fingerprint, blob_key, fingerprint_bytes, fingerprint_file
from warpdata.primitives.progress import ProgressCounter
from warpdata.repository.catalog import VersionRef, put_blob_file
from warpdata.repository.manifest import Footer, Manifest, Page, Payload, TableEntry, page_shards
from warpdata.session import Session
from warpdata.storage import BlobCopy, ByteRange, GetResult, ObjectInfo, Reader, ReaderWrapper, open_store
from warpdata.storage.cache import StagingDirectory

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "DraftSource",
    "DraftTable",
    "EditWorkspace",
    "FindDraftTransform",
    "FindTransform",
    "StagedFile",
    "stored_blob",
]

FindTransform: TypeAlias = Callable[[str], SchemaTransform | None]
"""Returns the function that types the bound columns of a table as references."""

FindDraftTransform: TypeAlias = Callable[[str, VersionContext], SchemaTransform | None]
"""Returns the function that types the bound columns of a table as references into a version, such as a draft."""

_drafts = itertools.count()
_HELD_BYTES = 16 * MIB
"""Small staged blobs that one edit keeps in memory. Later ones are written to files."""


@dataclass(frozen=True, slots=True)
class DraftSource:
    """The version that an edit has made so far, for the workers of its jobs."""

    manifest: Callable[[], Manifest]
    find_transform: FindDraftTransform


@dataclass(frozen=True, slots=True)
class DraftTable:
    """A table of a version that is not committed, to be opened where only the store is. Can be pickled."""

    name: str
    entry: TableEntry
    columns: tuple[str, ...] | None
    manifest: Manifest
    pages: Mapping[str, bytes]
    find_transform: FindDraftTransform | None

    def __call__(self, session: Session) -> Table:
        transform = None if self.find_transform is None else self.find_transform(self.name, self._context(session))
        load_page, settings = functools.partial(self._load_page, session), session.settings
        opener = ShardOpener(session.reader)
        table = Table(self.name, self.entry, opener, load_page, settings, schema_transform=transform)
        return table if self.columns is None else table.select(self.columns)

    def _context(self, session: Session) -> VersionContext:
        ref = VersionRef(self.manifest.dataset_id, "uncommitted")
        return VersionContext(session, ref, self.manifest, functools.partial(self._load_page, session))

    def _load_page(self, session: Session, page: Page) -> bytes:
        data = self.pages.get(page.hash)
        return session.catalog.load_page(page) if data is None else data


class EditWorkspace:
    """Staged blobs over a store. Remove it when the edit ends."""

    def __init__(self, session: Session, find_transform: FindTransform, source: DraftSource | None = None) -> None:
        self.session = session
        self.find_transform = find_transform
        self.source = source
        self._blobs: dict[str, StagedBlob] = {}
        self._pages: dict[str, bytes] = {}
        self._reader = _StagedReader(session.reader, lambda: self._staged_store, self._blobs, self._write_content)
        self._writing = threading.RLock()
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
        with self._writing:
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

    def add_file(self, path: Path, fingerprint: Fingerprint | None = None) -> Blob:
        """Stage a file of the staging directory as a blob. The file moves."""
        return self._keep(fingerprint or fingerprint_file(path), path)

    def run(self, plan: Plan[Any], counter: ProgressCounter, job: Job | None) -> list[TaskResult]:
        """Run a plan: here, with staged outputs, or as a job, whose outputs are in the store at once.

        What is staged so far is stored first, because the tasks of a job may read it.
        """
        if job is None:
            return run_here(plan, replace(self.session, reader=self._reader, media=None), self, counter)
        generations = {} if self.source is None else self.source.manifest().generations
        stored = {digest: name for digest in list(self._blobs) if (name := self._store_blob(digest, job)) is not None}
        results = job.run(plan, counter, {**generations, **stored})
        self._blobs.update(
            (made.hash, stored_blob(self.session, made))
            for result in results
            for made in result.blobs
            if made.hash not in self._blobs
        )
        return results

    def address_of(self, table: Table, *, with_references: bool = False) -> DraftTable:
        """Return a table of the draft for workers, which have only the store and what this value carries."""
        assert self.source is not None, "only drafts of an edit have addresses"
        find_transform = self.source.find_transform if with_references else None
        manifest = self.source.manifest()
        return DraftTable(table.name, table.entry, table.columns, manifest, dict(self._pages), find_transform)

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

    def staged(self, digest: str) -> StagedBlob:
        """Return a blob that a plan has made."""
        return self._blobs[digest]

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

    def _store_blob(self, digest: str, job: Job) -> str | None:
        """Store a staged blob, for the tasks of a job to read. Return its generation."""
        generation = job.generation_of(digest)
        if not isinstance(self._blobs[digest].content, BlobCopy):
            self._write_content(digest)
            staged = self._blobs[digest]
            put_blob_file(self.session.writer, staged.path, staged.fingerprint, generation, self.session.pause)
        return generation

    def _hold(self, staged: StagedBlob) -> None:
        """Keep a small blob in memory, or write it to a file if there are too many of them."""
        blob = staged.fingerprint.blob
        with self._writing:
            if blob.hash not in self._blobs:
                self._blobs[blob.hash] = staged
                self._held_bytes += blob.byte_size
                if self._held_bytes > _HELD_BYTES:
                    self._write_content(blob.hash)

    def _keep(self, fingerprint: Fingerprint, path: Path) -> Blob:
        blob = fingerprint.blob
        with self._writing:
            known = self._blobs.get(blob.hash)
            if known is None:
                target = self._staging.path / blob_key(blob.hash)
                target.parent.mkdir(parents=True, exist_ok=True)
                path.rename(target)
                self._blobs[blob.hash] = StagedBlob(target, fingerprint)
            elif path != known.path:
                path.unlink()
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


def stored_blob(session: Session, made: TaskBlob) -> StagedBlob:
    """Return a blob that a task of a job has stored. The commit copies it only if it needs another key."""
    return copied_blob("job", stored_copy(session, made.hash, made.byte_size, made.generation))


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
        if isinstance(staged.content, BlobCopy) and staged.content.reader.url == self._reader.url:
            return staged.content.reader  # a task of a job has stored it
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
