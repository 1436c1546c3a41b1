"""Blobs of remote stores on local disk, shared by all processes of a machine.

Knows stores and blobs, not datasets. docs/specs/cache.md is the normative text.
"""

from warpdata.storage.cache.blob_cache import BlobCache, CorruptEntry, Refusal
from warpdata.storage.cache.entries import shared_entries
from warpdata.storage.cache.eviction import TARGET_FRACTION, EvictionResult
from warpdata.storage.cache.fetcher import Filled
from warpdata.storage.cache.offline import OfflineReader, OfflineStore
from warpdata.storage.cache.policy import FetchPolicy, Mode, parse_mode
from warpdata.storage.cache.reader import CachedReader
from warpdata.storage.cache.staging import Reclaimed, StagingDirectory, reclaim_staging
from warpdata.storage.cache.stats import CacheStats, read_totals

__all__ = [
    "TARGET_FRACTION",
    "BlobCache",
    "CacheStats",
    "CachedReader",
    "CorruptEntry",
    "EvictionResult",
    "FetchPolicy",
    "Filled",
    "Mode",
    "OfflineReader",
    "OfflineStore",
    "Reclaimed",
    "Refusal",
    "StagingDirectory",
    "parse_mode",
    "read_totals",
    "reclaim_staging",
    "shared_entries",
]
