"""`warp rename`: give a dataset another name."""

from __future__ import annotations

import click

import warpdata
from warpdata.cli.context import CliContext
from warpdata.cli.format import count_text
from warpdata.cli.options import command, dataset_argument
from warpdata.cli.output import note, print_json, print_line

__all__ = ["rename"]

_KEYS = {
    "dataset_id": "the new workspace/name",
    "previous_id": "the old one",
    "branches": "list of branches",
    "labels": "list of labels",
    "versions": "object: the new version of each old one",
    "renamed": "false with --dry-run, or if the question was answered with no",
}


@command("rename", json_keys=_KEYS)
@dataset_argument()
@click.argument("new_id", metavar="NEW")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option("--dry-run", is_flag=True, help="Show what would move, and change nothing.")
@click.pass_obj
def rename(cli: CliContext, dataset_id: str, new_id: str, yes: bool, dry_run: bool) -> None:
    """Give a dataset another name.

    All branches, labels and commits move, and no data is copied. The name is part of a version, so every version
    gets another hash. The old name is removed: opening it is an error with the new name. Asks for confirmation;
    without a terminal, --yes is required.

    \b
      warp rename acme/trips acme/taxi-trips
    """
    with cli.progress(f"Reading {dataset_id}"):
        session = cli.connect()
        found = warpdata.rename(dataset_id, new_id, store=session, dry_run=True)
    moved = ", ".join(
        (
            count_text(len(found.versions), "version"),
            count_text(len(found.branches), "branch", "branches"),
            count_text(len(found.labels), "label"),
        )
    )
    is_agreed = not dry_run and cli.confirm(f"Rename {dataset_id} to {new_id}: {moved}?", yes=yes)
    if is_agreed:
        with cli.progress(f"Renaming {dataset_id}"):
            found = warpdata.rename(dataset_id, new_id, store=session)
    if cli.as_json:
        document = {"dataset_id": found.dataset_id, "previous_id": found.previous_id}
        lists = {"branches": list(found.branches), "labels": list(found.labels), "versions": dict(found.versions)}
        print_json({**document, **lists, "renamed": is_agreed})
    elif is_agreed or dry_run:
        print_line(f"{'would rename' if dry_run else 'renamed'} {dataset_id} to {new_id}: {moved}")
    else:
        note("nothing was renamed")
