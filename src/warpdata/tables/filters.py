"""Filter text → `RowFilter`: an SQL expression, the columns it needs, and what can be reasoned about it.

DuckDB parses the text, so the language is exactly DuckDB's; this module only walks the tree it
returns. A filter is one expression: no subqueries, no second statement, nothing that reads beyond
the row. docs/reference/filters.md describes it for users.
"""

from __future__ import annotations

import functools
import json
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Any

from warpdata.errors import ColumnNotFoundError, InvalidFilterError
from warpdata.limits import MAX_FILTER_LENGTH
from warpdata.tables.engine import sealed_cursor
from warpdata.tables.predicate import And, Compare, Constant, In, IsNull, Match, Not, Or, Predicate, Unknown
from warpdata.tables.schemas import near_columns

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["RowFilter", "conjunction", "parse_filter"]

_COMPARISONS = {
    "COMPARE_EQUAL": "=",
    "COMPARE_NOTEQUAL": "!=",
    "COMPARE_LESSTHAN": "<",
    "COMPARE_LESSTHANOREQUALTO": "<=",
    "COMPARE_GREATERTHAN": ">",
    "COMPARE_GREATERTHANOREQUALTO": ">=",
}
_MIRRORED = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_FORBIDDEN = {"SUBQUERY", "WINDOW", "STAR", "PARAMETER", "LAMBDA", "DEFAULT"}
_REMEMBERED_FILTERS = 256
_INTEGERS = {"TINYINT", "SMALLINT", "INTEGER", "BIGINT"}


@dataclass(frozen=True, slots=True)
class RowFilter:
    """Keeps the rows for which `sql` is true; NULL is not true."""

    sql: str
    columns: tuple[str, ...]
    predicate: Predicate


def conjunction(filters: Sequence[RowFilter]) -> RowFilter:
    """Keeps the rows that every one of them keeps."""
    if len(filters) == 1:
        return filters[0]
    return RowFilter(
        sql=" AND ".join(f"({each.sql}\n)" for each in filters),
        columns=tuple(dict.fromkeys(name for each in filters for name in each.columns)),
        predicate=And(tuple(each.predicate for each in filters)),
    )


def parse_filter(text: str, schema: pa.Schema) -> RowFilter:
    """Parse and check against a table's schema, without looking at any data.

    Remembered: asking the engine takes a few milliseconds, and loops ask the same again.
    """
    return _parse_once(text, schema)


@functools.lru_cache(maxsize=_REMEMBERED_FILTERS)
def _parse_once(text: str, schema: pa.Schema) -> RowFilter:
    if len(text) > MAX_FILTER_LENGTH:
        raise InvalidFilterError(f"the filter has {len(text)} characters; the limit is {MAX_FILTER_LENGTH}")
    tree = _parse(text)
    names = _Names(schema)
    columns: dict[str, None] = {}
    for node in _nodes(tree):
        if node["class"] in _FORBIDDEN:
            what = node["class"].lower()
            raise InvalidFilterError(f"the filter {text!r} has a {what}; it must be an expression over one row")
        if node["class"] == "COLUMN_REF":
            columns[names.resolve(node["column_names"])] = None
    needed = tuple(columns) or tuple(schema.names[:1])  # a constant still needs to know how many rows there are
    row_filter = RowFilter(text, needed, _predicate(tree, names))
    _check_types(row_filter, schema)
    return row_filter


def _parse(text: str) -> dict[str, Any]:
    with sealed_cursor() as cursor:
        row = cursor.execute("SELECT json_serialize_sql(?)", [f"SELECT {text}\n"]).fetchone()
    assert row is not None
    reply = json.loads(row[0])
    if reply.get("error"):
        raise InvalidFilterError(f"the filter {text!r} is not an SQL expression: {reply.get('error_message')}")
    statements = reply["statements"]
    node = statements[0]["node"] if len(statements) == 1 else {}
    listed = node.get("select_list", [])
    plain = node.get("from_table", {}).get("type") == "EMPTY" and node.get("where_clause") is None
    if len(listed) != 1 or not plain or node.get("modifiers") or listed[0].get("alias"):
        raise InvalidFilterError(f"the filter {text!r} is more than one expression")
    expression: dict[str, Any] = listed[0]
    return expression


