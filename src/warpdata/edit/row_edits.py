"""Edits of rows: delete and update by filter, upsert by key."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from warpdata.edit.table_draft import TableDraft
from warpdata.errors import BadInputError, ColumnNotFoundError, SchemaMismatchError
from warpdata.kinds.tables import StagedTable, TableInput, check_column_names
from warpdata.primitives.suggest import suggest
from warpdata.query import Expression, Filter, project

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

__all__ = ["Upserted", "delete_where", "update_where", "upsert"]

_ROW, _MATCH = "row", "match"


@dataclass(frozen=True, slots=True)
class Upserted:
    """The number of rows that an upsert changed and added, and all of them as they were staged."""

    updated: int
    appended: int
    staged: StagedTable


def delete_where(draft: TableDraft, where: str | Filter) -> int:
    """Delete the rows that a filter keeps. Return their number."""
    rows = draft.open().filter(where).row_numbers()
    if len(rows):
        draft.delete_rows(rows)
    return len(rows)


def update_where(draft: TableDraft, where: str | Filter | None, values: Mapping[str, Any]) -> int:
    """Set columns of the rows that a filter keeps. Return their number.

    All expressions see the row as it was.
    """
    table = draft.open()
    schema = table.schema()
    _check_names(values, schema)
    if where is None:
        rows = table.row_numbers()
        found: Iterator[tuple[NDArray[np.int64], pa.Table]] = zip(draft.parts(rows), draft.chunks(rows), strict=True)
    else:
        found = table.filter(where).numbered_rows()
    return draft.replace_found(((rows, _with_values(chunk, values, schema)) for rows, chunk in found), schema)


def upsert(draft: TableDraft, source: TableInput, on: Sequence[str] | str) -> Upserted:
    """Replace the rows that have the same key as a given row, and append the others."""
    import numpy as np

    schema = draft.open().schema()
    staged = draft.stage(source, "the rows to upsert")
    given = _read_staged(staged).select(schema.names).cast(schema).combine_chunks()
    keys = check_column_names(on)
    _check_names(dict.fromkeys(keys), schema)
    comparable = _comparable_keys(given, keys)
    _check_keys(given, keys, comparable)
    rows, matches = _match_keys(draft, keys, comparable)
    order = np.argsort(rows, kind="stable")
    rows, matches = rows[order], matches[order]
    if len(np.unique(matches)) != len(matches):
        repeated = int(np.flatnonzero(np.bincount(matches) > 1)[0])
        key = given.select(keys).slice(repeated, 1).to_pylist()[0]
        raise BadInputError(
            f"several rows of table {draft.name!r} have the key {key}",
            hint="An upsert needs a key that is unique in the table.",
        )
    if len(rows):
        draft.replace_rows(rows, given.take(matches).to_batches(), schema)
    is_new = np.ones(given.num_rows, bool)
    is_new[matches] = False
    added = given.take(np.flatnonzero(is_new))
    if added.num_rows:
        draft.apply({}, draft.write_shards(added.to_batches(), schema, None))
    return Upserted(len(rows), added.num_rows, staged)


def _check_names(columns: Mapping[str, Any], schema: pa.Schema) -> None:
    if not columns:
        raise BadInputError("an update needs at least one column to set")
    for name in columns:
        if not isinstance(name, str):
            raise BadInputError(f"columns are named by text, not {name!r}")
        if name not in schema.names:
            raise ColumnNotFoundError(
                f"there is no column {name!r}", hint=suggest(name, schema.names, label="The columns are")
            )


def _with_values(rows: pa.Table, values: Mapping[str, Any], schema: pa.Schema) -> pa.Table:
    import pyarrow as pa

    changed = rows
    for name, value in values.items():
        position, declared = schema.get_field_index(name), schema.field(name)
        try:
            column = (
                project(value, rows).cast(declared.type)
                if isinstance(value, Expression)
                else pa.array([value], declared.type).take(pa.nulls(rows.num_rows, pa.int64()).fill_null(0))
            )
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError) as error:
            shown = value.sql if isinstance(value, Expression) else value
            raise SchemaMismatchError(
                f"column {name!r} is {declared.type}, and cannot be set to {shown!r}: {error}",
                hint="Give a value of the column's type, or change the type first with cast().",
            ) from error
        changed = changed.set_column(position, declared, column)
    return changed


def _read_staged(staged: StagedTable) -> pa.Table:
    """Read staged rows into memory."""
    import pyarrow as pa

    if staged.stored is not None:
        return staged.stored.to_arrow(allow_large=True)
    return pa.concat_tables([file.open().read() for file in staged.files])


def _comparable_keys(rows: pa.Table, keys: Sequence[str]) -> pa.Table:
    """Return the key columns so that equal keys have equal bytes, under names that no other column has.

    As in SQL, -0.0 equals 0.0. NaN equals NaN, so that a repeated upsert finds its rows.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    columns = []
    for name in keys:
        column, found = rows[name], rows.schema.field(name).type
        if pa.types.is_nested(found):
            raise BadInputError(
                f"column {name!r} is {found}, which cannot be a key", hint="Name columns of numbers, texts or times."
            )
        if pa.types.is_dictionary(found):
            column = column.cast(found.value_type)
        if pa.types.is_floating(found):
            column = column.cast(pa.float64())
            column = pc.if_else(pc.is_nan(column), float("nan"), pc.add(column, 0.0))
        columns.append(column)
    return pa.table(columns, [f"key {number}" for number in range(len(keys))])


def _check_keys(given: pa.Table, keys: Sequence[str], comparable: pa.Table) -> None:
    """Refuse keys that are null or repeat: the result would depend on the order of the rows."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    for name in keys:
        if given[name].null_count:
            row = pc.index(pc.is_null(given[name]), True).as_py()
            raise BadInputError(f"row {row} of the rows to upsert has no value in the key column {name!r}")
    numbered = comparable.append_column(_ROW, pa.array(np.arange(given.num_rows)))
    counted = numbered.group_by(comparable.column_names).aggregate([(_ROW, "min"), ([], "count_all")])
    if counted.num_rows != given.num_rows:
        repeated = counted.filter(pc.greater(counted["count_all"], 1))[f"{_ROW}_min"][0].as_py()
        key = given.select(list(keys)).slice(repeated, 1).to_pylist()[0]
        raise BadInputError(f"the rows to upsert have the key {key} more than once")


def _match_keys(
    draft: TableDraft, keys: Sequence[str], wanted: pa.Table
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the numbers of stored rows that have one of the keys, and the number of the key of each."""
    import numpy as np
    import pyarrow as pa

    names = wanted.column_names
    numbered = wanted.append_column(_MATCH, pa.array(np.arange(wanted.num_rows)))
    rows, matches, first_row = [np.empty(0, np.int64)], [np.empty(0, np.int64)], 0
    for batch in draft.open().select(list(keys)).batches():
        stored = _comparable_keys(pa.Table.from_batches([batch]), keys)
        stored = stored.append_column(_ROW, pa.array(np.arange(first_row, first_row + batch.num_rows)))
        found = stored.join(numbered, keys=names, join_type="inner")
        rows.append(found[_ROW].to_numpy())
        matches.append(found[_MATCH].to_numpy())
        first_row += batch.num_rows
    return np.concatenate(rows), np.concatenate(matches)
