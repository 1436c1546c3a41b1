"""`warp find-commit`: look up the outcome of an interrupted publish."""

from __future__ import annotations

from dataclasses import asdict

import click

import warpdata
from warpdata.cli.commands.log import REVISION_KEYS
from warpdata.cli.context import CliContext
from warpdata.cli.exit_codes import NOT_FOUND
from warpdata.cli.format import short, time_text
from warpdata.cli.options import command, dataset_argument
from warpdata.cli.output import note, print_facts, print_json

__all__ = ["find_commit"]

_KEYS = {
    "dataset_id": "workspace/name",
    "txn_id": "id of the transaction",
    "branch": "the branch that was published to",
    "landed": "true if the transaction is in the history of the branch",
    "commit": f"{REVISION_KEYS}, or null",
}


@command("find-commit", json_keys=_KEYS)
@dataset_argument()
@click.argument("txn_id", metavar="TXN")
@click.option("--branch", default="main", show_default=True, metavar="NAME", help="The branch that was published to.")
@click.pass_obj
@click.pass_context
def find_commit(ctx: click.Context, cli: CliContext, dataset_id: str, txn_id: str, branch: str) -> None:
    """Look up the outcome of an interrupted publish.

    TXN is the transaction id in the error message. Exits with code 0 if the branch has its commit, and with
    3 if it does not.
    """
    with cli.progress(f"Searching {dataset_id}"):
        found = warpdata.find_commit(dataset_id, txn_id, branch=branch, store=cli.store)
    if cli.as_json:
        print_json(
            {
                "dataset_id": dataset_id,
                "txn_id": txn_id,
                "branch": branch,
                "landed": found is not None,
                "commit": None if found is None else asdict(found),
            }
        )
    elif found is not None:
        print_facts(
            {
                "committed": f"{dataset_id}@{branch}",
                "version": found.version,
                "commit": short(found.commit),
                "time": time_text(found.time),
                "message": found.message or None,
            }
        )
    if found is None:
        note(f"{txn_id} is not on {dataset_id}@{branch}; this is final once the branch has a later commit")
        ctx.exit(NOT_FOUND)
