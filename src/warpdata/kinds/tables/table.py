"""A table of one version: lazy and immutable. `select` and `filter` return a new table; reads are explicit."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from warpdata.errors import BadInputError, CorruptError, WarpError
from warpdata.formats.parquet import ShardOpener
from warpdata.kinds.tables.assignment import RowRange, assign_rows, resolve_rank
from warpdata.kinds.tables.clauses import apply_clauses
from warpdata.kinds.tables.columns import check_column_names, check_columns, retype_batch, retype_table, select_fields
from warpdata.kinds.tables.duckdb_relation import relate_files, relate_table
from warpdata.kinds.tables.edited_shard import TableShard
from warpdata.kinds.tables.located_rows import ShardRows, find_ids, locate_rows
from warpdata.kinds.tables.row_access import preview_rows, type_text
from warpdata.kinds.tables.row_indexes import IndexedTable, QueryPlan, RowIndexes, explain, is_selective
from warpdata.kinds.tables.sample import check_sample, encode_strata, sample_bitmaps, sample_strata, sample_uniform
from warpdata.kinds.tables.scan import (
    Scan,
    check_counts,
    match_rows,
    rebatch,
    scan_numbered,
    scan_tables,
    with_lookahead,
)
from warpdata.kinds.tables.table_export import TableExport
from warpdata.kinds.tables.table_shards import TableShards
from warpdata.kinds.tables.take import RowTaker, to_row_numbers
from warpdata.primitives.arguments import check_arguments
from warpdata.primitives.cached_property import cached_property
from warpdata.primitives.parallel import IO_POOL
from warpdata.primitives.reprs import html_table, short_repr
from warpdata.query import (
    Answer,
    Filter,
    RowFilter,
    bind_filter,
    clauses_of,
    conjunction,
    parse_filter,
    quote_identifier,
)
from warpdata.repository.manifest import LoadPage, ShardLookup, TableEntry, iter_rows, iter_shards
from warpdata.repository.rows import RowSelection
from warpdata.settings import Settings

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from duckdb import DuckDBPyRelation
    from numpy.typing import NDArray

__all__ = ["LookaheadHook", "SchemaTransform", "Table", "TakeRows"]

SchemaTransform: TypeAlias = Callable[["pa.Schema"], "pa.Schema"]
LookaheadHook: TypeAlias = Callable[["pa.RecordBatch"], None]
TakeRows: TypeAlias = Callable[["Sequence[int] | NDArray[np.int64]"], "pa.Table"]

_MAX_UNVERIFIED_ROWS = 2**27
_MAX_SHARD_ROWS = 2**26
_SHOWN_COLUMNS = 20
_INHERITED = ("_stored_schema", "_lookup", "opener")
"""Cached properties that `select` and `filter` hand on, because they depend on the entry alone."""


@check_arguments
@dataclass(frozen=True)
class Table(TableExport):
    """Rows of one version. Opening reads nothing; the first call that needs a footer reads one."""

    name: str
    entry: TableEntry
    shards: ShardOpener
    load_page: LoadPage
    settings: Settings
    columns: tuple[str, ...] | None = None
    filters: tuple[RowFilter, ...] = ()
    rows: RowSelection | None = None
    """The rows that the table is restricted to, such as those of a sample; None for all."""
    schema_transform: SchemaTransform | None = None
    """Gives columns other types over the same stored values, such as references. Applied last."""
    on_lookahead: LookaheadHook | None = None
    """Called with each batch, one batch before it is yielded, to prefetch what its rows refer to."""
    indexes: RowIndexes | None = field(default=None, compare=False, repr=False)
    """Answers filters, or parts of them, without reading their columns."""

    def __repr__(self) -> str:
        columns, text = None if self.columns is None else list(self.columns), self.filter_text or None
        return short_repr("Table", self.name, rows=self.unfiltered_count, columns=columns, filter=text)

    def _repr_html_(self) -> str:
        """Show types and the first rows. With a filter, these might need a long scan, so only types are shown."""
        title, notes = f"{self.name}: {self.unfiltered_count:,} rows", []
        if self.filters:
            notes.append(f"filter: {self.filter_text}")
        try:
            schema = self.schema()
            shown = schema.names[:_SHOWN_COLUMNS]
            rows = [] if self.filters or not shown else self._with(on_lookahead=None).select(shown).head().to_pylist()
        except (WarpError, ValueError) as error:
            return html_table(title, [], [], notes=[*notes, str(error)])
        if len(schema.names) > len(shown):
            notes.append(f"{len(schema.names) - len(shown)} more columns")
        types = [type_text(schema.field(at).type) for at in range(len(shown))]
        return html_table(title, shown, [types, *preview_rows(rows, shown)], notes=notes)

    @property
    def filter_text(self) -> str:
        """All filters as one SQL expression; empty without a filter."""
        return conjunction(self.filters).text if self.filters else ""

    def schema(self) -> pa.Schema:
        """Return the columns and their Arrow types. The first call reads one footer."""
        return self._selected_schema if self.schema_transform is None else self.schema_transform(self._selected_schema)

    def raw(self) -> Table:
        """Return the same table with references as they are stored: as paths, or as locations in a shard."""
        return self._with(schema_transform=None, on_lookahead=None)

    def count(self) -> int:
        """Count the rows: from the manifest; with a filter from indexes, or by reading the columns of the filter."""
        if not self.filters:
            return self.unfiltered_count
        if self._answer is not None:
            return len(self.select_rows())
        columns, row_filter = self.filters[0].columns[:1], conjunction(self.filters)
        scan = Scan(self.entry.shards, self._stored_schema, columns, self._all_rows(), row_filter, self.rows)
        return sum(table.num_rows for table in self._scan(scan))

    def select(self, columns: Sequence[str] | str) -> Table:
        """Keep these columns, in this order. A text is the name of one column."""
        columns = check_column_names(columns)
        listed = None if "_stored_schema" in self.__dict__ else self.entry.column_names
        return self._with(columns=tuple(check_columns(columns, listed or self._stored_schema.names)))

    def filter(self, expression: str | Filter) -> Table:
        """Keep the rows for which the expression, SQL text or a `Filter`, and every earlier filter is true.

        It may name any stored column, also those that `select` omits. Its clauses `near` and `sample` read rows.
        """
        if isinstance(expression, str):
            return self._with(filters=(*self.filters, parse_filter(expression, self._stored_schema)))
        clauses = clauses_of(expression)
        bound = [bind_filter(part, self._stored_schema) for part in clauses.row_filters]
        return apply_clauses(self._with(filters=(*self.filters, *bound)), clauses)

    def batches(
        self,
        batch_size: int = 50_000,
        columns: Sequence[str] | str | None = None,
        shard: tuple[int, int] | str | None = None,
        limit: int | None = None,
        prefetch: int | str | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Yield record batches of exactly `batch_size` rows; the last one may be smaller.

        `shard=(rank, world_size)` reads the part of one rank: over all ranks, every row comes exactly once. `"auto"`
        takes both from the launcher's environment, and counts the workers of a PyTorch DataLoader as ranks. `limit`
        bounds the rows of this call. `prefetch` is the number of batches to read ahead, or "auto"; the default is
        that of the settings.
        """
        check_counts(batch_size, limit)
        if columns is not None:
            return self.select(columns).batches(batch_size, shard=shard, limit=limit, prefetch=prefetch)
        ahead = self._batches_ahead(prefetch)
        ahead_rows = None if ahead is None else ahead * batch_size
        batches = rebatch(self._raw_row_groups(shard, limit, ahead_rows), batch_size)
        if self.on_lookahead is not None and ahead != 0:
            batches = with_lookahead(batches, self.on_lookahead)
        if self.schema_transform is None:
            return batches
        schema = self.schema()
        return (retype_batch(batch, schema) for batch in batches)

    def row_groups(self, shard: tuple[int, int] | str | None = None, limit: int | None = None) -> Iterator[pa.Table]:
        """Yield one Arrow table for each row group, without copies to form batches: the cheapest way to read."""
        if self.schema_transform is None:
            return self._raw_row_groups(shard, limit)
        schema = self.schema()
        return (retype_table(table, schema) for table in self._raw_row_groups(shard, limit))

    def count_of(self, shard: tuple[int, int] | str) -> int:
        """Count the rows that `batches` and `row_groups` read for a rank, before filters. Reads at most two footers."""
        rows, keep = self._assigned_rows(shard)
        return rows.stop - rows.start if keep is None else len(keep)

    def _raw_row_groups(
        self, shard: tuple[int, int] | str | None, limit: int | None, ahead_rows: int | None = None
    ) -> Iterator[pa.Table]:
        if limit == 0:
            return
        rows, keep = self._assigned_rows(shard)
        keep, row_filter = self._narrow(keep)
        if limit is not None and row_filter is None:
            if keep is None:
                rows = RowRange(rows.start, min(rows.stop, rows.start + limit))
            else:
                keep = keep.between(rows.start, rows.stop).slice(0, limit)
        left, names = limit, tuple(self._selected_schema.names)
        scan = Scan(self.entry.shards, self._stored_schema, names, rows, row_filter, keep, ahead_rows=ahead_rows)
        for table in self._scan(scan):
            if left is None:
                yield table
                continue
            yield table.slice(0, left)
            left -= min(left, table.num_rows)
            if left == 0:
                return

    def row_numbers(self) -> NDArray[np.int64]:
        """Return the numbers of the rows that the filters keep, ascending, counted over the whole table.

        Reads the columns of the filters; without a filter, nothing.
        """
        if not self.filters and self.rows is None:
            self.check_row_counts(_MAX_UNVERIFIED_ROWS // max(self.entry.shards.shard_count, 1))
        return self.select_rows().numbers

    def select_rows(self) -> RowSelection:
        """Return the rows that the filters keep as a selection, like `row_numbers`."""
        if not self.filters:
            return RowSelection.all_rows(self.entry.shards.row_count) if self.rows is None else self.rows
        answer = self._answer
        if answer is None:
            return self._match(self.rows)
        certain = RowSelection.of_bitmap(answer.certain)
        if not answer.is_exact:
            certain = certain | self._match(RowSelection.of_bitmap(answer.possible - answer.certain))
        return certain if self.rows is None else self.rows & certain

    def _match(self, keep: RowSelection | None) -> RowSelection:
        """Evaluate the filters on some rows, and return those that they keep."""
        import numpy as np

        rows, row_filter = self._all_rows(), conjunction(self.filters)
        scan = Scan(self.entry.shards, self._stored_schema, (), rows, row_filter, keep)
        found = [np.empty(0, np.int64), *match_rows(scan, self.opener, self.load_page)]
        return RowSelection.of_numbers(np.concatenate(found))

    def numbered_rows(self) -> Iterator[tuple[NDArray[np.int64], pa.Table]]:
        """Yield the rows that the filters keep with their numbers, in table order, in one scan. Uses no index."""
        assert self.filters, "without a filter all rows match"
        rows, columns = self._all_rows(), tuple(self._selected_schema.names)
        scan = Scan(self.entry.shards, self._stored_schema, columns, rows, conjunction(self.filters), self.rows)
        yield from scan_numbered(scan, self.opener, self.load_page)

    def explain(self) -> QueryPlan:
        """Return which conditions of the filters indexes answer, and the rows left to scan. Reads no row."""
        return explain(self.filter_text, self.entry.shards.row_count, self.indexes, lambda: self._plan)

    def sample(self, count: int, *, by: str | None = None, seed: int = 0) -> Table:
        """Restrict the table to `count` random rows that the filters keep, each at most once.

        The sample is uniform, or with `by` stratified: each value of that column has its share of the rows. It depends
        on the version, the filters, the count and the seed alone. A table with no more rows is returned whole.
        """
        check_sample(count, seed)
        kept = self.select_rows()
        if by is None:
            ranks = sample_uniform(count, len(kept), seed)
        else:
            check_columns([by], self._stored_schema.names)
            strata = None if self.indexes is None else self.indexes.strata(self._indexed, by)
            if strata is not None:
                return self._with(filters=(), rows=sample_bitmaps([rows for _, rows in strata], kept, count, seed))
            rows = self._all_rows()
            scan = Scan(self.entry.shards, self._stored_schema, (by,), rows, keep=kept, keeps_dictionaries=True)
            parts = scan_tables(scan, self.opener, self.load_page)
            ranks = sample_strata(encode_strata((c for part in parts for c in part.column(0).chunks), by), count, seed)
        return self._with(filters=(), rows=RowSelection.of_numbers(kept.select(ranks)))

    def sample_ids(self) -> NDArray[np.int64]:
        """Return the sample ids of the rows that the filters keep, in table order. Reads no rows without a filter."""
        import numpy as np

        return np.concatenate([np.empty(0, np.int64), *(part.ids for part in self.locate(self.row_numbers()))])

    def rows_of(self, ids: Sequence[int] | NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the numbers of the rows with these sample ids, in this order, for `take`. Ignores filters.

        Raise `NotFoundError` with the ids that no row has.
        """
        return find_ids(self.entry, self.opener, self.load_page, to_row_numbers(ids, "sample ids"))

    def locate(self, rows: NDArray[np.int64]) -> Iterator[ShardRows]:
        """Yield the shards of rows, given ascending, with their positions in the files and their sample ids."""
        return locate_rows(self.entry, self.opener, self.load_page, to_row_numbers(rows))

    def take(
        self,
        rows: Sequence[int] | NDArray[np.int64] | None = None,
        *,
        ids: Sequence[int] | NDArray[np.int64] | None = None,
    ) -> pa.Table:
        """Return the rows with these numbers or sample ids, in this order; one may repeat. Ignores filters.

        Numbers count over the whole table. A few rows are read by page, others by row group, each once.
        """
        if rows is not None and ids is not None:
            raise BadInputError("take got both row numbers and sample ids", hint="Call take(rows) or take(ids=…).")
        return self.taker()(to_row_numbers(rows) if ids is None else self.rows_of(ids))

    def taker(self, keep_bytes: int = 0) -> TakeRows:
        """Return `take` as a function for repeated use. It caches up to `keep_bytes` of decoded row groups."""
        taker = RowTaker(self._lookup, self.opener, lambda: self._selected_schema, keep_bytes)

        def take(rows: Sequence[int] | NDArray[np.int64]) -> pa.Table:
            taken = taker.take(to_row_numbers(rows))
            return taken if self.schema_transform is None else retype_table(taken, self.schema())

        return take

    def duckdb(self) -> DuckDBPyRelation:
        """Return a DuckDB relation over the stored files, for any SQL. Reads no rows yet.

        All relations that a thread makes belong to one connection, so they can be joined. Columns have the types that
        filters see. DuckDB reads the files itself and does not verify page checksums; `warp verify` does. Of an edited
        or restricted table, this library reads the columns that the query needs.
        """
        if self.entry.manifest_format > 1 or self.rows is not None:
            whole = self._with(schema_transform=None, on_lookahead=None, columns=None, filters=())
            relation = relate_table(whole, self.shards.reader, self.settings)
        else:
            listed = iter_shards(self.entry.shards, self.load_page)
            relation = relate_files(listed, self._stored_schema, self.shards.reader, self.settings)
        if self.filters:
            relation = relation.filter(self.filter_text)
        if self.columns is not None:
            relation = relation.project(", ".join(quote_identifier(name) for name in self.columns))
        return relation

    def group_rows(self) -> int:
        """Return the number of rows of the first row group: an estimate of the least that a read decodes."""
        first = self._first_shard()
        return max((group.row_count for group in first.row_groups()[:1]), default=0) if first is not None else 0

    @cached_property
    def _stored_schema(self) -> pa.Schema:
        import pyarrow as pa

        first = self._first_shard()
        if first is None:
            return pa.schema([])
        listed = self.entry.column_names if self.entry.manifest_format > 1 else None
        if listed is None or list(listed) == first.schema.names:
            return first.schema
        if sorted(listed) != sorted(first.schema.names):
            raise CorruptError(
                f"table {self.name!r} lists the columns {reprlib.repr(listed)}; "
                f"shard {first.shard.hash} has {reprlib.repr(first.schema.names)}"
            )
        return select_fields(first.schema, listed)

    def _first_shard(self) -> TableShard | None:
        return self.opener.peek(self._lookup.at(0)) if len(self._lookup) else None

    @cached_property
    def opener(self) -> TableShards:
        """Opens the shards of this table as readers see them."""
        return TableShards(self.shards, self.settings, self.entry.changes)

    @cached_property
    def _lookup(self) -> ShardLookup:
        return ShardLookup(self.entry.shards, self.load_page)

    @property
    def _selected_schema(self) -> pa.Schema:
        if self.columns is None:
            return self._stored_schema
        return select_fields(self._stored_schema, check_columns(self.columns, self._stored_schema.names))

    def _with(self, **changes: Any) -> Table:
        """Return a changed copy that keeps the schema and the pages that were read."""
        changed = replace(self, **changes)
        changed.__dict__.update({name: self.__dict__[name] for name in _INHERITED if name in self.__dict__})
        return changed

    @property
    def unfiltered_count(self) -> int:
        """The number of rows before filters, from the manifest."""
        return self.entry.shards.row_count if self.rows is None else len(self.rows)

    def _all_rows(self) -> RowRange:
        return RowRange(0, self.entry.shards.row_count)

    def check_row_counts(self, max_unverified: int = _MAX_SHARD_ROWS) -> None:
        """Compare row counts of the manifest with footers, before the counts size memory. Most tables read nothing.

        Reads footers if shards have more than `max_unverified` rows on average. `CorruptError` if a count is false.
        """
        shards = self.entry.shards
        if shards.row_count > max_unverified * max(shards.shard_count, 1):
            IO_POOL.map_all(self.opener.peek, iter_shards(shards, self.load_page))

    def _batches_ahead(self, prefetch: int | str | None) -> int | None:
        """Return the number of batches to read ahead; None lets the scan choose."""
        chosen = self.settings.prefetch if prefetch is None else prefetch
        if chosen == "auto":
            return None
        if isinstance(chosen, bool) or not isinstance(chosen, int) or chosen < 0:
            raise BadInputError(f"prefetch={chosen!r} is neither 'auto' nor a count of batches")
        return chosen

    def _scan(self, scan: Scan) -> Iterator[pa.Table]:
        return scan_tables(scan, self.opener, self.load_page) if scan.rows.start < scan.rows.stop else iter(())

    @cached_property
    def _plan(self) -> Answer | None:
        if self.indexes is None or not self.filters:
            return None
        return self.indexes.answer(self._indexed, conjunction(self.filters).predicate)

    @property
    def _answer(self) -> Answer | None:
        """The rows that indexes find for the filters; None without an index that narrows them."""
        return self._plan if self._plan is not None and self._plan.uses_indexes else None

    @property
    def _indexed(self) -> IndexedTable:
        return IndexedTable(self.entry, self._stored_schema, self.opener, self.load_page)

    def _narrow(self, keep: RowSelection | None) -> tuple[RowSelection | None, RowFilter | None]:
        """Return the rows to scan among `keep`, and the filter that is left to evaluate."""
        answer = self._answer
        if answer is None or not is_selective(answer, self.entry.shards.row_count):
            return keep, conjunction(self.filters) if self.filters else None
        found = RowSelection.of_bitmap(answer.possible)
        return found if keep is None else keep & found, None if answer.is_exact else conjunction(self.filters)

    def _assigned_rows(self, shard: tuple[int, int] | str | None) -> tuple[RowRange, RowSelection | None]:
        """Return the rows of a rank, and those of them that are wanted. The rows of a selection are cut evenly."""
        if shard is None:
            return self._all_rows(), self.rows
        rank, world_size = resolve_rank(shard)
        if self.rows is not None:
            part = assign_rows(len(self.rows), rank, world_size, lambda _: ())
            return self._all_rows(), self.rows.slice(part.start, part.stop)
        return assign_rows(self.entry.shards.row_count, rank, world_size, self._borders_near), None

    def _borders_near(self, row: int) -> list[int]:
        """Return the row-group borders of the shard that holds `row`, counted over the table."""
        for first_row, shard in iter_rows(self.entry.shards, self.load_page, row, row + 1):
            groups = self.opener.peek(shard).row_groups()
            return [*(first_row + group.first_row for group in groups), first_row + (shard.row_count or 0)]
        return []

    def estimated_bytes(self) -> int:
        """Estimate the size of the selected columns in memory, from the footer of the first shard."""
        first = self._first_shard()
        row_bytes = first.row_bytes(self._selected_schema.names) if first is not None else 0.0
        return int(self.unfiltered_count * row_bytes)
