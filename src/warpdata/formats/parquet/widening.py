"""Conversions between Arrow types that lose no value, whatever the value. Pure.

A shard may have a narrower type than its table declares, and readers widen its columns. Implements "Shards of a table"
of docs/specs/tables.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["can_widen"]

_EXACT_FLOAT_BITS = {16: 11, 32: 24, 64: 53}
"""Integers of this many bits are exact in a float of that width."""


def can_widen(narrow: pa.DataType, wide: pa.DataType) -> bool:
    """Return whether every value of `narrow` has the same value in `wide`. Equal types can be widened."""
    import pyarrow as pa

    types = pa.types
    if narrow == wide or types.is_null(narrow):
        return True
    if types.is_dictionary(narrow) and not types.is_dictionary(wide):
        return can_widen(narrow.value_type, wide)
    if types.is_integer(narrow):
        return _can_hold_integers(narrow, wide)
    if types.is_floating(narrow):
        return bool(types.is_floating(wide) and narrow.bit_width <= wide.bit_width)
    for variants in (_texts(), _binaries()):
        if narrow in variants:
            return wide in variants
    if types.is_list(narrow) or types.is_large_list(narrow):
        is_list = types.is_large_list(wide) or (types.is_list(wide) and types.is_list(narrow))
        return is_list and can_widen(narrow.value_type, wide.value_type)
    if types.is_fixed_size_list(narrow) and types.is_fixed_size_list(wide):
        return narrow.list_size == wide.list_size and can_widen(narrow.value_type, wide.value_type)
    return False


def _texts() -> tuple[pa.DataType, ...]:
    """Return the types of text. They differ in their layout in memory, not in their values."""
    import pyarrow as pa

    return pa.string(), pa.large_string(), pa.string_view()


def _binaries() -> tuple[pa.DataType, ...]:
    import pyarrow as pa

    return pa.binary(), pa.large_binary(), pa.binary_view()


def _can_hold_integers(narrow: pa.DataType, wide: pa.DataType) -> bool:
    import pyarrow as pa

    is_signed = pa.types.is_signed_integer(narrow)
    if pa.types.is_floating(wide):
        return bool(narrow.bit_width - is_signed <= _EXACT_FLOAT_BITS[wide.bit_width])
    if not pa.types.is_integer(wide):
        return False
    if is_signed == pa.types.is_signed_integer(wide):
        return bool(narrow.bit_width <= wide.bit_width)
    return not is_signed and bool(narrow.bit_width < wide.bit_width)
