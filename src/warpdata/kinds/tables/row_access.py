"""Python's own syntax for tables: `len(table)`, `table[5]`, `table[10:20]`, `table["label"]`, `for row in table`.

Everything goes through the public methods of `Table`, so that rows are counted in one way only.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Self, overload

from warpdata.errors import BadInputError, ErrorKind
from warpdata.limits import GIB, MIB
from warpdata.primitives.reprs import HtmlImage

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

__all__ = ["RowAccess", "check_export_size", "preview_rows", "type_text"]

_ITERATION_ROWS = 1000
_MAX_SLICE_ROWS = 1_000_000
_PREVIEW_EDGE = 96
_MAX_PREVIEWS = 20
_MAX_PREVIEW_BYTES = 16 * MIB
_MAX_EXPORT_ROWS = 1_000_000
_MAX_EXPORT_BYTES = 1 * GIB


class RowAccess:
    """Rows and columns by index. Positions count the rows that the filters of the table keep."""

    @abstractmethod
    def count(self) -> int: ...
    @abstractmethod
    def select(self, columns: Sequence[str] | str) -> Self: ...
    @abstractmethod
    def take(self, rows: Sequence[int] | NDArray[np.int64]) -> pa.Table: ...
    @abstractmethod
    def row_numbers(self) -> NDArray[np.int64]: ...
    @abstractmethod
    def batches(self, batch_size: int = 50_000) -> Iterator[pa.RecordBatch]: ...
    @property
    @abstractmethod
    def filter_text(self) -> str: ...

    def __len__(self) -> int:
        """Return `count()`: free without a filter; with one, a scan of its columns."""
        return self.count()

    def __bool__(self) -> bool:
        """Return True, so that `if table:` never scans rows."""
        return True

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield each row as a dict, in order, read in batches. References are objects."""
        for batch in self.batches(_ITERATION_ROWS):
            yield from batch.to_pylist()

    @overload
    def __getitem__(self, key: int) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, key: slice) -> pa.Table: ...
    @overload
    def __getitem__(self, key: str | list[str]) -> Self: ...
    def __getitem__(self, key: int | slice | str | list[str]) -> Any:
        """Return a row as a dict, a slice of rows as an Arrow table, or a table with only these columns.

        A row is read by page, a longer slice by row group. With a filter, each call scans the columns of the filter:
        call `row_numbers()` once and `take` for many look-ups.
        """
        if isinstance(key, str | list):
            return self.select(key)
        if isinstance(key, slice):
            return self.take(self._positions(key))
        if isinstance(key, bool) or not hasattr(key, "__index__"):
            raise BadInputError(
                f"a table is indexed by a row number, a slice or column names, not {type(key).__name__}"
            )
        position, numbers = key.__index__(), self._numbers()
        if not -len(numbers) <= position < len(numbers):
            raise IndexError(f"row {position} of a table with {len(numbers):,} rows")
        return self.take([int(numbers[position])]).to_pylist()[0]

    def _positions(self, part: slice) -> NDArray[np.int64]:
        import numpy as np

        numbers = self._numbers()
        chosen = numbers[part]
        if len(chosen) > _MAX_SLICE_ROWS:
            raise BadInputError(
                f"the slice has {len(chosen):,} rows; the limit is {_MAX_SLICE_ROWS:,}",
                hint="Stream with batches(), or read all rows with to_arrow(allow_large=True).",
                kind=ErrorKind.LARGE_EXPORT,
            )
        return np.asarray(chosen, dtype=np.int64)

    def _numbers(self) -> range | NDArray[np.int64]:
        """Return the row numbers of all positions."""
        return self.row_numbers() if self.filter_text else range(self.count())


def preview_rows(rows: Sequence[dict[str, Any]], columns: Sequence[str]) -> list[list[Any]]:
    """Return the cells of some rows, with small images for the first references to images. Never raises.

    References are recognized by their method, because tables do not know artifacts.
    """
    cells, left = [], _MAX_PREVIEWS
    for row in rows:
        values = []
        for value in (row[name] for name in columns):
            if hasattr(value, "thumbnail_png") and left:
                left -= 1
                values.append(_preview(value))
            else:
                values.append(getattr(value, "path", value))
        cells.append(values)
    return cells


def _preview(reference: Any) -> object:
    try:
        if reference.size <= _MAX_PREVIEW_BYTES:
            return HtmlImage(reference.thumbnail_png(_PREVIEW_EDGE))
    except Exception:  # noqa: BLE001 - a notebook shows the rest of the table
        return reference.path
    return reference.path


def type_text(kind: pa.DataType) -> str:
    """Return the name of a type as a preview shows it."""
    return f"ref<{kind.ref_type}>" if hasattr(kind, "ref_type") else str(kind)


def check_export_size(table: str, row_count: int, size_bytes: int, qualifier: str) -> None:
    """Raise `BadInputError` for more rows than may be read into memory without a limit."""
    if row_count > _MAX_EXPORT_ROWS or size_bytes > _MAX_EXPORT_BYTES:
        raise BadInputError(
            f"the export of table {table!r} has {qualifier}{row_count:,} rows in {size_bytes:,} bytes; "
            f"the limit is {_MAX_EXPORT_ROWS:,} rows and {_MAX_EXPORT_BYTES:,} bytes",
            hint="Pass limit=…, stream with batches(), or pass allow_large=True.",
            kind=ErrorKind.LARGE_EXPORT,
        )
