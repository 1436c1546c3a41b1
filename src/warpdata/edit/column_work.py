"""The values of a new column for one shard, as a task: computed by batch, written as a Parquet file beside the shard.

A task needs the table and the function alone, so it runs in this process or in a worker of a job. Implements "Column
files" of docs/specs/manifest.md.
"""

from __future__ import annotations

import base64
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from warpdata.edit.function_text import function_text
from warpdata.errors import BadInputError, SchemaMismatchError
from warpdata.formats.parquet import describe_parquet, write_column_file
from warpdata.jobs import Task, TaskContext, TaskResult
from warpdata.kinds.tables import Table
from warpdata.primitives.hashing import sha256_hex
from warpdata.query import Expression, project
from warpdata.repository.manifest import ColumnFile, Footer, Json, SchemaChange, Shard, ShardList
from warpdata.session import Session

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["ColumnFunction", "ColumnWork", "MadeColumn", "NewColumn", "column_task"]

ColumnFunction: TypeAlias = Callable[[Any], Any]
"""Takes a record batch of Arrow and returns one value for each: an Arrow or NumPy array, or a list."""


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


@dataclass(frozen=True, slots=True)
class ColumnWork:
    """Computes a column for shards of a table. `open_table` returns the rows that the function reads."""

    open_table: Callable[[Session], Table]
    new: NewColumn
    changes: tuple[SchemaChange, ...] = field(default=())

    def open(self, session: Session) -> Callable[[Shard, TaskContext], Json]:
        table = self.open_table(session)

        def run(shard: Shard, context: TaskContext) -> Json:
            path = _write(table, self, shard, context)
            described = describe_parquet(path)
            found = base64.b64encode(described.schema.serialize()).decode()
            context.add_file(path)
            return {"footer": msgspec.to_builtins(described.footer), "schema": found}

        return run


@dataclass(frozen=True, slots=True)
class MadeColumn:
    """The file of a shard that a task has made, and the type of its values."""

    hash: str
    byte_size: int
    footer: Footer
    type: pa.DataType

    @staticmethod
    def of(result: TaskResult) -> MadeColumn:
        import pyarrow as pa

        made, value = result.blobs[0], msgspec.convert(result.value, dict[str, Any])
        schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(value["schema"])))
        footer = msgspec.convert(value["footer"], Footer)
        return MadeColumn(made.hash, made.byte_size, footer, schema.field(0).type)

    def as_file(self, revision: int) -> ColumnFile:
        return ColumnFile(self.hash, self.byte_size, self.footer, revision)


def column_task(work: ColumnWork, shard: Shard) -> Task[Shard]:
    """Return the task for the values of a shard. Its key follows from the rows that the function sees, and its code."""
    new = work.new
    make = new.make.sql if isinstance(new.make, Expression) else function_text(new.make)
    seen = [shard.hash, *(file.hash for file in shard.files)], shard.deletes, shard.revision, work.changes
    key = sha256_hex(repr((seen, new.name, new.columns, str(new.type), make)).encode())
    return Task(key, shard, shard.row_count or 0)


def _write(table: Table, work: ColumnWork, shard: Shard, context: TaskContext) -> Path:
    new, path = work.new, context.new_directory() / "column.parquet"
    finished = None if new.resume_dir is None else new.resume_dir / f"{column_task(work, shard).key}.parquet"
    if finished is not None and finished.exists():
        shutil.copyfile(finished, path)
        context.count(shard.row_count or 0)
        return path
    write_column_file(_column_groups(table, new, shard, context), new.name, new.type, path)
    if finished is not None:
        finished.parent.mkdir(parents=True, exist_ok=True)
        partial = finished.with_suffix(".partial")
        shutil.copyfile(path, partial)
        partial.rename(finished)
    return path


def _column_groups(table: Table, new: NewColumn, shard: Shard, context: TaskContext) -> Iterator[pa.Array]:
    """Yield the values for each row group of a shard, with nulls for deleted rows."""
    import numpy as np
    import pyarrow as pa

    only = replace(table, entry=replace(table.entry, shards=ShardList((msgspec.structs.replace(shard, ids=None),))))
    values = _Values(_compute(only, new, context), new.type)
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


def _compute(table: Table, new: NewColumn, context: TaskContext) -> Iterator[pa.Array]:
    """Yield the values of the new column, a batch at a time."""
    import pyarrow as pa

    for batch in table.batches(new.batch_size):
        if isinstance(new.make, Expression):
            made: Any = project(new.make, pa.Table.from_batches([batch])).combine_chunks()
        else:
            made = new.make(batch)
        yield _as_array(made, new, batch.num_rows)
        context.count(batch.num_rows)


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
