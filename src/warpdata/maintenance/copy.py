"""Copies of versions and histories to another store or another name, and renames.

Implements "Copy" of docs/specs/publish.md and "Rename" of docs/specs/catalog.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from warpdata.datasets import Dataset, open_dataset, remove_dataset
from warpdata.errors import ErrorKind, NotFoundError
from warpdata.maintenance.copy_job import Copied, CopyJob, CopyPlan
from warpdata.primitives.arguments import check_arguments
from warpdata.primitives.progress import Progress, silent
from warpdata.publish import refuse_removal
from warpdata.repository.catalog import (
    MAIN,
    Address,
    Head,
    HistoryEntry,
    Transaction,
    VersionRef,
    check_dataset_id,
    check_ref_name,
    commit,
    find_newest,
    finish_removal,
    heads_prefix,
    parse_address,
)
from warpdata.repository.manifest import Manifest, version_of
from warpdata.session import Session, connect
from warpdata.settings import Settings

__all__ = ["Renamed", "copy", "rename"]


@dataclass(frozen=True, slots=True)
class Renamed:
    """A dataset under its new name. Its versions have other hashes there: `versions` maps old ones to new ones."""

    dataset_id: str
    previous_id: str
    branches: tuple[str, ...]
    labels: tuple[str, ...]
    versions: Mapping[str, str]


@check_arguments
def copy(
    address: str,
    to: str | Session | None = None,
    *,
    name: str | None = None,
    history: bool = False,
    branch: str = MAIN,
    replace: bool = False,
    dry_run: bool = False,
    store: str | Session | None = None,
    settings: Settings | None = None,
    progress: Progress = silent,
) -> Copied:
    """Copy a version to the store `to`, or under another `name`, or both. Only blobs that are missing there travel.

    The version becomes the head of `branch` there, unless the branch has it already. Under the same name it has the
    same hash. `history` copies all commits that led to it, with their labels; the branch there must be at one of
    them. `replace` allows a version that lacks entries of the head there. A copy that was interrupted continues when
    it is repeated. `dry_run` returns what would be copied.
    """
    source = store if isinstance(store, Session) else connect(store, settings)
    target = to if isinstance(to, Session) else source if to is None else connect(to, settings)
    wanted = parse_address(address)
    job = CopyJob(source, target, wanted.dataset_id, check_dataset_id(name or wanted.dataset_id), progress)
    job.check()
    check_ref_name(branch, "branch")
    opened = open_dataset(source, wanted)
    if history:
        return _copy_history(job, opened, branch, dry_run=dry_run)
    return _copy_version(job, opened, branch, may_remove=replace, dry_run=dry_run)


@check_arguments
def rename(
    dataset_id: str,
    new_id: str,
    *,
    dry_run: bool = False,
    store: str | Session | None = None,
    settings: Settings | None = None,
) -> Renamed:
    """Give a dataset another name: all branches, labels and commits move. No data is copied.

    The old name is removed, and names the new one in its error. Versions have other hashes under the new name,
    because the name is part of a version. Repeat the call after an interruption. A dataset that already has the new
    name must have a part of the same history, as an interrupted rename leaves it; otherwise it is a `ConflictError`.
    """
    session = store if isinstance(store, Session) else connect(store, settings)
    job = CopyJob(session, session, check_dataset_id(dataset_id), check_dataset_id(new_id))
    job.check()
    _finish_earlier(job)
    moved = _move_refs(job, dry_run=dry_run)
    if not dry_run:
        job.copy_records()
        remove_dataset(session, dataset_id, moved.main, renamed_to=new_id)
        _follow_late_commits(job)
    versions = {old: version_of(manifest) for old, manifest in moved.plan.manifests.items()}
    return Renamed(new_id, dataset_id, moved.branches, moved.labels, versions)


def _finish_earlier(job: CopyJob) -> None:
    """Finish a rename that was interrupted after the removal of `main`, then raise the error of the old name."""
    tombstone = find_newest(job.source.writer, job.source_id, MAIN)
    if tombstone is not None and tombstone.removed is not None and tombstone.removed.renamed_to == job.dataset_id:
        finish_removal(job.source.writer, job.source_id, tombstone, job.source.pause)
        _follow_late_commits(job)
    job.source.catalog.resolve(Address(job.source_id))


@dataclass(frozen=True, slots=True)
class _Moved:
    """The refs of a dataset that have been copied. `main` is the version of its branch `main`."""

    main: str
    plan: CopyPlan
    labels: tuple[str, ...]
    branches: tuple[str, ...]


def _move_refs(job: CopyJob, *, dry_run: bool) -> _Moved:
    catalog = job.source.catalog
    heads = {name: catalog.resolve(Address(job.source_id, name)) for name in catalog.branches(job.source_id)}
    labels = catalog.labels(job.source_id)
    tips = {ref.commit for ref in heads.values() if ref.commit is not None} | {label.commit for label in labels}
    histories = {commit_id: job.read_history(commit_id) for commit_id in sorted(tips)}
    plan = job.plan(entry.commit.version for history in histories.values() for entry in history)
    job.check_labels(labels, plan)
    for name, ref in heads.items():
        job.check_branch(name, histories[ref.commit or ""], plan)
    if not dry_run:
        with job.writing(plan) as lease:
            newest = {commit_id: job.copy_commits(history, plan) for commit_id, history in histories.items()}
            for name in sorted(heads, key=lambda name: name != MAIN):  # main may begin a removed name again
                job.move_branch(name, newest[heads[name].commit or ""], lease)
            job.copy_labels(labels, lease)
    return _Moved(heads[MAIN].version, plan, tuple(label.name for label in labels), tuple(heads))


def _follow_late_commits(job: CopyJob) -> None:
    """Copy commits that other writers added to a branch after it was copied and before its tombstone."""
    writer = job.source.writer
    main = find_newest(writer, job.source_id, MAIN)
    for name in writer.list_folders(heads_prefix(job.source_id)):
        gone = find_newest(writer, job.source_id, name)
        if main is None or gone is None or name == MAIN or gone.txn_id != main.txn_id:
            continue
        history = job.read_history(gone.commit)
        plan = job.plan(entry.commit.version for entry in history)
        with job.writing(plan) as lease:
            job.move_branch(name, job.copy_commits(history, plan), lease)


def _copy_version(job: CopyJob, opened: Dataset, branch: str, *, may_remove: bool, dry_run: bool) -> Copied:
    """Copy one version, and commit it unless the branch has it already."""
    job.check_complete(opened.manifest)
    plan = job.plan([opened.version])
    manifest = plan.manifests[opened.version]
    version, known = version_of(manifest), _KnownVersions(job)
    head = find_newest(job.target.writer, job.dataset_id, branch)
    if branch != MAIN and (head is None or head.removed is not None):
        raise NotFoundError(
            f"{job.dataset_id} has no branch {branch!r} in {job.target.writer.url}",
            hint=f"Create it first: `warp branch {job.dataset_id} {branch}`.",
            kind=ErrorKind.REF_NOT_FOUND,
        )

    def propose(base: Head | None) -> Manifest | None:
        if base is None:
            return manifest
        if known.has(base, version):
            return None
        if not may_remove:
            refuse_removal(job.target.catalog.manifest(VersionRef(job.dataset_id, base.version)), manifest)
        return manifest

    propose(head if head is not None and head.removed is None else None)  # refuses before anything is sent
    done = None
    if not dry_run:
        session = job.target
        message = next((entry.message for entry in opened.history(limit=1)), "")
        author, time = session.settings.author, session.timestamp()
        txn = Transaction(job.dataset_id, branch, session.new_id(), "copy", author, message, time)
        with job.writing(plan) as lease:
            done = commit(session.writer, txn, propose, session.pause, check_lease=lease.check)
    is_new = done is not None and done.changed
    return _copied(job, opened, plan, branch, done.commit if done else None, is_new=is_new)


@dataclass(frozen=True)
class _KnownVersions:
    """The versions in the history of each head of the target that a copy has seen."""

    job: CopyJob
    _by_commit: dict[str, set[str]] = field(default_factory=dict)

    def has(self, head: Head, version: str) -> bool:
        if head.commit not in self._by_commit:
            ref = VersionRef(self.job.dataset_id, head.version, head.commit)
            history = self.job.target.catalog.history(ref)
            self._by_commit[head.commit] = {entry.commit.version for entry in history}
        return version in self._by_commit[head.commit]


def _copy_history(job: CopyJob, opened: Dataset, branch: str, *, dry_run: bool) -> Copied:
    """Copy a version with everything that led to it, and the labels on the way."""
    commit_id = opened.version_ref.commit or next((entry.commit for entry in opened.history(limit=1)), None)
    if commit_id is None:
        raise NotFoundError(f"{opened.id} has no commit of version {opened.version}", kind=ErrorKind.REF_NOT_FOUND)
    history = job.read_history(commit_id)
    plan = job.plan(entry.commit.version for entry in history)
    labels = job.labels_of(entry.commit_id for entry in history)
    job.check_labels(labels, plan)
    job.check_branch(branch, history, plan)
    newest: HistoryEntry | None = None
    is_new = False
    if not dry_run:
        with job.writing(plan) as lease:
            newest = job.copy_commits(history, plan)
            is_new = job.move_branch(branch, newest, lease)
            job.copy_labels(labels, lease)
        job.copy_records()
    done = _copied(job, opened, plan, branch, newest.commit_id if newest else None, is_new=is_new)
    return replace(done, commits=len(history), labels=tuple(label.name for label in labels))


def _copied(
    job: CopyJob, opened: Dataset, plan: CopyPlan, branch: str, commit_id: str | None, *, is_new: bool
) -> Copied:
    return Copied(
        dataset_id=job.dataset_id,
        version=version_of(plan.manifests[opened.version]),
        source_dataset_id=opened.id,
        source_version=opened.version,
        branch=branch,
        commit=commit_id,
        changed=is_new,
        commits=1,
        labels=(),
        total_files=len(plan.files),
        total_bytes=plan.total_bytes,
        copied_files=plan.copy_files,
        copied_bytes=plan.copy_bytes,
    )
