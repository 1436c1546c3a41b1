"""Filter trees as SQL text. Pure.

The text has the meaning of the tree and needs no schema. Names and values are always quoted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from warpdata.errors import BadInputError, ErrorKind
from warpdata.query.duckdb import quote_identifier, quoted
from warpdata.query.filter_tree import (
    AllOf,
    AllRows,
    AnyOf,
    ArithmeticTerm,
    Between,
    ColumnTerm,
    Comparison,
    Containment,
    FilterNode,
    FilterTerm,
    Membership,
    Negation,
    NullTest,
    SampleClause,
    SqlText,
    TextMatch,
    TimeRange,
    VectorClause,
)
from warpdata.query.literals import quote_value

__all__ = ["WriteNode", "filter_sql", "term_sql"]

WriteNode: TypeAlias = Callable[[FilterNode], str | None]
"""Returns the text of a node that is written in another way; None for the others."""


def _as_usual(_node: FilterNode) -> str | None:
    return None


def filter_sql(node: FilterNode, write: WriteNode = _as_usual) -> str:
    """Return the SQL text of a filter. `write` may give nodes another text."""
    text = write(node)
    if text is not None:
        return text
    if isinstance(node, AllRows):
        return "TRUE"
    if isinstance(node, AllOf | AnyOf):
        is_and = isinstance(node, AllOf)
        if not node.parts:
            return "TRUE" if is_and else "FALSE"
        return (" AND " if is_and else " OR ").join(_part_sql(part, write) for part in node.parts)
    if isinstance(node, Negation):
        return f"NOT ({_closed(filter_sql(node.part, write))})"
    if isinstance(node, SqlText):
        return node.text
    if isinstance(node, VectorClause | SampleClause | TimeRange):
        raise _without_sql(node)
    return _test_sql(node)


def _part_sql(part: FilterNode, write: WriteNode) -> str:
    text = filter_sql(part, write)
    return f"({_closed(text)})" if isinstance(part, AllOf | AnyOf | SqlText) else text


def _test_sql(node: Comparison | Between | Membership | Containment | NullTest | TextMatch) -> str:
    if isinstance(node, Comparison):
        return f"{term_sql(node.left)} {node.op} {term_sql(node.right)}"
    operand = term_sql(node.operand)
    if isinstance(node, Between):
        return f"{operand} BETWEEN {term_sql(node.lower)} AND {term_sql(node.upper)}"
    if isinstance(node, Membership):
        listed = ", ".join(map(quote_value, node.values))
        return f"{operand} IN ({listed})" if listed else "FALSE"
    if isinstance(node, Containment):
        return f"contains({operand}, {term_sql(node.value)})"
    if isinstance(node, NullTest):
        return f"{operand} IS NULL"
    return (
        f"{operand} LIKE {quoted(node.text)}" if node.how == "like" else f"{node.how}({operand}, {quoted(node.text)})"
    )


def term_sql(term: FilterTerm) -> str:
    """Return the SQL text of a column, a constant or arithmetic, which needs no parentheses."""
    if isinstance(term, ColumnTerm):
        return ".".join(map(quote_identifier, term.path))
    if isinstance(term, ArithmeticTerm):
        return f"({term_sql(term.left)} {term.op} {term_sql(term.right)})"
    return quote_value(term.value)


def _closed(text: str) -> str:
    """End the line if the text may end in a comment, which would hide the parenthesis after it."""
    return f"{text}\n" if "--" in text else text


def _without_sql(node: VectorClause | SampleClause | TimeRange) -> BadInputError:
    if isinstance(node, TimeRange):
        return BadInputError(
            "a TimeRange without a field is SQL only for a table, whose timestamp column it names",
            hint="Pass field=…",
            kind=ErrorKind.INVALID_FILTER,
        )
    clause = "near" if isinstance(node, VectorClause) else "sample"
    return BadInputError(
        f"{clause} selects among all rows, so it has no SQL expression over one row",
        hint="Use Table.filter, or to_json() to store the filter.",
        kind=ErrorKind.INVALID_FILTER,
    )
