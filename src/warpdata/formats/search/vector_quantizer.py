"""Quantizers of vectors: which lists are near to a query, and what the codes of their members mean. Pure.

Estimates are sums of whole numbers that floating point holds exactly. So every machine ranks lists and members alike,
whatever its instructions and the order of its sums. Implements "Quantizers" and "Estimates" of docs/specs/search.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from warpdata.primitives.cached_property import cached_property

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["CellQuantizer", "CodeWeights", "ListQuantizer", "Quantizer", "ScalarCodes", "SignQuantizer"]

_EXACT_32, _EXACT_64 = 2.0**24, 2.0**50
"""Sums of whole numbers up to these are exact in float32, and with some room in float64."""
_WIDE_SIZE = 1024
"""Larger vectors are estimated in float64, because float32 leaves too few bits for each number."""
_MAX_CODE = 255


@dataclass(frozen=True, eq=False)
class CodeWeights:
    """A query as codes are compared with it: a whole number for each place of a code, as a floating-point number."""

    weights: NDArray[Any]
    scale: float
    """The estimate of a product is `codes @ weights / scale + constant`."""
    constant: float


class Quantizer(Protocol):
    """Ranks lists for a query, and weighs codes."""

    @property
    def list_count(self) -> int: ...
    def keys(self, direction: NDArray[np.float64], *, is_distance: bool) -> NDArray[np.float64]:
        """Return a number for each list; the greater, the nearer to the query."""
        ...

    def weigh(self, direction: NDArray[np.float64]) -> CodeWeights: ...


def _whole(values: NDArray[Any], bits: int) -> tuple[NDArray[np.float64], float]:
    """Return values times a scale, rounded to whole numbers of at most so many bits, and the scale."""
    most = float(np.abs(values).max(initial=0.0))
    scale = 2.0**bits / most if most else 1.0
    whole: NDArray[np.float64] = np.rint(values.astype(np.float64) * scale)
    return whole, scale


@dataclass(frozen=True, eq=False)
class _WholeMatrix:
    """Centroids as whole numbers, so that their products with a query are exact."""

    values: NDArray[np.float64]
    scale: float
    squares: NDArray[np.float64]
    bits: int

    @staticmethod
    def of(centroids: NDArray[np.float32]) -> _WholeMatrix:
        bits = int((50 - np.ceil(np.log2(max(centroids.shape[1], 1)))) // 2)
        values, scale = _whole(centroids, bits)
        return _WholeMatrix(values, scale, (values * values).sum(axis=1) / scale**2, bits)

    def keys(self, direction: NDArray[np.float64], *, is_distance: bool) -> NDArray[np.float64]:
        query, scale = _whole(direction, self.bits)
        products: NDArray[np.float64] = (self.values @ query) / (scale * self.scale)
        return 2 * products - self.squares if is_distance else products


@dataclass(frozen=True, eq=False)
class ScalarCodes:
    """Codes of one byte for each number of a vector."""

    minimum: NDArray[np.float32]
    """The number at which code 0 begins, by position of the vector."""
    step: NDArray[np.float32]
    """The width of a code."""

    @cached_property
    def offset(self) -> NDArray[np.float64]:
        """The number that code 0 means."""
        return self.minimum.astype(np.float64) + self.step.astype(np.float64) / 2

    def weigh(self, direction: NDArray[np.float64]) -> CodeWeights:
        weights = self.step.astype(np.float64) * direction
        is_wide = len(weights) > _WIDE_SIZE
        total = float(np.abs(weights).sum())
        room = (_EXACT_64 if is_wide else _EXACT_32) / _MAX_CODE - len(weights)
        scale = room / total if total else 1.0
        whole = np.rint(weights * scale).astype(np.float64 if is_wide else np.float32)
        return CodeWeights(whole, scale, float((self.offset * direction).sum()))

    def squares(self, codes: NDArray[np.uint8]) -> NDArray[np.float64]:
        """Return the squared lengths of the vectors that codes mean."""
        vectors = codes * self.step.astype(np.float64) + self.offset
        lengths: NDArray[np.float64] = (vectors * vectors).sum(axis=1)
        return lengths


@dataclass(frozen=True, eq=False)
class ListQuantizer:
    """Kind `ivf`: a list for each centroid."""

    centroids: NDArray[np.float32]
    codes: ScalarCodes

    @property
    def list_count(self) -> int:
        return len(self.centroids)

    @cached_property
    def _matrix(self) -> _WholeMatrix:
        return _WholeMatrix.of(self.centroids)

    def keys(self, direction: NDArray[np.float64], *, is_distance: bool) -> NDArray[np.float64]:
        return self._matrix.keys(direction, is_distance=is_distance)

    def weigh(self, direction: NDArray[np.float64]) -> CodeWeights:
        return self.codes.weigh(direction)


@dataclass(frozen=True, eq=False)
class CellQuantizer:
    """Kind `imi`: the halves of vectors have centroids of their own, and each pair of them has a list, a cell."""

    centroids: NDArray[np.float32]
    """The first half of each row is a centroid of first halves, the second half one of second halves."""
    codes: ScalarCodes

    @property
    def list_count(self) -> int:
        return len(self.centroids) ** 2

    @cached_property
    def _halves(self) -> tuple[_WholeMatrix, _WholeMatrix]:
        half = self.centroids.shape[1] // 2
        return _WholeMatrix.of(self.centroids[:, :half]), _WholeMatrix.of(self.centroids[:, half:])

    def keys(self, direction: NDArray[np.float64], *, is_distance: bool) -> NDArray[np.float64]:
        """Return the sums of both halves. Halves are compared by distance, because they differ in length."""
        first, second = self._halves
        half = self.centroids.shape[1] // 2
        rows, columns = (
            first.keys(direction[:half], is_distance=True),
            second.keys(direction[half:], is_distance=True),
        )
        keys: NDArray[np.float64] = (rows[:, None] + columns[None, :]).reshape(-1)
        return keys

    def weigh(self, direction: NDArray[np.float64]) -> CodeWeights:
        return self.codes.weigh(direction)


@dataclass(frozen=True, eq=False)
class SignQuantizer:
    """Kind `lsh`: a bit for each plane says on which side of it a vector is. The first bits choose the list."""

    planes: NDArray[np.float32]
    """The normals of the planes, a multiple of 8 of them."""
    list_bits: int

    @property
    def list_count(self) -> int:
        return 1 << self.list_bits

    @cached_property
    def _patterns(self) -> NDArray[np.float64]:
        """The first bits of each list, as 1 and -1. The highest bit of its number comes first."""
        shifts = np.arange(self.list_bits - 1, -1, -1)
        bits = (np.arange(self.list_count)[:, None] >> shifts) & 1
        return bits.astype(np.float64) * 2 - 1

    def _sides(self, direction: NDArray[np.float64]) -> NDArray[np.float64]:
        sides: NDArray[np.float64] = (self.planes.astype(np.float64) * direction).sum(axis=1)
        return sides

    def keys(self, direction: NDArray[np.float64], *, is_distance: bool) -> NDArray[np.float64]:
        del is_distance  # directions are compared, whatever the lengths
        whole, scale = _whole(self._sides(direction)[: self.list_bits], 40)
        keys: NDArray[np.float64] = np.asarray(self._patterns @ whole / scale, np.float64)
        return keys

    def weigh(self, direction: NDArray[np.float64]) -> CodeWeights:
        sides = self._sides(direction)
        total = float(np.abs(sides).sum())
        scale = (_EXACT_32 - len(sides)) / total if total else 1.0
        return CodeWeights(np.rint(sides * scale).astype(np.float32), scale, 0.0)
