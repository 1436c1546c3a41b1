"""Bodies of uploads: plain, or cut into chunks with a trailer (`aws-chunked`), signed or not.

Everything that a client says about a body is compared with the bytes: its length, its hash, the signature of each
chunk and checksums in headers or the trailer. Implements "Bodies" of docs/specs/gateway.md.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import zlib
from binascii import Error as Base64Error
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256

from warpdata.limits import MAX_S3_CHUNK_HEADER_BYTES, MAX_S3_TRAILER_BYTES
from warpdata.server.s3.errors import S3Error
from warpdata.server.s3.sigv4 import UNSIGNED, Credential, signing_key

__all__ = ["BodyRules", "decode_body"]

_EMPTY = sha256(b"").hexdigest()
_SIZE = re.compile(rb"[0-9a-fA-F]{1,8}")
_STREAMED = {
    "STREAMING-AWS4-HMAC-SHA256-PAYLOAD": (True, False),
    "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER": (True, True),
    "STREAMING-UNSIGNED-PAYLOAD-TRAILER": (False, True),
}
"""Ways to stream: are chunks signed, and is there a trailer?"""


def _crc32(data: bytes) -> bytes:
    return zlib.crc32(data).to_bytes(4, "big")


def _crc32c(data: bytes) -> bytes:
    return _reflected(data, 0x82F63B78, 4)


def _crc64nvme(data: bytes) -> bytes:
    return _reflected(data, 0x9A6C9329AC4BC9B5, 8)


_CHECKSUMS: dict[str, Callable[[bytes], bytes]] = {
    "x-amz-checksum-crc32": _crc32,
    "x-amz-checksum-crc32c": _crc32c,
    "x-amz-checksum-crc64nvme": _crc64nvme,
    "x-amz-checksum-sha1": lambda data: hashlib.sha1(data).digest(),  # noqa: S324 - a checksum, as the client asked
    "x-amz-checksum-sha256": lambda data: sha256(data).digest(),
}


@dataclass(frozen=True)
class BodyRules:
    """The statements of a request about its body. A presigned request has the credential of its URL."""

    headers: Mapping[str, str]
    credential: Credential
    secret: str


def decode_body(received: bytes, rules: BodyRules) -> bytes:
    """Return the content of a body. Raise `S3Error` if the bytes are not those that the client announced."""
    payload = rules.credential.payload
    trailer: dict[str, str] = {}
    if payload.startswith("STREAMING-"):
        if payload not in _STREAMED:
            raise S3Error("NotImplemented", f"bodies of the kind {payload} are not supported")
        content, trailer = _Chunks(received, rules).decode()
        expected = rules.headers.get("x-amz-decoded-content-length")
        if expected is not None and expected != str(len(content)):
            raise S3Error("IncompleteBody", f"{len(content)} bytes arrived, but {expected[:20]} were announced")
    else:
        content = received
        if payload != UNSIGNED and not hmac.compare_digest(sha256(content).hexdigest(), payload):
            raise S3Error("XAmzContentSHA256Mismatch", "the body is not the one that was signed")
    _check_checksums(content, {**_checksums_of(rules.headers), **_checksums_of(trailer)})
    return content


class _Chunks:
    """Decodes a chunked body. Each signature covers the one before it, so that chunks cannot be moved."""

    def __init__(self, received: bytes, rules: BodyRules) -> None:
        self._received = received
        self._rules = rules
        self._is_signed, self._has_trailer = _STREAMED[rules.credential.payload]
        self._previous = rules.credential.signature
        self._at = 0

    def decode(self) -> tuple[bytes, dict[str, str]]:
        parts: list[bytes] = []
        while True:
            size, signature = self._chunk_header()
            data = self._take(size)
            if self._is_signed:
                self._check_signature("AWS4-HMAC-SHA256-PAYLOAD", signature, _EMPTY + "\n" + sha256(data).hexdigest())
            if size == 0:
                break
            parts.append(data)
            if self._take(2) != b"\r\n":
                raise S3Error("IncompleteBody", "a chunk does not end where its size says")
        return b"".join(parts), self._trailer()

    def _chunk_header(self) -> tuple[int, str]:
        line = self._line(MAX_S3_CHUNK_HEADER_BYTES)
        size, _, extension = line.partition(b";")
        if not _SIZE.fullmatch(size):
            raise S3Error("IncompleteBody", "a chunk has no valid size")
        name, _, signature = extension.partition(b"=")
        if self._is_signed and name != b"chunk-signature":
            raise S3Error("SignatureDoesNotMatch", "a chunk has no signature")
        return int(size, 16), signature.decode("latin-1")

    def _trailer(self) -> dict[str, str]:
        """Parse the lines after the last chunk. In a signed trailer, the last is the signature of the others."""
        found: dict[str, str] = {}
        content = b""
        while self._at < len(self._received):
            line = self._line(MAX_S3_TRAILER_BYTES)
            if not line:
                break
            name, _, value = line.decode("latin-1").partition(":")
            if name == "x-amz-trailer-signature":
                if self._is_signed:
                    self._check_signature("AWS4-HMAC-SHA256-TRAILER", value.strip(), sha256(content).hexdigest())
                content = b""
                continue
            content += f"{name.lower()}:{value.strip()}\n".encode("latin-1")
            if len(content) > MAX_S3_TRAILER_BYTES:
                raise S3Error("InvalidRequest", "the trailer is too long")
            found[name.lower()] = value.strip()
        if content and self._is_signed:
            raise S3Error("SignatureDoesNotMatch", "the trailer has no signature")
        announced = {name.strip().lower() for name in self._rules.headers.get("x-amz-trailer", "").split(",")} - {""}
        if set(found) != announced:
            raise S3Error("InvalidRequest", "the trailer does not have the headers that x-amz-trailer announces")
        if found and not self._has_trailer:
            raise S3Error("InvalidRequest", "a body of this kind has no trailer")
        return found

    def _check_signature(self, kind: str, signature: str, content: str) -> None:
        credential = self._rules.credential
        signed = "\n".join((kind, credential.stamp, credential.scope, self._previous, content))
        key = signing_key(self._rules.secret, credential.scope_date, credential.region)
        expected = hmac.new(key, signed.encode(), sha256).hexdigest()
        if not hmac.compare_digest(expected.encode(), signature.encode("latin-1", "replace")):
            raise S3Error("SignatureDoesNotMatch", "a chunk was changed after it was signed")
        self._previous = expected

    def _line(self, limit: int) -> bytes:
        end = self._received.find(b"\r\n", self._at, self._at + limit + 2)
        if end < 0:
            raise S3Error("IncompleteBody", "the body ends inside a line of its chunks")
        line = self._received[self._at : end]
        self._at = end + 2
        return line

    def _take(self, size: int) -> bytes:
        data = self._received[self._at : self._at + size]
        if len(data) != size:
            raise S3Error("IncompleteBody", "the body ends inside a chunk")
        self._at += size
        return data


def _checksums_of(headers: Mapping[str, str]) -> dict[str, str]:
    found = {name: value for name, value in headers.items() if name in _CHECKSUMS}
    if "content-md5" in headers:
        found["content-md5"] = headers["content-md5"]
    return found


def _check_checksums(content: bytes, expected: Mapping[str, str]) -> None:
    for name, value in expected.items():
        compute = _CHECKSUMS.get(name) or (lambda data: hashlib.md5(data).digest())  # noqa: S324 - as the client asked
        try:
            wanted = base64.b64decode(value, validate=True)
        except (Base64Error, ValueError):
            raise S3Error("InvalidRequest", f"the header {name} is not base64") from None
        if compute(content) != wanted:
            raise S3Error("BadDigest", f"the body does not match {name}")


def _reflected(data: bytes, polynomial: int, width: int) -> bytes:
    """Return a reflected CRC with ones before and after, by a table of one byte."""
    table, mask = _table(polynomial), (1 << (8 * width)) - 1
    value = mask
    for byte in data:
        value = table[(value ^ byte) & 0xFF] ^ (value >> 8)
    return (value ^ mask).to_bytes(width, "big")


_TABLES: dict[int, list[int]] = {}


def _table(polynomial: int) -> list[int]:
    if polynomial not in _TABLES:
        made = []
        for number in range(256):
            value = number
            for _ in range(8):
                value = (value >> 1) ^ (polynomial if value & 1 else 0)
            made.append(value)
        _TABLES[polynomial] = made
    return _TABLES[polynomial]
