"""`warp cache`: what is kept on this machine."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import Any

import click

import warpdata
from warpdata.cli.context import Invocation
from warpdata.cli.exit_codes import CORRUPT, complain
from warpdata.cli.format import bytes_text, count_text, short
from warpdata.cli.options import command, group
from warpdata.cli.output import note, print_facts, print_json, print_line
from warpdata.cli.parameters import SizeType
from warpdata.session import open_cache
from warpdata.storage.cache import BlobCache, EvictionResult, read_totals

__all__ = ["cache"]

_COLLECTED_KEYS = {
    "folder": "where the cache is",
    "evicted_entries": "how many stored files were removed",
    "evicted_bytes": "their size",
    "kept_in_use": "how many would have gone, too, but some process is reading them",
}


@group("cache")
def cache() -> None:
    """Look at, shrink, check or empty what is kept on this machine.

    Stored files of remote stores, by the hash of their content, shared by all processes and datasets. It
    lies in WARP_CACHE_DIR and keeps to WARP_CACHE_SIZE_GB by itself.
    """


@command(
    "stats",
    json_keys={
        "folder": "where the cache is",
        "entries": "how many stored files it holds",
        "size_bytes": "their size",
        "limit_bytes": "how large they may become together",
        "parts": "how many are being fetched, or were when their process was killed",
        "part_bytes": "the size of those",
        "totals": "what ended processes did with it: requests, bytes_fetched, hits, misses, waits, evictions, …",
    },
    uses_store=False,
)
@click.pass_obj
def _stats(invocation: Invocation) -> None:
    """Show how much is kept, and how much may be."""
    opened = _open()
    with invocation.meter("Looking"):
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
    if invocation.as_json:
        print_json(document)
        return
    share = f" ({found.bytes / found.limit_bytes:.0%})" if found.limit_bytes else ""
    print_facts(
        {
            "folder": opened.directory,
            "holds": f"{count_text(found.entries, 'file')}, {bytes_text(found.bytes)}{share}",
            "may hold": bytes_text(found.limit_bytes),
            "unfinished": f"{count_text(found.parts, 'file')}, {bytes_text(found.part_bytes)}" if found.parts else None,
            "asked stores": f"{count_text(totals.requests, 'request')}, {bytes_text(totals.bytes_fetched)}",
            "answered": f"{count_text(totals.hits, 'read')}, {bytes_text(totals.hit_bytes)}",
            "not here": count_text(totals.misses, "read"),
            "waited": count_text(totals.waits, "read"),
            "evicted": f"{count_text(totals.evictions, 'file')}, {bytes_text(totals.evicted_bytes)}",
            "healed": count_text(totals.healed, "file") if totals.healed else None,
        }
    )


@command("gc", json_keys=_COLLECTED_KEYS, uses_store=False)
@click.option(
    "--limit", type=SizeType(), metavar="SIZE", help="How much may stay, such as 500GB; WARP_CACHE_SIZE_GB by default."
)
@click.pass_obj
def _gc(invocation: Invocation, limit: int | None) -> None:
    """Remove what was unused for longest, down to a limit.

    Also what killed processes left unfinished. A file that some process reads stays.
    """
    opened = _open()
    with invocation.meter("Making room"):
        done = opened.collect(opened.limit_bytes if limit is None else limit)
    _tell_collected(invocation, opened, done)


@command(
    "verify",
    json_keys={
        "folder": "where the cache is",
        "ok": "whether nothing was damaged",
        "entries": "how many stored files were read",
        "size_bytes": "their size",
        "damaged": "a list of {hash, fact}: what was damaged, and is removed",
    },
    uses_store=False,
)
@click.pass_obj
@click.pass_context
def _verify(ctx: click.Context, invocation: Invocation) -> None:
    """Read everything again, and remove what is damaged.

    Exits with 8 if there was damage. Nothing is lost: it will be fetched again when it is needed.
    """
    opened = _open()
    with invocation.meter("Checking") as meter:
        found = opened.stats()
        damaged = opened.verify(meter.count_bytes(found.bytes))
    if invocation.as_json:
        listed = [{"hash": damage.digest, "fact": damage.fact} for damage in damaged]
        document = {"folder": str(opened.directory), "ok": not damaged, "entries": found.entries}
        print_json({**document, "size_bytes": found.bytes, "damaged": listed})
    else:
        print_line(f"{count_text(found.entries, 'file')}, {bytes_text(found.bytes)} read and hashed")
        for damage in damaged:
            print_line(f"{short(damage.digest)}: {damage.fact}; removed")
    if damaged:
        complain(f"{count_text(len(damaged), 'file')} in {opened.directory} were damaged, and are removed")
        ctx.exit(CORRUPT)


@command("clear", json_keys=_COLLECTED_KEYS, uses_store=False)
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.pass_obj
def _clear(invocation: Invocation, yes: bool) -> None:
    """Remove everything that no process is reading.

    Asks first; where nobody can be asked, --yes is needed. Stores are not touched.
    """
    opened = _open()
    if not yes and not _may_clear(opened):
        note("nothing was removed")
        return
    with invocation.meter("Removing"):
        done = opened.clear()
    _tell_collected(invocation, opened, done)


def _open() -> BlobCache:
    return open_cache(warpdata.load_settings())


def _may_clear(opened: BlobCache) -> bool:
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise click.UsageError("nobody can be asked here; add --yes to remove everything in the cache")
    found = opened.stats()
    question = f"Remove {count_text(found.entries, 'file')}, {bytes_text(found.bytes)} in {opened.directory}?"
    return click.confirm(question, err=True)


def _tell_collected(invocation: Invocation, opened: BlobCache, done: EvictionResult) -> None:
    if invocation.as_json:
        document: dict[str, Any] = {"folder": str(opened.directory), "evicted_entries": done.entries}
        print_json({**document, "evicted_bytes": done.bytes, "kept_in_use": done.kept_pinned})
        return
    print_line(f"removed {count_text(done.entries, 'file')}, {bytes_text(done.bytes)}")
    if done.kept_pinned:
        note(f"{count_text(done.kept_pinned, 'file')} stay, because they are in use")


for _command in (_stats, _gc, _verify, _clear):
    cache.add_command(_command)
