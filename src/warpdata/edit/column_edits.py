"""Edits of columns: add, drop, rename, cast. Other columns are never rewritten.

A new column is a Parquet file beside each shard, with the same row groups. Dropped and renamed columns change only the
manifest. Implements "Column files" and "Schema changes" of docs/specs/manifest.md.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from warpdata.edit.function_text import function_text
from warpdata.edit.table_draft import TableDraft
from warpdata.edit.workspace import StagedFile
from warpdata.errors import AlreadyExistsError, BadInputError, ColumnNotFoundError, SchemaMismatchError
from warpdata.formats.parquet import WrittenFile, write_column_file
from warpdata.kinds.tables import Table, check_column_names
from warpdata.primitives.hashing import sha256_hex
from warpdata.primitives.progress import ProgressCounter, silent
from warpdata.primitives.suggest import suggest
from warpdata.query import Expression, project
from warpdata.repository.manifest import ColumnFile, SchemaChange, Shard, ShardList, TableEntry, iter_shards

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "ColumnFunction",
    "NewColumn",
    "add_column",
    "cast_column",
    "drop_column",
    "extend_columns",
    "null_files",
    "rename_column",
]

ColumnFunction: TypeAlias = Callable[[Any], Any]
"""Takes a record batch of Arrow and returns one value for each: an Arrow or NumPy array, or a list."""

_CAST_ROWS = 65_536


@dataclass(frozen=True, slots=True)
class NewColumn:
    """A column to compute for every row.

    `columns` are those that the function reads; None for all. Finished shards are kept in `resume_dir`, and used again
    if the same work is repeated after an interruption.
    """

    name: str
    make: ColumnFunction | Expression
    columns: tuple[str, ...] | None = None
    type: pa.DataType | None = None
    batch_size: int = 1024
    resume_dir: Path | None = None

    def reads(self, column: str) -> bool:
        """Return whether a Python function gets this column. Expressions see stored values only."""
        return not isinstance(self.make, Expression) and (self.columns is None or column in self.columns)


def add_column(draft: TableDraft, new: NewColumn, counter: ProgressCounter) -> NewColumn:
    """Compute a column for every row, and add it after the others. Return it with its type."""
    names = _names(draft)
    if not names:
        raise BadInputError(f"table {draft.name!r} has no rows", hint="Append rows first.")
    _check_new_name(draft, new.name, names)
    made = _write_column(draft, _input_of(draft, new), new, counter)
    _set_names(draft, [*names, new.name])
    return made


def extend_columns(draft: TableDraft, columns: Sequence[NewColumn], indexes: Container[int]) -> None:
    """Compute columns for the shards at these indexes. All other shards of the draft have them already."""
    counter = ProgressCounter(silent, "rows", draft.entry.shards.row_count, draft.entry.shards.shard_count)
    for new in columns:
        names = list(draft.entry.column_names or ()) or _names(draft)
        _write_column(draft, _input_of(draft, new), new, counter, indexes)
        _set_names(draft, [*names, new.name])


def null_files(draft: TableDraft, table: Table, columns: pa.Schema, shard: Shard) -> tuple[ColumnFile, ...]:
    """Write files with columns of nulls for a shard of a table."""
    import pyarrow as pa

    counter, files = ProgressCounter(silent, "rows", shard.row_count or 0, 1), []
    for column in columns:

        def make(batch: pa.RecordBatch, kind: pa.DataType = column.type) -> pa.Array:
            return pa.nulls(batch.num_rows, kind)

        new = NewColumn(column.name, make, None, column.type)
        files.append(_as_column_file(_column_file(draft, table, new, shard, counter), draft.revision))
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


def cast_column(draft: TableDraft, name: str, wanted: pa.DataType, counter: ProgressCounter) -> None:
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
    _write_column(draft, before, NewColumn(name, convert, (name,), wanted, _CAST_ROWS), counter)
    _set_names(draft, names)


def _write_column(
    draft: TableDraft, table: Table, new: NewColumn, counter: ProgressCounter, indexes: Container[int] | None = None
) -> NewColumn:
    """Write a column file for each shard of the draft, or for some. `table` has the rows that the function reads.

    Shards with rows come first: their values decide the type of the column. Return the column with its type.
    """
    import pyarrow as pa

    every = enumerate(iter_shards(draft.entry.shards, draft.workspace.load_page))
    listed = [(index, shard) for index, shard in every if indexes is None or index in indexes]
    changes: dict[int, Shard | None] = {}
    declared = new.type
    for index, shard in sorted(listed, key=lambda item: not item[1].row_count):
        if declared is None and not shard.row_count:
            raise BadInputError(
                f"table {draft.name!r} has no rows to show the type of column {new.name!r}", hint="Pass type=…."
            )
        file = _column_file(draft, table, replace(new, type=declared), shard, counter)
        found = file.schema.field(0).type
        if declared is not None and found != declared and not pa.types.is_null(found):
            raise SchemaMismatchError(
                f"the function for column {new.name!r} gave {found} after {declared}", hint="Pass type=… to choose one."
            )
        declared = declared or found
        column = _as_column_file(file, draft.revision)
        changes[index] = msgspec.structs.replace(shard, files=(*shard.files, column))
        counter.finish_file()
    draft.apply(changes, [])
    return replace(new, type=declared)


def _as_column_file(file: StagedFile, revision: int) -> ColumnFile:
    return ColumnFile(file.blob.hash, file.blob.byte_size, file.footer, revision)


def _column_file(draft: TableDraft, table: Table, new: NewColumn, shard: Shard, counter: ProgressCounter) -> StagedFile:
    path = draft.workspace.new_directory() / "column.parquet"
    finished = None if new.resume_dir is None else new.resume_dir / f"{_work_key(draft, new, shard)}.parquet"
    if finished is not None and finished.exists():
        shutil.copyfile(finished, path)
        counter.add_bytes(shard.row_count or 0)
        return StagedFile(draft.workspace, WrittenFile(path))
    write_column_file(_column_groups(table, new, shard, counter), new.name, new.type, path)
    if finished is not None:
        finished.parent.mkdir(parents=True, exist_ok=True)
        partial = finished.with_suffix(".partial")
        shutil.copyfile(path, partial)
        partial.rename(finished)
    return StagedFile(draft.workspace, WrittenFile(path))


def _work_key(draft: TableDraft, new: NewColumn, shard: Shard) -> str:
    """Return a name for the values of a shard. It follows from the rows that the function sees, and its code."""
    make = new.make.sql if isinstance(new.make, Expression) else function_text(new.make)
    seen = [shard.hash, *(file.hash for file in shard.files)], shard.deletes, shard.revision, draft.entry.changes
    return sha256_hex(repr((seen, new.name, new.columns, str(new.type), make)).encode())


def _column_groups(table: Table, new: NewColumn, shard: Shard, counter: ProgressCounter) -> Iterator[pa.Array]:
    """Yield the values for each row group of a shard, with nulls for deleted rows."""
    import numpy as np
    import pyarrow as pa

    only = replace(table, entry=replace(table.entry, shards=ShardList((msgspec.structs.replace(shard, ids=None),))))
    values = _Values(_compute(only, new, counter), new.type)
    deletes = table.opener.deletes(shard)
    live = None if deletes is None else deletes.live
    for group in table.opener.own_file(shard).row_groups():
        low, high = group.first_row, group.first_row + group.row_count
        if live is None:
            yield values.take(group.row_count)
            continue
        start, stop = np.searchsorted(live, (low, high))
        visible = values.take(int(stop - start))
        at = np.full(group.row_count, -1, np.int64)
        at[live[start:stop] - low] = np.arange(stop - start)
        yield visible.take(pa.array(at, mask=at < 0))


def _compute(table: Table, new: NewColumn, counter: ProgressCounter) -> Iterator[pa.Array]:
    """Yield the values of the new column, a batch at a time."""
    import pyarrow as pa

    for batch in table.batches(new.batch_size):
        if isinstance(new.make, Expression):
            made: Any = project(new.make, pa.Table.from_batches([batch])).combine_chunks()
        else:
            made = new.make(batch)
        yield _as_array(made, new, batch.num_rows)
        counter.add_bytes(batch.num_rows)


def _as_array(made: Any, new: NewColumn, row_count: int) -> pa.Array:
    import numpy as np
    import pyarrow as pa

    try:
        if isinstance(made, pa.ChunkedArray):
            made = made.combine_chunks()
        if isinstance(made, np.ndarray) and made.ndim == 2:
            flat = pa.array(np.ascontiguousarray(made).reshape(-1))
            made = pa.FixedSizeListArray.from_arrays(flat, made.shape[1])
        array = made if isinstance(made, pa.Array) else pa.array(made, new.type)
        array = array if new.type is None or array.type == new.type else array.cast(new.type)
        views = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}  # Arrow cannot take from views
        array = array.cast(views[array.type]) if array.type in views else array
    except (pa.ArrowException, TypeError, ValueError) as error:
        wanted = "an Arrow array" if new.type is None else new.type
        raise SchemaMismatchError(f"the values for column {new.name!r} cannot become {wanted}: {error}") from error
    if len(array) != row_count:
        raise BadInputError(f"the function for column {new.name!r} gave {len(array)} values for {row_count} rows")
    return array


class _Values:
    """Values that come in batches and are taken in groups."""

    def __init__(self, batches: Iterator[pa.Array], declared: pa.DataType | None) -> None:
        self._batches = batches
        self._declared = declared
        self._pending: list[pa.Array] = []

    def take(self, count: int) -> pa.Array:
        import pyarrow as pa

        while sum(map(len, self._pending)) < count:
            batch = next(self._batches, None)
            assert batch is not None, "a shard yields all of its rows"
            if self._pending and batch.type != self._pending[0].type:
                raise SchemaMismatchError(
                    f"the function gave {batch.type} after {self._pending[0].type}", hint="Pass type=… to choose one."
                )
            self._pending.append(batch)
        if not self._pending:
            return pa.nulls(0, self._declared or pa.null())
        whole = pa.concat_arrays(self._pending)
        self._pending = [whole.slice(count)] if len(whole) > count else []
        return whole.slice(0, count)


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
