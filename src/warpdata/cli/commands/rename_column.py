"""`warp rename-column`: rename a column of a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from warpdata.cli.context import CliContext
from warpdata.cli.edit_report import EDIT_KEYS, EditRequest, edit_options, edit_table_option, pick_table, run_edit
from warpdata.cli.options import command, dataset_argument
from warpdata.cli.parameters import EntryType

if TYPE_CHECKING:
    from warpdata.datasets import Dataset
    from warpdata.edit import Edit

__all__ = ["rename_column"]


@command("rename-column", json_keys=EDIT_KEYS)
@dataset_argument()
@click.argument("column", type=EntryType("columns"), metavar="NAME")
@click.argument("new_name", metavar="NEW")
@edit_table_option
@edit_options
@click.pass_obj
def rename_column(cli: CliContext, /, dataset_id: str, column: str, new_name: str, **given: Any) -> None:
    """Rename a column of a table.

    The column keeps its place and its binding. No file is rewritten.

    \b
      warp rename-column acme/trips fare fare_usd
    """
    table = given.pop("table")

    def change(dataset: Dataset, edit: Edit) -> None:
        edit.rename_column(pick_table(dataset, table), column, new_name)

    run_edit(cli, EditRequest(dataset_id, **given), f"rename column {column} to {new_name}", change)
