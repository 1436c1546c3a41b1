"""`warp stream`: the rows of a table on stdout, for other programs to read."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import click

from warpdata.cli.context import Invocation
from warpdata.cli.formats import FORMATS
from warpdata.cli.options import address_argument, columns_option, command, filter_option, table_option
from warpdata.cli.parameters import ShardType
from warpdata.kinds.tables import Table

__all__ = ["stream"]


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
    "--batch-size", type=click.IntRange(min=1), default=50_000, show_default=True, help="Rows in a record batch."
)
@click.option(
    "--shard",
    type=ShardType(),
    metavar="auto|R/W",
    help="Only the part of rank R of W; auto asks the launcher's environment.",
)
@click.option("--limit", type=click.IntRange(min=0), metavar="ROWS", help="Stop after this many rows.")
@click.option(
    "--format",
    "format_name",
    type=click.Choice(list(FORMATS)),
    default="jsonl",
    show_default=True,
    help="JSON lines, an Arrow IPC stream, or CSV with a header.",
)
@click.pass_obj
def stream(invocation: Invocation, /, **given: Any) -> None:
    """Write the rows of a table to stdout.

    Over all ranks of --shard every row comes exactly once. The Arrow stream keeps every type and can
    be read with pyarrow.ipc.open_stream. In JSON lines and CSV times are text, in UTC where they have
    a zone; durations are whole numbers of their unit, decimals are text, bytes are base64, and NaN is
    null in JSON. References are written as they are stored: as the paths of members.

    \b
      warp stream acme/trips --columns id,fare --limit 10
      warp stream acme/trips --format arrow --shard 0/4 > part.arrows
    """
    request = _Request(**given)
    if request.format_name == "arrow" and sys.stdout.isatty():
        raise click.UsageError("an Arrow stream is not for a terminal; send it to a file or a program")
    with invocation.meter(f"Opening {request.address}"):
        wanted = _wanted(invocation, request)
        schema = wanted.schema()
    write = FORMATS[request.format_name]
    with invocation.meter(f"Streaming {request.address}", beside_data=True) as meter:
        batches = wanted.batches(request.batch_size, shard=request.shard, limit=request.limit)
        counted = meter.count_rows(batches, _expected_rows(wanted, request))
        write(counted, schema, sys.stdout.buffer)


def _wanted(invocation: Invocation, request: _Request) -> Table:
    wanted = invocation.open(request.address).table(request.table).raw()
    if request.columns:
        wanted = wanted.select(request.columns)
    return wanted if request.expression is None else wanted.filter(request.expression)


def _expected_rows(wanted: Table, request: _Request) -> int:
    """0 where only reading would tell."""
    if request.expression is not None or request.shard is not None:
        return 0
    return wanted.count() if request.limit is None else min(wanted.count(), request.limit)
