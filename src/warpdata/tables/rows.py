"""Single rows by their number, wherever in the table they lie.

The unit of reading is still a row group: each that holds a wanted row is read once, several at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from warpdata.errors import BadInputError
from warpdata.manifest import Shard, ShardLookup
from warpdata.tables.parquet import ShardOpener

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

__all__ = ["RowTaker"]

_SHARDS_AT_ONCE = 8


@dataclass(frozen=True)
class RowTaker:
    """Takes rows of one table. Remembers where shards begin."""

    lookup: ShardLookup
    shards: ShardOpener
    schema: pa.Schema
    """Of the columns to take, in order."""

    def take(self, rows: NDArray[np.int64]) -> pa.Table:
        """The rows with these numbers, which must ascend."""
        import numpy as np
        import pyarrow as pa

        if len(rows) > 1 and not np.all(rows[1:] > rows[:-1]):
            raise BadInputError("row numbers must ascend")
        with ThreadPoolExecutor(_SHARDS_AT_ONCE, thread_name_prefix="warp-rows") as pool:
            parts = list(pool.map(lambda part: self._take_from(*part), self._by_shard(rows)))
        return pa.concat_tables([pa.Table.from_batches([], self.schema), *parts])

    def _by_shard(self, rows: NDArray[np.int64]) -> Iterator[tuple[Shard, NDArray[np.int64]]]:
        """Each shard that has wanted rows, and their numbers within it."""
        import numpy as np

        at = 0
        while at < len(rows):
            first_row, shard = self.lookup.holding(int(rows[at]))
            end = int(np.searchsorted(rows, first_row + (shard.row_count or 0)))
            yield shard, rows[at:end] - first_row
            at = end

    def _take_from(self, shard: Shard, rows: NDArray[np.int64]) -> pa.Table:
        import numpy as np
        import pyarrow as pa

        file, parts = self.shards.open(shard), []
        for group in file.row_groups():
            start, stop = np.searchsorted(rows, (group.first_row, group.first_row + group.row_count))
            if start < stop:
                names: Sequence[str] = self.schema.names
                read = file.decode(group.index, names, file.fetch(group.index, names))
                parts.append(read.take(pa.array(rows[start:stop] - group.first_row)))
        joined = pa.concat_tables(parts).select(self.schema.names)
        return joined if joined.schema.equals(self.schema) else joined.cast(self.schema)
