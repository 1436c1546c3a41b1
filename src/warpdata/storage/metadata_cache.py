"""Small objects remembered on disk: immutable ones for good, the rest only as long as their tag holds.

A wrapper around a `Reader`, composed at the root, so that no reader knows it is there. An entry is
whole and carries its own checksum, or it is treated as absent and fetched again: so it need not be synced. A
disk that is full or read-only makes the cache step aside, never fail. Implements "Metadata cache" of
docs/specs/store.md.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from enum import Enum
from pathlib import Path

from warpdata.limits import COALESCE_GAP_BYTES, MAX_PAGE_BYTES
from warpdata.storage.types import ByteRange, GetResult, ObjectInfo, Reader

__all__ = ["KeyPolicy", "MetadataCache", "MetadataCacheFiles"]

_MAGIC = b"warp-meta-1\n"


class KeyPolicy(Enum):
    """How long a key's content may be remembered."""

    FOREVER = "forever"
    REVALIDATE = "while tag holds"
    NEVER = "never"


class MetadataCache:
    """Implements `Reader`. `policy` says which keys may be kept; large objects never are.

    What is kept for good must first prove sound to `is_sound`: a damaged reply would otherwise
    outlive its repair in the store.
    """

    def __init__(
        self,
        reader: Reader,
        folder: Path,
        policy: Callable[[str], KeyPolicy],
        is_sound: Callable[[str, bytes], bool],
    ) -> None:
        self._reader = reader
        self._remembered = MetadataCacheFiles(reader.url, folder)
        self._policy = policy
        self._is_sound = is_sound

    @property
    def url(self) -> str:
        return self._reader.url

    def read(self, key: str) -> GetResult:
        policy = self._policy(key)
        if policy is KeyPolicy.NEVER:
            return self._reader.read(key)
        kept = self._remembered.load(key)
        if kept is not None:
            if policy is KeyPolicy.FOREVER:
                return kept
            if kept.etag is not None:
                changed = self._reader.read_if_changed(key, kept.etag)
                if changed is None:
                    return kept
                self._remembered.keep(key, changed)
                return changed
        fetched = self._reader.read(key)
        if policy is not KeyPolicy.FOREVER or self._is_sound(key, fetched.data):
            self._remembered.keep(key, fetched)
        return fetched

    def read_if_changed(self, key: str, etag: str) -> GetResult | None:
        return self._reader.read_if_changed(key, etag)

    def read_range(self, key: str, span: ByteRange) -> memoryview:
        return self._reader.read_range(key, span)

    def read_ranges(
        self, key: str, spans: Sequence[ByteRange], *, gap_bytes: int = COALESCE_GAP_BYTES
    ) -> list[memoryview]:
        return self._reader.read_ranges(key, spans, gap_bytes=gap_bytes)

    def stream(self, key: str) -> Iterator[memoryview]:
        return self._reader.stream(key)

    def stat(self, key: str) -> ObjectInfo:
        return self._reader.stat(key)

    def list_objects(self, prefix: str) -> Iterator[ObjectInfo]:
        return self._reader.list_objects(prefix)

    def list_folders(self, prefix: str) -> list[str]:
        return self._reader.list_folders(prefix)

    def local_path(self, key: str) -> Path | None:
        return self._reader.local_path(key)

    def is_local(self, key: str) -> bool:
        return self._reader.is_local(key)

    def invalidate(self, key: str) -> bool:
        dropped = self._reader.invalidate(key)
        return self._remembered.forget(key) or dropped

    def signed_url(self, key: str, expires_s: int) -> str:
        return self._reader.signed_url(key, expires_s)


class MetadataCacheFiles:
    """What the metadata cache in `folder` holds of the store at `url`. Needs no store, so it answers offline.

    Whether a remembered object is still current is for the caller to judge.
    """

    def __init__(self, url: str, folder: Path) -> None:
        self._url = url
        self._folder = folder / hashlib.sha256(url.encode()).hexdigest()[:32]

    @property
    def url(self) -> str:
        return self._url

    def load(self, key: str) -> GetResult | None:
        """The object, if its entry is whole: magic, checksum, tag length, tag, data."""
        try:
            raw = self._entry(key).read_bytes()
        except OSError:
            return None
        body = raw[len(_MAGIC) + 32 :]
        if not raw.startswith(_MAGIC) or hashlib.sha256(key.encode() + body).digest() != raw[len(_MAGIC) :][:32]:
            with suppress(OSError):
                self._entry(key).unlink(missing_ok=True)
            return None
        tag_end = 4 + int.from_bytes(body[:4], "little")
        return GetResult(body[tag_end:], body[4:tag_end].decode() or None)

    def keep(self, key: str, fetched: GetResult) -> None:
        if len(fetched.data) > MAX_PAGE_BYTES:
            return
        tag = (fetched.etag or "").encode()
        body = len(tag).to_bytes(4, "little") + tag + fetched.data
        entry = self._entry(key)
        staged: Path | None = None
        try:
            entry.parent.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=entry.parent)
            staged = Path(name)
            with os.fdopen(handle, "wb") as file:
                file.write(_MAGIC + hashlib.sha256(key.encode() + body).digest() + body)
            staged.replace(entry)
        except OSError:
            if staged is not None:
                with suppress(OSError):
                    staged.unlink(missing_ok=True)

    def forget(self, key: str) -> bool:
        """Whether there was an entry to remove."""
        try:
            self._entry(key).unlink()
        except OSError:
            return False
        return True

    def _entry(self, key: str) -> Path:
        name = hashlib.sha256(key.encode()).hexdigest()
        return self._folder / name[:2] / name
