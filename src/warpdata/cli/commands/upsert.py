"""`warp upsert`: replace rows by key, and append the others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from warpdata.cli.context import CliContext
from warpdata.cli.edit_report import EDIT_KEYS, EditRequest, edit_options, run_edit
from warpdata.cli.options import command, dataset_argument, split_names
from warpdata.cli.parameters import EntryType, PairType
from warpdata.cli.table_sources import read_table_source

if TYPE_CHECKING:
    from warpdata.datasets import Dataset
    from warpdata.edit import Edit

__all__ = ["upsert"]


@command("upsert", json_keys=EDIT_KEYS)
@dataset_argument()
@click.argument("source", type=PairType("TABLE=FILES"), metavar="TABLE=FILES")
@click.option(
    "--on",
    type=EntryType("columns", is_list=True),
    multiple=True,
    required=True,
    metavar="A,B",
    callback=split_names,
    help="Columns of the key, which is unique in the table and in the files.",
)
@edit_options
@click.pass_obj
def upsert(cli: CliContext, /, dataset_id: str, source: tuple[str, str], on: tuple[str, ...], **given: Any) -> None:
    """Replace rows by key, and append the others.

    FILES is as for `append`, with all columns of the table. A row of the table that has the key of a given row is
    replaced and keeps its sample id.

    \b
      warp upsert acme/trips main=corrections.csv --on id
    """
    table, files = source

    def change(dataset: Dataset, edit: Edit) -> None:
        edit.upsert(table, read_table_source(dataset, table, [files]), on)

    run_edit(cli, EditRequest(dataset_id, **given), f"upsert into {table} by {', '.join(on)}", change)
