"""The `Dataset` façade: every method is a few lines over the layer that does the work."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Unpack

from warpdata.datasets.info import DatasetInfo, describe
from warpdata.datasets.prefetch import ShardPrefetcher, Warmed, choose_blobs, warm_blobs
from warpdata.errors import BadInputError
from warpdata.formats.parquet import ShardOpener, plain_rows
from warpdata.kinds import VersionContext, entries_by_kind, payload_kind, pick_entry
from warpdata.kinds.artifacts import ARTIFACTS, Artifact
from warpdata.kinds.tables import TABLES, LookaheadHook, SchemaTransform, Table, retype_table
from warpdata.kinds.tensors import TENSORS
from warpdata.primitives.arguments import check_arguments
from warpdata.primitives.hashing import Blob
from warpdata.primitives.progress import Progress, ProgressCounter, silent
from warpdata.primitives.reprs import html_table, short_repr
from warpdata.primitives.sizes import parse_size
from warpdata.repository.catalog import (
    MAIN,
    Address,
    HistoryEntry,
    Label,
    VersionRef,
    check_dataset_id,
    create_branch,
    create_label,
    find_transaction,
    parse_address,
)
from warpdata.repository.manifest import LoadPage, Manifest, ShardList, VersionDiff, compare, iter_shards, kept_blobs
from warpdata.session import Session, connect
from warpdata.settings import Settings
from warpdata.storage import IOStats
from warpdata.storage.cache import CachedReader, Mode

if TYPE_CHECKING:
    import pyarrow as pa

    from warpdata.formats.tensors import Engine, SourcePolicy, TensorSet
    from warpdata.kinds.episodes import Episodes
    from warpdata.streaming import Collate, RowKeywords, Stop, Stream, TorchLoader

__all__ = ["Dataset", "Revision", "dataset", "diff", "find_commit", "list_datasets", "mix", "open_dataset"]

_CACHED_PAGES = 64
_ENTRY_COLUMNS = ("kind", "name", "items", "bytes")


@dataclass(frozen=True, slots=True)
class Revision:
    """One commit of a dataset's history."""

    commit: str
    version: str
    parents: tuple[str, ...]
    operation: str
    author: str
    message: str
    time: datetime
    txn_id: str


