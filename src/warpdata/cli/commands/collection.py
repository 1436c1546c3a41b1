"""`warp collection`: labelled files with a HEAD, versions, training snapshots and purges."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import warpdata
from warpdata.cli.context import CliContext
from warpdata.cli.exit_codes import CORRUPT
from warpdata.cli.format import bytes_text, count_text, short, time_text
from warpdata.cli.options import command, dataset_argument, group
from warpdata.cli.output import note, print_facts, print_json, print_line, print_table

if TYPE_CHECKING:
    from warpdata.collections import Collection, CollectionVersion, ErasureReceipt, Impact

__all__ = ["collection"]

_ADDED = {"path": "path of the file", "hash": "its SHA-256", "size_bytes": "its size", "added": "true"}
_VERSION = {"name": "name of the version", "version": "64 hex digits", "time": "when it was named"}
_STATE = {
    "state": "unlabeled, labeled, snapshot-valid, snapshot-broken or snapshot-repaired",
    "version": "64 hex digits",
    "missing_images": "paths of files that are gone",
    "missing_count": "their number",
    "repaired_by": "name of the version without them; null if there is none",
}
_JOB = {
    "job_id": "id of the job",
    "snapshot_id": "label of the pinned version",
    "version": "64 hex digits",
    "task_type": "as given",
    "model_name": "as given",
    "status": "running, completed, failed or cancelled",
    "snapshot_status_at_start": "valid, broken or repaired_by",
    "snapshot": "the state of the pinned version now",
    "author": "who started it",
    "time": "when",
    "environment": "variables of its trainer",
}


@group("collection")
def collection() -> None:
    """Keep labelled files with a HEAD, versions and training snapshots.

    A collection is a dataset. Adding and removing files changes HEAD; versions keep what they have.
    """


def _open(cli: CliContext, dataset_id: str) -> Collection:
    return warpdata.collection(dataset_id, store=cli.connect())


@command("add", json_keys=_ADDED)
@dataset_argument()
@click.argument("path")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--label", "labels", multiple=True, metavar="CLASS", help="Class of the image. May be repeated.")
@click.option("--split", metavar="NAME", help="Split that the file belongs to, such as train.")
@click.option("--tag", "tags", multiple=True, metavar="TEXT", help="A tag. May be repeated.")
@click.option("--replace", is_flag=True, help="Replace a file with this path, and its annotations.")
@click.pass_obj
def _add(cli: CliContext, /, dataset_id: str, path: str, file: Path, labels: tuple[str, ...], **given: Any) -> None:
    """Add one file to HEAD. The first file creates the collection.

    \b
      warp collection add acme/pets cats/1.jpg photo.jpg --label cat --tag night
    """
    given["annotations"] = [warpdata.Label(name) for name in labels]
    with cli.progress(f"Adding to {dataset_id}"):
        stored = _open(cli, dataset_id).add(path, file, **given)
    if cli.as_json:
        print_json(asdict(stored))
    else:
        print_line(f"{stored.path} is stored as {short(stored.hash)}, {bytes_text(stored.size_bytes)}")


_UPLOAD = {
    "dataset_id": "workspace/name",
    "version": "version of HEAD after the upload",
    "annotations": "number of annotations that were added",
    "files": "list of {path, hash, size_bytes, added}; added is false for files that HEAD had already",
}


@command("upload", json_keys=_UPLOAD)
@dataset_argument()
@click.argument("directory", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--replace", is_flag=True, help="Replace files that HEAD has with other bytes.")
@click.pass_obj
def _upload(cli: CliContext, dataset_id: str, directory: Path, replace: bool) -> None:
    """Add all files of a directory, with its annotations.json.

    Repeat the command after an interruption: files that HEAD has already are not sent again.

    \b
      warp collection upload acme/pets photos/
    """
    with cli.progress(f"Uploading to {dataset_id}") as progress:
        receipt = _open(cli, dataset_id).upload(directory, replace=replace, progress=progress)
    if cli.as_json:
        print_json(asdict(receipt))
        return
    added = f"{count_text(receipt.added_files, 'file')}, {bytes_text(receipt.added_bytes)}"
    have = count_text(len(receipt.files) - receipt.added_files, "file")
    print_facts({"added": added, "there before": have, "annotations": receipt.annotations, "version": receipt.version})


@command("rm", json_keys={"version": "version of HEAD without the files"})
@dataset_argument()
@click.argument("paths", nargs=-1, required=True)
@click.pass_obj
def _rm(cli: CliContext, dataset_id: str, paths: tuple[str, ...]) -> None:
    """Remove files from HEAD. Versions keep them; `warp collection purge` erases bytes."""
    with cli.progress(f"Removing from {dataset_id}"):
        version = _open(cli, dataset_id).remove(list(paths))
    if cli.as_json:
        print_json({"version": version})
    else:
        print_line(f"{count_text(len(paths), 'file')} removed from HEAD, now {short(version)}")


@command("create-version", json_keys={**_VERSION, "snapshot_type": "manual", "state": "the state of the version"})
@dataset_argument()
@click.argument("name")
@click.pass_obj
def _create_version(cli: CliContext, dataset_id: str, name: str) -> None:
    """Name the present HEAD. Nothing is copied."""
    with cli.progress(f"Naming {dataset_id}"):
        made = _open(cli, dataset_id).create_version(name)
    if cli.as_json:
        print_json(asdict(made))
    else:
        print_line(f"{made.name} is version {short(made.version)}")


_VERSIONS = {"versions": "list of {name, version, time, snapshot_type, state}; snapshot_type is manual or training"}


@command("versions", json_keys=_VERSIONS)
@dataset_argument()
@click.pass_obj
def _versions(cli: CliContext, dataset_id: str) -> None:
    """List versions and training snapshots, oldest first."""
    with cli.progress(f"Listing {dataset_id}"):
        found = _open(cli, dataset_id).versions()
    if cli.as_json:
        print_json({"versions": [asdict(one) for one in found]})
    elif found:
        print_table(("name", "version", "type", "state", "created"), map(_version_row, found))
    else:
        note(f"{dataset_id} has no versions")


@command("state", json_keys=_STATE)
@dataset_argument()
@click.argument("version", default="HEAD")
@click.pass_obj
def _state(cli: CliContext, dataset_id: str, version: str) -> None:
    """Show the state of HEAD or of a version."""
    with cli.progress(f"Opening {dataset_id}"):
        found = _open(cli, dataset_id).state(version)
    if cli.as_json:
        print_json(asdict(found))
        return
    missing = {"missing": ", ".join(found.missing_images)} if found.missing_images else {}
    print_facts({"state": found.state, "short": str(found), "version": found.version, **missing})


_COMPARED = {
    "older": "version",
    "newer": "version",
    "images": "[before, after]",
    "annotations": "[before, after]",
    "added_files": "number",
    "removed_files": "number",
    "changed_files": "number",
    "added_annotations": "number",
    "removed_annotations": "number",
    "changed_annotations": "number",
    "classes": "[before, after] by class",
    "added": "paths, at most 1,000",
    "removed": "paths",
    "changed": "paths",
}


@command("compare", json_keys=_COMPARED)
@dataset_argument()
@click.argument("older")
@click.argument("newer", default="HEAD")
@click.pass_obj
def _compare(cli: CliContext, dataset_id: str, older: str, newer: str) -> None:
    """Compare two versions: files, annotations and classes."""
    with cli.progress(f"Comparing {dataset_id}"):
        found = _open(cli, dataset_id).compare(older, newer)
    if cli.as_json:
        print_json(asdict(found))
        return
    files = f"{found.added_files:,} added, {found.removed_files:,} removed, {found.changed_files:,} changed"
    notes = f"{found.added_annotations:,} added, {found.removed_annotations:,} removed"
    print_facts({"files": files, "annotations": f"{notes}, {found.changed_annotations:,} changed"})
    if found.classes:
        print_line()
        rows = ((name, f"{before:,}", f"{after:,}") for name, (before, after) in found.classes.items())
        print_table(("class", f">{older}", f">{newer}"), rows)


_STATISTICS = {
    "version": "64 hex digits",
    "images": "number",
    "annotations": "number",
    "labeled_images": "number of images with an annotation",
    "logical_bytes": "size of all files",
    "stored_bytes": "size of all files, equal ones counted once",
    "splits": "images by split",
    "classes": "list of {class_name, annotations, images, by_kind, images_by_split}",
}


@command("stats", json_keys=_STATISTICS)
@dataset_argument()
@click.argument("version", default="HEAD")
@click.pass_obj
def _stats(cli: CliContext, dataset_id: str, version: str) -> None:
    """Count images, annotations, classes and splits."""
    with cli.progress(f"Counting {dataset_id}"):
        found = _open(cli, dataset_id).statistics(version)
    if cli.as_json:
        print_json(asdict(found))
        return
    sizes = f"{bytes_text(found.logical_bytes)}, {bytes_text(found.stored_bytes)} stored"
    labeled = f"{found.images:,}, {found.labeled_images:,} with annotations"
    print_facts({"images": labeled, "annotations": f"{found.annotations:,}", "size": sizes})
    if found.classes:
        print_line()
        rows = ((one.class_name, f"{one.annotations:,}", f"{one.images:,}") for one in found.classes)
        print_table(("class", ">annotations", ">images"), rows)


@command("restore", json_keys={"version": "version of HEAD", "previous": "version before", "changed": "true or false"})
@dataset_argument()
@click.argument("version")
@click.pass_obj
def _restore(cli: CliContext, dataset_id: str, version: str) -> None:
    """Make a version HEAD again, as a new commit."""
    with cli.progress(f"Restoring {dataset_id}"):
        done = _open(cli, dataset_id).restore(version)
    if cli.as_json:
        print_json({"version": done.version, "previous": done.previous, "changed": done.changed})
    else:
        print_line(f"HEAD of {dataset_id} is {short(done.version)}")


@command("train", json_keys=_JOB)
@dataset_argument()
@click.option("--task-type", required=True, metavar="TEXT", help="Such as detection or classification.")
@click.option("--model", "model_name", required=True, metavar="NAME", help="Model that the job trains.")
@click.option("--job-id", metavar="ID", help="Id of the job. Default: a random one.")
@click.pass_obj
def _train(cli: CliContext, /, dataset_id: str, **given: Any) -> None:
    """Pin HEAD for a training job.

    \b
      warp collection train acme/pets --task-type detection --model yolo
    """
    with cli.progress(f"Pinning {dataset_id}"):
        job = _open(cli, dataset_id).start_training(**given)
    if cli.as_json:
        print_json(asdict(job))
        return
    for name, value in job.environment.items():
        print_line(f"{name}={value}")


@command("jobs", json_keys={"jobs": "list of jobs, with the keys that `warp collection train` prints"})
@dataset_argument()
@click.pass_obj
def _jobs(cli: CliContext, dataset_id: str) -> None:
    """List training jobs and their pinned versions."""
    with cli.progress(f"Listing {dataset_id}"):
        found = _open(cli, dataset_id).jobs()
    if cli.as_json:
        print_json({"jobs": [asdict(one) for one in found]})
    elif found:
        rows = ((one.job_id, one.task_type, one.model_name, one.status, str(one.snapshot)) for one in found)
        print_table(("job", "task type", "model", "status", "snapshot"), rows)
    else:
        note(f"{dataset_id} has no training jobs")


_IMPACT = {
    "path": "as given",
    "hashes": "contents that the path has had",
    "paths": "all paths with one of them",
    "in_head": "true if HEAD has one",
    "affected_versions": "list of {label, version, snapshot_type}",
    "affected_jobs": "ids of training jobs",
    "size_bytes": "bytes of HEAD that would go",
    "is_packed": "true if files share packed shards",
    "options": "mark_broken, auto_repair and cancel",
    "token": "the token that a purge needs",
    "status": "confirmation_required, or no_impact",
}


@command("impact", json_keys=_IMPACT)
@dataset_argument()
@click.argument("path")
@click.pass_obj
def _impact(cli: CliContext, dataset_id: str, path: str) -> None:
    """Show which versions and jobs a purge would affect."""
    with cli.progress(f"Searching {dataset_id}"):
        found = _open(cli, dataset_id).impact(path)
    if cli.as_json:
        print_json({**asdict(found), "status": found.status})
    else:
        _show_impact(found)


_PURGE = {
    "status": "purged, cancelled, or confirmation_required with --dry-run",
    "impact": "what `warp collection impact` prints; null with --token",
    "receipt": "the receipt; null if nothing was erased",
}


@command("purge", json_keys=_PURGE)
@dataset_argument()
@click.argument("path")
@click.option(
    "--action",
    type=click.Choice(["mark_broken", "auto_repair", "cancel"]),
    required=True,
    help="Leave versions without the file, or also make successors of them.",
)
@click.option("--token", metavar="TEXT", help="Token of an impact that was seen before. Fails if it has changed.")
@click.option("--reason", default="", metavar="TEXT", help="Reason, for the receipt.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@click.option("--dry-run", is_flag=True, help="Show the impact, and erase nothing.")
@click.pass_obj
def _purge(cli: CliContext, /, dataset_id: str, path: str, token: str | None, **given: Any) -> None:
    """Erase the bytes of a file from HEAD and all versions.

    Shows the impact and asks. Versions stay, but are broken; with auto_repair, each gets a successor. The receipt
    proves that nothing remains. Repeat the command after an interruption, or run `warp collection resume`.

    \b
      warp collection purge acme/pets cats/1.jpg --action auto_repair --reason "request 12"
    """
    action, yes, dry_run = given["action"], given["yes"], given["dry_run"]
    opened = _open(cli, dataset_id)
    impact = None
    if token is None:
        with cli.progress(f"Searching {dataset_id}"):
            impact = opened.impact(path)
        token = impact.token
        if not cli.as_json:
            _show_impact(impact)
    is_agreed = action != "cancel" and not dry_run
    if is_agreed:
        is_agreed = cli.confirm(f"Erase {path} from all versions?", yes=yes)
    receipt = None
    if is_agreed:
        with cli.progress(f"Erasing from {dataset_id}") as progress:
            receipt = opened.purge(path, action, token=token, reason=given["reason"], progress=progress)
    if cli.as_json:
        seen = None if impact is None else {**asdict(impact), "status": impact.status}
        status = "purged" if receipt else "confirmation_required" if dry_run else "cancelled"
        print_json({"status": status, "impact": seen, "receipt": None if receipt is None else asdict(receipt)})
    elif receipt is not None:
        _show_receipt(receipt)
    else:
        note("nothing was erased")


@command("resume", json_keys={"receipts": "list of receipts of the purges that were finished"})
@dataset_argument()
@click.pass_obj
def _resume(cli: CliContext, dataset_id: str) -> None:
    """Finish purges that were interrupted."""
    with cli.progress(f"Erasing from {dataset_id}") as progress:
        done = _open(cli, dataset_id).resume_purges(progress=progress)
    if cli.as_json:
        print_json({"receipts": [asdict(one) for one in done]})
    elif not done:
        note(f"{dataset_id} has no unfinished purge")
    for receipt in [] if cli.as_json else done:
        _show_receipt(receipt)


_INTEGRITY = {
    "states": "the state of each version, by name",
    "checked_blobs": "number of stored files that were looked up",
    "checked_bytes": "bytes that were read and hashed",
    "problems": "list of sentences about files that are missing or corrupt, and that no purge explains",
}


@command("integrity", json_keys=_INTEGRITY)
@dataset_argument()
@click.argument("versions", nargs=-1)
@click.option("--deep", is_flag=True, help="Read and hash all files.")
@click.pass_context
def _integrity(ctx: click.Context, dataset_id: str, versions: tuple[str, ...], deep: bool) -> None:
    """Look for the files of versions in the store. Without names, check HEAD and all versions."""
    cli: CliContext = ctx.obj
    with cli.progress(f"Checking {dataset_id}") as progress:
        report = _open(cli, dataset_id).check_integrity(list(versions) or None, deep=deep, progress=progress)
    if cli.as_json:
        print_json(asdict(report))
    else:
        print_table(("version", "state"), ((name, str(state)) for name, state in report.states.items()))
        for problem in report.problems:
            print_line(problem)
    if report.problems:
        ctx.exit(CORRUPT)


@command(
    "repair",
    json_keys={
        "successors": "name of the successor of each repaired version, by name",
        "head": "the new version of HEAD; null if it had lost nothing",
    },
)
@dataset_argument()
@click.argument("versions", nargs=-1)
@click.pass_obj
def _repair(cli: CliContext, dataset_id: str, versions: tuple[str, ...]) -> None:
    """Make successors of broken versions without lost files.

    `warp collection integrity` finds broken versions. Restore what can be restored first: `warp verify --repair`.
    Lost files are removed from HEAD too.
    """
    with cli.progress(f"Repairing {dataset_id}"):
        report = _open(cli, dataset_id).repair(list(versions) or None)
    if cli.as_json:
        print_json(asdict(report))
    elif not report.successors and report.head is None:
        note(f"{dataset_id} has no broken version")
    else:
        print_table(("version", "repaired by"), sorted(report.successors.items()))


def _version_row(one: CollectionVersion) -> tuple[str, ...]:
    time = time_text(datetime.fromisoformat(one.time))
    return one.name, short(one.version), one.snapshot_type, str(one.state), time


def _show_impact(impact: Impact) -> None:
    names = ", ".join(one.label for one in impact.affected_versions[:10]) or "none"
    more = f" and {len(impact.affected_versions) - 10:,} more" if len(impact.affected_versions) > 10 else ""
    facts = {
        "file": ", ".join(impact.paths),
        "versions": names + more,
        "training jobs": ", ".join(impact.affected_jobs[:10]) or "none",
        "in HEAD": "yes" if impact.in_head else "no",
        "token": impact.token,
    }
    print_facts(facts)


def _show_receipt(receipt: ErasureReceipt) -> None:
    facts = {
        "erased": f"{', '.join(receipt.paths)}, {bytes_text(receipt.erased_bytes)}",
        "broken": count_text(receipt.broken_count, "version"),
        "successors": ", ".join(receipt.successors) or "none",
        "remaining": "nothing" if receipt.is_clean else ", ".join(receipt.remaining_keys),
        "receipt": receipt.purge_id,
    }
    print_facts(facts)


for _command in (
    _add,
    _upload,
    _rm,
    _create_version,
    _versions,
    _state,
    _compare,
    _stats,
    _restore,
    _train,
    _jobs,
    _impact,
    _purge,
    _resume,
    _integrity,
    _repair,
):
    collection.add_command(_command)
