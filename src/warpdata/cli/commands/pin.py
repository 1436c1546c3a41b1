"""`warp pin`: keep versions from garbage collection."""

from __future__ import annotations

from datetime import datetime

import click

import warpdata
from warpdata.cli.context import CliContext
from warpdata.cli.format import short, time_text
from warpdata.cli.options import address_argument, command, group
from warpdata.cli.output import note, print_json, print_line, print_table

__all__ = ["pin"]


@group("pin")
def pin() -> None:
    """Keep versions from garbage collection.

    A pin names a version that must stay, such as that of a training job, until the pin is removed. Names of pins are
    unique in a store.
    """


@command("add", json_keys={"name": "name of the pin", "dataset_id": "workspace/name", "version": "64 hex digits"})
@address_argument()
@click.argument("name")
@click.pass_obj
def _add(cli: CliContext, address: str, name: str) -> None:
    """Keep a version until the pin is removed.

    Repeating the command for the same version changes nothing; for another version it fails.

    \b
      warp pin add acme/trips@v1.2 job-17
    """
    with cli.progress(f"Pinning {address}"):
        made = warpdata.pin(address, name, store=cli.store)
    if cli.as_json:
        print_json({"name": made.name, "dataset_id": made.dataset_id, "version": made.version})
    else:
        print_line(f"{made.name} keeps {made.dataset_id} {short(made.version)}")


@command("ls", json_keys={"pins": "list of {name, dataset_id, version, commit, time}"})
@click.pass_obj
def _ls(cli: CliContext) -> None:
    """List the pins of a store."""
    with cli.progress("Listing pins"):
        found = warpdata.pins(store=cli.store)
    if cli.as_json:
        keys = ("name", "dataset_id", "version", "commit", "time")
        print_json({"pins": [{key: getattr(one, key) for key in keys} for one in found]})
    elif found:
        rows = (
            (one.name, one.dataset_id, short(one.version), time_text(datetime.fromisoformat(one.time))) for one in found
        )
        print_table(("pin", "dataset", "version", "created"), rows)
    else:
        note("the store has no pins")


@command("rm", json_keys={"name": "name of the pin that was removed"})
@click.argument("name")
@click.pass_obj
def _rm(cli: CliContext, name: str) -> None:
    """Remove a pin. The version itself stays until a garbage collection does not keep it."""
    with cli.progress(f"Removing {name}"):
        warpdata.unpin(name, store=cli.store)
    if cli.as_json:
        print_json({"name": name})
    else:
        print_line(f"pin {name} was removed")


for _command in (_add, _ls, _rm):
    pin.add_command(_command)
