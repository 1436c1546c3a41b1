"""Bytes survive and have a name: stores, byte ranges, verified blobs.

Knows nothing of datasets. docs/specs/store.md is the normative text.
"""

from warpdata.storage.blobs import read_blob, verify_blob
from warpdata.storage.from_url import normalize_url, open_store, resolve_s3
from warpdata.storage.local import LocalStore
from warpdata.storage.metadata_cache import KeyPolicy, MetadataCache, MetadataCacheFiles
from warpdata.storage.object_store import ObjectStore
from warpdata.storage.ranges import Request, check_spans, coalesce, split_reply
from warpdata.storage.types import ByteRange, GetResult, ObjectInfo, Reader, Writer
from warpdata.storage.verified_read import read_verified, retry_corrupt

__all__ = [
    "ByteRange",
    "GetResult",
    "KeyPolicy",
    "LocalStore",
    "MetadataCache",
    "MetadataCacheFiles",
    "ObjectInfo",
    "ObjectStore",
    "Reader",
    "Request",
    "Writer",
    "check_spans",
    "coalesce",
    "normalize_url",
    "open_store",
    "read_blob",
    "read_verified",
    "resolve_s3",
    "retry_corrupt",
    "split_reply",
    "verify_blob",
]
