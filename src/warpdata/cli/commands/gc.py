"""`warp gc`: find the garbage of a store, and delete it on request."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import click

import warpdata
from warpdata.cli.context import CliContext
from warpdata.cli.format import bytes_text, count_text, time_text
from warpdata.cli.options import command
from warpdata.cli.output import note, print_facts, print_json, print_line, print_table
from warpdata.cli.terminal import escape
from warpdata.repository.gc import GarbageReport

__all__ = ["gc"]

_KEYS = {
    "store": "URL of the store",
    "keep": "the retention rule",
    "dry_run": "true if nothing was deleted",
    "objects": "number of garbage objects",
    "size_bytes": "their size",
    "garbage": "list of {dataset_id, reason, kind, count, size_bytes}; reason is orphan, expired or abandoned",
    "kept_versions": "number of versions that stay",
    "live_blobs": "number of stored files that stay",
    "live_bytes": "their size",
    "deleted_count": "number of deleted objects",
    "deleted_bytes": "their size",
    "ready_at": "the time from which on the store can be collected; null if that is now",
}
_REASONS = {
    "orphan": "left by a publish that did not finish",
    "expired": "not kept by the rule",
    "abandoned": "unfinished upload",
}


@dataclass(frozen=True, slots=True)
class _Options:
    keep: str
    wait_s: float | None


@command("gc", json_keys=_KEYS)
@click.option("--keep", default="all", show_default=True, metavar="RULE", help="Versions of the history to keep.")
@click.option("--yes", "-y", is_flag=True, help="Delete without asking.")
@click.option("--dry-run", is_flag=True, help="Show what would be deleted, and do not ask.")
@click.option("--wait", "wait_s", type=click.FloatRange(0), metavar="S", help="Wait at most this long for publishes.")
@click.pass_obj
def gc(cli: CliContext, keep: str, yes: bool, dry_run: bool, wait_s: float | None) -> None:
    """Delete objects of a store that no version needs.

    Shows what would go, and asks. Heads, labels and pins always stay. RULE says which other versions of the history
    stay: "all", or terms such as "labels, pins, last 10, 30 days". Publishes may run meanwhile.

    \b
      warp gc
      warp gc --keep "last 10, 30 days"
      warp gc --keep "last 10" --yes
    """
    if yes and dry_run:
        raise click.UsageError("--yes does not mix with --dry-run")
    options = _Options(keep, wait_s)
    is_asked = not (yes or dry_run or cli.as_json) and sys.stdin.isatty()
    report = _collect(cli, options, dry_run=not yes)
    if cli.as_json:
        print_json(_document(report))
        return
    _show(report)
    if not (yes or dry_run) and report.count and not is_asked:
        note("Nothing was deleted. Add --yes to delete.")
    elif is_asked and report.count and click.confirm(escape(f"Delete {_total(report)}?"), err=True):
        report = _collect(cli, options, dry_run=False)
        yes = True
    if yes and report.ready_at is not None:
        when = time_text(report.ready_at)
        note(f"Programs without leases could write to this store until now. Run it again after {when}.")
    elif yes:
        print_line(f"{count_text(report.deleted_count, 'object')} deleted, {bytes_text(report.deleted_bytes)}")


def _collect(cli: CliContext, options: _Options, *, dry_run: bool) -> GarbageReport:
    with cli.progress("Marking versions") as progress:
        return warpdata.gc(
            cli.store, keep=options.keep, dry_run=dry_run, wait_s=options.wait_s, progress=progress
        ).report


def _show(report: GarbageReport) -> None:
    kept = f"{count_text(report.kept_versions, 'version')}, {bytes_text(report.live_bytes)}"
    print_facts({"store": report.store, "rule": report.rule, "kept": kept, "garbage": _total(report)})
    if report.garbage:
        print_line()
        rows = (
            (one.dataset_id or "", one.kind, _REASONS[one.reason], f"{one.count:,}", bytes_text(one.size_bytes))
            for one in report.garbage
        )
        print_table(("dataset", "object", "reason", ">count", ">size"), rows)


def _total(report: GarbageReport) -> str:
    return f"{count_text(report.count, 'object')}, {bytes_text(report.size_bytes)}" if report.count else "none"


def _document(report: GarbageReport) -> dict[str, Any]:
    return {
        "store": report.store,
        "keep": report.rule,
        "dry_run": report.dry_run,
        "objects": report.count,
        "size_bytes": report.size_bytes,
        "garbage": [
            {
                "dataset_id": one.dataset_id,
                "reason": one.reason,
                "kind": one.kind,
                "count": one.count,
                "size_bytes": one.size_bytes,
            }
            for one in report.garbage
        ],
        "kept_versions": report.kept_versions,
        "live_blobs": report.live_blobs,
        "live_bytes": report.live_bytes,
        "deleted_count": report.deleted_count,
        "deleted_bytes": report.deleted_bytes,
        "ready_at": None if report.ready_at is None else report.ready_at.isoformat(),
    }
