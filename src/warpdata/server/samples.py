"""Pages of rows of one version, and statistics of columns.

A cursor names the version that the first page had, so that pages fit together while the branch moves on. Filters are
evaluated once for a version; later pages come from the selection.
"""

from __future__ import annotations

import base64
import json
from binascii import Error as Base64Error
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from warpdata.datasets import Dataset
from warpdata.errors import BadInputError, ColumnNotFoundError, ErrorKind
from warpdata.kinds.tables import Table
from warpdata.limits import MIB
from warpdata.primitives.hashing import is_digest, sha256_hex
from warpdata.repository.rows import RowSelection
from warpdata.server.cells import json_rows
from warpdata.server.image_classes import rows_with_class
from warpdata.server.service import Service
from warpdata.server.subsets import subset_rows

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

__all__ = [
    "MAX_PAGE_ROWS",
    "ColumnStatistics",
    "SamplePosition",
    "SampleQuery",
    "SampleRows",
    "describe_column",
    "describe_schema",
    "pinned_version",
    "read_page",
    "select_rows",
]

MAX_PAGE_ROWS = 1000
_MAX_PAGE_BYTES = 8 * MIB
_MAX_DECODED_BYTES = 64 * MIB
_PART_ROWS = 256
_MAX_CURSOR = 1024
_BINS = 20
_TOP_VALUES = 50
_EXACT_ROWS = 5_000_000


@dataclass(frozen=True, slots=True)
class SampleQuery:
    """The rows that a client asks for. The filter is an SQL expression."""

    table: str | None = None
    filter: str | None = None
    columns: tuple[str, ...] | None = None
    limit: int = 100
    cursor: str | None = None
    offset: int = 0
    class_name: str | None = None
    """Keeps the images of a collection that have an annotation of this class."""
    subsets: tuple[str, ...] = ()
    """Keeps the rows that are in all of these, which `subsets` explains."""


@dataclass(frozen=True, slots=True)
class SamplePosition:
    """The state of a paged read: a version, the question, and the number of rows that were delivered."""

    version: str
    question: str
    done: int

    def encode(self) -> str:
        text = json.dumps([self.version, self.question, self.done], separators=(",", ":"))
        return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")

    @staticmethod
    def decode(text: str) -> SamplePosition:
        """Parse a cursor, which a client may have changed: every value is checked."""
        try:
            version, question, done = json.loads(base64.b64decode(text + "=" * (-len(text) % 4), b"-_", validate=True))
        except (ValueError, Base64Error, TypeError, RecursionError):
            raise _bad_cursor() from None
        is_text = isinstance(version, str) and isinstance(question, str)
        if not is_text or not is_digest(version) or type(done) is not int or not 0 <= done < 2**53:
            raise _bad_cursor()
        return SamplePosition(version, question, done)


@dataclass(frozen=True, slots=True)
class SampleRows:
    """A page: rows with their numbers and ids, and the cursor of the next page."""

    table: str
    columns: list[dict[str, Any]]
    samples: list[dict[str, Any]]
    total: int
    next_cursor: str | None


def pinned_version(query: SampleQuery) -> str | None:
    """Return the version of the cursor; None for a first page."""
    if query.cursor is None:
        return None
    if len(query.cursor) > _MAX_CURSOR:
        raise _bad_cursor()
    return SamplePosition.decode(query.cursor).version


def read_page(service: Service, dataset: Dataset, query: SampleQuery) -> SampleRows:
    """Read one page of the rows that a filter keeps."""
    table = dataset.table(query.table)
    question = sha256_hex(json.dumps([table.name, query.filter, query.class_name, *query.subsets]).encode())[:16]
    position = SamplePosition(dataset.version, question, query.offset)
    if query.cursor is not None:
        position = SamplePosition.decode(query.cursor)
        if (position.version, position.question) != (dataset.version, question):
            raise BadInputError(
                "the cursor belongs to another version, table or filter",
                hint="Send the same table and filter with a cursor, or none to begin again.",
                kind=ErrorKind.TOKEN_MISMATCH,
            )
    kept = select_rows(service, dataset, table, query)
    numbers = kept.slice(position.done, min(position.done + query.limit, len(kept))).numbers
    shown = table.raw() if query.columns is None else table.raw().select(list(query.columns))
    samples = _read_rows(shown, numbers)
    done = position.done + len(samples)
    following = replace(position, done=done).encode() if done < len(kept) else None
    return SampleRows(table.name, describe_schema(dataset, shown), samples, len(kept), following)


def _read_rows(table: Table, numbers: NDArray[np.int64]) -> list[dict[str, Any]]:
    """Read rows in parts, until the page is full. The first row is always part of it."""
    take = table.taker(_MAX_DECODED_BYTES)
    samples: list[dict[str, Any]] = []
    page_bytes = decoded_bytes = 0
    for start in range(0, len(numbers), _PART_ROWS):
        part = numbers[start : start + _PART_ROWS]
        rows = take(part)
        decoded_bytes += rows.nbytes
        ids = [int(one) for located in table.locate(part) for one in located.ids]
        for number, sample_id, (values, cut) in zip(part.tolist(), ids, json_rows(rows), strict=True):
            page_bytes += _size(values)
            if samples and page_bytes > _MAX_PAGE_BYTES:
                return samples
            samples.append({"row": number, "id": sample_id, "values": values, "cut": cut})
        if decoded_bytes > _MAX_DECODED_BYTES:
            break
    return samples


