"""A search request: the arguments of `Dataset.search`, checked before anything but a schema is read."""

from __future__ import annotations

import reprlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from warpdata.errors import BadInputError, SchemaMismatchError
from warpdata.formats.search import MAX_LENGTH, METRICS, Metric, TextQuery, VectorQuery
from warpdata.kinds.tables import check_column_names, check_columns

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

__all__ = [
    "ID_COLUMN",
    "SCORE_COLUMN",
    "NearClause",
    "TextClause",
    "Vector",
    "check_count",
    "check_metric",
    "check_vector_column",
    "is_vector",
    "output_columns",
    "parse_near",
    "parse_text",
    "vector_size",
]

Vector: TypeAlias = "Sequence[float] | NDArray[Any]"
"""A list of numbers, or an array or tensor with one axis."""

SCORE_COLUMN, ID_COLUMN = "_score", "_id"


@dataclass(frozen=True)
class NearClause:
    """A column of vectors, and the vector to find others near to."""

    column: str
    query: VectorQuery


@dataclass(frozen=True)
class TextClause:
    """A column of texts, and the words to look for."""

    column: str
    query: TextQuery


def parse_text(text: str, column: str | None, schema: pa.Schema) -> TextClause:
    """Check `text` and `column` against the schema of the table."""
    texts = [field.name for field in schema if is_text(field.type)]
    if column is None:
        raise BadInputError("a search for words needs a column", hint=f"Pass column=…, one of {reprlib.repr(texts)}.")
    check_columns([column], schema.names)
    if column not in texts:
        raise SchemaMismatchError(f"column {column!r} is {schema.field(column).type}, and not text")
    query = TextQuery.parse(text)
    if not query.words:
        raise BadInputError(f"the query {reprlib.repr(text)} has no words", hint="Words are letters and digits.")
    return TextClause(column, query)


def is_text(kind: pa.DataType) -> bool:
    """Return whether a column of this type has texts."""
    import pyarrow as pa

    plain = kind.value_type if pa.types.is_dictionary(kind) else kind
    return plain in (pa.string(), pa.large_string(), pa.string_view())


def parse_near(near: object, metric: str, schema: pa.Schema) -> NearClause:
    """Check `near=(column, vector)` against the schema of the table."""
    if not isinstance(near, tuple | list) or len(near) != 2 or not isinstance(near[0], str):
        raise BadInputError(f"near is a pair of a column and a vector, not {reprlib.repr(near)}")
    chosen = check_metric(metric)
    column, given = near
    check_columns([column], schema.names)
    size = vector_size(schema, column)
    vector = _parse_vector(given)
    if len(vector) != size:
        raise BadInputError(
            f"the query vector has {len(vector)} numbers; column {column!r} has vectors of {size}",
            hint="Embed the query with the model that made the column.",
        )
    query = VectorQuery(vector, chosen)
    if chosen == "cosine" and not query.length:
        raise BadInputError("the query vector is zero, which has no cosine", hint="Pass metric='l2' or 'dot'.")
    return NearClause(column, query)


def check_metric(metric: str) -> Metric:
    """Return the metric; `BadInputError` for an unknown one."""
    for known in METRICS:
        if metric == known:
            return known
    raise BadInputError(f"metric={metric!r} is none of {', '.join(METRICS)}")


def vector_size(schema: pa.Schema, column: str) -> int:
    """Return the size of the vectors of a column. `SchemaMismatchError` if it is no column of vectors."""
    kind = schema.field(column).type
    if not is_vector(kind):
        raise SchemaMismatchError(
            f"column {column!r} is {kind}, and not a fixed-size list of floating-point numbers",
            hint="A column of vectors has the Arrow type fixed_size_list<float>[n].",
        )
    return int(kind.list_size)


def check_vector_column(schema: pa.Schema, column: str) -> int:
    """Return the size of the vectors of a column; an error if the table has no such column of vectors."""
    check_columns([column], schema.names)
    return vector_size(schema, column)


def is_vector(kind: pa.DataType) -> bool:
    """Return whether a column of this type has vectors."""
    import pyarrow as pa

    return bool(pa.types.is_fixed_size_list(kind) and pa.types.is_floating(kind.value_type) and kind.list_size > 0)


def _parse_vector(given: Any) -> NDArray[np.float64]:
    to_list = getattr(given, "to_pylist", None) or getattr(given, "as_py", None)
    try:
        found = np.asarray(to_list() if to_list is not None else given)
    except (TypeError, ValueError, RuntimeError) as error:
        raise BadInputError(f"the query vector is not a list of numbers: {error}") from error
    if found.ndim != 1 or found.dtype.kind not in "fiu":
        raise BadInputError(
            f"the query vector is one list of numbers, not an array of shape {found.shape} and type {found.dtype}"
        )
    vector = found.astype(np.float64)
    bad = np.flatnonzero(~np.isfinite(vector))
    if len(bad):
        raise BadInputError(f"the query vector has {vector[bad[0]]} at position {bad[0]}, which has no distance")
    if float(np.abs(vector).max(initial=0.0)) * np.sqrt(len(vector)) > MAX_LENGTH:
        raise BadInputError(f"the query vector is longer than {MAX_LENGTH:g}", hint="Normalise it.")
    return vector


def check_count(k: int) -> int:
    """Return `k`; `BadInputError` unless it is zero or positive."""
    if k < 0:
        raise BadInputError(f"k={k} is negative", hint="Pass the number of rows to find, such as k=10.")
    return int(k)


def output_columns(columns: Sequence[str] | str | None, schema: pa.Schema) -> list[str]:
    """Return the columns of the answer. None means all but vectors; an empty list means score and id alone."""
    import pyarrow as pa

    reserved = {SCORE_COLUMN, ID_COLUMN}
    if columns is None:
        return [
            field.name for field in schema if field.name not in reserved and not pa.types.is_fixed_size_list(field.type)
        ]
    listed = [] if not isinstance(columns, str) and not list(columns) else check_column_names(columns)
    taken = reserved & set(listed)
    if taken:
        raise BadInputError(
            f"the answer has a column {sorted(taken)[0]!r} of its own", hint="Rename the column of the table."
        )
    return check_columns(listed, schema.names)
