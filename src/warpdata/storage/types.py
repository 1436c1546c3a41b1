"""The contract of a store: two protocols, the values they exchange, and the keys they accept.

`Reader` reads, `Writer` also adds. Code that only reads takes a `Reader`, so it cannot write by mistake. Implements
"Operations" of docs/specs/store.md.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Protocol, runtime_checkable

from warpdata.errors import BadInputError, ErrorKind
from warpdata.limits import COALESCE_GAP_BYTES, MAX_KEY_LENGTH, MAX_SIGNED_URL_S
from warpdata.primitives.hashing import Fingerprint, OnBytes, ignore_bytes
from warpdata.primitives.ranges import ByteRange

__all__ = [
    "ByteRange",
    "GetResult",
    "ObjectInfo",
    "Reader",
    "StagedObject",
    "StagingWriter",
    "Writer",
    "check_expiry",
    "check_key",
]


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """An object in a listing. `modified` is the store's time of the write, if known; equality ignores it."""

    key: str
    size_bytes: int
    etag: str | None
    modified: datetime | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class GetResult:
    """A whole small object, and the tag that changes with its content."""

    data: bytes
    etag: str | None


@runtime_checkable
class Reader(Protocol):
    """Reads under one root. Safe to share between threads. Nothing it returns is verified."""

    @property
    def url(self) -> str:
        """The root, as a user writes it; never contains secrets."""
        ...

    def read(self, key: str) -> GetResult:
        """Return a whole small object; `ObjectNotFoundError` if absent."""
        ...

    def read_if_changed(self, key: str, etag: str) -> GetResult | None:
        """Return the object, or None if it still has this tag."""
        ...

    def read_range(self, key: str, span: ByteRange) -> memoryview:
        """Return exactly these bytes: a shorter reply is an error, never a shorter result."""
        ...

    def read_ranges(
        self, key: str, spans: Sequence[ByteRange], *, gap_bytes: int = COALESCE_GAP_BYTES
    ) -> list[memoryview]:
        """Return one result per range, in order. Ranges at most `gap_bytes` apart share a request."""
        ...

    def stream(self, key: str) -> Iterator[memoryview]:
        """Yield the whole object in bounded chunks."""
        ...

    def stat(self, key: str) -> ObjectInfo: ...

    def list_objects(self, prefix: str, *, max_count: int | None = None) -> Iterator[ObjectInfo]:
        """Yield every object under `prefix/`, in key order. With `max_count`, at most that many of them."""
        ...

    def list_folders(self, prefix: str) -> list[str]:
        """Return the names of the immediate subdirectories of `prefix`, sorted."""
        ...

    def local_path(self, key: str) -> Path | None:
        """Return the path of the object if it is a file of this machine, which can be mapped in place."""
        ...

    def is_local(self, key: str) -> bool:
        """Return whether the object is locally available, so that parallel reads gain nothing."""
        ...

    def expect_size(self, key: str, size_bytes: int) -> None:
        """Announce the size of an object, known from a manifest. A cache then needs no request to learn it."""
        ...

    def invalidate(self, key: str) -> bool:
        """Drop cached copies of an object whose bytes failed verification.

        True: a copy was dropped, now or just before by another thread, so the next read asks the store. False: there
        is no copy.
        """
        ...

    def signed_url(self, key: str, expires_s: int) -> str:
        """Return a URL that lets a browser read the object for 1 to 604,800 seconds.

        `UnsupportedError` if the store has none.
        """
        ...


@runtime_checkable
class Writer(Reader, Protocol):
    """Adds to a root. Every write is atomic: readers see all of an object or nothing."""

    def create(self, key: str, data: bytes) -> bool:
        """Put only if absent. True: this call made it. False: something is there, perhaps made by an earlier
        attempt of this call whose reply was lost; read it back to know. `WriteUnknownError`: no reply came, and the
        object may still appear.
        """
        ...

    def create_file(self, key: str, path: Path, fingerprint: Fingerprint, on_bytes: OnBytes = ignore_bytes) -> bool:
        """Put a file of any size only if absent, in constant memory. Results are those of `create`.

        The bytes are checked against the fingerprint. If the file has changed, nothing appears in the store and
        `InvalidSourceError` is raised. `key` must name the content, because stores without conditional multipart
        uploads may write equal bytes twice. `on_bytes` is called with the number of bytes as they are read.
        """
        ...

    def replace(self, key: str, data: bytes) -> None:
        """Overwrite. Only hints, and corrupt objects whose key names their content, may be overwritten."""
        ...

    def replace_file(self, key: str, path: Path, fingerprint: Fingerprint, on_bytes: OnBytes = ignore_bytes) -> None:
        """Overwrite a corrupt object with a file of any size, checked like that of `create_file`.

        `key` must name the content, so that overwriting can only repair.
        """
        ...

    def delete(self, key: str) -> None:
        """Remove exactly this key. An absent key is no error."""
        ...

    def delete_many(self, keys: Sequence[str]) -> None:
        """Remove exactly these keys, in as few requests as the store needs. After an error, some may remain."""
        ...

    def remove_abandoned(self, before: datetime, *, dry_run: bool = False) -> tuple[int, int]:
        """Remove unfinished writes that were last touched before this time of the store. Return count and bytes.

        Such files have no key, so no reader sees them. A store that cannot list them returns zeros.
        """
        ...


class StagedObject(Protocol):
    """An object whose bytes are durable, and which has no key yet."""

    def create(self) -> bool:
        """Give the object its key, only if absent. Results are those of `Writer.create`. Called once."""
        ...

    def close(self) -> None:
        """Remove an object that got no key. Safe to call twice."""
        ...


@runtime_checkable
class StagingWriter(Writer, Protocol):
    """A writer that can make bytes durable before they get their key, at the same time as other writes."""

    def stage(self, key: str, data: bytes) -> StagedObject: ...


def check_expiry(expires_s: int) -> int:
    """Return the lifetime of a signed URL; `BadInputError` for one that servers refuse."""
    try:
        seconds = operator.index(expires_s)
    except TypeError:
        seconds = 0
    if isinstance(expires_s, bool) or not 1 <= seconds <= MAX_SIGNED_URL_S:
        raise BadInputError(
            f"expires_s={expires_s!r} is not an integer from 1 to {MAX_SIGNED_URL_S}",
            hint="A signed URL is valid for at most seven days.",
        )
    return seconds


def check_key(key: str) -> str:
    """Return the key if it is relative, normal and printable; `BadInputError` otherwise. No key leaves the root."""
    if not key or len(key.encode(errors="replace")) > MAX_KEY_LENGTH:
        raise BadInputError(
            f"store key {key[:80]!r} is empty or longer than {MAX_KEY_LENGTH} bytes", kind=ErrorKind.INVALID_NAME
        )
    parts = key.split("/")
    if any(part in ("", ".", "..") for part in parts) or "\\" in key or not key.isprintable():
        raise BadInputError(f"store key {key!r} is not a plain relative path", kind=ErrorKind.INVALID_NAME)
    return key
