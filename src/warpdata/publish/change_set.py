"""The change that a publish makes to a branch: a replacement or an extension, rebased when another commit is first."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial

from warpdata.errors import BadInputError, ConflictError, CorruptError, ErrorKind, NotFoundError, ObjectNotFoundError
from warpdata.kinds import StagedEntry, VersionContext, payload_kind
from warpdata.kinds.artifacts import StagedArtifact
from warpdata.kinds.tables import StagedTable
from warpdata.primitives.hashing import blob_key
from warpdata.primitives.parallel import IO_POOL
from warpdata.publish.bindings import check_bindings, check_names
from warpdata.publish.manifest_builder import BuiltManifest, StagedVersion, build_manifest
from warpdata.publish.placement import HeadBlobs, Placement, place_blobs
from warpdata.repository.catalog import (
    Head,
    Propose,
    Proposed,
    Transaction,
    VersionRef,
    put_create_only,
    put_manifest,
)
from warpdata.repository.manifest import JsonObject, Manifest, ShardList, TableEntry, version_of
from warpdata.session import Session

__all__ = ["ChangeMode", "ChangeSet", "check_expected", "list_removed", "page_writes", "refuse_removal"]

_LISTED = 8


@dataclass(frozen=True, slots=True)
class ChangeMode:
    """The relation of staged entries to the head of the branch.

    `keeps`: entries of the head that the publish does not name stay. `appends`: rows are appended to some tables.
    `may_remove`: entries of the head may be missing from the new version.
    """

    keeps: bool = False
    appends: bool = False
    may_remove: bool = False


@dataclass(frozen=True)
class ChangeSet:
    """Staged entries and how they apply to a branch.

    A replacement gets the new head as its parent and keeps its content. An extension is merged into the new head.
    """

    session: Session
    dataset_id: str
    staged: StagedVersion
    mode: ChangeMode
    metadata: JsonObject = field(default_factory=dict)
    placement: Placement = field(default_factory=Placement)
    _built: dict[str | None, BuiltManifest] = field(default_factory=dict)
    """The manifest for each head that was seen, by commit. The change applies to these heads."""
    _counters: dict[str | None, Mapping[str, int]] = field(default_factory=dict)
    """The counters of sample ids that each head forgot, by commit. A replacement numbers its rows from 0."""

    def transaction(self, branch: str, author: str, message: str) -> Transaction:
        return Transaction(
            dataset_id=self.dataset_id,
            branch=branch,
            txn_id=self.session.new_id(),
            operation="append" if self.mode.keeps else "replace",
            author=author,
            message=message,
            time=self.session.timestamp(),
        )

    def placed(self, placement: Placement) -> ChangeSet:
        """Return the same change, for a writer that knows the condemned keys."""
        return replace(self, placement=placement, _built={} if placement.condemned else self._built)

    def build(self, head: Head | None) -> BuiltManifest:
        """Return the manifest for this head. Raise a `BadInputError` if the change does not apply to it.

        Reads the head, and with it the stored columns and indexes that bindings need. Writes nothing.
        """
        commit_id = head.commit if head else None
        if commit_id not in self._built:
            self._built[commit_id] = self._build(head)
        return self._built[commit_id]

    def proposal(self, expected_version: str | None, upload: Callable[[BuiltManifest], None]) -> Propose:
        """Return the callback for `commit`. It checks the change and builds the manifest, whose pages it writes.

        `upload` stores the blobs of the manifest where it names them, unless they are there.
        """

        def propose(head: Head | None) -> Proposed | None:
            current = head.version if head else None
            check_expected(self.dataset_id, current, expected_version)
            if head is None and self._built and None not in self._built:
                raise ConflictError(f"{self.dataset_id} was removed during this publish", hint="Publish again.")
            try:
                built = self.build(head)
            except BadInputError as error:
                if not self._built:
                    raise
                hint = error.hint or "Open the new head, then publish again."
                raise ConflictError(f"another commit was first: {error.message}", hint=hint) from error
            upload(built)
            writes = page_writes(self.session, built.new_pages, built.manifest.generations)
            if not self.mode.appends and version_of(built.manifest) == current:
                IO_POOL.run_all(
                    [*writes, lambda: put_manifest(self.session.writer, built.manifest, self.session.pause)]
                )
                return None
            return Proposed(built.manifest, writes, self._counters.get(head.commit if head else None, {}))

        return propose

    def _build(self, head: Head | None) -> BuiltManifest:
        stored = self._open(head) if head is not None and self.mode.keeps else None
        load_page = self.session.catalog.load_page if stored is None else stored.load_page
        base = stored.manifest if stored is not None else Manifest(self.dataset_id)
        if stored is not None:
            self._check_appends(stored)
        check_names(
            self.staged.bindings,
            base.tables.keys() | self.staged.entries.get("tables", {}).keys(),
            base.artifacts.keys() | self.staged.entries.get("artifacts", {}).keys(),
        )
        built = build_manifest(base, self.staged, self.metadata, load_page)
        if stored is not None and head is not None:
            reserved = self._reserve_ids(base, head)
            if reserved != base and (self.mode.appends or version_of(built.manifest) != head.version):
                built = build_manifest(reserved, self.staged, self.metadata, load_page)
        if stored is not None or self.mode.keeps:
            check_bindings(built.manifest.bindings, self.staged, stored)
        elif head is not None and not self.mode.may_remove and version_of(built.manifest) != head.version:
            stored = self._read_head(head)
            refuse_removal(stored.manifest, built.manifest)
        return self._place(built, head, stored)

    def _reserve_ids(self, base: Manifest, head: Head) -> Manifest:
        """Return the head, in which new rows get other sample ids than rows of versions that a restore left behind."""
        ref = VersionRef(self.dataset_id, head.version, head.commit)
        counters = self._counters[head.commit] = self.session.catalog.forgotten_counters(ref)
        appended = [name for name, entry in self.staged.entries.get("tables", {}).items() if _appends_rows(entry)]
        empty = {name: TableEntry(ShardList()) for name in appended if name in counters}
        return replace(base, tables={**empty, **base.tables}).reserving_ids(counters)

    def _place(self, built: BuiltManifest, head: Head | None, opened: VersionContext | None) -> BuiltManifest:
        """Choose the keys of the blobs. The head is read only if its blobs matter."""
        if opened is None and head is not None and self.placement.condemned:
            with suppress(CorruptError, NotFoundError):  # a head that cannot be read keeps nothing
                opened = self._open(head)
        known = None if opened is None else HeadBlobs(opened.manifest, opened.load_page, is_base=self.mode.keeps)
        staged = (blob.fingerprint.blob for blob in self.staged.blobs())
        return place_blobs(built, staged, known, self.placement)

    def _read_head(self, head: Head) -> VersionContext:
        try:
            return self._open(head)
        except (CorruptError, NotFoundError) as error:
            error.hint = "Publish the same content again to repair it, or pass replace=True to publish without it."
            raise

    def _open(self, head: Head) -> VersionContext:
        return VersionContext.of(self.session, VersionRef(self.dataset_id, head.version))

    def _check_appends(self, stored: VersionContext) -> None:
        for section, staged in self.staged.entries.items():
            for name, entry in staged.items():
                payload_kind(section).check_append(stored, name, entry)
        for name in self.staged.carried & stored.manifest.artifacts.keys():
            brought = self.staged.entries["artifacts"][name]
            assert isinstance(brought, StagedArtifact)
            assert brought.stored is not None
            if not brought.stored.has_content_of(payload_kind("artifacts").open(stored, name)):
                raise BadInputError(
                    f"the rows refer to an artifact {name!r}, and {self.dataset_id} already has another {name!r}",
                    hint="Call bind(table, column, …) to publish the artifact of the rows under another name.",
                )


def _appends_rows(staged: StagedEntry) -> bool:
    return isinstance(staged, StagedTable) and staged.appends and bool(staged.shards)


def page_writes(
    session: Session, pages: Mapping[str, bytes], generations: Mapping[str, str]
) -> list[Callable[[], object]]:
    """Return the writes of pages of shard lists, at the keys of their generations."""
    return [partial(_put_page, session, blob_key(digest, generations.get(digest)), pages[digest]) for digest in pages]


def _put_page(session: Session, key: str, data: bytes) -> None:
    """Store a page of a shard list, or repair the stored one if it is corrupt."""
    writer = session.writer
    if put_create_only(writer, key, data, session.pause):
        return
    try:
        is_valid = writer.read(key).data == data
    except ObjectNotFoundError:
        is_valid = False
    if not is_valid:
        writer.replace(key, data)


def check_expected(dataset_id: str, current: str | None, expected: str | None) -> None:
    """Raise `ConflictError` if a publish expects another version than the branch has. The empty text is none."""
    if expected is not None and (current or "") != expected:
        raise ConflictError(
            f"{dataset_id} is at version {current or 'none'}, expected {expected or 'none'}",
            hint="Compare the versions, then publish against the new one.",
        )


def list_removed(old: Manifest, new: Manifest) -> list[str]:
    """Return the entries and bindings of `old` that `new` does not have, in words."""
    removed = []
    after = new.sections()
    for section, entries in old.sections().items():
        missing = sorted(entries.keys() - after[section].keys())
        if missing:
            noun = payload_kind(section).noun
            removed += [f"{noun} {name!r}" for name in missing]
    bound = {(binding.table, binding.column) for binding in new.bindings}
    removed += [
        f"the binding of {binding.table}.{binding.column} to {binding.artifact!r}"
        for binding in old.bindings
        if binding.table in new.tables and (binding.table, binding.column) not in bound
    ]
    return removed


def refuse_removal(old: Manifest, new: Manifest) -> None:
    """Raise `BadInputError` with the names of what `old` has and `new` lacks."""
    removed = list_removed(old, new)
    if removed:
        unlisted = len(removed) - _LISTED
        suffix = f" and {unlisted} more" if unlisted > 0 else ""
        has_entries = any(
            entries.keys() - new.sections()[section].keys() for section, entries in old.sections().items()
        )
        remedy = "Pass keep=True (--keep) to keep them" if has_entries else "Bind the columns"
        raise BadInputError(
            f"this publish would remove from {old.dataset_id}: {', '.join(removed[:_LISTED])}{suffix}",
            hint=f"{remedy}, or pass replace=True (--replace) to publish without them.",
            kind=ErrorKind.WOULD_REMOVE,
        )
