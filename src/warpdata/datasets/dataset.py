"""The `Dataset` façade: every method is a few lines over the layer that does the work."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, Unpack

from warpdata.datasets.artifacts import draft_references
from warpdata.datasets.cluster_access import ClusterAccess
from warpdata.datasets.index_access import IndexAccess
from warpdata.datasets.info import DatasetInfo, Revision, describe, to_revision
from warpdata.datasets.prefetch import ShardPrefetcher, Warmed, choose_blobs, list_blobs, warm_blobs
from warpdata.datasets.refs import Restored, RestoreRequest, check_uncollected, refuse_offline, restore
from warpdata.datasets.search import DatasetSearch
from warpdata.datasets.torch_access import TorchAccess
from warpdata.errors import BadInputError
from warpdata.formats.parquet import ShardOpener, plain_rows
from warpdata.kinds import VersionContext, entries_by_kind, payload_kind, pick_entry
from warpdata.kinds.artifacts import ARTIFACTS, Artifact
from warpdata.kinds.indexes import TableIndexes
from warpdata.kinds.tables import TABLES, LookaheadHook, SchemaTransform, Table, retype_table
from warpdata.kinds.tensors import TENSORS
from warpdata.primitives.arguments import check_arguments
from warpdata.primitives.hashing import Blob
from warpdata.primitives.progress import Progress, ProgressCounter, silent
from warpdata.primitives.reprs import html_table, short_repr
from warpdata.primitives.sizes import parse_size
from warpdata.query import Filter
from warpdata.repository.catalog import (
    MAIN,
    Address,
    VersionLabel,
    VersionRef,
    check_ref_name,
    create_branch,
    create_label,
    parse_address,
)
from warpdata.repository.manifest import LoadPage, Manifest, VersionDiff, compare, kept_blobs
from warpdata.session import Session, connect
from warpdata.settings import Settings
from warpdata.storage import IOStats
from warpdata.storage.cache import CachedReader, Mode

if TYPE_CHECKING:
    import pyarrow as pa

    from warpdata.edit import Edit, MergePolicy, NewColumns, SampleDiff
    from warpdata.formats.tensors import Engine, SourcePolicy, TensorSet
    from warpdata.kinds.episodes import Episodes
    from warpdata.kinds.tensors import TensorDiff
    from warpdata.streaming import Collate, RowKeywords, Stream, StreamKeywords, TorchLoader

__all__ = ["Dataset", "dataset", "open_dataset"]

_CACHED_PAGES = 64
_ENTRY_COLUMNS = ("kind", "name", "items", "bytes")


@check_arguments
class Dataset(IndexAccess, DatasetSearch, TorchAccess, ClusterAccess):
    """One immutable version of a dataset. Open the name again to see newer versions."""

    def __init__(self, session: Session, version_ref: VersionRef, manifest: Manifest) -> None:
        session = session.at_generations(manifest.generations)
        self._session = session
        self._version_ref = version_ref
        self._manifest = manifest
        self._artifacts: dict[str, Artifact] = {}
        self._episodes: dict[str | None, Episodes] = {}
        self._ref_columns: dict[str, SchemaTransform] = {}
        self._shards = ShardOpener(session.reader)
        self._tables: dict[str, Table] = {}
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
        if name not in self._tables:
            self._tables[name] = Table(
                name,
                entry,
                self._shards,
                self._load_page,
                self._session.settings,
                schema_transform=self._ref_transform(name),
                on_lookahead=self._prefetcher(name),
                indexes=(TableIndexes(self._context, name) or None) if self._manifest.indexes else None,
            )
        return self._tables[name]

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

    def sample(self, count: int, *, by: str | None = None, seed: int = 0, table: str | None = None) -> Table:
        """Return a table of `count` random rows, uniform or stratified by a column; see `Table.sample`.

        `stream` accepts it in place of the name of a table. Sample a filtered table with `table().filter(…).sample(…)`.
        """
        return self.table(table).sample(count, by=by, seed=seed)

    def stream(
        self, table: str | Table | None = None, *, collate: Collate = "numpy", **keywords: Unpack[RowKeywords]
    ) -> Stream:
        """Stream batches for training: the same global order on any number of ranks, with exact resume.

        `table` is a name, or a `Table` of this dataset with columns, filters or a sample of its rows. `columns` and
        `filter`, SQL text or a `Filter`, select from it. `batch_size` is per rank, and `shard` is
        `(rank, world_size)` or "auto". `remainder` says what happens to samples left over at the end of an epoch:
        split evenly ("partial"), filled up ("pad") or left out ("drop"). References are read and decoded unless
        `decode` is False; `on_error="substitute"` replaces samples that cannot be decoded. `transform` receives
        each sample as a dict. `resize` scales images to (height, width), or to a shorter side of this length, as RGB;
        a mapping gives a size for each column. `progress` writes a live line to a file, or to standard error.
        """
        from warpdata.datasets.streaming import StreamRequest, open_stream  # needs NumPy

        keywords.setdefault("prefetch", self._session.settings.prefetch)
        return open_stream(self, StreamRequest.parse(self, table, keywords, collate=collate))

    def iter(
        self,
        filter: str | Filter | None = None,  # noqa: A002 - as in stream
        **keywords: Unpack[StreamKeywords],
    ) -> Iterator[dict[str, Any]]:
        """Yield an epoch as dicts of columns: media as lists of bytes, texts as lists, numbers and vectors as arrays.

        The main table in the order of `stream`, in batches of 64 by default.
        """
        from warpdata.datasets.streaming import iter_batches  # needs NumPy

        keywords.setdefault("batch_size", 64)
        return iter_batches(self, filter, keywords)

    def to_torch(
        self,
        batch_size: int | None = None,
        /,
        table: str | Table | None = None,
        *,
        num_workers: int | Literal["auto"] = 0,
        pin_memory: bool = False,
        image_device: str | None = None,
        **keywords: Unpack[RowKeywords],
    ) -> TorchLoader:
        """Stream batches of tensors from worker processes of a PyTorch loader. `shard` is "auto" by default.

        `num_workers="auto"` starts workers where more cores are usable than threads keep busy, and memory allows.
        `image_device="cuda"` decodes JPEGs on that device, with nvJPEG.
        """
        from warpdata.datasets.streaming import StreamRequest, TorchLoader, open_stream, reopen_later

        if batch_size is not None:
            if "batch_size" in keywords:
                raise TypeError("to_torch() got two values for batch_size")
            keywords["batch_size"] = batch_size
        keywords.setdefault("shard", "auto")
        keywords.setdefault("prefetch", self._session.settings.prefetch)
        request = StreamRequest.parse(self, table, keywords, collate="torch").decoding_on(image_device)
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
        indexes: Sequence[str] | None = None,
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
        named = {"tables": tables, "artifacts": artifacts, "episodes": episodes, "tensors": tensors, "indexes": indexes}
        wanted, skipped_bytes = choose_blobs(list_blobs(self._manifest, self._load_page, named, shards), limit)
        counter = ProgressCounter(progress, "warm", sum(blob.byte_size for blob in wanted), len(wanted))
        done = warm_blobs(self._session, wanted, counter)
        if not self._session.reads_directly:
            self._session.catalog.fetch_history(self._version_ref)
        return replace(done, skipped_bytes=done.skipped_bytes + skipped_bytes)

    def history(self, limit: int | None = None) -> list[Revision]:
        """Return the commits that led to this version, newest first."""
        return [to_revision(entry) for entry in self._session.catalog.history(self._version_ref, limit)]

    def snapshot(self, label: str) -> VersionLabel:
        """Give this version a label, which never moves."""
        session = self._session
        refuse_offline(session, self.id)
        with session.lease(f"label {self.id}@{label}") as lease:
            check_uncollected(session, self._version_ref, self._manifest, lease)
            return create_label(
                session.writer, self._version_ref, label, session.timestamp(), session.pause, check_lease=lease.check
            )

    def branch(self, name: str) -> Dataset:
        """Start a branch at this version and open it."""
        session = self._session
        refuse_offline(session, self.id)
        with session.lease(f"branch {self.id}@{name}") as lease:
            check_uncollected(session, self._version_ref, self._manifest, lease)
            create_branch(
                session.writer, self._version_ref, name, session.new_id(), session.pause, check_lease=lease.check
            )
        return self._at_branch(name)

    def edit(
        self,
        message: str = "",
        *,
        branch: str | None = None,
        author: str | None = None,
        key: str | None = None,
        progress: Progress = silent,
        new_columns: NewColumns = "refuse",
    ) -> Edit:
        """Begin an edit of this version: `with ds.edit("relabel") as e: …` commits once at the end, or not at all.

        The branch is the one that the dataset was opened by. If it has moved on, the edit is merged into its head.
        With a `key`, the edit is committed at most once, also if the program is started again. If another commit adds
        a column meanwhile, appended rows have no value for it: "refuse" is a `ConflictError`, "null" stores nulls.
        """
        from warpdata.edit import Edit, EditOptions

        author = author or self._session.settings.author
        options = EditOptions(message, author, self._target_branch(branch), key, progress, new_columns=new_columns)
        return Edit(self._context, options, draft_references)

    def merge(
        self,
        source: str | Dataset,
        *,
        policy: MergePolicy = "fail",
        branch: str | None = None,
        message: str = "",
        author: str | None = None,
        progress: Progress = silent,
    ) -> Dataset:
        """Merge the changes of another branch or label into this branch, and open the result.

        Samples are merged by sample and column. `policy` says what happens where both sides changed the same value:
        "fail" lists all conflicts in a `MergeConflictError`, "ours" keeps the values of this branch, "theirs" takes
        those of the source, and a function receives each `MergeConflict` and returns the row to keep, or None.
        """
        from warpdata.edit import MergeRequest, merge_branch

        target = self._target_branch(branch)
        other = source if isinstance(source, Dataset) else open_dataset(self._session, Address(self.id, source))
        if other.id != self.id:
            raise BadInputError(f"{other.id} cannot be merged into {self.id}", hint="Merge branches of one dataset.")
        text = message or f"merge {other.version_ref.branch or other.version[:12]}"
        author = author or self._session.settings.author
        request = MergeRequest(other.version_ref, target, text, author, policy, progress)
        merge_branch(self._session, request, self._ref_transform)
        return self._at_branch(target)

    def _target_branch(self, branch: str | None) -> str:
        """Return the branch that a change of this dataset goes to."""
        target = branch or self._version_ref.branch
        if target is None:
            raise BadInputError(
                f"{self.id} was opened by a version or label, which cannot be changed",
                hint="Pass branch='main', or another branch, to commit the change there.",
            )
        return check_ref_name(target, "branch")

    def _at_branch(self, branch: str) -> Dataset:
        """Open the head of a branch of this dataset, in the same session."""
        return open_dataset(self._session, Address(self.id, branch))

    def restore(
        self,
        ref: str | None = None,
        *,
        branch: str | None = None,
        expected_version: str | None = None,
        message: str | None = None,
        author: str | None = None,
    ) -> Restored:
        """Make an earlier version the head of a branch, as a new commit. Without `ref`, restore this version.

        The branch is the one that this dataset was opened by, else `main`. If the branch has another version than this
        dataset, or than `expected_version`, it is a `ConflictError`: another writer was first. A dataset that was
        opened by a version or label expects the head at the time of the call. A removed dataset comes back.
        """
        seen = self.version if branch in (None, self._version_ref.branch) and self._version_ref.branch else None
        request = RestoreRequest(
            address=parse_address(f"{self.id}@{self.version if ref is None else ref}"),
            branch=branch or self._version_ref.branch or MAIN,
            expected_version=expected_version or seen,
            message=message,
            author=author,
        )
        return restore(self._session, request)

    def blobs(self) -> Iterator[Blob]:
        """Yield every blob of this version, including pages of the manifest."""
        return kept_blobs(self._manifest, self._load_page)

    def diff_samples(self, older: Dataset) -> SampleDiff:
        """Compare the samples of this version with those of an older one, by sample id."""
        from warpdata.edit import SampleDiff

        names = sorted({*self.tables, *older.tables})
        return SampleDiff({name: (older.find_table(name), self.find_table(name)) for name in names})

    def diff_tensors(self, older: Dataset, name: str | None = None, *, older_name: str | None = None) -> TensorDiff:
        """Compare a set of tensors with that of an older version, by hashes alone. Without a name, the only set."""
        from warpdata.kinds.tensors import diff_tensors, open_stored  # needs NumPy

        before = open_stored(older.context, name if older_name is None else older_name)
        return diff_tensors(before, open_stored(self.context, name))

    def find_table(self, name: str) -> Table | None:
        """Open a table, with references as they are stored; None if the version has no table of this name."""
        return self.table(name).raw() if name in self._manifest.tables else None

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
