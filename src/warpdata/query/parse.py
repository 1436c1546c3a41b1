"""Filter text → `RowFilter`: an SQL expression, the columns it needs, and its predicate.

DuckDB parses the text, so the language is exactly DuckDB's. A filter is one expression over one row: no subquery, no
second statement, no aggregate. docs/reference/filters.md describes the language for users.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from warpdata.errors import BadInputError, ErrorKind
from warpdata.limits import MAX_FILTER_LENGTH
from warpdata.query.duckdb import first_line, quote_identifier, quoted, run_sealed
from warpdata.query.duckdb_ast import ColumnResolver, iter_nodes, to_predicate
from warpdata.query.expansion import expansion_of
from warpdata.query.expr import And, Compare, In, Not, Or, Predicate
from warpdata.query.filter_sql import filter_sql

if TYPE_CHECKING:
    import pyarrow as pa
    from duckdb import DuckDBPyConnection

    from warpdata.query.filter import Filter
    from warpdata.query.value_set import ValueSet

__all__ = ["RowFilter", "check_expression", "conjunction", "parse_expression", "parse_filter"]

_FORBIDDEN_NODES = {"SUBQUERY", "WINDOW", "STAR", "PARAMETER", "LAMBDA", "DEFAULT"}
_CACHED_FILTERS = 256
_CHECKED_ROWS = 61
"""A number of rows that an expression over all rows at once hardly gives by chance."""


@dataclass(frozen=True, slots=True)
class RowFilter:
    """Keeps the rows for which `sql` is true; NULL is not true."""

    sql: str
    columns: tuple[str, ...]
    predicate: Predicate
    expansion: int = 1
    """Bound on the values that SQL makes of a row, as a multiple of the row's size."""
    value_sets: tuple[ValueSet, ...] = ()
    """Long lists of values. `sql` has their names in place of columns of booleans."""
    origin: Filter | None = None
    """The filter that was parsed; None for text."""

    @property
    def source(self) -> str | Filter:
        """What was parsed, to parse it against another schema."""
        return self.sql if self.origin is None else self.origin

    @property
    def text(self) -> str:
        """The filter as SQL text alone, with all values of long lists."""
        text = self.sql
        for each in self.value_sets:
            text = text.replace(quote_identifier(each.name), filter_sql(each.membership))
        return text


def conjunction(filters: Sequence[RowFilter]) -> RowFilter:
    """Return a filter that keeps the rows which all filters keep."""
    if len(filters) == 1:
        return filters[0]
    return RowFilter(
        sql=" AND ".join(f"({each.sql}\n)" for each in filters),
        columns=tuple(dict.fromkeys(name for each in filters for name in each.columns)),
        predicate=And(tuple(each.predicate for each in filters)),
        expansion=sum(each.expansion for each in filters),
        value_sets=tuple({made.name: made for each in filters for made in each.value_sets}.values()),
    )


def parse_filter(text: str, schema: pa.Schema) -> RowFilter:
    """Parse a filter and check it against a table's schema, without reading any row.

    Results are cached, because DuckDB takes a few milliseconds. The schema's metadata does not matter, and some
    versions of Arrow cannot hash a schema that has metadata.
    """
    if not isinstance(text, str):
        raise BadInputError(f"a filter is SQL text or a Filter, not {text!r}", kind=ErrorKind.INVALID_FILTER)
    return _parse_filter(text, schema.remove_metadata())


def parse_expression(text: str, schema: pa.Schema) -> RowFilter:
    """Parse an expression of any type over one row, like `parse_filter`. The predicate means nothing."""
    return _parse_filter(text, schema.remove_metadata(), is_boolean=False)


def check_expression(text: str) -> None:
    """Raise `BadInputError` unless the text is exactly one SQL expression, for whatever columns."""
    _check_length(text)
    _parse_sql(text)


def _check_length(text: str) -> None:
    if len(text) > MAX_FILTER_LENGTH:
        raise BadInputError(
            f"the filter has {len(text):,} characters; the limit is {MAX_FILTER_LENGTH:,}",
            hint="Pass a long list of values with wd.col(…).isin([…]).",
            kind=ErrorKind.INVALID_FILTER,
        )


@functools.lru_cache(maxsize=_CACHED_FILTERS)
def _parse_filter(text: str, schema: pa.Schema, *, is_boolean: bool = True) -> RowFilter:
    _check_length(text)
    try:
        row_filter = _translate(text, _parse_sql(text), schema)
    except RecursionError as error:
        raise BadInputError(f"the filter {text[:80]!r}… is nested too deeply", kind=ErrorKind.INVALID_FILTER) from error
    if not is_boolean or not _is_plain(row_filter.predicate):
        _check_types(row_filter, schema, is_boolean=is_boolean)
    return row_filter


