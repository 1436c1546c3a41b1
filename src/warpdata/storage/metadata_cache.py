"""Small objects on disk: immutable ones for ever, others until their tag changes.

Sessions compose the cache around a store, so that consumers see a plain `Reader`. Each entry carries its own
checksum; an entry that is not intact counts as absent, so entries are not synced. A disk that is full or read-only
disables the cache and raises nothing. Implements "Metadata cache" of docs/specs/store.md.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from pathlib import Path

from warpdata.limits import MAX_PAGE_BYTES
from warpdata.primitives.atomic_file import replacing
from warpdata.storage.private_files import check_private_directory, make_private_directories, open_private
from warpdata.storage.types import GetResult, Reader
from warpdata.storage.wrapper import ReaderWrapper

__all__ = ["KeyPolicy", "MetadataCache", "MetadataCacheFiles"]

_MAGIC = b"warp-meta-1\n"


class KeyPolicy(Enum):
    """The validity of a cached object, by its key."""

    FOREVER = "forever"
    REVALIDATE = "while tag holds"
    NEVER = "never"


class MetadataCache(ReaderWrapper):
    """Implements `Reader`. `policy` says which keys are cached; large objects never are.

    An object is cached only if it passes `is_valid`. A corrupt reply would otherwise outlive its repair in the store,
    or be confirmed by its tag for ever.
    """

    def __init__(
        self,
        reader: Reader,
        directory: Path,
        policy: Callable[[str], KeyPolicy],
        is_valid: Callable[[str, bytes], bool],
    ) -> None:
        super().__init__(reader)
        self._files = MetadataCacheFiles(reader.url, directory)
        self._policy = policy
        self._is_valid = is_valid

    def read(self, key: str) -> GetResult:
        policy = self._policy(key)
        if policy is KeyPolicy.NEVER:
            return self._reader.read(key)
        known = self._files.load(key)
        if known is not None:
            if policy is KeyPolicy.FOREVER:
                return known
            if known.etag is not None:
                changed = self._reader.read_if_changed(key, known.etag)
                return known if changed is None else self._save(key, changed)
        return self._save(key, self._reader.read(key))

    def _save(self, key: str, fetched: GetResult) -> GetResult:
        if self._is_valid(key, fetched.data):
            self._files.save(key, fetched)
        return fetched

    def invalidate(self, key: str) -> bool:
        dropped = self._reader.invalidate(key)
        return self._files.forget(key) or dropped


class MetadataCacheFiles:
    """The cached objects of the store at `url`. Needs no store, so it works offline.

    The caller decides whether an object is still current.
    """

    def __init__(self, url: str, directory: Path) -> None:
        self.url = url
        self._root = directory.parent
        self._names = (directory.name, hashlib.sha256(url.encode()).hexdigest()[:32])
        self._is_checked = False

    def load(self, key: str) -> GetResult | None:
        """Return the object if its entry is intact: magic, checksum, tag length, tag, data."""
        try:
            if not self._is_checked:
                check_private_directory(self._root, self._names[0])
                self._is_checked = True
            with os.fdopen(open_private(self._entry(key), os.O_RDONLY), "rb") as file:
                raw = file.read()
        except OSError:
            return None
        body = raw[len(_MAGIC) + 32 :]
        if not raw.startswith(_MAGIC) or hashlib.sha256(key.encode() + body).digest() != raw[len(_MAGIC) :][:32]:
            with suppress(OSError):
                self._entry(key).unlink(missing_ok=True)
            return None
        tag_end = 4 + int.from_bytes(body[:4], "little")
        return GetResult(body[tag_end:], body[4:tag_end].decode() or None)

    def save(self, key: str, fetched: GetResult) -> None:
        """Cache the object unless it is large. A disk that fails is ignored."""
        if len(fetched.data) > MAX_PAGE_BYTES:
            return
        tag = (fetched.etag or "").encode()
        body = len(tag).to_bytes(4, "little") + tag + fetched.data
        entry = self._entry(key)
        with suppress(OSError):
            make_private_directories(self._root, *self._names, entry.parent.name)
            with replacing(entry, is_durable=False) as file:
                os.fchmod(file.fileno(), 0o600)
                file.write(_MAGIC + hashlib.sha256(key.encode() + body).digest() + body)

    def forget(self, key: str) -> bool:
        """Remove the entry. Return whether there was one."""
        try:
            self._entry(key).unlink()
        except OSError:
            return False
        return True

    def _entry(self, key: str) -> Path:
        name = hashlib.sha256(key.encode()).hexdigest()
        return self._root.joinpath(*self._names, name[:2], name)
