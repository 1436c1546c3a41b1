"""`warp schema`: the columns of each table and their types."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from warpdata.cli.context import Invocation
from warpdata.cli.format import count_text
from warpdata.cli.options import address_argument, command, table_option
from warpdata.cli.output import print_json, print_line, print_table
from warpdata.cli.values import type_text
from warpdata.repository.manifest import Binding

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["schema"]

_KEYS = {
    "dataset_id": "workspace/name",
    "version": "64 hex digits",
    "tables": (
        "a list of {name, columns}; a column is {name, type, nullable, refers_to}, its stored type spelled as Arrow "
        "does, and refers_to {artifact, ref_type} where the column is bound to one, else null"
    ),
}


@command("schema", json_keys=_KEYS, reads=True)
@address_argument()
@table_option("Only this table; all of them by default.")
@click.pass_obj
def schema(invocation: Invocation, address: str, table: str | None) -> None:
    """Show the columns of each table and their types.

    Reads one footer a table, no rows. A column that is bound to an artifact shows what it refers to.
    """
    with invocation.meter(f"Opening {address}"):
        opened = invocation.open(address)
        names = opened.tables if table is None else (table,)
        schemas = {name: opened.table(name).raw().schema() for name in names}
    bound = {(binding.table, binding.column): binding for binding in opened.manifest.bindings}
    columns = {
        name: [_Column(field, bound.get((name, field.name))) for field in fields] for name, fields in schemas.items()
    }
    if invocation.as_json:
        listed = [{"name": name, "columns": [column.document() for column in found]} for name, found in columns.items()]
        print_json({"dataset_id": opened.id, "version": opened.version, "tables": listed})
        return
    for position, (name, found) in enumerate(columns.items()):
        if position:
            print_line()
        if len(columns) > 1:
            print_line(f"{name}: {count_text(len(found), 'column')}", style="bold")
        _print(found)


@dataclass(frozen=True, slots=True)
class _Column:
    field: pa.Field
    binding: Binding | None

    def document(self) -> dict[str, Any]:
        at = self.binding
        return {
            "name": self.field.name,
            "type": str(self.field.type),
            "nullable": self.field.nullable,
            "refers_to": at and {"artifact": at.artifact, "ref_type": at.ref_type},
        }

    def type_text(self) -> str:
        at = self.binding
        return type_text(self.field.type) if at is None else f"ref<{at.ref_type}> → {at.artifact}"


def _print(columns: list[_Column]) -> None:
    """Whether a column may be null is said only where one may not."""
    rows = [[each.field.name, each.type_text(), "" if each.field.nullable else "never null"] for each in columns]
    shown = 2 if all(each.field.nullable for each in columns) else 3
    print_table(("column", "type", "")[:shown], (row[:shown] for row in rows))
