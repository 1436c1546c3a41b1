"""Filter text → `RowFilter`: an SQL expression, the columns it needs, and what can be reasoned about it.

DuckDB parses the text, so the language is exactly DuckDB's; this module only walks the tree it
returns. A filter is one expression: no subqueries, no second statement, nothing that reads beyond
the row. docs/reference/filters.md describes it for users.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from warpdata.errors import InvalidFilterError
from warpdata.limits import MAX_FILTER_LENGTH
from warpdata.query.arithmetic import compare_terms
from warpdata.query.duckdb import quoted, sealed_cursor
from warpdata.query.duckdb_ast import Names, column_of, constant_of
from warpdata.query.expr import And, Compare, In, IsNull, Match, Not, Or, Predicate, Unknown

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

    Remembered: asking the engine takes a few milliseconds, and loops ask the same again. What the schema tells beside
    names and types means nothing here, and older versions of Arrow could not remember it.
    """
    return _parse_once(text, schema.remove_metadata())


@functools.lru_cache(maxsize=_REMEMBERED_FILTERS)
def _parse_once(text: str, schema: pa.Schema) -> RowFilter:
    if len(text) > MAX_FILTER_LENGTH:
        raise InvalidFilterError(f"the filter has {len(text)} characters; the limit is {MAX_FILTER_LENGTH}")
    tree = _parse(text)
    names = Names(schema)
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
    if any(letter == "\0" or "\ud800" <= letter <= "\udfff" for letter in text):
        raise InvalidFilterError(f"the filter {text!r} has a character that SQL does not allow")
    with sealed_cursor() as cursor:
        statement = quoted(f"SELECT {text}\n")
        row = cursor.execute(f"SELECT json_serialize_sql({statement})").fetchone()
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

    fields = [schema.field(name) for name in row_filter.columns]
    empty = pa.Table.from_batches([], pa.schema(fields))
    nulls = pa.Table.from_arrays([pa.nulls(1, field.type) for field in fields], row_filter.columns)
    with sealed_cursor() as cursor:
        try:
            for rows in (empty, nulls):
                stream = cursor.from_arrow(rows.__arrow_c_stream__())  # a table itself would make it load pandas
                asked = stream.query("rows", f"SELECT ({row_filter.sql}\n) AS keep FROM rows")  # noqa: S608
                kind, answers = asked.types[0], len(asked.fetchall())
                if answers != rows.num_rows:
                    raise InvalidFilterError(f"the filter {row_filter.sql!r} is not about one row at a time")
        except duckdb.Error as error:
            raise InvalidFilterError(f"the filter {row_filter.sql!r} does not fit the table: {error}") from error
    if str(kind) != "BOOLEAN":
        raise InvalidFilterError(f"the filter {row_filter.sql!r} gives {kind}, not a yes or no")


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


def _predicate(node: dict[str, Any], names: Names) -> Predicate:
    kind = node["type"]
    if kind in ("CONJUNCTION_AND", "CONJUNCTION_OR"):
        parts = tuple(_predicate(child, names) for child in node["children"])
        return And(parts) if kind == "CONJUNCTION_AND" else Or(parts)
    if kind == "OPERATOR_NOT":
        return Not(_predicate(node["children"][0], names))
    if kind in ("OPERATOR_IS_NULL", "OPERATOR_IS_NOT_NULL"):
        column = column_of(node["children"][0], names)
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
    column = column_of(node, names)
    if column is not None and names.schema.field(column).type == "bool":
        return Compare(column, "=", True)
    return Unknown()


def _match(node: dict[str, Any], names: Names) -> Predicate:
    """LIKE and NOT LIKE, where the pattern has wildcards at its ends only."""
    if node["function_name"] not in ("~~", "!~~") or len(node["children"]) != 2:
        return Unknown()
    column = column_of(node["children"][0], names)
    pattern = None if column is None else constant_of(node["children"][1], names.schema.field(column).type)
    if column is None or not isinstance(pattern, str):
        return Unknown()
    text = pattern.removeprefix("%").removesuffix("%")
    starts, ends = pattern.startswith("%"), pattern.endswith("%")
    if not text or set(text) & set("%_\\") or not (starts or ends):
        return Unknown()
    found = Match(column, "contains" if starts and ends else "suffix" if starts else "prefix", text)
    return Not(found) if node["function_name"] == "!~~" else found


def _membership(children: list[dict[str, Any]], names: Names) -> Predicate:
    column = column_of(children[0], names)
    if column is None:
        return Unknown()
    values = [constant_of(child, names.schema.field(column).type) for child in children[1:]]
    known = tuple(value for value in values if value is not None)
    return In(column, known) if len(known) == len(values) else Unknown()


def _compare(left: dict[str, Any], op: str, right: dict[str, Any], names: Names) -> Predicate:
    """A column beside a constant, on either side; else arithmetic; else the SQL engine's."""
    for one, how, other in ((left, op, right), (right, _MIRRORED[op], left)):
        column = column_of(one, names)
        value = None if column is None else constant_of(other, names.schema.field(column).type)
        if column is not None and value is not None:
            return Compare(column, how, value)
    return compare_terms(left, op, right, names) or Unknown()
