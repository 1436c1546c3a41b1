"""`warp drop-column`: drop a column of a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from warpdata.cli.context import CliContext
from warpdata.cli.edit_report import (
    EDIT_KEYS,
    EditRequest,
    edit_options,
    edit_table_option,
    pick_table,
    run_edit,
    yes_option,
)
from warpdata.cli.format import count_text, type_text
from warpdata.cli.options import command, dataset_argument
from warpdata.cli.parameters import EntryType

if TYPE_CHECKING:
    from warpdata.datasets import Dataset
    from warpdata.edit import Edit

__all__ = ["drop_column"]


@command("drop-column", json_keys=EDIT_KEYS)
@dataset_argument()
@click.argument("column", type=EntryType("columns"), metavar="NAME")
@edit_table_option
@edit_options
@yes_option
@click.pass_obj
def drop_column(cli: CliContext, /, dataset_id: str, column: str, table: str | None, **given: Any) -> None:
    """Drop a column of a table.

    Asks for confirmation; without a terminal, --yes is required. No file is rewritten, and earlier versions keep the
    column.

    \b
      warp drop-column acme/trips tmp
    """

    def change(dataset: Dataset, edit: Edit) -> str:
        name = pick_table(dataset, table)
        found = dataset.table(name)
        edit.drop_column(name, column)
        kind = type_text(found.schema().field(column).type)
        return f"Drop column {column} ({kind}) of {count_text(found.count(), 'row')} of table {name}?"

    run_edit(cli, EditRequest(dataset_id, **given), f"drop column {column}", change)
