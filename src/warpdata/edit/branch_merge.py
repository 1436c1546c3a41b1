"""Merges of branches: the changes since the common ancestor, as one commit with two parents, or only planned."""

from __future__ import annotations

from dataclasses import dataclass, replace

from warpdata.edit.proposal import EditProposal, commit_change
from warpdata.edit.version_merge import MergePolicy, merge_versions
from warpdata.edit.workspace import EditWorkspace, FindTransform
from warpdata.errors import BadInputError, ConflictError, NotFoundError
from warpdata.kinds import VersionContext
from warpdata.primitives.progress import Progress, silent
from warpdata.repository.catalog import (
    Commit,
    Committed,
    Head,
    Transaction,
    VersionRef,
    check_commit_texts,
    check_intact,
    find_head,
    read_commit,
)
from warpdata.repository.manifest import EntryChange, compare
from warpdata.session import Session

__all__ = ["MergePlan", "MergeRequest", "merge_branch", "plan_merge"]

_MAX_COMMITS = 100_000


@dataclass(frozen=True, slots=True)
class MergeRequest:
    """The changes of `source` since its common ancestor with a branch, to be added to this branch."""

    source: VersionRef
    branch: str
    message: str
    author: str
    policy: MergePolicy = "fail"
    progress: Progress = silent


@dataclass(frozen=True, slots=True)
class MergePlan:
    """A merge that has not happened. `base`, `ours` and `theirs` are versions.

    `changes` are those of the branch. `conflict` is the error without a policy; None if both sides fit together.
    """

    base: str
    ours: str
    theirs: str
    is_merged: bool
    changes: tuple[EntryChange, ...] = ()
    conflict: ConflictError | None = None


def plan_merge(session: Session, request: MergeRequest) -> MergePlan:
    """Merge without uploading or committing anything. Conflicts that the policy resolves are listed too."""
    head, base = _find_sides(session, request)
    source = request.source
    plan = MergePlan(base.version, head.version, source.version, base.commit == source.commit)
    if plan.is_merged:
        return plan
    catalog = session.catalog
    before, theirs = catalog.manifest(base), catalog.manifest(source)
    ours = catalog.manifest(VersionRef(source.dataset_id, head.version))
    workspace = EditWorkspace(session, lambda _table: None)
    try:
        workspace.read_generations({**theirs.generations, **ours.generations})
        try:
            merged = merge_versions(workspace, (before, ours, theirs))
        except ConflictError as conflict:
            plan = replace(plan, conflict=conflict)
            if request.policy == "fail":
                return plan
            merged = merge_versions(workspace, (before, ours, theirs), request.policy)
        return replace(plan, changes=compare(ours, merged, workspace.load_page).changes)
    finally:
        workspace.remove()


def merge_branch(session: Session, request: MergeRequest, find_transform: FindTransform) -> Committed:
    """Commit the merge. The branch stays as it is if it already has all changes of the source."""
    check_commit_texts(request.author, request.message)
    dataset_id, source = request.source.dataset_id, request.source
    head, base = _find_sides(session, request)
    if base.commit == source.commit:
        return Committed(head.version, head.commit, head.sequence, changed=False)
    catalog = session.catalog
    txn = Transaction(
        dataset_id,
        request.branch,
        session.new_id(),
        "merge",
        request.author,
        request.message,
        session.timestamp(),
        merged=source.commit,
    )
    workspace = EditWorkspace(session, find_transform)
    try:
        context = VersionContext(session, base, catalog.manifest(base), workspace.load_page)
        proposal = EditProposal(
            workspace,
            context,
            catalog.manifest(source),
            progress=request.progress,
            policy=request.policy,
            is_merge=True,
        )
        return commit_change(session, txn, proposal.at)
    finally:
        workspace.remove()


def _find_sides(session: Session, request: MergeRequest) -> tuple[Head, VersionRef]:
    """Return the head of the branch, and the base of the merge."""
    dataset_id, source = request.source.dataset_id, request.source
    if source.commit is None:
        raise BadInputError(f"{dataset_id}@{source.version[:12]} has no commit", hint="Name a branch or a label.")
    check_intact(session.writer, dataset_id, source.version)
    head = find_head(session.writer, dataset_id, request.branch)
    if head is None:
        raise NotFoundError(f"{dataset_id} has no branch {request.branch!r}")
    ancestor = _common_ancestor(session, dataset_id, head.commit, source.commit)
    version = read_commit(session.writer, dataset_id, ancestor).version
    return head, VersionRef(dataset_id, version, ancestor)


def _common_ancestor(session: Session, dataset_id: str, ours: str, theirs: str) -> str:
    """Return the newest commit that both histories have, and that is not before another such commit."""
    mine, other = (_ancestors(session, dataset_id, start) for start in (ours, theirs))
    common = mine.keys() & other.keys()
    best = common - {parent for commit_id in common for parent in mine[commit_id].parents}
    if not best:
        hint = "Start the branch from a version of the other one."
        raise BadInputError(f"the histories of {dataset_id} have no common commit", hint=hint)
    return max(best, key=lambda commit_id: (mine[commit_id].time, commit_id))


def _ancestors(session: Session, dataset_id: str, start: str) -> dict[str, Commit]:
    """Return a commit and all before it."""
    found: dict[str, Commit] = {}
    waiting = [start]
    while waiting:
        commit_id = waiting.pop()
        if commit_id in found:
            continue
        if len(found) >= _MAX_COMMITS:
            raise BadInputError(f"the history of {dataset_id} has more than {_MAX_COMMITS:,} commits")
        found[commit_id] = read_commit(session.reader, dataset_id, commit_id)
        waiting += found[commit_id].parents
    return found
