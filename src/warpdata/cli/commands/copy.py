"""`warp copy`: copy a version or a history to another store or name."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

import warpdata
from warpdata.cli.context import CliContext
from warpdata.cli.format import bytes_text, count_text, short
from warpdata.cli.options import address_argument, command
from warpdata.cli.output import note, print_facts, print_json
from warpdata.cli.parameters import STORE_URL
from warpdata.maintenance import Copied

__all__ = ["copy"]

_KEYS = {
    "dataset_id": "name in the target",
    "version": "version in the target: the same as in the source under the same name",
    "source_dataset_id": "name in the source",
    "source_version": "version in the source",
    "branch": "branch of the target",
    "commit": "commit of the target, or null with --dry-run",
    "changed": "false if the branch had the version already, and with --dry-run",
    "commits": "number of commits: 1 without --history",
    "labels": "labels that came with --history",
    "total_files": "stored files of the versions; 0 within one store",
    "total_bytes": "their size",
    "copied_files": "files that the target lacked",
    "copied_bytes": "their size",
}


@command("copy", json_keys=_KEYS)
@address_argument()
@click.argument("to", required=False, metavar="[TO]", type=STORE_URL)
@click.option("--name", metavar="ID", help="Name in the target. Default: the same name.")
@click.option("--history", is_flag=True, help="Copy all commits that led to the version, and their labels.")
@click.option("--branch", default="main", show_default=True, metavar="NAME", help="Branch of the target.")
@click.option("--replace", is_flag=True, help="Allow a version that lacks entries of the head of the target.")
@click.option("--dry-run", is_flag=True, help="Show what would be copied, and write nothing.")
@click.pass_obj
def copy(cli: CliContext, /, address: str, **given: Any) -> None:
    """Copy a version or a history to another store or name.

    Only files that the target lacks are sent, several at a time, and each is compared with its hash. Run the
    command again after an interruption to continue. Within one store no file is copied.

    \b
      warp copy acme/trips@v1.2 s3://other/lake
      warp copy acme/trips s3://backup/lake --history
      warp copy acme/trips@v1.2 --name acme/trips-fixed
    """
    if given["to"] is None and given["name"] is None:
        raise click.UsageError("name a store, or --name for another name in this store")
    with cli.progress(f"Reading {address}") as progress:
        done = warpdata.copy(address, store=cli.connect(), progress=progress, **given)
    if cli.as_json:
        print_json(asdict(done))
    else:
        _print(done, dry_run=given["dry_run"])


def _print(done: Copied, *, dry_run: bool) -> None:
    files = f"{count_text(done.copied_files, 'file')}, {bytes_text(done.copied_bytes)}"
    there = done.total_files - done.copied_files
    print_facts(
        {
            "would copy" if dry_run else "copied": f"{done.source_dataset_id} {short(done.source_version)}",
            "to": f"{done.dataset_id}@{done.branch}",
            "version": done.version,
            "files": f"{files}; {there:,} were there" if there else files,
            "commits": done.commits if done.commits > 1 else None,
            "labels": ", ".join(done.labels) or None,
        }
    )
    if not dry_run and not done.changed:
        note(f"{done.dataset_id}@{done.branch} already had this version")
