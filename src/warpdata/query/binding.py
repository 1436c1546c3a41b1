"""Filters against a schema: SQL text or a `Filter` becomes a `RowFilter`.

A filter is written as SQL and parsed like text, so both spellings have one meaning and one predicate. A long list of
values is not written: a `ValueSet` looks its values up, and in the SQL it is a column of booleans.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from warpdata.errors import BadInputError, ErrorKind
from warpdata.query.clauses import Clauses, split_clauses
from warpdata.query.duckdb import quote_identifier
from warpdata.query.expr import And, Compare, Not, Or, Predicate
from warpdata.query.filter import Filter
from warpdata.query.filter_sql import filter_sql
from warpdata.query.filter_tree import (
    AllOf,
    AnyOf,
    ColumnTerm,
    Comparison,
    FilterNode,
    Membership,
    Negation,
    SqlText,
    TimeRange,
    ValueTerm,
)
from warpdata.query.parse import RowFilter, parse_filter
from warpdata.query.value_set import ValueSet, make_value_set

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["bind_filter", "clauses_of"]

_MAX_WRITTEN_VALUES = 64
"""Longer lists become value sets: parsing a list takes about 10 µs a value, evaluating it in SQL far more."""


def clauses_of(expression: str | Filter) -> Clauses:
    """Return the parts of a filter in the order in which they apply."""
    return Clauses((SqlText(expression),)) if isinstance(expression, str) else split_clauses(expression.tree)


def bind_filter(tree: FilterNode, schema: pa.Schema) -> RowFilter:
    """Check a filter without clauses against a table's schema, without reading any row."""
    if isinstance(tree, SqlText):
        return parse_filter(tree.text, schema)
    resolved = _resolved(tree, schema)
    sets: dict[str, ValueSet] = {}

    def write(node: FilterNode) -> str | None:
        made = _value_set(node, schema) if isinstance(node, Membership) else None
        if made is None:
            return None
        sets[made.name] = made
        return quote_identifier(made.name)

    text = filter_sql(resolved, write)
    if not sets:
        return replace(parse_filter(text, schema), origin=Filter(resolved))
    return _with_sets(text, schema, sets, Filter(resolved))


def _with_sets(text: str, schema: pa.Schema, sets: dict[str, ValueSet], origin: Filter) -> RowFilter:
    """Parse a filter in whose text value sets are boolean columns."""
    import pyarrow as pa

    extended = pa.schema([*schema.remove_metadata(), *(pa.field(name, pa.bool_()) for name in sets)])
    parsed = parse_filter(text, extended)
    columns = dict.fromkeys(sets[name].column if name in sets else name for name in parsed.columns)
    predicate = _with_lists(parsed.predicate, sets)
    return RowFilter(text, tuple(columns), predicate, parsed.expansion, tuple(sets.values()), origin)


def _with_lists(predicate: Predicate, sets: dict[str, ValueSet]) -> Predicate:
    """Replace boolean columns by the membership that they stand for."""
    if isinstance(predicate, And):
        return And(tuple(_with_lists(part, sets) for part in predicate.parts))
    if isinstance(predicate, Or):
        return Or(tuple(_with_lists(part, sets) for part in predicate.parts))
    if isinstance(predicate, Not):
        return Not(_with_lists(predicate.part, sets))
    if isinstance(predicate, Compare) and predicate.column in sets:
        return sets[predicate.column].predicate
    return predicate


def _value_set(node: Membership, schema: pa.Schema) -> ValueSet | None:
    """Return the value set of a long list; None where only SQL knows the meaning, which then has to fit its limit."""
    if len(node.values) <= _MAX_WRITTEN_VALUES or not isinstance(node.operand, ColumnTerm):
        return None
    name = node.operand.path[0] if len(node.operand.path) == 1 else None
    return None if name not in schema.names else make_value_set(node, schema.field(name))


def _resolved(node: FilterNode, schema: pa.Schema) -> FilterNode:
    """Name the column of every `TimeRange`, and refuse comparisons that depend on the zone of the machine."""
    if isinstance(node, AllOf | AnyOf):
        return type(node)(tuple(_resolved(part, schema) for part in node.parts))
    if isinstance(node, Negation):
        return Negation(_resolved(node.part, schema))
    if isinstance(node, TimeRange):
        column = ColumnTerm((_time_column(schema),))
        start, end = ValueTerm(node.start), ValueTerm(node.end)
        return AllOf((Comparison(column, ">=", start), Comparison(column, "<", end)))
    return node


def _time_column(schema: pa.Schema) -> str:
    import pyarrow as pa

    names = [field.name for field in schema if pa.types.is_timestamp(field.type)]
    if len(names) == 1:
        return str(names[0])
    raise BadInputError(
        f"a TimeRange without a field needs one timestamp column; the table has {', '.join(names) or 'none'}",
        hint="Pass field=….",
        kind=ErrorKind.INVALID_FILTER,
    )
