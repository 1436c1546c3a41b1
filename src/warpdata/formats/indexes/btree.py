"""Btree segments: all values in order, each with its row. The statistics of row groups are the fences.

Implements "Btree" of docs/specs/indexes.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from warpdata.errors import CorruptError
from warpdata.formats.indexes.decoded_groups import decode_group
from warpdata.formats.indexes.directory import Segment
from warpdata.formats.indexes.values import plain_values, restore_values
from warpdata.formats.parquet import ShardFile, write_row_groups
from warpdata.primitives.arrow_buffers import as_numpy
from warpdata.primitives.bitmaps import bitmap_of, range_bitmap
from warpdata.primitives.cached_property import cached_property
from warpdata.primitives.parallel import CPU_POOL, IO_POOL
from warpdata.query import Bounds, Compare, IsNull, Leaf, Not, Predicate, can_match, evaluate_mask, over_column

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray
    from pyroaring import BitMap

__all__ = ["BtreeSegment", "write_btree"]

_COLUMNS = ["value", "row"]
_GROUP_ROWS = 65_536
_OPPOSITE = {"=": "!=", "!=": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}


def write_btree(chunks: Iterable[pa.Array], value_type: pa.DataType, path: Path) -> int:
    """Write the segment of a column, whose rows come in chunks. Return the rows of the file.

    Memory holds all values of the segment, twice while they are sorted.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    plain = [plain_values(chunk, value_type) for chunk in chunks]
    values = pa.chunked_array(plain).combine_chunks() if plain else pa.array([], value_type)
    del plain
    order = pc.array_sort_indices(values)  # stable: equal values stay in the order of their rows
    schema = pa.schema([("value", value_type), ("row", pa.uint32())])

    def groups() -> Iterator[pa.Table]:
        border = len(values) - values.null_count  # nulls are last
        cuts = sorted({*range(0, border, _GROUP_ROWS), *range(border, len(values), _GROUP_ROWS), len(values)})
        for start, stop in pairwise(cuts):
            rows = order.slice(start, stop - start)
            part = restore_values(values.take(rows), value_type)
            yield pa.Table.from_arrays([part, rows.cast(pa.uint32())], schema=schema)
        if len(values) == 0:
            yield pa.Table.from_batches([], schema)

    write_row_groups(groups(), schema, path, dictionaries=("value",))
    return len(values)


class BtreeSegment:
    """A btree segment of a store. Safe to share between threads."""

    def __init__(self, file: ShardFile, segment: Segment) -> None:
        import pyarrow as pa

        if file.schema.names != _COLUMNS or file.schema.field("row").type != pa.uint32():
            raise CorruptError(f"segment {segment.hash} has the columns {file.schema.names}, not {_COLUMNS}")
        if segment.entries != segment.row_count:
            raise CorruptError(f"segment {segment.hash} has {segment.entries} entries for {segment.row_count} rows")
        self._file = file
        self._segment = segment
        self.value_type = file.schema.field("value").type
        groups = file.row_groups() if segment.row_count else []
        self._sizes = [group.row_count for group in groups]
        self._bounds = list(_fences([file.bounds(group.index, ["value"]) for group in groups], segment))

    def estimate(self, leaf: Leaf) -> int:
        """Return an upper bound of the rows for which the leaf is true. Reads nothing."""
        return sum(self._sizes[group] for group in self._candidates(leaf))

    def cost_rows(self, leaf: Leaf) -> int:
        """Return the work of `rows` as the number of column values that take as long to read."""
        opposite = _opposite(leaf)
        costs = [self.estimate(leaf)]
        if opposite is not None:
            costs.append(self.estimate(opposite) + self.estimate(IsNull("value")))
        return _VALUE_COST * min(costs)

    def rows(self, leaf: Leaf) -> BitMap:
        """Return the rows of the segment for which the leaf is true. Reads those of the opposite if they are fewer."""
        opposite = _opposite(leaf)
        if opposite is not None:
            nulls = self.estimate(IsNull("value"))
            if self.estimate(opposite) + nulls < self.estimate(leaf):
                return range_bitmap(0, self._segment.row_count) - self._read(opposite) - self.nulls
        return self._read(leaf)

    @cached_property
    def nulls(self) -> BitMap:
        """The rows of the segment that are null. Must not change."""
        return self._read(IsNull("value"))

    def _candidates(self, leaf: Leaf) -> list[int]:
        renamed = over_column(leaf, "value")
        return [group for group, bounds in enumerate(self._bounds) if can_match(renamed, {"value": bounds})]

    def _read(self, leaf: Leaf) -> BitMap:
        import numpy as np

        renamed, groups = over_column(leaf, "value"), self._candidates(leaf)
        pool = CPU_POOL if self._file.is_local else IO_POOL
        found = pool.map_all(lambda group: self._rows_of(group, renamed), groups)
        rows = np.concatenate([np.empty(0, np.uint32), *found])
        if len(rows) and int(rows.max()) >= self._segment.row_count:
            raise CorruptError(f"segment {self._segment.hash} has row {rows.max()} of {self._segment.row_count}")
        return bitmap_of(rows)

    def _rows_of(self, group: int, leaf: Predicate) -> NDArray[np.uint32]:
        """Return the rows of a row group. One that lies inside the leaf is read without its values."""
        bounds = self._bounds[group]
        is_inside = not can_match(Not(leaf), {"value": bounds}) and (isinstance(leaf, IsNull) or not bounds.null_count)
        if is_inside:
            return as_numpy(decode_group(self._file, group, ["row"])["row"].combine_chunks())
        table = decode_group(self._file, group, _COLUMNS)
        rows: NDArray[np.uint32] = as_numpy(table["row"].combine_chunks())
        return rows[evaluate_mask(leaf, table.select(["value"]))]


_VALUE_COST = 3
"""Values of a scan that take as long as one value of a segment, with its row put in order."""


def _fences(stored: Sequence[dict[str, Bounds]], segment: Segment) -> Iterator[Bounds]:
    """Return the statistics of the row groups. Only the last values can be NaN, because values ascend."""
    for group, known in enumerate(stored):
        bounds = known.get("value")
        if bounds is None or bounds.null_count not in (0, bounds.row_count):
            raise CorruptError(f"row group {group} of segment {segment.hash} mixes nulls and values")
        following = stored[group + 1].get("value") if group + 1 < len(stored) else None
        has_greater = following is not None and following.maximum is not None
        yield replace(bounds, may_have_nan=bounds.may_have_nan and not has_greater)


def _opposite(leaf: Leaf) -> Leaf | None:
    """Return the leaf that is true where this one is false; None if there is none."""
    return Compare(leaf.column, _OPPOSITE[leaf.op], leaf.value) if isinstance(leaf, Compare) else None
