"""One thing to open. A façade: every method is a few lines over the layer that does the work."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

from warpdata.datasets.artifacts import for_stream
from warpdata.datasets.info import DatasetInfo, describe
from warpdata.datasets.prefetch import Foresight
from warpdata.datasets.streams import Streams
from warpdata.datasets.warm import Warmed, choose, warm_blobs
from warpdata.formats.parquet import ShardOpener
from warpdata.kinds import VersionContext, payload_kind, pick_entry
from warpdata.kinds.artifacts import ARTIFACTS, Artifact
from warpdata.kinds.tables import TABLES, LookaheadHook, SchemaTransform, Table
from warpdata.kinds.tensors import TENSORS
from warpdata.primitives.hashing import Blob
from warpdata.primitives.progress import Progress, ProgressCounter, silent
from warpdata.primitives.sizes import parse_size
from warpdata.query import retyped_table
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
from warpdata.session import Session, VersionAddress, connect
from warpdata.settings import Settings
from warpdata.storage.cache import CachedReader, IOStats, Mode

if TYPE_CHECKING:
    import pyarrow as pa

    from warpdata.datasets.stream_request import StreamAddress, StreamRequest
    from warpdata.formats.tensors import Engine, SourcePolicy, Tensors
    from warpdata.kinds.episodes import Episodes
    from warpdata.streaming import OnSelection, OpenStream, Stop, Stream, StreamOptions, Traffic

__all__ = [
    "Dataset",
    "Revision",
    "dataset",
    "diff",
    "find_commit",
    "list_datasets",
    "mix",
    "open_dataset",
]

_REMEMBERED_PAGES = 64


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


class Dataset(Streams):
    """One version of a dataset. It never changes; open the name again to see newer ones."""

    def __init__(self, connection: Session, resolved: VersionRef, manifest: Manifest) -> None:
        self._session = connection
        self._resolved = resolved
        self._manifest = manifest
        self._artifacts: dict[str, Artifact] = {}
        self._episodes: dict[str | None, Episodes] = {}
        self._presentations: dict[str, SchemaTransform] = {}
        self._shards = ShardOpener(connection.reader)
        self._load_page: LoadPage = functools.lru_cache(maxsize=_REMEMBERED_PAGES)(connection.catalog.load_page)
        self._context = VersionContext(connection, resolved, manifest, self._load_page)

    def __repr__(self) -> str:
        return f"Dataset({self.id!r}, version={self.version[:12]!r}, store={self._session.reader.url!r})"

    @property
    def session(self) -> Session:
        """The store it was opened from."""
        return self._session

    @property
    def is_local(self) -> bool:
        """Whether its store is a folder of this machine."""
        return self._session.is_local

    @property
    def id(self) -> str:
        return self._resolved.dataset_id

    @property
    def version(self) -> str:
        """64 hex digits: the hash of the manifest."""
        return self._resolved.version

    @property
    def manifest(self) -> Manifest:
        return self._manifest

    @property
    def tables(self) -> tuple[str, ...]:
        return tuple(sorted(self._manifest.tables))

    def table(self, name: str | None = None) -> Table:
        """A table by name; without one, the only table or the one called "main"."""
        name, entry = pick_entry(TABLES, self._manifest, name)
        return Table(
            name,
            entry,
            self._shards,
            self._load_page,
            self._session.settings,
            present=self._present(name),
            on_lookahead=self._on_lookahead(name),
        )

    @property
    def artifacts(self) -> tuple[str, ...]:
        return tuple(sorted(self._manifest.artifacts))

    def artifact(self, name: str | None = None) -> Artifact:
        """An artifact by name; without one, the only one there is."""
        name, _ = pick_entry(ARTIFACTS, self._manifest, name)
        if name not in self._artifacts:
            self._artifacts[name] = ARTIFACTS.open(self._context, name)
        return self._artifacts[name]

    def episodes(self, name: str | None = None) -> Episodes:
        """A set of episodes by name; without one, the only one there is."""
        if name not in self._episodes:
            self._episodes[name] = payload_kind("episodes").open(self._context, name)
        return self._episodes[name]

    def tensors(
        self, name: str | None = None, *, sources: SourcePolicy | None = None, engine: Engine | None = None
    ) -> Tensors:
        """A set of tensors by name; without one, the only one there is. Reads its index, and no data.

        `sources` are asked in their order, with this dataset as a store among them.
        """
        from warpdata.kinds.tensors import TensorsPlace, open_published  # needs numpy

        name, entry = pick_entry(TENSORS, self._manifest, name)
        place = TensorsPlace(self.id, name, entry, self._session, self._load_page)
        return open_published(place, sources=sources, engine=engine)

    def as_refs(self, rows: pa.Table | pa.RecordBatch, table: str | None = None) -> pa.Table:
        """References for rows that lost them on their way, such as the result of an SQL query.

        Columns with the names of bound columns of `table` become references again.
        """
        import pyarrow as pa

        present = self._present(table or self.main_table())
        whole = rows if isinstance(rows, pa.Table) else pa.Table.from_batches([rows])
        return whole if present is None else retyped_table(whole, present(whole.schema))

    def main_table(self) -> str:
        """The table that is meant where none is named."""
        return self.tables[0] if len(self.tables) == 1 else "main"

    def _present(self, table: str) -> SchemaTransform | None:
        """How a table's bound columns become references; None where it has none."""
        if table not in self._presentations:
            present = _presentation(self._bound(table))
            if present is None:
                return None
            self._presentations[table] = present
        return self._presentations[table]

    def _on_lookahead(self, table: str) -> LookaheadHook | None:
        """What fetches the shards that coming rows refer to; only where reading far ahead was asked for."""
        columns = {column: artifact for column, (artifact, _) in self._bound(table).items()}
        reader = self._session.media_reader
        if not columns or self._session.mode is not Mode.HYBRID or not isinstance(reader, CachedReader):
            return None
        return Foresight(columns, reader)

    def _bound(self, table: str) -> dict[str, tuple[Artifact, str]]:
        return {
            binding.column: (self.artifact(binding.artifact), binding.ref_type)
            for binding in self._manifest.bindings
            if binding.table == table
        }

    def info(self) -> DatasetInfo:
        return describe(self._manifest, self._resolved, self._session.reader.url)

    def open_stream(self, request: StreamRequest, options: StreamOptions) -> Stream:
        """As `stream`, from values that were checked."""
        from warpdata.datasets.stream_request import Outside, open_stream  # needs numpy

        bound, on_selection = self._bound_for(request)
        artifacts = {column: artifact for column, (artifact, _) in bound.items()}
        table = replace(self.table(request.table), present=_presentation(bound))
        outside = Outside(
            self._session.timer,
            self._traffic,
            lambda version: self._at(version).open_stream(request, options),
            on_selection,
        )
        return open_stream(table, self._resolved, artifacts, request, options, outside)

    def _bound_for(self, request: StreamRequest) -> tuple[dict[str, tuple[Artifact, str]], OnSelection | None]:
        """As `_bound`, by a reader that suits the stream; and who is to hear how much a filter keeps."""
        bound = self._bound(request.table)
        used = {a.name: a for name, (a, _) in bound.items() if request.columns is None or name in request.columns}
        session, on_selection = for_stream(self._session, used.values(), is_filtered=request.filter is not None)
        if session is self._session:
            return bound, on_selection
        context = replace(self._context, session=session)
        opened = functools.cache(lambda name: ARTIFACTS.open(context, name))
        return {column: (opened(artifact.name), kind) for column, (artifact, kind) in bound.items()}, on_selection

    def _traffic(self) -> Traffic:
        from warpdata.datasets.stream_request import Traffic

        counts = self.io_stats
        return Traffic(counts.requests, counts.bytes_fetched, counts.hits, counts.misses)

    def _at(self, version: str) -> Dataset:
        return open_dataset(self._session, Address(self.id, version))

    def reopening(self, request: StreamRequest, options: StreamOptions) -> OpenStream:
        """As `open_stream`, but later, and perhaps in another process."""
        from warpdata.datasets.stream_request import StreamAddress

        where = VersionAddress.of(self._session, self._resolved)
        return functools.partial(reopen_stream, StreamAddress(where, request, options))

    @property
    def io_stats(self) -> IOStats:
        """What this dataset's connection asked the store for, and what the cache spared it, so far."""
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
        """Bring shards to this machine, so that reading them later asks nobody. Names nothing: everything.

        `shards` takes some of each one's files, by number. `max_bytes` is a bound on what is
        looked at, as a number or as text: "200GB".
        """
        limit = None if max_bytes is None else parse_size(max_bytes)
        named = {"tables": tables, "artifacts": artifacts, "episodes": episodes, "tensors": tensors}
        wanted, left = choose(self._shards_of(named, shards), limit)
        tally = ProgressCounter(progress, "warm", sum(blob.byte_size for blob in wanted), len(wanted))
        done = warm_blobs(self._session, wanted, tally)
        return replace(done, skipped_bytes=done.skipped_bytes + left)

    def _shards_of(self, named: Mapping[str, Sequence[str] | None], part: slice | None) -> Iterator[Blob]:
        """Yield blobs in the order of the names, an index before its shards. Without names, those of all entries."""
        everything = all(names is None for names in named.values())
        for section, names in named.items():
            for name in sorted(self._manifest.sections()[section]) if everything else names or ():
                _, entry = pick_entry(payload_kind(section), self._manifest, name)
                if section != "tables":
                    yield entry.index
                yield from self._part(entry.shards, part)

    def _part(self, shards: ShardList, part: slice | None) -> Iterator[Blob]:
        listed = (shard.blob for shard in iter_shards(shards, self._load_page))
        return listed if part is None else iter(list(listed)[part])

    def history(self, limit: int | None = None) -> list[Revision]:
        """One entry per commit, newest first."""
        return [_revision(entry) for entry in self._session.catalog.history(self._resolved, limit)]

    def snapshot(self, label: str) -> Label:
        """Give this version a name that never moves."""
        session = self._session
        return create_label(session.writer, self._resolved, label, session.timestamp(), session.pause)

    def branch(self, name: str) -> Dataset:
        """Start a branch at this version and open it."""
        session = self._session
        create_branch(session.writer, self._resolved, name, session.new_id(), session.pause)
        return open_dataset(session, Address(self.id, name))

    def blobs(self) -> Iterator[Blob]:
        """Every blob this version needs, pages included."""
        return kept_blobs(self._manifest, self._load_page)

    def diff(self, older: Dataset) -> VersionDiff:
        """What changed from `older` to this version."""
        return compare(older.manifest, self._manifest, self._load_page)


