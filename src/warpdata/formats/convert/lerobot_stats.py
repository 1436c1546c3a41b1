"""Smallest, largest, mean and spread of each feature, gathered row by row in float64."""

from __future__ import annotations

from typing import Any

import numpy as np

from warpdata.formats.convert.episode_fields import Array

__all__ = ["Stats"]


class Stats:
    """Of one feature. Pictures are counted by colour, from 0 to 1, as LeRobot does."""

    def __init__(self, *, is_picture: bool = False) -> None:
        self._is_picture = is_picture
        self._frames = self._count = 0
        self._min: Any = None
        self._max: Any = None
        self._sum: Any = 0.0
        self._squares: Any = 0.0

    def add(self, rows: Array) -> None:
        if not len(rows):
            return
        self._frames += len(rows)
        with np.errstate(invalid="ignore"):
            values = rows.astype(np.float64)
        if self._is_picture:
            values = (values / 255).reshape(-1, rows.shape[-1])
        with np.errstate(all="ignore"):
            low, high = values.min(axis=0), values.max(axis=0)
            self._min = low if self._min is None else np.minimum(self._min, low)
            self._max = high if self._max is None else np.maximum(self._max, high)
            self._sum = self._sum + values.sum(axis=0)
            self._squares = self._squares + (values**2).sum(axis=0)
        self._count += len(values)

    def document(self) -> dict[str, Any] | None:
        """`None` where nothing was added, or where a number is not one."""
        if not self._count:
            return None
        with np.errstate(all="ignore"):
            mean = self._sum / self._count
            std = np.sqrt(np.maximum(self._squares / self._count - mean**2, 0))
        found = {"min": self._min, "max": self._max, "mean": mean, "std": std}
        if not all(np.isfinite(value).all() for value in found.values()):
            return None
        shape = (-1, 1, 1) if self._is_picture else None
        shaped = {
            name: np.atleast_1d(value).reshape(shape or np.atleast_1d(value).shape) for name, value in found.items()
        }
        return {**{name: value.tolist() for name, value in shaped.items()}, "count": [self._frames]}
