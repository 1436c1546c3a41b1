"""Objects of the store as HTTP answers: status, headers, and the bytes of one range."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC
from email.utils import format_datetime

from starlette.responses import Response, StreamingResponse

from warpdata.limits import MIB
from warpdata.server.byte_ranges import is_one_range, parse_range
from warpdata.server.objects import digest_of, no_object
from warpdata.server.stored_files import FOREVER, REVALIDATED, FileHead
from warpdata.storage import ByteRange, ObjectInfo, Reader

__all__ = ["ObjectRequest", "describe_object", "etag_of", "object_head", "send_object"]

_PART_BYTES = 4 * MIB
_TYPE = "application/octet-stream"


@dataclass(frozen=True, slots=True)
class ObjectRequest:
    """What a client asks of an object."""

    method: str
    key: str
    range: str | None
    if_none_match: str | None = None


def describe_object(info: ObjectInfo) -> dict[str, str]:
    """Return the headers that say what an object is. A blob never changes."""
    headers = {
        "ETag": etag_of(info),
        "Cache-Control": FOREVER if digest_of(info.key) else REVALIDATED,
        "Content-Security-Policy": "sandbox; default-src 'none'",
        "Content-Disposition": "attachment",
    }
    if info.modified is not None:
        headers["Last-Modified"] = format_datetime(info.modified.astimezone(UTC), usegmt=True)
    return headers


def object_head(request: ObjectRequest, size_bytes: int, headers: Mapping[str, str]) -> FileHead:
    """Answer a read of an object, without its bytes. `headers` say what it is, its `ETag` too if it may be cached."""
    if request.if_none_match is not None and headers["ETag"] in request.if_none_match:
        return FileHead(304, dict(headers), None)
    sent = {"Accept-Ranges": "bytes", **headers}
    span = parse_range(request.range, size_bytes)
    if span is None:
        return FileHead(416, {**sent, "Content-Range": f"bytes */{size_bytes}"}, None)
    is_part = is_one_range(request.range) and bool(span)
    if is_part:
        sent["Content-Range"] = f"bytes {span.start}-{span.stop - 1}/{size_bytes}"
    sent |= {"Content-Length": str(len(span)), "Content-Type": _TYPE}
    return FileHead(206 if is_part else 200, sent, span if span and request.method != "HEAD" else None)


def send_object(reader: Reader, request: ObjectRequest, size_bytes: int, headers: Mapping[str, str]) -> Response:
    """Answer with a stored object, or with one range of it."""
    head = object_head(request, size_bytes, headers)
    if head.span is None:
        return Response(status_code=head.status, headers=head.headers)
    if len(head.span) <= _PART_BYTES:
        data = bytes(reader.read_range(request.key, ByteRange(head.span.start, head.span.stop)))
        return Response(data, head.status, head.headers)
    return StreamingResponse(_parts(reader, request.key, head.span), head.status, head.headers)


def etag_of(info: ObjectInfo) -> str:
    """Return the ETag of an object: the digest of a blob, else that of the store."""
    tag = digest_of(info.key) or (info.etag or "").removeprefix("W/").strip('"')
    if not tag:
        raise no_object(info.key)
    return f'"{tag}"'


def _parts(reader: Reader, key: str, span: range) -> Iterator[memoryview]:
    for start in range(span.start, span.stop, _PART_BYTES):
        yield reader.read_range(key, ByteRange(start, min(start + _PART_BYTES, span.stop)))
