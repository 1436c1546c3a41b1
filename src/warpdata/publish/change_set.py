"""The change that a publish makes to a branch: a replacement or an extension, rebased when another commit is first."""

from __future__ import annotations

from dataclasses import dataclass, field

from warpdata.errors import BadInputError, ConflictError, CorruptError, ErrorKind, NotFoundError, ObjectNotFoundError
from warpdata.kinds import VersionContext, payload_kind
from warpdata.kinds.artifacts import StagedArtifact
from warpdata.primitives.hashing import blob_key
from warpdata.publish.bindings import check_bindings, check_names
from warpdata.publish.manifest_builder import BuiltManifest, StagedVersion, build_manifest
from warpdata.repository.catalog import Head, Propose, Transaction, VersionRef, put_create_only, put_manifest
from warpdata.repository.manifest import JsonObject, Manifest, Page, version_of
from warpdata.session import Session

__all__ = ["ChangeMode", "ChangeSet", "check_expected", "list_removed"]

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
    _built: dict[str | None, BuiltManifest] = field(default_factory=dict)
    """The manifest for each head that was seen, by version. The change applies to these heads."""

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

    def build(self, head: Head | None) -> BuiltManifest:
        """Return the manifest for this head. Raise a `BadInputError` if the change does not apply to it.

        Reads the head, and with it the stored columns and indexes that bindings need. Writes nothing.
        """
        version = head.version if head else None
        if version not in self._built:
            self._built[version] = self._build(head)
        return self._built[version]

    def proposal(self, expected_version: str | None) -> Propose:
        """Return the callback for `commit`. It checks the change, builds the manifest and uploads new pages."""

        def propose(head: Head | None) -> Manifest | None:
            current = head.version if head else None
            check_expected(self.dataset_id, current, expected_version)
            try:
                built = self.build(head)
            except BadInputError as error:
                if not self._built:
                    raise
                hint = error.hint or "Open the new head, then publish again."
                raise ConflictError(f"another commit was first: {error.message}", hint=hint) from error
            for digest, data in built.new_pages.items():
                self._put_page(digest, data)
            if not self.mode.appends and version_of(built.manifest) == current:
                put_manifest(self.session.writer, built.manifest, self.session.pause)
                return None
            return built.manifest

        return propose

    def _build(self, head: Head | None) -> BuiltManifest:
        stored = self._open(head) if head is not None and self.mode.keeps else None
        base = stored.manifest if stored is not None else Manifest(self.dataset_id)
        if stored is not None:
            self._check_appends(stored)
        check_names(
            self.staged.bindings,
            base.tables.keys() | self.staged.entries.get("tables", {}).keys(),
            base.artifacts.keys() | self.staged.entries.get("artifacts", {}).keys(),
        )
        built = build_manifest(base, self.staged, self.metadata, self._load_page)
        if stored is not None or self.mode.keeps:
            check_bindings(built.manifest.bindings, self.staged, stored)
        elif head is not None and not self.mode.may_remove and version_of(built.manifest) != head.version:
            _refuse_removal(self._read_head(head), built.manifest)
        return built

    def _read_head(self, head: Head) -> Manifest:
        try:
            return self._open(head).manifest
        except (CorruptError, NotFoundError) as error:
            error.hint = "Publish the same content again to repair it, or pass replace=True to publish without it."
            raise

    def _open(self, head: Head) -> VersionContext:
        ref = VersionRef(self.dataset_id, head.version)
        return VersionContext(self.session, ref, self.session.catalog.manifest(ref), self._load_page)

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

    def _put_page(self, digest: str, data: bytes) -> None:
        """Store a page, or repair the stored one if it is corrupt."""
        writer, key = self.session.writer, blob_key(digest)
        if put_create_only(writer, key, data, self.session.pause):
            return
        try:
            is_valid = writer.read(key).data == data
        except ObjectNotFoundError:
            is_valid = False
        if not is_valid:
            writer.replace(key, data)

    def _load_page(self, page: Page) -> bytes:
        return self.session.catalog.load_page(page)


def check_expected(dataset_id: str, current: str | None, expected: str | None) -> None:
    """Raise `ConflictError` if a publish expects another version than the branch has."""
    if expected is not None and current != expected:
        raise ConflictError(
            f"{dataset_id} is at version {current or 'none'}, expected {expected}",
            hint="Compare the versions, then publish against the new one.",
        )


def list_removed(old: Manifest, new: Manifest) -> list[str]:
    """Return the entries and bindings of `old` that `new` does not have, in words."""
    removed = []
    after = new.sections()
    for section, entries in old.sections().items():
        missing = sorted(entries.keys() - after[section].keys())
        if missing:
            noun = payload_kind(section).noun if section != "indexes" else "index"
            removed += [f"{noun} {name!r}" for name in missing]
    bound = {(binding.table, binding.column) for binding in new.bindings}
    removed += [
        f"the binding of {binding.table}.{binding.column} to {binding.artifact!r}"
        for binding in old.bindings
        if binding.table in new.tables and (binding.table, binding.column) not in bound
    ]
    return removed


def _refuse_removal(old: Manifest, new: Manifest) -> None:
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
