"""`warp log`: show the history of a version, newest commit first."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from warpdata.cli.context import CliContext
from warpdata.cli.format import escape, short, time_text
from warpdata.cli.options import address_argument, command
from warpdata.cli.output import note, print_json, print_table
from warpdata.errors import NotCachedError

if TYPE_CHECKING:
    from warpdata.datasets import Revision

__all__ = ["REVISION_KEYS", "log"]

REVISION_KEYS = "{commit, version, parents, operation, author, message, time, txn_id}"
_KEYS = {
    "dataset_id": "workspace/name",
    "commits": f"list, newest first, of {REVISION_KEYS[:-1]}, labels}}",
}


@command("log", json_keys=_KEYS)
@address_argument()
@click.option("-n", "count", type=click.IntRange(min=1), default=10, show_default=True, help="Number of commits.")
@click.pass_obj
def log(cli: CliContext, address: str, count: int) -> None:
    """Show the history of a version, newest commit first."""
    with cli.progress(f"Reading the history of {address}"):
        opened = cli.open(address)
        session = opened.session
        revisions = opened.history(limit=count + 1)
        labels = defaultdict(list)
        with suppress(NotCachedError):  # mode local cannot list labels
            for label in session.catalog.labels(opened.id):
                labels[label.commit].append(label.name)
    shown = revisions[:count]
    if cli.as_json:
        commits = [asdict(one) | {"labels": labels[one.commit]} for one in shown]
        print_json({"dataset_id": opened.id, "commits": commits})
        return
    _print(shown, labels)
    if len(revisions) > count:
        note("more commits exist; use -n to show them")


def _print(revisions: Sequence[Revision], labels: Mapping[str, list[str]]) -> None:
    from rich.text import Text

    rows = []
    for revision in revisions:
        message = Text(escape(revision.message.partition("\n")[0]))
        for label in labels[revision.commit]:
            message = Text.assemble((escape(label), "green"), "  ", message)
        rows.append(
            (
                Text(short(revision.version), style="yellow"),
                time_text(revision.time),
                revision.author,
                revision.operation,
                message,
            )
        )
    print_table(("version", "time", "author", "operation", "labels and message"), rows)
