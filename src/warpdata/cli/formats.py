"""Record batches as bytes on a pipe: Arrow IPC, JSON lines, CSV.

Arrow carries everything exactly. JSON lines and CSV write times out as text, in UTC where they have
a zone; durations as whole numbers of their unit; decimals as text; bytes in base64. CSV holds one
value a cell, so lists, maps and structs are JSON inside it.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, BinaryIO, TypeAlias

from warpdata.cli.values import plain_column, plain_rows, to_json

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["FORMATS", "WriteBatches"]

WriteBatches: TypeAlias = Callable[["Iterable[pa.RecordBatch]", "pa.Schema", BinaryIO], None]

_ROWS_AT_ONCE = 4096


def _write_arrow(batches: Iterable[pa.RecordBatch], schema: pa.Schema, sink: BinaryIO) -> None:
    """The IPC stream format: `pyarrow.ipc.open_stream` reads it."""
    import pyarrow as pa

    encoded = io.BytesIO()
    writer = pa.ipc.new_stream(encoded, schema)
    for batch in batches:
        writer.write_batch(batch)
        _pass_on(encoded, sink)
    writer.close()  # only when all went well: the end mark says that the stream is whole
    _pass_on(encoded, sink)


def _write_jsonl(batches: Iterable[pa.RecordBatch], _schema: pa.Schema, sink: BinaryIO) -> None:
    import msgspec

    encoder = msgspec.json.Encoder(enc_hook=str)
    for batch in batches:
        for start in range(0, batch.num_rows, _ROWS_AT_ONCE):
            sink.write(encoder.encode_lines(plain_rows(batch.slice(start, _ROWS_AT_ONCE))))
            sink.flush()


def _write_csv(batches: Iterable[pa.RecordBatch], schema: pa.Schema, sink: BinaryIO) -> None:
    import pyarrow as pa
    from pyarrow import csv

    header = _csv_cells(pa.RecordBatch.from_pylist([], schema=schema)).schema
    encoded = io.BytesIO()
    writer = csv.CSVWriter(encoded, header)
    for batch in batches:
        writer.write_batch(_csv_cells(batch))
        _pass_on(encoded, sink)
    writer.close()
    _pass_on(encoded, sink)


def _pass_on(encoded: io.BytesIO, sink: BinaryIO) -> None:
    """Arrow writing to the pipe itself could not be interrupted while nobody reads."""
    sink.write(encoded.getbuffer())
    sink.flush()
    encoded.seek(0)
    encoded.truncate()


def _csv_cells(batch: pa.RecordBatch) -> pa.RecordBatch:
    import pyarrow as pa

    columns = [_csv_column(plain_column(column)) for column in batch.columns]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _csv_column(column: pa.Array) -> pa.Array:
    import pyarrow as pa

    kind, types = column.type, pa.types
    is_number = types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)
    if is_number or types.is_boolean(kind) or types.is_null(kind) or kind in (pa.string(), pa.large_string()):
        return column
    if kind == pa.string_view():
        return column.cast(pa.large_string())
    return pa.array([_csv_cell(value) for value in column.to_pylist()], pa.large_string())


def _csv_cell(value: Any) -> str | None:
    if value is None:
        return None
    return base64.b64encode(value).decode() if isinstance(value, bytes) else to_json(value).decode()


FORMATS: Mapping[str, WriteBatches] = {"jsonl": _write_jsonl, "arrow": _write_arrow, "csv": _write_csv}
