"""Changes to branches, labels and names that move no data: restore an earlier version, remove a name.

Implements "Restore" of docs/specs/publish.md and "Removal" of docs/specs/catalog.md.
"""

from __future__ import annotations

from dataclasses import dataclass

from warpdata.errors import BadInputError, ConflictError, ErrorKind, NotFoundError
from warpdata.primitives.arguments import check_arguments
from warpdata.repository.catalog import (
    MAIN,
    RESTORE,
    Address,
    Head,
    Proposed,
    Removal,
    Transaction,
    VersionRef,
    check_commit_texts,
    check_intact,
    check_ref_name,
    commit,
    find_head,
    find_newest,
    finish_removal,
    parse_address,
    put_manifest,
    read_label_state,
    remove_branch,
    remove_label,
)
from warpdata.repository.gc import Lease
from warpdata.repository.manifest import Manifest, kept_blobs
from warpdata.session import Session, connect
from warpdata.settings import Settings
from warpdata.storage.cache import OfflineStore

__all__ = [
    "Removed",
    "RestoreRequest",
    "Restored",
    "check_uncollected",
    "execute_removal",
    "plan_removal",
    "refuse_offline",
    "remove",
    "remove_dataset",
    "restore",
]


@dataclass(frozen=True, slots=True)
class Restored:
    """The head of the branch. `previous` was the head before. `changed` is False if it had this version already."""

    dataset_id: str
    branch: str
    version: str
    commit: str
    previous: str | None
    changed: bool


@dataclass(frozen=True, slots=True)
class Removed:
    """A name that is gone, and the version that it had. `branches` and `labels` went with a dataset."""

    dataset_id: str
    kind: str
    """One of "dataset", "branch" and "label"."""
    name: str
    version: str
    branches: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RestoreRequest:
    """A version to make the head of `branch`. With `expected_version`, any other head is a conflict."""

    address: Address
    branch: str = MAIN
    expected_version: str | None = None
    message: str | None = None
    author: str | None = None


def restore(session: Session, request: RestoreRequest) -> Restored:
    """Commit the manifest of an earlier version to a branch, exactly once. Also brings back a removed dataset."""
    dataset_id, branch = request.address.dataset_id, check_ref_name(request.branch, "branch")
    message = f"restore {request.address.ref or MAIN}" if request.message is None else request.message
    author = request.author or session.settings.author
    check_commit_texts(author, message)
    refuse_offline(session, dataset_id)
    resolved, manifest = session.catalog.open(request.address)
    check_intact(session.writer, dataset_id, resolved.version)
    before = find_newest(session.writer, dataset_id, branch)
    if before is None or (before.removed is not None and branch != MAIN):
        session.catalog.resolve(Address(dataset_id, branch))  # raises the error with its hint
        raise NotFoundError(f"{dataset_id} has no branch {branch!r}", kind=ErrorKind.REF_NOT_FOUND)
    previous = before.version if before.removed is None else None
    over = VersionRef(dataset_id, before.version, before.commit)
    expected = request.expected_version or previous

    def propose(head: Head | None) -> Proposed | None:
        current = None if head is None else head.version
        if current != expected:
            raise ConflictError(
                f"{dataset_id}@{branch} is at version {current or 'none'}, expected {expected or 'none'}",
                hint="Look at the new head, then restore again.",
            )
        if current == resolved.version:
            put_manifest(session.writer, manifest, session.pause)
            return None
        return Proposed(manifest, id_counters=session.catalog.used_counters(over, resolved))

    time = session.timestamp()
    txn = Transaction(dataset_id, branch, session.new_id(), RESTORE, author, message, time)
    with session.lease(f"restore {dataset_id}", txn.txn_id) as lease:
        check_uncollected(session, resolved, manifest, lease)
        done = commit(session.writer, txn, propose, session.pause, check_lease=lease.check)
    return Restored(dataset_id, branch, done.version, done.commit, previous, done.changed)


def check_uncollected(session: Session, ref: VersionRef, manifest: Manifest, lease: Lease) -> None:
    """Raise `ConflictError` if a collection may be deleting this version. Called before something names it."""
    if not lease.condemned:
        return
    names = [ref.version, *filter(None, [ref.commit])]
    blobs = kept_blobs(manifest, session.at_generations(manifest.generations).catalog.load_page)
    if any(name in lease.condemned for name in (*names, *(blob.hash for blob in blobs))):
        raise ConflictError(
            f"version {ref.version[:12]} of {ref.dataset_id} is being collected, so it cannot get a new name",
            hint="Try again when the collection has ended, or publish it again.",
        )


