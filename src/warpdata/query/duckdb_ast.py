"""Translation of DuckDB's serialized syntax tree into a `Predicate`.

A node is translated only if the Arrow kernels are certain to give SQL's answer. Constants must convert to the
column's type exactly. Arithmetic is `+`, `-` and `*` over floats, in the precision SQL gives them, and over 64-bit
integers, for which both engines check overflow. Every other node becomes `Unknown`, and the SQL engine evaluates it.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Any

from warpdata.errors import ColumnNotFoundError
from warpdata.primitives.suggest import suggest
from warpdata.query.duckdb import quoted, run_sealed
from warpdata.query.expr import (
    MIRRORED,
    And,
    Arithmetic,
    Column,
    Compare,
    CompareTerms,
    Constant,
    Contains,
    In,
    IsNull,
    Literal,
    Match,
    Not,
    Or,
    Predicate,
    Term,
    Unknown,
)

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["BUILTIN_SCHEMAS", "ColumnResolver", "iter_nodes", "to_predicate"]

_Node = dict[str, Any]

_COMPARISONS = {
    "COMPARE_EQUAL": "=",
    "COMPARE_NOTEQUAL": "!=",
    "COMPARE_LESSTHAN": "<",
    "COMPARE_LESSTHANOREQUALTO": "<=",
    "COMPARE_GREATERTHAN": ">",
    "COMPARE_GREATERTHANOREQUALTO": ">=",
}
_SQL_INTEGERS = {"TINYINT", "SMALLINT", "INTEGER", "BIGINT"}
_SQL_TIME_TYPES = {
    "timestamp[s]": "TIMESTAMP",
    "timestamp[ms]": "TIMESTAMP",
    "timestamp[us]": "TIMESTAMP",
    "date32[day]": "DATE",
}
"""The type to which SQL converts a text that is compared with such a column. Finer and zoned times are `Unknown`."""
_ARROW_INTEGERS = frozenset({"int8", "int16", "int32", "int64", "uint8", "uint16", "uint32"})
_ARROW_NUMBERS = _ARROW_INTEGERS | {"double", "float"}
_MAX_ARITHMETIC_DEPTH = 32
_LIST_FUNCTIONS = frozenset({"list_contains", "list_has", "array_contains", "array_has", "contains"})
_TEXT_FUNCTIONS = {
    "contains": "contains",
    "starts_with": "prefix",
    "prefix": "prefix",
    "^@": "prefix",
    "ends_with": "suffix",
    "suffix": "suffix",
}
BUILTIN_SCHEMAS = {"main", "pg_catalog", "system"}


class ColumnResolver:
    """Column names as SQL resolves them: an exact match first, then one that ignores case."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self._folded: dict[str, str] = {}
        for name in schema.names:
            self._folded.setdefault(name.lower(), name)
        self._exact = set(schema.names)

    def resolve(self, parts: list[str]) -> str:
        """Return the column that a reference, split at its dots, begins with."""
        name = parts[0]
        if name in self._exact:
            return name
        if name.lower() in self._folded:
            return self._folded[name.lower()]
        raise ColumnNotFoundError(
            f"the filter names the column {name!r}, which does not exist",
            hint=suggest(name, self.schema.names, label="The columns are"),
        )

    def expand_method(self, node: _Node) -> None:
        """Turn `column.function(…)`, which DuckDB parses as a function of a schema, into `function(column, …)`."""
        if node["class"] != "FUNCTION" or not node.get("schema") or node["schema"] in BUILTIN_SCHEMAS:
            return
        names = [name for name in (node.get("catalog"), node["schema"]) if name]
        node["children"].insert(0, {"class": "COLUMN_REF", "type": "COLUMN_REF", "column_names": names})
        self.resolve(names)
        node["catalog"] = node["schema"] = ""


def iter_nodes(tree: Any) -> Iterator[_Node]:
    """Yield every expression node, parents first."""
    if isinstance(tree, dict):
        if "class" in tree:
            yield tree
        for value in tree.values():
            yield from iter_nodes(value)
    elif isinstance(tree, list):
        for value in tree:
            yield from iter_nodes(value)


