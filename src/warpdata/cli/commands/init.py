"""`warp init`: a loader for a dataset that runs as it is."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from warpdata.cli.context import CliContext
from warpdata.cli.format import escape, type_text
from warpdata.cli.options import address_argument, command, table_option
from warpdata.cli.output import note, print_line
from warpdata.errors import AlreadyExistsError, BadInputError
from warpdata.storage import normalize_url

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["LoaderSpec", "init", "loader_source"]


@command("init")
@address_argument()
@table_option()
@click.option(
    "--output", "-o", metavar="FILE", help="Where to write; WORKSPACE_NAME_loader.py by default, - for stdout."
)
@click.option("--force", is_flag=True, help="Overwrite the file if it is there.")
@click.pass_obj
def init(cli: CliContext, address: str, table: str | None, output: str | None, force: bool) -> None:
    """Write a loader for a dataset that runs as it is.

    The module has get_dataset(), train_stream() and a smoke test, and is yours to change. A store
    named with --store is written into it; otherwise it uses WARP_STORE or the default, wherever it runs.
    """
    with cli.progress(f"Opening {address}"):
        opened = cli.open(address)
        chosen = opened.table(table)
        fields = chosen.schema()
    store = None if cli.store is None else normalize_url(cli.store)
    source = loader_source(LoaderSpec(address, store, chosen.name, fields))
    if output == "-":
        click.echo(source, nl=False)
        return
    path = Path(output or f"{opened.id.replace('/', '_').replace('-', '_')}_loader.py")
    _write(path, source, force)
    print_line(str(path))
    note(f"try it: {Path(sys.executable).name} {path}")


def _write(path: Path, source: str, force: bool) -> None:
    try:
        with path.open("w" if force else "x", encoding="utf-8") as file:
            file.write(source)
    except FileExistsError:
        raise AlreadyExistsError(
            f"{path} is already there", hint="Choose another --output, or overwrite it with --force."
        ) from None
    except OSError as error:
        raise BadInputError(f"{path} cannot be written: {error.strerror}") from error


_LISTED_COLUMNS = 40
_LINE = 88
_DEFAULT_STORE = "STORE = None  # WARP_STORE, or the embedded default"

_TEMPLATE = '''\
"""Loads {address}. Written by `warp init`, and yours to change."""

from collections.abc import Iterator

import pyarrow as pa
import warpdata as wd

{constants}

# Columns of the table:
{columns}


def get_dataset() -> wd.Dataset:
    """Open the dataset where it lies; nothing is downloaded yet."""
    return wd.dataset(ADDRESS, store=STORE)


def train_stream(
    batch_size: int = 1000, shard: tuple[int, int] | str | None = "auto"
) -> Iterator[pa.RecordBatch]:
    """Batches of this process's part: over all ranks, every row comes once."""
    yield from get_dataset().table(TABLE).batches(batch_size, shard=shard)


if __name__ == "__main__":
    for number, batch in enumerate(train_stream(batch_size=10)):
        print(f"batch {{number}}: {{batch.num_rows}} rows, {{batch.num_columns}} columns")
        if number == 2:
            break
    print("smoke test passed")
'''


@dataclass(frozen=True, slots=True)
class LoaderSpec:
    """`store` is None for whatever the settings name where the loader runs."""

    address: str
    store: str | None
    table: str
    fields: pa.Schema


def loader_source(plan: LoaderSpec) -> str:
    return _TEMPLATE.format(
        address=plan.address,
        constants="\n".join(
            (
                _constant("ADDRESS", plan.address),
                _DEFAULT_STORE if plan.store is None else _constant("STORE", plan.store),
                _constant("TABLE", plan.table),
            )
        ),
        columns="\n".join(_column_lines(plan.fields)),
    )


def _column_lines(fields: pa.Schema) -> list[str]:
    lines = []
    for field in list(fields)[:_LISTED_COLUMNS]:
        line = f"#   {escape(field.name)}: {type_text(field.type)}"
        lines.append(line if len(line) <= _LINE else f"{line[: _LINE - 1]}…")
    if len(fields) > _LISTED_COLUMNS:
        lines.append(f"#   … and {len(fields) - _LISTED_COLUMNS} more")
    return lines or ["#   none"]


def _constant(name: str, text: str) -> str:
    """An assignment as a formatter would write it, in double quotes."""
    literal = json.dumps(text, ensure_ascii=False)
    line = f"{name} = {literal}"
    return f"{name} = (\n    {literal}\n)" if len(line) > _LINE >= len(literal) + 4 else line
