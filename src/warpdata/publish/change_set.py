"""The change that a publish makes to a branch: a replacement or an append, rebased when another commit is first."""

from __future__ import annotations

from dataclasses import dataclass

from warpdata.errors import ConflictError, ObjectNotFoundError, SchemaMismatchError
from warpdata.kinds import VersionContext, payload_kind
from warpdata.primitives.hashing import blob_key
from warpdata.publish.bindings import check_appended
from warpdata.publish.manifest_builder import BuiltManifest, StagedVersion, build_manifest
from warpdata.repository.catalog import Head, Propose, Transaction, VersionRef, put_create_only, put_manifest
from warpdata.repository.manifest import JsonObject, Manifest, Page, version_of
from warpdata.session import Session

__all__ = ["ChangeSet"]


@dataclass(frozen=True)
class ChangeSet:
    """Staged entries and how they apply to a branch.

    A replacement gets the new head as its parent and keeps its content. An append is merged into the new head.
    """

    session: Session
    dataset_id: str
    staged: StagedVersion
    metadata: JsonObject
    appends: bool

    def transaction(self, branch: str, author: str, message: str) -> Transaction:
        return Transaction(
            dataset_id=self.dataset_id,
            branch=branch,
            txn_id=self.session.new_id(),
            operation="append" if self.appends else "replace",
            author=author,
            message=message,
            time=self.session.timestamp(),
        )

    def replacement_version(self) -> str:
        """Return the version of a replacement, which does not depend on the branch."""
        return version_of(self._build(Manifest(self.dataset_id)).manifest)

    def proposal(self, expected_version: str | None) -> Propose:
        """Return the callback for `commit`. It uploads new pages, checks appends, and builds the manifest."""
        seen: set[str | None] = set()

        def propose(head: Head | None) -> Manifest | None:
            current = head.version if head else None
            if expected_version is not None and current != expected_version:
                raise ConflictError(
                    f"{self.dataset_id} is at version {current or 'none'}, expected {expected_version}",
                    hint="Compare the versions, then publish against the new one.",
                )
            try:
                built = self._build(self._base(head))
            except SchemaMismatchError as error:
                if not seen:
                    raise
                raise ConflictError(f"another commit changed the table: {error.message}") from error
            seen.add(current)
            for digest, data in built.new_pages.items():
                self._put_page(digest, data)
            if not self.appends and version_of(built.manifest) == current:
                put_manifest(self.session.writer, built.manifest, self.session.pause)
                return None
            return built.manifest

        return propose

    def _base(self, head: Head | None) -> Manifest:
        """Return the manifest to build on. An append is checked against it."""
        if head is None or not self.appends:
            return Manifest(self.dataset_id)
        ref = VersionRef(self.dataset_id, head.version)
        version = VersionContext(self.session, ref, self.session.catalog.manifest(ref), self._load_page)
        for section, staged in self.staged.entries.items():
            for name, entry in staged.items():
                payload_kind(section).check_append(version, name, entry)
        check_appended(version, self.staged.entries.get("tables", {}))
        return version.manifest

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

    def _build(self, base: Manifest) -> BuiltManifest:
        return build_manifest(base, self.staged, self.metadata, self._load_page)

    def _load_page(self, page: Page) -> bytes:
        return self.session.catalog.load_page(page)
