"""Which schemas belong together, and which column somebody may have meant. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from warpdata.errors import ColumnNotFoundError, SchemaMismatchError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "check_columns",
    "check_reference_column",
    "check_same_schema",
    "check_unique",
    "near_columns",
    "retyped_batch",
    "retyped_table",
]

_SHOWN = 5
_LOCATION = {"shard", "offset", "length"}


_AGREE = "Make the files agree, or pass rewrite=True to convert them to one schema."


def check_same_schema(first: pa.Schema, first_name: str, other: pa.Schema, other_name: str, hint: str = _AGREE) -> None:
    """All shards of a table have the same columns and types; their order and metadata may differ."""
    ours, theirs = set(first.names), set(other.names)
    problems = [f"column {name!r} is missing from {other_name}" for name in first.names if name not in theirs]
    problems += [f"column {name!r} is only in {other_name}" for name in other.names if name not in ours]
    for name in first.names:
        if name in theirs and first.field(name).type != other.field(name).type:
            here, there = first.field(name).type, other.field(name).type
            problems.append(f"column {name!r} is {here} in {first_name}, but {there} in {other_name}")
    if problems:
        more = f" (and {len(problems) - _SHOWN} more)" if len(problems) > _SHOWN else ""
        raise SchemaMismatchError(
            "; ".join(problems[:_SHOWN]) + more,
            hint=hint,
        )


def check_unique(schema: pa.Schema, where: str) -> None:
    """Names must differ, also when case is ignored, because SQL ignores it."""
    seen: dict[str, str] = {}
    for name in schema.names:
        other = seen.get(name.lower())
        if other is not None:
            raise SchemaMismatchError(f"{where} has two columns that SQL cannot tell apart: {other!r} and {name!r}")
        seen[name.lower()] = name


def check_columns(wanted: Iterable[str], names: Sequence[str]) -> list[str]:
    """The wanted names, each once, all of them existing."""
    out = list(dict.fromkeys(wanted))
    existing = set(names)
    for name in out:
        if name not in existing:
            raise ColumnNotFoundError(f"there is no column {name!r}", hint=near_columns(name, names))
    return out


def near_columns(name: str, names: Sequence[str]) -> str:
    """A hint: columns that are spelled alike, or what there is."""
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.6)
    if near:
        return f"Did you mean {' or '.join(near)}?"
    shown = ", ".join(names[:12]) + (", …" if len(names) > 12 else "")
    return f"The columns are: {shown}"


def retyped_batch(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The same values under `schema`, which may have extension types over the stored ones. Copies nothing."""
    import pyarrow as pa

    arrays = [_retyped(array, field.type) for array, field in zip(batch.columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def retyped_table(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """As `retyped_batch`, for tables."""
    import pyarrow as pa

    columns = [
        pa.chunked_array([_retyped(chunk, field.type) for chunk in column.chunks], field.type)
        for column, field in zip(table.columns, schema, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def _retyped(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    import pyarrow as pa

    return array if array.type == wanted else pa.ExtensionArray.from_storage(wanted, array)


def check_reference_column(field: pa.Field) -> None:
    """A column can hold references if it has member paths, or structs that name bytes of a shard."""
    import pyarrow as pa

    stored = field.type
    if pa.types.is_string(stored) or pa.types.is_large_string(stored):
        return
    if pa.types.is_struct(stored):
        parts = [stored.field(position) for position in range(stored.num_fields)]
        names = {part.name for part in parts}
        if _LOCATION <= names <= _LOCATION | {"xxh3"} and all(pa.types.is_integer(part.type) for part in parts):
            return
    raise SchemaMismatchError(
        f"column {field.name!r} is {stored}, so it can not hold references",
        hint="Use member paths (string), or a struct of integers: shard, offset, length and, if known, xxh3.",
    )
