"""New labels and branches. Both are create-only: once a name is given, it stays."""

from __future__ import annotations

from warpdata.errors import AlreadyExistsError, RefNotFoundError
from warpdata.repository.catalog.branches import find_head, read_head, read_label
from warpdata.repository.catalog.catalog import Catalog, VersionRef
from warpdata.repository.catalog.layout import head_key, label_key
from warpdata.repository.catalog.names import check_ref_name
from warpdata.repository.catalog.records import Head, Label, encode_record
from warpdata.repository.catalog.transactions import Pause, put_create_only
from warpdata.storage import Writer

__all__ = ["create_branch", "create_label"]


def create_label(writer: Writer, target: VersionRef, name: str, time: str, pause: Pause) -> Label:
    """Name a version for good. Doing it again for the same version is fine; for another it is refused."""
    check_ref_name(name, "label")
    if read_head(writer, target.dataset_id, name, 1) is not None:
        raise AlreadyExistsError(f"{target.dataset_id} has a branch named {name!r}", hint="Choose another label.")
    label = Label(name, _commit_of(writer, target), target.version, time)
    key = label_key(target.dataset_id, name)
    if put_create_only(writer, key, encode_record(label), pause):
        return label
    seen = read_label(writer, target.dataset_id, name)
    assert seen is not None, "labels are never removed"
    if seen.version != target.version:
        raise AlreadyExistsError(
            f"label {name!r} of {target.dataset_id} already names version {seen.version[:12]}",
            hint="Labels never move: choose another name.",
        )
    return seen


def create_branch(writer: Writer, target: VersionRef, name: str, txn_id: str, pause: Pause) -> Head:
    """Start a branch at a version. An existing branch is refused, wherever it stands."""
    check_ref_name(name, "branch")
    catalog = Catalog(writer)
    if catalog.label(target.dataset_id, name) is not None:
        raise AlreadyExistsError(f"{target.dataset_id} has a label named {name!r}", hint="Choose another branch name.")
    head = Head(1, _commit_of(writer, target), target.version, txn_id)
    made = put_create_only(writer, head_key(target.dataset_id, name, 1), encode_record(head), pause)
    if not made and read_head(writer, target.dataset_id, name, 1) != head:
        newest = find_head(writer, target.dataset_id, name)
        where = f", at version {newest.version[:12]}" if newest else ""
        raise AlreadyExistsError(f"{target.dataset_id} already has a branch {name!r}{where}")
    return head


def _commit_of(writer: Writer, target: VersionRef) -> str:
    """A bare version may have been committed more than once; the newest commit stands for it."""
    if target.commit is not None:
        return target.commit
    for entry in Catalog(writer).history(target, limit=1):
        return entry.commit_id
    raise RefNotFoundError(f"{target.dataset_id} has no commit of version {target.version}")
