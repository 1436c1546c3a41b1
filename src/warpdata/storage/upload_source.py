"""Files on their way into a store, believed only as long as they are what their fingerprint says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from warpdata.errors import InvalidSourceError
from warpdata.primitives.hashing import Fingerprint, OnBytes, ignore_bytes

__all__ = ["read_rechecked"]


def read_rechecked(
    path: Path, fingerprint: Fingerprint, chunk_bytes: int, on_bytes: OnBytes = ignore_bytes
) -> Iterator[bytes]:
    """The file's bytes, ending in `InvalidSourceError` if they are no longer those of the fingerprint.

    Raised where the iterator would have ended or sooner, so that whoever consumes it drops what it has
    and nothing appears. A file that is gone or unreadable has changed, too.
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


def _changed(path: Path) -> InvalidSourceError:
    return InvalidSourceError(f"{path} changed while it was being published")
