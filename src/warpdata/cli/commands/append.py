"""`warp append`: append rows to tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from warpdata.cli.context import CliContext
from warpdata.cli.edit_report import EDIT_KEYS, EditRequest, edit_options, run_edit
from warpdata.cli.options import command, dataset_argument
from warpdata.cli.parameters import PairType
from warpdata.cli.table_sources import read_table_source

if TYPE_CHECKING:
    from warpdata.datasets import Dataset
    from warpdata.edit import Edit

__all__ = ["append"]


@command("append", json_keys=EDIT_KEYS)
@dataset_argument()
@click.argument("tables", type=PairType("TABLE=FILES"), nargs=-1, required=True, metavar="TABLE=FILES...")
@edit_options
@click.pass_obj
def append(cli: CliContext, /, dataset_id: str, tables: tuple[tuple[str, str], ...], **given: Any) -> None:
    """Append rows to tables.

    FILES is a file, a directory or a quoted glob: Parquet files, which are stored unchanged, or CSV, TSV or JSON
    lines, which are read with the types of the table. A table that does not exist is created. Several tables are
    one commit.

    \b
      warp append acme/trips main=june.parquet
      warp append acme/trips main='new/*.csv' stations=stations.csv -m "load of June"
    """
    sources: dict[str, list[str]] = {}
    for name, source in tables:
        sources.setdefault(name, []).append(source)

    def change(dataset: Dataset, edit: Edit) -> None:
        for name, listed in sources.items():
            edit.append(name, read_table_source(dataset, name, listed))

    run_edit(cli, EditRequest(dataset_id, **given), f"append to {', '.join(sources)}", change)