def _presentation(bound: Mapping[str, tuple[Artifact, str]]) -> SchemaTransform | None:
    if not bound:
        return None
    from warpdata.datasets.ref_columns import RefColumns  # needs Arrow

    return RefColumns(bound)


def dataset(
    address: str, *, store: str | None = None, mode: str | None = None, settings: Settings | None = None
) -> Dataset:
    """Open `workspace/name`, optionally `@version`, `@label` or `@branch`; usable at once, nothing is pulled.

    `mode` says where the bytes of a remote store may come from: "auto" keeps what is read often, "remote"
    writes nothing to disk, "hybrid" reads far ahead, "local" asks no network at all.
    """
    return open_dataset(connect(store, settings, mode=mode), parse_address(address))


def open_dataset(connection: Session, address: Address) -> Dataset:
    """As `dataset`, over a connection that is already there; three small reads at most."""
    return Dataset(connection, *connection.catalog.open(address))


def reopen_stream(address: StreamAddress, version: str | None = None) -> Stream:
    """The stream that another process described, or the same of another version."""
    session, resolved = address.where.open(version)
    return Dataset(session, resolved, session.catalog.manifest(resolved)).open_stream(address.request, address.options)


def mix(streams: Mapping[Stream, float], *, seed: int = 0, stop: Stop = "first_exhausted") -> Stream:
    """Several streams by weight, in one deterministic order that can be resumed like any other.

    Batch size, ranks and collation are those of the first stream. The mixture ends when one of them would be
    asked for more than it has ("first_exhausted"), or when all have given everything ("all_exhausted").
    """
    from warpdata.datasets.stream_request import mix_streams

    return mix_streams(streams, seed, stop)


def diff(older: str, newer: str, *, store: str | None = None, settings: Settings | None = None) -> VersionDiff:
    """What changed between two addresses, usually of one dataset."""
    session = connect(store, settings)
    return open_dataset(session, parse_address(newer)).diff(open_dataset(session, parse_address(older)))


def list_datasets(
    workspace: str | None = None, *, store: str | None = None, settings: Settings | None = None
) -> list[str]:
    """Names of published datasets, by listing folders only. `workspace` may end in a slash."""
    return connect(store, settings).catalog.datasets(workspace.rstrip("/") if workspace else None)


def find_commit(
    dataset_id: str, txn_id: str, *, branch: str = MAIN, store: str | None = None, settings: Settings | None = None
) -> Revision | None:
    """What became of a publish that ended in `CommitUnknownError`: its commit, or None if it is not there.

    None is final once a later commit stands on the branch; until then a delayed request may still land.
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
