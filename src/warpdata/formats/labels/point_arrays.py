"""Bounds and areas of many outlines at once: the numbers that `bounds_of` and `area_of` return for each of them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["point_bounds", "polygon_areas"]

_CERTAIN = 1e-9
"""Sums in another order differ by less than this part of the sum of all magnitudes."""


def point_bounds(points: NDArray[np.float64], starts: Any) -> NDArray[np.float64]:
    """Return left, top, width and height of each run of points. `starts` ends with the number of points."""
    import numpy as np

    least = np.minimum.reduceat(points, starts[:-1])
    with np.errstate(all="ignore"):
        sides = np.maximum.reduceat(points, starts[:-1]) - least
    return np.concatenate([least, sides], axis=1)


def polygon_areas(
    points: NDArray[np.float64], rings: Any, polygons: Any, stated: NDArray[np.float64] | None = None
) -> NDArray[np.float64]:
    """Return the areas of polygons. `rings` are the first points of outlines, and `polygons` the first outlines.

    An area that is far from the one `stated` is NaN, because an exact sum takes longer. One that overflows is infinite.
    """
    import numpy as np

    with np.errstate(all="ignore"):
        following = np.arange(1, len(points) + 1)
        following[rings[1:] - 1] = rings[:-1]
        x, y = points[:, 0], points[:, 1]
        cross = x * y[following] - x[following] * y
        about = np.add.reduceat(np.abs(np.add.reduceat(cross, rings[:-1])) / 2, polygons[:-1])
        error = np.add.reduceat(np.abs(cross), rings[polygons[:-1]]) * _CERTAIN
        is_near = np.ones(len(about), bool) if stated is None else np.abs(about - stated) <= error
    areas = np.where(np.isfinite(about) & np.isfinite(error), math.nan, math.inf)
    terms, ends = cross.tolist(), rings.tolist()
    for number in np.flatnonzero(is_near & np.isnan(areas)).tolist():
        spans = range(int(polygons[number]), int(polygons[number + 1]))
        areas[number] = math.fsum(abs(math.fsum(terms[ends[ring] : ends[ring + 1]])) / 2 for ring in spans)
    return areas
