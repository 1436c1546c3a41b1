"""Edits of columns: add, drop, rename, cast. Other columns are never rewritten.

A new column is a Parquet file beside each shard, with the same row groups. Dropped and renamed columns change only the
manifest. Implements "Column files" and "Schema changes" of docs/specs/manifest.md.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import msgspec

from warpdata.edit.column_work import ColumnFunction, ColumnWork, MadeColumn, NewColumn, column_task
from warpdata.edit.table_draft import TableDraft
from warpdata.errors import AlreadyExistsError, BadInputError, ColumnNotFoundError, SchemaMismatchError
from warpdata.jobs import Job, Plan
from warpdata.kinds.tables import Table, check_column_names
from warpdata.primitives.progress import ProgressCounter, silent
from warpdata.primitives.suggest import suggest
from warpdata.query import Expression
from warpdata.repository.manifest import ColumnFile, SchemaChange, Shard, TableEntry, iter_shards
from warpdata.session import Session

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "ColumnFunction",
    "ColumnRun",
    "NewColumn",
    "add_column",
    "cast_column",
    "drop_column",
    "extend_columns",
    "null_files",
    "rename_column",
]

_CAST_ROWS = 65_536


@dataclass(frozen=True, slots=True)
class ColumnRun:
    """How columns are computed: here, or by a job, and with which progress."""

    counter: ProgressCounter
    job: Job | None = None

    @staticmethod
    def silent(draft: TableDraft) -> ColumnRun:
        shards = draft.entry.shards
        return ColumnRun(ProgressCounter(silent, "rows", shards.row_count, shards.shard_count))


def add_column(draft: TableDraft, new: NewColumn, run: ColumnRun) -> NewColumn:
    """Compute a column for every row, and add it after the others. Return it with its type."""
    names = _names(draft)
    if not names:
        raise BadInputError(f"table {draft.name!r} has no rows", hint="Append rows first.")
    _check_new_name(draft, new.name, names)
    made = _write_column(draft, _input_of(draft, new), new, run)
    _set_names(draft, [*names, new.name])
    return made


def extend_columns(draft: TableDraft, columns: Sequence[NewColumn], indexes: Container[int]) -> None:
    """Compute columns for the shards at these indexes. All other shards of the draft have them already."""
    run = ColumnRun.silent(draft)
    for new in columns:
        names = list(draft.entry.column_names or ()) or _names(draft)
        _write_column(draft, _input_of(draft, new), new, run, indexes)
        _set_names(draft, [*names, new.name])


def null_files(draft: TableDraft, table: Table, columns: pa.Schema, shard: Shard) -> tuple[ColumnFile, ...]:
    """Write files with columns of nulls for a shard of a table."""
    import pyarrow as pa

    run, files = ColumnRun.silent(draft), []
    for column in columns:

        def make(batch: pa.RecordBatch, kind: pa.DataType = column.type) -> pa.Array:
            return pa.nulls(batch.num_rows, kind)

        new = NewColumn(column.name, make, None, column.type)
        work = ColumnWork(lambda _session: table, new, draft.entry.changes)
        files += [made.as_file(draft.revision) for made in _run(draft, work, [shard], run)]
    return tuple(files)


def _input_of(draft: TableDraft, new: NewColumn) -> Table:
    """Return the table with the columns that the function reads."""
    table = draft.open(with_references=not isinstance(new.make, Expression))
    return table if new.columns is None else table.select(check_column_names(new.columns))


def drop_column(draft: TableDraft, name: str) -> None:
    """Hide a column. Its bytes stay in the files until they are compacted."""
    names = _known(draft, name)
    if len(names) == 1:
        raise BadInputError(f"{name!r} is the only column of table {draft.name!r}", hint="Remove the table instead.")
    draft.entry = replace(draft.entry, changes=(*draft.entry.changes, SchemaChange(name)))
    _set_names(draft, [known for known in names if known != name])


def rename_column(draft: TableDraft, name: str, new_name: str) -> None:
    """Give a column another name."""
    names = _known(draft, name)
    _check_new_name(draft, new_name, [known for known in names if known != name])
    if new_name == name:
        return
    draft.entry = replace(draft.entry, changes=(*draft.entry.changes, SchemaChange(name, new_name)))
    _set_names(draft, [new_name if known == name else known for known in names])


def cast_column(draft: TableDraft, name: str, wanted: pa.DataType, run: ColumnRun) -> None:
    """Change the type of a column. A value that does not fit the new type is an error."""
    import pyarrow as pa

    names, before = _known(draft, name), draft.open().select([name])

    def convert(batch: pa.RecordBatch) -> pa.Array:
        try:
            return batch.column(0).cast(wanted)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise SchemaMismatchError(
                f"column {name!r} of table {draft.name!r} cannot become {wanted}: {error}"
            ) from error

    draft.entry = replace(draft.entry, changes=(*draft.entry.changes, SchemaChange(name)))
    _write_column(draft, before, NewColumn(name, convert, (name,), wanted, _CAST_ROWS), run)
    _set_names(draft, names)


def _write_column(
    draft: TableDraft, table: Table, new: NewColumn, run: ColumnRun, indexes: Container[int] | None = None
) -> NewColumn:
    """Write a column file for each shard of the draft, or for some. `table` has the rows that the function reads.

    Shards with rows come first: the values of the first one decide the type of the column. Return the column with it.
    """
    every = enumerate(iter_shards(draft.entry.shards, draft.workspace.load_page))
    listed = [(index, shard) for index, shard in every if indexes is None or index in indexes]
    ordered = sorted(listed, key=lambda item: not item[1].row_count)
    changes: dict[int, Shard | None] = {}
    first = 1 if new.type is None else 0
    for part in (ordered[:first], ordered[first:]):
        shards = [shard for _, shard in part]
        if new.type is None and shards and not shards[0].row_count:
            raise BadInputError(
                f"table {draft.name!r} has no rows to show the type of column {new.name!r}", hint="Pass type=…."
            )
        work = ColumnWork(_opener(draft, table, new, run), new, draft.entry.changes)
        for (index, shard), made in zip(part, _run(draft, work, shards, run), strict=True):
            new = replace(new, type=_checked_type(new, made.type))
            files = (*shard.files, made.as_file(draft.revision))
            changes[index] = msgspec.structs.replace(shard, files=files)
    draft.apply(changes, [])
    return new


def _run(draft: TableDraft, work: ColumnWork, shards: Sequence[Shard], run: ColumnRun) -> list[MadeColumn]:
    tasks = [column_task(work, shard) for shard in shards]
    plan = Plan(work, tasks, limit=1)  # functions of users may not be called from several threads
    return [MadeColumn.of(result) for result in draft.workspace.run(plan, run.counter, run.job)]


def _opener(draft: TableDraft, table: Table, new: NewColumn, run: ColumnRun) -> Callable[[Session], Table]:
    """Return the function that opens the rows where a task runs: here they are open."""
    if run.job is None:
        return lambda _session: table
    return draft.workspace.address_of(table, with_references=not isinstance(new.make, Expression))


def _checked_type(new: NewColumn, found: pa.DataType) -> pa.DataType:
    """Return the type of a column, after a shard whose values have the type `found`."""
    import pyarrow as pa

    if new.type is not None and found != new.type and not pa.types.is_null(found):
        raise SchemaMismatchError(
            f"the function for column {new.name!r} gave {found} after {new.type}", hint="Pass type=… to choose one."
        )
    return new.type or found


def _names(draft: TableDraft) -> list[str]:
    names: list[str] = draft.open().schema().names
    return names


def _known(draft: TableDraft, name: str) -> list[str]:
    names = _names(draft)
    if name not in names:
        raise ColumnNotFoundError(
            f"table {draft.name!r} has no column {name!r}", hint=suggest(name, names, label="The columns are")
        )
    return names


def _check_new_name(draft: TableDraft, name: str, taken: Sequence[str]) -> None:
    if not isinstance(name, str) or not name:
        raise BadInputError(f"{name!r} is not the name of a column")
    if name.lower() in {known.lower() for known in taken}:
        raise AlreadyExistsError(
            f"table {draft.name!r} already has a column {name!r}", hint="Choose another name, or drop the column first."
        )


def _set_names(draft: TableDraft, names: Sequence[str]) -> None:
    """List the visible columns in the entry, in their order."""
    draft.entry = replace(draft.entry, schema=TableEntry.listing(names))
