"""The report of a collection: what goes, by dataset and reason. Pure."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime

from warpdata.primitives.reprs import short_repr
from warpdata.repository.gc.mark import GarbageGroup

__all__ = ["Garbage", "GarbageReport", "ReportBuilder"]


@dataclass(frozen=True, slots=True)
class Garbage:
    """Objects of one kind and origin. `kind` is "version", "commit", "blob" or "upload"."""

    group: GarbageGroup
    kind: str
    count: int
    size_bytes: int

    @property
    def dataset_id(self) -> str | None:
        return self.group.dataset_id

    @property
    def reason(self) -> str:
        """One of "orphan", "expired" and "abandoned"."""
        return self.group.reason


@dataclass(frozen=True, slots=True)
class GarbageReport:
    """The garbage of a store. Nothing was deleted if `dry_run` is true, or before `ready_at`."""

    store: str
    rule: str
    dry_run: bool
    garbage: tuple[Garbage, ...]
    kept_versions: int
    live_blobs: int
    live_bytes: int
    deleted_count: int
    deleted_bytes: int
    ready_at: datetime | None = None
    """The time at which writers without leases have ended; None if nothing has to be waited for."""

    def __repr__(self) -> str:
        found = {"objects": self.count, "size_bytes": self.size_bytes, "dry_run": self.dry_run}
        return short_repr("GarbageReport", self.store, rule=self.rule, **found)

    @property
    def count(self) -> int:
        """The number of garbage objects."""
        return sum(one.count for one in self.garbage)

    @property
    def size_bytes(self) -> int:
        return sum(one.size_bytes for one in self.garbage)


class ReportBuilder:
    """Sums up what a collection finds."""

    def __init__(self, store: str, rule: str, *, dry_run: bool) -> None:
        self._store = store
        self._rule = rule
        self._dry_run = dry_run
        self._sums: defaultdict[tuple[GarbageGroup, str], list[int]] = defaultdict(lambda: [0, 0])
        self._kept_versions = 0
        self._live = [0, 0]
        self._deleted = [0, 0]

    def add(self, garbage: Garbage) -> None:
        if garbage.count:
            _add(self._sums[garbage.group, garbage.kind], garbage.count, garbage.size_bytes)

    def count_kept(self, versions: int) -> None:
        self._kept_versions += versions

    def count_live(self, size_bytes: int) -> None:
        _add(self._live, 1, size_bytes)

    def count_deleted(self, count: int, size_bytes: int) -> None:
        _add(self._deleted, count, size_bytes)

    def build(self, ready_at: datetime | None = None) -> GarbageReport:
        order = sorted(self._sums, key=lambda key: (key[0].dataset_id or "~", key[0].reason, key[1]))
        return GarbageReport(
            store=self._store,
            rule=self._rule,
            dry_run=self._dry_run,
            garbage=tuple(Garbage(*key, *self._sums[key]) for key in order),
            kept_versions=self._kept_versions,
            live_blobs=self._live[0],
            live_bytes=self._live[1],
            deleted_count=self._deleted[0],
            deleted_bytes=self._deleted[1],
            ready_at=ready_at,
        )


def _add(sums: list[int], count: int, size_bytes: int) -> None:
    sums[0] += count
    sums[1] += size_bytes
