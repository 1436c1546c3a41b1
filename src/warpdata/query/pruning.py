"""Pruning: rule out row groups by the statistics of their columns. Pure.

Pruning is conservative. It may keep a row group without a matching row, but never drops one that has a match.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from warpdata.query.expr import And, Compare, Constant, In, IsNull, Match, Not, Or, Predicate

__all__ = ["Bounds", "can_match", "required_values"]


@dataclass(frozen=True, slots=True)
class Bounds:
    """Statistics of one column of a row group; None for those that are unknown.

    Statistics ignore NaN, which SQL orders above every number. So `maximum` bounds a float column only if the
    column is known to have no NaN.
    """

    minimum: Any
    maximum: Any
    null_count: int | None
    row_count: int
    may_have_nan: bool


def can_match(predicate: Predicate, bounds: Mapping[str, Bounds]) -> bool:
    """Return False only if the predicate is true for no row within these bounds."""
    if isinstance(predicate, And):
        return all(can_match(part, bounds) for part in predicate.parts)
    if isinstance(predicate, Or):
        return any(can_match(part, bounds) for part in predicate.parts)
    if isinstance(predicate, Not):
        return _can_fail(predicate.part, bounds)
    if isinstance(predicate, IsNull):
        known = bounds.get(predicate.column)
        return known is None or known.null_count is None or known.null_count > 0
    if isinstance(predicate, Compare):
        return _compare_can_match(predicate, bounds.get(predicate.column))
    if isinstance(predicate, In):
        known = bounds.get(predicate.column)
        if known is None or known.null_count == known.row_count:
            return known is None
        return predicate.between(known.minimum, known.maximum)
    if isinstance(predicate, Match):
        return _match_can_match(predicate, bounds.get(predicate.column))
    return True


def required_values(predicate: Predicate) -> list[tuple[str, tuple[Constant, ...]]]:
    """Return columns that must have one of some values wherever the predicate is true."""
    if isinstance(predicate, And):
        return [found for part in predicate.parts for found in required_values(part)]
    if isinstance(predicate, Compare) and predicate.op == "=":
        return [(predicate.column, (predicate.value,))]
    return [(predicate.column, predicate.values)] if isinstance(predicate, In) else []


_OPPOSITE = {"=": "!=", "!=": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}


def _can_fail(predicate: Predicate, bounds: Mapping[str, Bounds]) -> bool:
    """Return False only if the predicate is FALSE for no row; NULL is not FALSE."""
    if isinstance(predicate, Compare):
        return can_match(Compare(predicate.column, _OPPOSITE[predicate.op], predicate.value), bounds)
    if isinstance(predicate, In):
        known = bounds.get(predicate.column)
        if known is None or known.null_count == known.row_count:
            return known is None
        is_one_value = known.minimum is not None and known.minimum == known.maximum and not known.may_have_nan
        return not (is_one_value and predicate.between(known.minimum, known.maximum))
    if isinstance(predicate, IsNull):
        known = bounds.get(predicate.column)
        return known is None or known.null_count is None or known.null_count < known.row_count
    if isinstance(predicate, Not):
        return can_match(predicate.part, bounds)
    if isinstance(predicate, And):
        return any(_can_fail(part, bounds) for part in predicate.parts)
    if isinstance(predicate, Or):
        return all(_can_fail(part, bounds) for part in predicate.parts)
    return True


_EXCLUDES: Mapping[str, Callable[[Any, Any, Any], bool]] = {
    "=": lambda low, high, value: value < low or value > high,
    "!=": lambda low, high, value: low == high == value,
    "<": lambda low, _high, value: low >= value,
    "<=": lambda low, _high, value: low > value,
    ">": lambda _low, high, value: high <= value,
    ">=": lambda _low, high, value: high < value,
}


def _compare_can_match(predicate: Compare, known: Bounds | None) -> bool:
    if known is None:
        return True
    if known.null_count == known.row_count:
        return False
    if known.minimum is None or known.maximum is None:
        return True
    if known.may_have_nan and predicate.op in (">", ">=", "!="):
        return True
    return not _EXCLUDES[predicate.op](known.minimum, known.maximum, predicate.value)


def _match_can_match(predicate: Match, known: Bounds | None) -> bool:
    """Compare a prefix with the bounds. Texts with it lie between the prefix and its last continuation."""
    if known is None:
        return True
    if known.null_count == known.row_count:
        return False
    if predicate.how != "prefix" or known.minimum is None or known.maximum is None:
        return True
    prefix = predicate.text
    return bool(known.maximum >= prefix and known.minimum[: len(prefix)] <= prefix)
