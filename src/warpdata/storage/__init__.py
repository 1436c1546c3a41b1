"""Bytes survive and have a name: stores, byte ranges, verified blobs.

Knows nothing of datasets. docs/specs/store.md is the normative text.
"""

from warpdata.primitives.ranges import ByteRange, RangeRequest, coalesce, split_reply
from warpdata.storage.blobs import read_blob, verify_blob
from warpdata.storage.from_url import normalize_url, open_store, resolve_s3
from warpdata.storage.local import LocalStore
from warpdata.storage.metadata_cache import KeyPolicy, MetadataCache, MetadataCacheFiles
from warpdata.storage.metrics import IOMetrics, IOStats, MeteredReader
from warpdata.storage.object_store import ObjectStore
from warpdata.storage.types import GetResult, ObjectInfo, Reader, Writer

__all__ = [
    "ByteRange",
    "GetResult",
    "IOMetrics",
    "IOStats",
    "KeyPolicy",
    "LocalStore",
    "MetadataCache",
    "MetadataCacheFiles",
    "MeteredReader",
    "ObjectInfo",
    "ObjectStore",
    "RangeRequest",
    "Reader",
    "Writer",
    "coalesce",
    "normalize_url",
    "open_store",
    "read_blob",
    "resolve_s3",
    "split_reply",
    "verify_blob",
]
