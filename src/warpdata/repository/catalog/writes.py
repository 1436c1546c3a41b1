"""Single writes to the catalog: objects that are created once, and entries of a log, each exactly once.

Every create may lose its reply. Objects whose content follows from their key are created again. A log entry is read
back, and belongs to the transaction whose id it has. Implements "Commit" of docs/specs/publish.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self, TypeAlias, TypeVar

from warpdata.errors import (
    CommitUnknownError,
    CorruptError,
    ObjectNotFoundError,
    StorageError,
    WarpError,
    WriteUnknownError,
)
from warpdata.limits import SINGLE_PUT_BYTES
from warpdata.primitives.hashing import Blob, Fingerprint, OnBytes, blob_key, ignore_bytes
from warpdata.repository.catalog.branches import read_head
from warpdata.repository.catalog.layout import head_key, manifest_key
from warpdata.repository.catalog.records import Head, encode_record
from warpdata.repository.manifest import Manifest, encode_manifest, parse_manifest, version_of
from warpdata.storage import GenerationReader, Reader, StagedObject, StagingWriter, Writer, verify_blob

__all__ = [
    "ATTEMPTS",
    "CheckLease",
    "NewEntry",
    "Pause",
    "Transaction",
    "advance",
    "create_entry",
    "put_blob",
    "put_blob_file",
    "put_create_only",
    "put_manifest",
    "put_named_by_content",
    "replace_constant",
    "require_lease",
    "retry_unknown",
]

Pause: TypeAlias = Callable[[int], None]
"""Waits before attempt number n, with jitter."""

CheckLease: TypeAlias = Callable[[], None] | None
"""Raises `ConflictError` if the writer may not make anything reachable any more. Called right before that."""

ATTEMPTS = 6
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Transaction:
    """The author and kind of a change. `txn_id` must be unique."""

    dataset_id: str
    branch: str
    txn_id: str
    operation: str
    author: str
    message: str
    time: str
    merged: str | None = None
    """The commit that a merge adds to the branch: the second parent."""


def require_lease(check_lease: CheckLease) -> None:
    """Check the lease, if there is one."""
    if check_lease is not None:
        check_lease()


def put_manifest(writer: Writer, manifest: Manifest, pause: Pause) -> str:
    """Store a manifest, or repair the stored one if it is corrupt. Return its version."""
    version, encoded = version_of(manifest), encode_manifest(manifest)
    key = manifest_key(manifest.dataset_id, version)
    if not put_create_only(writer, key, encoded, pause):
        try:
            parse_manifest(writer.read(key).data, version)
        except (CorruptError, ObjectNotFoundError):
            writer.replace(key, encoded)  # the key is the hash of the content, so this can only repair
    return version


def put_create_only(writer: Writer, key: str, data: bytes, pause: Pause) -> bool:
    """Create an object, and repeat the request after a lost reply. Return False if the key exists.

    The content must depend only on the key, so that a repeated request is harmless.
    """
    return retry_unknown(lambda: writer.create(key, data), pause)


def retry_unknown(write: Callable[[], _T], pause: Pause) -> _T:
    """Repeat a write after a lost reply. Doing it twice must have the effect of doing it once."""
    for attempt in range(ATTEMPTS):
        try:
            return write()
        except WriteUnknownError:
            if attempt == ATTEMPTS - 1:
                raise
            pause(attempt)
    raise AssertionError("unreachable")


def put_named_by_content(writer: Writer, key: str, data: bytes, pause: Pause) -> None:
    """Create an object whose key is a hash of its content, or replace a corrupt one under that key."""
    if put_create_only(writer, key, data, pause):
        return
    try:
        is_intact = writer.read(key).data == data
    except ObjectNotFoundError:
        is_intact = False
    if not is_intact:
        writer.replace(key, data)


class BlobPut(Protocol):
    """Puts the content of a blob under a key."""

    def create(self, key: str) -> bool: ...

    def replace(self, key: str) -> None: ...


def put_blob(writer: Writer, source: BlobPut, blob: Blob, generation: str | None, pause: Pause) -> None:
    """Create the blob, or replace a corrupt object under its key. When this returns, the blob is in the store."""
    key = blob_key(blob.hash, generation)
    reader: Reader = writer if generation is None else GenerationReader(writer, {blob.hash: generation})

    def put() -> None:
        if source.create(key):
            is_checked = blob.byte_size <= SINGLE_PUT_BYTES  # one conditional request, which the store confirmed
        else:
            is_checked = _is_intact(reader, blob)
            if not is_checked:
                source.replace(key)
        if not is_checked:
            _check_size(reader, blob)

    retry_unknown(put, pause)


def put_blob_file(
    writer: Writer,
    path: Path,
    fingerprint: Fingerprint,
    generation: str | None,
    pause: Pause,
    on_bytes: OnBytes = ignore_bytes,
) -> None:
    """Put a file like `put_blob`."""
    put_blob(writer, _FilePut(writer, path, fingerprint, on_bytes), fingerprint.blob, generation, pause)


@dataclass(frozen=True, slots=True)
class _FilePut:
    writer: Writer
    path: Path
    fingerprint: Fingerprint
    on_bytes: OnBytes

    def create(self, key: str) -> bool:
        return self.writer.create_file(key, self.path, self.fingerprint, self.on_bytes)

    def replace(self, key: str) -> None:
        self.writer.replace_file(key, self.path, self.fingerprint)


def _is_intact(reader: Reader, blob: Blob) -> bool:
    """Check an object that an upload has met: its size, and its hash if it fits into one request.

    Reading a small blob back takes as long as the request that has just been refused.
    """
    try:
        is_sized = reader.stat(blob_key(blob.hash)).size_bytes == blob.byte_size
    except ObjectNotFoundError:
        return False
    return is_sized and (blob.byte_size > SINGLE_PUT_BYTES or verify_blob(reader, blob) is None)


def _check_size(reader: Reader, blob: Blob) -> None:
    stored = reader.stat(blob_key(blob.hash)).size_bytes
    if stored != blob.byte_size:
        raise StorageError(f"blob {blob.hash} has {blob.byte_size} bytes, but in the store it has {stored}")


def replace_constant(writer: Writer, key: str, data: bytes, pause: Pause) -> None:
    """Overwrite an object with bytes that every writer of this key would write, again after a lost reply."""
    retry_unknown(lambda: writer.replace(key, data), pause)


class NewEntry:
    """A log entry that a transaction is about to create. Leave the `with` block when it is created, or another is."""

    def __init__(self, writer: Writer, txn: Transaction, head: Head) -> None:
        self._writer = writer
        self._key = head_key(txn.dataset_id, txn.branch, head.sequence)
        self._data = encode_record(head)
        self._staged: StagedObject | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._staged is not None:
            self._staged.close()

    def stage(self) -> None:
        """Make the bytes durable ahead of their key, if the store can. Runs at the same time as other writes."""
        if isinstance(self._writer, StagingWriter):
            self._staged = self._writer.stage(self._key, self._data)

    def create(self) -> bool:
        """Create the entry. The result is that of `Writer.create`. Safe to call again after a lost reply."""
        staged, self._staged = self._staged, None
        if staged is None:
            return self._writer.create(self._key, self._data)
        try:
            return staged.create()
        finally:
            staged.close()


def advance(writer: Writer, txn: Transaction, head: Head, pause: Pause, check_lease: CheckLease = None) -> bool:
    """Create the log entry. True: it is this transaction's. False: another writer's, and this one cannot appear."""
    with NewEntry(writer, txn, head) as entry:
        return create_entry(writer, txn, head, entry, pause, check_lease)


def create_entry(
    writer: Writer, txn: Transaction, head: Head, entry: NewEntry, pause: Pause, check_lease: CheckLease = None
) -> bool:
    """Create a log entry that may be staged. Results are those of `advance`."""
    may_have_landed = False
    for attempt in range(ATTEMPTS):
        try:
            require_lease(check_lease)
            if entry.create():
                return True
            may_have_landed = True
            seen = read_head(writer, txn.dataset_id, txn.branch, head.sequence)
        except WriteUnknownError:
            may_have_landed = True
            seen = _read_back(writer, txn, head.sequence)
        except WarpError as error:
            if may_have_landed:
                raise _unknown(txn) from error
            raise
        if seen is not None:
            return seen.txn_id == txn.txn_id
        pause(attempt)
    raise _unknown(txn)


def _read_back(writer: Writer, txn: Transaction, sequence: int) -> Head | None:
    try:
        return read_head(writer, txn.dataset_id, txn.branch, sequence)
    except WarpError as error:
        raise _unknown(txn) from error


def _unknown(txn: Transaction) -> CommitUnknownError:
    return CommitUnknownError(
        f"the outcome of transaction {txn.txn_id} on {txn.dataset_id}@{txn.branch} is unknown: the store did not reply",
        txn_id=txn.txn_id,
        hint=f"Ask later: `warp find-commit {txn.dataset_id} {txn.txn_id} --branch {txn.branch}`.",
    )
