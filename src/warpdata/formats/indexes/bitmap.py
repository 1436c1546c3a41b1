"""Bitmap segments: for each distinct value, the rows that have it.

Implements "Bitmap" of docs/specs/indexes.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from warpdata.errors import CorruptError, LimitExceededError
from warpdata.formats.indexes.decoded_groups import decode_group, find_rows
from warpdata.formats.indexes.directory import Segment
from warpdata.formats.indexes.values import is_list, plain_values, restore_values
from warpdata.formats.parquet import ShardFile, write_row_groups
from warpdata.limits import KIB, MAX_BITMAP_VALUES
from warpdata.primitives.arrow_buffers import as_bits, as_numpy
from warpdata.primitives.bitmaps import bitmap_of
from warpdata.primitives.cached_property import cached_property
from warpdata.primitives.parallel import IO_POOL
from warpdata.query import Compare, IsNull, Leaf, can_match, evaluate_mask, over_column, value_key

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray
    from pyroaring import BitMap

__all__ = ["BitmapSegment", "write_bitmap"]

_COLUMNS = ["value", "count", "rows"]
_GROUP_BYTES = 256 * KIB
_VALUE_BYTES = 8
"""Bytes of bitmaps that take as long to read as one value of a scan."""


def write_bitmap(chunks: Iterable[pa.Array], column_type: pa.DataType, value_type: pa.DataType, path: Path) -> int:
    """Write the segment of a column, whose rows come in chunks. Return the rows of the file.

    Raise `LimitExceededError` for too many values. Memory holds the bitmaps of all values.
    """
    import pyarrow as pa

    maker = _BitmapMaker(column_type, value_type)
    for chunk in chunks:
        maker.add(chunk)
    schema = pa.schema([("value", value_type), ("count", pa.int64()), ("rows", pa.binary())])
    write_row_groups(maker.groups(schema), schema, path, statistics=("value", "count"))
    return len(maker.bitmaps) + bool(maker.nulls)


class _BitmapMaker:
    """Collects the rows of each value."""

    def __init__(self, column_type: pa.DataType, value_type: pa.DataType) -> None:
        from pyroaring import BitMap

        self._is_list = is_list(column_type)
        self._value_type = value_type
        self._stored_type: pa.DataType | None = None
        self._row_count = 0
        self.bitmaps: dict[Any, BitMap] = {}
        self.nulls = BitMap()

    def add(self, chunk: pa.Array) -> None:
        """Add the next rows of the column."""
        import numpy as np
        import pyarrow.compute as pc

        if chunk.null_count:
            self.nulls |= bitmap_of(np.flatnonzero(as_numpy(pc.is_null(chunk))) + self._row_count)
        if self._is_list:
            values, parents = chunk.flatten(), as_numpy(pc.list_parent_indices(chunk)).astype(np.int64)
        else:
            values, parents = chunk, np.arange(len(chunk))
        self._add_values(plain_values(values, self._value_type), parents + self._row_count)
        self._row_count += len(chunk)

    def _add_values(self, values: pa.Array, rows: NDArray[np.int64]) -> None:
        import numpy as np
        import pyarrow as pa

        self._stored_type = values.type
        coded = values.dictionary_encode()
        words = [value_key(word) for word in coded.dictionary.to_pylist()]
        codes = as_numpy(coded.indices.cast(pa.int64()).fill_null(len(words)))
        order = np.argsort(codes.astype(np.min_scalar_type(len(words))), kind="stable")
        ends = np.cumsum(np.bincount(codes, minlength=len(words) + 1))
        for code, word in enumerate(words):
            found = bitmap_of(rows[order[ends[code - 1] if code else 0 : ends[code]]])
            known = self.bitmaps.get(word)
            self.bitmaps[word] = found if known is None else known | found
        if len(self.bitmaps) > MAX_BITMAP_VALUES:
            raise LimitExceededError(
                f"the column has more than {MAX_BITMAP_VALUES:,} values, the limit of a bitmap index",
                hint="Use kind='btree'.",
            )

    def groups(self, schema: pa.Schema) -> Iterator[pa.Table]:
        """Yield the row groups of the file."""
        import pyarrow as pa

        listed: list[tuple[Any, BitMap]] = [(word, self.bitmaps[word]) for word in self._ascending()]
        if self.nulls:
            listed.append((None, self.nulls))
        pending: list[tuple[Any, int, bytes]] = []
        size_bytes = 0
        for word, bitmap in listed:
            bitmap.run_optimize()
            data = bitmap.serialize()
            if pending and size_bytes + len(data) > _GROUP_BYTES:
                yield self._table(pending, schema)
                pending, size_bytes = [], 0
            pending.append((word, len(bitmap), data))
            size_bytes += len(data)
        yield self._table(pending, schema) if pending else pa.Table.from_batches([], schema)

    def _ascending(self) -> list[Any]:
        import pyarrow as pa
        import pyarrow.compute as pc

        words = list(self.bitmaps)
        values = pa.array(words, self._stored_type) if words else pa.array([], self._value_type)
        return [words[at] for at in pc.array_sort_indices(values).to_pylist()]

    def _table(self, rows: Sequence[tuple[Any, int, bytes]], schema: pa.Schema) -> pa.Table:
        import pyarrow as pa

        words, counts, data = zip(*rows, strict=True)
        values = restore_values(pa.array(words, self._stored_type or self._value_type), self._value_type)
        return pa.Table.from_arrays([values, pa.array(counts, pa.int64()), pa.array(data, pa.binary())], schema=schema)


class BitmapSegment:
    """A bitmap segment of a store. Safe to share between threads."""

    def __init__(self, file: ShardFile, segment: Segment) -> None:
        import pyarrow as pa

        if file.schema.names != _COLUMNS or file.schema.field("rows").type != pa.binary():
            raise CorruptError(f"segment {segment.hash} has the columns {file.schema.names}, not {_COLUMNS}")
        self._file = file
        self._segment = segment
        self.value_type = file.schema.field("value").type
        self._last: tuple[Leaf | None, list[int]] = (None, [])
        groups = file.row_groups()
        self._bounds = [file.bounds(group.index, ["value"]) for group in groups]
        counts = [file.bounds(group.index, ["count"]).get("count") for group in groups]
        self._most = [
            group.row_count * (known.maximum if known is not None and known.maximum is not None else segment.row_count)
            for group, known in zip(groups, counts, strict=True)
        ]

    def estimate(self, leaf: Leaf) -> int:
        """Return an upper bound of the rows for which the leaf is true. Reads nothing."""
        return min(sum(self._most[group] for group in self._candidates(leaf)), self._segment.row_count)

    def cost_rows(self, leaf: Leaf) -> int:
        """Return the work of `rows` as the number of column values that take as long to read."""
        return sum(self._file.size_bytes(group, _COLUMNS) for group in self._candidates(leaf)) // _VALUE_BYTES

    def rows(self, leaf: Leaf) -> BitMap:
        """Return the rows of the segment for which the leaf is true: a bitmap that must not change."""
        if not isinstance(leaf, Compare | IsNull):  # others are rarely asked for again, and may be large
            return self._union(self._candidates(leaf), leaf)
        return find_rows(self._file, leaf, lambda: self._union(self._candidates(leaf), leaf))

    @cached_property
    def nulls(self) -> BitMap:
        """The rows of the segment that are null. Must not change."""
        return self.rows(IsNull("value"))

    def values(self) -> list[tuple[Any, BitMap]]:
        """Return all values with their rows; null is a value."""
        parts = self._map(lambda group: self._decode(group, None), range(len(self._bounds)))
        return [pair for part in parts for pair in part]

    def _candidates(self, leaf: Leaf) -> list[int]:
        """Return the row groups that may have a value for the leaf. Estimates and reads ask for the same leaf."""
        last, found = self._last
        if last != leaf:
            renamed = over_column(leaf, "value")
            found = [group for group, bounds in enumerate(self._bounds) if can_match(renamed, bounds)]
            self._last = (leaf, found)
        return found

    def _union(self, groups: Sequence[int], leaf: Leaf) -> BitMap:
        from pyroaring import BitMap

        parts = self._map(lambda group: self._decode(group, leaf), groups)
        return BitMap.union(BitMap(), *(bitmap for part in parts for _, bitmap in part))

    def _map(self, read: Any, groups: Sequence[int]) -> list[list[tuple[Any, BitMap]]]:
        if self._file.is_local:
            return [read(group) for group in groups]
        return IO_POOL.map_all(read, groups)

    def _decode(self, group: int, leaf: Leaf | None) -> list[tuple[Any, BitMap]]:
        """Return the values of a row group for which the leaf is true, with their rows; without a leaf, all."""
        table = decode_group(self._file, group, _COLUMNS)
        if leaf is not None:
            renamed = over_column(leaf, "value")
            table = table.filter(as_bits(evaluate_mask(renamed, table.select(["value"]))))
        values = table["value"].to_pylist() if leaf is None else [None] * table.num_rows
        counts, data = table["count"].to_pylist(), table["rows"].to_pylist()
        return [(word, self._bitmap(*stored)) for word, *stored in zip(values, counts, data, strict=True)]

    def _bitmap(self, count: int | None, data: bytes | None) -> BitMap:
        from pyroaring import BitMap

        if not data:
            raise CorruptError(f"segment {self._segment.hash} has a value without a bitmap")
        try:
            bitmap = BitMap.deserialize(data)
        except (ValueError, MemoryError) as error:
            raise CorruptError(f"segment {self._segment.hash} has a value without a bitmap: {error}") from error
        if len(bitmap) != count or (len(bitmap) and bitmap.max() >= self._segment.row_count):
            raise CorruptError(
                f"segment {self._segment.hash} has a bitmap of {len(bitmap)} rows, where {count} of "
                f"{self._segment.row_count} are expected"
            )
        return bitmap
