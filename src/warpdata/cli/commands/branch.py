"""`warp branch`: create and list branches."""

from __future__ import annotations

import click

from warpdata.cli.context import CliContext
from warpdata.cli.format import short
from warpdata.cli.options import address_argument, command
from warpdata.cli.output import print_json, print_line, print_table
from warpdata.repository.catalog import Address, parse_address

__all__ = ["branch"]

_KEYS = {
    "dataset_id": "workspace/name",
    "branches": "list of {name, version}; with NAME, only the new branch",
}


@command("branch", json_keys=_KEYS)
@address_argument()
@click.argument("name", required=False)
@click.option("--list", "lists", is_flag=True, help="List the branches, the default without NAME.")
@click.pass_obj
def branch(cli: CliContext, address: str, name: str | None, lists: bool) -> None:
    """Create a branch at a version, or list branches.

    \b
      warp branch acme/trips experiment
      warp branch acme/trips@v1 fixes-for-v1
      warp publish acme/trips --branch experiment --table main='new/*.parquet'
    """
    if name is not None and lists:
        raise click.UsageError("--list takes no NAME")
    with cli.progress(f"Branches of {address}"):
        wanted = parse_address(address)
        found = _list(cli, address, wanted) if name is None else {name: cli.open(address).branch(name).version}
    if cli.as_json:
        listed = [{"name": one, "version": version} for one, version in found.items()]
        print_json({"dataset_id": wanted.dataset_id, "branches": listed})
    elif name is not None:
        print_line(f"created {wanted.dataset_id}@{name} at version {short(found[name])}")
    else:
        print_table(("branch", "version"), ((one, short(version)) for one, version in found.items()))


def _list(cli: CliContext, address: str, wanted: Address) -> dict[str, str]:
    """Return the version of each branch. Without branches there is no dataset, and opening it raises the error."""
    session = cli.connect()
    names = session.catalog.branches(wanted.dataset_id)
    if not names:
        cli.open(address)
    return {name: session.catalog.resolve(Address(wanted.dataset_id, name)).version for name in names}
