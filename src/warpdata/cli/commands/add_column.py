"""`warp add-column`: add a column that an SQL expression computes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

import warpdata
from warpdata.cli.context import CliContext
from warpdata.cli.edit_report import EDIT_KEYS, EditRequest, edit_options, edit_table_option, pick_table, run_edit
from warpdata.cli.engine_options import engine_options, take_engine
from warpdata.cli.options import command, dataset_argument

if TYPE_CHECKING:
    from warpdata.datasets import Dataset
    from warpdata.edit import Edit

__all__ = ["add_column"]


@command("add-column", json_keys=EDIT_KEYS)
@dataset_argument()
@click.argument("column", metavar="NAME")
@click.option("--expr", "sql", required=True, metavar="SQL", help='SQL expression over one row, such as "fare * 1.2".')
@click.option("--type", "kind", metavar="TYPE", help="Arrow type of the column, such as float32. Default: as computed.")
@edit_table_option
@engine_options
@edit_options
@click.pass_obj
def add_column(cli: CliContext, /, dataset_id: str, column: str, sql: str, **given: Any) -> None:
    """Add a column that an SQL expression computes.

    Only the new column is written and uploaded. In Python, `Edit.add_column` also takes a function.

    \b
      warp add-column acme/trips fare_eur --expr "fare * 0.92" --type float32
    """
    kind, table, how = given.pop("kind"), given.pop("table"), take_engine(given)

    def change(dataset: Dataset, edit: Edit) -> None:
        edit.add_column(pick_table(dataset, table), column, warpdata.expr(sql), type=kind, **how)

    run_edit(cli, EditRequest(dataset_id, **given), f"add column {column} = {sql}", change)
