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
    StorageError,
    WriteUnknownError,
)
from warpdata.kinds import LazyBlob, StagedBlob
from warpdata.limits import SINGLE_PUT_BYTES
from warpdata.primitives.hashing import Blob, Fingerprint, blob_key
from warpdata.primitives.parallel import IO_POOL
from warpdata.primitives.progress import ProgressCounter
from warpdata.primitives.reprs import short_repr
from warpdata.repository.catalog import Pause
from warpdata.storage import BlobCopy, Reader, Writer, verify_blob

__all__ = [
    "PlannedFile",
    "PublishPlan",
    "delete_corrupt",
    "find_likely_present",
    "find_present",
    "is_copy_of",
    "plan_upload",
    "retry_unknown",
    "upload_files",
]

_UPLOAD_THREADS = 4
_STAT_THREADS = 16
_SAMPLE_BLOBS = 8
_ATTEMPTS = 6


@dataclass(frozen=True, slots=True)
class PlannedFile:
    """A blob that the store must have. With lazy `content`, the file does not exist and `path` only names it."""

    path: Path
    fingerprint: Fingerprint
    is_present: bool
    content: LazyBlob | None = None


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


def plan_upload(blobs: Iterable[StagedBlob], present: Collection[str]) -> tuple[PlannedFile, ...]:
    """Return every distinct blob once, in order. Pure."""
    files: dict[str, PlannedFile] = {}
    for blob in blobs:
        digest = blob.fingerprint.blob.hash
        files.setdefault(digest, PlannedFile(blob.path, blob.fingerprint, digest in present, blob.content))
    return tuple(files.values())


def find_likely_present(reader: Reader, blobs: Sequence[Blob]) -> set[str]:
    """Like `find_present`, but skip most small blobs if none of a sample is stored.

    An interrupted publish uploaded the first blobs first, so the sample includes those. A stored blob that was
    skipped is uploaded again; its create-only put has no effect, and the stored bytes are read back.
    """
    small = [blob for blob in blobs if blob.byte_size <= SINGLE_PUT_BYTES]
    sample = {*small[:_SAMPLE_BLOBS], *small[:: max(1, len(small) // _SAMPLE_BLOBS)]}
    found = find_present(reader, [blob for blob in blobs if blob in sample or blob.byte_size > SINGLE_PUT_BYTES])
    if not any(blob.hash in found for blob in sample):
        return found
    return found | find_present(reader, [blob for blob in small if blob not in sample])


def find_present(reader: Reader, blobs: Sequence[Blob]) -> set[str]:
    """Return the hashes that are stored with the right size."""

    def is_present(blob: Blob) -> bool:
        try:
            return reader.stat(blob_key(blob.hash)).size_bytes == blob.byte_size
        except NotCachedError as error:
            raise DeniedError(
                f"mode 'local' uses no network, so the content of {reader.url} is unknown",
                hint="Open the store in another mode, such as 'auto'.",
                kind=ErrorKind.READ_ONLY_STORE,
            ) from error
        except ObjectNotFoundError:
            return False

    present = IO_POOL.map_all(is_present, blobs, limit=_STAT_THREADS)
    return {blob.hash for blob, found in zip(blobs, present, strict=True) if found}


def upload_files(
    writer: Writer, files: Sequence[PlannedFile], staging: Path, counter: ProgressCounter, pause: Pause
) -> None:
    """Upload the blobs that are missing. Lazy content is written into `staging` and removed after its upload."""

    def upload(file: PlannedFile) -> None:
        if file.is_present:
            counter.add_bytes(file.fingerprint.blob.byte_size)
        else:
            with _on_disk(file, staging) as (path, fingerprint):
                _put_file(writer, path, fingerprint, counter, pause)
        counter.finish_file()

    IO_POOL.map_all(upload, files, limit=_UPLOAD_THREADS)


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


def _put_file(writer: Writer, path: Path, fingerprint: Fingerprint, counter: ProgressCounter, pause: Pause) -> None:
    """Create the blob, or replace a corrupt object under its key. When this returns, the blob is in the store."""
    key, blob = blob_key(fingerprint.blob.hash), fingerprint.blob

    def put() -> None:
        if writer.create_file(key, path, fingerprint, counter.add_bytes):
            is_checked = blob.byte_size <= SINGLE_PUT_BYTES  # one conditional request, which the store confirmed
        else:
            is_checked = _is_intact(writer, blob)
            if not is_checked:
                writer.replace_file(key, path, fingerprint)
        if not is_checked:
            _check_size(writer, blob, path)

    retry_unknown(put, pause)


def _is_intact(reader: Reader, blob: Blob) -> bool:
    """Check an object that an upload has met: its size, and its hash if it fits into one request.

    Reading a small blob back takes as long as the request that has just been refused.
    """
    try:
        is_sized = reader.stat(blob_key(blob.hash)).size_bytes == blob.byte_size
    except ObjectNotFoundError:
        return False
    return is_sized and (blob.byte_size > SINGLE_PUT_BYTES or verify_blob(reader, blob) is None)


def _check_size(reader: Reader, blob: Blob, path: Path) -> None:
    stored = reader.stat(blob_key(blob.hash)).size_bytes
    if stored != blob.byte_size:
        raise StorageError(f"{path} has {blob.byte_size} bytes, but blob {blob.hash} in the store has {stored}")


def retry_unknown(write: Callable[[], None], pause: Pause) -> None:
    """Repeat a write after a lost reply. Its content must depend only on its key."""
    for attempt in range(_ATTEMPTS):
        try:
            return write()
        except WriteUnknownError:
            if attempt == _ATTEMPTS - 1:
                raise
            pause(attempt)
    raise AssertionError("unreachable")


def is_copy_of(reader: Reader, file: PlannedFile) -> bool:
    """Return whether the content of a blob comes from this store, so that it cannot repair the store."""
    return isinstance(file.content, BlobCopy) and file.content.reader.url == reader.url


def delete_corrupt(writer: Writer, blobs: Iterable[Blob]) -> set[str]:
    """Delete stored blobs that do not have their hash, so that they can be uploaded again. Return their hashes."""
    listed = list(blobs)
    findings = IO_POOL.map_all(lambda blob: verify_blob(writer, blob), listed, limit=_UPLOAD_THREADS)
    corrupt = [blob for blob, finding in zip(listed, findings, strict=True) if finding is not None]
    for blob in corrupt:
        writer.delete(blob_key(blob.hash))
    return {blob.hash for blob in corrupt}
