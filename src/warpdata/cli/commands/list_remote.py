"""`warp list-remote`, short `warp ls`: list the datasets in a store."""

from __future__ import annotations

import click

from warpdata.cli.context import CliContext
from warpdata.cli.format import count_text
from warpdata.cli.options import command
from warpdata.cli.output import note, print_json
from warpdata.cli.terminal import write_data_line

__all__ = ["list_remote"]

_KEYS = {
    "store": "URL of the store",
    "datasets": "sorted list of workspace/name",
    "skipped": "list of directories whose names no dataset can have",
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
        listed = session.catalog.list_datasets(workspace.rstrip("/") if workspace else None)
        found = list(listed.dataset_ids)
    if cli.as_json:
        print_json({"store": session.reader.url, "datasets": found, "skipped": list(listed.skipped)})
        return
    for name in found:
        write_data_line(name)
    if listed.skipped:
        note(f"skipped {count_text(len(listed.skipped), 'directory', 'directories')} with names of no dataset")
    if not found:
        note(f"no datasets in {session.reader.url}" + (f" under {workspace}" if workspace else ""))
