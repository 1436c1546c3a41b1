"""Bytes survive and have a name: stores, byte ranges, verified blobs.

Knows nothing of datasets. docs/specs/store.md is the normative text.
"""

from warpdata.storage.blobs import read_blob, verify_blob
from warpdata.storage.buffered import BufferedBlob
from warpdata.storage.from_url import normalize_url, open_store, resolve_s3
from warpdata.storage.local import LocalStore
from warpdata.storage.metadata_cache import KeyPolicy, MetadataCache, MetadataCacheFiles
from warpdata.storage.object_store import ObjectStore
from warpdata.storage.range_source import (
    ConcurrentSource,
    DirectSource,
    FileRangeSource,
    InvalidatableSource,
    MappableSource,
    ObjectRangeSource,
    RangeSource,
    explain_os_error,
)
from warpdata.storage.ranges import Request, check_spans, coalesce, split_reply
from warpdata.storage.types import ByteRange, GetResult, ObjectInfo, Reader, Writer
from warpdata.storage.verified_read import read_verified, retry_corrupt
from warpdata.storage.wrapper import ReaderWrapper

__all__ = [
    "BufferedBlob",
    "ByteRange",
    "ConcurrentSource",
    "DirectSource",
    "FileRangeSource",
    "GetResult",
    "InvalidatableSource",
    "KeyPolicy",
    "LocalStore",
    "MappableSource",
    "MetadataCache",
    "MetadataCacheFiles",
    "ObjectInfo",
    "ObjectRangeSource",
    "ObjectStore",
    "RangeSource",
    "Reader",
    "ReaderWrapper",
    "Request",
    "Writer",
    "check_spans",
    "coalesce",
    "explain_os_error",
    "normalize_url",
    "open_store",
    "read_blob",
    "read_verified",
    "resolve_s3",
    "retry_corrupt",
    "split_reply",
    "verify_blob",
]
