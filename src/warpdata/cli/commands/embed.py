"""`warp embed`: add a column that a Python function computes, such as the vectors of a model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from warpdata.cli.context import CliContext
from warpdata.cli.edit_report import EDIT_KEYS, EditRequest, edit_options, edit_table_option, pick_table, run_edit
from warpdata.cli.engine_options import engine_options, take_engine
from warpdata.cli.model_source import load_object
from warpdata.cli.options import columns_option, command, dataset_argument

if TYPE_CHECKING:
    from warpdata.datasets import Dataset
    from warpdata.edit import Edit

__all__ = ["embed"]


@command("embed", json_keys=EDIT_KEYS)
@dataset_argument()
@click.argument("column", metavar="NAME")
@click.option(
    "--function",
    required=True,
    metavar="FILE.py:NAME",
    help="Function that takes a record batch of Arrow, and returns a value for each row. The file is run.",
)
@columns_option()
@click.option("--type", "kind", metavar="TYPE", help="Arrow type of the column, such as float32. Default: as computed.")
@click.option(
    "--batch-size", type=click.IntRange(1), default=1024, show_default=True, metavar="ROWS", help="Rows of a batch."
)
@edit_table_option
@engine_options
@edit_options
@click.pass_obj
def embed(cli: CliContext, /, dataset_id: str, column: str, **given: Any) -> None:
    """Add a column that a Python function computes.

    Only the new column is written. Columns of images and other files arrive as references. With --engine,
    workers compute one stored file at a time, and the same command goes on after an interruption.

    \b
      warp embed acme/photos emb --function clip.py:encode --columns image --engine processes
    """
    kind, table, how = given.pop("kind"), given.pop("table"), take_engine(given)
    function, columns = given.pop("function"), given.pop("columns")
    make, batch_size = load_object(function), given.pop("batch_size")

    def change(dataset: Dataset, edit: Edit) -> None:
        name = pick_table(dataset, table)
        edit.add_column(name, column, make, columns=columns or None, type=kind, batch_size=batch_size, **how)

    run_edit(cli, EditRequest(dataset_id, **given), f"add column {column} by {function}", change)
