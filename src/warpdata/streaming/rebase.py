"""The rest of an epoch on another version: what was taken is not taken again, what was added is.

Rows are the same if they have the same place in the same shard, whatever versions these stand in. Of a shard
that a table holds several times, as many rows of a place count as taken as were taken.
Implements "Going on with another version" of docs/specs/streaming.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from warpdata.errors import BadInputError
from warpdata.kinds.tables import Table
from warpdata.primitives.cached_property import cached_property
from warpdata.repository.manifest import iter_rows
from warpdata.streaming.order import Shuffle
from warpdata.streaming.sources import TablePlan
from warpdata.streaming.state import TableIdentity

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["PlanAt", "RestPlan", "Segment", "parse_rest", "rest_of"]

_Taken: TypeAlias = dict[str, "NDArray[np.int64]"]
"""For each shard, by its hash, how often each of its rows was taken."""


@dataclass(frozen=True, slots=True)
class Segment:
    """The part of an epoch that was taken from one version."""

    version: str
    shuffle: Shuffle | None
    samples_done: int

    def document(self) -> list[Any]:
        return [self.version, None if self.shuffle is None else self.shuffle.numbers, self.samples_done]


PlanAt: TypeAlias = Callable[[str], TablePlan]
"""The same rows and order of another version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestIdentity(TableIdentity):
    """The order of what is left of one epoch."""

    epoch: int
    after: tuple[Segment, ...]

    def document(self) -> dict[str, Any]:
        return {
            **TableIdentity.document(self),
            "epoch": self.epoch,
            "after": [segment.document() for segment in self.after],
        }


@dataclass(frozen=True)
class RestPlan(TablePlan):
    """A version without the rows that were taken before, in the epoch they were taken in."""

    epoch: int
    after: tuple[Segment, ...]
    taken: NDArray[np.int64] = field(compare=False)

    @cached_property
    def selection(self) -> NDArray[np.int64]:
        kept = self.table.row_numbers()
        return kept[~np.isin(kept, self.taken, assume_unique=True)]

    @cached_property
    def identity(self) -> RestIdentity:
        plain = self.table_identity(len(self.selection))
        return RestIdentity(
            **{name.name: getattr(plain, name.name) for name in fields(TableIdentity)},
            epoch=self.epoch,
            after=self.after,
        )


def rest_of(plan: TablePlan, epoch: int, after: Sequence[Segment], plan_at: PlanAt) -> RestPlan:
    """What is left of an epoch on the version of `plan`, after these segments of it were taken elsewhere."""
    taken: _Taken = {}
    for number, segment in enumerate(after):
        base = _with_shuffle(plan_at(segment.version), segment.shuffle)
        before = _as_rest(base, epoch, after[:number], _rows_in(base.table, taken)) if number else base
        if segment.samples_done > before.identity.sample_count:
            raise BadInputError(
                f"{segment.samples_done} samples of version {segment.version[:12]} can not be done: "
                f"it has {before.identity.sample_count}"
            )
        _count(taken, base.table, [row for _, row in before.locate(0, segment.samples_done, epoch)])
    return _as_rest(plan, epoch, tuple(after), _rows_in(plan.table, taken))


def parse_rest(document: Mapping[str, Any]) -> tuple[int, tuple[Segment, ...]] | None:
    """The epoch and the segments that a token's plan continues; None for a plan that continues nothing."""
    if "after" not in document:
        return None
    try:
        epoch, segments = document["epoch"], document["after"]
        parsed = tuple(
            Segment(str(version), None if numbers is None else Shuffle(*numbers), int(done))
            for version, numbers, done in segments
        )
    except (KeyError, TypeError, ValueError) as error:
        raise BadInputError(f"the plan of a token cannot be read: {error}") from error
    if not isinstance(epoch, int) or any(segment.samples_done < 0 for segment in parsed):
        raise BadInputError("the plan of a token cannot be read: counts are not counts")
    return epoch, parsed


def _as_rest(plan: TablePlan, epoch: int, after: Sequence[Segment], taken: NDArray[np.int64]) -> RestPlan:
    known = {name.name: getattr(plan, name.name) for name in fields(TablePlan)}
    return RestPlan(**known, epoch=epoch, after=tuple(after), taken=taken)


def _with_shuffle(plan: TablePlan, shuffle: Shuffle | None) -> TablePlan:
    known = {name.name: getattr(plan, name.name) for name in fields(TablePlan)}
    return TablePlan(**{**known, "shuffle": shuffle})


def _count(taken: _Taken, table: Table, rows: Sequence[int]) -> None:
    """Add rows of a table to what was taken of its shards."""
    ordered, shards = np.sort(np.array(rows, np.int64)), table.entry.shards
    for first_row, shard in iter_rows(shards, table.load_page, 0, shards.row_count):
        count = shard.row_count or 0
        low, high = np.searchsorted(ordered, (first_row, first_row + count))
        if low < high:
            counts = taken.setdefault(shard.hash, np.zeros(count, np.int64))
            counts[ordered[low:high] - first_row] += 1


def _rows_in(table: Table, taken: _Taken) -> NDArray[np.int64]:
    """The rows of a table that were taken, ascending."""
    found, seen, shards = [np.empty(0, np.int64)], Counter[str](), table.entry.shards
    for first_row, shard in iter_rows(shards, table.load_page, 0, shards.row_count):
        if shard.hash in taken:
            found.append(first_row + np.flatnonzero(taken[shard.hash] > seen[shard.hash]))
        seen[shard.hash] += 1
    return np.concatenate(found)
