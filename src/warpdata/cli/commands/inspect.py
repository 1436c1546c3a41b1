"""`warp inspect`: show tables, artifacts, bindings and shards of a version."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from itertools import compress, islice
from typing import Any

import click

from warpdata.cli.context import CliContext
from warpdata.cli.format import bytes_text, count_text, section_noun, short
from warpdata.cli.options import address_argument, command
from warpdata.cli.output import print_facts, print_json, print_line, print_table
from warpdata.repository.manifest import LoadPage, Manifest, ManifestEntry, Payload, Shard, iter_shards

__all__ = ["inspect"]

_KEYS = {
    "dataset_id": "workspace/name",
    "version": "64 hex digits",
    "store": "URL of the store",
    "size_bytes": "size of all stored files",
    "entries": (
        "list of {section, name, kind, rows, deleted_rows, members, compression, steps, shard_count, size_bytes, "
        "page_levels, shards}; section is tables, artifacts, episodes, tensors or indexes; rows and deleted_rows are "
        "null except for tables, members and compression except for artifacts, steps except for episodes; shards lists "
        "the first --shards shards as {hash, byte_size, row_count}, with deleted_count and files where there are any"
    ),
    "bindings": "list of {table, column, artifact, ref_type}",
    "metadata": "metadata of the version",
}


@command("inspect", json_keys=_KEYS, reads=True)
@address_argument()
@click.option(
    "--shards",
    "shown",
    type=click.IntRange(min=0),
    default=3,
    show_default=True,
    help="Number of shards to list for each entry.",
)
@click.pass_obj
def inspect(cli: CliContext, address: str, shown: int) -> None:
    """Show tables, artifacts, bindings and shards.

    A shard is one stored file; its name is the SHA-256 of its content.
    """
    with cli.progress(f"Opening {address}"):
        opened = cli.open(address)
        session = opened.session
        entries = list(_entries(opened.manifest, session.catalog.load_page, shown))
    document = {
        "dataset_id": opened.id,
        "version": opened.version,
        "store": session.reader.url,
        "size_bytes": opened.manifest.data_bytes,
        "entries": entries,
        "bindings": [asdict(binding) for binding in opened.manifest.bindings],
        "metadata": dict(opened.manifest.metadata),
    }
    if cli.as_json:
        print_json(document)
    else:
        _print(document)


def _entries(manifest: Manifest, load_page: LoadPage, shown: int) -> Iterator[dict[str, Any]]:
    for section, entries in manifest.sections().items():
        for name, entry in sorted(entries.items()):
            yield _entry(section, name, entry, load_page, shown)


def _entry(section: str, name: str, part: ManifestEntry, load_page: LoadPage, shown: int) -> dict[str, Any]:
    shards = part.shards
    first = islice(iter_shards(shards, load_page), shown)
    attributes = part.attributes if isinstance(part, Payload) else {}
    return {
        "section": section,
        "name": name,
        "kind": part.kind if isinstance(part, Payload) else part.format,
        "rows": shards.row_count if section == "tables" else None,
        "deleted_rows": shards.deleted_count if section == "tables" else None,
        "members": attributes.get("members") if section == "artifacts" else None,
        "compression": attributes.get("compression") if section == "artifacts" else None,
        "steps": attributes.get("steps") if section == "episodes" else None,
        "shard_count": shards.shard_count,
        "size_bytes": shards.data_bytes,
        "page_levels": shards.levels,
        "shards": [_shard(shard) for shard in first],
    }


def _shard(shard: Shard) -> dict[str, Any]:
    shown: dict[str, Any] = {"hash": shard.hash, "byte_size": shard.byte_size, "row_count": shard.row_count}
    if shard.deleted_count:
        shown["deleted_count"] = shard.deleted_count
    if shard.files:
        shown["files"] = [{"hash": file.hash, "byte_size": file.byte_size} for file in shard.files]
    return shown


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
    facts = [entry["kind"], bytes_text(entry["size_bytes"]), count_text(entry["shard_count"], "shard")]
    if entry["rows"] is not None:
        facts.insert(1, count_text(entry["rows"], "row"))
    if entry["deleted_rows"]:
        facts.insert(2, f"{entry['deleted_rows']:,} deleted")
    if entry["members"] is not None:
        facts.insert(1, count_text(entry["members"], "file"))
    if entry["steps"] is not None:
        facts.insert(1, count_text(entry["steps"], "step"))
    if entry["compression"] is not None:
        facts.insert(1, entry["compression"])
    if entry["page_levels"]:
        facts.append(count_text(entry["page_levels"], "page level"))
    print_line(f"{section_noun(entry['section'])} {entry['name']}: {', '.join(facts)}", style="bold")
    if not entry["shards"]:
        return
    has_rows = any(shard["row_count"] is not None for shard in entry["shards"])
    has_deleted = any("deleted_count" in shard for shard in entry["shards"])
    shown = [True, has_rows, has_deleted, True]
    print_table(
        list(compress(("  shard", ">rows", ">deleted", ">size"), shown)),
        (list(compress(_shard_cells(shard), shown)) for shard in entry["shards"]),
    )
    left = entry["shard_count"] - len(entry["shards"])
    if left:
        print_line(f"  … and {left:,} more", style="dim")


def _shard_cells(shard: dict[str, Any]) -> tuple[str, ...]:
    size_bytes = shard["byte_size"] + sum(file["byte_size"] for file in shard.get("files", ()))
    rows, deleted = shard["row_count"] or 0, shard.get("deleted_count", 0)
    return f"  {short(shard['hash'])}", f"{rows:,}", f"{deleted:,}", bytes_text(size_bytes)