@check_arguments
def remove(
    address: str, *, dry_run: bool = False, store: str | None = None, settings: Settings | None = None
) -> Removed:
    """Remove a label, a branch or a whole dataset: `acme/photos@v1`, `acme/photos@experiment` or `acme/photos`.

    The name is not found any more, and can be used again. No data is deleted: versions stay readable by their hash,
    and the name can be brought back. A branch that gets another commit meanwhile is a `ConflictError`. `dry_run`
    returns what would go.
    """
    session, wanted = connect(store, settings), parse_address(address)
    found = plan_removal(session, wanted)
    if not dry_run:
        execute_removal(session, found)
    return found


def plan_removal(session: Session, wanted: Address) -> Removed:
    """Return what a removal would remove. Raise `NotFoundError` if there is nothing.

    Labels come before branches of the same name, as in every address. A removed dataset with branches or labels left
    is one whose removal was interrupted: it can be removed again.
    """
    refuse_offline(session, wanted.dataset_id)
    dataset_id, name = wanted.dataset_id, wanted.ref
    if name is None:
        head = find_newest(session.writer, dataset_id, MAIN) or _find(session, dataset_id, MAIN)
        branches = tuple(other for other in session.catalog.branches(dataset_id) if other != MAIN)
        labels = tuple(label.name for label in session.catalog.labels(dataset_id))
        if not branches and not labels:
            session.catalog.check_not_removed(dataset_id)
        return Removed(dataset_id, "dataset", dataset_id, head.version, branches, labels)
    state = read_label_state(session.writer, dataset_id, name) if _is_name(name) else None
    if state is not None and state.removed is None:
        return Removed(dataset_id, "label", name, state.label.version)
    if name == MAIN:
        raise BadInputError(
            f"{MAIN!r} is the default branch of {dataset_id} and is removed only with it",
            hint=f"`warp rm {dataset_id}` removes the dataset.",
        )
    branch = find_head(session.writer, dataset_id, name) if _is_name(name) else None
    if branch is not None:
        return Removed(dataset_id, "branch", name, branch.version)
    session.catalog.resolve(wanted)  # raises the error with its hint, unless it is a version
    raise BadInputError(
        f"{wanted} is a version, and not a label or branch", hint="Versions cannot be removed, only names."
    )


def execute_removal(session: Session, found: Removed) -> None:
    """Remove what `plan_removal` found. Raise `ConflictError` if it names another version now."""
    dataset_id, writer = found.dataset_id, session.writer
    if found.kind == "dataset":
        remove_dataset(session, dataset_id, found.version)
        return
    if found.kind == "branch":
        remove_branch(writer, _transaction(session, dataset_id, found.name), _expected(session, found), session.pause)
        return
    state = read_label_state(writer, dataset_id, found.name)
    if state is None or state.removed is not None or state.label.version != found.version:
        raise ConflictError(f"label {found.name!r} of {dataset_id} changed while it was being removed")
    removal = Removal(session.timestamp(), session.settings.author)
    remove_label(writer, dataset_id, state, removal, session.new_id(), session.pause)


def remove_dataset(session: Session, dataset_id: str, version: str, renamed_to: str | None = None) -> None:
    """Remove a dataset whose `main` has this version, with its branches and labels."""
    tombstone = find_newest(session.writer, dataset_id, MAIN)
    if tombstone is None or tombstone.removed is None:
        head = _expected(session, Removed(dataset_id, "dataset", MAIN, version))
        txn = _transaction(session, dataset_id, MAIN)
        tombstone = remove_branch(session.writer, txn, head, session.pause, renamed_to)
    finish_removal(session.writer, dataset_id, tombstone, session.pause)


def refuse_offline(session: Session, dataset_id: str) -> None:
    """Raise the error of a change in mode `local`, which makes no requests."""
    if isinstance(session.writer, OfflineStore):
        session.writer.refuse_change(dataset_id)


def _expected(session: Session, found: Removed) -> Head:
    head = find_head(session.writer, found.dataset_id, found.name)
    if head is None or head.version != found.version:
        raise ConflictError(
            f"{found.dataset_id}@{found.name} is not at version {found.version[:12]} any more, so it was not removed",
            hint="Look at the new head, then remove it again.",
        )
    return head


def _find(session: Session, dataset_id: str, branch: str) -> Head:
    session.catalog.resolve(Address(dataset_id, branch))  # raises the error with its hint
    raise NotFoundError(f"{dataset_id} has no branch {branch!r}", kind=ErrorKind.REF_NOT_FOUND)


def _transaction(session: Session, dataset_id: str, branch: str) -> Transaction:
    author, time = session.settings.author, session.timestamp()
    return Transaction(dataset_id, branch, session.new_id(), "remove", author, "", time)


def _is_name(text: str) -> bool:
    return not set(text) & set("~@:")
