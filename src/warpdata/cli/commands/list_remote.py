"""`warp list-remote`, short `warp ls`: list the datasets in a store."""

from __future__ import annotations

import click

from warpdata.cli.context import CliContext
from warpdata.cli.options import command
from warpdata.cli.output import note, print_json
from warpdata.cli.terminal import write_data_line

__all__ = ["list_remote"]

_KEYS = {
    "store": "URL of the store",
    "datasets": "sorted list of workspace/name",
}


@command("list-remote", json_keys=_KEYS)
@click.argument("workspace", required=False, metavar="[WORKSPACE/]")
@click.pass_obj
def list_remote(cli: CliContext, workspace: str | None) -> None:
    """List the datasets in a store or in one workspace.

    Makes one list request per workspace and reads no dataset. `warp ls` is a short form.
    """
    with cli.progress("Listing datasets"):
        session = cli.connect()
        found = session.catalog.datasets(workspace.rstrip("/") if workspace else None)
    if cli.as_json:
        print_json({"store": session.reader.url, "datasets": found})
        return
    for name in found:
        write_data_line(name)
    if not found:
        note(f"no datasets in {session.reader.url}" + (f" under {workspace}" if workspace else ""))
