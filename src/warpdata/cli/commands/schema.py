"""`warp schema`: show the columns of each table and their types."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from warpdata.cli.context import CliContext
from warpdata.cli.format import count_text, type_text
from warpdata.cli.options import address_argument, command, table_option
from warpdata.cli.output import print_json, print_line, print_table
from warpdata.repository.manifest import Binding, Manifest

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["column_document", "schema", "table_bindings"]

_KEYS = {
    "dataset_id": "workspace/name",
    "version": "64 hex digits",
    "tables": (
        "list of {name, columns}; a column is {name, type, nullable, refers_to}; type is the stored Arrow type; "
        "refers_to is {artifact, ref_type} if the column is bound to an artifact, else null"
    ),
}


@command("schema", json_keys=_KEYS, reads=True)
@address_argument()
@table_option("Show only this table. Default: all tables.")
@click.pass_obj
def schema(cli: CliContext, address: str, table: str | None) -> None:
    """Show the columns of each table and their types.

    Reads one Parquet footer per table and no rows. A bound column shows its artifact.
    """
    with cli.progress(f"Opening {address}"):
        opened = cli.open(address)
        names = opened.tables if table is None else (table,)
        schemas = {name: opened.table(name).raw().schema() for name in names}
    columns = {name: _columns(fields, table_bindings(opened.manifest, name)) for name, fields in schemas.items()}
    if cli.as_json:
        listed = [{"name": name, "columns": [_document(column) for column in found]} for name, found in columns.items()]
        print_json({"dataset_id": opened.id, "version": opened.version, "tables": listed})
        return
    for position, (name, found) in enumerate(columns.items()):
        if position:
            print_line()
        if len(columns) > 1:
            print_line(f"{name}: {count_text(len(found), 'column')}", style="bold")
        _print(found)


def table_bindings(manifest: Manifest, table: str) -> dict[str, Binding]:
    """Return the bindings of a table by column."""
    return {binding.column: binding for binding in manifest.bindings if binding.table == table}


def column_document(field: pa.Field, binding: Binding | None) -> dict[str, Any]:
    """Return the keys of a column that `head` and `schema` share. The type is the stored Arrow type."""
    refers_to = binding and {"artifact": binding.artifact, "ref_type": binding.ref_type}
    return {"name": field.name, "type": str(field.type), "refers_to": refers_to}


def _columns(fields: pa.Schema, bound: Mapping[str, Binding]) -> list[_Column]:
    return [_Column(field, bound.get(field.name)) for field in fields]


@dataclass(frozen=True, slots=True)
class _Column:
    field: pa.Field
    binding: Binding | None

    def type_text(self) -> str:
        binding = self.binding
        return type_text(self.field.type) if binding is None else f"ref<{binding.ref_type}> → {binding.artifact}"


def _document(column: _Column) -> dict[str, Any]:
    return {**column_document(column.field, column.binding), "nullable": column.field.nullable}


def _print(columns: list[_Column]) -> None:
    """Print the columns. The third column appears only if a column is not nullable."""
    rows = [[each.field.name, each.type_text(), "" if each.field.nullable else "not null"] for each in columns]
    shown = 2 if all(each.field.nullable for each in columns) else 3
    print_table(("column", "type", "")[:shown], (row[:shown] for row in rows))
