"""Answers to signed requests: listings and reads. No HTTP server and no I/O but the store's.

Implements "Requests" of docs/specs/gateway.md.
"""

from __future__ import annotations

import base64
import hmac
import json
from binascii import Error as Base64Error
from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from urllib.parse import unquote_to_bytes

from warpdata.limits import MAX_S3_KEY_BYTES
from warpdata.server.s3.answers import ListingAnswer, bucket_list, listing_document, location_document
from warpdata.server.s3.errors import S3Error
from warpdata.server.s3.files import BucketFiles, BucketView
from warpdata.server.s3.grants import KeyRing, KnownKey
from warpdata.server.s3.listing import list_page, successor
from warpdata.server.s3.reads import WHOLE, S3Answer, answer_object
from warpdata.server.s3.sigv4 import Credential, S3Request, parse_credential, verify

__all__ = ["ObjectPath", "RequestHandler", "Signed", "parse_path"]

REGION = "us-east-1"
_PAGE = 1000
_MAC_BYTES = 32
_XML = {"content-type": "application/xml"}
_SUBRESOURCES = {
    "policy": "NoSuchBucketPolicy",
    "cors": "NoSuchCORSConfiguration",
    "lifecycle": "NoSuchLifecycleConfiguration",
    "tagging": "NoSuchTagSet",
    "encryption": "ServerSideEncryptionConfigurationNotFoundError",
}
_UNSUPPORTED = ("acl", "uploads", "uploadId", "versions", "versioning", "delete", "torrent", "select", "notification")
_EMPTY_SETTINGS = {"versioning": "VersioningConfiguration", "logging": "BucketLoggingStatus"}


@dataclass(frozen=True, slots=True)
class ObjectPath:
    """A bucket, or an object of it. Both are empty for the list of buckets."""

    bucket: str
    key: str


@dataclass(frozen=True, slots=True)
class Signed:
    """A request whose signature was verified, and the key that signed it."""

    request: S3Request
    path: ObjectPath
    credential: Credential
    key: KnownKey


def parse_path(raw_path: bytes, root: str) -> ObjectPath:
    """Return what a path names below the root of the gateway."""
    try:
        path = unquote_to_bytes(raw_path).decode()
    except UnicodeDecodeError:
        raise S3Error("InvalidURI", "the path is not UTF-8") from None
    below = path[len(root) :] if path.startswith(f"{root}/") else "/" if path == root else None
    if below is None:
        raise S3Error("InvalidURI", f"the gateway is at {root}/")
    bucket, _, key = below[1:].partition("/")
    if len(key.encode()) > MAX_S3_KEY_BYTES:
        raise S3Error("KeyTooLongError", f"the key is longer than {MAX_S3_KEY_BYTES} bytes")
    return ObjectPath(bucket, key)