def to_predicate(node: _Node, columns: ColumnResolver) -> Predicate:
    """Translate an expression node."""
    kind = node["type"]
    if kind in ("CONJUNCTION_AND", "CONJUNCTION_OR"):
        parts = tuple(to_predicate(child, columns) for child in node["children"])
        return And(parts) if kind == "CONJUNCTION_AND" else Or(parts)
    if kind == "OPERATOR_NOT":
        return Not(to_predicate(node["children"][0], columns))
    if kind in ("OPERATOR_IS_NULL", "OPERATOR_IS_NOT_NULL"):
        column = _column(node["children"][0], columns)
        if column is None:
            return Unknown()
        return IsNull(column) if kind == "OPERATOR_IS_NULL" else Not(IsNull(column))
    if kind == "COMPARE_BETWEEN":
        lower = _comparison(node["input"], ">=", node["lower"], columns)
        return And((lower, _comparison(node["input"], "<=", node["upper"], columns)))
    if kind in ("COMPARE_IN", "COMPARE_NOT_IN"):
        membership = _membership(node["children"], columns)
        return membership if kind == "COMPARE_IN" else Not(membership)
    if kind in _COMPARISONS:
        return _comparison(node["left"], _COMPARISONS[kind], node["right"], columns)
    if kind == "FUNCTION":
        return _function(node, columns)
    column = _column(node, columns)
    if column is not None and columns.schema.field(column).type == "bool":
        return Compare(column, "=", True)
    return Unknown()


def _function(node: _Node, columns: ColumnResolver) -> Predicate:
    """Translate LIKE and its relatives, and functions that ask for an element of a list."""
    column = _column(node["children"][0], columns) if len(node["children"]) == 2 else None
    if column is None:
        return Unknown()
    name, column_type = node["function_name"], columns.schema.field(column).type
    if name in _LIST_FUNCTIONS and _is_list(column_type):
        value = _constant(node["children"][1], column_type.value_type)
        return Unknown() if value is None or isinstance(value, date) else Contains(column, value)
    pattern = _constant(node["children"][1], column_type)
    if not isinstance(pattern, str) or not pattern:
        return Unknown()
    if name in _TEXT_FUNCTIONS:
        return Match(column, _TEXT_FUNCTIONS[name], pattern)
    return _like(column, name, pattern)


def _like(column: str, operator: str, pattern: str) -> Predicate:
    """Translate LIKE and NOT LIKE if the pattern has wildcards only at its ends."""
    text = pattern.removeprefix("%").removesuffix("%")
    starts, ends = pattern.startswith("%"), pattern.endswith("%")
    if operator not in ("~~", "!~~") or not text or set(text) & set("%_\\") or not (starts or ends):
        return Unknown()
    match = Match(column, "contains" if starts and ends else "suffix" if starts else "prefix", text)
    return Not(match) if operator == "!~~" else match


def _is_list(column_type: pa.DataType) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_list(column_type) or pa.types.is_large_list(column_type))


def _membership(children: list[_Node], columns: ColumnResolver) -> Predicate:
    column = _column(children[0], columns)
    if column is None:
        return Unknown()
    values = [_constant(child, columns.schema.field(column).type) for child in children[1:]]
    known = tuple(value for value in values if value is not None)
    return In(column, known) if len(known) == len(values) else Unknown()


def _comparison(left: _Node, op: str, right: _Node, columns: ColumnResolver) -> Predicate:
    """Translate a column compared with a constant, on either side, or a comparison of arithmetic."""
    for one, one_op, other in ((left, op, right), (right, MIRRORED[op], left)):
        column = _column(one, columns)
        value = None if column is None else _constant(other, columns.schema.field(column).type)
        if column is not None and value is not None:
            return Compare(column, one_op, value)
    return _compare_terms(left, op, right, columns) or Unknown()


def _column(node: _Node, columns: ColumnResolver) -> str | None:
    """Return the name of a top-level column; None for other nodes and for fields of structs."""
    if node["class"] != "COLUMN_REF" or len(node["column_names"]) != 1:
        return None
    return columns.resolve(node["column_names"])


def _constant(node: _Node, column_type: pa.DataType) -> Constant | None:
    """Return the constant in the column's type; None unless SQL's conversion is certain to be exact."""
    import pyarrow as pa

    time_type = _SQL_TIME_TYPES.get(str(column_type))
    if node["class"] == "CAST":
        target, node = node["cast_type"]["id"], node["child"]
        text = node.get("value", {}).get("value")
        if target == "BOOLEAN" and pa.types.is_boolean(column_type):
            return {"t": True, "f": False}.get(text)
        return _time_constant(node, time_type) if target == time_type else None
    if node["class"] != "CONSTANT" or node["value"]["is_null"]:
        return None
    if time_type is not None:
        return _time_constant(node, time_type)
    return _plain_constant(node["value"], column_type)


def _time_constant(node: _Node, time_type: str | None) -> Constant | None:
    """Return a date or time that is written as text, parsed by the SQL engine."""
    import duckdb

    if node["class"] != "CONSTANT" or node["value"]["type"]["id"] != "VARCHAR" or time_type is None:
        return None
    statement = f"SELECT CAST({quoted(node['value']['value'])} AS {time_type})"
    try:
        row = run_sealed(lambda cursor: cursor.execute(statement).fetchone())
    except (duckdb.Error, OverflowError, ValueError):
        return None
    value = row[0] if row else None
    return value if isinstance(value, date) else None


