"""`warp init`: write a Python module that loads a dataset."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from warpdata.cli.commands.schema import table_bindings
from warpdata.cli.context import CliContext, python_command
from warpdata.cli.loader_source import LoaderSpec, TableSpec, loader_source
from warpdata.cli.options import address_argument, command, table_option
from warpdata.cli.output import note, print_line
from warpdata.cli.terminal import write_text
from warpdata.errors import AlreadyExistsError, BadInputError
from warpdata.storage import normalize_url

if TYPE_CHECKING:
    from warpdata.datasets import Dataset

__all__ = ["init"]


@command("init")
@address_argument()
@table_option()
@click.option(
    "--output", "-o", metavar="FILE", help="File to write, or - for stdout. Default: WORKSPACE_NAME_loader.py."
)
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
@click.pass_obj
def init(cli: CliContext, address: str, table: str | None, output: str | None, force: bool) -> None:
    """Write a Python module that loads a dataset.

    The module opens the dataset, streams a table, decodes the media in its columns, and runs a smoke test. For a
    dataset without tables, it reads files, episodes or tensors. It runs unchanged. --store is written into the
    module; without it, the module uses WARP_STORE or the default store.
    """
    with cli.progress(f"Opening {address}"):
        opened = cli.open(address)
        source = loader_source(_describe(cli, address, opened, table))
    if output == "-":
        write_text(source)
        return
    path = Path(output or f"{opened.id.replace('/', '_').replace('-', '_')}_loader.py")
    _write(path, source, force)
    print_line(str(path))
    note(f"try it: {python_command()} {shlex.quote(str(path))}")


def _describe(cli: CliContext, address: str, opened: Dataset, table: str | None) -> LoaderSpec:
    manifest = opened.manifest
    described = None
    if table is not None or manifest.tables:
        selected = opened.table(table)
        media = {column: bound.ref_type for column, bound in table_bindings(manifest, selected.name).items()}
        described = TableSpec(selected.name, selected.schema(), media)
    return LoaderSpec(
        address,
        None if cli.store is None else normalize_url(cli.store),
        table=described,
        artifact=min(manifest.artifacts, default=None),
        episodes=min(manifest.episodes, default=None),
        tensors=min(manifest.tensors, default=None),
    )


def _write(path: Path, source: str, force: bool) -> None:
    try:
        with path.open("w" if force else "x", encoding="utf-8") as file:
            file.write(source)
    except FileExistsError:
        raise AlreadyExistsError(
            f"{path} already exists", hint="Choose another --output, or overwrite it with --force."
        ) from None
    except OSError as error:
        raise BadInputError(f"{path} cannot be written: {error.strerror}") from error
