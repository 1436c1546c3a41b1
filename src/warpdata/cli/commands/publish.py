"""`warp publish`: files become a new version."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from warpdata.catalog import Address
from warpdata.cli.figures import bytes_text, count_text, short
from warpdata.cli.invocation import Invocation
from warpdata.cli.options import command, dataset_argument
from warpdata.cli.output import print_facts, print_json, print_line, print_table
from warpdata.cli.parameters import PairType
from warpdata.cli.progress import Meter
from warpdata.datasets import Connection
from warpdata.digest import is_digest
from warpdata.publish import DatasetBuilder, Published, PublishPlan

__all__ = ["publish"]

_KEYS = {
    "dataset_id": "workspace/name",
    "version": "64 hex digits; null in a dry run of --append, where it depends on what is there then",
    "commit": "the commit now at the head of the branch; not in a dry run",
    "branch": "its name; not in a dry run",
    "label": "the label given, or null; not in a dry run",
    "changed": "false if the branch already stood at this version; not in a dry run",
    "uploaded_files": "files sent, or in a dry run to be sent",
    "uploaded_bytes": "their size",
    "tables": "only in a dry run: rows by table",
    "files": "only in a dry run: a list of {path, hash, byte_size, is_present}",
}
_LISTED_FILES = 10


@dataclass(frozen=True, slots=True)
class _Request:
    dataset_id: str
    tables: tuple[tuple[str, str], ...]
    append: bool
    rewrite: bool
    label: str | None
    message: str
    branch: str
    author: str | None
    metadata: tuple[tuple[str, str], ...]
    expected: str | None
    repair: bool
    dry_run: bool


@command("publish", json_keys=_KEYS)
@dataset_argument()
@click.option(
    "--table",
    "tables",
    type=PairType("NAME=GLOB"),
    multiple=True,
    required=True,
    metavar="NAME=GLOB",
    help="A table and its Parquet files: a file, a folder or a quoted glob. Repeat it for more.",
)
@click.option("--append", is_flag=True, help="Add the rows to what is there, instead of replacing it.")
@click.option("--rewrite", is_flag=True, help="Write the files anew, with even row groups and page checksums.")
@click.option("--label", metavar="NAME", help="Name this version for good.")
@click.option("-m", "--message", default="", metavar="TEXT", help="What changed, for the log.")
@click.option("--branch", default="main", show_default=True, metavar="NAME", help="The branch to move.")
@click.option("--author", metavar="NAME", help="Who publishes; WARP_AUTHOR or the user by default.")
@click.option(
    "--metadata",
    type=PairType("KEY=VALUE"),
    multiple=True,
    metavar="KEY=VALUE",
    help="Words about the version. Repeat for more.",
)
@click.option("--expect", "expected", metavar="REF", help="Refuse unless the branch stands at this version.")
@click.option("--repair", is_flag=True, help="Re-read files already stored, and send damaged ones again.")
@click.option("--dry-run", is_flag=True, help="Say what would be sent, and send nothing.")
@click.pass_obj
def publish(invocation: Invocation, /, **given: Any) -> None:
    """Publish Parquet files as a new version.

    The files are taken as they are, byte for byte. Publishing the same content again changes
    nothing. Interrupted at any point, it leaves the previous version intact and can be run again:
    what was sent is not sent twice.

    \b
      warp publish acme/trips --table main='data/*.parquet' -m "first load" --label v1
      warp publish acme/trips --table main=data/june.parquet --append
    """
    request = _Request(**given)
    with invocation.meter(f"Preparing {request.dataset_id}") as meter:
        link = invocation.connect()
        builder = _builder(link, request)
        done = builder.plan(progress=meter) if request.dry_run else _publish(builder, link, request, meter)
    if isinstance(done, PublishPlan):
        _show_plan(invocation, done)
    else:
        _show_published(invocation, request, done)


def _builder(link: Connection, request: _Request) -> DatasetBuilder:
    builder = DatasetBuilder(request.dataset_id, link)
    sources: dict[str, list[str]] = {}
    for name, source in request.tables:
        sources.setdefault(name, []).append(source)
    for name, globs in sources.items():
        add = builder.append_table if request.append else builder.add_table
        add(name, list(globs), rewrite=request.rewrite)
    return builder


def _publish(builder: DatasetBuilder, link: Connection, request: _Request, meter: Meter) -> Published:
    expected = request.expected
    if expected is not None and not is_digest(expected):
        expected = link.catalog.resolve(Address(request.dataset_id, expected)).version
    return builder.publish(
        request.message,
        branch=request.branch,
        label=request.label,
        author=request.author,
        metadata=dict(request.metadata),
        expected_version=expected,
        repair=request.repair,
        progress=meter,
    )


def _show_published(invocation: Invocation, request: _Request, done: Published) -> None:
    if invocation.as_json:
        print_json(
            {
                "dataset_id": done.dataset_id,
                "version": done.version,
                "commit": done.commit,
                "branch": done.branch,
                "label": request.label,
                "changed": done.changed,
                "uploaded_files": done.uploaded_files,
                "uploaded_bytes": done.uploaded_bytes,
            }
        )
        return
    sent = f"{count_text(done.uploaded_files, 'file')}, {bytes_text(done.uploaded_bytes)}"
    print_facts(
        {
            "published" if done.changed else "unchanged": f"{done.dataset_id}@{done.branch}",
            "version": done.version,
            "label": request.label,
            "sent": sent if done.uploaded_files else "nothing; all files were there",
        }
    )


def _show_plan(invocation: Invocation, plan: PublishPlan) -> None:
    if invocation.as_json:
        print_json(_plan_document(plan))
        return
    kept = len(plan.files) - plan.upload_files
    print_facts(
        {
            "would publish": plan.dataset_id,
            "version": plan.version or "depends on what is there then",
            **{f"table {name}": count_text(rows, "row") for name, rows in plan.tables.items()},
            "to send": f"{count_text(plan.upload_files, 'file')}, {bytes_text(plan.upload_bytes)}",
            "already there": count_text(kept, "file") if kept else None,
        }
    )
    print_line()
    print_table(("file", ">size", "hash", ""), _file_rows(plan))
    if len(plan.files) > _LISTED_FILES:
        print_line(f"… and {len(plan.files) - _LISTED_FILES:,} more", style="dim")


def _file_rows(plan: PublishPlan) -> Iterable[tuple[str, str, str, str]]:
    here = Path.cwd()
    for file in plan.files[:_LISTED_FILES]:
        blob = file.fingerprint.blob
        path = file.path.relative_to(here) if file.path.is_relative_to(here) else file.path
        yield str(path), bytes_text(blob.byte_size), short(blob.hash), "there" if file.is_present else "to send"


def _plan_document(plan: PublishPlan) -> dict[str, Any]:
    return {
        "dataset_id": plan.dataset_id,
        "version": plan.version,
        "uploaded_files": plan.upload_files,
        "uploaded_bytes": plan.upload_bytes,
        "tables": dict(plan.tables),
        "files": [
            {
                "path": str(file.path),
                "hash": file.fingerprint.blob.hash,
                "byte_size": file.fingerprint.blob.byte_size,
                "is_present": file.is_present,
            }
            for file in plan.files
        ],
    }
