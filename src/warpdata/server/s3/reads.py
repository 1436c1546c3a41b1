"""Answers to GET and HEAD of an object: ranges, conditions, and headers that the request may choose.

Implements "Reading" of docs/specs/gateway.md.
"""

from __future__ import annotations

import base64
import functools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import format_datetime, parsedate_to_datetime
from typing import TypeAlias

from warpdata.server.byte_ranges import parse_range
from warpdata.server.media_types import is_active, media_type
from warpdata.server.s3.errors import S3Error
from warpdata.server.s3.files import GatewayObject
from warpdata.server.s3.sigv4 import S3Request

__all__ = ["WHOLE", "Bytes", "S3Answer", "answer_object"]

_ONE_RANGE = re.compile(r"bytes=([0-9]{1,19}-[0-9]{0,19}|-[0-9]{1,19})")
_CHOSEN = {
    "response-content-type": "content-type",
    "response-content-disposition": "content-disposition",
    "response-content-encoding": "content-encoding",
    "response-content-language": "content-language",
    "response-cache-control": "cache-control",
    "response-expires": "expires",
}
_VALUE = re.compile(r"[\x20-\x7e]{1,1024}")
_FOREVER = "private, max-age=31536000, immutable"
_CHECKED = "private, no-cache"
Bytes: TypeAlias = bytes | bytearray | memoryview
WHOLE = (bytes, bytearray, memoryview)
"""Types of bodies that are there. Others are iterators of parts."""


@dataclass(frozen=True, slots=True)
class S3Answer:
    """An answer: its status, its headers, and parts of its body. `length` is that of the whole body."""

    status: int
    headers: Mapping[str, str]
    body: Iterator[Bytes] | Bytes = b""


def answer_object(found: GatewayObject, request: S3Request) -> S3Answer:
    """Return an object or a range of it, as the headers of the request ask for it."""
    headers = {
        "accept-ranges": "bytes",
        "etag": f'"{found.etag}"',
        "last-modified": _http_date(found.modified),
        "cache-control": _FOREVER if found.is_pinned else _CHECKED,
        "content-type": found.media_type or media_type(found.name),
        **_chosen_headers(request),
    }
    if is_active(headers["content-type"]):
        headers.setdefault("content-disposition", "attachment")
    if not _is_wanted(found, request.headers):
        return S3Answer(304, {name: headers[name] for name in ("etag", "last-modified", "cache-control")})
    span, is_part = _span(found, request.headers)
    if is_part:
        headers["content-range"] = f"bytes {span.start}-{span.stop - 1}/{found.size_bytes}"
    elif request.headers.get("x-amz-checksum-mode", "").lower() == "enabled" and found.sha256 is not None:
        headers["x-amz-checksum-sha256"] = base64.b64encode(bytes.fromhex(found.sha256)).decode()
        headers["x-amz-checksum-type"] = "FULL_OBJECT"
    headers["content-length"] = str(len(span))
    status = 206 if is_part else 200
    if request.method == "HEAD" or not span:
        return S3Answer(status, headers)
    return S3Answer(status, headers, found.read(span))


@functools.lru_cache(maxsize=1024)
def _http_date(time: datetime) -> str:
    """Return a time as headers have it. The files of a version share theirs."""
    return format_datetime(time.astimezone(UTC), usegmt=True)


def _span(found: GatewayObject, headers: Mapping[str, str]) -> tuple[range, bool]:
    """Return the wanted bytes, and whether they are a part. A range that cannot be served is a fault."""
    wanted = headers.get("range")
    whole = range(found.size_bytes)
    if wanted is None or not _ONE_RANGE.fullmatch(wanted) or not _is_same(found, headers.get("if-range")):
        return whole, False
    first, _, last = wanted.removeprefix("bytes=").partition("-")
    if first and last and int(last) < int(first):
        return whole, False
    span = parse_range(wanted, found.size_bytes)
    if not span:
        raise S3Error("InvalidRange", f"the range {wanted} is not within the {found.size_bytes} bytes of the object")
    return span, True


def _is_wanted(found: GatewayObject, headers: Mapping[str, str]) -> bool:
    """Return whether the client has no such copy yet. Raise `PreconditionFailed` if it wants another object."""
    expected, since = headers.get("if-match"), _time(headers.get("if-unmodified-since"))
    modified = found.modified.replace(microsecond=0)
    is_expected = _names(expected, found.etag) if expected is not None else since is None or modified <= since
    if not is_expected:
        raise S3Error("PreconditionFailed", "the object is not the one that the request expects")
    known, since = headers.get("if-none-match"), _time(headers.get("if-modified-since"))
    if known is not None:
        return not _names(known, found.etag)
    return since is None or modified > since


def _is_same(found: GatewayObject, validator: str | None) -> bool:
    if validator is None:
        return True
    if '"' in validator:
        return validator == f'"{found.etag}"'
    return _time(validator) == found.modified.replace(microsecond=0)


def _names(header: str, etag: str) -> bool:
    tags = [tag.strip().removeprefix("W/").strip('"') for tag in header.split(",")]
    return "*" in tags or etag in tags


def _time(header: str | None) -> datetime | None:
    """Return the time of a header; None for one that is absent or no time, which is ignored."""
    try:
        found = None if header is None else parsedate_to_datetime(header)
    except ValueError:
        return None
    return found if found is None or found.tzinfo is not None else found.replace(tzinfo=UTC)


def _chosen_headers(request: S3Request) -> dict[str, str]:
    chosen = {}
    for name, header in _CHOSEN.items():
        value = request.query.get(name)
        if value is None:
            continue
        if not _VALUE.fullmatch(value):
            raise S3Error("InvalidArgument", f"{name} is not a header value of printable ASCII")
        chosen[header] = value
    return chosen
