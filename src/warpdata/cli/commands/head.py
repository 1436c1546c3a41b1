"""`warp head`: show the first rows of a table."""

from __future__ import annotations

import click

from warpdata.cli.commands.schema import column_document, table_bindings
from warpdata.cli.context import CliContext
from warpdata.cli.format import plain_rows
from warpdata.cli.options import address_argument, columns_option, command, filter_option, table_option
from warpdata.cli.output import note, print_json, print_rows

__all__ = ["head"]

_KEYS = {
    "dataset_id": "workspace/name",
    "version": "64 hex digits",
    "table": "name of the table",
    "columns": "list of {name, type, refers_to}, as in `warp schema`",
    "rows": "list of objects with values as in `warp stream --format jsonl`",
}


@command("head", json_keys=_KEYS, reads=True)
@address_argument()
@click.option("-n", "count", type=click.IntRange(0, 100_000), default=5, show_default=True, help="Number of rows.")
@table_option()
@columns_option()
@filter_option()
@click.pass_obj
def head(
    cli: CliContext,
    address: str,
    count: int,
    table: str | None,
    columns: tuple[str, ...],
    expression: str | None,
) -> None:
    """Show the first rows of a table.

    Reads little more than these rows. Long values are truncated, and columns that do not fit are named
    below the table. --columns selects columns; --json prints everything.
    """
    with cli.progress(f"Reading {address}"):
        opened = cli.open(address)
        source = opened.table(table).raw()
        name = source.name
        if columns:
            source = source.select(columns)
        if expression is not None:
            source = source.filter(expression)
        rows = source.head(count)
    bound = table_bindings(opened.manifest, name)
    if cli.as_json:
        print_json(
            {
                "dataset_id": opened.id,
                "version": opened.version,
                "table": name,
                "columns": [column_document(field, bound.get(field.name)) for field in rows.schema],
                "rows": [row for batch in rows.to_batches() for row in plain_rows(batch)],
            }
        )
        return
    print_rows(rows, {column: f"ref<{binding.ref_type}>" for column, binding in bound.items()})
    if not rows.num_rows:
        note("no rows" if expression is None else "no row matches the filter")
