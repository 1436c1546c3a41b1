"""`warp cache`: the cache of this machine."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import Any

import click

import warpdata
from warpdata.cli.context import CliContext
from warpdata.cli.exit_codes import CORRUPT, print_error
from warpdata.cli.format import bytes_text, count_text, short
from warpdata.cli.options import command, group
from warpdata.cli.output import note, print_facts, print_json, print_line
from warpdata.cli.parameters import SizeType
from warpdata.cli.terminal import escape
from warpdata.session import open_cache
from warpdata.storage.cache import BlobCache, EvictionResult, read_totals, reclaim_staging

__all__ = ["cache"]

_COLLECTED_KEYS = {
    "folder": "path of the cache directory",
    "evicted_entries": "number of removed files",
    "evicted_bytes": "their size",
    "kept_in_use": "number of files that were not removed because a process is reading them",
    "staging_directories": "number of removed staging directories, which killed publishes left",
    "staging_bytes": "their size",
}


@group("cache")
def cache() -> None:
    """Show, shrink, verify or clear the cache of this machine.

    The cache holds files of remote stores by the hash of their content. All processes and datasets share
    it. Its directory is WARP_CACHE_DIR; WARP_CACHE_SIZE_GB limits its size.
    """


@command(
    "stats",
    json_keys={
        "folder": "path of the cache directory",
        "entries": "number of cached files",
        "size_bytes": "their size",
        "limit_bytes": "maximum size of the cache",
        "parts": "number of partial downloads, including those of killed processes",
        "part_bytes": "their size",
        "totals": "counters of processes that have exited: requests, bytes_fetched, hits, misses, waits, evictions, …",
    },
    uses_store=False,
)
@click.pass_obj
def _stats(cli: CliContext) -> None:
    """Show the size of the cache and how it was used."""
    opened = _open()
    with cli.progress("Scanning the cache"):
        found = opened.stats()
    totals = read_totals(opened.directory)
    document = {
        "folder": str(opened.directory),
        "entries": found.entries,
        "size_bytes": found.bytes,
        "limit_bytes": found.limit_bytes,
        "parts": found.parts,
        "part_bytes": found.part_bytes,
        "totals": asdict(totals),
    }
    if cli.as_json:
        print_json(document)
        return
    share = f" ({found.bytes / found.limit_bytes:.0%})" if found.limit_bytes else ""
    print_facts(
        {
            "directory": opened.directory,
            "size": f"{count_text(found.entries, 'file')}, {bytes_text(found.bytes)}{share}",
            "limit": bytes_text(found.limit_bytes),
            "partial": f"{count_text(found.parts, 'file')}, {bytes_text(found.part_bytes)}" if found.parts else None,
            "fetched": f"{count_text(totals.requests, 'request')}, {bytes_text(totals.bytes_fetched)}",
            "hits": f"{count_text(totals.hits, 'read')}, {bytes_text(totals.hit_bytes)}",
            "misses": count_text(totals.misses, "read"),
            "waits": count_text(totals.waits, "read"),
            "evicted": f"{count_text(totals.evictions, 'file')}, {bytes_text(totals.evicted_bytes)}",
            "repaired": count_text(totals.healed, "file") if totals.healed else None,
        }
    )


@command("gc", json_keys=_COLLECTED_KEYS, uses_store=False)
@click.option(
    "--limit",
    type=SizeType("GB"),
    metavar="SIZE",
    help="Size to keep, such as 500GB or 64MiB. A plain number is in GB. Default: WARP_CACHE_SIZE_GB.",
)
@click.pass_obj
def _gc(cli: CliContext, limit: int | None) -> None:
    """Evict the least recently used files down to a limit.

    Partial downloads and staging directories of killed processes are removed, too. Files that a process is
    reading stay.
    """
    opened = _open()
    with cli.progress("Evicting"):
        done = opened.collect(opened.limit_bytes if limit is None else limit)
    _print_evicted(cli, opened, done)


@command(
    "verify",
    json_keys={
        "folder": "path of the cache directory",
        "ok": "true if no file was corrupt",
        "entries": "number of files that were read",
        "size_bytes": "their size",
        "damaged": "list of {hash, fact}: the corrupt files, which were removed",
    },
    uses_store=False,
)
@click.pass_obj
@click.pass_context
def _verify(ctx: click.Context, cli: CliContext) -> None:
    """Read and hash every cached file, and remove corrupt ones.

    Exits with code 8 if a file was corrupt. The store still has it; the next read fetches it again.
    """
    opened = _open()
    with cli.progress("Verifying") as progress:
        found = opened.stats()
        damaged = opened.verify(progress.count_bytes(found.bytes))
    if cli.as_json:
        listed = [{"hash": damage.digest, "fact": damage.fact} for damage in damaged]
        document = {"folder": str(opened.directory), "ok": not damaged, "entries": found.entries}
        print_json({**document, "size_bytes": found.bytes, "damaged": listed})
    else:
        print_line(f"{count_text(found.entries, 'file')}, {bytes_text(found.bytes)} read and hashed")
        for damage in damaged:
            print_line(f"{short(damage.digest)}: {damage.fact}; removed")
    if damaged:
        print_error(f"removed {count_text(len(damaged), 'corrupt file')} from {opened.directory}")
        ctx.exit(CORRUPT)


@command("clear", json_keys=_COLLECTED_KEYS, uses_store=False)
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@click.pass_obj
def _clear(cli: CliContext, yes: bool) -> None:
    """Remove all files that no process is reading.

    Staging directories of killed publishes are removed, too. Asks for confirmation; without a terminal,
    --yes is required. Stores are not changed.
    """
    opened = _open()
    if not yes and not _may_clear(opened):
        note("nothing was removed")
        return
    with cli.progress("Removing"):
        done = opened.clear()
    _print_evicted(cli, opened, done)


def _open() -> BlobCache:
    return open_cache(warpdata.load_settings())


def _may_clear(opened: BlobCache) -> bool:
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise click.UsageError("no terminal to ask for confirmation; add --yes to clear the cache")
    found = opened.stats()
    question = f"Remove {count_text(found.entries, 'file')}, {bytes_text(found.bytes)} in {opened.directory}?"
    return click.confirm(escape(question), err=True)


def _print_evicted(cli: CliContext, opened: BlobCache, done: EvictionResult) -> None:
    staging = reclaim_staging(opened.directory)
    if cli.as_json:
        document: dict[str, Any] = {
            "folder": str(opened.directory),
            "evicted_entries": done.entries,
            "evicted_bytes": done.bytes,
            "kept_in_use": done.kept_pinned,
            "staging_directories": staging.directories,
            "staging_bytes": staging.size_bytes,
        }
        print_json(document)
        return
    print_line(f"removed {count_text(done.entries, 'file')}, {bytes_text(done.bytes)}")
    if staging.directories:
        found = count_text(staging.directories, "staging directory", "staging directories")
        print_line(f"removed {found} of killed publishes, {bytes_text(staging.size_bytes)}")
    if done.kept_pinned:
        note(f"kept {count_text(done.kept_pinned, 'file')} in use")


for _command in (_stats, _gc, _verify, _clear):
    cache.add_command(_command)
