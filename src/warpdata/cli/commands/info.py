"""`warp info`: show the contents of a version without reading data."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from warpdata.cli.context import CliContext
from warpdata.cli.format import bytes_text, count_text, short_id, time_text
from warpdata.cli.options import address_argument, command
from warpdata.cli.output import print_facts, print_json, print_line, print_table
from warpdata.datasets import Dataset, DatasetInfo, Revision
from warpdata.errors import NotCachedError

__all__ = ["info"]

_KEYS = {
    "dataset_id": "workspace/name",
    "version": "64 hex digits",
    "store": "URL of the store",
    "branch": "the branch, if one was opened, or null",
    "label": "the label, if one was opened, or null",
    "rows": "number of rows of all tables",
    "size_bytes": "size of all stored files",
    "tables": "list of {name, rows, shards, size_bytes}",
    "artifacts": "list of {name, kind, compression, members, shards, size_bytes}",
    "episodes": "list of {name, episodes, steps, size_bytes}",
    "tensors": "list of {name, artifact_id, tensors, shards, size_bytes}",
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
        "tables": [
            {"name": table.name, "rows": table.rows, "shards": table.shards, "size_bytes": table.size_bytes}
            for table in facts.tables
        ],
        "artifacts": [asdict(artifact) for artifact in facts.artifacts],
        "episodes": [asdict(episodes) for episodes in facts.episodes],
        "tensors": [asdict(tensors) for tensors in facts.tensors],
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
    if facts.tables:
        print_line()
        print_table(
            ("table", ">rows", ">shards", ">size"),
            ((t.name, f"{t.rows:,}", f"{t.shards:,}", bytes_text(t.size_bytes)) for t in facts.tables),
        )
    if facts.artifacts:
        print_line()
        print_table(
            ("artifact", "kind", ">files", ">shards", ">size", "columns"),
            (
                (a.name, a.kind, f"{a.members:,}", f"{a.shards:,}", bytes_text(a.size_bytes), _columns(facts, a.name))
                for a in facts.artifacts
            ),
        )
    if facts.episodes:
        print_line()
        print_table(
            ("episodes", ">episodes", ">steps", ">size"),
            ((e.name, f"{e.episodes:,}", f"{e.steps:,}", bytes_text(e.size_bytes)) for e in facts.episodes),
        )
    if facts.tensors:
        print_line()
        print_table(
            ("tensors", ">tensors", ">shards", ">size", "artifact id"),
            (
                (t.name, f"{t.tensors:,}", f"{t.shards:,}", bytes_text(t.size_bytes), short_id(t.artifact_id))
                for t in facts.tensors
            ),
        )


def _amounts(facts: DatasetInfo) -> list[str]:
    """Return the number of items of each kind, and the size. An empty version has 0 rows."""
    amounts = []
    if facts.tables or not (facts.artifacts or facts.episodes or facts.tensors):
        amounts.append(count_text(facts.rows, "row"))
    if facts.artifacts:
        amounts.append(count_text(sum(artifact.members for artifact in facts.artifacts), "file"))
    if facts.episodes:
        amounts.append(count_text(sum(found.episodes for found in facts.episodes), "episode"))
    if facts.tensors:
        amounts.append(count_text(sum(tensors.tensors for tensors in facts.tensors), "tensor"))
    return [*amounts, bytes_text(facts.size_bytes)]


def _columns(facts: DatasetInfo, artifact: str) -> str:
    """Return the columns that are bound to an artifact."""
    return ", ".join(f"{bound.table}.{bound.column}" for bound in facts.bindings if bound.artifact == artifact)
