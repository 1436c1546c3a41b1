"""Indexes are created, brought up to date and dropped by commits, like every other change of a version.

Nothing reaches the store before the commit. If the branch has moved, the index is merged into the new head, whose new
files it does not cover.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from warpdata.edit import DraftSource, EditProposal, EditWorkspace, commit_change
from warpdata.errors import (
    AlreadyExistsError,
    BadInputError,
    ColumnNotFoundError,
    CorruptError,
    ObjectNotFoundError,
)
from warpdata.formats.indexes import Directory, is_list, value_type_of
from warpdata.formats.parquet import ShardOpener
from warpdata.formats.search import VECTOR_KINDS
from warpdata.indexing.segment_builder import (
    SEGMENT_ROWS,
    SegmentWork,
    built_segment,
    find_sources,
    group_sources,
    open_files,
    plan_segments,
)
from warpdata.indexing.segment_kinds import ColumnToIndex, check_kind
from warpdata.jobs import Job, JobOptions, open_job
from warpdata.kinds import StageContext, StagedBlob, VersionContext, pick_entry
from warpdata.kinds.indexes import (
    INDEXES,
    BuiltSegment,
    IndexInput,
    KeptSegment,
    OpenedIndex,
    Parameters,
    place_sources,
)
from warpdata.kinds.tables import TABLES, IndexedTable, Table
from warpdata.limits import MAX_NAME_LENGTH
from warpdata.primitives.hashing import blob_key
from warpdata.primitives.progress import Progress, ProgressCounter, silent
from warpdata.primitives.suggest import suggest
from warpdata.publish import check_entry_name
from warpdata.repository.catalog import Committed, Transaction, check_commit_texts, find_transaction, retry_unknown
from warpdata.repository.manifest import Manifest, Payload, Shard, iter_shards
from warpdata.session import Session, keyed_id
from warpdata.storage import GenerationReader, verify_blob

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["IndexChange", "IndexRequest", "create_index", "default_name", "drop_index", "update_index"]

_MAX_BITMAP_VALUES = 1000
_SMALL_SEGMENTS = 8
_SMALL_SHARE = 8


@dataclass(frozen=True, slots=True)
class IndexRequest:
    """An index to create. Without a kind, the values choose it. Without a name, it is named by table and column."""

    table: str
    column: str
    kind: str | None = None
    name: str | None = None
    parameters: Parameters = field(default_factory=dict)
    """Those of the kind, such as the metric of vectors."""


@dataclass(frozen=True, slots=True)
class IndexChange:
    """The branch of a change, the text of its commit, and the observer of its progress."""

    branch: str
    author: str
    message: str = ""
    progress: Progress = silent
    work: JobOptions = field(default_factory=JobOptions)
    """The engine that builds segments, and the id of the job."""


def create_index(version: VersionContext, request: IndexRequest, change: IndexChange) -> tuple[str, Committed]:
    """Build an index over all shards of a table, and commit it. Return its name."""
    name = request.name or default_name(request.table, request.column)
    check_entry_name(name, INDEXES.noun)
    done = find_finished(version, change)
    if done is not None:
        return name, done
    if name in version.manifest.indexes:
        raise AlreadyExistsError(
            f"{version.ref.dataset_id} already has an index {name!r}",
            hint="Bring it up to date with update_index, or choose another name.",
        )
    table, column_type = _open_column(version, request.table, request.column)
    column = _choose_kind(version, request, column_type)
    check_kind(column)
    place = pick_entry(TABLES, version.manifest, request.table)[0]
    with _open_work(version, change, name) as work:
        built = work.build(table, column, _shards(table))
        entry = IndexInput(column.kind, place, column.name, built, column.parameters)
        return name, work.commit(name, entry, change.message or f"create index {name}")


def update_index(version: VersionContext, name: str, change: IndexChange, *, rebuild: bool = False) -> Committed:
    """Cover the shards that an index does not cover, and drop what the version no longer has.

    With `rebuild`, build all segments again, and replace damaged ones in the store.
    """
    if rebuild and change.work.engine is not None:
        raise BadInputError("rebuild=True replaces damaged files, and this process does so", hint="Leave out engine.")
    name, entry = pick_entry(INDEXES, version.manifest, name)
    table, column_type = _open_column(version, entry.table, entry.column)
    column = ColumnToIndex(entry.kind, entry.column, column_type, entry.parameters)
    check_kind(column)
    index = INDEXES.open(version, name)
    kept = [] if rebuild else _kept_segments(index, table, column)
    covered = {source.key for each in kept for source in each.segment.sources}
    with _open_work(version, change, name) as work:
        built = work.build(table, column, _shards(table), covered)
        changed = IndexInput(entry.kind, entry.table, entry.column, [*kept, *built], entry.parameters)
        return work.commit(name, changed, change.message or f"update index {name}", repair=rebuild)


def drop_index(version: VersionContext, name: str, change: IndexChange) -> Committed:
    """Commit a version without the index."""
    if name not in version.manifest.indexes:
        known = sorted(version.manifest.indexes)
        raise INDEXES.not_found(
            f"{version.ref.dataset_id} has no index {name!r}", suggest(name, known, label="Indexes")
        )
    with _open_work(version, change, name) as work:
        return work.commit(name, None, change.message or f"drop index {name}")


def default_name(table: str, column: str) -> str:
    """Return the name of an index that the caller does not name."""
    return f"{table}.{re.sub(r'[^A-Za-z0-9_.-]', '_', column)}"[:MAX_NAME_LENGTH]


def _open_column(version: VersionContext, name: str, column: str) -> tuple[IndexedTable, pa.DataType]:
    """Return a table and the type of a column. `ColumnNotFoundError` if there is none."""
    table = TABLES.open(version, name)
    schema = table.schema()
    if column not in schema.names:
        raise ColumnNotFoundError(
            f"table {table.name!r} has no column {column!r}", hint=suggest(column, schema.names, label="Columns")
        )
    return IndexedTable(table.entry, schema, table.opener, version.load_page), schema.field(column).type


def _choose_kind(version: VersionContext, request: IndexRequest, column_type: pa.DataType) -> ColumnToIndex:
    """Return the column with the kind that was asked for, or the one that suits the values."""
    kind, parameters = request.kind, dict(request.parameters)
    if kind is None:
        value_type_of(request.column, column_type)
        is_bitmap = is_list(column_type) or _has_few_values(
            TABLES.open(version, request.table).select([request.column])
        )
        kind = "bitmap" if is_bitmap else "btree"
    if kind in VECTOR_KINDS:
        parameters.setdefault("metric", "cosine")
    return ColumnToIndex(kind, request.column, column_type, parameters)


def _has_few_values(column: Table) -> bool:
    """Read the column until it has too many values for a bitmap index."""
    import pyarrow as pa
    import pyarrow.compute as pc

    known: pa.Array | None = None
    for part in column.row_groups():
        found = pc.unique(part.column(0))
        known = found if known is None else pa.chunked_array([known, found]).unique()
        if len(known) > _MAX_BITMAP_VALUES:
            return False
    return True


def _shards(table: IndexedTable) -> Iterator[Shard]:
    return (located.shard for located, _ in place_sources(table.entry, table.load_page, "", {}))


def _kept_segments(index: OpenedIndex, table: IndexedTable, column: ColumnToIndex) -> list[KeptSegment]:
    """Return the segments that cover files of the version, without small ones if they are many.

    A directory that cannot be read keeps none, and a segment that cannot be opened is not kept.
    """
    try:
        directory, places = index.directory, index.places
    except (CorruptError, ObjectNotFoundError):
        return []
    used = {
        source.segment
        for _, source in place_sources(table.entry, table.load_page, index.entry.column, places)
        if source is not None
    }
    opener = ShardOpener(index.reader)
    kept = [number for number in sorted(used) if _is_usable(opener, index.shards[number], directory, number, column)]
    small = [number for number in kept if directory.segments[number].row_count * _SMALL_SHARE < SEGMENT_ROWS]
    merged = set(small) if len(small) >= _SMALL_SEGMENTS else set()
    return [KeptSegment(index.shards[number], directory.segments[number]) for number in kept if number not in merged]


def _is_usable(opener: ShardOpener, shard: Shard, directory: Directory, number: int, column: ColumnToIndex) -> bool:
    """Return whether a segment can be opened and has values of the type of the column. Those of vectors always do."""
    if column.kind in VECTOR_KINDS:
        return True
    try:
        entries = directory.segments[number].entries
        file = opener.peek(Shard(shard.hash, shard.byte_size, entries, shard.footer))
        if column.kind == "text":
            return "word" in file.schema.names
        return bool(file.schema.field("value").type == value_type_of(column.name, column.type))
    except (CorruptError, ObjectNotFoundError, KeyError):
        return False


def find_finished(version: VersionContext, change: IndexChange) -> Committed | None:
    """Return the commit of a job that was named, if an earlier run of it has got that far."""
    if change.work.job is None:
        return None
    txn_id, ref = keyed_id(f"{version.ref.dataset_id}\n{change.work.job}"), version.ref
    found = find_transaction(version.session.writer, ref.dataset_id, change.branch, txn_id)
    return None if found is None else Committed(found.commit.version, found.commit_id, 0, changed=True)


@contextmanager
def _open_work(version: VersionContext, change: IndexChange, name: str) -> Iterator[_Work]:
    """Open the surroundings of a change, and remove them at its end."""
    check_commit_texts(change.author, change.message)
    session, key = version.session, f"{version.ref.dataset_id}\nindexes\n{name}"
    workspace = EditWorkspace(session, lambda _table: None, DraftSource(lambda: version.manifest, lambda *_: None))
    with ExitStack() as stack:
        stack.callback(workspace.remove)
        job = open_job(session, change.work, version.ref.dataset_id, f"index\n{name}", stack)
        yield _Work(version, change, workspace, session.settings.cache_dir / "indexes" / keyed_id(key), job)


@dataclass(frozen=True)
class _Work:
    """A change of one index on its way to a commit. Without a job, finished segments stay in `work_dir` until then."""

    version: VersionContext
    change: IndexChange
    workspace: EditWorkspace
    work_dir: Path
    job: Job | None

    def build(
        self,
        table: IndexedTable,
        column: ColumnToIndex,
        shards: Iterator[Shard],
        covered: Collection[tuple[str, str]] = (),
    ) -> list[BuiltSegment]:
        """Build segments over the files that are not covered."""
        files = ShardOpener(self.version.session.reader)
        sources = [
            source for source in find_sources(table, files, column.name, shards) if source.source.key not in covered
        ]
        groups = list(group_sources(sources))
        if self.job is None:
            work = SegmentWork(column, lambda _session: files, self.work_dir)
        else:
            work = SegmentWork(column, open_files)
        counter = ProgressCounter(
            self.change.progress, "index", sum(source.row_count for source in sources), len(groups)
        )
        results = self.workspace.run(plan_segments(work, groups), counter, self.job)
        return [
            built_segment(group, result, self.workspace.staged(result.blobs[0].hash))
            for group, result in zip(groups, results, strict=True)
        ]

    def commit(self, name: str, source: IndexInput | None, message: str, *, repair: bool = False) -> Committed:
        """Commit the index, or its removal, and remove the files of the build. `repair` replaces damaged blobs."""
        session, base, job = self.version.session, self.version, self.change.work.job
        txn = Transaction(
            base.ref.dataset_id,
            self.change.branch,
            session.new_id() if job is None else keyed_id(f"{base.ref.dataset_id}\n{job}"),
            "edit",
            self.change.author,
            message,
            session.timestamp(),
        )
        manifest = self._manifest(self.workspace, name, source, repair=repair)
        proposal = EditProposal(self.workspace, base, manifest, progress=self.change.progress)
        done = commit_change(session, txn, proposal.at)
        shutil.rmtree(self.work_dir, ignore_errors=True)
        if self.job is not None:
            self.job.finish()
        return done

    def _manifest(self, workspace: EditWorkspace, name: str, source: IndexInput | None, *, repair: bool) -> Manifest:
        manifest = self.version.manifest
        indexes = {key: entry for key, entry in manifest.indexes.items() if key != name}
        if source is not None:
            staged = INDEXES.stage(name, source, StageContext(workspace.lazy_directory(), self.change.progress))
            if repair:
                self._repair(staged.blobs, manifest.indexes[name])
            indexes[name] = workspace.add_payload(staged)
        return replace(manifest, indexes=indexes, metadata={})

    def _repair(self, staged: Sequence[StagedBlob], entry: Payload) -> None:
        """Store blobs of the present index again if they are damaged or missing. An upload only compares sizes."""
        session, generations = self.version.session, self.version.manifest.generations
        reader = GenerationReader(session.writer, generations)
        present = {entry.index, *(shard.blob for shard in iter_shards(entry.shards, self.version.load_page))}
        for each in staged:
            blob = each.fingerprint.blob
            if blob in present and verify_blob(reader, blob) is not None:
                _replace(session, blob_key(blob.hash, generations.get(blob.hash)), each)
                session.reader.invalidate(blob_key(blob.hash))


def _replace(session: Session, key: str, staged: StagedBlob) -> None:
    retry_unknown(lambda: session.writer.replace_file(key, staged.path, staged.fingerprint), session.pause)
