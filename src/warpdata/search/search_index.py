"""Indexes of a version as searches use them: segments with the rows that they cover, and the rows that none covers.

A segment that is damaged covers nothing. It is named in a warning, once, and its rows are read from the table.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

from warpdata.errors import (
    CorruptError,
    IndexWarning,
    ManifestCorruptedError,
    NotCachedError,
    ObjectNotFoundError,
    UnsupportedError,
)
from warpdata.formats.indexes import Segment
from warpdata.formats.parquet import ShardOpener
from warpdata.formats.search import VECTOR_KINDS, BlockCache, TextSegment, VectorSegment
from warpdata.kinds import VersionContext
from warpdata.kinds.indexes import INDEXES, IndexEntry, OpenedIndex, Parameters, PlacedSource, place_sources
from warpdata.kinds.tables import IndexedTable, Table
from warpdata.primitives.cached_property import cached_property
from warpdata.primitives.fork import ForkSafeLock
from warpdata.primitives.parallel import IO_POOL
from warpdata.repository.manifest import Shard
from warpdata.repository.rows import RowSelection
from warpdata.search.search_memory import SelectedRows, search_memory, select_rows
from warpdata.search.segment_map import SegmentMap

__all__ = ["OpenSegment", "SearchIndex", "SearchIndexes"]

S = TypeVar("S")
T = TypeVar("T")
_DAMAGE = (CorruptError, ObjectNotFoundError, UnsupportedError)


@dataclass(frozen=True, eq=False)
class OpenSegment(Generic[S]):
    """A segment that covers rows of the table."""

    segment: S
    rows: SegmentMap


class SearchIndex(Generic[S]):
    """An index of one column, opened. Segments that turn out to be damaged are left out from then on."""

    def __init__(
        self,
        index: OpenedIndex,
        table: Table,
        open_segment: Callable[[Shard, Segment], S],
        preload: Callable[[Shard], object],
        memory: BlockCache,
    ) -> None:
        """Open the segments. `preload` reads what opening them needs, while the directory is read."""
        self.name = index.name
        self.memory = memory
        self._index = index
        self._row_count = table.entry.shards.row_count
        parts = IndexedTable(table.entry, table.raw().schema(), table.opener, table.load_page)
        opened = self.guard(None, partial(self._open, parts, open_segment, preload))
        self.segments: list[OpenSegment[S]] = opened or []

    def _open(
        self,
        table: IndexedTable,
        open_segment: Callable[[Shard, Segment], S],
        preload: Callable[[Shard], object],
    ) -> list[OpenSegment[S]]:
        self._index.load(preload)
        placed: dict[int, list[PlacedSource]] = {}
        column = self._index.entry.column
        for _, source in place_sources(table.entry, table.load_page, column, self._index.places):
            if source is not None:
                placed.setdefault(source.segment, []).append(source)

        def open_one(number: int) -> OpenSegment[S] | None:
            shard, segment = self._index.shards[number], self._index.directory.segments[number]
            opened = self.guard(None, partial(open_segment, shard, segment))
            rows = SegmentMap(table, segment.row_count, placed[number])
            return None if opened is None else OpenSegment(opened, rows)

        found = IO_POOL.map_all(open_one, sorted(placed))
        return [each for each in found if each is not None]

    def uncovered(self, selection: RowSelection) -> RowSelection:
        """Return the selected rows that no segment covers."""
        spans = sorted(span for opened in self.segments for span in opened.rows.spans)
        out, start = RowSelection.all_rows(0), 0
        for covered, stop in [*spans, (self._row_count, self._row_count)]:
            if covered > start:
                out = out | selection.between(start, covered)
            start = max(start, stop)
        return out

    def guard(self, part: OpenSegment[S] | None, read: Callable[[], T]) -> T | None:
        """Return what `read` returns. If the index is damaged, warn, leave the part out, and return None."""
        try:
            return read()
        except _DAMAGE as error:
            if part is not None:
                self.segments = [opened for opened in self.segments if opened is not part]
            if not isinstance(error, NotCachedError | UnsupportedError):
                warnings.warn(
                    f"index {self.name!r} of {self._index.version.ref.dataset_id} is damaged, and rows are searched "
                    f"without it: {error.message}. Repair it with update_index({self.name!r}, rebuild=True).",
                    IndexWarning,
                    stacklevel=2,
                )
            return None


class SearchIndexes:
    """The indexes of vectors and words of a version. Each opens when a search first needs it, and stays open."""

    def __init__(self, version: VersionContext) -> None:
        self._version = version
        self.memory = search_memory(version.session.settings.search_memory_bytes)
        self._files = ShardOpener(version.session.reader)
        self._lock = ForkSafeLock()
        self._vectors: dict[str, SearchIndex[VectorSegment]] = {}
        self._texts: dict[str, SearchIndex[TextSegment]] = {}

    def select(self, table: Table) -> SelectedRows:
        """Return the rows that the filters of a table keep."""
        return select_rows(table, self._version.ref.version, self.memory)

    def vectors(self, table: Table, column: str, metric: str) -> SearchIndex[VectorSegment] | None:
        """Return an index of the vectors of a column by this metric; None if there is none."""
        found = self._find(VECTOR_KINDS, table, column, {"metric": metric})
        if found is None:
            return None
        with self._lock:
            if found.name not in self._vectors:
                self._vectors[found.name] = SearchIndex(
                    found, table, self._open_vectors, lambda shard: self._segment(shard).head, self.memory
                )
            return self._vectors[found.name]

    def prepare(self, table: Table, column: str, metric: str) -> tuple[SelectedRows, SearchIndex[VectorSegment] | None]:
        """Return `select` and `vectors`. An index that has to be opened is read while the filters are answered."""
        found = self._find(VECTOR_KINDS, table, column, {"metric": metric})
        if found is None or found.name in self._vectors or not table.filters:
            return self.select(table), self.vectors(table, column, metric)

        def open_with_members() -> SearchIndex[VectorSegment] | None:
            index = self.vectors(table, column, metric)
            if index is not None:
                for opened in list(index.segments):
                    index.guard(opened, opened.segment.load_members)
            return index

        with IO_POOL.executor() as executor:
            opening = executor.submit(open_with_members)
            return self.select(table), opening.result()

    def texts(self, table: Table, column: str) -> SearchIndex[TextSegment] | None:
        """Return an index of the words of a column; None if there is none."""
        found = self._find(("text",), table, column, {})
        if found is None:
            return None
        with self._lock:
            if found.name not in self._texts:
                self._texts[found.name] = SearchIndex(found, table, self._open_text, self._files.open, self.memory)
            return self._texts[found.name]

    @cached_property
    def _entries(self) -> list[tuple[str, IndexEntry]]:
        """The indexes of this release, by name."""
        out = []
        for name, payload in sorted(self._version.manifest.indexes.items()):
            with suppress(UnsupportedError, ManifestCorruptedError):  # one of another release has no effect
                out.append((name, INDEXES.parse(name, payload)))
        return out

    def _find(self, kinds: Sequence[str], table: Table, column: str, parameters: Parameters) -> OpenedIndex | None:
        for name, entry in self._entries:
            is_of_column = entry.kind in kinds and (entry.table, entry.column) == (table.name, column)
            if is_of_column and parameters.items() <= entry.parameters.items():
                return INDEXES.open(self._version, name)
        return None

    def _segment(self, shard: Shard) -> VectorSegment:
        return VectorSegment(self._version.session.reader, shard, self.memory)

    def _open_vectors(self, shard: Shard, segment: Segment) -> VectorSegment:
        opened = self._segment(shard)
        if opened.head.row_count != segment.row_count:
            raise CorruptError(f"segment {shard.hash} has {opened.head.row_count} rows, not {segment.row_count}")
        return opened

    def _open_text(self, shard: Shard, segment: Segment) -> TextSegment:
        if segment.entries is None or shard.footer is None:
            raise CorruptError(f"segment {shard.hash} has no footer or no count of entries")
        file = self._files.open(shard)
        if file.layout.metadata.num_rows != segment.entries:
            raise CorruptError(f"segment {shard.hash} has other entries than {segment.entries}")
        return TextSegment(file, segment)
