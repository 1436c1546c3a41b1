"""`warp label`: create and list labels."""

from __future__ import annotations

from datetime import datetime

import click

from warpdata.cli.context import CliContext
from warpdata.cli.format import short, time_text
from warpdata.cli.options import address_argument, command
from warpdata.cli.output import note, print_json, print_line, print_table
from warpdata.repository.catalog import Address, VersionLabel, parse_address

__all__ = ["label"]

_KEYS = {
    "dataset_id": "workspace/name",
    "labels": "list of {name, version, commit, time}; with NAME, only the new label",
}


@command("label", json_keys=_KEYS)
@address_argument()
@click.argument("name", required=False)
@click.option("--list", "lists", is_flag=True, help="List the labels, the default without NAME.")
@click.pass_obj
def label(cli: CliContext, address: str, name: str | None, lists: bool) -> None:
    """Give a version a permanent name, or list labels.

    A label never moves. Repeating the command for the same version changes nothing; for another version it
    fails.

    \b
      warp label acme/trips v1.2
      warp label acme/trips@4f1c09ab77d0 before-cleaning
      warp label acme/trips --list
    """
    if name is not None and lists:
        raise click.UsageError("--list takes no NAME")
    with cli.progress(f"Labels of {address}"):
        wanted = parse_address(address)
        found = _list(cli, address, wanted) if name is None else [cli.open(address).snapshot(name)]
    if cli.as_json:
        print_json({"dataset_id": wanted.dataset_id, "labels": [_document(one) for one in found]})
    elif name is not None:
        print_line(f"{wanted.dataset_id}@{name} is version {short(found[0].version)}")
    elif found:
        rows = ((one.name, short(one.version), time_text(datetime.fromisoformat(one.time))) for one in found)
        print_table(("label", "version", "created"), rows)
    else:
        note(f"{wanted.dataset_id} has no labels")


def _list(cli: CliContext, address: str, wanted: Address) -> list[VersionLabel]:
    """Return the labels. Without labels and branches there is no dataset, and opening it raises the error."""
    session = cli.connect()
    found = session.catalog.labels(wanted.dataset_id)
    if not found and not session.catalog.branches(wanted.dataset_id):
        cli.open(address)
    return found


def _document(one: VersionLabel) -> dict[str, str]:
    return {"name": one.name, "version": one.version, "commit": one.commit, "time": one.time}
