"""`warp verify`: read and hash every stored file of a version."""

from __future__ import annotations

from typing import Any

import click

import warpdata
from warpdata.cli.context import CliContext
from warpdata.cli.engine_options import engine_options, take_engine
from warpdata.cli.exit_codes import CORRUPT, print_error, print_hint
from warpdata.cli.format import bytes_text, count_text, short
from warpdata.cli.options import address_argument, command
from warpdata.cli.output import print_json, print_line

__all__ = ["verify"]

_KEYS = {
    "dataset_id": "workspace/name",
    "version": "64 hex digits",
    "ok": "true if no stored file is missing or corrupt",
    "blobs": "number of stored files",
    "size_bytes": "their size",
    "problems": "list of messages about missing and corrupt files",
    "repaired": "list of the hashes of files that were missing or corrupt and are valid now",
}


@command("verify", json_keys=_KEYS)
@address_argument()
@click.option("--repair", is_flag=True, help="Restore missing and corrupt files, from the cache or from --source.")
@click.option("--source", metavar="STORE", help="Another store with a copy of the dataset, for --repair.")
@engine_options
@click.pass_obj
@click.pass_context
def verify(
    ctx: click.Context, cli: CliContext, /, address: str, repair: bool, source: str | None, **given: Any
) -> None:
    """Read and hash every stored file of a version.

    Exits with code 8 and lists the files that are missing or corrupt. With --repair, files of which this machine has
    a valid copy in its cache are restored first, and with --source also those of which another store has one. To
    repair other files, publish them again with `warp publish --repair`.
    """
    how = take_engine(given)
    with cli.progress(f"Opening {address}") as progress:
        opened = cli.open(address)
        result = warpdata.verify(opened, repair=repair, source=source, progress=progress, **how)
    name = f"{opened.id} {short(opened.version)}"
    if cli.as_json:
        print_json(
            {
                "dataset_id": opened.id,
                "version": opened.version,
                "ok": not result.problems,
                "blobs": result.blobs,
                "size_bytes": result.size_bytes,
                "problems": list(result.problems),
                "repaired": list(result.repaired),
            }
        )
    elif not result.problems:
        files = count_text(result.blobs, "file")
        print_line(f"{name} is valid: {files}, {bytes_text(result.size_bytes)} read and hashed")
    if result.repaired and not cli.as_json:
        print_line(f"{count_text(len(result.repaired), 'file')} restored")
    for problem in result.problems if not cli.as_json else ():
        print_line(problem)
    if result.problems:
        _fail(ctx, name, len(result.problems))


def _fail(ctx: click.Context, name: str, count: int) -> None:
    print_error(f"{name} has {count_text(count, 'problem')}")
    print_hint(
        "Copy them from another store with `warp verify --repair --source STORE`, publish the same files again with "
        "`warp publish --repair`, or read an older version."
    )
    ctx.exit(CORRUPT)
