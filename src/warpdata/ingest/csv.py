"""A table in CSV, TSV, JSON lines or Parquet, and directories of files that its columns name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from warpdata.errors import ColumnNotFoundError, InvalidSourceError
from warpdata.formats.media import ref_type_of
from warpdata.formats.parquet import describe_all
from warpdata.ingest.options import IngestReport, OnReport, Packing, log_report
from warpdata.ingest.source_files import (
    TABLE_SUFFIXES,
    FileSource,
    list_files,
    read_first,
    read_tables,
)
from warpdata.kinds.artifacts import list_sources
from warpdata.primitives.arguments import check_arguments
from warpdata.primitives.suggest import suggest
from warpdata.publish import DatasetBuilder
from warpdata.session import Session

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Media", "csv"]

_SAMPLE_ROWS = 1000


@dataclass(frozen=True, slots=True)
class Media:
    """A directory that a column refers into. With `ref_type` None, the suffixes of the first paths decide."""

    folder: str | Path
    ref_type: str | None = None


@check_arguments
def csv(
    dataset_id: str,
    source: FileSource,
    *,
    store: str | Session | None = None,
    table: str = "main",
    media: Mapping[str, Media | str | Path] | None = None,
    packing: Packing | None = None,
    report: OnReport = log_report,
) -> DatasetBuilder:
    """Build a dataset from tables, in the order of the files. Parquet files are published byte for byte.

    `media` maps a column to the directory of its paths; the paths may begin with the name of the directory. The
    whole directory becomes the artifact `raw_COLUMN`, and the column is bound to it. Columns with the same directory
    share one artifact. Empty paths become null. Links that leave a directory are refused, unless `packing` has
    `follow_links`.
    """
    packing = packing or Packing()
    builder = DatasetBuilder(dataset_id, store)
    wanted = {column: at if isinstance(at, Media) else Media(at) for column, at in (media or {}).items()}
    paths = list_files(source, TABLE_SUFFIXES, follow_links=packing.follow_links)
    if all(path.suffix.lower() == ".parquet" for path in paths):
        described = describe_all(paths)
        row_count = sum(file.row_count for file in described)
        builder.add_table(table, paths)
        first = read_first(paths[0], _SAMPLE_ROWS)
    else:
        rows = _without_empty(read_tables(paths), wanted)
        row_count = rows.num_rows
        builder.add_table(table, rows)
        first = rows.slice(0, _SAMPLE_ROWS)
    _check_columns(wanted, first.schema, paths[0])
    member_count = _bind(builder, table, _reference_types(wanted, first), packing)
    report(IngestReport(str(source), row_count, member_count))
    return builder


def _check_columns(wanted: Mapping[str, Media], schema: pa.Schema, path: Path) -> None:
    for column in wanted:
        if column not in schema.names:
            hint = suggest(column, schema.names, label="The columns are")
            raise ColumnNotFoundError(f"{path} has no column {column!r}", hint=hint)


def _without_empty(rows: pa.Table, wanted: Mapping[str, Media]) -> pa.Table:
    """Replace empty paths by null, because CSV has no null."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for position, field in enumerate(rows.schema):
        if field.name in wanted and pa.types.is_string(field.type):
            values = rows.column(position)
            filled = pc.if_else(pc.equal(values, ""), pa.scalar(None, pa.string()), values)
            rows = rows.set_column(position, field.name, filled)
    return rows


def _reference_types(wanted: Mapping[str, Media], first: pa.Table) -> dict[str, tuple[Path, str]]:
    """Return the directory and reference type of each column. The first paths decide where no type is given."""
    chosen = {}
    for column, media in wanted.items():
        named = {ref_type_of(path) for path in first[column].to_pylist() if isinstance(path, str)}
        found = named.pop() if len(named) == 1 else None
        chosen[column] = Path(media.folder).expanduser(), media.ref_type or found or "file"
    return chosen


def _bind(builder: DatasetBuilder, table: str, wanted: Mapping[str, tuple[Path, str]], packing: Packing) -> int:
    """Add each directory once, bind its columns, and return the number of files."""
    artifacts: dict[Path, str] = {}
    member_count = 0
    for column, (folder, ref_type) in wanted.items():
        if folder not in artifacts:
            if not folder.is_dir():
                raise InvalidSourceError(f"{folder} is not a directory", hint="Check the path.")
            member_count += len(list_sources(folder, follow_links=packing.follow_links))
            artifacts[folder] = "raw_" + re.sub(r"[^A-Za-z0-9_.-]", "_", column)
            packing.add(builder, artifacts[folder], folder)
        builder.bind(table, column, artifacts[folder], ref_type)
    return member_count