def _is_plain(predicate: Predicate) -> bool:
    """Return whether a filter only compares columns with constants that fit them, so that its types need no check.

    A comparison is translated only if SQL converts its constant exactly, as `duckdb_ast` says.
    """
    if isinstance(predicate, And | Or):
        return all(_is_plain(part) for part in predicate.parts)
    return _is_plain(predicate.part) if isinstance(predicate, Not) else isinstance(predicate, Compare | In)


def _translate(text: str, tree: dict[str, Any], schema: pa.Schema) -> RowFilter:
    resolver = ColumnResolver(schema)
    columns: dict[str, None] = {}
    for node in iter_nodes(tree):
        resolver.expand_method(node)
        if node["class"] in _FORBIDDEN_NODES:
            forbidden = node["class"].lower()
            raise BadInputError(
                f"the filter {text!r} has a {forbidden}; it must be an expression over one row",
                kind=ErrorKind.INVALID_FILTER,
            )
        if node["class"] == "COLUMN_REF":
            columns[resolver.resolve(node["column_names"])] = None
    needed = tuple(columns) or tuple(schema.names[:1])  # a constant filter still needs the number of rows
    expansion = expansion_of(tree, text)  # before the filter runs: DuckDB evaluates constants when it plans
    return RowFilter(text, needed, to_predicate(tree, resolver), expansion)


def _parse_sql(text: str) -> dict[str, Any]:
    """Return the syntax tree of a text that is exactly one SQL expression."""
    if any(letter == "\0" or "\ud800" <= letter <= "\udfff" for letter in text):
        raise BadInputError(
            f"the filter {text!r} has a character that SQL does not allow", kind=ErrorKind.INVALID_FILTER
        )
    statement = quoted(f"SELECT {text}\n")
    row = run_sealed(lambda cursor: cursor.execute(f"SELECT json_serialize_sql({statement})").fetchone())
    assert row is not None
    reply = json.loads(row[0])
    if reply.get("error"):
        raise BadInputError(
            f"the filter {text!r} is not an SQL expression: {reply.get('error_message')}", kind=ErrorKind.INVALID_FILTER
        )
    statements = reply["statements"]
    node = statements[0]["node"] if len(statements) == 1 else {}
    selected = node.get("select_list", [])
    has_only_select = node.get("from_table", {}).get("type") == "EMPTY" and node.get("where_clause") is None
    if len(selected) != 1 or not has_only_select or node.get("modifiers") or selected[0].get("alias"):
        raise BadInputError(f"the filter {text!r} is more than one expression", kind=ErrorKind.INVALID_FILTER)
    expression: dict[str, Any] = selected[0]
    return expression


def _check_types(row_filter: RowFilter, schema: pa.Schema, *, is_boolean: bool) -> None:
    """Evaluate the filter on rows of nulls, so that type errors surface before any read.

    An aggregate returns one row for all of them, and some functions return no row for one, or several.
    """
    import duckdb
    import pyarrow as pa

    fields = [schema.field(name) for name in row_filter.columns]
    rows = pa.Table.from_arrays([pa.nulls(_CHECKED_ROWS, field.type) for field in fields], row_filter.columns)

    def evaluate(cursor: DuckDBPyConnection) -> tuple[str, int]:
        stream = cursor.from_arrow(rows.__arrow_c_stream__())  # a table would make DuckDB import pandas
        result = stream.query("rows", f"SELECT ({row_filter.sql}\n) AS keep FROM rows")  # noqa: S608
        return str(result.types[0]), len(result.fetchall())

    try:
        result_type, result_count = run_sealed(evaluate)
    except duckdb.Error as error:
        raise BadInputError(
            f"the filter {row_filter.sql!r} does not fit the table: {first_line(error)}",
            kind=ErrorKind.INVALID_FILTER,
        ) from error
    if result_count != rows.num_rows:
        raise BadInputError(
            f"the filter {row_filter.sql!r} does not evaluate one row at a time: "
            f"{rows.num_rows} rows give {result_count} results",
            kind=ErrorKind.INVALID_FILTER,
        )
    if is_boolean and result_type != "BOOLEAN":
        raise BadInputError(
            f"the filter {row_filter.sql!r} must be BOOLEAN, but is {result_type}", kind=ErrorKind.INVALID_FILTER
        )
