"""Compaction of a branch as a commit. Another commit that is first makes it start again from the new head."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

from warpdata.edit.compaction import CompactionOptions, CompactionRun, compact_table, find_runs
from warpdata.edit.proposal import EditProposal, commit_change, present_head
from warpdata.edit.table_draft import TableDraft
from warpdata.edit.workspace import DraftSource, EditWorkspace, FindTransform
from warpdata.jobs import JobOptions, open_job
from warpdata.kinds import VersionContext, pick_entry
from warpdata.kinds.tables import TABLES
from warpdata.primitives.progress import Progress, silent
from warpdata.publish import Placement
from warpdata.repository.catalog import Head, Propose, Proposed, Transaction, VersionRef
from warpdata.repository.manifest import LoadPage, Manifest, ShardList, TableEntry, differing_shards
from warpdata.session import Session

__all__ = ["Compacted", "CompactionTerms", "compact_branch", "plan_compaction"]


@dataclass(frozen=True, slots=True)
class Compacted:
    """The head after a compaction, and the number of shards of each table that were rewritten."""

    version: str
    commit: str
    changed: bool
    shards: dict[str, int]


@dataclass(frozen=True, slots=True)
class CompactionTerms:
    """What to rewrite, where, and with which progress."""

    options: CompactionOptions
    progress: Progress = silent
    work: JobOptions = field(default_factory=JobOptions)


@dataclass
class _Compaction:
    workspace: EditWorkspace
    dataset_id: str
    tables: Collection[str] | None
    options: CompactionOptions
    how: CompactionRun
    counts: dict[str, int] = field(default_factory=dict)
    placement: Placement = field(default_factory=Placement)

    def at(self, placement: Placement) -> Propose:
        """Return the callback for a commit that holds a lease."""
        self.placement = placement
        return self.propose

    def propose(self, head: Head | None) -> Proposed | None:
        head = present_head(head, self.dataset_id)
        session, ref = self.workspace.session, VersionRef(self.dataset_id, head.version, head.commit)
        manifest = session.catalog.manifest(ref)
        self.workspace.source = DraftSource(lambda: manifest, lambda *_: None)
        tables = dict(manifest.tables)
        self.counts = {}
        for name, entry in _choose(manifest, self.tables).items():
            draft = TableDraft(self.workspace, name, entry)
            self.counts[name] = compact_table(draft, self.options, self.how)
            tables[name] = draft.entry
        context = VersionContext(session, ref, manifest, self.workspace.load_page)
        edited = replace(manifest, tables=tables, metadata={})
        return EditProposal(self.workspace, context, edited, placement=self.placement).propose(head)


def plan_compaction(
    manifest: Manifest, load_page: LoadPage, tables: Collection[str] | None, options: CompactionOptions
) -> dict[str, int]:
    """Return the number of shards of each table that a compaction would rewrite. Reads no data."""
    counts = {}
    for name, entry in _choose(manifest, tables).items():
        _, listed = differing_shards(ShardList(), entry.shards, load_page)
        counts[name] = sum(map(len, find_runs(listed, options)))
    return {name: count for name, count in counts.items() if count}


def compact_branch(
    session: Session,
    txn: Transaction,
    tables: Collection[str] | None,
    terms: CompactionTerms,
    find_transform: FindTransform,
) -> Compacted:
    """Rewrite worn and small shards of the tables of a branch, here or by a job."""
    with ExitStack() as stack:
        workspace = EditWorkspace(session, find_transform)
        stack.callback(workspace.remove)
        job = open_job(session, terms.work, txn.dataset_id, "compact", stack)
        how = CompactionRun(terms.progress, job)
        work = _Compaction(workspace, txn.dataset_id, tables, terms.options, how)
        done = commit_change(session, txn, work.at)
        if job is not None:
            job.finish()
    return Compacted(done.version, done.commit, done.changed, {name: n for name, n in work.counts.items() if n})


def _choose(manifest: Manifest, tables: Collection[str] | None) -> dict[str, TableEntry]:
    """Return the tables to compact. Raise `NotFoundError` for one that the version does not have."""
    names = manifest.tables if tables is None else [pick_entry(TABLES, manifest, name)[0] for name in tables]
    return {name: manifest.tables[name] for name in names}
