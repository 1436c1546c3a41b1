"""A table of a version: lazy, remote, immutable. `select` and `filter` return a new one; reading is explicit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from warpdata.errors import BadInputError, LargeExportError, MissingExtraError, UnsupportedError
from warpdata.formats.parquet import ShardFile, ShardOpener
from warpdata.kinds.tables.assignment import RowRange, assign_rows, check_rank
from warpdata.kinds.tables.batches import announced, rebatch
from warpdata.kinds.tables.scan import Scan, match_rows, scan_tables
from warpdata.kinds.tables.take import RowTaker
from warpdata.limits import EXPORT_BYTES_WITHOUT_CONSENT, EXPORT_ROWS_WITHOUT_CONSENT
from warpdata.primitives.cached_property import cached_property
from warpdata.primitives.hashing import blob_key
from warpdata.query import (
    RowFilter,
    check_columns,
    conjunction,
    connect_open,
    parse_filter,
    retyped_batch,
    retyped_table,
)
from warpdata.repository.manifest import LoadPage, ShardLookup, TableEntry, iter_rows, iter_shards
from warpdata.settings import Settings, detect_rank

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    import polars as pl
    import pyarrow as pa
    from duckdb import DuckDBPyRelation
    from numpy.typing import NDArray

__all__ = ["LookaheadHook", "SchemaTransform", "Table", "TakeRows"]

SchemaTransform: TypeAlias = Callable[["pa.Schema"], "pa.Schema"]
LookaheadHook: TypeAlias = Callable[["pa.RecordBatch"], None]
TakeRows: TypeAlias = Callable[["Sequence[int] | NDArray[np.int64]"], "pa.Table"]

_READ = ("_stored_schema", "_lookup")
"""What was read for one table serves those made from it."""


@dataclass(frozen=True)
class Table:
    """Rows of one version. Opening costs nothing; the first question that needs a footer reads one."""

    name: str
    entry: TableEntry
    shards: ShardOpener
    load_page: LoadPage
    settings: Settings
    columns: tuple[str, ...] | None = None
    filters: tuple[RowFilter, ...] = ()
    present: SchemaTransform | None = None
    """Gives columns another type over the same stored values, such as references; reading applies it last."""
    on_lookahead: LookaheadHook | None = None
    """Told of each batch one batch before it is handed out, so that what its rows refer to can be fetched."""

    def __repr__(self) -> str:
        wanted = f", columns={list(self.columns)}" if self.columns else ""
        kept = f", filter={self.filter_text!r}" if self.filters else ""
        return f"Table({self.name!r}, rows={self.entry.shards.row_count}{wanted}{kept})"

    @property
    def filter_text(self) -> str:
        """All filters as one SQL expression; empty without any."""
        return conjunction(self.filters).sql if self.filters else ""

    def schema(self) -> pa.Schema:
        """The columns and their Arrow types; one small read, remembered."""
        return self._selected_schema if self.present is None else self.present(self._selected_schema)

    def stored(self) -> Table:
        """The same rows with references as they are stored: as paths, or as places in a shard."""
        return self._with(present=None, on_lookahead=None)

    def count(self) -> int:
        """How many rows: from the manifest, or by reading the filter's columns."""
        if not self.filters:
            return self.entry.shards.row_count
        columns = self.filters[0].columns[:1]
        return sum(table.num_rows for table in self._scan(columns, self._all_rows()))

    def select(self, columns: Sequence[str]) -> Table:
        """Keep these columns, in this order."""
        if isinstance(columns, str) or not columns:
            raise BadInputError(f"select takes a non-empty list of column names, not {columns!r}")
        listed = None if "_stored_schema" in self.__dict__ else self.entry.column_names
        return self._with(columns=tuple(check_columns(columns, listed or self._stored_schema.names)))

    def filter(self, expression: str) -> Table:
        """Keep rows for which the SQL expression is true; several filters must all be.

        Any stored column may be named, also one that `select` leaves out.
        """
        return self._with(filters=(*self.filters, parse_filter(expression, self._stored_schema)))

    def head(self, n: int = 5) -> pa.Table:
        """The first `n` rows, reading about as much as they take."""
        return self.to_arrow(limit=n)

    def batches(
        self,
        batch_size: int = 50_000,
        columns: Sequence[str] | None = None,
        shard: tuple[int, int] | str | None = None,
        limit: int | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Record batches of exactly `batch_size` rows, the last one perhaps fewer.

        `shard=(rank, world_size)` reads this rank's part: over all ranks every row comes exactly
        once. `"auto"` asks the launcher's environment. `limit` bounds the rows of this call.
        """
        _check_counts(batch_size, limit)
        wanted = self if columns is None else self.select(columns)
        batches = rebatch(wanted.stored().tables(shard, limit), batch_size)
        if self.on_lookahead is not None:
            batches = announced(batches, self.on_lookahead)
        if wanted.present is None:
            return batches
        schema = wanted.schema()
        return (retyped_batch(batch, schema) for batch in batches)

    def tables(self, shard: tuple[int, int] | str | None = None, limit: int | None = None) -> Iterator[pa.Table]:
        """Arrow tables as they come from storage, one per row group: the cheapest form to read."""
        if self.present is None:
            return self._stored_tables(shard, limit)
        schema = self.schema()
        return (retyped_table(table, schema) for table in self._stored_tables(shard, limit))

    def _stored_tables(self, shard: tuple[int, int] | str | None, limit: int | None) -> Iterator[pa.Table]:
        if limit == 0:
            return
        rows = self._assigned(shard)
        if limit is not None and not self.filters:
            rows = RowRange(rows.start, min(rows.stop, rows.start + limit))
        left = limit
        for table in self._scan(tuple(self._selected_schema.names), rows):
            if left is None:
                yield table
                continue
            yield table.slice(0, left)
            left -= min(left, table.num_rows)
            if left == 0:
                return

    def row_numbers(self) -> NDArray[np.int64]:
        """The numbers of the rows that the filters keep, ascending, counted over the whole table.

        Reads the columns of the filters; without a filter, nothing.
        """
        import numpy as np

        if not self.filters:
            return np.arange(self.entry.shards.row_count, dtype=np.int64)
        scan = Scan(self.entry.shards, self._stored_schema, (), self._all_rows(), conjunction(self.filters))
        return np.concatenate([np.empty(0, np.int64), *match_rows(scan, self.shards, self.load_page)])

    def take(self, rows: Sequence[int] | NDArray[np.int64]) -> pa.Table:
        """The rows with these numbers, ascending, counted over the whole table: filters do not count.

        Row groups that hold none of them are not read.
        """
        return self.taker()(rows)

    def taker(self, keep_bytes: int = 0) -> TakeRows:
        """As `take`, for taking again and again: what was decoded last is kept, up to so many bytes."""
        import numpy as np

        taker = RowTaker(self._lookup, self.shards, lambda: self._selected_schema, keep_bytes)

        def take(rows: Sequence[int] | NDArray[np.int64]) -> pa.Table:
            taken = taker.take(np.asarray(rows, dtype=np.int64))
            return taken if self.present is None else retyped_table(taken, self.schema())

        return take

    def batch_dicts(
        self,
        batch_size: int = 1000,
        columns: Sequence[str] | None = None,
        shard: tuple[int, int] | str | None = None,
        limit: int | None = None,
    ) -> Iterator[dict[str, list[Any]]]:
        """As `batches`, each as a dict of lists."""
        for batch in self.batches(batch_size, columns, shard, limit):
            yield batch.to_pydict()

    def to_arrow(self, limit: int | None = None, *, allow_large: bool = False) -> pa.Table:
        """All rows in memory. Without a limit a large table is refused, unless you say so."""
        import pyarrow as pa

        _check_counts(1, limit)
        bounded = limit is not None or allow_large
        if not bounded and not self.filters:
            self._refuse_large(self.entry.shards.row_count, self.entry.shards.data_bytes)
        parts, rows, size = [pa.Table.from_batches([], self.schema())], 0, 0
        for part in self.tables(limit=limit):
            parts.append(part)
            rows, size = rows + part.num_rows, size + part.nbytes
            if not bounded and self.filters:
                self._refuse_large(rows, size)
        return pa.concat_tables(parts)

    def pandas(self, limit: int | None = None, *, allow_large: bool = False) -> pd.DataFrame:
        """As `to_arrow`, for pandas, with references as they are stored."""
        _require("pandas")
        frame: pd.DataFrame = self.stored().to_arrow(limit, allow_large=allow_large).to_pandas()
        return frame

    def polars(self, limit: int | None = None, *, allow_large: bool = False) -> pl.DataFrame:
        """As `to_arrow`, for polars, with references as they are stored."""
        _require("polars")
        import polars as pl

        frame = pl.from_arrow(self.stored().to_arrow(limit, allow_large=allow_large))
        assert isinstance(frame, pl.DataFrame)
        return frame

    def duckdb(self) -> DuckDBPyRelation:
        """A DuckDB relation over the table where it lies, for any SQL; nothing is read yet.

        DuckDB reads the files itself, and does not check page checksums: `warp verify` does.
        """
        connection = connect_open(self.shards.reader.url, self.settings)
        sources = self._duckdb_sources()
        relation = (
            connection.read_parquet(sources) if sources else connection.from_arrow(self._stored_schema.empty_table())
        )
        if self.filters:
            relation = relation.filter(conjunction(self.filters).sql)
        if self.columns is not None:
            relation = relation.project(", ".join(_identifier(name) for name in self.columns))
        return relation

    @cached_property
    def _stored_schema(self) -> pa.Schema:
        import pyarrow as pa

        first = self._first_shard()
        return pa.schema([]) if first is None else first.schema

    def group_rows(self) -> int:
        """The rows of the first row group, which tells about the others: the least that is read at once."""
        first = self._first_shard()
        return max((group.row_count for group in first.row_groups()[:1]), default=0) if first is not None else 0

    def _first_shard(self) -> ShardFile | None:
        return self.shards.peek(self._lookup.at(0)) if len(self._lookup) else None

    @cached_property
    def _lookup(self) -> ShardLookup:
        return ShardLookup(self.entry.shards, self.load_page)

    @property
    def _selected_schema(self) -> pa.Schema:
        import pyarrow as pa

        if self.columns is None:
            return self._stored_schema
        names = check_columns(self.columns, self._stored_schema.names)
        fields = [self._stored_schema.field(name) for name in names]
        return pa.schema(fields, metadata=self._stored_schema.metadata)

    def _with(self, **changes: Any) -> Table:
        """A changed copy that keeps what was read already."""
        changed = replace(self, **changes)
        changed.__dict__.update({name: self.__dict__[name] for name in _READ if name in self.__dict__})
        return changed

    def _all_rows(self) -> RowRange:
        return RowRange(0, self.entry.shards.row_count)

    def _scan(self, columns: tuple[str, ...], rows: RowRange) -> Iterator[pa.Table]:
        if rows.start >= rows.stop:
            return iter(())
        row_filter = conjunction(self.filters) if self.filters else None
        scan = Scan(self.entry.shards, self._stored_schema, columns, rows, row_filter)
        return scan_tables(scan, self.shards, self.load_page)

    def _assigned(self, shard: tuple[int, int] | str | None) -> RowRange:
        if shard is None:
            return self._all_rows()
        if isinstance(shard, str):
            if shard != "auto":
                raise BadInputError(f"shard={shard!r} is neither 'auto' nor (rank, world_size)")
            shard = detect_rank()
        rank, world_size = check_rank(shard)
        return assign_rows(self.entry.shards.row_count, rank, world_size, self._borders_near)

    def _borders_near(self, row: int) -> list[int]:
        """The row-group borders of the shard that holds `row`, counted over the table."""
        for first_row, shard in iter_rows(self.entry.shards, self.load_page, row, row + 1):
            groups = self.shards.peek(shard).row_groups()
            return [*(first_row + group.first_row for group in groups), first_row + (shard.row_count or 0)]
        return []

    def _refuse_large(self, rows: int, size_bytes: int) -> None:
        """Without a filter the size is known beforehand; with one, it shows as rows come in."""
        if rows > EXPORT_ROWS_WITHOUT_CONSENT or size_bytes > EXPORT_BYTES_WITHOUT_CONSENT:
            raise LargeExportError(
                f"the export of table {self.name!r} has {rows:,} rows in {size_bytes:,} bytes"
                + (" and more to come" if self.filters else ""),
                hint="Pass limit=…, stream with batches(), or insist with allow_large=True.",
            )

    def _duckdb_sources(self) -> list[str]:
        sources = []
        for shard in iter_shards(self.entry.shards, self.load_page):
            key = blob_key(shard.hash)
            path = self.shards.reader.local_path(key)
            if path is not None:
                sources.append(str(path))
            elif self.shards.reader.url.startswith(("s3://", "http://", "https://")):
                sources.append(f"{self.shards.reader.url}/{key}")
            else:
                raise UnsupportedError(
                    f"DuckDB cannot read from {self.shards.reader.url} by itself", hint="Use to_arrow() or batches()."
                )
        return sources


def _check_counts(batch_size: int, limit: int | None) -> None:
    if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1:
        raise BadInputError(f"batch_size={batch_size!r} is not a positive integer")
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 0):
        raise BadInputError(f"limit={limit!r} is not a count")


def _identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _require(package: str) -> None:
    import importlib.util

    if importlib.util.find_spec(package) is None:
        raise MissingExtraError(f"{package} is not installed", hint=f"pip install 'warpdata[{package}]'")
