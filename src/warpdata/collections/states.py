"""States of HEAD and of versions, in the words of the platform: from `unlabeled` to `snapshot-repaired`.

A version never changes. Records beside it say that bytes of it were erased or lost, and which version repairs it.
Implements "States" of docs/specs/collections.md.
"""

from __future__ import annotations

from dataclasses import dataclass

from warpdata.collections.records import BrokenRecord, RecordStore, RepairRecord

__all__ = ["BROKEN", "LABELED", "REPAIRED", "UNLABELED", "VALID", "VersionState", "read_state"]

UNLABELED, LABELED = "unlabeled", "labeled"
VALID, BROKEN, REPAIRED = "snapshot-valid", "snapshot-broken", "snapshot-repaired"
_STATUS = {VALID: "valid", BROKEN: "broken", REPAIRED: "repaired_by"}


@dataclass(frozen=True, slots=True)
class VersionState:
    """The state of HEAD or of a version. `repaired_by` is the label of the version without the missing files."""

    state: str
    version: str
    missing_images: tuple[str, ...] = ()
    missing_count: int = 0
    repaired_by: str | None = None

    @property
    def status(self) -> str:
        """One of valid, broken and repaired_by; for HEAD, unlabeled or labeled."""
        return _STATUS.get(self.state, self.state)

    def __str__(self) -> str:
        return f"repaired_by:{self.repaired_by}" if self.state == REPAIRED else self.status


def read_state(records: RecordStore, version: str) -> VersionState:
    """Return the state of a version. Missing files of several purges add up."""
    broken = [record for name in records.names(f"states/{version}") if (record := records.get(name, BrokenRecord))]
    if not broken:
        return VersionState(VALID, version)
    found = (records.get(name, RepairRecord) for name in records.names(f"repairs/{version}"))
    repairs = [repair for repair in found if repair is not None]
    missing = tuple(sorted({path for record in broken for path in record.missing}))
    count = max([len(missing), *(record.missing_count for record in broken)])
    complete = [record for record in repairs if count == len(missing) and set(missing) <= set(record.removed)]
    if not complete:
        return VersionState(BROKEN, version, missing, count)
    newest = max(complete, key=lambda record: (record.time, record.label))
    return VersionState(REPAIRED, version, missing, count, newest.label)
