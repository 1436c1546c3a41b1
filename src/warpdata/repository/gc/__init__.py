"""Garbage collection: leases of writers, condemned lists, marking and deleting.

docs/specs/gc.md is the normative text.
"""

from warpdata.repository.gc.collector import CollectorClock, collect
from warpdata.repository.gc.condemned import CondemnedKeys
from warpdata.repository.gc.lease import Lease, LeaseClock, LeaseTerms, acquire_lease
from warpdata.repository.gc.mark import GarbageGroup, list_pins
from warpdata.repository.gc.report import Garbage, GarbageReport
from warpdata.repository.gc.retention import KEEP_ALL, Retention, parse_retention

__all__ = [
    "KEEP_ALL",
    "CollectorClock",
    "CondemnedKeys",
    "Garbage",
    "GarbageGroup",
    "GarbageReport",
    "Lease",
    "LeaseClock",
    "LeaseTerms",
    "Retention",
    "acquire_lease",
    "collect",
    "list_pins",
    "parse_retention",
]
