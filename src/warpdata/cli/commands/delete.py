"""`warp delete`: delete rows of a table."""

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
    where_option,
    yes_option,
)
from warpdata.cli.format import count_text
from warpdata.cli.options import command, dataset_argument
from warpdata.cli.output import print_line, print_rows

if TYPE_CHECKING:
    from warpdata.datasets import Dataset
    from warpdata.edit import Edit

__all__ = ["delete"]

_SHOWN_ROWS = 5


@command("delete", json_keys=EDIT_KEYS)
@dataset_argument()
@edit_table_option
@where_option
@edit_options
@yes_option
@click.pass_obj
def delete(cli: CliContext, /, dataset_id: str, table: str | None, where: str | None, **given: Any) -> None:
    """Delete rows of a table.

    Shows the first rows that would go and their number, and asks; without a terminal, --yes is required. Earlier
    versions keep the rows. `warp rm` removes a whole dataset, `warp restore` undoes a deletion.

    \b
      warp delete acme/trips --where "fare < 0"
      warp delete acme/trips --table stations --where "name IS NULL" --yes
    """
    if where is None:
        raise click.UsageError("name the rows to delete with --where; `warp rm` removes a whole dataset")
    request = EditRequest(dataset_id, **given)

    def change(dataset: Dataset, edit: Edit) -> str:
        name = pick_table(dataset, table)
        found = dataset.table(name)
        total = found.count()
        count = edit.delete(name, where)
        if count and not cli.as_json and (request.dry_run or not request.yes):
            print_rows(found.filter(where).head(_SHOWN_ROWS))
            if count > _SHOWN_ROWS:
                print_line(f"… and {count_text(count - _SHOWN_ROWS, 'more row')}", style="dim")
        return f"Delete {count:,} of {count_text(total, 'row')} of table {name}?"

    run_edit(cli, request, f"delete rows with {where}", change)
