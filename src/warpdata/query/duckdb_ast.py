"""Single nodes of DuckDB's syntax tree: which column is meant, and what a constant is worth.

A constant counts only where SQL's conversion to the column's type is certain to be exact; about all
others nothing is said, and the SQL engine decides.
"""

from __future__ import annotations

import struct
from datetime import date
from typing import TYPE_CHECKING, Any

from warpdata.errors import ColumnNotFoundError
from warpdata.query.duckdb import quoted, sealed_cursor
from warpdata.query.expr import Constant
from warpdata.query.schemas import near_columns

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Names", "column_of", "constant_of"]

_INTEGERS = {"TINYINT", "SMALLINT", "INTEGER", "BIGINT"}


class Names:
    """Column names as SQL sees them: exact first, then without regard to case."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self._folded: dict[str, str] = {}
        for name in schema.names:
            self._folded.setdefault(name.lower(), name)
        self._exact = set(schema.names)

    def resolve(self, parts: list[str]) -> str:
        name = parts[0]
        if name in self._exact:
            return name
        if name.lower() in self._folded:
            return self._folded[name.lower()]
        raise ColumnNotFoundError(
            f"the filter names the column {name!r}, which does not exist", hint=near_columns(name, self.schema.names)
        )


def column_of(node: dict[str, Any], names: Names) -> str | None:
    """A plain top-level column; fields of structs are left to the SQL engine."""
    if node["class"] != "COLUMN_REF" or len(node["column_names"]) != 1:
        return None
    return names.resolve(node["column_names"])


def constant_of(node: dict[str, Any], column: pa.DataType) -> Constant | None:
    """The constant in the column's own type, where SQL's conversion is certain to be exact; else None."""
    import pyarrow as pa

    wanted = _TIMES.get(str(column))
    if node["class"] == "CAST":
        target, node = node["cast_type"]["id"], node["child"]
        text = node.get("value", {}).get("value")
        if target == "BOOLEAN" and pa.types.is_boolean(column):
            return {"t": True, "f": False}.get(text)
        return _moment(node, wanted) if target == wanted else None
    if node["class"] != "CONSTANT" or node["value"]["is_null"]:
        return None
    if wanted is not None:
        return _moment(node, wanted)
    return _plain_constant(node["value"], column)


_TIMES = {
    "timestamp[s]": "TIMESTAMP",
    "timestamp[ms]": "TIMESTAMP",
    "timestamp[us]": "TIMESTAMP",
    "date32[day]": "DATE",
}
"""Columns whose type SQL gives to a text they are compared with. Finer or zoned times are left to the engine."""


def _moment(node: dict[str, Any], wanted: str | None) -> Constant | None:
    """A date or time written as text, read by the SQL engine itself."""
    import duckdb

    if node["class"] != "CONSTANT" or node["value"]["type"]["id"] != "VARCHAR" or wanted is None:
        return None
    with sealed_cursor() as cursor:
        try:
            row = cursor.execute(f"SELECT CAST({quoted(node['value']['value'])} AS {wanted})").fetchone()
        except (duckdb.Error, OverflowError, ValueError):
            return None
    found = row[0] if row else None
    return found if isinstance(found, date) else None


def _plain_constant(constant: dict[str, Any], column: pa.DataType) -> Constant | None:
    import pyarrow as pa

    kind, value = constant["type"]["id"], constant["value"]
    if kind in _INTEGERS and pa.types.is_integer(column) and column != pa.uint64():
        return int(value)
    if kind in (*_INTEGERS, "DECIMAL") and column in (pa.float64(), pa.float32()):
        scale = constant["type"]["type_info"]["scale"] if kind == "DECIMAL" else 0
        return _fraction(value, scale, single=column == pa.float32())
    if kind == "VARCHAR" and (pa.types.is_string(column) or pa.types.is_large_string(column)):
        return str(value)
    return None


def _fraction(digits: Any, scale: int, *, single: bool) -> float | None:
    """`digits` / 10^`scale` as SQL would convert it: certain where both are exact, and single precision holds it."""
    if not isinstance(digits, int) or abs(digits) > 2**53 or scale > 22:
        return None
    value = digits / 10**scale
    return value if not single or struct.unpack("f", struct.pack("f", value))[0] == value else None
