"""`warp schema`: the columns of each table and their types."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from warpdata.cli.figures import count_text
from warpdata.cli.invocation import Invocation
from warpdata.cli.options import address_argument, command, table_option
from warpdata.cli.output import print_json, print_line, print_table
from warpdata.cli.values import type_text

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["schema"]

_KEYS = {
    "dataset_id": "workspace/name",
    "version": "64 hex digits",
    "tables": "a list of {name, columns}; a column is {name, type, nullable}, its type spelled as Arrow does",
}


@command("schema", json_keys=_KEYS)
@address_argument()
@table_option("Only this table; all of them by default.")
@click.pass_obj
def schema(invocation: Invocation, address: str, table: str | None) -> None:
    """Show the columns of each table and their types.

    Reads one footer a table, no rows.
    """
    with invocation.meter(f"Opening {address}"):
        opened = invocation.open(address)
        names = opened.tables if table is None else (table,)
        schemas = {name: opened.table(name).schema() for name in names}
    if invocation.as_json:
        listed = [{"name": name, "columns": _columns(fields)} for name, fields in schemas.items()]
        print_json({"dataset_id": opened.id, "version": opened.version, "tables": listed})
        return
    for position, (name, fields) in enumerate(schemas.items()):
        if position:
            print_line()
        if len(schemas) > 1:
            print_line(f"{name}: {count_text(len(fields), 'column')}", style="bold")
        _print(fields)


def _print(fields: pa.Schema) -> None:
    """Whether a column may be null is said only where one may not."""
    rows = [[field.name, type_text(field.type), "" if field.nullable else "never null"] for field in fields]
    shown = 2 if all(field.nullable for field in fields) else 3
    print_table(("column", "type", "")[:shown], (row[:shown] for row in rows))


def _columns(fields: pa.Schema) -> list[dict[str, Any]]:
    return [{"name": field.name, "type": str(field.type), "nullable": field.nullable} for field in fields]
