"""Columns of a table: their names, their declared types, and columns that hold references."""

from __future__ import annotations

import reprlib
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from warpdata.errors import BadInputError, ColumnNotFoundError, CorruptError, SchemaMismatchError
from warpdata.formats.parquet import can_widen
from warpdata.kinds.tables.edited_shard import TableShard
from warpdata.primitives.suggest import suggest

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "ColumnValues",
    "check_column_names",
    "check_columns",
    "check_reference_column",
    "conform",
    "find_widened",
    "retype_batch",
    "retype_table",
    "select_fields",
    "widen",
]

ColumnValues: TypeAlias = "pa.ChunkedArray | pa.Array"

_MAX_CHUNK_BYTES = 2**31 - 1
_LOCATION_FIELDS = {"shard", "offset", "length"}


def check_column_names(columns: object) -> tuple[str, ...]:
    """Return a list of names, or one name, as a tuple. `BadInputError` for anything else, and for an empty list."""
    names = (columns,) if isinstance(columns, str) else columns
    is_listed = isinstance(names, Iterable) and not isinstance(names, bytes | bytearray | Mapping)
    listed = tuple(names) if is_listed and isinstance(names, Iterable) else ()
    if not listed or not all(isinstance(name, str) for name in listed):
        raise BadInputError(f"columns are a non-empty list of names, not {reprlib.repr(columns)}")
    return listed


def check_columns(columns: Iterable[str], known: Sequence[str]) -> list[str]:
    """Return the names, each once. `ColumnNotFoundError` for a name that is not known."""
    out = list(dict.fromkeys(columns))
    known_names = set(known)
    for name in out:
        if name not in known_names:
            raise ColumnNotFoundError(
                f"there is no column {name!r}", hint=suggest(name, known, label="The columns are")
            )
    return out


def check_reference_column(field: pa.Field) -> None:
    """Raise `SchemaMismatchError` unless the column has member paths, or structs that locate bytes in a shard."""
    import pyarrow as pa

    stored = field.type
    if pa.types.is_string(stored) or pa.types.is_large_string(stored):
        return
    if pa.types.is_struct(stored):
        parts = [stored.field(position) for position in range(stored.num_fields)]
        names = {part.name for part in parts}
        has_location = _LOCATION_FIELDS <= names <= _LOCATION_FIELDS | {"xxh3"}
        if has_location and all(pa.types.is_integer(part.type) for part in parts):
            return
    raise SchemaMismatchError(
        f"column {field.name!r} is {stored}, so it cannot hold references",
        hint="Use member paths (string), or a struct of integers: shard, offset, length and, if known, xxh3.",
    )


def select_fields(schema: pa.Schema, columns: Iterable[str]) -> pa.Schema:
    """Return the schema of these columns, in this order, with the metadata of the whole schema."""
    import pyarrow as pa

    return pa.schema([schema.field(name) for name in columns], metadata=schema.metadata)


def find_widened(file: TableShard, columns: Iterable[str], declared: pa.Schema) -> dict[str, pa.DataType]:
    """Return the columns whose type in the shard is narrower than the table declares, with the declared types.

    `CorruptError` if the shard lacks a column, or has a type that does not widen to the declared one.
    """
    widened: dict[str, pa.DataType] = {}
    if file.schema is declared or file.schema.equals(declared):
        return widened
    for name in columns:
        wanted, position = declared.field(name).type, file.schema.get_field_index(name)
        found = file.schema.field(position).type if position >= 0 else None
        if found == wanted:
            continue
        if found is None or not can_widen(found, wanted):
            problem = f"is {found} in" if found is not None else "is missing from"
            raise CorruptError(f"column {name!r} {problem} shard {file.shard.hash}; the table declares {wanted}")
        widened[name] = wanted
    return widened


def widen(rows: pa.Table, widened: Mapping[str, pa.DataType]) -> pa.Table:
    """Return the rows with these types of columns, so that a filter sees the types it was parsed for."""
    for position, name in enumerate(rows.column_names):
        if name in widened:
            rows = rows.set_column(position, name, _cast(rows.column(position), widened[name]))
    return rows


def conform(columns: Mapping[str, ColumnValues], schema: pa.Schema) -> pa.Table:
    """Return a table with the order and types of `schema`.

    A shard may order columns differently, and columns that were decoded as dictionaries get their declared type.
    """
    import pyarrow as pa

    return pa.table([_cast(columns[field.name], field.type) for field in schema], schema=schema)


def _cast(column: ColumnValues, declared: pa.DataType) -> ColumnValues:
    """Cast a column. Dictionaries and large texts are cast in chunks small enough for 32-bit offsets."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if column.type == declared:
        return column
    is_dictionary = pa.types.is_dictionary(column.type) and not pa.types.is_dictionary(declared)
    values = column.type.value_type if is_dictionary else declared
    is_large = pa.types.is_large_string(column.type) or pa.types.is_large_binary(column.type)
    if not is_dictionary and (not is_large or column.nbytes <= _MAX_CHUNK_BYTES):
        return column.cast(declared)
    chunks = []
    for chunk in column.chunks if isinstance(column, pa.ChunkedArray) else [column]:
        longest = pc.max(pc.binary_length(chunk.dictionary if is_dictionary else chunk)).as_py()
        rows = max(1, _MAX_CHUNK_BYTES // max(longest or 0, 1))
        chunks += [chunk.slice(start, rows).cast(values) for start in range(0, len(chunk), rows)]
    return pa.chunked_array(chunks, values).cast(declared)


def retype_batch(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the same values under `schema`, which may have extension types over stored ones. Copies nothing."""
    import pyarrow as pa

    arrays = [_retype(array, field.type) for array, field in zip(batch.columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def retype_table(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the same values under `schema`, like `retype_batch`."""
    import pyarrow as pa

    columns = [
        pa.chunked_array([_retype(chunk, field.type) for chunk in column.chunks], field.type)
        for column, field in zip(table.columns, schema, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def _retype(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    import pyarrow as pa

    return array if array.type == wanted else pa.ExtensionArray.from_storage(wanted, array)
