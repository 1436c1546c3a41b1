"""Options, execution and output of a publish, shared by `warp publish`, `warp ingest` and `warp tensors import`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from warpdata.cli.context import CliContext
from warpdata.cli.engine_options import engine_options, take_engine
from warpdata.cli.format import bytes_text, count_text, short
from warpdata.cli.options import apply_options
from warpdata.cli.output import print_facts, print_json, print_line, print_table
from warpdata.cli.parameters import PairType, SizeType
from warpdata.cli.progress import ProgressLine
from warpdata.primitives.hashing import is_digest
from warpdata.repository.catalog import Address

if TYPE_CHECKING:
    from warpdata.publish import DatasetBuilder, PlannedFile, Published, PublishPlan
    from warpdata.session import Session

__all__ = [
    "DRY_RUN_KEYS",
    "PUBLISH_KEYS",
    "PublishRequest",
    "links_option",
    "packing_options",
    "print_result",
    "publish_options",
    "result_document",
    "run_publish",
]

_F = TypeVar("_F", bound=Callable[..., Any])

PUBLISH_KEYS = {
    "dataset_id": "workspace/name",
    "version": "64 hex digits; null in a dry run of --append or --keep, because it depends on the head by then",
    "commit": "the new head of the branch; not in a dry run",
    "branch": "name of the branch; not in a dry run",
    "label": "the label, or null; not in a dry run",
    "changed": "false if the branch was already at this version; not in a dry run",
    "uploaded_files": "number of uploaded files; in a dry run, files to upload",
    "uploaded_bytes": "their size",
}
DRY_RUN_KEYS = {
    "tables": "only in a dry run: number of rows by table",
    "artifacts": "only in a dry run: number of files by artifact",
    "episodes": "only in a dry run: number of episodes by set",
    "tensors": "only in a dry run: number of tensors by set",
    "files": (
        "only in a dry run: list of {path, hash, byte_size, is_present, members}; members is the number of files in "
        "a packed shard, whose path is only a name, and null for other files"
    ),
}
_LISTED_FILES = 10


@dataclass(frozen=True, slots=True)
class PublishRequest:
    """Options of a publish, independent of its content."""

    dataset_id: str
    label: str | None
    message: str
    branch: str
    set_latest: bool
    author: str | None
    metadata: tuple[tuple[str, str], ...]
    expected: str | None
    replace: bool
    keep: bool
    repair: bool
    dry_run: bool
    engine: str | None = None
    workers: int | None = None
    job: str | None = None


def publish_options(function: _F) -> _F:
    """Add one option for each field of `PublishRequest`, except `dataset_id`."""
    options = (
        click.option("--label", metavar="NAME", help="Permanent name for this version."),
        click.option("-m", "--message", default="", metavar="TEXT", help="Message for the log."),
        click.option("--branch", default="main", show_default=True, metavar="NAME", help="Branch to publish to."),
        click.option(
            "--set-latest",
            is_flag=True,
            help='Make the new version the newest on the branch "main". This is the default without --branch.',
        ),
        click.option("--author", metavar="NAME", help="Author of the commit. Default: WARP_AUTHOR, or the user."),
        click.option(
            "--metadata",
            type=PairType("KEY=VALUE"),
            multiple=True,
            metavar="KEY=VALUE",
            help="Metadata of the version. Repeatable.",
        ),
        click.option("--expect", "expected", metavar="REF", help="Fail unless the branch is at this version."),
        click.option(
            "--replace", is_flag=True, help="Publish even if the version lacks entries of the head, which then go."
        ),
        click.option("--keep", is_flag=True, help="Keep the entries of the head that this publish does not name."),
        click.option("--repair", is_flag=True, help="Verify files that are already stored, and replace corrupt ones."),
        click.option("--dry-run", is_flag=True, help="Show the files to upload without publishing."),
    )
    return engine_options(apply_options(function, options))


def packing_options(function: _F) -> _F:
    """Add `--compression` and `--shard-size`, for packed artifacts."""
    options = (
        click.option("--compression", type=click.Choice(["zstd"]), help="Compress each packed file separately."),
        click.option(
            "--shard-size",
            "shard_bytes",
            type=SizeType(),
            metavar="SIZE",
            help="Approximate size of a packed shard, such as 500MB. Default: content-defined, at most 32MiB.",
        ),
    )
    return apply_options(function, options)


def links_option(function: _F) -> _F:
    """Add `--follow-links`, for sources that are directories or globs."""
    text = "Publish files that links point to, even outside of the directory. Default: refuse them."
    return click.option("--follow-links", is_flag=True, help=text)(function)


def run_publish(
    builder: DatasetBuilder, session: Session, request: PublishRequest, progress: ProgressLine
) -> Published | PublishPlan:
    """Publish, or only plan in a dry run."""
    if request.set_latest and request.branch != "main":
        raise click.UsageError('--set-latest moves the branch "main"; omit --branch')
    how = take_engine({"engine": request.engine, "workers": request.workers, "job": request.job})
    if request.dry_run:
        return builder.plan(branch=request.branch, replace=request.replace, keep=request.keep, progress=progress)
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
        replace=request.replace,
        keep=request.keep,
        repair=request.repair,
        progress=progress,
        **how,
    )


def print_result(cli: CliContext, session: Session, request: PublishRequest, done: Published | PublishPlan) -> None:
    """Print the result of a publish or of a dry run."""
    from warpdata.publish import PublishPlan

    if cli.as_json:
        print_json(result_document(session, request, done))
    elif isinstance(done, PublishPlan):
        _show_plan(session, done)
    else:
        _show_published(request, done)


def result_document(session: Session, request: PublishRequest, done: Published | PublishPlan) -> dict[str, Any]:
    """Return the JSON document with `PUBLISH_KEYS`, and in a dry run also `DRY_RUN_KEYS`."""
    from warpdata.publish import PublishPlan

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
    uploaded = f"{count_text(done.uploaded_files, 'file')}, {bytes_text(done.uploaded_bytes)}"
    print_facts(
        {
            "published" if done.changed else "unchanged": f"{done.dataset_id}@{done.branch}",
            "version": done.version,
            "label": request.label,
            "uploaded": uploaded if done.uploaded_files else "nothing, all files were already stored",
        }
    )


def _show_plan(session: Session, plan: PublishPlan) -> None:
    from warpdata.kinds import payload_kind

    kept = len(plan.files) - plan.upload_files
    print_facts(
        {
            "would publish": plan.dataset_id,
            "version": plan.version or "depends on the head by then",
            **{
                f"{payload_kind(section).noun} {name}": count_text(count, payload_kind(section).item)
                for section, counts in plan.counts.items()
                for name, count in counts.items()
            },
            "to upload": f"{count_text(plan.upload_files, 'file')}, {bytes_text(plan.upload_bytes)}",
            "already stored": count_text(kept, "file") if kept else None,
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
        yield shown, bytes_text(blob.byte_size), short(blob.hash), "stored" if file.is_present else "to upload"


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
    """Return the path of a source file, or only the name of a staged one, which is temporary."""
    return Path(file.path.name) if file.path.is_relative_to(session.settings.cache_dir) else file.path


def _packed_count(file: PlannedFile) -> int | None:
    from warpdata.kinds.artifacts import ShardSpec

    return len(file.content.sources) if isinstance(file.content, ShardSpec) and file.content.is_archive else None
