"""The samples that differ between two versions, with their values. The cost follows what differs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from warpdata.kinds.tables import RemadeColumns, RowDiff, Table, diff_rows
from warpdata.primitives.cached_property import cached_property
from warpdata.primitives.reprs import short_repr

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["SampleChange", "SampleDiff", "same_value"]

_CHUNK_ROWS = 4096


@dataclass(frozen=True, slots=True)
class SampleChange:
    """A sample that differs. `change` is "added", "removed" or "changed".

    `columns` are those whose values differ, for a changed sample. `old` and `new` have all columns.
    """

    table: str
    change: str
    sample_id: int
    columns: tuple[str, ...]
    old: Mapping[str, Any] | None
    new: Mapping[str, Any] | None


@dataclass(frozen=True, eq=False)
class SampleDiff:
    """The samples that differ between two versions of some tables. A missing table has no rows."""

    tables: Mapping[str, tuple[Table | None, Table | None]]

    def __repr__(self) -> str:
        return short_repr("SampleDiff", list(self.tables), added=self.added, removed=self.removed)

    @property
    def added(self) -> int:
        """The number of samples that only the newer version has."""
        return sum(len(diff.added) for diff in self._diffs.values())

    @property
    def removed(self) -> int:
        """The number of samples that only the older version has."""
        return sum(len(diff.removed) for diff in self._diffs.values())

    def rows(self) -> Iterator[SampleChange]:
        """Yield every sample that differs: for each table the removed ones, then the changed, then the added ones.

        Reads the values of samples whose place differs, in parts of bounded size.
        """
        for name, (old, new) in self.tables.items():
            diff = self._diffs[name]
            if old is not None:
                for part in _parts(diff.removed):
                    for sample, values in _values(old, diff.gone.rows_of(part), part):
                        yield SampleChange(name, "removed", sample, (), values, None)
            if old is not None and new is not None:
                for part in _parts(diff.moved):
                    yield from _changed(name, old, new, diff, part)
                for remade in diff.remade:
                    yield from _remade(name, old, new, remade)
            if new is not None:
                for part in _parts(diff.added):
                    for sample, values in _values(new, diff.come.rows_of(part), part):
                        yield SampleChange(name, "added", sample, (), None, values)

    @cached_property
    def _diffs(self) -> dict[str, RowDiff]:
        return {name: diff_rows(old, new) for name, (old, new) in self.tables.items()}


def same_value(left: Any, right: Any) -> bool:
    """Compare two values of a cell, or two rows. NaN equals NaN, also inside of lists and structs."""
    if left is right or bool(left == right):
        return True
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        return left.keys() == right.keys() and all(same_value(left[key], right[key]) for key in left)
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        return len(left) == len(right) and all(map(same_value, left, right))
    return bool(left != left and right != right)


def _changed(name: str, old: Table, new: Table, diff: RowDiff, part: NDArray[np.int64]) -> Iterator[SampleChange]:
    before = _values(old, diff.gone.rows_of(part), part)
    after = _values(new, diff.come.rows_of(part), part)
    for (sample, was), (_, now) in zip(before, after, strict=True):
        names = [*was, *(column for column in now if column not in was)]
        columns = tuple(
            column
            for column in names
            if column not in was or column not in now or not same_value(was[column], now[column])
        )
        if columns:
            yield SampleChange(name, "changed", sample, columns, was, now)


def _remade(name: str, old: Table, new: Table, remade: RemadeColumns) -> Iterator[SampleChange]:
    """Yield the samples with other values in columns that were computed again. Whole rows are read only of these."""
    columns = remade.columns
    for start in range(0, len(remade.old.ids), _CHUNK_ROWS):
        part = slice(start, start + _CHUNK_ROWS)
        ids, before, after = remade.old.ids[part], remade.old.rows[part], remade.new.rows[part]
        was, now = old.select(columns).take(before).to_pylist(), new.select(columns).take(after).to_pylist()
        differ = [at for at, (left, right) in enumerate(zip(was, now, strict=True)) if not same_value(left, right)]
        if not differ:
            continue
        sides = zip(_values(old, before[differ], ids[differ]), _values(new, after[differ], ids[differ]), strict=True)
        for at, ((sample, left), (_, right)) in zip(differ, sides, strict=True):
            names = tuple(column for column in columns if not same_value(was[at][column], now[at][column]))
            yield SampleChange(name, "changed", sample, names, left, right)


def _parts(ids: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    for start in range(0, len(ids), _CHUNK_ROWS):
        yield ids[start : start + _CHUNK_ROWS]


def _values(table: Table, rows: NDArray[np.int64], ids: NDArray[np.int64]) -> list[tuple[int, Mapping[str, Any]]]:
    return list(zip(ids.tolist(), table.take(rows).to_pylist(), strict=True))
