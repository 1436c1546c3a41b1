"""Whole blobs, believed only after their hash has been checked."""

from __future__ import annotations

from collections.abc import Iterator

from warpdata.errors import BlobCorruptedError, CorruptError, ObjectNotFoundError
from warpdata.primitives.hashing import Blob, OnBytes, blob_key, ignore_bytes, sha256_chunks, sha256_hex
from warpdata.storage.types import Reader

__all__ = ["read_blob", "verify_blob"]


def read_blob(reader: Reader, blob: Blob) -> bytes:
    """A small blob's bytes; `BlobCorruptedError` unless they hash to its name."""
    data = reader.read(blob_key(blob.hash)).data
    if len(data) != blob.byte_size or sha256_hex(data) != blob.hash:
        raise BlobCorruptedError(_describe(reader, blob), hint="Publish it again, or restore the store.")
    return data


def verify_blob(
    reader: Reader, blob: Blob, on_bytes: OnBytes = ignore_bytes
) -> CorruptError | ObjectNotFoundError | None:
    """Re-read and re-hash a blob of any size; the finding, or None when it is sound."""
    try:
        seen = sha256_chunks(_watched(reader.stream(blob_key(blob.hash)), on_bytes))
    except ObjectNotFoundError as error:
        return error
    return None if seen == blob else BlobCorruptedError(_describe(reader, blob))


def _watched(chunks: Iterator[memoryview], on_bytes: OnBytes) -> Iterator[memoryview]:
    for chunk in chunks:
        yield chunk
        on_bytes(len(chunk))


def _describe(reader: Reader, blob: Blob) -> str:
    return f"blob {blob.hash} in {reader.url} does not hold the {blob.byte_size} bytes its name promises"
