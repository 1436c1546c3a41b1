"""Options of an export, and the selected rows of a version with their reference columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from warpdata.datasets import Dataset
from warpdata.errors import BadInputError, ColumnNotFoundError
from warpdata.formats.parquet import plain_rows
from warpdata.jobs import EngineChoice
from warpdata.kinds.artifacts import FileRef, read_many
from warpdata.kinds.tables import Table
from warpdata.limits import MIB
from warpdata.primitives.sizes import parse_size
from warpdata.primitives.suggest import suggest
from warpdata.query import Filter

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Content", "ExportBatch", "ExportOptions", "ExportSource", "open_source", "path_field"]

_BATCH_ROWS = 512
_HELD_BYTES = 64 * MIB
_LARGE_BYTES = 16 * MIB

Content = bytes | FileRef
"""The content of a file: its bytes, or for a large file a reference to read piece by piece."""


@dataclass(frozen=True, slots=True)
class ExportOptions:
    """The rows and columns to export.

    `label` and `split` name columns; None means the columns `label` and `split` if the table has them, and False none.
    `media` names the column of files for formats that have one. `shard_bytes` is the approximate size of a file with
    many rows.
    """

    table: str | None = None
    columns: Sequence[str] | None = None
    filter: str | Filter | None = None
    label: str | bool | None = None
    split: str | bool | None = None
    media: str | None = None
    shard_bytes: int | str | None = None
    dry_run: bool = False
    engine: EngineChoice = None
    """The engine whose workers write the files of references."""

    def shard_size(self, default: int) -> int:
        size = default if self.shard_bytes is None else parse_size(self.shard_bytes)
        if size < 1:
            raise BadInputError(f"shard_bytes={self.shard_bytes!r} is not a size")
        return size


@dataclass(frozen=True, slots=True)
class ExportBatch:
    """Some rows as they are stored, and the references of their bound columns. `first_row` counts over the export."""

    rows: pa.RecordBatch
    refs: dict[str, list[FileRef | None]]
    first_row: int
    leaves_files: bool = False
    """Members are not read here, because the workers of an engine read them."""

    def contents(self, column: str) -> list[Content | None]:
        """Return the verified contents of a column. Small files are read together, large ones by the caller."""
        refs = self.refs[column]
        small = [ref if ref is not None and self._is_read_here(ref) else None for ref in refs]
        return [ref if read is None else read for ref, read in zip(refs, read_many(small), strict=True)]

    def _is_read_here(self, ref: FileRef) -> bool:
        """Byte ranges are always read: the names of their files depend on their content."""
        return ref.size <= _LARGE_BYTES and not (self.leaves_files and isinstance(ref.locator, str))


@dataclass(frozen=True, slots=True)
class ExportSource:
    """The selected rows of one table. `schema` has the stored types; `ref_types` has the bound columns."""

    dataset: Dataset
    name: str
    table: Table
    schema: pa.Schema
    ref_types: dict[str, str]
    label: str | None
    split: str | None
    options: ExportOptions = field(default_factory=ExportOptions)

    def batches(self, *, holds_large: bool = False) -> Iterator[ExportBatch]:
        """Yield rows in order, in batches whose small files fit into memory together.

        `holds_large`: large files are held too, so that a batch has at most one that exceeds the memory.
        """
        first_row = 0
        for batch in self.table.batches(_BATCH_ROWS):
            refs = {name: batch.column(name).to_pylist() for name in self.ref_types}
            for column in refs.values():
                _prepare(column)
            stored = plain_rows(batch)
            for start, stop in _ranges(refs, batch.num_rows, holds_large=holds_large):
                part = {name: column[start:stop] for name, column in refs.items()}
                leaves_files = self.options.engine is not None
                yield ExportBatch(stored.slice(start, stop - start), part, first_row + start, leaves_files)
            first_row += batch.num_rows

    def narrow(self, columns: Sequence[str]) -> ExportSource:
        """Return the source with only these bound columns."""
        table = self.table.select(columns)
        ref_types = {name: self.ref_types[name] for name in columns}
        return replace(self, table=table, schema=table.raw().schema(), ref_types=ref_types, label=None, split=None)


def path_field(column: str) -> str:
    """Return the name, in a report, of the member paths of a column, which most formats do not keep."""
    return f"paths of {column}"


def open_source(dataset: Dataset, options: ExportOptions) -> ExportSource:
    """Select the rows. `BadInputError` or `NotFoundError` for options that name something else."""
    name = options.table or dataset.main_table()
    table = dataset.table(name)
    if options.filter is not None:
        table = table.filter(options.filter)
    if options.columns is not None:
        table = table.select(options.columns)
    schema = table.raw().schema()
    if not schema.names:
        raise BadInputError(f"table {name!r} has no columns to export")
    bound = dataset.bound_artifacts(name)
    ref_types = {column: bound[column][1] for column in schema.names if column in bound}
    label = _named_column(options.label, "label", schema)
    split = _named_column(options.split, "split", schema)
    return ExportSource(dataset, name, table, schema, ref_types, label, split, options)


def _prepare(refs: Sequence[FileRef | None]) -> None:
    """Fetch the index pages of all members together, instead of one at a time."""
    paths = [ref.locator for ref in refs if ref is not None and isinstance(ref.locator, str)]
    first = next((ref for ref in refs if ref is not None), None)
    if first is not None and paths:
        first.artifact.prepare(paths)


def _named_column(given: str | bool | None, default: str, schema: pa.Schema) -> str | None:
    if given is False:
        return None
    if given is None or given is True:
        return default if default in schema.names else None
    if given not in schema.names:
        hint = suggest(given, schema.names, label="The columns are")
        raise ColumnNotFoundError(f"the exported rows have no column {given!r}", hint=hint)
    return given


def _ranges(refs: dict[str, list[FileRef | None]], row_count: int, *, holds_large: bool) -> Iterator[tuple[int, int]]:
    """Cut rows so that the files that a range holds fit into memory."""
    start, held = 0, 0
    for row in range(row_count):
        sizes = [column[row].size for column in refs.values() if column[row] is not None]  # type: ignore[union-attr]
        size = sum(size for size in sizes if holds_large or size <= _LARGE_BYTES)
        if held + size > _HELD_BYTES and row > start:
            yield start, row
            start, held = row, 0
        held += size
    if start < row_count:
        yield start, row_count