def describe_schema(dataset: Dataset, table: Table) -> list[dict[str, Any]]:
    """Return name and type of each column, and for references the artifact that they lead to."""
    bound = {one.column: one for one in dataset.manifest.bindings if one.table == table.name}
    return [
        {
            "name": field.name,
            "type": str(field.type),
            "artifact": bound[field.name].artifact if field.name in bound else None,
            "refers_to": bound[field.name].ref_type if field.name in bound else None,
        }
        for field in table.raw().schema()
    ]


def select_rows(service: Service, dataset: Dataset, table: Table, query: SampleQuery) -> RowSelection:
    """Return the rows that a query keeps. The one place where the service evaluates filters."""
    kept = _filtered_rows(service, dataset, table, query.filter)
    if query.class_name is not None:
        kept = kept & rows_with_class(service, dataset, table, query.class_name)
    for text in query.subsets:
        kept = kept & subset_rows(service, dataset, table, text)
    return kept


def _filtered_rows(service: Service, dataset: Dataset, table: Table, expression: str | None) -> RowSelection:
    if not expression:
        return RowSelection.all_rows(table.unfiltered_count)
    key = (dataset.id, dataset.version, table.name, expression)
    found = service.selections.get(key)
    if found is None:
        found = table.filter(expression).select_rows()
        service.selections.put(key, found, 8 * len(found) + len(expression))
    return found


@dataclass(frozen=True, slots=True)
class ColumnStatistics:
    """What the values of a column are like. `is_sampled` tells that a part of the rows was read."""

    column: str
    type: str
    rows: int
    nulls: int
    distinct: int | None
    minimum: Any
    maximum: Any
    mean: float | None
    top: list[dict[str, Any]]
    histogram: list[dict[str, Any]]
    is_sampled: bool


def describe_column(service: Service, dataset: Dataset, query: SampleQuery, column: str) -> ColumnStatistics:
    """Return statistics of one column over the rows that a filter keeps. Computed once for a version."""
    table = dataset.table(query.table).raw()
    if column not in table.schema().names:
        raise ColumnNotFoundError(f"table {table.name!r} has no column {column!r}")
    key = (dataset.id, dataset.version, table.name, query.filter or "", query.class_name or "", *query.subsets, column)
    found = service.statistics.get(key)
    if not isinstance(found, ColumnStatistics):
        rows = table.select([column])
        if query.filter or query.class_name or query.subsets:
            rows = replace(rows, rows=select_rows(service, dataset, table, query))
        is_sampled = table.unfiltered_count > _EXACT_ROWS
        if is_sampled:
            rows = rows.sample(_EXACT_ROWS)
        found = _summarize(rows, column, is_sampled=is_sampled)
        service.statistics.put(key, found)
    return found


def _summarize(rows: Table, column: str, *, is_sampled: bool) -> ColumnStatistics:
    import pyarrow as pa
    import pyarrow.compute as pc

    values = pa.chunked_array([c for part in rows.row_groups() for c in part.column(0).chunks], rows.schema()[0].type)
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    kind, nulls = values.type, values.null_count
    is_number = (pa.types.is_integer(kind) or pa.types.is_floating(kind)) and not pa.types.is_float16(kind)
    is_plain = is_number or pa.types.is_boolean(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind)
    low = high = mean = distinct = None
    top: list[dict[str, Any]] = []
    histogram: list[dict[str, Any]] = []
    if is_number and len(values) > nulls:
        finite = values.filter(pc.is_finite(values)) if pa.types.is_floating(kind) else values.drop_null()
        if len(finite):
            bounds = pc.min_max(finite).as_py()
            low, high, mean = bounds["min"], bounds["max"], pc.mean(finite).as_py()
            histogram = _histogram(finite)
    if is_plain:
        counts = pc.value_counts(values.drop_null())
        distinct = len(counts)
        order = pc.array_sort_indices(counts.field(1), order="descending")[:_TOP_VALUES]
        chosen = json_rows(pa.table({"value": counts.field(0).take(order)}))
        top = [
            {"value": cell["value"], "count": count}
            for (cell, _), count in zip(chosen, counts.field(1).take(order).to_pylist(), strict=True)
        ]
    return ColumnStatistics(
        column, str(kind), len(values), nulls, distinct, low, high, mean, top, histogram, is_sampled
    )


def _histogram(values: pa.ChunkedArray) -> list[dict[str, Any]]:
    import numpy as np

    counts, edges = np.histogram(values.to_numpy().astype(np.float64), bins=_BINS)
    return [
        {"start": float(low), "end": float(high), "count": int(count)}
        for low, high, count in zip(edges[:-1], edges[1:], counts, strict=True)
    ]


def _size(values: dict[str, Any]) -> int:
    """Estimate the size of a row in JSON."""
    return sum(len(name) + (len(cell) if isinstance(cell, str) else len(repr(cell))) for name, cell in values.items())


def _bad_cursor() -> BadInputError:
    return BadInputError("the cursor is not one of this service", hint="Begin without a cursor.")
