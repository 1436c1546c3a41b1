"""Reads that are verified: ranges, whole blobs, and local files on their way into a store.

A cache below may hold a corrupt copy of a blob that is valid in the store. Bytes that fail verification are
therefore read a second time if a cached copy could be dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from warpdata.errors import CorruptError, InvalidSourceError, ObjectNotFoundError
from warpdata.primitives.hashing import (
    Blob,
    Fingerprint,
    OnBytes,
    blob_key,
    fingerprint_file,
    ignore_bytes,
    sha256_chunks,
    sha256_hex,
)
from warpdata.storage.types import ByteRange, Reader

__all__ = [
    "REPAIR_HINT",
    "BlobCopy",
    "read_blob",
    "read_verified",
    "read_verified_chunks",
    "retry_corrupt",
    "verify_blob",
]

REPAIR_HINT = (
    "Publish the same data with --repair, or restore it by `warp verify --repair`, with --source from another store."
)
"""The next step after a corrupt blob. A publish without --repair keeps a stored blob of the right size."""

T = TypeVar("T")


def read_verified(reader: Reader, key: str, span: ByteRange, check: Callable[[memoryview], T]) -> T:
    """Read a range and return `check(data)`, which raises a `CorruptError` if the bytes are wrong.

    If it does, and a cached copy could be dropped, the range is read and checked once more. An error of the read
    itself is never retried.
    """
    data = reader.read_range(key, span)
    try:
        return check(data)
    except CorruptError:
        if not reader.invalidate(key):
            raise
    return check(reader.read_range(key, span))


def retry_corrupt(
    read: Callable[[], T],
    invalidate: Callable[[], bool],
    errors: type[Exception] | tuple[type[Exception], ...] = CorruptError,
) -> T:
    """Return `read()`. If it raises one of the errors and `invalidate()` returns True, return a second `read()`.

    For reads of several ranges, and for sources that are not a `Reader`.
    """
    try:
        return read()
    except errors:
        if not invalidate():
            raise
    return read()


def read_blob(reader: Reader, blob: Blob) -> bytes:
    """Return the bytes of a small blob; `CorruptError` unless they hash to its name."""
    data = reader.read(blob_key(blob.hash)).data
    if len(data) != blob.byte_size or sha256_hex(data) != blob.hash:
        raise CorruptError(_mismatch(reader, blob), hint=REPAIR_HINT)
    return data


def verify_blob(
    reader: Reader, blob: Blob, on_bytes: OnBytes = ignore_bytes
) -> CorruptError | ObjectNotFoundError | None:
    """Read and hash a blob of any size. Return the problem, or None if the blob is valid."""
    try:
        found = sha256_chunks(_counted(reader.stream(blob_key(blob.hash)), on_bytes))
    except (CorruptError, ObjectNotFoundError) as error:
        return error
    return None if found == blob else CorruptError(_mismatch(reader, blob))


def read_verified_chunks(
    path: Path, fingerprint: Fingerprint, chunk_bytes: int, on_bytes: OnBytes = ignore_bytes
) -> Iterator[bytes]:
    """Yield the bytes of a local file. `InvalidSourceError` if they do not match the fingerprint any more.

    The error comes before the last chunk, so that a consumer never gets all bytes of a changed file. A file that is
    missing or unreadable has changed too.
    """
    import xxhash

    quick, size = xxhash.xxh3_128(), 0
    try:
        with path.open("rb", buffering=0) as file:
            while chunk := file.read(chunk_bytes):
                quick.update(chunk)
                size += len(chunk)
                if size >= fingerprint.blob.byte_size and quick.hexdigest() != fingerprint.quick:
                    raise _changed(path)
                yield chunk
                on_bytes(len(chunk))
    except OSError as error:
        raise InvalidSourceError(f"{path} cannot be read: {error.strerror or error}") from error
    if quick.hexdigest() != fingerprint.quick:
        raise _changed(path)


@dataclass(frozen=True, slots=True)
class BlobCopy:
    """A blob of a store, copied to a file when it is needed."""

    reader: Reader
    blob: Blob

    def write(self, path: Path, expected: Fingerprint) -> Fingerprint:
        """Copy the blob, and return the fingerprint of the file. `CorruptError` if it is not the expected blob."""
        key = blob_key(self.blob.hash)

        def copy() -> Fingerprint:
            with path.open("wb") as file:
                file.writelines(self.reader.stream(key))
            found = fingerprint_file(path)
            if found.blob != expected.blob:
                raise CorruptError(_mismatch(self.reader, self.blob))
            return found

        return retry_corrupt(copy, partial(self.reader.invalidate, key))


def _counted(chunks: Iterator[memoryview], on_bytes: OnBytes) -> Iterator[memoryview]:
    for chunk in chunks:
        yield chunk
        on_bytes(len(chunk))


def _mismatch(reader: Reader, blob: Blob) -> str:
    return f"blob {blob.hash} in {reader.url} does not hold the {blob.byte_size} bytes its name promises"


def _changed(path: Path) -> InvalidSourceError:
    return InvalidSourceError(f"{path} changed while it was being published")
