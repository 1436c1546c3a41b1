"""Rows as JSON: exact where JSON can be, and bounded.

Times are texts, decimals are texts, and NaN and the infinities are the texts "NaN", "Infinity" and "-Infinity", because
JSON has no such numbers. Bytes are not sent: a cell states their number. Long texts and lists are cut, and the row
names the columns where that happened.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from warpdata.primitives.arrow_text import plain_column

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["MAX_CELL_ITEMS", "MAX_CELL_TEXT", "json_rows"]

MAX_CELL_TEXT = 16_384
MAX_CELL_ITEMS = 4096


def json_rows(rows: pa.Table) -> list[tuple[dict[str, Any], list[str]]]:
    """Return the values of each row by column, and the columns that were cut."""
    columns = [(name, plain_column(rows.column(at)).to_pylist()) for at, name in enumerate(rows.schema.names)]
    found = []
    for at in range(rows.num_rows):
        values, cut = {}, []
        for name, cells in columns:
            cell = _Cell()
            values[name] = cell.plain(cells[at])
            if cell.is_cut:
                cut.append(name)
        found.append((values, cut))
    return found


class _Cell:
    """One cell on its way to JSON. `is_cut` tells whether a part of it was left out."""

    def __init__(self) -> None:
        self.is_cut = False
        self._items = 0

    def plain(self, value: Any) -> Any:
        if value is None or isinstance(value, bool | int):
            return value
        if isinstance(value, float):
            return value if math.isfinite(value) else _NAMES.get(value, "NaN")
        if isinstance(value, str):
            self.is_cut |= len(value) > MAX_CELL_TEXT
            return value[:MAX_CELL_TEXT]
        if isinstance(value, bytes | memoryview):
            return {"size_bytes": len(value)}
        if isinstance(value, Mapping):
            return {str(name): self.plain(item) for name, item in value.items()}
        if isinstance(value, list | tuple):
            left = max(MAX_CELL_ITEMS - self._items, 0)
            self._items += len(value)
            self.is_cut |= len(value) > left
            return [self.plain(item) for item in value[:left]]
        return str(value)[:MAX_CELL_TEXT]


_NAMES = {math.inf: "Infinity", -math.inf: "-Infinity"}