def _plain_constant(constant: _Node, column_type: pa.DataType) -> Constant | None:
    import pyarrow as pa

    sql_type, value = constant["type"]["id"], constant["value"]
    if sql_type in _SQL_INTEGERS and pa.types.is_integer(column_type) and column_type != pa.uint64():
        return int(value)
    if sql_type in (*_SQL_INTEGERS, "DECIMAL") and column_type in (pa.float64(), pa.float32()):
        scale = constant["type"]["type_info"]["scale"] if sql_type == "DECIMAL" else 0
        return _fraction(value, scale, is_single=column_type == pa.float32())
    if sql_type == "DOUBLE" and column_type in (pa.float64(), pa.float32()):
        return _double(value, is_single=column_type == pa.float32())
    if sql_type == "VARCHAR" and (pa.types.is_string(column_type) or pa.types.is_large_string(column_type)):
        return str(value)
    return None


def _fraction(digits: Any, scale: int, *, is_single: bool) -> float | None:
    """Return `digits` / 10^`scale`; None unless both are exact floats and single precision holds the result."""
    if not isinstance(digits, int) or abs(digits) > 2**53 or scale > 22:
        return None
    value = digits / 10**scale
    return value if not is_single or struct.unpack("f", struct.pack("f", value))[0] == value else None


def _double(value: Any, *, is_single: bool) -> float | None:
    """Return a finite DOUBLE; None if it is compared with a FLOAT that cannot hold it."""
    if not isinstance(value, int | float) or not math.isfinite(value):
        return None
    try:
        is_held = not is_single or struct.unpack("f", struct.pack("f", value))[0] == value
    except OverflowError:
        return None
    return float(value) if is_held else None


@dataclass(frozen=True, slots=True)
class _Operand:
    """A term and its Arrow type. A constant that is not a DOUBLE has neither yet: the other operand gives its type."""

    node: _Node
    term: Term | None = None
    type_name: str | None = None

    @property
    def has_column(self) -> bool:
        """The value differs from row to row: arithmetic of constants alone is not translated."""
        return isinstance(self.term, Column | Arithmetic)


def _compare_terms(left: _Node, op: str, right: _Node, columns: ColumnResolver) -> CompareTerms | None:
    """Translate a comparison of two terms, at least one of which has a column."""
    one, other = _operand(left, columns), _operand(right, columns)
    if one is None or other is None or not (one.has_column or other.has_column):
        return None
    type_names = {side.type_name for side in (one, other) if side.type_name is not None}
    # A comparison computes nothing, so narrow integers may be widened.
    type_name = "int64" if type_names and type_names <= _ARROW_INTEGERS else _common_type(type_names)
    terms = None if type_name is None else _as_terms(one, other, type_name)
    return None if type_name is None or terms is None else CompareTerms(terms[0], op, terms[1], type_name)


def _operand(node: _Node, columns: ColumnResolver, depth: int = _MAX_ARITHMETIC_DEPTH) -> _Operand | None:
    if node["class"] == "CONSTANT":
        value = node["value"]
        number = _double(value["value"], is_single=False) if value["type"]["id"] == "DOUBLE" else None
        return _Operand(node) if number is None else _Operand(node, Literal(number), "double")
    column = _column(node, columns)
    if column is not None:
        declared = str(columns.schema.field(column).type)
        return _Operand(node, Column(column), declared) if declared in _ARROW_NUMBERS else None
    is_arithmetic = node["class"] == "FUNCTION" and node["function_name"] in ("+", "-", "*")
    if not is_arithmetic or len(node["children"]) != 2 or depth == 0:
        return None
    left, right = (_operand(child, columns, depth - 1) for child in node["children"])
    if left is None or right is None or not (left.has_column or right.has_column):
        return None
    type_name = _common_type({side.type_name for side in (left, right) if side.type_name is not None})
    terms = None if type_name is None else _as_terms(left, right, type_name)
    if type_name is None or terms is None:
        return None
    return _Operand(node, Arithmetic(terms[0], node["function_name"], terms[1], type_name), type_name)


def _common_type(type_names: set[str]) -> str | None:
    """Return the Arrow type in which SQL computes with these types; None for types with rules of their own."""
    if "double" in type_names:
        return "double"
    if "float" in type_names:
        return "float"
    return "int64" if type_names == {"int64"} else None


def _as_terms(left: _Operand, right: _Operand, type_name: str) -> tuple[Term, Term] | None:
    one, other = _as_term(left, type_name), _as_term(right, type_name)
    return None if one is None or other is None else (one, other)


def _as_term(operand: _Operand, type_name: str) -> Term | None:
    import pyarrow as pa

    if operand.term is not None:
        return operand.term
    value = _constant(operand.node, pa.type_for_alias(type_name))
    return Literal(value) if isinstance(value, int | float) else None
