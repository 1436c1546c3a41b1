"""`Hits`: the rows that a search found, best first, and how it found them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from warpdata.kinds.tables import preview_rows
from warpdata.primitives.reprs import html_table, short_repr
from warpdata.search.request import ID_COLUMN, SCORE_COLUMN

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

__all__ = ["Hits", "SearchExplanation", "SearchPart"]

_SHOWN_HITS = 20


@dataclass(frozen=True)
class SearchPart:
    """A part of a search: one column of vectors, or one of text."""

    column: str
    kind: str
    """The metric, such as "cosine", or "bm25"."""
    index: str | None
    """The index that answered; None if no shard has one."""
    compared: int
    """Rows that were compared exactly."""
    skipped: int
    """Rows without a value that can be compared: nulls, NaN and infinity, and for cosine zero vectors."""
    scanned: int
    """Rows that were read from the table, because no index covers them."""
    lists: int = 0
    """Lists of the index that were read."""
    recall: float = 1.0
    """Estimate of the part of the best rows that was found; 1.0 for an exact search."""


@dataclass(frozen=True)
class SearchExplanation:
    """How a search found its rows. `str()` is a summary for people."""

    table: str
    filter: str
    rows: int
    """Rows of the table."""
    selected: int
    """Rows that the filter keeps."""
    parts: tuple[SearchPart, ...]
    requests: int
    bytes_fetched: int
    """Requests to the store and the bytes they returned, as the session counted them during the search."""

    def __str__(self) -> str:
        lines = [f"search of {self.table!r}: {self.selected:,} of {self.rows:,} rows"]
        if self.filter:
            lines.append(f"  filter: {self.filter}")
        for part in self.parts:
            way = "scan" if part.index is None else f"index {part.index!r}, {part.lists:,} lists"
            lines.append(f"  {part.column!r} by {part.kind}: {way}")
            lines.append(
                f"    {part.compared:,} rows compared exactly, {part.scanned:,} scanned, {part.skipped:,} without a "
                f"value; recall {'1 (exact)' if part.recall == 1 else f'about {part.recall:.2f}'}"
            )
        if len(self.parts) > 1:
            lines.append("  fused by reciprocal rank")
        lines.append(f"  {self.requests:,} requests, {self.bytes_fetched:,} bytes")
        return "\n".join(lines)


class Hits:
    """Rows that a search found, best first: the columns asked for, `_score` and the sample id as `_id`."""

    def __init__(self, rows: pa.Table, numbers: NDArray[np.int64], explanation: SearchExplanation) -> None:
        self._rows = rows
        self._numbers = numbers
        self._explanation = explanation

    def __repr__(self) -> str:
        return short_repr("Hits", len(self), columns=self._rows.column_names)

    def _repr_html_(self) -> str:
        names = self._rows.column_names
        shown = preview_rows(self._rows.slice(0, _SHOWN_HITS).to_pylist(), names)
        notes = [f"{len(self) - _SHOWN_HITS} more"] if len(self) > _SHOWN_HITS else []
        return html_table(f"{len(self)} hits", names, shown, notes=notes)

    def __len__(self) -> int:
        return int(self._rows.num_rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield each hit as a dict, best first. References are objects."""
        yield from self._rows.to_pylist()

    def __getitem__(self, position: int) -> dict[str, Any]:
        rows = self._rows.slice(range(len(self))[position], 1).to_pylist()
        found: dict[str, Any] = rows[0]
        return found

    @property
    def ids(self) -> list[int]:
        """Sample ids, best first."""
        found: list[int] = self._rows[ID_COLUMN].to_pylist()
        return found

    @property
    def scores(self) -> list[float]:
        """Scores, best first. A higher score is better."""
        found: list[float] = self._rows[SCORE_COLUMN].to_pylist()
        return found

    @property
    def row_numbers(self) -> NDArray[np.int64]:
        """Numbers of the rows in the table, best first, as `Table.take` counts them."""
        return self._numbers

    def to_arrow(self) -> pa.Table:
        """Return the hits as an Arrow table."""
        return self._rows

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self._rows.__arrow_c_stream__(requested_schema)

    def explain(self) -> SearchExplanation:
        """Return how the rows were found: indexes, rows compared, requests and bytes."""
        return self._explanation
