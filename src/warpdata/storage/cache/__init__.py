"""Bytes are near: blobs of remote stores on local disk, shared by all processes of a machine.

Knows stores and blobs, nothing of datasets. docs/specs/cache.md is the normative text.
"""

from warpdata.storage.cache.blob_cache import BlobCache, CacheStats, Damage, Refusal
from warpdata.storage.cache.blob_state import Filled
from warpdata.storage.cache.eviction import Collected
from warpdata.storage.cache.metrics import IOMetrics, IOStats, MeteredReader
from warpdata.storage.cache.offline import OfflineReader
from warpdata.storage.cache.policy import (
    FILL_EAGERLY,
    FILL_FOR_EPOCHS,
    FILL_FOR_MEDIA,
    FILL_FOR_TABLES,
    FillPolicy,
    Mode,
    parse_mode,
)
from warpdata.storage.cache.put import keep_bytes
from warpdata.storage.cache.reader import CachedReader
from warpdata.storage.cache.stats_file import read_totals

__all__ = [
    "FILL_EAGERLY",
    "FILL_FOR_EPOCHS",
    "FILL_FOR_MEDIA",
    "FILL_FOR_TABLES",
    "BlobCache",
    "CacheStats",
    "CachedReader",
    "Collected",
    "Damage",
    "FillPolicy",
    "Filled",
    "IOMetrics",
    "IOStats",
    "MeteredReader",
    "Mode",
    "OfflineReader",
    "Refusal",
    "keep_bytes",
    "parse_mode",
    "read_totals",
]
