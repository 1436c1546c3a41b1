"""Three-way merge of a table, for each sample and column.

The difference between the base and one side is applied to the other side, the head. A sample that both sides changed
is merged column by column. A value that both changed in different ways is a conflict, which a policy resolves or which
ends the merge. Implements "Merging" of docs/specs/publish.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from warpdata.edit.column_edits import NewColumn, extend_columns, null_files
from warpdata.edit.sample_diff import same_value
from warpdata.edit.table_draft import NewShard, TableDraft
from warpdata.edit.workspace import EditWorkspace
from warpdata.errors import ConflictError, ErrorKind
from warpdata.kinds.tables import DifferentRows, RowDiff, Table, diff_rows
from warpdata.repository.manifest import RowsKey, Shard, TableEntry, differing_shards, iter_located

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

__all__ = ["ColumnRules", "MergeConflict", "Resolve", "merge_table"]


@dataclass(frozen=True, slots=True)
class MergeConflict:
    """A sample that both sides changed. A value is None where the side deleted the sample.

    `columns` are those whose values differ on both sides; empty if one side deleted the sample.
    """

    table: str
    sample_id: int
    columns: tuple[str, ...]
    base: Mapping[str, Any] | None
    ours: Mapping[str, Any] | None
    theirs: Mapping[str, Any] | None


Resolve: TypeAlias = Callable[[MergeConflict], "Mapping[str, Any] | None"]
"""Returns the row to keep, or None to delete the sample. Raises to end the merge."""


@dataclass(frozen=True, slots=True)
class ColumnRules:
    """The rules for rows of one side that lack columns of the other side.

    `made` are the columns that the other side, an edit, has added, in this order. Without them, their functions are
    not known. With `fills_null`, rows that the other side appended have null in columns that the head has added.
    """

    made: Sequence[NewColumn] = ()
    fills_null: bool = False


@dataclass(frozen=True)
class _Sides:
    base: Table
    head: Table
    other: Table
    on_head: RowDiff
    on_other: RowDiff
    rules: ColumnRules = field(default_factory=ColumnRules)

    @property
    def added_on_head(self) -> pa.Schema | None:
        """The columns that rows of the other side lack; None if there are none."""
        import pyarrow as pa

        before = set(self.base.schema().names)
        added = [column for column in self.head.schema() if column.name not in before]
        return pa.schema(added) if added and not self.head.entry.changes[len(self.base.entry.changes) :] else None


def merge_table(
    workspace: EditWorkspace,
    name: str,
    versions: tuple[TableEntry, TableEntry, TableEntry],
    resolve: Resolve,
    rules: ColumnRules,
) -> TableEntry:
    """Apply the changes from the base to the other side to the head. New rows of the other side get new sample ids.

    Rows that both sides added are different rows, even if they are equal. Raise `ConflictError` if the columns of both
    sides do not fit together.
    """
    base, head, other = versions
    if head == other and head.id_counter == base.id_counter:
        return head
    old, mine, theirs = (workspace.open_table(name, entry) for entry in (base, head, other))
    sides = _Sides(old, mine, theirs, diff_rows(old, mine), diff_rows(old, theirs), rules)
    draft = TableDraft(workspace, name, _merge_columns(workspace, name, sides), base.id_counter)
    _Merge(draft, sides, resolve).run()
    return draft.entry


class _Merge:
    """The merge of rows. Decisions come first, then one change of the draft."""

    def __init__(self, draft: TableDraft, sides: _Sides, resolve: Resolve) -> None:
        import numpy as np

        self._draft = draft
        self._sides = sides
        self._resolve = resolve
        self._names: list[str] = draft.open().schema().names
        self._added = sides.added_on_head
        self._dropped = np.empty(0, np.int64)
        """Ids of rows of the other side that the merged version does not take from its shards."""
        self._deleted = np.empty(0, np.int64)
        """Ids of rows of the head that go, or that a row of the other side replaces."""
        self._rows: dict[int, Mapping[str, Any]] = {}
        """Rows that are neither those of the head nor those of the other side, by id."""

    def run(self) -> None:
        import numpy as np

        mine, other = self._sides.on_head, self._sides.on_other
        touched = np.union1d(other.removed, other.moved)
        contested = np.intersect1d(touched, np.union1d(mine.removed, mine.moved), assume_unique=True)
        if self._added is not None:  # changed rows keep the values of columns that only the head has
            contested = np.union1d(contested, other.moved)
        self._deleted = np.setdiff1d(touched, contested, assume_unique=True)
        self._decide(contested)
        self._apply()

    def _decide(self, contested: NDArray[np.int64]) -> None:
        """Settle the samples that both sides touched: the values decide, then the policy."""
        import numpy as np

        if not len(contested):
            return
        base = self._values(self._sides.base, self._sides.on_other.gone.rows_of(contested), contested)
        head = self._present(self._sides.head, self._sides.on_head, contested)
        other = self._present(self._sides.other, self._sides.on_other, contested)
        deleted, dropped = [], []
        for sample in contested.tolist():
            kept = self._merge_sample(sample, base[sample], head.get(sample), other.get(sample))
            if sample in other:
                dropped.append(sample)
            if same_value(kept, head.get(sample)):
                continue
            if sample in head:
                deleted.append(sample)
            if kept is not None:
                self._rows[sample] = kept
        self._deleted = np.union1d(self._deleted, np.array(deleted, np.int64))
        self._dropped = np.array(dropped, np.int64)

    def _merge_sample(
        self, sample: int, base: Mapping[str, Any], head: Mapping[str, Any] | None, other: Mapping[str, Any] | None
    ) -> Mapping[str, Any] | None:
        """Return the merged row of a sample, or None if it is deleted."""
        if same_value(head, other) or same_value(other, base):
            return head
        if same_value(head, base):
            return other
        if head is None or other is None:
            return self._resolve(MergeConflict(self._draft.name, sample, (), base, head, other))
        merged, clashes = dict(head), []
        for name in self._names:
            if same_value(head.get(name), other.get(name)) or same_value(other.get(name), base.get(name)):
                continue
            if same_value(head.get(name), base.get(name)):
                merged[name] = other.get(name)
            else:
                clashes.append(name)
        if clashes:
            return self._resolve(MergeConflict(self._draft.name, sample, tuple(clashes), base, head, other))
        return merged

    def _apply(self) -> None:
        import numpy as np
        import pyarrow as pa

        draft = self._draft
        added = [new for rows in self._sides.on_other.come.located for new in self._take_shard(rows)]
        if self._rows:
            schema = draft.open().schema()
            ids = np.array(sorted(self._rows), np.int64)
            values = pa.Table.from_pylist([dict(self._rows[sample]) for sample in ids.tolist()], schema)
            added += draft.write_shards(values.to_batches(), schema, ids)
        table = draft.open()
        changes: dict[int, Shard | None] = {}
        if len(self._deleted):
            rows = np.sort(table.rows_of(self._deleted))
            changes = {found.index: draft.without(found.shard, found.positions) for found in table.locate(rows)}
        draft.apply(changes, added)

    def _take_shard(self, rows: DifferentRows) -> list[NewShard]:
        """Return the shard of the other side that has these rows, without others, numbered for the merged table."""
        import numpy as np

        shard, stored_count = rows.placed.shard, rows.placed.shard.stored_count
        kept = np.isin(rows.ids, self._dropped, invert=True)
        if not kept.any():
            return []
        positions = rows.positions[kept]
        ids = np.full(stored_count, 0, np.int64)
        ids[rows.positions] = np.where(np.isin(rows.ids, self._sides.on_other.added), -1, rows.ids)
        gone = np.setdiff1d(np.arange(stored_count), positions, assume_unique=True)
        ids[gone] = gone  # no reader sees the ids of deleted rows
        plain = msgspec.structs.replace(shard, ids=None, deletes=None, row_count=stored_count)
        if self._added is not None:
            nulls = null_files(self._draft, self._sides.other, self._added, plain)
            plain = msgspec.structs.replace(plain, files=(*plain.files, *nulls))
        return [NewShard(self._draft.without(plain, gone) if len(gone) else plain, ids)]

    def _present(self, table: Table, diff: RowDiff, ids: NDArray[np.int64]) -> dict[int, Mapping[str, Any]]:
        """Return the values of those samples that a side still has."""
        import numpy as np

        left = np.setdiff1d(ids, diff.removed, assume_unique=True)
        if not len(left):
            return {}
        # With an added column, the samples are also those that the head left at their place.
        rows = diff.come.rows_of(left) if self._added is None else table.rows_of(left)
        return self._values(table, rows, left)

    def _values(self, table: Table, rows: NDArray[np.int64], ids: NDArray[np.int64]) -> dict[int, Mapping[str, Any]]:
        return dict(zip(ids.tolist(), table.take(rows).to_pylist(), strict=True))


def _merge_columns(workspace: EditWorkspace, name: str, sides: _Sides) -> TableEntry:
    """Return the entry of the head with the schema changes and column files of the other side."""
    base, head, other = sides.base.entry, sides.head.entry, sides.other.entry
    if any(side.changes[: len(base.changes)] != base.changes for side in (head, other)):
        raise ConflictError(
            f"a compaction of table {name!r} dropped the list of schema changes that both sides began with",
            hint="Repeat the change on the new version.",
        )
    changes_head, changes_other = head.changes != base.changes, other.changes != base.changes
    files_head, files_other = (_new_files(base, side, workspace) for side in (head, other))
    if (changes_head or files_head) and (changes_other or files_other):
        raise ConflictError(f"both sides changed the columns of table {name!r}", hint="Repeat one of the changes.")
    for changed, rows in ((changes_head, sides.on_other), (changes_other, sides.on_head)):
        if changed and len(rows.moved):
            raise ConflictError(
                f"one side dropped or renamed a column of table {name!r}, and the other side changed rows",
                hint="Repeat the change of the rows on the new version.",
            )
    if files_head:
        _check_rows_beside_columns(name, sides, has_changes=changes_head)
    if not changes_other and not files_other:
        return head
    draft = TableDraft(workspace, name, replace(head, changes=other.changes, schema=other.schema))
    if files_other:
        listed = list(iter_located(head.shards, workspace.load_page))
        found = {at.index: files_other[at.rows_key] for at in listed if at.rows_key in files_other}
        missing = {at.index for at in listed if at.index not in found}
        if missing:
            _check_functions(name, sides, has_changes=changes_other)
            draft = TableDraft(workspace, name, head)
        draft.apply({at: msgspec.structs.replace(listed[at].shard, files=files) for at, files in found.items()}, [])
        if missing:
            extend_columns(draft, sides.rules.made, missing)
    return draft.entry


def _check_rows_beside_columns(name: str, sides: _Sides, *, has_changes: bool) -> None:
    """Raise `ConflictError` if new rows of the other side would lack columns that the head has added."""
    new_rows = sides.on_other.added if not has_changes else sides.on_other.come.ids
    if not len(new_rows) or (sides.rules.fills_null and not has_changes):
        return
    added = ", ".join(repr(column) for column in sides.head.schema().names if column not in sides.base.schema().names)
    raise ConflictError(
        f"column {added or 'of another type'} was added to table {name!r} meanwhile, and {len(new_rows):,} new rows "
        "have no value for it",
        hint="Append the rows again with the column, or begin the edit with new_columns='null'.",
        kind=ErrorKind.NEW_COLUMN,
    )


def _check_functions(name: str, sides: _Sides, *, has_changes: bool) -> None:
    """Raise `ConflictError` if the columns of the other side cannot be computed for new rows of the head."""
    before, after = sides.base.schema().names, sides.other.schema().names
    if not has_changes and [*before, *(new.name for new in sides.rules.made)] == after:
        return
    raise ConflictError(
        f"rows were added to table {name!r} or written again meanwhile, and a new column cannot be computed for them",
        hint="Add the column again on the new version.",
        kind=ErrorKind.NEW_COLUMN,
    )


def _new_files(base: TableEntry, side: TableEntry, workspace: EditWorkspace) -> dict[RowsKey, Sequence[Any]]:
    """Return the column files of shards that `base` has without them, by the stored rows of the shard."""
    before, after = differing_shards(base.shards, side.shards, workspace.load_page)
    known = {placed.rows_key: placed.shard.files for placed in before}
    return {
        placed.rows_key: placed.shard.files
        for placed in after
        if placed.rows_key in known and placed.shard.files != known[placed.rows_key]
    }
