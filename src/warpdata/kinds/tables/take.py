"""Rows by number, from anywhere in a table.

A few rows of a row group are read by page, where that is possible. Else each row group with a wanted row is decoded
once. Shards are read in parallel. A caller that takes rows repeatedly may cache decoded row groups.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from warpdata.errors import BadInputError
from warpdata.formats.parquet import GroupRows
from warpdata.kinds.tables.columns import find_widened
from warpdata.kinds.tables.edited_shard import TableShard
from warpdata.kinds.tables.table_shards import TableShards
from warpdata.primitives.arrow_buffers import as_arrow, take_rows
from warpdata.primitives.byte_lru import ByteLRU
from warpdata.primitives.parallel import IO_POOL
from warpdata.repository.manifest import Shard, ShardLookup

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

__all__ = ["RowTaker", "to_row_numbers"]


class RowTaker:
    """Takes rows of one table, and caches at most `cache_bytes` of decoded row groups.

    `find_schema` returns the schema of the columns to take. It may read a footer, in parallel with the first rows.
    """

    def __init__(
        self, lookup: ShardLookup, opener: TableShards, find_schema: Callable[[], pa.Schema], cache_bytes: int = 0
    ) -> None:
        self._lookup = lookup
        self._opener = opener
        self._find_schema = find_schema
        self._schema: pa.Schema | None = None
        self._groups: ByteLRU[tuple[Shard, int], pa.Table] = ByteLRU(cache_bytes)

    def take(self, rows: NDArray[np.int64]) -> pa.Table:
        """Return the rows with these numbers, in the order of `rows`. A number may repeat."""
        import numpy as np

        if len(rows) < 2 or bool(np.all(rows[1:] > rows[:-1])):
            return self._take_ascending(rows)
        ascending, positions = np.unique(rows, return_inverse=True)
        return take_rows(self._take_ascending(ascending), as_arrow(positions.reshape(-1)))

    def _take_ascending(self, rows: NDArray[np.int64]) -> pa.Table:
        import numpy as np
        import pyarrow as pa

        with IO_POOL.executor() as executor:
            needed = rows if self._schema is not None else np.concatenate([np.zeros(1, np.int64), rows])
            self._lookup.prepare(needed, executor.map)
            schema = executor.submit(self._known_schema)
            parts = list(executor.map(lambda part: self._take_from(part[0], part[1], schema), self._by_shard(rows)))
            return pa.concat_tables([pa.Table.from_batches([], schema.result()), *parts])

    def _known_schema(self) -> pa.Schema:
        if self._schema is None:
            self._schema = self._find_schema()
        return self._schema

    def _by_shard(self, rows: NDArray[np.int64]) -> Iterator[tuple[Shard, NDArray[np.int64]]]:
        """Yield each shard that has wanted rows, with their numbers within the shard."""
        import numpy as np

        position = 0
        while position < len(rows):
            first_row, shard = self._lookup.holding(int(rows[position]))
            end = int(np.searchsorted(rows, first_row + (shard.row_count or 0)))
            yield shard, rows[position:end] - first_row
            position = end

    def _take_from(self, shard: Shard, rows: NDArray[np.int64], schema_future: Future[pa.Schema]) -> pa.Table:
        import numpy as np
        import pyarrow as pa

        file = self._opener.open(shard)
        schema = schema_future.result()
        find_widened(file, schema.names, schema)
        wanted = []
        for group in file.row_groups():
            start, stop = np.searchsorted(rows, (group.first_row, group.first_row + group.row_count))
            if start < stop:
                wanted.append(GroupRows(group.index, rows[start:stop] - group.first_row))
        if self._groups.max_bytes:
            parts = [self._read_group(file, part.group, schema.names).take(as_arrow(part.rows)) for part in wanted]
        else:
            parts = [file.take_rows(wanted, schema.names)]
        joined = pa.concat_tables(parts).select(schema.names)
        return joined if joined.schema.equals(schema) else joined.cast(schema)

    def _read_group(self, file: TableShard, group: int, columns: Sequence[str]) -> pa.Table:
        return self._groups.get_or_create(
            (file.shard, group), lambda: file.decode(group, columns), lambda rows: int(rows.nbytes)
        )


def to_row_numbers(rows: Any, noun: str = "row numbers") -> NDArray[np.int64]:
    """Return a list of integers as an array. Raise `BadInputError` for anything else."""
    import numpy as np

    try:
        numbers = np.asarray(rows)
    except (TypeError, ValueError) as error:
        raise BadInputError(f"{noun} are a list of integers, not {type(rows).__name__}") from error
    if numbers.ndim != 1 or (numbers.size and (numbers.dtype.kind not in "iu" or int(numbers.max()) >= 2**63)):
        raise BadInputError(f"{noun} are a list of integers, not {reprlib.repr(rows)}")
    return numbers.astype(np.int64)
