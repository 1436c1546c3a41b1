"""Single rows by their number, wherever in the table they lie.

The unit of reading is still a row group: each that holds a wanted row is read once, several at a time. Who
takes often may keep the row groups that were read last.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

from warpdata.errors import BadInputError
from warpdata.formats.parquet import ShardFile, ShardOpener
from warpdata.primitives.arrow_buffers import as_arrow
from warpdata.repository.manifest import Shard, ShardLookup

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

__all__ = ["RowTaker"]

_SHARDS_AT_ONCE = 16


class _Kept:
    """Decoded row groups, the latest used last; so many that they have `most_bytes` together, or fewer."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._held_bytes = 0
        self._groups: OrderedDict[tuple[str, int], pa.Table] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, shard: Shard, group: int) -> pa.Table | None:
        with self._lock:
            found = self._groups.get((shard.hash, group))
            if found is not None:
                self._groups.move_to_end((shard.hash, group))
            return found

    def put(self, shard: Shard, group: int, rows: pa.Table) -> None:
        with self._lock:
            if rows.nbytes > self._most_bytes or (shard.hash, group) in self._groups:
                return
            self._groups[shard.hash, group] = rows
            self._held_bytes += rows.nbytes
            while self._held_bytes > self._most_bytes:
                self._held_bytes -= self._groups.popitem(last=False)[1].nbytes


class RowTaker:
    """Takes rows of one table. Remembers where shards begin.

    `schema` gives that of the columns to take, in order. It may have to be read, as the rows have to be, and at the
    same time.
    """

    def __init__(
        self, lookup: ShardLookup, shards: ShardOpener, schema: Callable[[], pa.Schema], keep_bytes: int = 0
    ) -> None:
        self._lookup = lookup
        self._shards = shards
        self._find_schema = schema
        self._schema: pa.Schema | None = None
        self._kept = _Kept(keep_bytes)

    def take(self, rows: NDArray[np.int64]) -> pa.Table:
        """The rows with these numbers, which must ascend."""
        import numpy as np
        import pyarrow as pa

        if len(rows) > 1 and not np.all(rows[1:] > rows[:-1]):
            raise BadInputError("row numbers must ascend")
        with ThreadPoolExecutor(_SHARDS_AT_ONCE, thread_name_prefix="warp-rows") as pool:
            if self._schema is None:  # the first shard tells it
                self._lookup.prepare(np.concatenate([np.zeros(1, np.int64), rows]), pool.map)
            else:
                self._lookup.prepare(rows, pool.map)
            schema = pool.submit(self._known_schema)
            parts = list(pool.map(lambda part: self._take_from(part[0], part[1], schema), self._by_shard(rows)))
            return pa.concat_tables([pa.Table.from_batches([], schema.result()), *parts])

    def _known_schema(self) -> pa.Schema:
        if self._schema is None:
            self._schema = self._find_schema()
        return self._schema

    def _by_shard(self, rows: NDArray[np.int64]) -> Iterator[tuple[Shard, NDArray[np.int64]]]:
        """Each shard that has wanted rows, and their numbers within it."""
        import numpy as np

        at = 0
        while at < len(rows):
            first_row, shard = self._lookup.holding(int(rows[at]))
            end = int(np.searchsorted(rows, first_row + (shard.row_count or 0)))
            yield shard, rows[at:end] - first_row
            at = end

    def _take_from(self, shard: Shard, rows: NDArray[np.int64], coming: Future[pa.Schema]) -> pa.Table:
        import numpy as np
        import pyarrow as pa

        file, parts = self._shards.open(shard), []
        schema = coming.result()
        for group in file.row_groups():
            start, stop = np.searchsorted(rows, (group.first_row, group.first_row + group.row_count))
            if start < stop:
                held = self._group(file, group.index, schema.names)
                parts.append(held.take(as_arrow(rows[start:stop] - group.first_row)))
        joined = pa.concat_tables(parts).select(schema.names)
        return joined if joined.schema.equals(schema) else joined.cast(schema)

    def _group(self, file: ShardFile, group: int, names: Sequence[str]) -> pa.Table:
        found = self._kept.get(file.shard, group)
        if found is None:
            found = file.decode(group, names, file.fetch(group, names))
            self._kept.put(file.shard, group, found)
        return found
