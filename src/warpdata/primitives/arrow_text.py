"""Times of Arrow columns as text, for JSON, CSV and people."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["plain_column"]


def plain_column(column: Any) -> Any:
    """Convert the times in a column to text, in UTC if they have a time zone.

    Arrow formats them, because Python's datetime lacks nanoseconds and years above 9999.
    """
    moved = _map_leaves(column.type, _in_utc)
    column = column if moved == column.type else column.cast(moved)
    written = _map_leaves(column.type, _as_text)
    return column if written == column.type else column.cast(written)


def _in_utc(kind: pa.DataType) -> pa.DataType:
    import pyarrow as pa

    return pa.timestamp(kind.unit, "UTC") if pa.types.is_timestamp(kind) and kind.tz else kind


def _as_text(kind: pa.DataType) -> pa.DataType:
    """Map times to text, and durations to integers of their unit."""
    import pyarrow as pa

    if pa.types.is_duration(kind):
        return pa.int64()
    is_time = pa.types.is_timestamp(kind) or pa.types.is_date(kind) or pa.types.is_time(kind)
    return pa.string() if is_time else kind


def _map_leaves(kind: pa.DataType, change: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """Apply a change to every leaf of a type."""
    import pyarrow as pa

    types = pa.types
    if types.is_dictionary(kind):
        return _map_leaves(kind.value_type, change)
    if types.is_struct(kind):
        return pa.struct([field.with_type(_map_leaves(field.type, change)) for field in kind])
    if types.is_map(kind):
        return pa.map_(_map_leaves(kind.key_type, change), _map_leaves(kind.item_type, change))
    if types.is_fixed_size_list(kind):
        return pa.list_(kind.value_field.with_type(_map_leaves(kind.value_type, change)), kind.list_size)
    if types.is_large_list(kind):
        return pa.large_list(kind.value_field.with_type(_map_leaves(kind.value_type, change)))
    if types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_map_leaves(kind.value_type, change)))
    return change(kind)
