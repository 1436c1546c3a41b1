"""Stores: objects by key, byte ranges, verified blobs, and metrics.

Knows nothing of datasets. docs/specs/store.md is the normative text.
"""

from warpdata.primitives.ranges import ByteRange, RangeRequest, coalesce, split_reply
from warpdata.storage.buffered import BufferedBlob
from warpdata.storage.content_type import SNIFFED_BYTES, content_type
from warpdata.storage.external import check_external_url, open_external
from warpdata.storage.from_url import normalize_url, open_store, resolve_s3, service_url
from warpdata.storage.generations import GenerationReader, RenamedReader
from warpdata.storage.local import LocalStore
from warpdata.storage.metadata_cache import KeyPolicy, MetadataCache, MetadataCacheFiles
from warpdata.storage.metrics import IOMetrics, IOStats, MeteredReader
from warpdata.storage.object_store import ObjectStore
from warpdata.storage.private_files import (
    check_private_directory,
    is_private_file,
    make_private_directories,
    open_private,
)
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
from warpdata.storage.service_client import ClientOptions, ServiceClient, ServiceReply, problem_error
from warpdata.storage.service_store import ServiceStore
from warpdata.storage.tokens import forget_token, read_token, save_token
from warpdata.storage.types import (
    GetResult,
    ObjectInfo,
    Reader,
    StagedObject,
    StagingWriter,
    Writer,
    check_expiry,
    check_key,
)
from warpdata.storage.verified_read import REPAIR_HINT, BlobCopy, read_blob, read_verified, retry_corrupt, verify_blob
from warpdata.storage.wrapper import ReaderWrapper

__all__ = [
    "REPAIR_HINT",
    "SNIFFED_BYTES",
    "BlobCopy",
    "BufferedBlob",
    "ByteRange",
    "ClientOptions",
    "ConcurrentSource",
    "DirectSource",
    "FileRangeSource",
    "GenerationReader",
    "GetResult",
    "IOMetrics",
    "IOStats",
    "InvalidatableSource",
    "KeyPolicy",
    "LocalStore",
    "MappableSource",
    "MetadataCache",
    "MetadataCacheFiles",
    "MeteredReader",
    "ObjectInfo",
    "ObjectRangeSource",
    "ObjectStore",
    "RangeRequest",
    "RangeSource",
    "Reader",
    "ReaderWrapper",
    "RenamedReader",
    "ServiceClient",
    "ServiceReply",
    "ServiceStore",
    "StagedObject",
    "StagingWriter",
    "Writer",
    "check_expiry",
    "check_external_url",
    "check_key",
    "check_private_directory",
    "coalesce",
    "content_type",
    "explain_os_error",
    "forget_token",
    "is_private_file",
    "make_private_directories",
    "normalize_url",
    "open_external",
    "open_private",
    "open_store",
    "problem_error",
    "read_blob",
    "read_token",
    "read_verified",
    "resolve_s3",
    "retry_corrupt",
    "save_token",
    "service_url",
    "split_reply",
    "verify_blob",
]
