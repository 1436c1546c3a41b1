"""`warp inspect`: how a version is built: tables, other payloads, bindings, and the shards behind them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import click

from warpdata.catalog import parse_address
from warpdata.cli.figures import bytes_text, count_text, short
from warpdata.cli.invocation import Invocation
from warpdata.cli.options import address_argument, command
from warpdata.cli.output import print_facts, print_json, print_line, print_table
from warpdata.datasets import open_dataset
from warpdata.manifest import LoadPage, Manifest, ShardList, iter_shards

__all__ = ["inspect"]

_KEYS = {
    "dataset_id": "workspace/name",
    "version": "64 hex digits",
    "store": "where it lies",
    "size_bytes": "bytes of all stored files",
    "entries": (
        "a list of {section, name, kind, rows, shard_count, size_bytes, page_levels, shards}; section is tables, "
        "artifacts, episodes, tensors or indexes, rows is null but for tables, and shards lists the first "
        "--shards of them as {hash, byte_size, row_count}"
    ),
    "bindings": "a list of {table, column, artifact, ref_type}",
    "metadata": "words about the version, as it was published with",
}


@command("inspect", json_keys=_KEYS)
@address_argument()
@click.option(
    "--shards",
    "shown",
    type=click.IntRange(min=0),
    default=3,
    show_default=True,
    help="How many shards to list of each table or payload.",
)
@click.pass_obj
def inspect(invocation: Invocation, address: str, shown: int) -> None:
    """Show tables, other payloads, bindings and shards.

    A shard is one stored file, named by the SHA-256 of its content.
    """
    with invocation.meter(f"Opening {address}"):
        link = invocation.connect()
        opened = open_dataset(link, parse_address(address))
        entries = list(_entries(opened.manifest, link.catalog.load_page, shown))
    document = {
        "dataset_id": opened.id,
        "version": opened.version,
        "store": link.reader.url,
        "size_bytes": opened.manifest.data_bytes,
        "entries": entries,
        "bindings": [
            {"table": b.table, "column": b.column, "artifact": b.artifact, "ref_type": b.ref_type}
            for b in opened.manifest.bindings
        ],
        "metadata": dict(opened.manifest.metadata),
    }
    if invocation.as_json:
        print_json(document)
    else:
        _print(document)


def _entries(manifest: Manifest, load_page: LoadPage, shown: int) -> Iterator[dict[str, Any]]:
    for name, table in sorted(manifest.tables.items()):
        yield _entry("tables", name, table.format, table.shards, load_page, shown)
    for section, payloads in manifest.payloads().items():
        for name, payload in sorted(payloads.items()):
            yield _entry(section, name, payload.kind, payload.shards, load_page, shown)


def _entry(section: str, name: str, kind: str, shards: ShardList, load_page: LoadPage, shown: int) -> dict[str, Any]:
    first = islice(iter_shards(shards, load_page), shown)
    return {
        "section": section,
        "name": name,
        "kind": kind,
        "rows": shards.row_count if section == "tables" else None,
        "shard_count": shards.shard_count,
        "size_bytes": shards.data_bytes,
        "page_levels": shards.levels,
        "shards": [{"hash": s.hash, "byte_size": s.byte_size, "row_count": s.row_count} for s in first],
    }


def _print(document: dict[str, Any]) -> None:
    print_facts(
        {
            "dataset": document["dataset_id"],
            "version": document["version"],
            "store": document["store"],
            "size": bytes_text(document["size_bytes"]),
            **document["metadata"],
        }
    )
    for entry in document["entries"]:
        print_line()
        _print_entry(entry)
    if document["bindings"]:
        print_line()
        print_table(
            ("column", "refers to", "as"),
            ((f"{b['table']}.{b['column']}", b["artifact"], b["ref_type"]) for b in document["bindings"]),
        )


def _print_entry(entry: dict[str, Any]) -> None:
    singular = {"indexes": "index"}.get(entry["section"], entry["section"].removesuffix("s"))
    facts = [entry["kind"], bytes_text(entry["size_bytes"]), count_text(entry["shard_count"], "shard")]
    if entry["rows"] is not None:
        facts.insert(1, count_text(entry["rows"], "row"))
    if entry["page_levels"]:
        facts.append(count_text(entry["page_levels"], "page level"))
    print_line(f"{singular} {entry['name']}: {', '.join(facts)}", style="bold")
    if not entry["shards"]:
        return
    print_table(
        ("  shard", ">rows", ">size"),
        (
            (
                f"  {short(shard['hash'])}",
                "" if shard["row_count"] is None else f"{shard['row_count']:,}",
                bytes_text(shard["byte_size"]),
            )
            for shard in entry["shards"]
        ),
    )
    left = entry["shard_count"] - len(entry["shards"])
    if left:
        print_line(f"  … and {left:,} more", style="dim")
