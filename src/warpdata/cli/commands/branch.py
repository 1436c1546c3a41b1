"""`warp branch`: lines of history that grow beside "main"."""

from __future__ import annotations

import click

from warpdata.cli.context import CliContext
from warpdata.cli.format import short
from warpdata.cli.options import address_argument, command
from warpdata.cli.output import print_json, print_line, print_table
from warpdata.datasets import open_dataset
from warpdata.repository.catalog import Address, parse_address
from warpdata.session import Session

__all__ = ["branch"]

_KEYS = {
    "dataset_id": "workspace/name",
    "branches": "a list of {name, version}; with NAME, just the branch made",
}


@command("branch", json_keys=_KEYS)
@address_argument()
@click.argument("name", required=False)
@click.option("--list", "lists", is_flag=True, help="List the branches; so does leaving out NAME.")
@click.pass_obj
def branch(cli: CliContext, address: str, name: str | None, lists: bool) -> None:
    """Start a branch at a version, or list branches.

    \b
      warp branch acme/trips experiment
      warp branch acme/trips@v1 fixes-for-v1
      warp publish acme/trips --branch experiment --table main='new/*.parquet'
    """
    if name is not None and lists:
        raise click.UsageError("--list takes no NAME")
    with cli.progress(f"Branches of {address}"):
        session = cli.connect()
        wanted = parse_address(address)
        found = _list(session, wanted) if name is None else {name: open_dataset(session, wanted).branch(name).version}
    if cli.as_json:
        listed = [{"name": one, "version": version} for one, version in found.items()]
        print_json({"dataset_id": wanted.dataset_id, "branches": listed})
    elif name is not None:
        print_line(f"{wanted.dataset_id}@{name} starts at version {short(found[name])}")
    else:
        print_table(("branch", "version"), ((one, short(version)) for one, version in found.items()))


def _list(session: Session, wanted: Address) -> dict[str, str]:
    """Every branch and the version it stands at; a dataset that has none is not there, which opening it says."""
    names = session.catalog.branches(wanted.dataset_id)
    if not names:
        open_dataset(session, wanted)
    return {name: session.catalog.resolve(Address(wanted.dataset_id, name)).version for name in names}
