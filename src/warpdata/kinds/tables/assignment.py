"""Which rows a rank reads. Pure: counts and borders in, row numbers out.

Every rank gets a contiguous range of rows of nearly equal size, so no rank is idle while another
has work to share. Where a file or row-group border lies close to the ideal cut, the cut moves onto
it, which saves both neighbours from reading the same row group. Both compute the same cut, because
it depends only on the dataset and the world size. Implements "Assignment" of docs/specs/tables.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from warpdata.errors import BadInputError

__all__ = ["RowRange", "assign_rows", "check_rank", "snap"]

_TOLERANCE_FRACTION = 8
"""A cut moves by at most one eighth of a rank's share."""


@dataclass(frozen=True, slots=True)
class RowRange:
    start: int
    stop: int


def check_rank(shard: tuple[int, int]) -> tuple[int, int]:
    """`(rank, world_size)`, or an error that says what is wrong with it."""
    valid = len(shard) == 2 and all(isinstance(part, int) and not isinstance(part, bool) for part in shard)
    if not valid or not 0 <= shard[0] < shard[1]:
        raise BadInputError(f"shard={shard!r} is not (rank, world_size) with 0 <= rank < world_size")
    return shard


def assign_rows(row_count: int, rank: int, world_size: int, borders_near: Callable[[int], Iterable[int]]) -> RowRange:
    """The rows of one rank. `borders_near(row)` gives the borders of the file that holds the row."""

    def cut(position: int) -> int:
        ideal = position * row_count // world_size
        tolerance = row_count // (world_size * _TOLERANCE_FRACTION)
        if position in (0, world_size) or tolerance == 0:
            return ideal
        return snap(ideal, borders_near(ideal), tolerance)

    return RowRange(cut(rank), cut(rank + 1))


def snap(row: int, borders: Iterable[int], tolerance: int) -> int:
    """The border nearest to `row`, the lower of two; `row` itself when none is within `tolerance`."""
    nearest = min(borders, key=lambda border: (abs(border - row), border), default=row)
    return nearest if abs(nearest - row) <= tolerance else row
