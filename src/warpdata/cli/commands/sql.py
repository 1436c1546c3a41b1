"""`warp sql`: run an SQL query over published tables."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

import warpdata
from warpdata.cli.context import CliContext
from warpdata.cli.format import plain_rows, type_text
from warpdata.cli.options import command
from warpdata.cli.output import note, print_json, print_rows
from warpdata.cli.parameters import SizeType

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["sql"]

_KEYS = {
    "columns": "list of {name, type}",
    "rows": "list of objects with values as in `warp stream --format jsonl`",
    "truncated": "true if the query has more rows than -n",
}


@command("sql", json_keys=_KEYS, reads=True)
@click.argument("query", metavar="QUERY")
@click.option("-n", "count", type=click.IntRange(min=0), default=100, show_default=True, help="Most rows to show.")
@click.option("-p", "--parameter", "parameters", multiple=True, metavar="[NAME=]VALUE", help="Value of ? or $NAME.")
@click.option("--memory-limit", type=SizeType(), metavar="SIZE", help="Fail beyond this memory. Default: 2GiB.")
@click.pass_obj
def sql(cli: CliContext, query: str, count: int, parameters: tuple[str, ...], memory_limit: int | None) -> None:
    """Run an SQL query over published tables.

    Table names are addresses in quotes: 'acme/trips@v1' is the only table or the one called "main", and
    'acme/trips@v1/zones' is another table. The query is one SELECT in DuckDB's language. It reads published tables
    and nothing else: no files and no network. "-" reads the query from stdin. Values of -p are text.

    \b
      warp sql "SELECT zone, count(*) FROM 'acme/trips@v1' GROUP BY 1"
      warp sql "FROM 'acme/trips' WHERE zone = ?" -p Soho
    """
    text = sys.stdin.read() if query == "-" else query
    with cli.progress("Running the query"):
        reader = warpdata.sql_reader(
            text, _values(parameters), store=cli.store, mode=cli.mode, memory_limit=memory_limit
        )
        rows, is_truncated = _first_rows(reader, count)
    if cli.as_json:
        columns = [{"name": field.name, "type": type_text(field.type)} for field in rows.schema]
        listed = [row for batch in rows.to_batches() for row in plain_rows(batch)]
        print_json({"columns": columns, "rows": listed, "truncated": is_truncated})
        return
    print_rows(rows)
    if is_truncated:
        note(f"more rows exist; use -n to show more than {count:,}")


def _first_rows(reader: pa.RecordBatchReader, count: int) -> tuple[pa.Table, bool]:
    import pyarrow as pa

    batches, row_count = [], 0
    for batch in reader:
        batches.append(batch)
        row_count += batch.num_rows
        if row_count > count:
            break
    reader.close()
    return pa.Table.from_batches(batches, reader.schema).slice(0, count), row_count > count


def _values(given: tuple[str, ...]) -> list[object] | dict[str, object] | None:
    """Return values by name if all have one, or else by position."""
    pairs = [value.partition("=") for value in given]
    if given and all(name.isidentifier() and equals for name, equals, _ in pairs):
        return {name: value for name, _, value in pairs}
    return list(given) or None