@check_arguments
class Dataset:
    """One immutable version of a dataset. Open the name again to see newer versions."""

    def __init__(self, session: Session, version_ref: VersionRef, manifest: Manifest) -> None:
        self._session = session
        self._version_ref = version_ref
        self._manifest = manifest
        self._artifacts: dict[str, Artifact] = {}
        self._episodes: dict[str | None, Episodes] = {}
        self._ref_columns: dict[str, SchemaTransform] = {}
        self._shards = ShardOpener(session.reader)
        self._load_page: LoadPage = functools.lru_cache(maxsize=_CACHED_PAGES)(session.catalog.load_page)
        self._context = VersionContext(session, version_ref, manifest, self._load_page)

    def __repr__(self) -> str:
        return short_repr("Dataset", self.id, version=self.version[:12], store=self._session.reader.url)

    def _repr_html_(self) -> str:
        info = self.info()
        rows = [
            (kind.noun, entry.name, getattr(entry, kind.count_field), entry.size_bytes)
            for kind, entries in entries_by_kind(self._manifest)
            for entry in (kind.describe(name, entry) for name, entry in entries.items())
        ]
        notes = [
            f"{bound.table}.{bound.column} refers to {bound.artifact} ({bound.ref_type})" for bound in info.bindings
        ]
        return html_table(f"{self.id}@{self.version[:12]} in {info.store}", _ENTRY_COLUMNS, rows, notes=notes)

    @property
    def session(self) -> Session:
        """The session that opened this dataset."""
        return self._session

    @property
    def is_local(self) -> bool:
        """The store is a local directory."""
        return self._session.is_local

    @property
    def id(self) -> str:
        return self._version_ref.dataset_id

    @property
    def version(self) -> str:
        """Hash of the manifest, as 64 hex digits."""
        return self._version_ref.version

    @property
    def version_ref(self) -> VersionRef:
        """The version with the branch or label that it was opened by."""
        return self._version_ref

    @property
    def manifest(self) -> Manifest:
        return self._manifest

    @property
    def context(self) -> VersionContext:
        """The opened version, for payload kinds to open its entries."""
        return self._context

    @property
    def load_page(self) -> LoadPage:
        """Reads a page of the manifest, through a small cache."""
        return self._load_page

    @property
    def tables(self) -> tuple[str, ...]:
        return tuple(sorted(self._manifest.tables))

    def main_table(self) -> str:
        """Return the name of the default table: the only one, or "main"."""
        return self.tables[0] if len(self.tables) == 1 else "main"

    def table(self, name: str | None = None) -> Table:
        """Open a table. Without a name, open the only table or the one called "main"."""
        name, entry = pick_entry(TABLES, self._manifest, name)
        return Table(
            name,
            entry,
            self._shards,
            self._load_page,
            self._session.settings,
            schema_transform=self._ref_transform(name),
            on_lookahead=self._prefetcher(name),
        )

    @property
    def artifacts(self) -> tuple[str, ...]:
        return tuple(sorted(self._manifest.artifacts))

    def artifact(self, name: str | None = None) -> Artifact:
        """Open an artifact. Without a name, open the only one."""
        name, _ = pick_entry(ARTIFACTS, self._manifest, name)
        if name not in self._artifacts:
            self._artifacts[name] = ARTIFACTS.open(self._context, name)
        return self._artifacts[name]

    def bound_artifacts(self, table: str) -> dict[str, tuple[Artifact, str]]:
        """Open the artifacts bound to columns of a table, by column, each with its reference type."""
        return {
            binding.column: (self.artifact(binding.artifact), binding.ref_type)
            for binding in self._manifest.bindings
            if binding.table == table
        }

    def as_refs(self, rows: pa.Table | pa.RecordBatch, table: str | None = None) -> pa.Table:
        """Turn stored values back into references, in rows such as the result of an SQL query.

        Columns with the names of bound columns of `table` become references.
        """
        import pyarrow as pa

        if not isinstance(rows, pa.Table | pa.RecordBatch):
            raise BadInputError(f"as_refs takes an Arrow table or record batch, not {type(rows).__name__}")
        transform = self._ref_transform(table or self.main_table())
        whole = plain_rows(rows if isinstance(rows, pa.Table) else pa.Table.from_batches([rows]))
        return whole if transform is None else retype_table(whole, transform(whole.schema))

    def episodes(self, name: str | None = None) -> Episodes:
        """Open a set of episodes. Without a name, open the only one."""
        if name not in self._episodes:
            self._episodes[name] = payload_kind("episodes").open(self._context, name)
        return self._episodes[name]

    def tensors(
        self, name: str | None = None, *, sources: SourcePolicy | None = None, engine: Engine | None = None
    ) -> TensorSet:
        """Open a set of tensors. Without a name, open the only one. Reads its index, and no data.

        `sources` are tried in their order; this dataset is one of them, as a store.
        """
        from warpdata.kinds.tensors import PublishedTensors, open_published  # needs NumPy

        name, entry = pick_entry(TENSORS, self._manifest, name)
        place = PublishedTensors(self.id, name, entry, self._session, self._load_page)
        return open_published(place, sources=sources, engine=engine)

    def stream(
        self, table: str | None = None, *, collate: Collate = "numpy", **keywords: Unpack[RowKeywords]
    ) -> Stream:
        """Stream batches for training: the same global order on any number of ranks, with exact resume.

        `columns` and an SQL `filter` select from the table. `batch_size` is per rank, and `shard` is
        `(rank, world_size)` or "auto". `remainder` says what happens to samples left over at the end of an epoch:
        split evenly ("partial"), filled up ("pad") or left out ("drop"). References are read and decoded unless
        `decode` is False; `on_error="substitute"` replaces samples that cannot be decoded. `transform` receives
        each sample as a dict. `progress` writes a live line to a file, or to standard error.
        """
        from warpdata.datasets.streaming import StreamRequest, open_stream  # needs NumPy

        keywords.setdefault("prefetch", self._session.settings.prefetch)
        return open_stream(self, StreamRequest.parse(table or self.main_table(), keywords, collate=collate))

    def to_torch(
        self,
        batch_size: int | None = None,
        /,
        table: str | None = None,
        *,
        num_workers: int = 0,
        pin_memory: bool = False,
        **keywords: Unpack[RowKeywords],
    ) -> TorchLoader:
        """Stream batches of tensors from worker processes of a PyTorch loader. `shard` is "auto" by default."""
        from warpdata.datasets.streaming import StreamRequest, TorchLoader, open_stream, reopen_later

        if batch_size is not None:
            if "batch_size" in keywords:
                raise TypeError("to_torch() got two values for batch_size")
            keywords["batch_size"] = batch_size
        keywords.setdefault("shard", "auto")
        keywords.setdefault("prefetch", self._session.settings.prefetch)
        request = StreamRequest.parse(table or self.main_table(), keywords, collate="torch")
        stream, reopen = open_stream(self, request), reopen_later(self, request)
        return TorchLoader(stream, reopen, num_workers, pin_memory=pin_memory, may_fork=self.is_local)

    def info(self) -> DatasetInfo:
        """Describe the version from its manifest, without a read."""
        return describe(self._manifest, self._version_ref, self._session.reader.url)

    @property
    def io_stats(self) -> IOStats:
        """Counts of requests, bytes and cache hits of the session of this dataset."""
        return self._session.counters.snapshot()

    def warm(
        self,
        tables: Sequence[str] | None = None,
        artifacts: Sequence[str] | None = None,
        *,
        episodes: Sequence[str] | None = None,
        tensors: Sequence[str] | None = None,
        shards: slice | None = None,
        max_bytes: int | str | None = None,
        progress: Progress = silent,
    ) -> Warmed:
        """Fetch shards into the cache, so that later reads need no network. Without names, fetch everything.

        Also fetches the records that `history` reads.

        `shards` selects shards of each entry by number. `max_bytes` bounds the total size of the shards, as a number
        or as text: "200GB".
        """
        limit = None if max_bytes is None else parse_size(max_bytes)
        named = {"tables": tables, "artifacts": artifacts, "episodes": episodes, "tensors": tensors}
        wanted, skipped_bytes = choose_blobs(self._shards_of(named, shards), limit)
        counter = ProgressCounter(progress, "warm", sum(blob.byte_size for blob in wanted), len(wanted))
        done = warm_blobs(self._session, wanted, counter)
        if self._session.reader is not self._session.writer:
            self._session.catalog.fetch_history(self._version_ref)
        return replace(done, skipped_bytes=done.skipped_bytes + skipped_bytes)

    def _shards_of(self, named: Mapping[str, Sequence[str] | None], part: slice | None) -> Iterator[Blob]:
        """Yield blobs in the order of the names, an index before its shards. Without names, those of all entries."""
        is_everything = all(names is None for names in named.values())
        for section, names in named.items():
            for name in sorted(self._manifest.sections()[section]) if is_everything else names or ():
                _, entry = pick_entry(payload_kind(section), self._manifest, name)
                if section != "tables":
                    yield entry.index
                yield from self._part(entry.shards, part)

    def _part(self, shards: ShardList, part: slice | None) -> Iterator[Blob]:
        listed = (shard.blob for shard in iter_shards(shards, self._load_page))
        return listed if part is None else iter(list(listed)[part])

    def history(self, limit: int | None = None) -> list[Revision]:
        """Return the commits that led to this version, newest first."""
        return [_revision(entry) for entry in self._session.catalog.history(self._version_ref, limit)]

    def snapshot(self, label: str) -> Label:
        """Give this version a label, which never moves."""
        session = self._session
        return create_label(session.writer, self._version_ref, label, session.timestamp(), session.pause)

    def branch(self, name: str) -> Dataset:
        """Start a branch at this version and open it."""
        session = self._session
        create_branch(session.writer, self._version_ref, name, session.new_id(), session.pause)
        return open_dataset(session, Address(self.id, name))

    def blobs(self) -> Iterator[Blob]:
        """Yield every blob of this version, including pages of the manifest."""
        return kept_blobs(self._manifest, self._load_page)

    def diff(self, older: Dataset) -> VersionDiff:
        """Compare this version with an older one."""
        return compare(older.manifest, self._manifest, self._load_page)

    def _ref_transform(self, table: str) -> SchemaTransform | None:
        """Return the function that types bound columns as references, or None if the table has none."""
        if table not in self._ref_columns:
            bound = self.bound_artifacts(table)
            if not bound:
                return None
            from warpdata.datasets.ref_columns import RefColumns  # needs Arrow

            self._ref_columns[table] = RefColumns(bound)
        return self._ref_columns[table]

    def _prefetcher(self, table: str) -> LookaheadHook | None:
        """Return the hook that prefetches the shards of referenced members. Only mode "hybrid" reads ahead."""
        columns = {column: artifact for column, (artifact, _) in self.bound_artifacts(table).items()}
        reader = self._session.media_reader
        if not columns or self._session.mode is not Mode.HYBRID or not isinstance(reader, CachedReader):
            return None
        return ShardPrefetcher(columns, reader)


