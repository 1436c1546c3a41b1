"""Filter trees as JSON documents, strictly read. Pure.

Implements "Document" and "Values" of docs/specs/filters.md.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import reprlib
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any, TypeAlias

from warpdata.errors import BadInputError, CorruptError, ErrorKind, LimitExceededError
from warpdata.limits import MAX_FILTER_DEPTH, MAX_FILTER_JSON_BYTES
from warpdata.primitives.strict_json import decode_json
from warpdata.query.clauses import near_clause, sample_clause, sql_text
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
    ValueTerm,
    VectorClause,
)
from warpdata.query.literals import Value, as_value

__all__ = ["filter_json", "node_json", "parse_filter_json"]

_COMPARISONS = ("=", "!=", "<", "<=", ">", ">=")
_ARITHMETIC = ("+", "-", "*", "/", "%")
_MATCHES = ("like", "starts_with", "ends_with")
_FORMAT = 1
_EXACT_INTEGER = 2**53
_MAX_DEPTH = 2 * MAX_FILTER_DEPTH + 8

_Document: TypeAlias = dict[str, Any]


def filter_json(node: FilterNode) -> str:
    """Return the JSON document of a filter: ASCII, and the same text for equal filters."""
    text = f'{{"format":{_FORMAT},"filter":{node_json(node)}}}'
    if len(text) > MAX_FILTER_JSON_BYTES:
        raise _too_large(len(text))
    return text


def parse_filter_json(text: str | bytes) -> FilterNode:
    """Parse a document. `BadInputError` names the place of the first thing that is wrong."""
    data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else bytes(text)
    if len(data) > MAX_FILTER_JSON_BYTES:
        raise _too_large(len(data))
    try:
        document = decode_json(data, "the filter", max_depth=_MAX_DEPTH)
    except CorruptError as error:
        raise BadInputError(str(error), kind=ErrorKind.INVALID_FILTER) from error
    fields = _Fields(document, "$", {"format", "filter"})
    number = fields.take("format")
    if type(number) is not int or number != _FORMAT:
        raise _invalid("$.format", f"{_FORMAT}", number)
    return _node(fields.take("filter"), "$.filter")


def node_json(node: FilterNode) -> str:
    """Return the JSON object of one node."""
    return json.dumps(_node_document(node), separators=(",", ":"), allow_nan=False)


def _node_document(node: FilterNode) -> _Document:
    """Return the JSON object of a node."""
    if isinstance(node, AllRows):
        return {"op": "all"}
    if isinstance(node, AllOf | AnyOf):
        return {
            "op": "and" if isinstance(node, AllOf) else "or",
            "parts": [_node_document(part) for part in node.parts],
        }
    if isinstance(node, Negation):
        return {"op": "not", "part": _node_document(node.part)}
    if isinstance(node, SqlText):
        return {"op": "sql", "text": node.text}
    if isinstance(node, TimeRange):
        return {"op": "time_range", "start": _value_json(node.start), "end": _value_json(node.end)}
    if isinstance(node, VectorClause):
        vector = list(node.vector)
        return {"op": "near", "column": node.column, "vector": vector, "k": node.k, "metric": node.metric}
    if isinstance(node, SampleClause):
        by = {} if node.by is None else {"by": node.by}
        return {"op": "sample", "count": node.count, **by, "seed": node.seed}
    return _test_document(node)


def _test_document(
    node: Comparison | Between | Membership | Containment | NullTest | TextMatch,
) -> _Document:
    if isinstance(node, Comparison):
        return {"op": node.op, "left": _term_json(node.left), "right": _term_json(node.right)}
    operand = _term_json(node.operand)
    if isinstance(node, Between):
        return {"op": "between", "operand": operand, "lower": _term_json(node.lower), "upper": _term_json(node.upper)}
    if isinstance(node, Membership):
        return {"op": "in", "operand": operand, "values": [_value_json(value) for value in node.values]}
    if isinstance(node, Containment):
        return {"op": "contains", "operand": operand, "value": _value_json(node.value.value)}
    if isinstance(node, NullTest):
        return {"op": "is_null", "operand": operand}
    return {"op": node.how, "operand": operand, "text": node.text}


def _term_json(term: FilterTerm) -> _Document:
    if isinstance(term, ColumnTerm):
        return {"column": list(term.path)}
    if isinstance(term, ValueTerm):
        return {"value": _value_json(term.value)}
    return {"op": term.op, "left": _term_json(term.left), "right": _term_json(term.right)}


def _value_json(value: Value | None) -> Any:
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return value if abs(value) <= _EXACT_INTEGER else {"int": str(value)}
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": repr(value)}
    if isinstance(value, bytes):
        return {"bytes": base64.b64encode(value).decode("ascii")}
    if isinstance(value, datetime):
        text = value.replace(tzinfo=None).isoformat()
        return {"timestamp": text if value.tzinfo is None else f"{text}Z"}
    if isinstance(value, date):
        return {"date": value.isoformat()}
    return {"decimal": format(value, "f")}


class _Fields:
    """The fields of one JSON object, each of which must be known."""

    def __init__(self, document: Any, path: str, known: set[str]) -> None:
        if not isinstance(document, dict):
            raise _invalid(path, "an object", document)
        unknown = sorted(document.keys() - known)
        if unknown:
            raise _invalid(path, f"an object with the fields {', '.join(sorted(known))}", unknown)
        self._document, self._path = document, path

    def take(self, name: str) -> Any:
        if name not in self._document:
            raise BadInputError(f"the filter has no field {name!r} at {self._path}", kind=ErrorKind.INVALID_FILTER)
        return self._document[name]

    def optional(self, name: str) -> Any:
        return self._document.get(name)

    def list(self, name: str) -> list[Any]:
        found = self.take(name)
        if not isinstance(found, list):
            raise _invalid(f"{self._path}.{name}", "a list", found)
        return found

    def text(self, name: str) -> str:
        found = self.take(name)
        if not isinstance(found, str):
            raise _invalid(f"{self._path}.{name}", "a text", found)
        return str(as_value(found))

    def term(self, name: str = "operand") -> FilterTerm:
        return _term(self.take(name), f"{self._path}.{name}")

    def value(self, name: str) -> Value:
        found = _value(self.take(name), f"{self._path}.{name}")
        if found is None:
            raise _invalid(f"{self._path}.{name}", "a value", found)
        return found

    def parts(self) -> tuple[FilterNode, ...]:
        return tuple(_node(part, f"{self._path}.parts[{at}]") for at, part in enumerate(self.list("parts")))

    def part(self) -> FilterNode:
        return _node(self.take("part"), f"{self._path}.part")

    def values(self) -> tuple[Value | None, ...]:
        return tuple(_value(value, f"{self._path}.values[{at}]") for at, value in enumerate(self.list("values")))

    def moment(self, name: str) -> datetime:
        found = self.value(name)
        if not isinstance(found, datetime):
            raise _invalid(f"{self._path}.{name}", "a timestamp", found)
        return found


def _comparison(fields: _Fields) -> FilterNode:
    return Comparison(fields.term("left"), fields.text("op"), fields.term("right"))


def _match(fields: _Fields) -> FilterNode:
    return TextMatch(fields.term(), fields.text("op"), fields.text("text"))


def _near(fields: _Fields) -> FilterNode:
    vector = [float(value) if type(value) is int else value for value in fields.list("vector")]
    return near_clause(fields.text("column"), vector, fields.take("k"), fields.text("metric"))


_OPERATORS: dict[str, tuple[set[str], Callable[[_Fields], FilterNode]]] = {
    "all": (set(), lambda _: AllRows()),
    "and": ({"parts"}, lambda fields: AllOf(fields.parts())),
    "or": ({"parts"}, lambda fields: AnyOf(fields.parts())),
    "not": ({"part"}, lambda fields: Negation(fields.part())),
    "between": (
        {"operand", "lower", "upper"},
        lambda fields: Between(fields.term(), fields.term("lower"), fields.term("upper")),
    ),
    "in": ({"operand", "values"}, lambda fields: Membership(fields.term(), fields.values())),
    "contains": ({"operand", "value"}, lambda fields: Containment(fields.term(), ValueTerm(fields.value("value")))),
    "is_null": ({"operand"}, lambda fields: NullTest(fields.term())),
    "sql": ({"text"}, lambda fields: sql_text(fields.text("text"))),
    "time_range": ({"start", "end"}, lambda fields: TimeRange(fields.moment("start"), fields.moment("end"))),
    "near": ({"column", "vector", "k", "metric"}, _near),
    "sample": (
        {"count", "by", "seed"},
        lambda fields: sample_clause(fields.take("count"), fields.optional("by"), fields.take("seed")),
    ),
    **dict.fromkeys(_COMPARISONS, ({"left", "right"}, _comparison)),
    **dict.fromkeys(_MATCHES, ({"operand", "text"}, _match)),
}
"""The fields of each operator beside `op`, and its parser."""


def _node(document: Any, path: str) -> FilterNode:
    op = document.get("op") if isinstance(document, dict) else None
    known, parse = _OPERATORS.get(op, (None, None)) if isinstance(op, str) else (None, None)
    if known is None or parse is None:
        raise _invalid(path, f"an object whose op is one of {', '.join(_OPERATORS)}", document)
    return parse(_Fields(document, path, {"op", *known}))


def _term(document: Any, path: str) -> FilterTerm:
    if isinstance(document, dict) and "column" in document:
        names = _Fields(document, path, {"column"}).list("column")
        if not names or not all(isinstance(name, str) for name in names):
            raise _invalid(f"{path}.column", "the names of a column and of fields inside it", names)
        return ColumnTerm(tuple(str(as_value(name)) for name in names))
    if isinstance(document, dict) and "value" in document:
        return ValueTerm(_Fields(document, path, {"value"}).value("value"))
    fields = _Fields(document, path, {"op", "left", "right"})
    if fields.take("op") not in _ARITHMETIC:
        raise _invalid(f"{path}.op", f"one of {' '.join(_ARITHMETIC)}", fields.take("op"))
    return ArithmeticTerm(fields.term("left"), fields.text("op"), fields.term("right"))


def _value(document: Any, path: str) -> Value | None:
    if document is None:
        return None
    value = document
    if isinstance(document, dict):
        kind, text = next(iter(document.items()), (None, None))
        if len(document) != 1 or kind not in _KINDS or not isinstance(text, str):
            raise _invalid(path, f"a value, or an object with one of {', '.join(_KINDS)}", document)
        try:
            value = _KINDS[kind](text)
        except (ValueError, InvalidOperation, binascii.Error) as error:
            raise _invalid(path, f"the text of a {kind}", text) from error
    if isinstance(value, list):
        raise _invalid(path, "a value", document)
    return as_value(value)


def _moment(text: str) -> datetime:
    naive = datetime.fromisoformat(text.removesuffix("Z"))
    if naive.tzinfo is not None:
        raise ValueError("another zone than UTC")
    return naive.replace(tzinfo=UTC) if text.endswith("Z") else naive


def _integer(text: str) -> int:
    if not text.removeprefix("-").isascii() or not text.removeprefix("-").isdigit() or len(text) > 40:
        raise ValueError("not an integer")
    return int(text)


def _odd_float(text: str) -> float:
    if text not in ("nan", "inf", "-inf"):
        raise ValueError("a finite number")
    return float(text)


_KINDS: dict[str, Callable[[str], Value]] = {
    "int": _integer,
    "float": _odd_float,
    "bytes": lambda text: base64.b64decode(text, validate=True),
    "date": date.fromisoformat,
    "timestamp": _moment,
    "decimal": Decimal,
}


def _invalid(path: str, expected: str, found: Any) -> BadInputError:
    return BadInputError(
        f"the filter must have {expected} at {path}, but has {reprlib.repr(found)}", kind=ErrorKind.INVALID_FILTER
    )


def _too_large(size_bytes: int) -> LimitExceededError:
    return LimitExceededError(
        f"the filter has {size_bytes:,} bytes of JSON; the limit is {MAX_FILTER_JSON_BYTES:,}",
        kind=ErrorKind.INVALID_FILTER,
    )