def _check_types(row_filter: RowFilter, schema: pa.Schema) -> None:
    """Try the filter on no row and on one of nulls, so that what does not fit is found before any read.

    An aggregate answers for no row too, and some functions answer twice for one.
    """
    import duckdb
    import pyarrow as pa

    empty = schema.empty_table().select(list(row_filter.columns))
    nulls = pa.table([pa.nulls(1, field.type) for field in empty.schema], names=empty.column_names)
    with sealed_cursor() as cursor:
        try:
            for rows in (empty, nulls):
                cursor.register("rows", rows)
                asked = cursor.sql(f"SELECT ({row_filter.sql}\n) AS keep FROM rows")  # noqa: S608
                kind, answers = asked.types[0], len(asked.fetchall())
                if answers != rows.num_rows:
                    raise InvalidFilterError(f"the filter {row_filter.sql!r} is not about one row at a time")
        except duckdb.Error as error:
            raise InvalidFilterError(f"the filter {row_filter.sql!r} does not fit the table: {error}") from error
    if str(kind) != "BOOLEAN":
        raise InvalidFilterError(f"the filter {row_filter.sql!r} gives {kind}, not a yes or no")


class _Names:
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


def _nodes(tree: Any) -> Iterator[dict[str, Any]]:
    """Every expression node, parents first."""
    if isinstance(tree, dict):
        if "class" in tree:
            yield tree
        for value in tree.values():
            yield from _nodes(value)
    elif isinstance(tree, list):
        for value in tree:
            yield from _nodes(value)


def _predicate(node: dict[str, Any], names: _Names) -> Predicate:
    kind = node["type"]
    if kind in ("CONJUNCTION_AND", "CONJUNCTION_OR"):
        parts = tuple(_predicate(child, names) for child in node["children"])
        return And(parts) if kind == "CONJUNCTION_AND" else Or(parts)
    if kind == "OPERATOR_NOT":
        return Not(_predicate(node["children"][0], names))
    if kind in ("OPERATOR_IS_NULL", "OPERATOR_IS_NOT_NULL"):
        column = _column(node["children"][0], names)
        if column is None:
            return Unknown()
        return IsNull(column) if kind == "OPERATOR_IS_NULL" else Not(IsNull(column))
    if kind == "COMPARE_BETWEEN":
        return And(
            (_compare(node["input"], ">=", node["lower"], names), _compare(node["input"], "<=", node["upper"], names))
        )
    if kind in ("COMPARE_IN", "COMPARE_NOT_IN"):
        found = _membership(node["children"], names)
        return found if kind == "COMPARE_IN" else Not(found)
    if kind in _COMPARISONS:
        return _compare(node["left"], _COMPARISONS[kind], node["right"], names)
    if kind == "FUNCTION":
        return _match(node, names)
    column = _column(node, names)
    if column is not None and names.schema.field(column).type == "bool":
        return Compare(column, "=", True)
    return Unknown()


def _match(node: dict[str, Any], names: _Names) -> Predicate:
    """LIKE and NOT LIKE, where the pattern has wildcards at its ends only."""
    if node["function_name"] not in ("~~", "!~~") or len(node["children"]) != 2:
        return Unknown()
    column = _column(node["children"][0], names)
    pattern = None if column is None else _constant(node["children"][1], names.schema.field(column).type)
    if column is None or not isinstance(pattern, str):
        return Unknown()
    text = pattern.removeprefix("%").removesuffix("%")
    starts, ends = pattern.startswith("%"), pattern.endswith("%")
    if not text or set(text) & set("%_\\") or not (starts or ends):
        return Unknown()
    found = Match(column, "contains" if starts and ends else "suffix" if starts else "prefix", text)
    return Not(found) if node["function_name"] == "!~~" else found


def _membership(children: list[dict[str, Any]], names: _Names) -> Predicate:
    column = _column(children[0], names)
    if column is None:
        return Unknown()
    values = [_constant(child, names.schema.field(column).type) for child in children[1:]]
    known = tuple(value for value in values if value is not None)
    return In(column, known) if len(known) == len(values) else Unknown()


def _compare(left: dict[str, Any], op: str, right: dict[str, Any], names: _Names) -> Predicate:
    column = _column(left, names)
    if column is None:
        left, right, op = right, left, _MIRRORED[op]
        column = _column(left, names)
    if column is None:
        return Unknown()
    value = _constant(right, names.schema.field(column).type)
    return Unknown() if value is None else Compare(column, op, value)


def _column(node: dict[str, Any], names: _Names) -> str | None:
    """A plain top-level column; fields of structs are left to the SQL engine."""
    if node["class"] != "COLUMN_REF" or len(node["column_names"]) != 1:
        return None
    return names.resolve(node["column_names"])


def _constant(node: dict[str, Any], column: pa.DataType) -> Constant | None:
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
            row = cursor.execute(f"SELECT CAST(? AS {wanted})", [node["value"]["value"]]).fetchone()
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
