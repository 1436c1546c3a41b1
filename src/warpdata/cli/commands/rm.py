"""`warp rm`: remove a label, a branch or a dataset."""

from __future__ import annotations

import click

from warpdata.cli.context import CliContext
from warpdata.cli.format import count_text, short
from warpdata.cli.options import address_argument, command
from warpdata.cli.output import note, print_json, print_line
from warpdata.datasets import Removed, execute_removal, plan_removal
from warpdata.repository.catalog import parse_address

__all__ = ["rm"]

_KEYS = {
    "dataset_id": "workspace/name",
    "kind": "dataset, branch or label",
    "name": "the name that is gone",
    "version": "the version that it had",
    "branches": "other branches of a removed dataset",
    "labels": "labels of a removed dataset",
    "removed": "false with --dry-run, or if the question was answered with no",
}


@command("rm", json_keys=_KEYS)
@address_argument(metavar="ID[@NAME]")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option("--dry-run", is_flag=True, help="Show what would go, and change nothing.")
@click.pass_obj
def rm(cli: CliContext, address: str, yes: bool, dry_run: bool) -> None:
    """Remove a label, a branch or a dataset.

    The name is not found any more, and can be used again. Data is not deleted: every version stays readable as
    ID@VERSION, and the error for the name says how to bring it back. Asks for confirmation; without a terminal,
    --yes is required.

    \b
      warp rm acme/trips@v1.2
      warp rm acme/trips@experiment
      warp rm acme/trips --dry-run
    """
    with cli.progress(f"Looking up {address}"):
        session = cli.connect()
        found = plan_removal(session, parse_address(address))
    is_agreed = not dry_run and cli.confirm(f"Remove {_describe(found)}?", yes=yes)
    if is_agreed:
        with cli.progress(f"Removing {address}"):
            execute_removal(session, found)
    if cli.as_json:
        print_json(_document(found, is_removed=is_agreed))
    elif is_agreed:
        print_line(f"removed {_describe(found)}")
    elif dry_run:
        print_line(f"would remove {_describe(found)}")
    else:
        note("nothing was removed")


def _describe(found: Removed) -> str:
    if found.kind != "dataset":
        return f"{found.kind} {found.dataset_id}@{found.name}, version {short(found.version)}"
    parts = [f"version {short(found.version)}"]
    if found.branches:
        parts.append(f"{count_text(len(found.branches), 'branch', 'branches')} ({', '.join(found.branches)})")
    if found.labels:
        parts.append(f"{count_text(len(found.labels), 'label')} ({', '.join(found.labels)})")
    return f"dataset {found.dataset_id}: {', '.join(parts)}"


def _document(found: Removed, *, is_removed: bool) -> dict[str, object]:
    return {
        "dataset_id": found.dataset_id,
        "kind": found.kind,
        "name": found.name,
        "version": found.version,
        "branches": list(found.branches),
        "labels": list(found.labels),
        "removed": is_removed,
    }
