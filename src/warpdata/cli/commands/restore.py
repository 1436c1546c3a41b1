"""`warp restore`: make an earlier version the head of a branch again."""

from __future__ import annotations

from dataclasses import asdict

import click

from warpdata.cli.context import CliContext
from warpdata.cli.format import short
from warpdata.cli.options import command, dataset_argument
from warpdata.cli.output import print_json, print_line
from warpdata.cli.parameters import RefType
from warpdata.datasets import Restored, RestoreRequest, Session
from warpdata.datasets import restore as restore_version
from warpdata.repository.catalog import find_head, parse_address

__all__ = ["restore"]

_KEYS = {
    "dataset_id": "workspace/name",
    "branch": "the branch that has the version now",
    "version": "64 hex digits",
    "commit": "id of the new commit; with `changed` false, that of the head. Empty with --dry-run",
    "previous": "version of the branch before, or null for a dataset that was removed",
    "changed": "false if the branch had this version already, and with --dry-run",
}


@command("restore", json_keys=_KEYS)
@dataset_argument()
@click.argument("ref", type=RefType())
@click.option("--branch", default="main", show_default=True, metavar="NAME", help="Branch to change.")
@click.option("--expect", metavar="VERSION", help="Fail unless the branch is at this version.")
@click.option("-m", "--message", metavar="TEXT", help='Message of the commit. Default: "restore REF".')
@click.option("--dry-run", is_flag=True, help="Show the version, and change nothing.")
@click.pass_obj
def restore(cli: CliContext, /, dataset_id: str, ref: str, *, branch: str, dry_run: bool, **given: str | None) -> None:
    """Make an earlier version the head of a branch again.

    Adds a commit with the content of the earlier version; no version is lost. A commit of another writer in
    between is a conflict. A dataset that was removed comes back, with the branches and labels that went with it.

    \b
      warp restore acme/trips v1.2
      warp restore acme/trips main~1 -m "undo the last publish"
      warp restore acme/trips 2026-11-01T12:00Z --branch experiment
    """
    with cli.progress(f"Restoring {dataset_id}"):
        session = cli.connect()
        address = parse_address(f"{dataset_id}@{ref}")
        expected = given["expect"] and session.catalog.resolve(parse_address(f"{dataset_id}@{given['expect']}")).version
        request = RestoreRequest(address, branch, expected, given["message"])
        done = _plan(session, request) if dry_run else restore_version(session, request)
    if cli.as_json:
        print_json(asdict(done))
    elif dry_run:
        print_line(f"would make {dataset_id}@{branch} version {short(done.version)}")
    elif done.changed:
        before = f", was {short(done.previous)}" if done.previous else ""
        print_line(f"{dataset_id}@{branch} is version {short(done.version)} again{before}")
    else:
        print_line(f"{dataset_id}@{branch} already is version {short(done.version)}")


def _plan(session: Session, request: RestoreRequest) -> Restored:
    """Return the result of a restore that has not happened."""
    found = session.catalog.open(request.address)[0]
    head = find_head(session.reader, found.dataset_id, request.branch)
    previous = None if head is None else head.version
    return Restored(found.dataset_id, request.branch, found.version, "", previous, changed=False)
