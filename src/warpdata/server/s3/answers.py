"""Documents that S3 answers with, as XML. Written by hand, because they are few and a page of a listing is large."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import quote
from xml.sax.saxutils import escape

from warpdata.server.s3.errors import S3Error
from warpdata.server.s3.listing import KeyPage

__all__ = ["ListingAnswer", "bucket_list", "error_document", "listing_document", "location_document"]

_HEAD = '<?xml version="1.0" encoding="UTF-8"?>\n'
_SPACE = 'xmlns="http://s3.amazonaws.com/doc/2006-03-01/"'
_PLAIN = re.compile(r"[^&<>\x00-\x1f\x7f\ufffe\uffff]*")
_CONTROL = re.compile("[\x00-\x1f\x7f\ufffe\uffff]")
_SAFE = "/-._~*"
_UNQUOTED = re.compile(r"[A-Za-z0-9/._~*-]*")


@dataclass(frozen=True, slots=True)
class ListingAnswer:
    """The question of a listing, and its page. `marker` is None for version 2."""

    bucket: str
    prefix: str
    delimiter: str
    limit: int
    is_encoded: bool
    page: KeyPage
    marker: str | None = None
    start_after: str = ""
    token: str = ""
    next_token: str = ""
    shows_owner: bool = False


def listing_document(answer: ListingAnswer) -> bytes:
    """Return the answer to ListObjects in either version."""
    page = answer.page
    name = _quoted if answer.is_encoded else _escaped
    is_truncated = page.following is not None
    parts = [f"{_HEAD}<ListBucketResult {_SPACE}><Name>{_escaped(answer.bucket)}</Name>"]
    parts.append(f"<Prefix>{name(answer.prefix)}</Prefix>")
    if answer.marker is not None:
        parts.append(f"<Marker>{name(answer.marker)}</Marker>")
        if is_truncated:
            parts.append(f"<NextMarker>{name(page.last)}</NextMarker>")
    else:
        parts.append(f"<KeyCount>{len(page)}</KeyCount>")
        if answer.start_after:
            parts.append(f"<StartAfter>{name(answer.start_after)}</StartAfter>")
        if answer.token:
            parts.append(f"<ContinuationToken>{_escaped(answer.token)}</ContinuationToken>")
        if is_truncated:
            parts.append(f"<NextContinuationToken>{answer.next_token}</NextContinuationToken>")
    parts.append(f"<MaxKeys>{answer.limit}</MaxKeys>")
    if answer.delimiter:
        parts.append(f"<Delimiter>{name(answer.delimiter)}</Delimiter>")
    if answer.is_encoded:
        parts.append("<EncodingType>url</EncodingType>")
    parts.append(f"<IsTruncated>{'true' if is_truncated else 'false'}</IsTruncated>")
    owner = "<Owner><ID>warpdata</ID></Owner>" if answer.shows_owner else ""
    parts += [
        f"<Contents><Key>{name(one.key)}</Key><LastModified>{one.modified}</LastModified>"
        f"<ETag>&quot;{one.etag}&quot;</ETag><Size>{one.size_bytes}</Size>{owner}"
        "<StorageClass>STANDARD</StorageClass></Contents>"
        for one in page.keys
    ]
    parts += [f"<CommonPrefixes><Prefix>{name(one)}</Prefix></CommonPrefixes>" for one in page.prefixes]
    parts.append("</ListBucketResult>")
    return "".join(parts).encode()


def bucket_list(names: Iterable[str]) -> bytes:
    """Return the answer to ListBuckets."""
    buckets = "".join(
        f"<Bucket><Name>{_escaped(name)}</Name><CreationDate>1970-01-01T00:00:00.000Z</CreationDate></Bucket>"
        for name in names
    )
    return (
        f"{_HEAD}<ListAllMyBucketsResult {_SPACE}><Owner><ID>warpdata</ID></Owner>"
        f"<Buckets>{buckets}</Buckets></ListAllMyBucketsResult>"
    ).encode()


def location_document() -> bytes:
    """Return the answer to GetBucketLocation. An empty location is `us-east-1`."""
    return f"{_HEAD}<LocationConstraint {_SPACE}/>".encode()


def error_document(fault: S3Error, resource: str, request_id: str) -> bytes:
    """Return the document of an error."""
    return (
        f"{_HEAD}<Error><Code>{fault.code}</Code><Message>{_escaped(fault.message)}</Message>"
        f"<Resource>{_escaped(resource)}</Resource><RequestId>{request_id}</RequestId></Error>"
    ).encode()


def _quoted(text: str) -> str:
    return text if _UNQUOTED.fullmatch(text) else quote(text, _SAFE)


def _escaped(text: str) -> str:
    """Return text for XML. Characters that XML does not have become references, as S3 writes them."""
    if _PLAIN.fullmatch(text):
        return text
    return _CONTROL.sub(lambda found: f"&#x{ord(found[0]):x};", escape(text))
