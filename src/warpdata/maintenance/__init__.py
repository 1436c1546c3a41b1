"""Care of stored data: copies, garbage collection, pins, verification and repair of published versions."""

from warpdata.maintenance.collection import Collected, PinnedVersion, gc, pin, pins, unpin
from warpdata.maintenance.copy import Renamed, copy, rename
from warpdata.maintenance.copy_job import Copied
from warpdata.maintenance.scrub import Scrubbed, scrub
from warpdata.maintenance.verify import Verification, verify

__all__ = [
    "Collected",
    "Copied",
    "PinnedVersion",
    "Renamed",
    "Scrubbed",
    "Verification",
    "copy",
    "gc",
    "pin",
    "pins",
    "rename",
    "scrub",
    "unpin",
    "verify",
]