@check_arguments
def dataset(
    address: str, *, store: str | None = None, mode: str | None = None, settings: Settings | None = None
) -> Dataset:
    """Open `workspace/name`, optionally with `@version`, `@label` or `@branch`. Downloads no data.

    `mode` controls the cache of a remote store: "auto" caches what is read often, "remote" writes nothing to disk,
    "hybrid" reads far ahead, and "local" uses no network.
    """
    return open_dataset(connect(store, settings, mode=mode), parse_address(address))


def open_dataset(session: Session, address: Address) -> Dataset:
    """Open a dataset over an existing session, with at most three small reads."""
    return Dataset(session, *session.catalog.open(address))


@check_arguments
def mix(streams: Mapping[Stream, float], *, seed: int = 0, stop: Stop = "first_exhausted") -> Stream:
    """Mix streams over tables by weight, in one deterministic order that can be resumed.

    Batch size, ranks and collation are those of the first stream. An epoch ends when one stream runs out
    ("first_exhausted"), or when all streams have returned every sample ("all_exhausted").
    """
    from warpdata.datasets.streaming import mix_streams

    return mix_streams(streams, seed, stop)


@check_arguments
def diff(older: str, newer: str, *, store: str | None = None, settings: Settings | None = None) -> VersionDiff:
    """Compare two addresses, usually of one dataset."""
    session = connect(store, settings)
    return open_dataset(session, parse_address(newer)).diff(open_dataset(session, parse_address(older)))


@check_arguments
def list_datasets(
    workspace: str | None = None, *, store: str | None = None, settings: Settings | None = None
) -> list[str]:
    """List published datasets. Only directories are listed. `workspace` may end in a slash."""
    return connect(store, settings).catalog.datasets(workspace.rstrip("/") if workspace else None)


@check_arguments
def find_commit(
    dataset_id: str, txn_id: str, *, branch: str = MAIN, store: str | None = None, settings: Settings | None = None
) -> Revision | None:
    """Find the commit of a publish that ended in `CommitUnknownError`. None if the branch does not have it.

    None is final once the branch has a later commit; until then a delayed request may still create it.
    """
    session = connect(store, settings)
    found = find_transaction(session.writer, check_dataset_id(dataset_id), branch, txn_id)
    return None if found is None else _revision(found)


def _revision(entry: HistoryEntry) -> Revision:
    commit = entry.commit
    return Revision(
        commit=entry.commit_id,
        version=commit.version,
        parents=commit.parents,
        operation=commit.operation,
        author=commit.author,
        message=commit.message,
        time=datetime.fromisoformat(commit.time),
        txn_id=commit.txn_id,
    )
