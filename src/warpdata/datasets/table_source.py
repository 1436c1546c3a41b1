"""The rows of a table as the source of a stream, and the rows that remain of an epoch on another version.

The shuffle and the size of a sample come from the manifest, without a read of the data. Implements "Choice of the
shuffle" and "Going on with another version" of docs/specs/streaming.md.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from warpdata.datasets.ref_columns import RefType
from warpdata.errors import BadInputError, WarpError
from warpdata.formats.parquet import SMALL_SHARD_BYTES
from warpdata.kinds.artifacts import Artifact, FutureBytes, read_ahead
from warpdata.kinds.tables import Table, TakeRows
from warpdata.limits import GIB, MAX_SHUFFLE_BLOCKS, MIB
from warpdata.primitives.cached_property import cached_property
from warpdata.primitives.hashing import sha256_hex
from warpdata.query import conjunction
from warpdata.repository.manifest import iter_located
from warpdata.repository.rows import RowSelection
from warpdata.streaming import (
    Columns,
    ConsumedSegment,
    LoadedRows,
    LoadExecutors,
    OnSelectivity,
    OwnedPositions,
    PendingBytes,
    RebasedIdentity,
    SampleLocation,
    SampleReader,
    Shuffle,
    ShuffleBuffer,
    StreamOptions,
    TableIdentity,
    VersionedSource,
    text_errors,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

__all__ = ["TableSource", "choose_shuffle", "open_table_source"]

_BLOCK_BYTES = 1 * MIB
_MAX_BLOCK_ROWS = 8192
_WINDOW_BYTES = 256 * MIB
_MIN_BLOCKS = 32
_MAX_WINDOW_BYTES = 1 * GIB
_MAX_BLOCKS = MAX_SHUFFLE_BLOCKS // 4
_OPENING_BLOCKS = 4
_CACHED_ROW_BYTES = 256 * MIB

_ConsumedRows: TypeAlias = list[tuple[Table, "NDArray[np.int64]"]]
"""The rows that were consumed of each segment, ascending, with their table."""


@dataclass(frozen=True)
class TableSource(VersionedSource):
    """The rows of one table that its filters keep."""

    table: Table = field(kw_only=True)
    on_selectivity: OnSelectivity | None = field(default=None, kw_only=True, compare=False)

    @cached_property
    def selection(self) -> RowSelection:
        """The rows that the filters keep. Scans the columns of the filters."""
        rows = self.table.select_rows()
        if self.on_selectivity is not None:
            self.on_selectivity(len(rows) / max(self.table.entry.shards.row_count, 1))
        return rows

    @cached_property
    def identity(self) -> TableIdentity:
        return self._table_identity(len(self.selection))

    def _table_identity(self, sample_count: int) -> TableIdentity:
        return TableIdentity(
            dataset_id=self.dataset_id,
            version=self.version,
            table=self.table.name,
            rows="" if self.table.rows is None else sha256_hex(self.table.rows.numbers.astype("<i8").tobytes()),
            filter=conjunction(self.table.filters).sql if self.table.filters else "",
            sample_count=sample_count,
            seed=self.seed,
            shuffle=self.shuffle,
        )

    @property
    def known_count(self) -> int | None:
        is_known = not self.table.filters or "identity" in self.__dict__
        return self.identity.sample_count if is_known else None

    @property
    def max_samples(self) -> int:
        return self.table.unfiltered_count

    @property
    def media_bytes(self) -> float:
        return self.sample_bytes - self.row_bytes

    @property
    def cache_bytes(self) -> int:
        return min(_CACHED_ROW_BYTES, self.table.entry.shards.data_bytes)

    @property
    def table_requests(self) -> int:
        """One request per small shard; for others one for the footer and one per row group."""
        shards = self.table.entry.shards
        if shards.data_bytes <= SMALL_SHARD_BYTES * shards.shard_count:
            return shards.shard_count
        return shards.shard_count + max(shards.shard_count, -(-shards.row_count // max(self.table.group_rows(), 1)))

    @property
    def column_names(self) -> list[str]:
        names: list[str] = self.table.schema().names
        return names

    def open(self, epoch: int, owned: OwnedPositions, *, with_media: bool) -> SampleReader:
        executors = LoadExecutors()
        return _RowReader(self.shuffle_buffer(epoch, executors, owned, with_media=with_media), executors)

    def shuffle_buffer(
        self, epoch: int, executors: LoadExecutors, owned: OwnedPositions, *, with_media: bool
    ) -> ShuffleBuffer:
        order = self.identity.order(epoch)
        load = functools.partial(self._load, media=executors.media if with_media else None)
        sample_bytes = self.sample_bytes if with_media else self.row_bytes
        return ShuffleBuffer(order, load, executors.rows, owned, sample_bytes=sample_bytes)

    def rows_at(self, start: int, stop: int, epoch: int) -> NDArray[np.int64]:
        """Return the rows of the table at positions [start, stop)."""
        return self._rows(self.identity.order(epoch).samples(start, stop))

    def locate(self, start: int, stop: int, epoch: int) -> list[SampleLocation]:
        return [(0, row) for row in self.rows_at(start, stop, epoch).tolist()]

    def position_of(self, location: SampleLocation, epoch: int) -> int:
        row = location[1]
        if row not in self.selection:
            raise BadInputError(f"row {row} is not kept by the filter")
        return self.identity.order(epoch).position_of(self.selection.rank(row))

    def rebased(
        self, epoch: int, consumed: Sequence[ConsumedSegment], source_at: Callable[[str], VersionedSource]
    ) -> VersionedSource:
        rows: _ConsumedRows = []
        for number, segment in enumerate(consumed):
            base = source_at(segment.version)
            assert isinstance(base, TableSource), "the same source at another version"
            base = TableSource(**{**_fields(base), "shuffle": segment.shuffle})
            before = _without(base, rows, epoch, consumed[:number]) if number else base
            if segment.samples_done > before.identity.sample_count:
                raise BadInputError(
                    f"the token has {segment.samples_done} samples done of version {segment.version[:12]}, "
                    f"which has {before.identity.sample_count}"
                )
            rows.append((base.table, np.sort(before.rows_at(0, segment.samples_done, epoch))))
        return _without(self, rows, epoch, consumed)

    @cached_property
    def _take_rows(self) -> TakeRows:
        return self.table.taker(_CACHED_ROW_BYTES)

    def _load(self, samples: NDArray[np.int64], needed: NDArray[np.int64], *, media: Executor | None) -> LoadedRows:
        rows = self._take_rows(self._rows(samples)).combine_chunks()
        return LoadedRows(rows, {} if media is None else _fetch_media(rows, needed, media))

    def _rows(self, samples: NDArray[np.int64]) -> NDArray[np.int64]:
        return self.selection.select(samples)


class _RowReader:
    def __init__(self, buffer: ShuffleBuffer, executors: LoadExecutors) -> None:
        self._buffer = buffer
        self._executors = executors

    def rows(self, start: int, stop: int) -> pa.Table:
        return self._buffer.samples(start, stop).rows

    def columns(self, start: int, stop: int) -> Columns:
        return Columns.of(self._buffer.samples(start, stop))

    def advance(self, position: int) -> None:
        self._buffer.advance(position)

    def close(self) -> None:
        self._executors.close()


@dataclass(frozen=True)
class _RebasedSource(TableSource):
    """The rows of a version that remain of an epoch begun on other versions.

    A row is identified by its sample id if one of the versions was edited, else by its shard and its position there.
    If a table has a shard several times, as many of its copies of a row are left out as were consumed.
    """

    epoch: int = field(kw_only=True)
    consumed_rows: RowSelection = field(kw_only=True, compare=False)

    @cached_property
    def selection(self) -> RowSelection:
        return self.table.select_rows() - self.consumed_rows

    @cached_property
    def identity(self) -> RebasedIdentity:
        plain = self._table_identity(len(self.selection))
        return RebasedIdentity(
            **{known.name: getattr(plain, known.name) for known in fields(TableIdentity)},
            epoch=self.epoch,
            consumed=self.consumed,
        )


def _without(
    source: TableSource, rows: _ConsumedRows, epoch: int, consumed: Sequence[ConsumedSegment]
) -> _RebasedSource:
    changes = {"consumed": tuple(consumed), "epoch": epoch, "consumed_rows": _find_rows(rows, source.table)}
    return _RebasedSource(**{**_fields(source), **changes})


def _fields(source: TableSource) -> dict[str, Any]:
    return {known.name: getattr(source, known.name) for known in fields(TableSource)}


def open_table_source(
    table: Table,
    version: tuple[str, str],
    artifacts: Mapping[str, Artifact],
    options: StreamOptions,
    on_selectivity: OnSelectivity | None,
) -> TableSource:
    """Return the source of a table. `version` is (dataset id, version); `artifacts` are those of its columns."""
    shards = table.entry.shards
    row_bytes = shards.data_bytes / max(shards.stored_count, 1)
    media_bytes = sum(
        artifact.entry.shards.data_bytes / max(len(artifact), 1)
        for column, artifact in artifacts.items()
        if table.columns is None or column in table.columns
    )
    shuffle = options.shuffle if isinstance(options.shuffle, Shuffle) else None
    if options.shuffle is True:
        shuffle = choose_shuffle(table, row_bytes + media_bytes, row_bytes)
    return TableSource(
        *version,
        row_bytes + media_bytes,
        row_bytes,
        shuffle,
        options.seed,
        table=table,
        on_selectivity=on_selectivity,
    )


def choose_shuffle(table: Table, sample_bytes: float, row_bytes: float) -> Shuffle:
    """Choose blocks that are worth a request, and windows that fit into memory.

    A table that does not fit into the row cache is shuffled by row groups, the smallest unit of a read; this reads a
    footer. Blocks of a small table are no longer than its shards, so that the first window needs few shards. A table
    of very many rows has longer blocks: their number bounds the memory of an order.
    """
    shards = table.entry.shards
    count = table.unfiltered_count
    rows = int(min(max(_BLOCK_BYTES / max(sample_bytes, 1.0), 1), _MAX_BLOCK_ROWS))
    if count * row_bytes > _CACHED_ROW_BYTES:
        rows = max(rows, table.group_rows())
    else:
        rows = max(1, min(rows, count // max(shards.shard_count, 1)))
    rows = max(rows, -(-count // _MAX_BLOCKS))
    block_bytes = max(rows * sample_bytes, 1.0)
    least = min(_MIN_BLOCKS, int(_MAX_WINDOW_BYTES / block_bytes))
    blocks = max(1, least, int(_WINDOW_BYTES / block_bytes))
    blocks = min(blocks, -(-max(count, 1) // rows))
    return Shuffle(rows, blocks, _OPENING_BLOCKS if blocks > _OPENING_BLOCKS else 0)


def _fetch_media(
    rows: pa.Table, needed: NDArray[np.int64], executor: Executor
) -> dict[str, Sequence[PendingBytes | None]]:
    """Start to fetch the content of references, in the order of need.

    If a lookup fails, the content is read where it is used, and the error is raised there.
    """
    contents: dict[str, Sequence[PendingBytes | None]] = {}
    for column in rows.schema:
        if not isinstance(column.type, RefType):
            continue
        with text_errors(column.name):
            refs = rows[column.name].to_pylist()
        pending: list[PendingBytes | None] = [
            None if ref is None else FutureBytes(0, ref.path, ref.read_bytes) for ref in refs
        ]
        order = list(dict.fromkeys(needed.tolist()))
        try:
            fetched = read_ahead([refs[at] for at in order], executor)
        except WarpError:
            fetched = []
        for at, wait in zip(order, fetched, strict=False):
            pending[at] = wait
        contents[column.name] = pending
    return contents


def _find_rows(consumed: _ConsumedRows, table: Table) -> RowSelection:
    """Return the rows of a table that were consumed."""
    if any(each.entry.manifest_format > 1 for each in (table, *(base for base, _ in consumed))):
        ids = [part.ids for base, rows in consumed for part in base.locate(rows)]
        everything = replace(table, filters=(), rows=None).sample_ids()
        return RowSelection.of_numbers(np.flatnonzero(np.isin(everything, np.concatenate([[], *ids]))))
    counts: dict[str, NDArray[np.int64]] = {}
    for base, rows in consumed:
        for part in base.locate(rows):
            known = counts.setdefault(part.shard.hash, np.zeros(part.shard.stored_count, np.int64))
            known[part.positions] += 1
    found, seen = [np.empty(0, np.int64)], Counter[str]()
    for located in iter_located(table.entry.shards, table.load_page):
        digest = located.shard.hash
        if digest in counts:
            found.append(located.first_row + np.flatnonzero(counts[digest] > seen[digest]))
        seen[digest] += 1
    return RowSelection.of_numbers(np.concatenate(found))