@dataclass(frozen=True)
class RequestHandler:
    """Authenticates and answers requests. Safe to share between threads."""

    files: BucketFiles
    keys: KeyRing

    def authenticate(self, request: S3Request, root: str, ip: str) -> Signed:
        """Return the request with the key that signed it. Raise `S3Error` if it is not signed as it must be."""
        path = parse_path(request.raw_path, root)
        credential = parse_credential(request)
        if credential is None:
            raise S3Error("AccessDenied", "the request is not signed")
        key = self.keys.find(credential.access_key, ip)
        if key is None:
            raise S3Error("InvalidAccessKeyId", "there is no such access key; it may have expired or been revoked")
        verify(request, credential, key.secret, self.files.session.clock())
        return Signed(request, path, credential, key)

    def answer_at_once(self, request: S3Request, root: str, ip: str) -> S3Answer | None:
        """Answer a read of an object whose bytes are in memory; None if the answer would have to wait."""
        path, credential = parse_path(request.raw_path, root), parse_credential(request)
        key = None if credential is None or not path.key else self.keys.recall(credential.access_key, ip)
        if key is None or credential is None:
            return None
        verify(request, credential, key.secret, self.files.session.clock())
        found = self.files.recall(key, path.bucket, path.key)
        if found is None:
            return None
        _check_object_query(request.query)
        answer = answer_object(found, request)
        try:
            return answer if isinstance(answer.body, WHOLE) else replace(answer, body=next(answer.body))
        except BlockingIOError:
            return None

    def answer(self, signed: Signed) -> S3Answer:
        """Answer a request without a body."""
        request, path = signed.request, signed.path
        if request.method not in ("GET", "HEAD"):
            raise S3Error("MethodNotAllowed", f"{request.method} is not possible here; versions do not change")
        if not path.bucket:
            return S3Answer(200, _XML, bucket_list(self.files.buckets(signed.key)))
        if path.key:
            _check_object_query(request.query)
            return answer_object(self.files.find(signed.key, path.bucket, path.key), request)
        return self._answer_bucket(signed)

    def _answer_bucket(self, signed: Signed) -> S3Answer:
        request, bucket = signed.request, signed.path.bucket
        if not self.files.sees_bucket(signed.key, bucket):
            raise S3Error("NoSuchBucket", f"there is no bucket {bucket[:80]!r}, or this key may not read it")
        if request.method == "HEAD":
            return S3Answer(200, {**_XML, "x-amz-bucket-region": REGION})
        for name, code in _SUBRESOURCES.items():
            if name in request.query:
                raise S3Error(code, f"the bucket has no {name}")
        if "location" in request.query:
            return S3Answer(200, _XML, location_document())
        for name, element in _EMPTY_SETTINGS.items():
            if name in request.query:
                return S3Answer(200, _XML, f"<{element}/>".encode())
        for name in _UNSUPPORTED:
            if name in request.query:
                raise S3Error("NotImplemented", f"?{name} is not supported")
        return S3Answer(200, _XML, self._list(signed))

    def _list(self, signed: Signed) -> bytes:
        query = signed.request.query
        is_second = query.get("list-type") == "2"
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        encoding, limit = query.get("encoding-type"), _limit(query.get("max-keys"))
        if encoding not in (None, "url"):
            raise S3Error("InvalidArgument", f"encoding-type {encoding[:20]!r} is not known")
        token = query.get("continuation-token", "") if is_second else ""
        marker = query.get("start-after" if is_second else "marker", "")
        view = BucketView(self.files, signed.key, signed.path.bucket)
        start = _start(marker, delimiter)
        if token:
            start, pins = _open_token(token, signed)
            view.pins.update(pins)
        page = list_page(view.tree(prefix), prefix, delimiter, start, limit)
        following = "" if page.following is None else _make_token(page.following, view, page.last, signed)
        return listing_document(
            ListingAnswer(
                bucket=signed.path.bucket,
                prefix=prefix,
                delimiter=delimiter,
                limit=limit,
                is_encoded=encoding == "url",
                page=page,
                marker=None if is_second else marker,
                start_after=marker if is_second else "",
                token=token,
                next_token=following,
                shows_owner=not is_second or query.get("fetch-owner") == "true",
            )
        )


def _check_object_query(query: Mapping[str, str]) -> None:
    if "tagging" in query:
        raise S3Error("NoSuchTagSet", "the object has no tags")
    for name in (*_UNSUPPORTED, "attributes", "versionId"):
        if name in query:
            raise S3Error("NotImplemented", f"?{name} is not supported")


def _limit(text: str | None) -> int:
    if text is None or text == "":
        return _PAGE
    if not (text.isascii() and text.isdecimal() and len(text) < 11):
        raise S3Error("InvalidArgument", "max-keys is not a number")
    return min(int(text), _PAGE)


def _start(marker: str, delimiter: str) -> str:
    """Return the first key behind a marker. A marker that is a common prefix covers all keys with it."""
    if not marker:
        return ""
    if delimiter and marker.endswith(delimiter):
        return successor(marker) or marker + "\0"
    return marker + "\0"


def _make_token(following: str, view: BucketView, last: str, signed: Signed) -> str:
    """Return a token with the place where the next page begins, and the version that this one has been reading."""
    pins = [
        [dataset_id, ref, version]
        for (dataset_id, ref), version in view.pins.items()
        if last.startswith((f"{dataset_id.partition('/')[2]}/{ref}/", "datasets/"))
    ]
    claims = json.dumps([following, pins[:8]], separators=(",", ":")).encode()
    return base64.urlsafe_b64encode(_mac(claims, signed) + claims).decode()


def _open_token(token: str, signed: Signed) -> tuple[str, dict[tuple[str, str], str]]:
    try:
        data = base64.b64decode(token, b"-_", validate=True)
    except (Base64Error, ValueError):
        data = b""
    claims = data[_MAC_BYTES:]
    if not hmac.compare_digest(data[:_MAC_BYTES], _mac(claims, signed)):
        raise S3Error("InvalidArgument", "the continuation token is not one of this bucket and key")
    following, pins = json.loads(claims)
    return following, {(dataset_id, ref): version for dataset_id, ref, version in pins}


def _mac(claims: bytes, signed: Signed) -> bytes:
    message = b"\n".join((b"continuation", signed.path.bucket.encode(), claims))
    return hmac.new(signed.key.secret.encode(), message, sha256).digest()
