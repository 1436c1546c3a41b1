"""What `warp publish` and `warp ingest` share: the options of a publish, doing it, and telling about it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from warpdata.cli.context import Invocation
from warpdata.cli.format import bytes_text, count_text, short
from warpdata.cli.output import print_facts, print_json, print_line, print_table
from warpdata.cli.parameters import PairType, SizeType
from warpdata.cli.progress import Meter
from warpdata.kinds import payload_kind
from warpdata.kinds.artifacts import ShardSpec
from warpdata.primitives.hashing import is_digest
from warpdata.publish import DatasetBuilder, PlannedFile, Published, PublishPlan
from warpdata.repository.catalog import Address
from warpdata.session import Session

__all__ = [
    "DRY_RUN_KEYS",
    "PUBLISH_KEYS",
    "PublishRequest",
    "document",
    "packing_options",
    "perform",
    "publish_options",
    "tell",
]

_F = TypeVar("_F", bound=Callable[..., Any])

PUBLISH_KEYS = {
    "dataset_id": "workspace/name",
    "version": "64 hex digits; null in a dry run of --append, where it depends on what is there then",
    "commit": "the commit now at the head of the branch; not in a dry run",
    "branch": "its name; not in a dry run",
    "label": "the label given, or null; not in a dry run",
    "changed": "false if the branch already stood at this version; not in a dry run",
    "uploaded_files": "files sent, or in a dry run to be sent",
    "uploaded_bytes": "their size",
}
DRY_RUN_KEYS = {
    "tables": "only in a dry run: rows by table",
    "artifacts": "only in a dry run: files by artifact",
    "episodes": "only in a dry run: episodes by set",
    "tensors": "only in a dry run: how many by set of tensors",
    "files": (
        "only in a dry run: a list of {path, hash, byte_size, is_present, members}; a shard that is packed when it "
        "is sent has a name as its path, and says how many files it holds; members is null for other files"
    ),
}
_LISTED_FILES = 10


@dataclass(frozen=True, slots=True)
class PublishRequest:
    """Where and how to publish, whatever it is."""

    dataset_id: str
    label: str | None
    message: str
    branch: str
    author: str | None
    metadata: tuple[tuple[str, str], ...]
    expected: str | None
    repair: bool
    dry_run: bool


def publish_options(function: _F) -> _F:
    """Options with the names of the fields of `PublishRequest`, but for the dataset's."""
    options = (
        click.option("--label", metavar="NAME", help="Name this version for good."),
        click.option("-m", "--message", default="", metavar="TEXT", help="What changed, for the log."),
        click.option("--branch", default="main", show_default=True, metavar="NAME", help="The branch to move."),
        click.option("--author", metavar="NAME", help="Who publishes; WARP_AUTHOR or the user by default."),
        click.option(
            "--metadata",
            type=PairType("KEY=VALUE"),
            multiple=True,
            metavar="KEY=VALUE",
            help="Words about the version. Repeat for more.",
        ),
        click.option("--expect", "expected", metavar="REF", help="Refuse unless the branch stands at this version."),
        click.option("--repair", is_flag=True, help="Re-read files already stored, and send damaged ones again."),
        click.option("--dry-run", is_flag=True, help="Say what would be sent, and send nothing."),
    )
    return _with(options, function)


def packing_options(function: _F) -> _F:
    """`compression` and `shard_bytes`, for raw files that are packed."""
    options = (
        click.option("--compression", type=click.Choice(["zstd"]), help="Compress packed files, each by itself."),
        click.option(
            "--shard-size",
            "shard_bytes",
            type=SizeType(),
            metavar="SIZE",
            help="About how much a packed shard holds, such as 500MB. By default at most 32MiB, cut by content.",
        ),
    )
    return _with(options, function)


def perform(
    builder: DatasetBuilder, session: Session, request: PublishRequest, meter: Meter
) -> Published | PublishPlan:
    """Publish, or plan to."""
    if request.dry_run:
        return builder.plan(progress=meter)
    expected = request.expected
    if expected is not None and not is_digest(expected):
        expected = session.catalog.resolve(Address(request.dataset_id, expected)).version
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


