"""Garbage collection: leases of writers, condemned lists, marking and deleting.

docs/specs/gc.md is the normative text.
"""

from warpdata.repository.gc.collector import CollectorClock, collect
from warpdata.repository.gc.condemned import CondemnedKeys
from warpdata.repository.gc.erase import ErasureTerms, erase_blobs, list_blob_keys
from warpdata.repository.gc.lease import Lease, LeaseClock, LeaseTerms, acquire_lease, remove_lease
from warpdata.repository.gc.mark import GarbageGroup, list_pins
from warpdata.repository.gc.references import BlobUsers, find_blob_users
from warpdata.repository.gc.report import Garbage, GarbageReport
from warpdata.repository.gc.retention import KEEP_ALL, Retention, parse_retention

__all__ = [
    "KEEP_ALL",
    "BlobUsers",
    "CollectorClock",
    "CondemnedKeys",
    "ErasureTerms",
    "Garbage",
    "GarbageGroup",
    "GarbageReport",
    "Lease",
    "LeaseClock",
    "LeaseTerms",
    "Retention",
    "acquire_lease",
    "collect",
    "erase_blobs",
    "find_blob_users",
    "list_blob_keys",
    "list_pins",
    "parse_retention",
    "remove_lease",
]
