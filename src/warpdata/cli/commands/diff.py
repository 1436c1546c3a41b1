"""`warp diff`: changes between two versions, by table and stored file."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from warpdata.cli.context import CliContext
from warpdata.cli.format import bytes_text, count_text, section_noun, short
from warpdata.cli.options import address_argument, command
from warpdata.cli.output import print_json, print_line, print_table
from warpdata.repository.manifest import EntryChange, Manifest, compare

if TYPE_CHECKING:
    from warpdata.datasets import Dataset

__all__ = ["diff"]

_KEYS = {
    "older": "{dataset_id, version}, or null if the version has no parent",
    "newer": "{dataset_id, version}",
    "changes": (
        "list of {section, name, change, shards_added, shards_removed, rows_added, rows_removed, "
        "bytes_added, bytes_removed}; change is added, removed or changed"
    ),
}


@command("diff", json_keys=_KEYS)
@address_argument("first", metavar="ID[@REF]")
@address_argument("second", metavar="[ID[@REF]]", required=False)
@click.pass_obj
def diff(cli: CliContext, first: str, second: str | None) -> None:
    """Show the changes between two versions.

    Compares the hashes of stored files and reads no data. The second version is compared with the first. With
    one version, shows what it changed: it is compared with its parent.

    \b
      warp diff acme/trips
      warp diff acme/trips@v1 acme/trips@experiment
    """
    with cli.progress("Comparing"):
        after = cli.open(second or first)
        before = _parent(cli, after) if second is None else cli.open(first)
        changes = _compare(before, after)
    if cli.as_json:
        print_json(
            {
                "older": before and {"dataset_id": before.id, "version": before.version},
                "newer": {"dataset_id": after.id, "version": after.version},
                "changes": [asdict(change) for change in changes],
            }
        )
        return
    origin = "no parent" if before is None else f"{before.id} {short(before.version)}"
    print_line(f"{origin} → {after.id} {short(after.version)}", style="dim")
    if not changes:
        print_line("no difference")
        return
    print_line()
    print_table(
        ("", "change", ">rows", ">files", ">size"),
        (
            (
                f"{section_noun(change.section)} {change.name}",
                change.change,
                _signed(change.rows_added, change.rows_removed),
                _signed(change.shards_added, change.shards_removed),
                _sizes(change),
            )
            for change in changes
        ),
    )
    print_line()
    print_line(_summary(changes), style="dim")


def _parent(cli: CliContext, version: Dataset) -> Dataset | None:
    """Return the version that was published before this one, or None for the first."""
    revisions = version.history(limit=2)
    return None if len(revisions) < 2 else cli.open(f"{version.id}@{revisions[1].version}")


def _compare(before: Dataset | None, after: Dataset) -> tuple[EntryChange, ...]:
    if before is None:
        return compare(Manifest(after.id), after.manifest, after.load_page).changes
    return after.diff(before).changes


def _signed(added: int, removed: int) -> str:
    return " ".join(text for text, count in ((f"+{added:,}", added), (f"−{removed:,}", removed)) if count) or "±0"


def _sizes(change: EntryChange) -> str:
    added, removed = change.bytes_added, change.bytes_removed
    parts = ((f"+{bytes_text(added)}", added), (f"−{bytes_text(removed)}", removed))
    return " ".join(text for text, size in parts if size) or "±0"


def _summary(changes: tuple[EntryChange, ...]) -> str:
    added = sum(change.shards_added for change in changes)
    removed = sum(change.shards_removed for change in changes)
    return f"{count_text(added, 'file')} added, {removed:,} removed; unchanged files are not counted"
