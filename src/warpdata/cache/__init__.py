"""Bytes are near: blobs of remote stores on local disk, shared by all processes of a machine.

Knows stores and blobs, nothing of datasets. docs/specs/cache.md is the normative text.
"""

from warpdata.cache.blob_cache import BlobCache, CacheStats, Damage, Refusal
from warpdata.cache.counting import Counters, CountingReader, Counts
from warpdata.cache.keeping import keep_bytes
from warpdata.cache.modes import (
    FILL_EAGERLY,
    FILL_FOR_EPOCHS,
    FILL_FOR_MEDIA,
    FILL_FOR_TABLES,
    FillPolicy,
    Mode,
    parse_mode,
)
from warpdata.cache.offline import OfflineReader
from warpdata.cache.reader import CachedReader
from warpdata.cache.room import Collected
from warpdata.cache.totals import read_totals
from warpdata.cache.watch import Filled

__all__ = [
    "FILL_EAGERLY",
    "FILL_FOR_EPOCHS",
    "FILL_FOR_MEDIA",
    "FILL_FOR_TABLES",
    "BlobCache",
    "CacheStats",
    "CachedReader",
    "Collected",
    "Counters",
    "CountingReader",
    "Counts",
    "Damage",
    "FillPolicy",
    "Filled",
    "Mode",
    "OfflineReader",
    "Refusal",
    "keep_bytes",
    "parse_mode",
    "read_totals",
]
