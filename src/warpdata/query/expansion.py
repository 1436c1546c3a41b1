"""Upper bounds on the memory of filters and queries, from their syntax trees. Pure.

DuckDB's memory limit does not cover the texts and lists that functions build for each row: `printf('%1000000000d', n)`
makes a gigabyte of one number. So the size of such a result must be a constant of the filter. The expansion of a
filter bounds the size of all results for a row, as a multiple of the row's own size. The evaluator passes fewer rows
at a time to a filter that expands them. DuckDB chooses how many rows of a query it takes at a time, so the growth of
texts in a query has a lower limit. Lists in a query count for DuckDB's memory limit.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from warpdata.errors import BadInputError, ErrorKind
from warpdata.limits import MAX_FILTER_EXPANSION, MAX_QUERY_GROWTH
from warpdata.query.duckdb_ast import BUILTIN_SCHEMAS

__all__ = ["check_growth", "expansion_of"]

_Node = dict[str, Any]

_TEXT_SIZES = {"bar": 3, "bitstring": 1, "lpad": 1, "repeat": 1, "rpad": 1, "to_base": 2}
_SIZE_ARGUMENTS = {"array_resize": 1, "equi_width_bins": 2, "list_resize": 1, **_TEXT_SIZES}
"""Functions with the position of the argument that sets the size of the result. It may be left out."""
_SERIES = {"generate_series", "range"}
_FORMATS = {"format", "printf"}
_REPLACEMENTS = {"array_to_string", "concat_ws", "list_aggr", "list_aggregate", "regexp_replace", "replace"}
"""Functions that may put one text into another many times."""
_ASSUMED_TEXT = 1024
"""Characters of a replacement that is not a constant."""
_REFUSED = {"sleep_ms", "write_log"}
_COLUMN: _Node = {"class": "COLUMN_REF"}
_DYNAMIC_WIDTH = re.compile(r"%[^a-zA-Z%]*\*|\{[^{}]*\{")


def expansion_of(tree: _Node, text: str) -> int:
    """Return the expansion of a filter. `BadInputError` if it has no bound, or one above the limit."""
    source = _Source(f"the filter {text!r}", ErrorKind.INVALID_FILTER)
    expansion = _expansion(tree, source)
    if expansion > MAX_FILTER_EXPANSION:
        raise source.refuse(
            f"makes values of up to {expansion:,} times the size of a row; the limit is {MAX_FILTER_EXPANSION:,}"
        )
    return expansion


def check_growth(tree: object) -> None:
    """Raise `BadInputError` if functions of a query make texts without a bound, or with one above the limit.

    Texts of a subquery may grow again in the query around it, so the growth of all SELECTs is multiplied.
    """
    source = _Source("the query", ErrorKind.INVALID_QUERY)
    growth = math.prod(
        max((_growth(root, source) for root in _children(select)), default=1) for select in _selects(tree)
    )
    if growth > MAX_QUERY_GROWTH:
        raise source.refuse(f"makes texts of up to {growth:,} times their size; the limit is {MAX_QUERY_GROWTH:,}")


@dataclass(frozen=True, slots=True)
class _Source:
    """The filter or query that errors name."""

    name: str
    kind: ErrorKind

    def refuse(self, problem: str, hint: str | None = None) -> BadInputError:
        return BadInputError(f"{self.name} {problem}", hint=hint, kind=self.kind)


def _selects(tree: object) -> Iterator[_Node]:
    """Yield every SELECT of a query, those of subqueries and of WITH included."""
    nodes = [tree]
    while nodes:
        node = nodes.pop()
        if isinstance(node, dict):
            if node.get("type") == "SELECT_NODE":
                yield node
            nodes.extend(node.values())
        elif isinstance(node, list):
            nodes.extend(node)


def _growth(node: _Node, source: _Source) -> int:
    """Return how many times longer than its inputs the text of an expression may be."""
    children = list(_children(node))
    growth = max((_growth(child, source) for child in children), default=1)
    if node["class"] != "FUNCTION":
        return growth
    name = node["function_name"].lower()
    if node.get("schema") and node["schema"] not in BUILTIN_SCHEMAS:  # `column.repeat(9)`
        children.insert(0, _COLUMN)
    if name in _TEXT_SIZES and _TEXT_SIZES[name] < len(children):
        return growth * _bounded_size(children[_TEXT_SIZES[name]], name, source)
    if name in _FORMATS:
        return growth * _format_width(children[0] if children else node, name, source)
    if name in _REPLACEMENTS:
        return growth * max((_text_length(child) for child in children[1:]), default=1)
    return growth


def _expansion(node: _Node, source: _Source) -> int:
    children = list(_children(node))
    total = max(1, sum(_expansion(child, source) for child in children))
    if node["class"] == "CONSTANT":
        return 1 + len(str(node["value"].get("value", ""))) // 8
    if node["class"] == "CAST":
        return total * _array_size(node["cast_type"])
    if node["class"] != "FUNCTION":
        return total
    name = node["function_name"].lower()
    if name in _REFUSED:
        raise source.refuse(f"calls {name}, which is not allowed")
    if name in _SIZE_ARGUMENTS:
        position = _SIZE_ARGUMENTS[name]
        return total * (_bounded_size(children[position], name, source) if position < len(children) else 1)
    if name in _SERIES:
        return total + sum(_size(child, name, source) for child in children)
    if name in _FORMATS:
        return total + _format_width(children[0] if children else node, name, source)
    if name in _REPLACEMENTS:
        return total * max((_text_length(child) for child in children[1:]), default=1)
    return total


def _children(node: Any) -> Iterator[_Node]:
    """Yield the expressions directly below a node. SELECTs within it, and functions that are tables, are apart."""
    for name, value in node.items() if isinstance(node, dict) else enumerate(node):
        if isinstance(value, dict) and str(value.get("type")).endswith("_NODE"):
            continue
        if isinstance(value, dict) and "class" in value:
            if name == "function" and node.get("type") == "TABLE_FUNCTION":
                yield from _children(value)
            else:
                yield value
        elif isinstance(value, dict | list):
            yield from _children(value)


def _array_size(sql_type: Any) -> int:
    """Return the number of values in a type with fixed-size arrays, such as INTEGER[8][100]."""
    if not isinstance(sql_type, dict | list):
        return 1
    size = sql_type.get("size") if isinstance(sql_type, dict) else None
    parts = sql_type.values() if isinstance(sql_type, dict) else sql_type
    return math.prod([size if isinstance(size, int) and size > 0 else 1, *(_array_size(part) for part in parts)])


def _bounded_size(node: _Node, function: str, source: _Source) -> int:
    """Return the upper bound of a size: a constant integer, or the smallest constant of `least(…, 100)`."""
    if node["class"] == "FUNCTION" and node["function_name"].lower() == "least":
        bounds = [child for child in _children(node) if child["class"] == "CONSTANT"]
        if bounds and not any(bound["value"]["is_null"] for bound in bounds):
            return min(_size(bound, function, source) for bound in bounds)
    return _size(node, function, source)


def _size(node: _Node, function: str, source: _Source) -> int:
    """Return the magnitude of a constant integer, at least 1."""
    value = node["value"].get("value") if node["class"] == "CONSTANT" else None
    if node["class"] == "CONSTANT" and node["value"]["is_null"]:
        return 1
    if not isinstance(value, int) or isinstance(value, bool):
        raise source.refuse(
            f"calls {function} with a size that is not a constant integer",
            "Write the size as a number, or bound it, as in least(n, 100).",
        )
    return max(1, abs(value))


def _format_width(node: _Node, function: str, source: _Source) -> int:
    """Return the sum of all widths in a constant format."""
    value = node["value"].get("value") if node["class"] == "CONSTANT" else None
    if not isinstance(value, str) or _DYNAMIC_WIDTH.search(value):
        raise source.refuse(
            f"calls {function} with a format that is not constant", "Write the format as a text with fixed widths."
        )
    return len(value) + sum(int(digits[:20]) for digits in re.findall(r"\d+", value))


def _text_length(node: _Node) -> int:
    if node["class"] != "CONSTANT":
        return _ASSUMED_TEXT
    value = node["value"].get("value")
    return max(1, math.ceil(len(value) / 2)) if isinstance(value, str) else 1
