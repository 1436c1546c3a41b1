"""`warp cast`: change the type of a column."""

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

__all__ = ["cast"]


@command("cast", json_keys=EDIT_KEYS)
@dataset_argument()
@click.argument("column", type=EntryType("columns"), metavar="NAME")
@click.argument("kind", metavar="TYPE")
@edit_table_option
@edit_options
@click.pass_obj
def cast(cli: CliContext, /, dataset_id: str, column: str, kind: str, **given: Any) -> None:
    """Change the type of a column.

    TYPE is a type of Arrow, such as int32, float32 or string. A value that does not fit is an error, and nothing is
    committed. Only this column is written and uploaded.

    \b
      warp cast acme/trips fare float32
    """
    table = given.pop("table")

    def change(dataset: Dataset, edit: Edit) -> None:
        edit.cast(pick_table(dataset, table), column, kind)

    run_edit(cli, EditRequest(dataset_id, **given), f"cast column {column} to {kind}", change)
