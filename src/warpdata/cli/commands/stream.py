"""`warp stream`: write the rows of a table to stdout as JSON lines, an Arrow stream or CSV."""

from __future__ import annotations

import base64
import io
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import click

from warpdata.cli.context import CliContext
from warpdata.cli.format import plain_rows, to_json
from warpdata.cli.options import address_argument, columns_option, command, filter_option, table_option
from warpdata.cli.parameters import ShardType
from warpdata.cli.terminal import Sink, TerminalSink, data_sink, escape_json
from warpdata.primitives.arrow_text import plain_column

if TYPE_CHECKING:
    import pyarrow as pa

    from warpdata.kinds.tables import Table

__all__ = ["FORMATS", "WriteBatches", "stream"]


_FORMATS = ("jsonl", "arrow", "csv")
_ROWS_PER_WRITE = 4096


@dataclass(frozen=True, slots=True)
class _Request:
    address: str
    table: str | None
    columns: tuple[str, ...]
    expression: str | None
    batch_size: int
    shard: tuple[int, int] | str | None
    limit: int | None
    format_name: str


@command("stream", reads=True)
@address_argument()
@table_option()
@columns_option()
@filter_option()
@click.option(
    "--batch-size", type=click.IntRange(min=1), default=50_000, show_default=True, help="Rows per record batch."
)
@click.option(
    "--shard",
    type=ShardType(),
    metavar="auto|R/W",
    help="Read the part of rank R of W. auto takes both from the environment of the launcher.",
)
@click.option("--limit", type=click.IntRange(min=0), metavar="ROWS", help="Maximum number of rows.")
@click.option(
    "--format",
    "format_name",
    type=click.Choice(_FORMATS),
    default="jsonl",
    show_default=True,
    help="JSON lines, an Arrow IPC stream, or CSV with a header.",
)
@click.pass_obj
def stream(cli: CliContext, /, **given: Any) -> None:
    """Write the rows of a table to stdout.

    With --shard, the ranks together read every row exactly once. The Arrow stream keeps every type;
    pyarrow.ipc.open_stream reads it. In JSON lines and CSV, times are text, in UTC if they have a time
    zone; durations are integers of their unit; decimals are text; bytes are base64; NaN is null in JSON.
    Lists, maps and structs are JSON in a CSV cell. References are the paths of members.

    \b
      warp stream acme/trips --columns id,fare --limit 10
      warp stream acme/trips --format arrow --shard 0/4 > part.arrows
    """
    request = _Request(**given)
    if request.format_name == "arrow" and sys.stdout.isatty():
        raise click.UsageError("refusing to write an Arrow stream to a terminal; redirect the output")
    with cli.progress(f"Opening {request.address}"):
        table = _open_table(cli, request)
        schema = table.schema()
    write = FORMATS[request.format_name]
    with cli.progress(f"Streaming {request.address}", writes_data=True) as progress:
        batches = table.batches(request.batch_size, shard=request.shard, limit=request.limit)
        counted = progress.count_rows(batches, _expected_rows(table, request))
        write(counted, schema, data_sink())


def _open_table(cli: CliContext, request: _Request) -> Table:
    table = cli.open(request.address).table(request.table).raw()
    if request.columns:
        table = table.select(request.columns)
    return table if request.expression is None else table.filter(request.expression)


def _expected_rows(table: Table, request: _Request) -> int:
    """Return the number of rows, or 0 if it is unknown before reading."""
    if request.expression is not None or request.shard is not None:
        return 0
    return table.count() if request.limit is None else min(table.count(), request.limit)


WriteBatches: TypeAlias = Callable[["Iterable[pa.RecordBatch]", "pa.Schema", Sink], None]


def _write_arrow(batches: Iterable[pa.RecordBatch], schema: pa.Schema, sink: Sink) -> None:
    import pyarrow as pa

    encoded = io.BytesIO()
    writer = pa.ipc.new_stream(encoded, schema)
    for batch in batches:
        writer.write_batch(batch)
        _write_encoded(encoded, sink)
    writer.close()  # only on success: the end marker says that the stream is complete
    _write_encoded(encoded, sink)


def _write_jsonl(batches: Iterable[pa.RecordBatch], _schema: pa.Schema, sink: Sink) -> None:
    import msgspec

    encoder = msgspec.json.Encoder(enc_hook=str)
    for batch in batches:
        for start in range(0, batch.num_rows, _ROWS_PER_WRITE):
            encoded = encoder.encode_lines(plain_rows(batch.slice(start, _ROWS_PER_WRITE)))
            sink.write(escape_json(encoded) if isinstance(sink, TerminalSink) else encoded)
            sink.flush()


def _write_csv(batches: Iterable[pa.RecordBatch], schema: pa.Schema, sink: Sink) -> None:
    import pyarrow as pa
    from pyarrow import csv

    header = _csv_cells(pa.RecordBatch.from_pylist([], schema=schema)).schema
    encoded = io.BytesIO()
    writer = csv.CSVWriter(encoded, header)
    for batch in batches:
        writer.write_batch(_csv_cells(batch))
        _write_encoded(encoded, sink)
    writer.close()
    _write_encoded(encoded, sink)


def _write_encoded(encoded: io.BytesIO, sink: Sink) -> None:
    """Write the buffer to the sink and clear it.

    If Arrow wrote to a full pipe directly, Ctrl-C could not interrupt it.
    """
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


FORMATS: Mapping[str, WriteBatches] = dict(zip(_FORMATS, (_write_jsonl, _write_arrow, _write_csv), strict=True))
