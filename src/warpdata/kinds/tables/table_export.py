"""Rows of a table in memory, and handed to other libraries: Arrow, pandas, polars, the Arrow C stream.

Everything is read through the public methods of `Table`, so that limits and references are treated in one way only.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Self

from warpdata.kinds.tables.row_access import RowAccess, check_export_size
from warpdata.kinds.tables.scan import check_counts
from warpdata.primitives.arguments import check_arguments
from warpdata.primitives.extras import require

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa

__all__ = ["TableExport"]


@check_arguments
class TableExport(RowAccess):
    """The exports of a table, and the limit on rows that are read into memory at once."""

    name: str

    @abstractmethod
    def schema(self) -> pa.Schema: ...
    @abstractmethod
    def raw(self) -> Self: ...
    @abstractmethod
    def batches(
        self,
        batch_size: int = 50_000,
        columns: Sequence[str] | str | None = None,
        shard: tuple[int, int] | str | None = None,
        limit: int | None = None,
        prefetch: int | str | None = None,
    ) -> Iterator[pa.RecordBatch]: ...
    @abstractmethod
    def row_groups(
        self, shard: tuple[int, int] | str | None = None, limit: int | None = None
    ) -> Iterator[pa.Table]: ...
    @property
    @abstractmethod
    def unfiltered_count(self) -> int: ...
    @abstractmethod
    def estimated_bytes(self) -> int: ...

    def head(self, n: int = 5) -> pa.Table:
        """Return the first `n` rows, reading about as many bytes as they need."""
        return self.to_arrow(limit=n)

    def batch_dicts(
        self,
        batch_size: int = 1000,
        columns: Sequence[str] | str | None = None,
        shard: tuple[int, int] | str | None = None,
        limit: int | None = None,
        prefetch: int | str | None = None,
    ) -> Iterator[dict[str, list[Any]]]:
        """Yield batches, like `batches`, as dicts of lists."""
        for batch in self.batches(batch_size, columns, shard, limit, prefetch):
            yield batch.to_pydict()

    def to_arrow(self, limit: int | None = None, *, allow_large: bool = False) -> pa.Table:
        """Read all rows into memory. A large result needs a limit or `allow_large`, else `BadInputError`.

        The size is that of the decoded rows. Without a filter, an estimate may refuse before anything is read.
        """
        import pyarrow as pa

        check_counts(1, limit)
        is_bounded = limit is not None or allow_large
        if not is_bounded and not self.filter_text:
            check_export_size(self.name, self.unfiltered_count, self.estimated_bytes(), "about ")
        parts, row_count, size_bytes = [pa.Table.from_batches([], self.schema())], 0, 0
        for part in self.row_groups(limit=limit):
            row_count, size_bytes = row_count + part.num_rows, size_bytes + part.nbytes
            if not is_bounded:
                check_export_size(self.name, row_count, size_bytes, "at least ")
            parts.append(part)
        return pa.concat_tables(parts)

    def pandas(self, limit: int | None = None, *, allow_large: bool = False) -> pd.DataFrame:
        """Read all rows into a pandas frame, like `to_arrow`, with references as they are stored."""
        require("pandas", purpose="Table.pandas()", extra="pandas")
        frame: pd.DataFrame = self.raw().to_arrow(limit, allow_large=allow_large).to_pandas()
        return frame

    def polars(self, limit: int | None = None, *, allow_large: bool = False) -> pl.DataFrame:
        """Read all rows into a polars frame, like `to_arrow`, with references as they are stored."""
        polars = require("polars", purpose="Table.polars()", extra="polars")
        frame: pl.DataFrame = polars.from_arrow(self.raw().to_arrow(limit, allow_large=allow_large))
        return frame

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return the rows as an Arrow C stream, with references as they are stored: `pa.table(table)` and others.

        Batches are read while the consumer asks for them. A consumer that collects them holds all rows in memory.
        """
        import pyarrow as pa

        rows = self.raw()
        reader = pa.RecordBatchReader.from_batches(rows.schema(), rows.batches())
        return reader.__arrow_c_stream__(requested_schema)
