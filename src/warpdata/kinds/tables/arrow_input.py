"""Objects with rows, converted to Arrow batches.

Any object that speaks the Arrow C stream or array protocol works. Data frames and Hugging Face datasets have
conversions of their own. Libraries are recognized by their objects and never imported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from warpdata.errors import InvalidSourceError, WarpError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["ArrowRows", "convert", "read_arrow", "read_columns"]

ArrowRows: TypeAlias = "tuple[pa.Schema, Iterable[pa.RecordBatch]]"

_BATCH_ROWS = 1000


def read_arrow(source: Any, name: str) -> ArrowRows | None:
    """Return the rows of an object, or None if it is of no known kind. Streams are read while they are consumed.

    `InvalidSourceError` if the object cannot be converted. `name` is the table's, for messages.
    """
    import pyarrow as pa

    library = _library(source)
    if isinstance(source, pa.RecordBatch):
        return source.schema, [source]
    if isinstance(source, pa.Table):
        return source.schema, source.to_batches()
    if library == "datasets" and hasattr(source, "with_format"):
        return _read_hugging_face(source, name)
    if library == "polars" and hasattr(source, "collect"):
        source = convert(source.collect, name)
    if library == "polars" and hasattr(source, "to_arrow"):
        return _of_table(convert(source.to_arrow, name), name)
    if library == "pandas":
        return _of_table(convert(lambda: pa.table(source), name), name)
    if hasattr(source, "__arrow_c_stream__"):
        reader = convert(lambda: pa.RecordBatchReader.from_stream(source), name)
        return reader.schema, _iterate(reader, name)
    if hasattr(source, "__arrow_c_array__"):
        batch = convert(lambda: pa.record_batch(source), name)
        return batch.schema, [batch]
    return None


def read_columns(source: Mapping[Any, Any], name: str) -> pa.Table:
    """Convert a dict of columns."""
    import pyarrow as pa

    if _library(source) == "datasets":
        raise InvalidSourceError(
            f"table {name!r} was given {len(source)} splits of a Hugging Face dataset",
            hint=f"Pass one split: source[{next(iter(source), '…')!r}].",
        )
    return convert(lambda: pa.table(dict(source)), name)


def convert(make: Callable[[], Any], name: str) -> Any:
    """Call a conversion of another library. `InvalidSourceError` for whatever it raises."""
    try:
        return make()
    except WarpError:
        raise
    except Exception as error:
        raise InvalidSourceError(f"table {name!r} cannot be converted to Arrow: {error}") from error


def _library(source: object) -> str:
    return type(source).__module__.partition(".")[0]


def _of_table(table: Any, name: str) -> ArrowRows:
    import pyarrow as pa

    if not isinstance(table, pa.Table):
        raise InvalidSourceError(
            f"table {name!r} needs columns with names, and was given a single column", hint="Pass a data frame."
        )
    return table.schema, table.to_batches()


def _iterate(batches: Iterable[pa.RecordBatch], name: str) -> Iterator[pa.RecordBatch]:
    """Yield the batches of another library, with its errors typed."""
    stream = iter(batches)
    while True:
        batch = convert(lambda: next(stream, None), name)
        if batch is None:
            return
        yield batch


def _read_hugging_face(source: Any, name: str) -> ArrowRows:
    """Read a dataset of Hugging Face in its current order, with its selected rows."""

    def batches() -> Iterator[pa.RecordBatch]:
        tables = _iterate(source.with_format("arrow").iter(batch_size=_BATCH_ROWS), name)
        for table in tables:
            yield from table.to_batches()

    features = getattr(source, "features", None)
    if features is None:
        raise InvalidSourceError(
            f"table {name!r} was given a {type(source).__name__} without features", hint="Cast it to features first."
        )
    return convert(lambda: features.arrow_schema, name), batches()
