"""`warp init`: a loader for a dataset that runs as it is."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from warpdata.cli.context import Invocation
from warpdata.cli.init_template import LoaderPlan, loader_source
from warpdata.cli.options import address_argument, command, table_option
from warpdata.cli.output import note, print_line
from warpdata.errors import AlreadyExistsError, BadInputError
from warpdata.storage import normalize_url

__all__ = ["init"]


@command("init")
@address_argument()
@table_option()
@click.option(
    "--output", "-o", metavar="FILE", help="Where to write; WORKSPACE_NAME_loader.py by default, - for stdout."
)
@click.option("--force", is_flag=True, help="Overwrite the file if it is there.")
@click.pass_obj
def init(invocation: Invocation, address: str, table: str | None, output: str | None, force: bool) -> None:
    """Write a loader for a dataset that runs as it is.

    The module has get_dataset(), train_stream() and a smoke test, and is yours to change. A store
    named with --store is written into it; otherwise it uses WARP_STORE or the default, wherever it runs.
    """
    with invocation.meter(f"Opening {address}"):
        opened = invocation.open(address)
        chosen = opened.table(table)
        fields = chosen.schema()
    store = None if invocation.store is None else normalize_url(invocation.store)
    source = loader_source(LoaderPlan(address, store, chosen.name, fields))
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
