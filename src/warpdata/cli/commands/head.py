"""`warp head`: the first rows of a table, laid out for the terminal."""

from __future__ import annotations

import click

from warpdata.cli.context import Invocation
from warpdata.cli.options import address_argument, columns_option, command, filter_option, table_option
from warpdata.cli.output import note, print_json
from warpdata.cli.row_table import print_rows
from warpdata.cli.values import plain_rows

__all__ = ["head"]

_KEYS = {
    "dataset_id": "workspace/name",
    "version": "64 hex digits",
    "table": "the table's name",
    "columns": "a list of {name, type}",
    "rows": "a list of objects, values as in `warp stream --format jsonl`",
}


@command("head", json_keys=_KEYS, reads=True)
@address_argument()
@click.option("-n", "count", type=click.IntRange(0, 100_000), default=5, show_default=True, help="How many rows.")
@table_option()
@columns_option()
@filter_option()
@click.pass_obj
def head(
    invocation: Invocation,
    address: str,
    count: int,
    table: str | None,
    columns: tuple[str, ...],
    expression: str | None,
) -> None:
    """Show the first rows of a table.

    Reads about as much as those rows take. Long values are cut and columns that do not fit are
    named below; --columns chooses, and --json shows everything.
    """
    with invocation.meter(f"Reading {address}"):
        opened = invocation.open(address)
        wanted = opened.table(table).raw()
        name = wanted.name
        if columns:
            wanted = wanted.select(columns)
        if expression is not None:
            wanted = wanted.filter(expression)
        rows = wanted.head(count)
    if invocation.as_json:
        print_json(
            {
                "dataset_id": opened.id,
                "version": opened.version,
                "table": name,
                "columns": [{"name": field.name, "type": str(field.type)} for field in rows.schema],
                "rows": [row for batch in rows.to_batches() for row in plain_rows(batch)],
            }
        )
        return
    print_rows(rows)
    if not rows.num_rows:
        note("no rows" if expression is None else "no row passes the filter")
