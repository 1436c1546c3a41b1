"""Files that no store has: documents in the formats of other tools, made from a version on demand.

A version never changes, so neither do its files. Sizes and hashes are kept in memory, contents in memory and in the
cache of this machine. Implements "Virtual files" of docs/specs/gateway.md.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field

from warpdata.errors import CorruptError, LimitExceededError
from warpdata.limits import MAX_VIRTUAL_FILE_BYTES, MIB
from warpdata.primitives.byte_lru import ByteLRU
from warpdata.primitives.hashing import sha256_hex
from warpdata.server.s3.documents import DOCUMENTS, FOLDERS, MemberAlias
from warpdata.server.s3.versions import GatewayVersion
from warpdata.session import Session

__all__ = ["VirtualFile", "VirtualFiles"]

_MEMORY_BYTES = 256 * MIB
_KNOWN = 100_000
_ENTRY_BYTES = 200
_LOCKS = 64
_Key = tuple[str, str, str, str]


@dataclass(frozen=True, slots=True)
class VirtualFile:
    """The size and hash of a file that was made."""

    size_bytes: int
    sha256: str


@dataclass(frozen=True)
class VirtualFiles:
    """Makes virtual files, each once at a time. Safe to share between threads."""

    session: Session
    _known: ByteLRU[_Key, VirtualFile] = field(default_factory=lambda: ByteLRU(max_entries=_KNOWN))
    _contents: ByteLRU[str, bytes] = field(default_factory=lambda: ByteLRU(_MEMORY_BYTES))
    _folders: ByteLRU[_Key, Mapping[str, bytes | MemberAlias]] = field(default_factory=lambda: ByteLRU(_MEMORY_BYTES))
    _making: tuple[threading.Lock, ...] = field(default_factory=lambda: tuple(threading.Lock() for _ in range(_LOCKS)))

    def names(self, version: GatewayVersion) -> list[str]:
        """Return the names of the documents of a version."""
        return [name for name, document in DOCUMENTS.items() if document.is_offered(version)]

    def folders(self, version: GatewayVersion) -> list[str]:
        """Return the directories of virtual files that a version has. An artifact of the same name goes first."""
        offered = [name for name, folder in FOLDERS.items() if folder.is_offered(version)]
        return [name for name in offered if name not in version.artifacts]

    def find(self, version: GatewayVersion, name: str) -> VirtualFile | None:
        """Return a document of a version, which is made if it is not known; None if the version has none."""
        document = DOCUMENTS.get(name)
        if document is None or not document.is_offered(version):
            return None
        known = self._known.get(_key(version, name))
        return known or self._make(version, name)[0]

    def read(self, version: GatewayVersion, name: str) -> bytes:
        """Return the content of a document that `find` has found."""
        known = self._known.get(_key(version, name))
        content = None if known is None else self._kept(known.sha256)
        return self._make(version, name)[1] if content is None else content

    def folder(self, version: GatewayVersion, name: str) -> Mapping[str, bytes | MemberAlias]:
        """Return all files of a virtual directory, by path."""
        key = _key(version, f"{name}/")
        found = self._folders.get(key)
        if found is None:
            with self._lock(key):
                found = self._folders.get(key)
                if found is None:
                    found = dict(sorted(FOLDERS[name].make(version, self.session).items()))
                    self._folders.put(key, found, sum(map(_size_bytes, found.items())))
        return found

    def _make(self, version: GatewayVersion, name: str) -> tuple[VirtualFile, bytes]:
        key = _key(version, name)
        with self._lock(key):
            known = self._known.get(key)
            content = None if known is None else self._kept(known.sha256)
            if known is not None and content is not None:  # another thread made it meanwhile
                return known, content
            content = DOCUMENTS[name].make(version, self.session)
            if len(content) > MAX_VIRTUAL_FILE_BYTES:
                raise LimitExceededError(f"{name!r} of {version.id} would have {len(content):,} bytes")
            made = VirtualFile(len(content), sha256_hex(content))
            if known is not None and known != made:
                raise CorruptError(
                    f"{name!r} of {version.id}@{version.version} was not the same when it was made again"
                )
            self._known.put(key, made)
            self._keep(content, made.sha256)
        return made, content

    def _kept(self, sha256: str) -> bytes | None:
        content = self._contents.get(sha256)
        if content is not None or self.session.cache is None:
            return content
        entry = self.session.cache.find_intact(sha256)
        if entry is None:
            return None
        content = entry.path.read_bytes()
        return content if sha256_hex(content) == sha256 else None

    def _keep(self, content: bytes, sha256: str) -> None:
        if not self._contents.put(sha256, content, len(content)) and self.session.cache is not None:
            self.session.cache.put(content)

    def _lock(self, key: _Key) -> threading.Lock:
        return self._making[hash(key) % _LOCKS]


def _size_bytes(item: tuple[str, bytes | MemberAlias]) -> int:
    path, content = item
    return _ENTRY_BYTES + len(path) + (len(content) if isinstance(content, bytes) else len(content.path))


def _key(version: GatewayVersion, name: str) -> _Key:
    return (version.id, version.version, version.ref, name)
