"""The inbox of a collection: what labelling tools send back, kept as it came until it is merged.

An entry is bound to the version that it was sent for. It is created once and never changed; a file that is sent again
is another entry. Implements "Writing" of docs/specs/gateway.md.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

from warpdata.collections.records import RecordStore
from warpdata.errors import BadInputError, ConflictError, CorruptError, ErrorKind, LimitExceededError
from warpdata.limits import MAX_INBOX_BODY_BYTES, MAX_INBOX_NAME_LENGTH
from warpdata.primitives.hashing import sha256_hex
from warpdata.repository.catalog import VersionRef
from warpdata.session import Session

__all__ = ["InboxEntry", "InboxFile", "InboxFiles", "InboxSource"]

_FOLDER = "inbox-files"
_NAME = re.compile(r"[A-Za-z0-9=@_-][A-Za-z0-9.=@_-]*(/[A-Za-z0-9=@_-][A-Za-z0-9.=@_-]*)*")
_REF = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_STAMP = "%Y%m%dT%H%M%SZ"
_NONCE_DIGITS = 16


@dataclass(frozen=True, slots=True)
class InboxSource:
    """Who sent a file, and when it was signed. `nonce` is the same for repetitions of one request."""

    author: str
    key: str
    time: datetime
    nonce: str


@dataclass(frozen=True, slots=True)
class InboxEntry:
    """A file that was sent, and the version that it is about. `body` is base64."""

    name: str
    ref: str
    version: str
    commit: str | None
    media_type: str
    size_bytes: int
    sha256: str
    author: str
    key: str
    sent: str
    time: str
    body: str

    def content(self) -> bytes:
        """Return the bytes as they were sent. Raise `CorruptError` if they do not match their hash."""
        data = base64.b64decode(self.body)
        if sha256_hex(data) != self.sha256:
            raise CorruptError(f"the entry {self.name!r} of the inbox does not match its SHA-256")
        return data


@dataclass(frozen=True, slots=True)
class InboxFile:
    """A name in the inbox, with its entries from the oldest to the newest."""

    name: str
    ref: str
    records: tuple[str, ...]


@dataclass(frozen=True)
class InboxFiles:
    """Receives, lists and reads files of the inbox of a collection."""

    session: Session
    dataset_id: str

    def receive(
        self, found: VersionRef, ref: str, name: str, data: bytes, source: InboxSource, media_type: str
    ) -> bool:
        """Keep a file. False: the same request was received before. The version that `ref` names is bound to it."""
        check_inbox_name(name)
        if len(data) > MAX_INBOX_BODY_BYTES:
            raise LimitExceededError(
                f"{name!r} has {len(data):,} bytes; the limit of the inbox is {MAX_INBOX_BODY_BYTES:,}",
                hint="Send images and other large files by an upload.",
            )
        entry = InboxEntry(
            name=name,
            ref=ref,
            version=found.version,
            commit=found.commit,
            media_type=media_type,
            size_bytes=len(data),
            sha256=sha256_hex(data),
            author=source.author,
            key=source.key,
            sent=source.time.strftime(_STAMP),
            time=self.session.timestamp(),
            body=base64.b64encode(data).decode(),
        )
        record = f"{self._folder(ref)}/{name}/{entry.sent}-{sha256_hex(source.nonce.encode())[:_NONCE_DIGITS]}"
        records = self._records
        if records.put(record, entry):
            return True
        known = records.get(record, InboxEntry)
        if known is None or known.sha256 != entry.sha256:
            raise ConflictError(f"another file {name!r} was received with the same signature")
        return False

    def files(self, ref: str | None = None) -> list[InboxFile]:
        """Return the names that were received for a ref, or for all refs, sorted."""
        grouped: dict[tuple[str, str], list[str]] = {}
        for record in self._records.names(_FOLDER if ref is None else self._folder(ref)):
            _, found, *parts = record.split("/")
            grouped.setdefault((found, "/".join(parts[:-1])), []).append(record)
        return [InboxFile(name, found, tuple(records)) for (found, name), records in sorted(grouped.items())]

    def find(self, ref: str, name: str) -> InboxEntry | None:
        """Return the newest entry of a name; None if there is none."""
        found = self.file(ref, name)
        return None if found is None else self.newest(found)

    def file(self, ref: str, name: str) -> InboxFile | None:
        """Return one name with its entries; None if nothing was received under it. Lists that name alone."""
        if not is_inbox_name(name):
            return None
        folder = f"{self._folder(ref)}/{name}"
        records = [one for one in self._records.names(folder) if one.count("/") == folder.count("/") + 1]
        return InboxFile(name, ref, tuple(sorted(records))) if records else None

    def newest(self, file: InboxFile) -> InboxEntry:
        """Return the newest entry of a file. Of several that were sent in one second, the one received last."""
        second = file.records[-1].rpartition("/")[2].partition("-")[0]
        last = [record for record in file.records if record.rpartition("/")[2].startswith(second)]
        return max(self.entries(last), key=lambda entry: entry.time)

    def entries(self, records: Iterable[str]) -> Iterator[InboxEntry]:
        """Read entries by the names of their records."""
        for record in records:
            entry = self._records.get(record, InboxEntry)
            if entry is not None:
                yield entry

    @property
    def _records(self) -> RecordStore:
        return RecordStore(self.session, self.dataset_id)

    def _folder(self, ref: str) -> str:
        if not _REF.fullmatch(ref):
            raise BadInputError(
                f"labels cannot be sent for {ref[:200]!r}",
                hint="Name a version, label or branch.",
                kind=ErrorKind.INVALID_NAME,
            )
        return f"{_FOLDER}/{ref}"


def is_inbox_name(name: str) -> bool:
    """Return whether a file of the inbox may have this name."""
    return len(name) <= MAX_INBOX_NAME_LENGTH and _NAME.fullmatch(name) is not None


def check_inbox_name(name: str) -> str:
    """Return the name of a file in the inbox, if it may have it."""
    if not is_inbox_name(name):
        raise BadInputError(
            f"{name[:200]!r} is not the name of a file in an inbox",
            hint=f"Use up to {MAX_INBOX_NAME_LENGTH} letters, digits and . _ = @ - in parts between slashes.",
            kind=ErrorKind.INVALID_NAME,
        )
    return name
