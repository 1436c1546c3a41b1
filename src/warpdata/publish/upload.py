"""Blobs into the store: planned, then uploaded once each, in parallel. Safe to run again after an interruption."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from warpdata.errors import (
    DeniedError,
    ErrorKind,
    NotCachedError,
    ObjectNotFoundError,
)
from warpdata.kinds import LazyBlob, MemoryBlob, StagedBlob
from warpdata.limits import SINGLE_PUT_BYTES
from warpdata.primitives.hashing import Blob, Fingerprint, blob_key
from warpdata.primitives.parallel import IO_POOL, disk_threads, request_slots
from warpdata.primitives.progress import Progress, ProgressCounter
from warpdata.primitives.reprs import short_repr
from warpdata.repository.catalog import Pause, put_blob, put_blob_file
from warpdata.session import Session
from warpdata.storage import BlobCopy, GenerationReader, Reader, Writer, verify_blob

__all__ = [
    "PlannedFile",
    "PublishPlan",
    "StagedUpload",
    "distinct_blobs",
    "find_present",
    "plan_upload",
]

_SAMPLE_BLOBS = 8


@dataclass(frozen=True, slots=True)
class PlannedFile:
    """A blob that the store must have. With lazy `content`, the file does not exist and `path` only names it.

    `generation` is that of its key, see docs/specs/gc.md.
    """

    path: Path
    fingerprint: Fingerprint
    is_present: bool
    content: LazyBlob | None = None
    generation: str | None = None


@dataclass(frozen=True, slots=True)
class PublishPlan:
    """The effect of a publish. `version` is None for an append, whose version depends on the head at that time.

    `counts` has the rows, files, episodes and tensors by section and name.
    """

    dataset_id: str
    version: str | None
    counts: Mapping[str, Mapping[str, int]]
    files: tuple[PlannedFile, ...]

    def __repr__(self) -> str:
        version = None if self.version is None else self.version[:12]
        files, size_bytes = len(self.files), self.total_bytes
        upload = {"upload_files": self.upload_files, "upload_bytes": self.upload_bytes}
        return short_repr("PublishPlan", self.dataset_id, version=version, files=files, bytes=size_bytes, **upload)

    @property
    def tables(self) -> Mapping[str, int]:
        return self.counts.get("tables", {})

    @property
    def artifacts(self) -> Mapping[str, int]:
        return self.counts.get("artifacts", {})

    @property
    def episodes(self) -> Mapping[str, int]:
        return self.counts.get("episodes", {})

    @property
    def tensors(self) -> Mapping[str, int]:
        return self.counts.get("tensors", {})

    @property
    def total_bytes(self) -> int:
        return sum(file.fingerprint.blob.byte_size for file in self.files)

    @property
    def upload_files(self) -> int:
        return sum(not file.is_present for file in self.files)

    @property
    def upload_bytes(self) -> int:
        return sum(file.fingerprint.blob.byte_size for file in self.files if not file.is_present)


def plan_upload(
    blobs: Iterable[StagedBlob], present: Collection[str], generations: Mapping[str, str]
) -> tuple[PlannedFile, ...]:
    """Return every distinct blob once, in order. Pure."""
    files: dict[str, PlannedFile] = {}
    for blob in blobs:
        digest = blob.fingerprint.blob.hash
        generation = generations.get(digest)
        planned = PlannedFile(blob.path, blob.fingerprint, digest in present, blob.content, generation)
        files.setdefault(digest, planned)
    return tuple(files.values())


def distinct_blobs(staged: Iterable[StagedBlob]) -> list[Blob]:
    return list(dict.fromkeys(blob.fingerprint.blob for blob in staged))


class StagedUpload:
    """The staged blobs of one publish on their way into the store.

    Another head may need them at other keys. Then they are uploaded there too. `find_staging` returns a directory for
    lazy content.
    """

    def __init__(
        self,
        session: Session,
        staged: Sequence[StagedBlob],
        find_staging: Callable[[], Path],
        progress: Progress,
        stage: str = "upload",
    ) -> None:
        self._session = session
        self._staged = staged
        self._find_staging = find_staging
        self._progress = progress
        self._stage = stage
        self._stored: Mapping[str, str] | None = None
        self.uploaded_files = 0
        self.uploaded_bytes = 0

    def begin(self, generations: Mapping[str, str], *, repair: bool) -> None:
        """Upload what the store lacks. `repair` reads blobs that are stored, and replaces corrupt ones."""
        writer, blobs = self._session.writer, distinct_blobs(self._staged)
        find = find_present if repair else _find_likely_present
        files = plan_upload(self._staged, find(writer, blobs, generations), generations)
        if repair and _delete_repairable(writer, files, generations):
            files = plan_upload(self._staged, find_present(writer, blobs, generations), generations)
        self._upload(files, generations)

    def store(self, generations: Mapping[str, str]) -> None:
        """Upload blobs that another head needs at other keys than those of the last call."""
        assert self._stored is not None, "begin comes first"
        blobs = [blob for blob in distinct_blobs(self._staged) if self._has_moved(blob, generations)]
        if blobs:
            present = find_present(self._session.writer, blobs, generations)
            wanted = [staged for staged in self._staged if staged.fingerprint.blob in blobs]
            self._upload(plan_upload(wanted, present, generations), generations)

    def _has_moved(self, blob: Blob, generations: Mapping[str, str]) -> bool:
        assert self._stored is not None
        return generations.get(blob.hash) != self._stored.get(blob.hash)

    def _upload(self, files: Sequence[PlannedFile], generations: Mapping[str, str]) -> None:
        missing = [file for file in files if not file.is_present]
        total_bytes = sum(file.fingerprint.blob.byte_size for file in files)
        counter = ProgressCounter(self._progress, self._stage, total_bytes, len(files))
        _upload_files(self._session.writer, files, self._find_staging, counter, self._session.pause)
        self.uploaded_files += len(missing)
        self.uploaded_bytes += sum(file.fingerprint.blob.byte_size for file in missing)
        self._stored = generations


def _find_likely_present(reader: Reader, blobs: Sequence[Blob], generations: Mapping[str, str]) -> set[str]:
    """Like `find_present`, but skip most small blobs if none of a sample is stored.

    An interrupted publish uploaded the first blobs first, so the sample includes those. A stored blob that was
    skipped is uploaded again; its create-only put has no effect, and the stored bytes are read back.
    """
    small = [blob for blob in blobs if blob.byte_size <= SINGLE_PUT_BYTES]
    sample = {*small[:_SAMPLE_BLOBS], *small[:: max(1, len(small) // _SAMPLE_BLOBS)]}
    asked = [blob for blob in blobs if blob in sample or blob.byte_size > SINGLE_PUT_BYTES]
    found = find_present(reader, asked, generations)
    if not any(blob.hash in found for blob in sample):
        return found
    return found | find_present(reader, [blob for blob in small if blob not in sample], generations)


def find_present(reader: Reader, blobs: Sequence[Blob], generations: Mapping[str, str]) -> set[str]:
    """Return the hashes that are stored with the right size, at the keys of their generations."""

    def is_present(blob: Blob) -> bool:
        try:
            key = blob_key(blob.hash, generations.get(blob.hash))
            return reader.stat(key).size_bytes == blob.byte_size
        except NotCachedError as error:
            raise DeniedError(
                f"mode 'local' uses no network, so the content of {reader.url} is unknown",
                hint="Open the store in another mode, such as 'auto'.",
                kind=ErrorKind.READ_ONLY_STORE,
            ) from error
        except ObjectNotFoundError:
            return False

    present = IO_POOL.map_all(is_present, blobs)
    return {blob.hash for blob, found in zip(blobs, present, strict=True) if found}


def _upload_files(
    writer: Writer,
    files: Sequence[PlannedFile],
    find_staging: Callable[[], Path],
    counter: ProgressCounter,
    pause: Pause,
) -> None:
    """Upload the blobs that are missing. Lazy content is written into a directory and removed after its upload."""
    is_staged = any(_is_written(file) for file in files)  # then the disk holds as many files
    staging = find_staging() if is_staged else Path()

    def upload(file: PlannedFile) -> None:
        blob = file.fingerprint.blob
        if file.is_present:
            counter.add_bytes(blob.byte_size)
        elif isinstance(file.content, MemoryBlob):
            put_blob(writer, _MemoryPut(writer, file.content.data, counter), blob, file.generation, pause)
        else:
            with _on_disk(file, staging) as (path, fingerprint):
                put_blob_file(writer, path, fingerprint, file.generation, pause, counter.add_bytes)
        counter.finish_file()

    IO_POOL.map_all(upload, files, limit=disk_threads() if is_staged else request_slots(SINGLE_PUT_BYTES))


def _is_written(file: PlannedFile) -> bool:
    """Return whether the content of a blob must be written to a file before it can be uploaded."""
    return not file.is_present and file.content is not None and not isinstance(file.content, MemoryBlob)


@dataclass(frozen=True, slots=True)
class _MemoryPut:
    """Puts bytes under a key."""

    writer: Writer
    data: bytes
    counter: ProgressCounter

    def create(self, key: str) -> bool:
        is_made = self.writer.create(key, self.data)
        self.counter.add_bytes(len(self.data))
        return is_made

    def replace(self, key: str) -> None:
        self.writer.replace(key, self.data)


@contextmanager
def _on_disk(file: PlannedFile, staging: Path) -> Iterator[tuple[Path, Fingerprint]]:
    if file.content is None:
        yield file.path, file.fingerprint
        return
    written = staging / f"{file.fingerprint.blob.hash}.shard"
    try:
        yield written, file.content.write(written, file.fingerprint)
    finally:
        written.unlink(missing_ok=True)


def _is_copy_of(reader: Reader, file: PlannedFile) -> bool:
    """Return whether the content of a blob comes from this store, so that it cannot repair the store."""
    return isinstance(file.content, BlobCopy) and file.content.reader.url == reader.url


def _delete_repairable(writer: Writer, files: Sequence[PlannedFile], generations: Mapping[str, str]) -> bool:
    """Delete corrupt blobs that can be uploaded again. Raise `CorruptError` for one that only this store has."""
    present, reader = [file for file in files if file.is_present], GenerationReader(writer, generations)
    for file in present:
        if _is_copy_of(writer, file):
            finding = verify_blob(reader, file.fingerprint.blob)
            if finding is not None:
                raise finding
    own = [file.fingerprint.blob for file in present if not _is_copy_of(writer, file)]
    return bool(_delete_corrupt(writer, own, generations))


def _delete_corrupt(writer: Writer, blobs: Iterable[Blob], generations: Mapping[str, str]) -> set[str]:
    """Delete stored blobs that do not have their hash, so that they can be uploaded again. Return their hashes."""
    listed, reader = list(blobs), GenerationReader(writer, generations)
    findings = IO_POOL.map_all(lambda blob: verify_blob(reader, blob), listed)
    corrupt = [blob for blob, finding in zip(listed, findings, strict=True) if finding is not None]
    for blob in corrupt:
        writer.delete(blob_key(blob.hash, generations.get(blob.hash)))
    return {blob.hash for blob in corrupt}
