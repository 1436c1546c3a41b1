"""Uploads in parts: clients of S3 send larger files so. Each part is an object of the store until the upload ends.

An upload has no record: its id proves for which key and object it was made. Implements "Uploads in parts" of
docs/specs/gateway.md.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from xml.sax.saxutils import escape

from warpdata.limits import MAX_S3_PARTED_BYTES, MAX_S3_PARTS, MIB
from warpdata.primitives.hashing import sha256_hex
from warpdata.server.s3.errors import S3Error
from warpdata.session import Session
from warpdata.storage import ObjectInfo

__all__ = ["PARTS_ROOT", "JoinedParts", "PartStore", "completed_document", "created_document", "remove_old_parts"]

PARTS_ROOT = "service/s3-uploads"
_ID = re.compile(r"([0-9a-f]{32})-([0-9a-f]{32})")
_MAX_DOCUMENT_BYTES = 4 * MIB
_NUMBER = re.compile(r"<PartNumber>\s*([0-9]{1,5})\s*</PartNumber>")
_ETAG = re.compile(r"<ETag>\s*(?:\"|&quot;|&#34;)?([0-9a-f]{64})(?:\"|&quot;|&#34;)?\s*</ETag>")
_HEAD = '<?xml version="1.0" encoding="UTF-8"?>\n'
_SPACE = 'xmlns="http://s3.amazonaws.com/doc/2006-03-01/"'


@dataclass(frozen=True, slots=True)
class JoinedParts:
    """The file of an upload, and what its transaction follows from."""

    path: Path
    sha256: str
    upload: str


@dataclass(frozen=True)
class PartStore:
    """The parts of uploads. `secret` is that of the access key, and `name` the object: an id is good for both alone."""

    session: Session
    secret: str
    name: str

    def begin(self) -> str:
        """Return the id of a new upload."""
        number = f"{self.session.rng.getrandbits(128):032x}"
        return f"{number}-{self._proof(number)}"

    def put(self, upload_id: str, number: str, content: bytes) -> str:
        """Store a part, and return its ETag. A part that is sent again with other bytes is another part."""
        if not (number.isascii() and number.isdecimal() and 1 <= int(number[:6]) <= MAX_S3_PARTS):
            raise S3Error("InvalidArgument", f"partNumber is not within 1 … {MAX_S3_PARTS}")
        digest = sha256_hex(content)
        self.session.writer.create(f"{self._prefix(upload_id)}/{int(number):05d}-{digest}", content)
        return digest

    @contextmanager
    def joined(self, upload_id: str, document: bytes) -> Iterator[JoinedParts]:
        """Yield the file that a document of parts describes. Each part is compared with its ETag."""
        writer, prefix = self.session.writer, self._prefix(upload_id)
        sizes = {info.key: info.size_bytes for info in writer.list_objects(prefix)}
        if not sizes:
            raise S3Error("NoSuchUpload", "there is no such upload, or it has ended")
        keys = [f"{prefix}/{number:05d}-{etag}" for number, etag in _parse(document)]
        missing = [key for key in keys if key not in sizes]
        if missing:
            raise S3Error("InvalidPart", f"part {int(missing[0].rpartition('/')[2][:5])} was not sent with this ETag")
        total = sum(sizes[key] for key in keys)
        if total > MAX_S3_PARTED_BYTES:
            raise S3Error("EntityTooLarge", f"the parts have {total:,} bytes, more than {MAX_S3_PARTED_BYTES:,}")
        with TemporaryDirectory(prefix="warp-s3-") as folder:
            path, whole = Path(folder, "file"), sha256()
            with path.open("wb") as file:
                for key in keys:
                    for chunk in self._chunks(key):
                        whole.update(chunk)
                        file.write(chunk)
            yield JoinedParts(path, whole.hexdigest(), _number(upload_id))

    def remove(self, upload_id: str) -> None:
        """Remove all parts of an upload."""
        found = self.session.writer.list_objects(self._prefix(upload_id))
        self.session.writer.delete_many([info.key for info in found])

    def _chunks(self, key: str) -> Iterator[memoryview]:
        digest = sha256()
        for chunk in self.session.writer.stream(key):
            digest.update(chunk)
            yield chunk
        if digest.hexdigest() != key.rpartition("-")[2]:
            raise S3Error("InternalError", "the stored bytes of a part are not those that were received")

    def _prefix(self, upload_id: str) -> str:
        number = _number(upload_id)
        if not hmac.compare_digest(upload_id.rpartition("-")[2], self._proof(number)):
            raise S3Error("NoSuchUpload", "the upload is not one of this key and object")
        return f"{PARTS_ROOT}/{number}"

    def _proof(self, number: str) -> str:
        message = f"warpdata s3 upload\n{number}\n{self.name}".encode()
        return hmac.new(self.secret.encode(), message, sha256).hexdigest()[:32]


def remove_old_parts(session: Session, before: datetime) -> int:
    """Remove the parts of uploads that got none since then, and return the number of uploads."""
    uploads: dict[str, list[ObjectInfo]] = {}
    for info in session.writer.list_objects(PARTS_ROOT):
        uploads.setdefault(info.key.rpartition("/")[0], []).append(info)
    old = [parts for parts in uploads.values() if all(one.modified and one.modified < before for one in parts)]
    session.writer.delete_many([info.key for parts in old for info in parts])
    return len(old)


def created_document(bucket: str, key: str, upload_id: str) -> bytes:
    """Return the answer to CreateMultipartUpload."""
    return (
        f"{_HEAD}<InitiateMultipartUploadResult {_SPACE}><Bucket>{escape(bucket)}</Bucket><Key>{escape(key)}</Key>"
        f"<UploadId>{upload_id}</UploadId></InitiateMultipartUploadResult>"
    ).encode()


def completed_document(bucket: str, key: str, etag: str) -> bytes:
    """Return the answer to CompleteMultipartUpload."""
    return (
        f"{_HEAD}<CompleteMultipartUploadResult {_SPACE}><Location>/{escape(bucket)}/{escape(key)}</Location>"
        f"<Bucket>{escape(bucket)}</Bucket><Key>{escape(key)}</Key><ETag>&quot;{etag}&quot;</ETag>"
        "</CompleteMultipartUploadResult>"
    ).encode()


def _parse(document: bytes) -> Sequence[tuple[int, str]]:
    """Return number and ETag of each part of a CompleteMultipartUpload document."""
    if len(document) > _MAX_DOCUMENT_BYTES:
        raise S3Error("MalformedXML", f"the document is longer than {_MAX_DOCUMENT_BYTES:,} bytes")
    found: list[tuple[int, str]] = []
    for part in document.decode("utf-8", "replace").split("<Part>")[1:]:
        number, etag = _NUMBER.search(part), _ETAG.search(part)
        if number is None or etag is None:
            raise S3Error("InvalidPart", "a part has no number, or no ETag of this gateway")
        found.append((int(number[1]), etag[1]))
    if not found or len(found) > MAX_S3_PARTS:
        raise S3Error("MalformedXML", f"the document lists {len(found)} parts; 1 … {MAX_S3_PARTS} are possible")
    if any(one[0] >= two[0] for one, two in pairwise(found)):
        raise S3Error("InvalidPartOrder", "the parts are not listed in the order of their numbers")
    return found


def _number(upload_id: str) -> str:
    parts = _ID.fullmatch(upload_id)
    if parts is None:
        raise S3Error("NoSuchUpload", "there is no such upload")
    return parts[1]
