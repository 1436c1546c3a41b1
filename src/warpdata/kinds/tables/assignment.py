"""Assignment of rows to ranks. Pure, apart from the launcher's environment.

Every rank gets a contiguous range of rows of nearly equal size. A cut moves onto a file or row-group border nearby, so
that two ranks do not read the same row group. Cuts depend only on the dataset and the world size, so neighbours
compute the same cut. Implements "Assignment" of docs/specs/tables.md.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from warpdata.errors import BadInputError
from warpdata.settings import detect_rank

__all__ = ["RowRange", "assign_rows", "check_rank", "resolve_rank", "snap"]

_TOLERANCE_FRACTION = 8
"""A cut moves by at most one eighth of a rank's share."""


@dataclass(frozen=True, slots=True)
class RowRange:
    """Half-open: `start` is in, `stop` is out."""

    start: int
    stop: int


def resolve_rank(shard: tuple[int, int] | str) -> tuple[int, int]:
    """Return `(rank, world_size)`; for "auto", from the launcher's environment.

    In a worker of PyTorch's DataLoader, every worker of every rank counts as a rank of its own.
    """
    if isinstance(shard, str):
        if shard != "auto":
            raise BadInputError(f"shard={shard!r} is neither 'auto' nor (rank, world_size)")
        (rank, world_size), (worker, workers) = detect_rank(), _detect_worker()
        shard = rank * workers + worker, world_size * workers
    return check_rank(shard)


def _detect_worker() -> tuple[int, int]:
    """Return `(worker, workers)` of a DataLoader, or `(0, 1)` outside of its workers, which have torch loaded."""
    data = sys.modules.get("torch.utils.data")
    worker = data.get_worker_info() if data is not None else None
    return (0, 1) if worker is None else (worker.id, worker.num_workers)


def check_rank(shard: tuple[int, int]) -> tuple[int, int]:
    """Return the pair, or raise `BadInputError` if it is not a rank and its world size."""
    is_pair = isinstance(shard, tuple | list) and len(shard) == 2
    if not is_pair or not all(isinstance(part, int) and not isinstance(part, bool) for part in shard):
        raise BadInputError(f"shard={shard!r} is not a pair of integers (rank, world_size)")
    if not 0 <= shard[0] < shard[1]:
        raise BadInputError(f"shard={shard!r} is not (rank, world_size) with 0 <= rank < world_size")
    return shard[0], shard[1]


def assign_rows(row_count: int, rank: int, world_size: int, borders_near: Callable[[int], Iterable[int]]) -> RowRange:
    """Return the rows of one rank. `borders_near(row)` returns the row-group borders of the file with this row."""

    def cut(position: int) -> int:
        ideal = position * row_count // world_size
        tolerance = row_count // (world_size * _TOLERANCE_FRACTION)
        if position in (0, world_size) or tolerance == 0:
            return ideal
        return snap(ideal, borders_near(ideal), tolerance)

    return RowRange(cut(rank), cut(rank + 1))


def snap(row: int, borders: Iterable[int], tolerance: int) -> int:
    """Return the border nearest to `row`, the lower of two; `row` if none is within `tolerance`."""
    nearest = min(borders, key=lambda border: (abs(border - row), border), default=row)
    return nearest if abs(nearest - row) <= tolerance else row
