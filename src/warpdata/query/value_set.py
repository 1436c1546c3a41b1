"""Long lists of values for `isin`, looked up in a hash table.

The values are those of the list that a value of the column can equal, in the column's type. The truth is that of SQL:
NULL for a null, and for a miss in a list with NULL; NaN equals NaN, and -0.0 equals 0.0.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime
from typing import TYPE_CHECKING, Any

from warpdata.primitives.hashing import sha256_hex
from warpdata.query.arrow_eval import array_of_values, is_in
from warpdata.query.expr import And, In, Or, Predicate, Unknown
from warpdata.query.filter_json import node_json
from warpdata.query.filter_tree import Membership

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["ValueSet", "make_value_set", "value_key"]

_NAN = float("nan")


def value_key(value: Any) -> Any:
    """Return the key of a value in a dictionary: one for all NaN, which do not equal one another in Python."""
    return _NAN if value != value else value


@dataclass(frozen=True, slots=True, eq=False)
class ValueSet:
    """The values of a long list. `name` is the boolean column that stands for it in SQL."""

    name: str
    column: str
    membership: Membership
    predicate: Predicate
    values: pa.Array
    """Without null and NaN."""
    has_null: bool
    has_nan: bool

    def evaluate(self, column: pa.ChunkedArray) -> pa.ChunkedArray:
        """Return true, false or null for each value."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        found = is_in(column, self.values)
        if self.has_nan:
            found = pc.or_(found, pc.is_nan(column))
        return pc.if_else(found, found, None) if self.has_null else found


def make_value_set(node: Membership, field: pa.Field) -> ValueSet | None:
    """Return the value set of a list over a column; None if a value or the type of the column has rules of its own."""
    import pyarrow as pa

    values = [value for value in node.values if value is not None]
    nan = [value for value in values if isinstance(value, float) and math.isnan(value)]
    plain = [value for value in values if not (isinstance(value, float) and math.isnan(value))]
    adapt = _adapter(field.type, plain)
    if adapt is None or (nan and not pa.types.is_floating(field.type)):
        return None
    listed = sorted({adapted for adapted in map(adapt, plain) if adapted is not None})
    has_null = len(values) < len(node.values)
    is_constant = not any(isinstance(value, bytes) for value in listed)
    predicate: Predicate = In(field.name, tuple(listed)) if is_constant else Unknown()
    if has_null:
        predicate = And((predicate, Unknown()))
    if nan:
        predicate = Or((predicate, Unknown()))
    array = array_of_values(listed, field.type)
    name = f"isin:{sha256_hex(node_json(node).encode())[:32]}"
    return ValueSet(name, field.name, node, predicate, array, has_null, bool(nan))


def _adapter(arrow_type: pa.DataType, values: list[Any]) -> Callable[[Any], Any] | None:
    """Return a function from a value to the equal one of the column, or None if no value of the column equals it."""
    import pyarrow as pa

    found = {type(value) for value in values}
    if pa.types.is_integer(arrow_type) and found <= {int}:
        return _same
    if (pa.types.is_string(arrow_type) or pa.types.is_large_string(arrow_type)) and found <= {str}:
        return _same
    if arrow_type == pa.float64() and found <= {int, float}:
        is_exact = all(abs(value) <= 2**53 for value in values if isinstance(value, int))
        return float if is_exact else None
    if arrow_type == pa.float32() and found <= {float}:
        return _single
    if pa.types.is_date32(arrow_type) and found <= {date}:
        return _same
    if pa.types.is_timestamp(arrow_type) and arrow_type.unit != "ns" and found <= {datetime}:
        return _same if all((value.tzinfo is None) == (arrow_type.tz is None) for value in values) else None
    if (pa.types.is_binary(arrow_type) or pa.types.is_large_binary(arrow_type)) and found <= {bytes}:
        return _same
    return None


def _same(value: Any) -> Any:
    return value


def _single(value: float) -> float | None:
    """Return the value if 32 bits hold it exactly: SQL compares a FLOAT with a DOUBLE as DOUBLE."""
    if math.isinf(value):
        return value
    try:
        rounded: float = struct.unpack("f", struct.pack("f", value))[0]
    except OverflowError:
        return None
    return value if rounded == value else None
