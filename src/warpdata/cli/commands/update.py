"""`warp update`: set columns of rows of a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

import warpdata
from warpdata.cli.context import CliContext
from warpdata.cli.edit_report import (
    EDIT_KEYS,
    EditRequest,
    edit_options,
    edit_table_option,
    pick_table,
    run_edit,
    where_option,
)
from warpdata.cli.options import command, dataset_argument
from warpdata.cli.parameters import PairType
from warpdata.errors import SchemaMismatchError

if TYPE_CHECKING:
    import pyarrow as pa

    from warpdata.datasets import Dataset
    from warpdata.edit import Edit

__all__ = ["update"]


@command("update", json_keys=EDIT_KEYS)
@dataset_argument()
@edit_table_option
@where_option
@click.option("--all", "all_rows", is_flag=True, help="Change all rows, instead of --where.")
@click.option(
    "--set",
    "constants",
    type=PairType("COLUMN=VALUE", allows_empty=True),
    multiple=True,
    metavar="COLUMN=VALUE",
    help="Set a column to a constant, which is read as the column's type. Repeatable.",
)
@click.option(
    "--set-expr",
    "expressions",
    type=PairType("COLUMN=SQL"),
    multiple=True,
    metavar="COLUMN=SQL",
    help="Set a column to an SQL expression over the row as it was, such as score=score*2 or note=NULL. Repeatable.",
)
@edit_options
@click.pass_obj
def update(cli: CliContext, /, dataset_id: str, table: str | None, where: str | None, **given: Any) -> None:
    """Set columns of rows of a table.

    The value of --set is a constant and is never read as SQL: --set label=cat needs no inner quotes. The value of
    --set-expr is SQL. Changed rows move to the end of the table and keep their sample ids.

    \b
      warp update acme/pets --where "label = 'cta'" --set label=cat
      warp update acme/pets --where "score > 1" --set-expr "score=score / 100" --set note=scaled
      warp update acme/pets --all --set-expr note=NULL
    """
    constants, expressions = dict(given.pop("constants")), dict(given.pop("expressions"))
    if given.pop("all_rows") is (where is not None):
        raise click.UsageError("give --where, or --all for all rows")
    if not constants and not expressions:
        raise click.UsageError("nothing to set; give --set or --set-expr")
    both = sorted(constants.keys() & expressions.keys())
    if both:
        raise click.UsageError(f"column {both[0]} is set twice")

    def change(dataset: Dataset, edit: Edit) -> None:
        name = pick_table(dataset, table)
        schema = dataset.table(name).raw().schema()
        values: dict[str, Any] = {column: _constant(column, text, schema) for column, text in constants.items()}
        values |= {column: warpdata.expr(sql) for column, sql in expressions.items()}
        edit.update(name, where, values)

    assigned = ", ".join(f"{column} = {value}" for column, value in {**constants, **expressions}.items())
    message = f"set {assigned}" + ("" if where is None else f" where {where}")
    run_edit(cli, EditRequest(dataset_id, **given), message, change)


def _constant(column: str, text: str, schema: pa.Schema) -> Any:
    """Read a constant as a value of the column's type. A column that does not exist is reported by the edit."""
    import pyarrow as pa

    if column not in schema.names:
        return text
    kind = schema.field(column).type
    try:
        return pa.scalar(text).cast(kind).as_py()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise SchemaMismatchError(
            f"column {column!r} is {kind}, and {text!r} is not a value of this type",
            hint=f"Give SQL instead: --set-expr {column}=…",
        ) from error
