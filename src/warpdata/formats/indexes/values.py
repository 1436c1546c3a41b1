"""Values of an indexed column: their type, and arrays that Arrow can sort and encode. Pure.

Implements "Values" of docs/specs/indexes.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from warpdata.errors import SchemaMismatchError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["is_list", "plain_values", "restore_values", "value_type_of"]


def is_list(column_type: pa.DataType) -> bool:
    """Return whether the values of the column are the elements of its cells."""
    import pyarrow as pa

    types = pa.types
    return bool(types.is_list(column_type) or types.is_large_list(column_type) or types.is_fixed_size_list(column_type))


def value_type_of(column: str, column_type: pa.DataType) -> pa.DataType:
    """Return the type of the values of a column. `SchemaMismatchError` if they cannot be indexed."""
    import pyarrow as pa

    types = pa.types
    found = column_type
    if is_list(found):
        found = found.value_type
    if types.is_dictionary(found):
        found = found.value_type
    if found in (pa.string_view(), pa.binary_view()):
        found = pa.large_string() if found == pa.string_view() else pa.large_binary()
    has_no_order = types.is_null(found) or types.is_float16(found)  # Arrow cannot sort these
    if types.is_nested(found) or has_no_order or isinstance(found, pa.BaseExtensionType):
        raise SchemaMismatchError(
            f"column {column!r} is {column_type}, whose values cannot be indexed",
            hint="Use a column of numbers, texts, times or booleans, or of lists of these.",
        )
    return found


def plain_values(values: pa.Array, value_type: pa.DataType) -> pa.Array:
    """Return values as `value_type`, with the integers that times are stored as in place of times."""
    if values.type != value_type:
        values = values.cast(value_type)
    stored = _stored_type(value_type)
    return values if stored is None else values.view(stored)


def restore_values(values: pa.Array, value_type: pa.DataType) -> pa.Array:
    """Return the values that `plain_values` came from."""
    return values if _stored_type(value_type) is None else values.view(value_type)


def _stored_type(value_type: pa.DataType) -> pa.DataType | None:
    import pyarrow as pa

    if not pa.types.is_temporal(value_type):
        return None
    return pa.int32() if value_type.bit_width == 32 else pa.int64()
