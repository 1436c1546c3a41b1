"""A map of a column of vectors: each row as a point of a plane, by principal components.

The method is plain and repeatable. The components follow from at most 20,000 rows, spread evenly over the table, and
all rows are projected onto the first two. Points are whole numbers of 16 bits on a common scale, so that a region of
the map means the same rows to everyone who draws it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from warpdata.errors import BadInputError
from warpdata.formats.search import find_usable, squared_lengths
from warpdata.kinds.tables import Table, iter_vectors
from warpdata.primitives.progress import Progress, ProgressCounter
from warpdata.repository.rows import RowSelection
from warpdata.search.request import check_vector_column

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["MAP_EDGE", "Projection", "project_vectors"]

MAP_EDGE = 65_535
"""The largest coordinate of a point."""
_SAMPLE_ROWS = 20_000
_SAMPLE_NUMBERS = 32_000_000
_MARGIN = 0.02
_TAIL = 0.0005
"""Share of the points at each end of an axis that may be moved to the edge of the map."""


@dataclass(frozen=True, eq=False)
class Projection:
    """The points of a map: `points` has x and y of the rows in `rows`, ascending. Other rows have no vector.

    `explained` is the share of the variance along each axis. `clipped` counts points that lie outside of the map, and
    are shown at its edge.
    """

    column: str
    dimensions: int
    sampled_rows: int
    explained: tuple[float, float]
    clipped: int
    rows: NDArray[np.int64]
    points: NDArray[np.uint16]

    def inside(self, polygon: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the rows whose points are inside a polygon of map coordinates, by the even-odd rule.

        The test uses integers alone, so it is exact.
        """
        left, top = polygon.min(0)
        right, bottom = polygon.max(0)
        x, y = self.points[:, 0], self.points[:, 1]
        near = np.flatnonzero((x >= left) & (x <= right) & (y >= top) & (y <= bottom))
        px, py = x[near].astype(np.int64), y[near].astype(np.int64)
        is_inside = np.zeros(len(near), bool)
        for (x1, y1), (x2, y2) in zip(polygon, np.roll(polygon, 1, 0), strict=True):
            if y1 == y2:
                continue
            crosses = (y1 > py) != (y2 > py)
            side = (px - x1) * (y2 - y1) - (py - y1) * (x2 - x1)
            is_inside ^= crosses & ((side < 0) if y2 > y1 else (side > 0))
        return self.rows[near[is_inside]]


def project_vectors(table: Table, column: str, progress: Progress) -> Projection:
    """Project the rows of a table onto the two principal components of a column of vectors."""
    dimensions = check_vector_column(table.raw().schema(), column)
    selection = table.select_rows()
    sample = _sample(table, selection, column, dimensions)
    mean, axes, explained = _components(sample)
    rows = [np.empty(0, np.int64)]
    placed = [np.empty((0, 2), np.float32)]
    counter = ProgressCounter(progress, "rows", len(selection), 0)
    for numbers, vectors in iter_vectors(table, selection, column):
        usable = find_usable(squared_lengths(vectors), "l2")
        rows.append(numbers[usable])
        placed.append(((vectors[usable] - mean) @ axes).astype(np.float32))
        counter.add_bytes(len(numbers))
    found = np.concatenate(rows)
    points, clipped = _scale(np.concatenate(placed))
    return Projection(column, dimensions, len(sample), explained, clipped, found, points)


def _sample(table: Table, selection: RowSelection, column: str, dimensions: int) -> NDArray[np.float64]:
    """Return the vectors of rows that are spread evenly."""
    count = min(len(selection), _SAMPLE_ROWS, max(_SAMPLE_NUMBERS // dimensions, 2))
    ranks = np.unique(np.linspace(0, max(len(selection) - 1, 0), count).astype(np.int64)) if count else np.empty(0, int)
    chosen = RowSelection.of_numbers(selection.select(ranks.astype(np.int64)))
    parts: list[NDArray[Any]] = [np.empty((0, dimensions))]
    for _, vectors in iter_vectors(table, chosen, column):
        parts.append(vectors[find_usable(squared_lengths(vectors), "l2")].astype(np.float64))
    sample = np.concatenate(parts)
    if len(sample) < 2:
        raise BadInputError(f"column {column!r} has {len(sample)} vectors, and a map needs two")
    return sample


def _components(sample: NDArray[np.float64]) -> tuple[NDArray[Any], NDArray[Any], tuple[float, float]]:
    """Return the mean, the first two principal components as columns, and the share of the variance of each.

    The sign of a component is that with which its largest number is positive.
    """
    mean = sample.mean(0)
    centred = sample - mean
    count, dimensions = centred.shape
    is_wide = dimensions > count
    matrix = centred @ centred.T if is_wide else centred.T @ centred
    values, vectors = np.linalg.eigh(matrix)
    axes = np.zeros((dimensions, 2))
    for at, place in enumerate(range(len(values) - 1, max(len(values) - 3, -1), -1)):
        axis = centred.T @ vectors[:, place] if is_wide else vectors[:, place]
        length = np.linalg.norm(axis)
        if values[place] > 0 and length > 0:
            axis = axis / length
            axes[:, at] = axis * np.sign(axis[np.argmax(np.abs(axis))])
    total = float(np.trace(matrix)) or 1.0
    shares = [max(float(value), 0.0) / total for value in values[::-1][:2]] + [0.0]
    return mean.astype(np.float32), axes.astype(np.float32), (shares[0], shares[1])


def _scale(placed: NDArray[np.float32]) -> tuple[NDArray[np.uint16], int]:
    """Return whole coordinates, with one scale for both axes, and the number of points that were moved to the edge."""
    if not len(placed):
        return np.empty((0, 2), np.uint16), 0
    low, high = np.quantile(placed, [_TAIL, 1 - _TAIL], axis=0)
    lowest, highest = placed.min(0), placed.max(0)
    spread = high - low  # a tail of little length is shown whole
    low = np.where(low - lowest < spread / 4, lowest, low)
    high = np.where(highest - high < spread / 4, highest, high)
    edge = float(max(high - low)) * (1 + 2 * _MARGIN) or 1.0
    scaled = ((placed - (low + high) / 2) / edge + 0.5) * MAP_EDGE
    rounded = np.rint(scaled)
    clipped = int(((rounded < 0) | (rounded > MAP_EDGE)).any(1).sum())
    return np.clip(rounded, 0, MAP_EDGE).astype(np.uint16), clipped
