"""Row selections: a set of row numbers of a table, as filters, takes, samples and streams exchange it.

A selection is a range, an ascending array or a Roaring bitmap, whichever its maker had. All three answer the same
questions, and set operations keep the smaller form. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from warpdata.errors import BadInputError
from warpdata.primitives.bitmaps import bitmap_of, numbers_of, range_bitmap
from warpdata.primitives.cached_property import cached_property

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from pyroaring import BitMap

__all__ = ["RowSelection"]

_CHUNK_ROWS = 1 << 20


class RowSelection:
    """An immutable set of row numbers in ascending order. Make one with `all_rows`, `of_numbers` or `of_bitmap`."""

    def __init__(
        self, span: range | None = None, numbers: NDArray[np.int64] | None = None, bitmap: BitMap | None = None
    ) -> None:
        self._span = span
        self._bitmap = bitmap
        if numbers is not None:
            self.__dict__["numbers"] = numbers

    @staticmethod
    def all_rows(count: int, start: int = 0) -> RowSelection:
        """Return the `count` rows from `start` on."""
        return RowSelection(span=range(start, start + count))

    @staticmethod
    def of_numbers(numbers: NDArray[np.int64]) -> RowSelection:
        """Return a selection of ascending numbers without repetition. The array must not change any more."""
        if len(numbers) and int(numbers[-1]) - int(numbers[0]) == len(numbers) - 1:
            return RowSelection.all_rows(len(numbers), int(numbers[0]))
        return RowSelection(numbers=numbers)

    @staticmethod
    def of_bitmap(bitmap: BitMap) -> RowSelection:
        """Return a selection of the numbers of a 32-bit bitmap, which must not change any more."""
        return RowSelection(bitmap=bitmap)

    def __repr__(self) -> str:
        form = "range" if self._span is not None else "bitmap" if self._bitmap is not None else "array"
        return f"RowSelection({len(self):,} rows, {form})"

    def __len__(self) -> int:
        if self._span is not None:
            return len(self._span)
        return len(self._bitmap) if self._bitmap is not None else len(self.numbers)

    def __eq__(self, other: object) -> bool:
        import numpy as np

        if not isinstance(other, RowSelection):
            return NotImplemented
        if self._span is not None and other._span is not None:
            return self._span == other._span
        return len(self) == len(other) and np.array_equal(self.numbers, other.numbers)

    def __hash__(self) -> int:
        return hash(len(self))

    def __contains__(self, row: int) -> bool:
        if self._span is not None:
            return row in self._span
        if self._bitmap is not None:
            return 0 <= row < 2**32 and row in self._bitmap
        rank = self.rank(row)
        return rank < len(self) and int(self.numbers[rank]) == row

    def __and__(self, other: RowSelection) -> RowSelection:
        import numpy as np

        for one, two in ((self, other), (other, self)):
            if one._span is not None:
                return two.between(one._span.start, one._span.stop)
        if self._bitmap is not None and other._bitmap is not None:
            return RowSelection.of_bitmap(self._bitmap & other._bitmap)
        return RowSelection.of_numbers(np.intersect1d(self.numbers, other.numbers, assume_unique=True))

    def __or__(self, other: RowSelection) -> RowSelection:
        import numpy as np

        if self._bitmap is not None and other._bitmap is not None:
            return RowSelection.of_bitmap(self._bitmap | other._bitmap)
        if not len(self) or not len(other):
            return self if len(self) else other
        return RowSelection.of_numbers(np.union1d(self.numbers, other.numbers))

    def __sub__(self, other: RowSelection) -> RowSelection:
        import numpy as np

        if self._bitmap is not None and other._bitmap is not None:
            return RowSelection.of_bitmap(self._bitmap - other._bitmap)
        kept = np.ones(len(self), bool)
        common = self & other
        if not len(common):
            return self
        kept[np.searchsorted(self.numbers, common.numbers)] = False
        return RowSelection.of_numbers(self.numbers[kept])

    @cached_property
    def numbers(self) -> NDArray[np.int64]:
        """All row numbers, ascending."""
        import numpy as np

        if self._span is not None:
            return np.arange(self._span.start, self._span.stop, dtype=np.int64)
        assert self._bitmap is not None, "an array is set when it is made"
        return numbers_of(self._bitmap)

    @cached_property
    def bitmap(self) -> BitMap:
        """All row numbers as a bitmap, which must not change. They must be below 2³²."""
        if self._span is not None:
            return range_bitmap(self._span.start, self._span.stop)
        return bitmap_of(self.numbers) if self._bitmap is None else self._bitmap

    def chunks(self, rows: int = _CHUNK_ROWS) -> Iterator[NDArray[np.int64]]:
        """Yield the row numbers, ascending, in arrays of at most `rows`."""
        for start in range(0, len(self), rows):
            yield self.slice(start, start + rows).numbers

    def rank(self, row: int) -> int:
        """Return how many selected rows come before a row."""
        import numpy as np

        if self._span is not None:
            return min(max(row - self._span.start, 0), len(self._span))
        if self._bitmap is not None:
            return self._bitmap.rank(min(row, 2**32) - 1) if row > 0 else 0
        return int(np.searchsorted(self.numbers, row))

    def select(self, ranks: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the rows at these ranks: rank 0 is the first selected row."""
        if self._span is None:
            return self.numbers[ranks]
        return ranks + self._span.start if self._span.start else ranks

    def rank_of(self, row: int) -> int:
        """Return the rank of a selected row. Raise `BadInputError` for a row that is not selected."""
        if row not in self:
            raise BadInputError(f"row {row} is not selected")
        return self.rank(row)

    def slice(self, start: int, stop: int) -> RowSelection:
        """Return the rows with ranks from `start` to before `stop`."""
        if self._span is not None:
            part = self._span[start:stop]
            return RowSelection.all_rows(len(part), part.start)
        return RowSelection(numbers=self.numbers[start:stop])

    def between(self, start: int, stop: int) -> RowSelection:
        """Return the selected rows from `start` to before `stop`."""
        return self.slice(self.rank(start), self.rank(stop))
