"""Parts of a filter that are checked when they are made: SQL text, and clauses that select among all rows.

A row filter keeps or drops a row by its own values. The clauses `near` and `sample` depend on the other rows. They may
be parts of the outermost AND only: first the row filter applies, then `near`, then `sample`.
"""

from __future__ import annotations

import math
import operator
import reprlib
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from warpdata.errors import BadInputError, ErrorKind, LimitExceededError
from warpdata.limits import MAX_VECTOR_LENGTH
from warpdata.query.filter_tree import AllOf, FilterNode, Metric, SampleClause, SqlText, VectorClause, iter_filters
from warpdata.query.literals import as_value
from warpdata.query.parse import check_expression

__all__ = ["METRICS", "Clauses", "near_clause", "sample_clause", "split_clauses", "sql_text"]

METRICS: tuple[Metric, ...] = ("cosine", "l2", "dot")


@dataclass(frozen=True, slots=True)
class Clauses:
    """A filter in the order in which its parts apply."""

    row_filters: tuple[FilterNode, ...]
    near: VectorClause | None = None
    sample: SampleClause | None = None

    @property
    def are_per_row(self) -> bool:
        """No part depends on other rows."""
        return self.near is None and self.sample is None


def split_clauses(tree: FilterNode) -> Clauses:
    """Take the clauses out of the outermost AND. `BadInputError` for a clause elsewhere, or a second one of a kind."""
    parts = tree.parts if isinstance(tree, AllOf) else (tree,)
    near = [part for part in parts if isinstance(part, VectorClause)]
    sample = [part for part in parts if isinstance(part, SampleClause)]
    others = tuple(part for part in parts if not isinstance(part, VectorClause | SampleClause))
    for part in others:
        for node in iter_filters(part):
            if isinstance(node, VectorClause | SampleClause):
                name = "near" if isinstance(node, VectorClause) else "sample"
                raise _invalid(
                    f"{name} is inside an OR, a NOT or an inner AND", "Combine it with & at the outermost level."
                )
    for name, found in (("near", near), ("sample", sample)):
        if len(found) > 1:
            raise _invalid(
                f"the filter has {len(found)} {name} clauses", "Filter a table twice: t.filter(a).filter(b)."
            )
    row_filters = others if len(others) < 2 else (AllOf(others),)
    return Clauses(row_filters, near[0] if near else None, sample[0] if sample else None)


def near_clause(column: str, vector: Iterable[float], k: Any, metric: str) -> VectorClause:
    """Return a clause with a checked vector, whose numbers become Python floats."""
    listed = vector.tolist() if hasattr(vector, "tolist") else list(vector) if isinstance(vector, Iterable) else None
    if not isinstance(listed, list) or not all(isinstance(each, int | float) for each in listed) or not listed:
        raise _invalid(f"near takes a vector of numbers, not {reprlib.repr(vector)}", "Pass a list or a NumPy array.")
    if len(listed) > MAX_VECTOR_LENGTH:
        raise LimitExceededError(f"the vector of near has {len(listed):,} numbers; the limit is {MAX_VECTOR_LENGTH:,}")
    numbers = tuple(float(each) if abs(each) < sys.float_info.max else math.inf for each in listed)
    if not all(map(math.isfinite, numbers)):
        raise _invalid(f"the vector of near is not finite: {reprlib.repr(listed)}", "Replace NaN and infinity.")
    known = next((each for each in METRICS if each == metric), None)
    if known is None:
        raise _invalid(f"metric={metric!r} is not known", f"Use {', '.join(METRICS)}.")
    return VectorClause(str(as_value(column)), numbers, _integer("k", k, 1), known)


def sample_clause(count: Any, by: Any, seed: Any) -> SampleClause:
    """Return a clause with a checked size and seed."""
    if by is not None and not isinstance(by, str):
        raise _invalid(f"by={by!r} of a sample is not the name of a column", "Pass by='label', for example.")
    name = by if by is None else str(as_value(by))
    return SampleClause(_integer("count", count, 0), name, _integer("seed", seed, None))


def sql_text(text: Any) -> SqlText:
    """Return a part that keeps SQL text. `BadInputError` unless it is exactly one expression, for whatever columns."""
    if not isinstance(text, str):
        raise _invalid(f"Filter.sql takes an SQL expression as text, not {text!r}", "Pass 'fare > 20', for example.")
    check_expression(text)
    return SqlText(text)


def _integer(name: str, value: Any, least: int | None) -> int:
    try:
        number = operator.index(value)
    except TypeError as error:
        raise _invalid(f"{name}={value!r} is not an integer", "Pass a number.") from error
    if isinstance(value, bool) or (least is not None and number < least):
        raise _invalid(f"{name}={value!r} is not an integer from {least or 0} on", "Pass a larger number.")
    return number


def _invalid(message: str, hint: str) -> BadInputError:
    return BadInputError(message, hint=hint, kind=ErrorKind.INVALID_FILTER)
