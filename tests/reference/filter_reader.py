"""A second opinion on filters, written from docs/specs/filters.md and the rules of SQL, and nothing else.

It evaluates a JSON document over one row of Python values, slowly, with no import from the project.
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

__all__ = ["is_kept"]

Truth = bool | None
Row = Mapping[str, Any]


def is_kept(document: str, row: Row) -> bool:
    """Whether a filter without clauses is true for a row: not false and not NULL."""
    whole = json.loads(document)
    assert whole["format"] == 1
    return _truth(whole["filter"], row) is True


def _truth(node: dict[str, Any], row: Row) -> Truth:
    op = node["op"]
    if op == "all":
        return True
    if op in ("and", "or"):
        truths = [_truth(part, row) for part in node["parts"]]
        decisive = op == "or"
        return decisive if decisive in truths else None if None in truths else not decisive
    if op == "not":
        truth = _truth(node["part"], row)
        return None if truth is None else not truth
    if op in _ORDER:
        return _compare(_term(node["left"], row), op, _term(node["right"], row))
    value = _term(node["operand"], row)
    if op == "is_null":
        return value is None
    if op == "in":
        truths = [_compare(value, "=", _value(each)) for each in node["values"]]
        return True if True in truths else None if None in truths else False
    if value is None:
        return None
    if op == "between":
        bounds = [_compare(value, ">=", _term(node["lower"], row)), _compare(value, "<=", _term(node["upper"], row))]
        return False if False in bounds else None if None in bounds else True
    if op == "contains":
        wanted = _value(node["value"])
        return wanted in value if isinstance(value, str) else any(_compare(each, "=", wanted) for each in value)
    if op == "starts_with":
        return str(value).startswith(node["text"])
    if op == "ends_with":
        return str(value).endswith(node["text"])
    assert op == "like"
    pattern = "".join({"%": ".*", "_": "."}.get(letter, re.escape(letter)) for letter in node["text"])
    return re.fullmatch(pattern, value, re.DOTALL) is not None


_ORDER: dict[str, Callable[[int], bool]] = {
    "=": lambda order: order == 0,
    "!=": lambda order: order != 0,
    "<": lambda order: order < 0,
    "<=": lambda order: order <= 0,
    ">": lambda order: order > 0,
    ">=": lambda order: order >= 0,
}


def _compare(left: Any, op: str, right: Any) -> Truth:
    if left is None or right is None:
        return None
    if isinstance(left, float) != isinstance(right, float):
        left, right = float(left), float(right)
    if isinstance(left, float) and (math.isnan(left) or math.isnan(right)):  # above all numbers, and equal to itself
        left, right = math.isnan(left), math.isnan(right)
    return _ORDER[op]((left > right) - (left < right))


def _term(term: dict[str, Any], row: Row) -> Any:
    if "column" in term:
        value: Any = row
        for name in term["column"]:
            value = None if value is None else value[name]
        return value
    if "value" in term:
        return _value(term["value"])
    left, right = _term(term["left"], row), _term(term["right"], row)
    if left is None or right is None:
        return None
    return {"+": lambda: left + right, "-": lambda: left - right, "*": lambda: left * right}[term["op"]]()


def _value(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    ((kind, text),) = value.items()
    if kind == "timestamp":
        moment = datetime.fromisoformat(text.removesuffix("Z"))
        return moment.replace(tzinfo=UTC) if text.endswith("Z") else moment
    readers: dict[str, Callable[[str], Any]] = {
        "int": int,
        "float": float,
        "bytes": base64.b64decode,
        "date": date.fromisoformat,
        "decimal": Decimal,
    }
    return readers[kind](text)