def tell(invocation: Invocation, session: Session, request: PublishRequest, done: Published | PublishPlan) -> None:
    """Print what was done or would be, for people or as JSON."""
    if invocation.as_json:
        print_json(document(session, request, done))
    elif isinstance(done, PublishPlan):
        _show_plan(session, done)
    else:
        _show_published(request, done)


def document(session: Session, request: PublishRequest, done: Published | PublishPlan) -> dict[str, Any]:
    """As JSON: `PUBLISH_KEYS`, in a dry run also `DRY_RUN_KEYS`."""
    if isinstance(done, PublishPlan):
        return _plan_document(session, done)
    return {
        "dataset_id": done.dataset_id,
        "version": done.version,
        "commit": done.commit,
        "branch": done.branch,
        "label": request.label,
        "changed": done.changed,
        "uploaded_files": done.uploaded_files,
        "uploaded_bytes": done.uploaded_bytes,
    }


def _show_published(request: PublishRequest, done: Published) -> None:
    sent = f"{count_text(done.uploaded_files, 'file')}, {bytes_text(done.uploaded_bytes)}"
    print_facts(
        {
            "published" if done.changed else "unchanged": f"{done.dataset_id}@{done.branch}",
            "version": done.version,
            "label": request.label,
            "sent": sent if done.uploaded_files else "nothing; all files were there",
        }
    )


def _show_plan(session: Session, plan: PublishPlan) -> None:
    kept = len(plan.files) - plan.upload_files
    print_facts(
        {
            "would publish": plan.dataset_id,
            "version": plan.version or "depends on what is there then",
            **{
                f"{kind.noun} {name}": count_text(count, kind.item)
                for kind, counts in ((payload_kind(section), counts) for section, counts in plan.counts.items())
                for name, count in counts.items()
            },
            "to send": f"{count_text(plan.upload_files, 'file')}, {bytes_text(plan.upload_bytes)}",
            "already there": count_text(kept, "file") if kept else None,
        }
    )
    print_line()
    print_table(("file", ">size", "hash", ""), _file_rows(session, plan))
    if len(plan.files) > _LISTED_FILES:
        print_line(f"… and {len(plan.files) - _LISTED_FILES:,} more", style="dim")


def _file_rows(session: Session, plan: PublishPlan) -> Iterable[tuple[str, str, str, str]]:
    here = Path.cwd()
    for file in plan.files[:_LISTED_FILES]:
        blob = file.fingerprint.blob
        path = _path(session, file)
        shown = str(path.relative_to(here) if path.is_relative_to(here) else path)
        packed = _packed_count(file)
        if packed is not None:
            shown += f" ({count_text(packed, 'file')})"
        yield shown, bytes_text(blob.byte_size), short(blob.hash), "there" if file.is_present else "to send"


def _plan_document(session: Session, plan: PublishPlan) -> dict[str, Any]:
    return {
        "dataset_id": plan.dataset_id,
        "version": plan.version,
        "uploaded_files": plan.upload_files,
        "uploaded_bytes": plan.upload_bytes,
        "tables": dict(plan.tables),
        "artifacts": dict(plan.artifacts),
        "episodes": dict(plan.episodes),
        "tensors": dict(plan.tensors),
        "files": [
            {
                "path": str(_path(session, file)),
                "hash": file.fingerprint.blob.hash,
                "byte_size": file.fingerprint.blob.byte_size,
                "is_present": file.is_present,
                "members": _packed_count(file),
            }
            for file in plan.files
        ],
    }


def _path(session: Session, file: PlannedFile) -> Path:
    """Of a file that is only staged its name: where it lies now is nobody's business, and soon not true."""
    return Path(file.path.name) if file.path.is_relative_to(session.settings.cache_dir) else file.path


def _packed_count(file: PlannedFile) -> int | None:
    return len(file.content.sources) if isinstance(file.content, ShardSpec) and file.content.is_archive else None


def _with(options: Iterable[Callable[[_F], _F]], function: _F) -> _F:
    """Decorators as they would be written above the function, in this order."""
    for option in reversed(tuple(options)):
        function = option(function)
    return function
