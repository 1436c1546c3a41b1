"""`warp info`: show the contents of a version without reading data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, cast

import click

from warpdata.cli.context import CliContext
from warpdata.cli.format import bytes_text, count_text, short_id, time_text
from warpdata.cli.options import address_argument, command
from warpdata.cli.output import print_facts, print_json, print_line, print_table
from warpdata.errors import NotCachedError

if TYPE_CHECKING:
    from warpdata.datasets import Dataset, DatasetInfo, Revision
    from warpdata.kinds import EntryInfo, PayloadKind

__all__ = ["info"]

_KEYS = {
    "dataset_id": "workspace/name",
    "version": "64 hex digits",
    "store": "URL of the store",
    "branch": "the branch, if one was opened, or null",
    "label": "the label, if one was opened, or null",
    "rows": "number of rows of all tables",
    "size_bytes": "size of all stored files",
    "tables": "list of {name, rows, shards, size_bytes, deleted_rows}",
    "artifacts": "list of {name, kind, compression, members, shards, size_bytes}",
    "episodes": "list of {name, episodes, steps, size_bytes}",
    "tensors": "list of {name, artifact_id, tensors, shards, size_bytes}",
    "indexes": "list of {name, kind, table, column, segments, size_bytes}",
    "bindings": "list of {table, column, artifact, ref_type}",
    "commit": (
        "the newest commit: {commit, author, message, time}, or null if a version was opened by its hash, or if "
        "--mode local finds no commit in the cache"
    ),
    "metadata": "metadata of the version",
}


@command("info", json_keys=_KEYS, reads=True)
@address_argument()
@click.pass_obj
def info(cli: CliContext, address: str) -> None:
    """Show the contents of a version.

    Makes three small reads, regardless of the size of the dataset.
    """
    with cli.progress(f"Opening {address}"):
        opened = cli.open(address)
        facts = opened.info()
        newest = _newest(opened, facts)
    if cli.as_json:
        print_json(_document(opened, facts, newest))
    else:
        _print(opened, facts, newest)


def _newest(opened: Dataset, facts: DatasetInfo) -> Revision | None:
    """Return the commit of a branch or label. A version opened by its hash has no link to its commit."""
    if facts.branch is None and facts.label is None:
        return None
    try:
        return opened.history(limit=1)[0]
    except NotCachedError:  # offline the commit may be missing, because reading a version does not need it
        return None


def _document(opened: Dataset, facts: DatasetInfo, newest: Revision | None) -> dict[str, Any]:
    return {
        "dataset_id": facts.dataset_id,
        "version": facts.version,
        "store": facts.store,
        "branch": facts.branch,
        "label": facts.label,
        "rows": facts.rows,
        "size_bytes": facts.size_bytes,
        **dict.fromkeys(("tables", "artifacts", "episodes", "tensors", "indexes"), ()),
        **{
            section: [asdict(cast("Any", entry)) for entry in described] for section, described in facts.entries.items()
        },
        "bindings": [asdict(binding) for binding in facts.bindings],
        "commit": newest
        and {
            "commit": newest.commit,
            "author": newest.author,
            "message": newest.message,
            "time": newest.time,
        },
        "metadata": dict(opened.manifest.metadata),
    }


def _print(opened: Dataset, facts: DatasetInfo, newest: Revision | None) -> None:
    named = f"branch {facts.branch}" if facts.branch else f"label {facts.label}" if facts.label else None
    print_facts(
        {
            "dataset": facts.dataset_id,
            "version": facts.version,
            "ref": named,
            "published": newest and f"{time_text(newest.time)} by {newest.author}",
            "message": newest and (newest.message or None),
            "contents": ", ".join(_amounts(facts)),
            "store": facts.store,
            **opened.manifest.metadata,
        }
    )
    from warpdata.kinds import payload_kind

    for section, described in facts.entries.items():
        print_line()
        _print_section(payload_kind(section), described, facts)


def _print_section(kind: PayloadKind[Any, Any], described: Sequence[EntryInfo], facts: DatasetInfo) -> None:
    headings = [kind.noun, *(heading for heading, _ in kind.columns)]
    rows = [[entry.name, *(_cell(field, getattr(entry, field)) for _, field in kind.columns)] for entry in described]
    if kind.section == "artifacts":
        headings.append("columns")
        rows = [[*row, _columns(facts, row[0])] for row in rows]
    print_table(headings, rows)


def _cell(field: str, value: object) -> str:
    if field == "artifact_id":
        return short_id(str(value))
    if isinstance(value, int):
        return bytes_text(value) if field == "size_bytes" else f"{value:,}"
    return str(value)


def _amounts(facts: DatasetInfo) -> list[str]:
    """Return the number of items of each kind, and the size. An empty version has 0 rows."""
    from warpdata.kinds import payload_kind

    amounts = []
    for section, described in facts.entries.items() or [("tables", ())]:
        kind = payload_kind(section)
        amounts.append(count_text(sum(getattr(entry, kind.count_field) for entry in described), kind.item))
    return [*amounts, bytes_text(facts.size_bytes)]


def _columns(facts: DatasetInfo, artifact: str) -> str:
    """Return the columns that are bound to an artifact."""
    return ", ".join(f"{bound.table}.{bound.column}" for bound in facts.bindings if bound.artifact == artifact)
