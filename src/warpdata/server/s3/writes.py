"""Changes: labels into the inbox of a version, images into HEAD and out of it. Versions themselves never change.

Implements "Writing" of docs/specs/gateway.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from warpdata.collections import FILES, HEAD, Collection, InboxFiles, InboxSource, is_collection
from warpdata.errors import AlreadyExistsError, BadInputError, NotFoundError
from warpdata.limits import MAX_INBOX_BODY_BYTES
from warpdata.primitives.hashing import sha256_hex
from warpdata.server.s3.chunked import BodyRules, decode_body
from warpdata.server.s3.errors import S3Error
from warpdata.server.s3.files import BucketFiles
from warpdata.server.s3.grants import KeyRight, KnownKey
from warpdata.server.s3.layout import INBOX, FileKey, parse_key
from warpdata.server.s3.parts import PartStore, completed_document, created_document
from warpdata.server.s3.reads import S3Answer
from warpdata.server.s3.requests import Signed
from warpdata.server.s3.versions import GatewayVersion

__all__ = ["OnWrite", "UploadHandler", "ignore_write"]

_TRANSACTION_DIGITS = 32
_XML = {"content-type": "application/xml"}
_DEFAULT_TYPE = "application/octet-stream"

OnWrite = Callable[[KnownKey, str, str, dict[str, str]], None]
"""Hears of each write: the key, the dataset, what was done, and details."""


def ignore_write(_key: KnownKey, _dataset_id: str, _action: str, _detail: dict[str, str]) -> None:
    """Do nothing."""


@dataclass(frozen=True)
class UploadHandler:
    """Decides whether a key may upload, and stores the body."""

    files: BucketFiles
    on_write: OnWrite = ignore_write

    def check(self, signed: Signed) -> FileKey:
        """Return what an upload names, before its body is read. Raise `S3Error` if it is refused."""
        path, headers = signed.path, signed.request.headers
        if "x-amz-copy-source" in headers:
            raise S3Error("NotImplemented", "copies are not supported; send the file")
        wanted = parse_key(path.bucket, path.key) if path.key else None
        if wanted is None or not signed.key.may(KeyRight.RO, wanted.dataset_id, wanted.ref):
            raise S3Error(
                "NoSuchBucket" if wanted is None else "NoSuchKey", "there is no such place, or not for this key"
            )
        folder, slash, name = wanted.path.partition("/")
        right = KeyRight.INBOX if folder == INBOX else KeyRight.HEAD
        is_possible = bool(slash and name) and (folder == INBOX or (folder == FILES and wanted.ref == HEAD))
        if not is_possible:
            raise S3Error(
                "AccessDenied", "versions do not change; labels go to NAME/REF/inbox/, images to NAME/HEAD/images/"
            )
        if not signed.key.may(right, wanted.dataset_id, wanted.ref):
            raise S3Error("AccessDenied", f"this key has not the right {right.value!r} here")
        return wanted

    def receive(self, signed: Signed, wanted: FileKey, received: bytes) -> S3Answer:
        """Do what a request with a body asks for: store an object or a part, or begin, complete or end an upload."""
        content = decode_body(received, BodyRules(signed.request.headers, signed.credential, signed.key.secret))
        method, query = signed.request.method, signed.request.query
        upload_id = query.get("uploadId")
        if method == "PUT" and upload_id is None:
            return self._store(signed, wanted, content, _nonce(signed)[:_TRANSACTION_DIGITS])
        if method == "DELETE" and upload_id is None:
            return self._remove(signed, wanted)
        self._open(wanted)
        path = signed.path
        parts = PartStore(self.files.session, signed.key.secret, f"{path.bucket}/{path.key}")
        if method == "POST" and "uploads" in query:
            return S3Answer(200, _XML, created_document(path.bucket, path.key, parts.begin()))
        if upload_id is None:
            raise S3Error("MethodNotAllowed", f"{method} of an object needs uploads or uploadId")
        if method == "PUT":
            return S3Answer(200, {"etag": f'"{parts.put(upload_id, query.get("partNumber", ""), content)}"'})
        if method == "DELETE":
            parts.remove(upload_id)
            return S3Answer(204, {})
        with parts.joined(upload_id, content) as whole:
            self._store(signed, wanted, whole.path, whole.upload)
        parts.remove(upload_id)
        return S3Answer(200, _XML, completed_document(path.bucket, path.key, whole.sha256))

    def _remove(self, signed: Signed, wanted: FileKey) -> S3Answer:
        """Remove an image from HEAD. Versions keep it. Removing what is not there changes nothing, as in S3."""
        folder, _, path = wanted.path.partition("/")
        if folder == INBOX:
            raise S3Error("AccessDenied", "what an inbox has received is kept; take it back in its review")
        self._open(wanted)
        collection = Collection(self.files.session, wanted.dataset_id)
        try:
            with collection.changes(f"remove {path}", author=signed.key.author) as change:
                change.remove(path)
        except NotFoundError:
            return S3Answer(204, {})
        self.files.versions.forget(wanted.dataset_id)
        self.on_write(signed.key, wanted.dataset_id, "remove-image", {"path": path, "version": change.version or ""})
        return S3Answer(204, {})

    def _open(self, wanted: FileKey) -> GatewayVersion:
        """Return the version of a collection that receives something."""
        try:
            version = self.files.versions.open(wanted.dataset_id, wanted.ref)
        except (NotFoundError, BadInputError) as error:
            raise S3Error("NoSuchKey", f"there is no version {wanted.ref[:80]!r}") from error
        if not is_collection(version.dataset):
            raise S3Error("AccessDenied", f"{wanted.dataset_id} is not a collection, so nothing is received for it")
        return version

    def _store(self, signed: Signed, wanted: FileKey, content: bytes | Path, nonce: str) -> S3Answer:
        version = self._open(wanted)
        folder, _, name = wanted.path.partition("/")
        if folder == INBOX:
            content = _small(content)
            self._receive_label(signed, version, name, content)
        else:
            self._receive_image(signed, wanted, name, content, nonce)
        return S3Answer(200, {"etag": f'"{sha256_hex(content)}"'} if isinstance(content, bytes) else {})

    def _receive_label(self, signed: Signed, version: GatewayVersion, name: str, content: bytes) -> None:
        inbox = InboxFiles(self.files.session, version.id)
        if _is_create_only(signed) and inbox.find(version.ref, name) is not None:
            raise S3Error("PreconditionFailed", f"there is a file {name!r} in the inbox already")
        source = InboxSource(signed.key.author, signed.key.access_key, signed.credential.time, _nonce(signed))
        kind = signed.request.headers.get("content-type", _DEFAULT_TYPE)[:128]
        if inbox.receive(version.found, version.ref, name, content, source, kind):
            detail = {"ref": version.ref, "name": name, "version": version.version}
            self.on_write(signed.key, version.id, "receive-label", detail)

    def _receive_image(self, signed: Signed, wanted: FileKey, path: str, content: bytes | Path, nonce: str) -> None:
        collection = Collection(self.files.session, wanted.dataset_id)
        try:
            with collection.changes(f"add {path}", author=signed.key.author, key=f"s3-{nonce}") as change:
                change.add(path, content, replace=not _is_create_only(signed))
        except AlreadyExistsError as error:
            raise S3Error("PreconditionFailed", error.message) from error
        self.files.versions.forget(wanted.dataset_id)
        self.on_write(signed.key, wanted.dataset_id, "add-image", {"path": path, "version": change.version or ""})


def _small(content: bytes | Path) -> bytes:
    """Return what an inbox receives, which is kept in a record."""
    if isinstance(content, bytes):
        return content
    if content.stat().st_size > MAX_INBOX_BODY_BYTES:
        raise S3Error("EntityTooLarge", f"an inbox takes files of at most {MAX_INBOX_BODY_BYTES:,} bytes")
    return content.read_bytes()


def _is_create_only(signed: Signed) -> bool:
    condition = signed.request.headers.get("if-none-match")
    if condition not in (None, "*"):
        raise S3Error("NotImplemented", "the only condition of an upload is If-None-Match: *")
    return condition is not None


def _nonce(signed: Signed) -> str:
    """Return what repetitions of one request have in common: its signature."""
    return signed.credential.signature
