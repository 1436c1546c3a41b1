"""The page index of a column chunk: statistics of its pages. Pure. Implements "Page index" of docs/specs/tables.md."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from warpdata.errors import CorruptError
from warpdata.formats.parquet.footer import ChunkStatistics
from warpdata.formats.parquet.thrift import read_integer, read_list_size, read_varint, skip
from warpdata.limits import MAX_THRIFT_DEPTH
from warpdata.query import Bounds, Predicate, can_match

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["PageBounds", "find_candidates", "parse_column_index"]

_LIST = 9


@dataclass(frozen=True, slots=True)
class PageBounds:
    """The statistics of the pages of a column. `first_rows` has one more entry: the rows of the row group."""

    first_rows: NDArray[np.int64]
    bounds: tuple[Bounds, ...]


def parse_column_index(data: bytes) -> list[ChunkStatistics] | None:
    """Return the statistics of each page as they are stored; None if the bytes are no column index."""
    try:
        lists = _read_lists(data)
    except (IndexError, CorruptError):
        return None
    empty, minima, maxima, nulls = (lists.get(number) for number in (1, 2, 3, 5))
    if empty is None or minima is None or maxima is None or not len(empty) == len(minima) == len(maxima):
        return None
    counts = [None] * len(empty) if nulls is None else nulls
    if len(counts) != len(empty):
        return None
    out = []
    for is_empty, minimum, maximum, null_count in zip(empty, minima, maxima, counts, strict=True):
        low, high = (None, None) if is_empty else (minimum, maximum)
        out.append(ChunkStatistics(low, high, null_count))
    return out


def _read_lists(data: bytes) -> dict[int, list[Any]]:
    """Return the lists of a struct, by the number of their field."""
    found: dict[int, list[Any]] = {}
    position = number = 0
    while header := data[position]:
        number += header >> 4
        position += 1
        if header & 15 != _LIST or number > 5:
            position = skip(data, position, header & 15, MAX_THRIFT_DEPTH)
            continue
        count, start = read_list_size(data, position)
        kind = data[position] & 15
        if count > len(data):
            raise CorruptError("a list has more items than bytes")
        position = start
        items: list[Any] = []
        for _ in range(count):
            if kind == 8:
                size_bytes, position = read_varint(data, position)
                items.append(data[position : position + size_bytes])
                position += size_bytes
            elif kind in (1, 2):
                items.append(data[position] == 1)
                position += 1
            else:
                item, position = read_integer(data, position)
                items.append(item)
        found[number] = items
    if position >= len(data):
        raise CorruptError("it ends within a field")
    return found


def find_candidates(predicate: Predicate, columns: dict[str, PageBounds]) -> NDArray[np.int64]:
    """Return the rows of the pages that may have a match, ascending."""
    import numpy as np

    cuts = np.unique(np.concatenate([pages.first_rows for pages in columns.values()]))
    places = {
        name: (np.searchsorted(pages.first_rows, cuts[:-1], "right") - 1).tolist() for name, pages in columns.items()
    }
    kept = [
        np.arange(start, stop)
        for number, (start, stop) in enumerate(zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True))
        if can_match(predicate, {name: columns[name].bounds[at[number]] for name, at in places.items()})
    ]
    return np.concatenate([np.empty(0, np.int64), *kept])
