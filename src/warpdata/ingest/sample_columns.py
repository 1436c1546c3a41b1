"""Samples that are stored as bytes, field after field, become Arrow batches. Shared by MDS and LitData.

A `SampleColumn` knows how to decode one field. Pickled fields have no decoder here: reading data never runs code.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from warpdata.errors import InvalidSourceError, UnsupportedError
from warpdata.formats.media import raw_to_png
from warpdata.ingest.foreign_table import ColumnRule, MediaColumn, PlainColumn
from warpdata.ingest.source_files import source_errors
from warpdata.limits import MAX_FOREIGN_EMPTY_LISTS, MIB

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    Array = np.ndarray[Any, Any]

__all__ = [
    "SampleColumn",
    "column_rules",
    "column_schema",
    "decode_array",
    "decode_list",
    "decode_raw_image",
    "json_text",
    "refuse_pickle",
    "resolve_types",
    "sample_batches",
]

_BATCH_ROWS = 1024
_BATCH_BYTES = 16 * MIB
_MAX_DIMENSIONS = 32


@dataclass(frozen=True, slots=True)
class SampleColumn:
    """A field of every sample. With `arrow_type` None, the first sample decides.

    `decode` returns a Python value, an array, or for media the content of a file. `how` describes a value that takes
    another form.
    """

    name: str
    arrow_type: pa.DataType | None
    decode: Callable[[memoryview], Any]
    ref_type: str | None = None
    how: str = ""


def refuse_pickle(where: str | Path, column: str, encoding: str) -> UnsupportedError:
    """Return the error for a field whose decoding could run code."""
    return UnsupportedError(
        f"{where}: column {column!r} has encoding {encoding!r}, which is pickled: reading it could run any code",
        hint="Write the dataset again with the column as json, ndarray or bytes.",
    )


def column_schema(columns: Sequence[SampleColumn]) -> pa.Schema:
    """Return the schema of the batches. Contents of media are bytes."""
    import pyarrow as pa

    return pa.schema([(column.name, pa.binary() if column.ref_type else column.arrow_type) for column in columns])


def column_rules(columns: Sequence[SampleColumn], schema: pa.Schema) -> dict[str, ColumnRule]:
    rules: dict[str, ColumnRule] = {}
    for column in columns:
        if column.ref_type is not None:
            rules[column.name] = MediaColumn(column.ref_type, how=column.how, is_changed=bool(column.how))
        elif column.how:
            rules[column.name] = PlainColumn((schema.field(column.name),), None, column.how, is_changed=True)
    return rules


def resolve_types(
    columns: Sequence[SampleColumn], first: tuple[str, Sequence[memoryview]] | None
) -> list[SampleColumn]:
    """Give array columns the type of the array in the first sample, which comes with its place.

    Without a sample, their type is null.
    """
    import pyarrow as pa

    resolved = []
    for position, column in enumerate(columns):
        if column.arrow_type is not None or column.ref_type is not None:
            resolved.append(column)
            continue
        arrow_type = pa.null()
        if first is not None:
            place, fields = first
            with source_errors(f"{place}, column {column.name!r}"):
                arrow_type = _array_type(column.decode(fields[position]), column.name)
        resolved.append(replace(column, arrow_type=arrow_type))
    return resolved


def sample_batches(
    samples: Iterable[tuple[str, Sequence[memoryview]]], columns: Sequence[SampleColumn]
) -> Iterator[pa.RecordBatch]:
    """Decode samples into batches of bounded size. Each sample comes with its place, for messages."""
    schema = column_schema(columns)
    cells: list[list[Any]] = [[] for _ in columns]
    held_bytes = 0
    place = ""
    for place, fields in samples:
        for column, values, data in zip(columns, cells, fields, strict=True):
            with source_errors(f"{place}, column {column.name!r}"):
                values.append(_checked(column, column.decode(data)))
            held_bytes += len(data)
        if cells and (len(cells[0]) >= _BATCH_ROWS or held_bytes >= _BATCH_BYTES):
            yield _batch(cells, schema, place)
            cells, held_bytes = [[] for _ in columns], 0
    if cells and cells[0]:
        yield _batch(cells, schema, place)


def _batch(cells: Sequence[list[Any]], schema: pa.Schema, place: str) -> pa.RecordBatch:
    import pyarrow as pa

    arrays = []
    for field, values in zip(schema, cells, strict=True):
        try:
            arrays.append(_lists(values) if hasattr(values[0], "dtype") else pa.array(values, field.type))
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise InvalidSourceError(f"column {field.name!r}, samples up to {place}: {error}") from error
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _lists(arrays: Sequence[Array]) -> pa.Array:
    """Return arrays of one rank and type as nested lists, without a Python object for each element."""
    import numpy as np
    import pyarrow as pa

    values = pa.array(np.concatenate([array.reshape(-1) for array in arrays]))
    for depth in reversed(range(arrays[0].ndim)):
        counts = [math.prod(array.shape[:depth]) for array in arrays]
        sizes = np.repeat([array.shape[depth] for array in arrays], counts)
        offsets = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
        values = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values)
    return values


def _checked(column: SampleColumn, value: Any) -> Any:
    """Return the value for Arrow. An array must have the type of the column: Arrow would convert its numbers."""
    if not hasattr(value, "dtype"):
        return value
    found = _array_type(value, column.name)
    if found != column.arrow_type:
        raise ValueError(f"the array has type {found}, and earlier ones have {column.arrow_type}")
    return value if value.ndim else value.item()


def _array_type(value: Array, name: str) -> pa.DataType:
    import numpy as np
    import pyarrow as pa

    if value.dtype.kind not in "biuf" or value.dtype.itemsize > np.dtype(np.float64).itemsize:
        raise UnsupportedError(f"column {name!r} has arrays of {value.dtype}, which tables cannot hold")
    arrow_type = pa.from_numpy_dtype(value.dtype)
    for _ in value.shape:
        arrow_type = pa.list_(arrow_type)
    return arrow_type


def decode_array(data: memoryview, dtype: str, shape: Sequence[int] | None) -> Array:
    """Return an array over the bytes. `ValueError` if they do not fill the shape."""
    import numpy as np

    if shape is not None and len(shape) > _MAX_DIMENSIONS:
        raise ValueError(f"{len(shape)} dimensions are more than {_MAX_DIMENSIONS}")
    flat = np.frombuffer(data, np.dtype(dtype).newbyteorder("<"))
    if shape is None:
        return flat
    if min(shape, default=0) < 0:
        raise ValueError(f"the shape {tuple(shape)} has a negative size")
    if 0 in shape and math.prod(shape[: shape.index(0)]) > MAX_FOREIGN_EMPTY_LISTS:
        raise ValueError(f"the shape {tuple(shape)} has more than {MAX_FOREIGN_EMPTY_LISTS:,} empty lists")
    return flat.reshape(tuple(shape))


def decode_list(data: memoryview, offset: int) -> list[bytes]:
    """Return the parts of a list: a count at `offset`, their sizes, then their bytes, all counts of 32 bits."""
    (count,) = struct.unpack_from("<I", data, offset)
    start = offset + 4 + 4 * count
    sizes = struct.unpack_from(f"<{count}I", data, offset + 4)
    if start + sum(sizes) != len(data):
        raise ValueError(f"{count} parts have {sum(sizes)} bytes, and {len(data) - start} are there")
    parts = []
    for size in sizes:
        parts.append(bytes(data[start : start + size]))
        start += size
    return parts


def decode_raw_image(data: memoryview) -> bytes:
    """Return uncompressed pixels after a header of width, height and mode as PNG."""
    width, height, mode_bytes = struct.unpack_from("<III", data)
    mode = bytes(data[12 : 12 + mode_bytes]).decode("ascii")
    return raw_to_png(mode, (width, height), data[12 + mode_bytes :])


def json_text(value: Any) -> str:
    """Return a value as JSON text, with keys in their order."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
