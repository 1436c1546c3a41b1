"""The report of an export: its size, and the outcome of every column."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from warpdata.primitives.outcomes import FieldOutcomes
from warpdata.primitives.reprs import short_repr

__all__ = ["ExportReport"]


@dataclass(frozen=True, slots=True)
class ExportReport:
    """The result of an export, or of a dry run, which writes nothing.

    `files` counts the files of references, and `size_bytes` is their size. A column that `fields` lists as lost is not
    in the target, and one that it lists as changed has another form there.
    """

    dataset_id: str
    version: str
    table: str
    format: str
    target: Path
    rows: int
    files: int
    size_bytes: int
    is_dry_run: bool
    fields: FieldOutcomes

    def __repr__(self) -> str:
        counts = {"rows": self.rows, "files": self.files, "lost": len(self.fields.lost)}
        return short_repr("ExportReport", f"{self.dataset_id}@{self.version[:12]}", str(self.target), **counts)

    @property
    def is_lossless(self) -> bool:
        """True if every column was kept."""
        return self.fields.is_lossless

    def document(self) -> dict[str, Any]:
        """Return the report as plain values for JSON."""
        return {
            "dataset_id": self.dataset_id,
            "version": self.version,
            "table": self.table,
            "format": self.format,
            "target": str(self.target),
            "rows": self.rows,
            "files": self.files,
            "size_bytes": self.size_bytes,
            "is_dry_run": self.is_dry_run,
            "is_lossless": self.is_lossless,
            **self.fields.document("rows"),
        }

    def text(self) -> str:
        """Return the report as lines for people."""
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        rows = f"{self.rows:,} row{'' if self.rows == 1 else 's'}"
        files = f"{self.files:,} file{'' if self.files == 1 else 's'}"
        yield f"{self.dataset_id}@{self.version[:12]} to {self.target} ({self.format}): {rows}, {files}"
        yield from self.fields.lines(self.rows, "rows")
