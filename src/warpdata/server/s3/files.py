"""Objects of a bucket: files of artifacts, virtual files, and files of the inbox, found by key and listed.

What a key may not read is not there, whether it exists or not. Implements "Objects" of docs/specs/gateway.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import BinaryIO

from warpdata.collections import HEAD, InboxFile, InboxFiles
from warpdata.errors import BadInputError, NotFoundError
from warpdata.kinds.artifacts import Artifact, Member
from warpdata.limits import MEMBER_CHUNK_BYTES
from warpdata.primitives.byte_lru import ByteLRU
from warpdata.primitives.hashing import sha256_hex
from warpdata.repository.catalog import is_dataset_id
from warpdata.server.resident_files import LocalSpan, local_span, read_resident
from warpdata.server.s3.documents import MemberAlias
from warpdata.server.s3.errors import S3Error
from warpdata.server.s3.grants import KeyRight, KnownKey
from warpdata.server.s3.layout import INBOX, PLATFORM_ROOT, SNAPSHOT, FileKey, parse_key
from warpdata.server.s3.listing import CommonPrefix, KeyDirectory, KeyTree, KeyWindow, ListedKey
from warpdata.server.s3.versions import GatewayVersion, VersionCache
from warpdata.server.s3.virtual import VirtualFiles
from warpdata.session import Session

__all__ = ["BucketFiles", "BucketView", "GatewayObject"]

_FOUND_FILES = 16_384
_PLATFORM_DOCUMENTS = ("annotations.json", "meta.json")


@dataclass(frozen=True, slots=True)
class GatewayObject:
    """An object that was found. `read` yields the bytes of a range, each part verified before any of it is sent."""

    name: str
    size_bytes: int
    etag: str
    modified: datetime
    read: Callable[[range], Iterator[bytes | bytearray | memoryview]]
    sha256: str | None = None
    is_pinned: bool = False
    media_type: str | None = None


@dataclass(frozen=True)
class BucketFiles:
    """The objects of all buckets of a store. Safe to share between threads."""

    session: Session
    versions: VersionCache
    virtual: VirtualFiles
    _spans: ByteLRU[tuple[str, str, str, str], tuple[GatewayObject, LocalSpan | None]] = field(
        default_factory=lambda: ByteLRU(max_entries=_FOUND_FILES)
    )
    """Files by dataset, version, artifact and path, and where their bytes are."""

    @staticmethod
    def over(session: Session) -> BucketFiles:
        return BucketFiles(session, VersionCache(session), VirtualFiles(session))

    def buckets(self, key: KnownKey) -> list[str]:
        """Return the workspaces in which a key sees a dataset."""
        names = self.versions.workspaces() if key.grant.workspace is None else (key.grant.workspace,)
        return [name for name in names if self.sees_bucket(key, name)]

    def sees_bucket(self, key: KnownKey, bucket: str) -> bool:
        """Return whether there is a bucket of this name for a key."""
        if not key.grant.covers_workspace(bucket) or not is_dataset_id(f"{bucket}/x"):
            return False
        return any(key.sees(f"{bucket}/{name}") for name in self.versions.datasets(bucket))

    def find(self, key: KnownKey, bucket: str, name: str) -> GatewayObject:
        """Return an object. Raise `S3Error` if the bucket or the object is not there for this key."""
        wanted = parse_key(bucket, name)
        try:
            if wanted is None or not key.may(KeyRight.RO, wanted.dataset_id, wanted.ref):
                raise _no_key(name)
            found = self._find(wanted)
        except (NotFoundError, BadInputError) as error:  # a ref that no version can have
            raise _no_key(name) from error
        if found is None:
            raise _no_key(name)
        return found

    def recall(self, key: KnownKey, bucket: str, name: str) -> GatewayObject | None:
        """Return a file of an artifact whose bytes may be in memory; None for what has to be looked for.

        Reads at most a page of a local index. `read` raises `BlockingIOError` if it would wait.
        """
        wanted = parse_key(bucket, name)
        if wanted is None or not self._is_local or not key.may(KeyRight.RO, wanted.dataset_id, wanted.ref):
            return None
        version = self.versions.recall(wanted.dataset_id, wanted.ref)
        folder, _, path = wanted.path.partition("/")
        if version is None or folder not in version.dataset.manifest.artifacts:
            return None
        place = (wanted.dataset_id, version.version, folder, path)
        found = self._spans.get(place)
        if found is None:
            artifact = version.dataset.artifact(folder)
            try:
                member = artifact.member(path)
                found = (stored_object(artifact, member, version), local_span(artifact, member))
            except NotFoundError:
                return None
            self._spans.put(place, found)
        stored, span = found
        if span is None:
            return None
        return replace(stored, read=lambda wanted: _read_at_once(span, wanted), is_pinned=version.is_pinned)

    @property
    def _is_local(self) -> bool:
        return self.session.writer.url.startswith("file://")

    def _find(self, wanted: FileKey) -> GatewayObject | None:
        version = self.versions.open(wanted.dataset_id, wanted.ref)
        folder, slash, path = wanted.path.partition("/")
        if not slash:
            return self._document(version, wanted.path)
        if folder in version.artifacts:
            artifact = version.dataset.artifact(folder)
            return stored_object(artifact, artifact.member(path), version)
        if folder == INBOX:
            return self._received(version, path)
        if folder in self.virtual.folders(version):
            return virtual_object(path, self.virtual.folder(version, folder).get(path), version)
        return None

    def _document(self, version: GatewayVersion, name: str) -> GatewayObject | None:
        found = self.virtual.find(version, name)
        if found is None:
            return None

        def read(span: range) -> Iterator[bytes]:
            yield self.virtual.read(version, name)[span.start : span.stop]

        pinned = version.is_pinned
        return GatewayObject(name, found.size_bytes, found.sha256, version.time, read, found.sha256, pinned)

    def _received(self, version: GatewayVersion, name: str) -> GatewayObject | None:
        entry = InboxFiles(self.session, version.id).find(version.ref, name)
        if entry is None:
            return None
        content = entry.content()
        time = datetime.fromisoformat(entry.time).astimezone(UTC)

        def read(span: range) -> Iterator[bytes]:
            yield content[span.start : span.stop]

        return GatewayObject(name, len(content), entry.sha256, time, read, entry.sha256, media_type=entry.media_type)


@dataclass(frozen=True)
class BucketView:
    """The keys of a bucket that an access key may list. `pins` are versions by dataset and ref, for later pages."""

    files: BucketFiles
    key: KnownKey
    bucket: str
    pins: dict[tuple[str, str], str] = field(default_factory=dict)

    def tree(self, prefix: str) -> KeyTree:
        """Return the keys with a prefix, and perhaps others. Datasets and versions are opened when they are reached.

        Collections are below `datasets/NAME/`, and for a prefix that says so below `datasets/WORKSPACE/NAME/` too.
        """
        if prefix.startswith(f"{PLATFORM_ROOT}/{self.bucket}/"):
            whole = KeyDirectory(directories=self._platform)
            named = KeyDirectory(directories=lambda: {**self._platform(), self.bucket: lambda: whole})
            return KeyDirectory(directories=lambda: {PLATFORM_ROOT: lambda: named})
        return KeyDirectory(directories=self._datasets)

    def _datasets(self) -> dict[str, Callable[[], KeyTree]]:
        found: dict[str, Callable[[], KeyTree]] = {}
        for name in self._visible():
            if name != PLATFORM_ROOT:
                found[name] = lambda name=name: KeyDirectory(directories=lambda: self._refs(name))  # type: ignore[misc]
        found[PLATFORM_ROOT] = lambda: KeyDirectory(directories=self._platform)
        return found

    def _visible(self) -> list[str]:
        return [name for name in self.files.versions.datasets(self.bucket) if self.key.sees(f"{self.bucket}/{name}")]

    def _refs(self, name: str) -> dict[str, Callable[[], KeyTree]]:
        dataset_id, granted = f"{self.bucket}/{name}", self.key.grant.ref
        refs = self.files.versions.refs(dataset_id) if granted is None else (granted,)
        return {ref: lambda ref=ref: self._version(dataset_id, ref) for ref in refs}  # type: ignore[misc]

    def _version(self, dataset_id: str, ref: str) -> KeyTree:
        version = self._open(dataset_id, ref)
        files, virtual = self.files, self.files.virtual
        if version is None:
            return KeyDirectory()

        def documents() -> dict[str, Callable[[str], ListedKey | None]]:
            return {name: self._document(version, name) for name in virtual.names(version)}

        def directories() -> dict[str, Callable[[], KeyTree]]:
            found: dict[str, Callable[[], KeyTree]] = {}
            for name in virtual.folders(version):
                found[name] = lambda name=name: _HeldKeys(virtual.folder(version, name), version)  # type: ignore[misc]
            inbox = _ReceivedKeys(InboxFiles(files.session, dataset_id), ref)
            if version.is_collection and inbox.inbox.files(ref):
                found[INBOX] = lambda: inbox
            for name in version.artifacts:
                if len(version.dataset.artifact(name)):
                    found[name] = lambda name=name: _MemberKeys(version.dataset.artifact(name), version)  # type: ignore[misc]
            return found

        return KeyDirectory(documents, directories)

    def _document(self, version: GatewayVersion, name: str) -> Callable[[str], ListedKey | None]:
        def look(key: str) -> ListedKey | None:
            found = self.files.virtual.find(version, name)
            return None if found is None else ListedKey(key, found.size_bytes, found.sha256, stamp(version.time))

        return look

    def _platform(self) -> dict[str, Callable[[], KeyTree]]:
        """Return the collections."""
        found: dict[str, Callable[[], KeyTree]] = {}
        for name in self._visible():
            if self._is_collection(name):
                found[name] = lambda name=name: self._platform_dataset(name)  # type: ignore[misc]
        return found

    def _is_collection(self, name: str) -> bool:
        version = self._open(f"{self.bucket}/{name}", HEAD)
        return version is not None and version.is_collection

    def _platform_dataset(self, name: str) -> KeyTree:
        dataset_id, granted = f"{self.bucket}/{name}", self.key.grant.ref
        head = self._open(dataset_id, HEAD) if granted in (None, HEAD) else None

        def documents() -> dict[str, Callable[[str], ListedKey | None]]:
            return {} if head is None else {one: self._document(head, one) for one in _PLATFORM_DOCUMENTS}

        def snapshots() -> dict[str, Callable[[str], ListedKey | None]]:
            labels = self.files.versions.labels(dataset_id) if granted is None else (granted,)
            return {f"{label}.json": self._snapshot(dataset_id, label) for label in labels}

        def directories() -> dict[str, Callable[[], KeyTree]]:
            found: dict[str, Callable[[], KeyTree]] = {"snapshots": lambda: KeyDirectory(snapshots)}
            if head is not None and len(head.dataset.artifact("images")):
                found["images"] = lambda: _MemberKeys(head.dataset.artifact("images"), head)
            return found

        return KeyDirectory(documents, directories)

    def _snapshot(self, dataset_id: str, label: str) -> Callable[[str], ListedKey | None]:
        def look(key: str) -> ListedKey | None:
            version = self._open(dataset_id, label)
            return None if version is None else self._document(version, SNAPSHOT)(key)

        return look

    def _open(self, dataset_id: str, ref: str) -> GatewayVersion | None:
        """Open a version, and remember which it was. None if it is gone, or its dataset is."""
        try:
            if not self.key.may(KeyRight.RO, dataset_id, ref):
                return None
            pinned = self.pins.get((dataset_id, ref))
            found = self.files.versions.open(dataset_id, ref, pinned)
        except (NotFoundError, BadInputError):
            return None
        self.pins[dataset_id, ref] = found.version
        return found


@dataclass(frozen=True)
class _MemberKeys:
    """The files of an artifact."""

    artifact: Artifact
    version: GatewayVersion

    def walk(self, base: str, window: KeyWindow) -> Iterator[ListedKey | CommonPrefix]:
        prefix = window.prefix[len(base) :] if window.prefix.startswith(base) else ""
        start = window.start[len(base) :] if window.start.startswith(base) else ""
        modified = stamp(self.version.time)
        etag = etags(self.artifact)
        for member in self.artifact.members(prefix, start):
            yield ListedKey(base + member.path, member.size_bytes, etag(member), modified)


@dataclass(frozen=True)
class _HeldKeys:
    """The files of a virtual directory."""

    contents: Mapping[str, bytes | MemberAlias]
    version: GatewayVersion

    def walk(self, base: str, window: KeyWindow) -> Iterator[ListedKey | CommonPrefix]:
        for path, content in self.contents.items():
            key = base + path
            if key >= window.start and key.startswith(window.prefix):
                found = virtual_object(path, content, self.version)
                if found is not None:
                    yield ListedKey(key, found.size_bytes, found.etag, stamp(found.modified))


@dataclass(frozen=True)
class _ReceivedKeys:
    """The files of an inbox, each at its newest entry."""

    inbox: InboxFiles
    ref: str

    def walk(self, base: str, window: KeyWindow) -> Iterator[ListedKey | CommonPrefix]:
        for file in self.inbox.files(self.ref):
            key = base + file.name
            if key >= window.start and key.startswith(window.prefix):
                yield self._listed(key, file)

    def _listed(self, key: str, file: InboxFile) -> ListedKey:
        entry = self.inbox.newest(file)
        return ListedKey(key, entry.size_bytes, entry.sha256, entry.time)


def stored_object(artifact: Artifact, member: Member, version: GatewayVersion) -> GatewayObject:
    """Return a file of an artifact."""
    is_whole = artifact.entry.kind == "files" and artifact.entry.compression is None

    def read(span: range) -> Iterator[bytes]:
        if member.size_bytes <= MEMBER_CHUNK_BYTES:
            content = artifact.read(member.path)
            yield content if len(span) == len(content) else content[span.start : span.stop]
        else:
            yield from _parts(artifact.open(member.path), span)

    etag = etags(artifact)(member)
    sha256 = etag if is_whole else None
    return GatewayObject(member.path, member.size_bytes, etag, version.time, read, sha256, version.is_pinned)


def _read_at_once(span: LocalSpan, wanted: range) -> Iterator[bytes | bytearray | memoryview]:
    data = read_resident(span)
    if data is None:
        raise BlockingIOError("the bytes are not in memory")
    yield data if len(wanted) == len(data) else memoryview(data)[wanted.start : wanted.stop]


def etags(artifact: Artifact) -> Callable[[Member], str]:
    """Return the function that gives the ETag of a member: the SHA-256 of a file that is stored as it is."""
    if artifact.entry.kind == "files" and artifact.entry.compression is None:
        return lambda member: artifact.blob_of(member).hash
    return lambda member: f"xxh3-{member.xxh3:016x}-{member.size_bytes:x}"


def stamp(time: datetime) -> str:
    """Return a time as listings have it."""
    return time.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def virtual_object(path: str, content: bytes | MemberAlias | None, version: GatewayVersion) -> GatewayObject | None:
    """Return a file of a virtual directory; None for one that is not there."""
    if content is None:
        return None
    if isinstance(content, MemberAlias):
        artifact = version.dataset.artifact(content.artifact)
        return stored_object(artifact, artifact.member(content.path), version)

    def read(span: range) -> Iterator[bytes]:
        yield content[span.start : span.stop]

    digest = sha256_hex(content)
    return GatewayObject(path, len(content), digest, version.time, read, digest, version.is_pinned)


def _parts(opened: BinaryIO, span: range) -> Iterator[bytes]:
    with opened:
        opened.seek(span.start)
        left = len(span)
        while left > 0:
            data = opened.read(min(left, MEMBER_CHUNK_BYTES))
            left -= len(data)
            yield data


def _no_key(name: str) -> S3Error:
    return S3Error("NoSuchKey", f"there is no object {name[:200]!r}, or this key may not read it")
