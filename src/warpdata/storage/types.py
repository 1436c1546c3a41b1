"""What a store is: two narrow protocols and the small values that cross them.

`Reader` can look, `Writer` can also add. Code that only reads is handed a `Reader`, so it cannot
write by mistake. Implements "Operations" of docs/specs/store.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Protocol, runtime_checkable

from warpdata.limits import COALESCE_GAP_BYTES
from warpdata.primitives.hashing import Fingerprint, OnBytes, ignore_bytes
from warpdata.primitives.ranges import ByteRange

__all__ = ["ByteRange", "GetResult", "ObjectInfo", "Reader", "Writer"]


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """`modified` is the store's own clock when the object was written, where it tells; identity ignores it."""

    key: str
    size_bytes: int
    etag: str | None
    modified: datetime | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class GetResult:
    """A whole small object, and the tag that says whether it has changed since."""

    data: bytes
    etag: str | None


@runtime_checkable
class Reader(Protocol):
    """Reads under one root. Safe to share between threads. Nothing it returns is verified yet."""

    @property
    def url(self) -> str:
        """The root, as a user would write it; never contains secrets."""
        ...

    def read(self, key: str) -> GetResult:
        """A whole small object; `ObjectNotFoundError` if absent."""
        ...

    def read_if_changed(self, key: str, etag: str) -> GetResult | None:
        """None when the object still has this tag."""
        ...

    def read_range(self, key: str, span: ByteRange) -> memoryview:
        """Exactly these bytes: a shorter answer is an error, never a shorter result."""
        ...

    def read_ranges(
        self, key: str, spans: Sequence[ByteRange], *, gap_bytes: int = COALESCE_GAP_BYTES
    ) -> list[memoryview]:
        """One result per span, in the order given; neighbours at most `gap_bytes` apart share a request."""
        ...

    def stream(self, key: str) -> Iterator[memoryview]:
        """The whole object in bounded chunks."""
        ...

    def stat(self, key: str) -> ObjectInfo: ...

    def list_objects(self, prefix: str) -> Iterator[ObjectInfo]:
        """Every object under `prefix/`, in key order."""
        ...

    def list_folders(self, prefix: str) -> list[str]:
        """The names of the immediate sub-folders of `prefix`, sorted."""
        ...

    def local_path(self, key: str) -> Path | None:
        """Where the object lies on this machine, if it does, so that it can be mapped in place."""
        ...

    def is_local(self, key: str) -> bool:
        """Whether reading it asks no other machine, so that many reads gain nothing from many threads."""
        ...

    def invalidate(self, key: str) -> bool:
        """Bytes read under this key did not verify. True: a nearer copy was dropped, now or just before by another
        thread, so reading again asks the store itself. False: there is nothing nearer.
        """
        ...

    def signed_url(self, key: str, expires_s: int) -> str:
        """A URL that lets a browser read the object for a while; `UnsupportedError` where there is none."""
        ...


@runtime_checkable
class Writer(Reader, Protocol):
    """Adds to a root. Every write is atomic: readers see all of an object or nothing."""

    def create(self, key: str, data: bytes) -> bool:
        """Put only if absent. True: this call made it. False: something is there, perhaps made by
        an earlier try of this very call whose reply was lost; read it back to know.
        `WriteUnknownError`: no answer came, it may appear yet.
        """
        ...

    def create_file(self, key: str, path: Path, fingerprint: Fingerprint, on_bytes: OnBytes = ignore_bytes) -> bool:
        """As `create`, from a file of any size with flat memory.

        The bytes sent are rechecked against the fingerprint; if the file changed in between, nothing
        appears in the store and `InvalidSourceError` is raised. `key` must name the content, because
        stores without conditional multipart uploads may write equal bytes twice. `on_bytes` hears of
        bytes as they are taken from the file.
        """
        ...

    def replace(self, key: str, data: bytes) -> None:
        """Overwrite. Only hints may be overwritten; nothing relies on who came last."""
        ...

    def delete(self, key: str) -> None:
        """Remove exactly this key; an absent key is fine."""
        ...
