"""The version that an edit leads to, for the head that the branch has at the commit.

If the branch has moved since the edit began, the edit is merged into the new head. Blobs and pages are uploaded here,
because a merge may need new ones.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from warpdata.edit.compaction import merge_tail
from warpdata.edit.table_draft import TableDraft
from warpdata.edit.table_merge import ColumnRules
from warpdata.edit.version_merge import MergePolicy, merge_versions
from warpdata.edit.workspace import EditWorkspace
from warpdata.errors import ConflictError
from warpdata.kinds import VersionContext, payload_kind
from warpdata.kinds.tables import check_reference_column
from warpdata.primitives.parallel import IO_POOL
from warpdata.primitives.progress import Progress, silent
from warpdata.publish import (
    BuiltManifest,
    HeadBlobs,
    Placement,
    StagedUpload,
    check_cells,
    layout_manifest,
    page_writes,
    place_blobs,
)
from warpdata.repository.catalog import (
    Committed,
    Head,
    Propose,
    Proposed,
    Transaction,
    VersionRef,
    commit,
    create_label,
    mark_store,
    put_manifest,
    read_marker,
    store_after,
)
from warpdata.repository.manifest import (
    Binding,
    LocatedShard,
    Manifest,
    Page,
    Payload,
    ShardList,
    TableEntry,
    differing_shards,
    kept_blobs,
    open_page,
    version_of,
)
from warpdata.session import Session

__all__ = ["EditProposal", "commit_beside", "commit_change", "present_head"]


@dataclass
class EditProposal:
    """The proposal of an edit for a commit. `edited` is the version that the edit makes of its base.

    The last shards of the tables in `appended` are merged if they are many and small.
    """

    workspace: EditWorkspace
    base: VersionContext
    edited: Manifest
    appended: Collection[str] = ()
    progress: Progress = silent
    policy: MergePolicy = "fail"
    placement: Placement = field(default_factory=Placement)
    is_merge: bool = False
    """Commit also if the version stays the same: the history shows what was merged."""
    shrunk: Collection[str] | None = None
    """Artifacts that may have lost files; None for all. Rows that refer to others are not checked again."""
    columns: Mapping[str, ColumnRules] = field(default_factory=dict)
    """The rules for rows without a column that a commit in between, or this edit, has added. By table."""
    base_counters: Mapping[str, int] | None = None
    """The counters of sample ids that the base forgot, if they are known."""
    _proposed: dict[str, Proposed] = field(default_factory=dict)

    def at(self, placement: Placement) -> Propose:
        """Return the callback for a commit that holds a lease."""
        self.placement = placement
        return self.propose

    def propose(self, head: Head | None) -> Proposed | None:
        """Return the manifest to commit onto this head, with the writes of the blobs and pages that it needs."""
        head = present_head(head, self.base.ref.dataset_id)
        if head.commit not in self._proposed:
            self._proposed[head.commit] = self._build(head)
        proposed, session = self._proposed[head.commit], self.workspace.session
        if version_of(proposed.manifest) == head.version and not self.is_merge:
            IO_POOL.run_all([*proposed.writes, lambda: put_manifest(session.writer, proposed.manifest, session.pause)])
            return None
        return proposed

    def _build(self, head: Head) -> Proposed:
        current, catalog, dataset_id = self.base.manifest, self.workspace.session.catalog, self.base.ref.dataset_id
        if head.version != self.base.ref.version:
            current = catalog.manifest(VersionRef(dataset_id, head.version))
        self.workspace.read_generations({**self.edited.generations, **current.generations})
        counters = self.base_counters if head.commit == self.base.ref.commit else None
        if counters is None:
            counters = catalog.forgotten_counters(VersionRef(dataset_id, head.version, head.commit))
        target = current if head.commit == self.base.ref.commit else self._reserve_appended(current, counters)
        sides = (self.base.manifest, target, self.edited)
        merged = merge_versions(self.workspace, sides, self.policy, is_edit=not self.is_merge, columns=self.columns)
        if merged != current or self.is_merge:
            # Later commits do not look beyond this one, so that every table has to have its counter.
            merged = merged.reserving_ids(counters)
        merged = replace(merged, tables={name: self._finish(name, entry) for name, entry in merged.tables.items()})
        built = layout_manifest(merged, self.workspace.load_page)
        self.workspace.add_pages(dict(built.new_pages))
        self._check_bindings(current, built.manifest)
        return replace(self._place(current, built), id_counters=counters)

    def _reserve_appended(self, current: Manifest, counters: Mapping[str, int]) -> Manifest:
        """Reserve the forgotten ids in tables that get rows. The head was restored after the change began."""
        base, edited = self.base.manifest.tables, self.edited.tables
        grown = {name for name in base.keys() & edited.keys() if edited[name].id_counter > base[name].id_counter}
        return current.reserving_ids({name: counter for name, counter in counters.items() if name in grown})

    def _finish(self, name: str, entry: TableEntry) -> TableEntry:
        if name not in self.appended:
            return entry
        draft = TableDraft(self.workspace, name, entry)
        merge_tail(draft)
        return draft.entry

    def _check_bindings(self, before: Manifest, after: Manifest) -> None:
        """Check the cells of bound columns that are new, or whose artifact changed."""
        version = self.workspace.context(after)
        for binding in after.bindings:
            old_artifact = before.artifacts.get(binding.artifact)
            is_same = binding in before.bindings and (
                old_artifact == after.artifacts[binding.artifact]
                or (self.shrunk is not None and binding.artifact not in self.shrunk)
            )
            old, new = before.tables.get(binding.table), after.tables[binding.table]
            if is_same and old == new:
                continue
            if not is_same or old is None or old.changes != new.changes:
                self._check_column(binding, new)
            kept = old.shards if is_same and old is not None else ShardList()
            added = self._new_files(kept, new)
            if added:
                artifact = payload_kind("artifacts").open(version, binding.artifact)
                check_cells(binding, self._column_parts(binding, new, added), artifact)

    def _check_column(self, binding: Binding, entry: TableEntry) -> None:
        """Raise `SchemaMismatchError` if a bound column cannot hold references, such as after a cast."""
        schema = self.workspace.open_table(binding.table, entry).schema()
        if binding.column in schema.names:
            check_reference_column(schema.field(binding.column))

    def _new_files(self, old: ShardList, new: TableEntry) -> list[LocatedShard]:
        before, after = differing_shards(old, new.shards, self.workspace.load_page)
        known = {placed.shard.hash for placed in before}
        return [placed for placed in after if placed.shard.hash not in known]

    def _column_parts(
        self, binding: Binding, entry: TableEntry, added: Sequence[LocatedShard]
    ) -> Iterator[tuple[str, int, list[object]]]:
        for placed in added:
            only = replace(entry, shards=ShardList((placed.shard,)), next_id=None)
            table, row = self.workspace.open_table(binding.table, only), placed.first_row
            for batch in table.select([binding.column]).batches():
                yield f"table {binding.table!r}", row, batch.column(0).to_pylist()
                row += batch.num_rows

    def _place(self, before: Manifest, built: BuiltManifest) -> Proposed:
        """Return the version, and the writes of what it needs and the head does not have, at safe keys."""
        session, digests = self.workspace.session, set(self._needed_blobs(before, built.manifest))
        staged = [blob for digest in sorted(digests) if (blob := self.workspace.blob(digest)) is not None]
        self._check_uncollected(digests - {blob.fingerprint.blob.hash for blob in staged})
        pages = {digest: data for tree in _trees(built.manifest) for digest, data in self._new_pages(*tree)}
        head = HeadBlobs(before, self.workspace.load_page, is_base=True)
        blobs = (blob.fingerprint.blob for blob in staged)
        placed = place_blobs(replace(built, new_pages=pages), blobs, head, self.placement).manifest
        own = {blob.fingerprint.blob.hash for blob in staged} | pages.keys()
        generations = {**self._source_generations(before, built.manifest, own), **placed.generations}
        upload = StagedUpload(session, staged, self.workspace.new_directory, self.progress)
        writes = [lambda: upload.begin(generations, repair=False), *page_writes(session, pages, generations)]
        manifest = replace(placed, generations=generations) if generations != placed.generations else placed
        return Proposed(manifest, writes if staged else writes[1:])

    def _source_generations(self, before: Manifest, after: Manifest, own: Collection[str]) -> dict[str, str]:
        """Return the generations of blobs that come from the edited version: neither from the head nor uploaded now."""
        given = {digest: name for digest, name in self.edited.generations.items() if digest not in own}
        if not given:
            return {}
        load_page = self.workspace.load_page
        of_head = {blob.hash for blob in kept_blobs(before, load_page)}
        needed = {blob.hash for blob in kept_blobs(after, load_page)}
        return {digest: name for digest, name in given.items() if digest in needed and digest not in of_head}

    def _check_uncollected(self, digests: Collection[str]) -> None:
        """Refuse to refer to stored blobs that a collection may be deleting."""
        condemned = [digest for digest in digests if digest in self.placement.condemned]
        if condemned:
            raise ConflictError(
                f"blob {condemned[0]} of the version that this change builds on is being collected",
                hint="Open the head of the branch, and repeat the change.",
            )

    def _needed_blobs(self, before: Manifest, after: Manifest) -> Iterator[str]:
        """Yield the blobs of the entries that differ from those of the head."""
        for section, entries in after.sections().items():
            for name, entry in entries.items():
                old = before.sections()[section].get(name)
                if old == entry:
                    continue
                shards = ShardList() if old is None else old.shards
                _, changed = differing_shards(shards, entry.shards, self.workspace.load_page)
                yield from (blob.hash for placed in changed for blob in placed.shard.blobs())
                if isinstance(entry, Payload) and entry.index is not None:
                    yield entry.index.hash

    def _new_pages(self, pages: Sequence[Page], level: int) -> Iterator[tuple[str, bytes]]:
        """Yield the pages of a tree that are not stored yet, those below first."""
        for page in pages:
            data = self.workspace.page(page.hash)
            if data is None:
                continue
            if level:
                below = [entry for entry in open_page(page, data, level) if isinstance(entry, Page)]
                yield from self._new_pages(below, level - 1)
            yield page.hash, data


def _trees(manifest: Manifest) -> Iterator[tuple[Sequence[Page], int]]:
    """Yield the pages at the top of each shard list, with their level."""
    for shards in manifest.shard_lists():
        yield shards.pages, shards.levels - 1


def present_head(head: Head | None, dataset_id: str) -> Head:
    """Return the head of a branch that was open before. `ConflictError` if the branch was removed since."""
    if head is None:
        raise ConflictError(
            f"the branch of {dataset_id} that this change builds on was removed",
            hint="Create the branch again with Dataset.branch(), and repeat the change.",
        )
    return head


def commit_change(session: Session, txn: Transaction, propose: Callable[[Placement], Propose]) -> Committed:
    """Commit a change while holding a lease, so that no garbage collection deletes what it needs."""
    if read_marker(session.writer) is None:
        mark_store(session.writer, session.pause)
    with session.lease(f"{txn.operation} {txn.dataset_id}", txn.txn_id) as lease:
        release = functools.partial(lease.release, session.pause)
        placement = Placement(lease.condemned, session.new_generation)
        return commit(
            session.writer, txn, propose(placement), session.pause, check_lease=lease.check, on_committed=release
        )


def commit_beside(
    session: Session, txn: Transaction, base: VersionRef, label: str, propose: Callable[[Placement], Propose]
) -> Committed:
    """Commit a change of a version without moving a branch, and name the result with a label.

    The commit follows from the base, the change and the transaction, so repeating the call has no effect.
    """
    assert base.commit is not None, "the base of an edit has a commit"
    head = Head(1, base.commit, base.version, txn.txn_id)
    with session.lease(f"{txn.operation} {txn.dataset_id}", txn.txn_id) as lease:
        placement = Placement(lease.condemned, session.new_generation, moves_branch=False)
        proposed = propose(placement)(head)
        assert proposed is not None, "an edit beside the branch changes something"
        done = store_after(session.writer, txn, head, proposed, session.pause)
        named = VersionRef(txn.dataset_id, done.version, done.commit)
        create_label(session.writer, named, label, txn.time, session.pause, check_lease=lease.check)
    return done
