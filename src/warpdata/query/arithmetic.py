"""Arithmetic in a filter → `CompareTerms`, where Arrow's kernels are certain to compute what SQL would.

That is `+`, `-` and `*` over floating point, in the precision SQL gives them, and over 64-bit
integers, which both sides check for overflow. Arithmetic of narrower integers and of decimals, and
division, have rules of their own and are left to the SQL engine. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from warpdata.query.duckdb_ast import Names, column_of, constant_of
from warpdata.query.expr import Arithmetic, Column, CompareTerms, Literal, Term

__all__ = ["compare_terms"]

_DEEPEST = 32
_INTEGERS = frozenset({"int8", "int16", "int32", "int64", "uint8", "uint16", "uint32"})
_NUMBERS = _INTEGERS | {"double", "float"}
_OPERATORS = ("+", "-", "*")


@dataclass(frozen=True, slots=True)
class _Operand:
    """A term and its Arrow type; or a constant, which takes the type of what it meets."""

    node: dict[str, Any]
    term: Term | None = None
    kind: str | None = None


def compare_terms(left: dict[str, Any], op: str, right: dict[str, Any], names: Names) -> CompareTerms | None:
    """Two nodes of the syntax tree compared, at least one of them with a column; None if that is beyond us."""
    one, other = _operand(left, names, _DEEPEST), _operand(right, names, _DEEPEST)
    if one is None or other is None:
        return None
    kinds = {side.kind for side in (one, other) if side.kind is not None}
    # Comparing computes nothing, so that narrower integers may be taken for the widest.
    kind = "int64" if kinds and kinds <= _INTEGERS else _common(kinds)
    met = None if kind is None else _met(one, other, kind)
    return None if kind is None or met is None else CompareTerms(met[0], op, met[1], kind)


def _operand(node: dict[str, Any], names: Names, depth: int) -> _Operand | None:
    if node["class"] == "CONSTANT":
        return _Operand(node)
    column = column_of(node, names)
    if column is not None:
        declared = str(names.schema.field(column).type)
        return _Operand(node, Column(column), declared) if declared in _NUMBERS else None
    is_arithmetic = node["class"] == "FUNCTION" and node["function_name"] in _OPERATORS
    if not is_arithmetic or len(node["children"]) != 2 or depth == 0:
        return None
    left, right = (_operand(child, names, depth - 1) for child in node["children"])
    if left is None or right is None:
        return None
    kind = _common({side.kind for side in (left, right) if side.kind is not None})
    met = None if kind is None else _met(left, right, kind)
    if kind is None or met is None:
        return None
    return _Operand(node, Arithmetic(met[0], node["function_name"], met[1], kind), kind)


def _common(kinds: set[str]) -> str | None:
    """The type in which SQL computes with these, if it is one of ours."""
    if "double" in kinds:
        return "double"
    if "float" in kinds:
        return "float"
    return "int64" if kinds == {"int64"} else None


def _met(left: _Operand, right: _Operand, kind: str) -> tuple[Term, Term] | None:
    one, other = _as_term(left, kind), _as_term(right, kind)
    return None if one is None or other is None else (one, other)


def _as_term(operand: _Operand, kind: str) -> Term | None:
    import pyarrow as pa

    if operand.term is not None:
        return operand.term
    value = constant_of(operand.node, pa.type_for_alias(kind))
    return Literal(value) if isinstance(value, int | float) else None
