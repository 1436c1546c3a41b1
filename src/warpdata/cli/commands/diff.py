"""`warp diff`: changes between two versions, by table and stored file, or by sample."""

from __future__ import annotations

from dataclasses import asdict
from itertools import islice
from typing import TYPE_CHECKING

import click

from warpdata.cli.context import CliContext
from warpdata.cli.format import bytes_text, cell_text, count_text, section_noun, short, to_json
from warpdata.cli.options import address_argument, command
from warpdata.cli.output import print_json, print_line, print_table
from warpdata.cli.terminal import write_text
from warpdata.repository.manifest import EntryChange, Manifest, compare

if TYPE_CHECKING:
    from warpdata.datasets import Dataset
    from warpdata.edit import SampleChange, SampleDiff

__all__ = ["diff"]

_KEYS = {
    "older": "{dataset_id, version}, or null if the version has no parent",
    "newer": "{dataset_id, version}",
    "changes": (
        "list of {section, name, change, shards_added, shards_removed, rows_added, rows_removed, "
        "bytes_added, bytes_removed}; change is added, removed or changed"
    ),
    "table": "with --by sample, which prints one document on a line for each sample that differs: name of the table",
    "change": "with --by sample: removed, changed or added",
    "sample_id": "with --by sample: number of the sample in the table, the same in all versions",
    "columns": "with --by sample: list of columns whose values differ, for a changed sample",
    "old": "with --by sample: the values in the older version, or null",
    "new": "with --by sample: the values in the newer version, or null",
}
_SHOWN_SAMPLES = 20


@command("diff", json_keys=_KEYS)
@address_argument("first", metavar="ID[@REF]")
@address_argument("second", metavar="[ID[@REF]]", required=False)
@click.option(
    "--by",
    type=click.Choice(["entry", "sample"]),
    default="entry",
    show_default=True,
    help="Show tables and stored files that differ, or samples with old and new values.",
)
@click.option(
    "--limit",
    "-n",
    type=click.IntRange(1),
    metavar="N",
    help=f"Samples to show with --by sample. Default: {_SHOWN_SAMPLES}, and all with --json.",
)
@click.pass_obj
def diff(cli: CliContext, first: str, second: str | None, by: str, limit: int | None) -> None:
    """Show the changes between two versions.

    Compares the hashes of stored files and reads no data. The second version is compared with the first. With
    one version, shows what it changed: it is compared with its parent. With --by sample, reads the samples that
    differ and shows their values; rows that were only written again are not changes.

    \b
      warp diff acme/trips
      warp diff acme/trips@v1 acme/trips@experiment
      warp diff acme/trips@v1 acme/trips --by sample --limit 100
    """
    if limit is not None and by != "sample":
        raise click.UsageError("--limit needs --by sample")
    with cli.progress("Comparing"):
        after = cli.open(second or first)
        before = _parent(cli, after) if second is None else cli.open(first)
    if by == "sample":
        _show_samples(cli, before, after, limit)
    else:
        _show_entries(cli, before, after)


def _show_samples(cli: CliContext, before: Dataset | None, after: Dataset, limit: int | None) -> None:
    found = _sample_diff(before, after)
    if cli.as_json:
        for change in islice(found.rows(), limit):
            write_text(to_json(asdict(change)).decode())
        return
    limit = limit or _SHOWN_SAMPLES
    with cli.progress("Comparing samples"):
        shown = list(islice(found.rows(), limit + 1))
    _print_versions(before, after)
    if not shown:
        print_line("no difference")
        return
    print_line()
    print_table(
        ("table", ">sample", "change", "values"),
        ((change.table, f"{change.sample_id}", change.change, _values(change)) for change in shown[:limit]),
    )
    print_line()
    counts = f"{count_text(found.added, 'sample')} added, {found.removed:,} removed"
    if len(shown) > limit:
        print_line(f"{counts}; more samples differ, and --limit shows more", style="dim")
    else:
        changed = sum(change.change == "changed" for change in shown)
        print_line(f"{counts}, {changed:,} changed", style="dim")


def _sample_diff(before: Dataset | None, after: Dataset) -> SampleDiff:
    from warpdata.edit import SampleDiff

    if before is None:
        return SampleDiff({name: (None, after.find_table(name)) for name in sorted(after.tables)})
    return after.diff_samples(before)


def _values(change: SampleChange) -> str:
    """Return what differs: both values of each changed column, or the row."""
    old, new = change.old or {}, change.new or {}
    if change.change == "changed":
        return ", ".join(f"{name}: {cell_text(old.get(name))} → {cell_text(new.get(name))}" for name in change.columns)
    return ", ".join(f"{name}: {cell_text(value)}" for name, value in (old or new).items())


def _print_versions(before: Dataset | None, after: Dataset) -> None:
    origin = "no parent" if before is None else f"{before.id} {short(before.version)}"
    print_line(f"{origin} → {after.id} {short(after.version)}", style="dim")


def _show_entries(cli: CliContext, before: Dataset | None, after: Dataset) -> None:
    with cli.progress("Comparing"):
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
    _print_versions(before, after)
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
