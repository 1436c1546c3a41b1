"""Upper bound on the memory of a filter, from its syntax tree. Pure.

DuckDB's memory limit does not cover the texts and lists that functions build for each row: `printf('%1000000000d', n)`
makes a gigabyte of one number. So the size of such a result must be a constant of the filter. The expansion of a
filter bounds the size of all results for a row, as a multiple of the row's own size. The evaluator passes fewer rows
at a time to a filter that expands them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

from warpdata.errors import BadInputError, ErrorKind
from warpdata.limits import MAX_FILTER_EXPANSION

__all__ = ["expansion_of"]

_Node = dict[str, Any]

_SIZE_ARGUMENTS = {
    "array_resize": 1,
    "bar": 3,
    "bitstring": 1,
    "equi_width_bins": 2,
    "list_resize": 1,
    "lpad": 1,
    "repeat": 1,
    "rpad": 1,
    "to_base": 2,
}
"""Functions with the position of the argument that sets the size of the result. It may be left out."""
_SERIES = {"generate_series", "range"}
_FORMATS = {"format", "printf"}
_REPLACEMENTS = {"array_to_string", "concat_ws", "list_aggr", "list_aggregate", "regexp_replace", "replace"}
"""Functions that may put one text into another many times."""
_ASSUMED_TEXT = 1024
"""Characters of a replacement that is not a constant."""
_REFUSED = {"sleep_ms", "write_log"}
_DYNAMIC_WIDTH = re.compile(r"%[^a-zA-Z%]*\*|\{[^{}]*\{")


def expansion_of(tree: _Node, text: str) -> int:
    """Return the expansion of a filter. `BadInputError` if it has no bound, or one above the limit."""
    expansion = _expansion(tree, text)
    if expansion > MAX_FILTER_EXPANSION:
        raise BadInputError(
            f"the filter {text!r} makes values of up to {expansion:,} times the size of a row; "
            f"the limit is {MAX_FILTER_EXPANSION:,}",
            kind=ErrorKind.INVALID_FILTER,
        )
    return expansion


def _expansion(node: _Node, text: str) -> int:
    children = list(_children(node))
    total = max(1, sum(_expansion(child, text) for child in children))
    if node["class"] == "CONSTANT":
        return 1 + len(str(node["value"].get("value", ""))) // 8
    if node["class"] == "CAST":
        return total * _array_size(node["cast_type"])
    if node["class"] != "FUNCTION":
        return total
    name = node["function_name"].lower()
    if name in _REFUSED:
        raise BadInputError(f"the filter {text!r} calls {name}, which is not allowed", kind=ErrorKind.INVALID_FILTER)
    if name in _SIZE_ARGUMENTS:
        position = _SIZE_ARGUMENTS[name]
        return total * (_size(children[position], name, text) if position < len(children) else 1)
    if name in _SERIES:
        return total + sum(_size(child, name, text) for child in children)
    if name in _FORMATS:
        return total + _format_width(children[0] if children else node, name, text)
    if name in _REPLACEMENTS:
        return total * max((_text_length(child) for child in children[1:]), default=1)
    return total


def _children(node: Any) -> Iterator[_Node]:
    """Yield the expressions directly below a node."""
    for value in node.values() if isinstance(node, dict) else node:
        if isinstance(value, dict) and "class" in value:
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


def _size(node: _Node, function: str, text: str) -> int:
    """Return the magnitude of a constant integer, at least 1."""
    value = node["value"].get("value") if node["class"] == "CONSTANT" else None
    if node["class"] == "CONSTANT" and node["value"]["is_null"]:
        return 1
    if not isinstance(value, int) or isinstance(value, bool):
        raise BadInputError(
            f"the filter {text!r} calls {function} with a size that is not a constant integer",
            hint="Write the size as a number.",
            kind=ErrorKind.INVALID_FILTER,
        )
    return max(1, abs(value))


def _format_width(node: _Node, function: str, text: str) -> int:
    """Return the sum of all widths in a constant format."""
    value = node["value"].get("value") if node["class"] == "CONSTANT" else None
    if not isinstance(value, str) or _DYNAMIC_WIDTH.search(value):
        raise BadInputError(
            f"the filter {text!r} calls {function} with a format that is not constant",
            hint="Write the format as a text with fixed widths.",
            kind=ErrorKind.INVALID_FILTER,
        )
    return len(value) + sum(int(digits[:20]) for digits in re.findall(r"\d+", value))


def _text_length(node: _Node) -> int:
    if node["class"] != "CONSTANT":
        return _ASSUMED_TEXT
    value = node["value"].get("value")
    return max(1, math.ceil(len(value) / 2)) if isinstance(value, str) else 1
