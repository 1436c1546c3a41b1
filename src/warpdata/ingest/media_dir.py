"""A folder of pictures or sounds → an artifact and a table with a row for each file.

The columns: the file, its class and its split where folders tell them, and what metadata files say.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from warpdata.errors import InvalidSourceError
from warpdata.ingest.file_types import REF_TYPE_BY_ENDING, count_endings, ref_type_of
from warpdata.ingest.folder_columns import folder_columns
from warpdata.ingest.metadata_files import METADATA_NAMES, join_metadata
from warpdata.ingest.pack import Packing
from warpdata.ingest.report import IngestReport, OnReport, log_report
from warpdata.kinds.artifacts import MemberSource, list_sources
from warpdata.publish import DatasetBuilder
from warpdata.session import Session

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["audiofolder", "imagefolder"]


def imagefolder(
    dataset_id: str,
    folder: str | Path,
    *,
    store: str | Session | None = None,
    table: str = "main",
    artifact: str = "raw_images",
    packing: Packing | None = None,
    report: OnReport = log_report,
) -> DatasetBuilder:
    """Pictures, one row each: `image` is bound to the artifact.

    `label` is the class folder of a file where there are several, `split` the outermost folder where
    all of those are called train, val, valid, validation, dev or test. `metadata.csv`, `.jsonl` or
    `.parquet` add their columns to the rows of the files named in their column `file_name`, and win
    over folders. Files that are no pictures are left out and counted in the survey.
    """
    wanted = _Wanted("image", table, artifact, packing or Packing())
    return _prepare(DatasetBuilder(dataset_id, store), Path(folder), wanted, report)


def audiofolder(
    dataset_id: str,
    folder: str | Path,
    *,
    store: str | Session | None = None,
    table: str = "main",
    artifact: str = "raw_audio",
    packing: Packing | None = None,
    report: OnReport = log_report,
) -> DatasetBuilder:
    """As `imagefolder`, for sounds in a column `audio`."""
    wanted = _Wanted("audio", table, artifact, packing or Packing())
    return _prepare(DatasetBuilder(dataset_id, store), Path(folder), wanted, report)


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What to make of a folder. The column of files is called like its type."""

    ref_type: str
    table: str
    artifact: str
    packing: Packing


@dataclass(frozen=True, slots=True)
class _Listing:
    """The files of a folder, by what they are for."""

    media: Sequence[MemberSource]
    metadata: Sequence[MemberSource]
    ignored: Sequence[MemberSource]


def _prepare(builder: DatasetBuilder, folder: Path, wanted: _Wanted, report: OnReport) -> DatasetBuilder:
    listing = _list(folder.expanduser(), wanted.ref_type)
    rows, undescribed = _rows(listing, wanted.ref_type)
    wanted.packing.add(builder, wanted.artifact, {member.path: member.content for member in listing.media})
    builder.add_table(wanted.table, rows).bind(wanted.table, wanted.ref_type, wanted.artifact, wanted.ref_type)
    ignored = count_endings(member.path for member in listing.ignored)
    report(IngestReport(str(folder), rows.num_rows, len(listing.media), ignored, undescribed))
    return builder


def _list(folder: Path, ref_type: str) -> _Listing:
    if not folder.is_dir():
        raise InvalidSourceError(f"{folder} is not a folder", hint="Check the path.")
    media, metadata, ignored = [], [], []
    for member in list_sources(folder):
        if ref_type_of(member.path) == ref_type:
            media.append(member)
        elif member.path.rpartition("/")[2] in METADATA_NAMES:
            metadata.append(member)
        else:
            ignored.append(member)
    if not media:
        endings = ", ".join(sorted(ending for ending, kind in REF_TYPE_BY_ENDING.items() if kind == ref_type))
        others = f", only {len(ignored):,} of other types" if ignored else ""
        raise InvalidSourceError(f"{folder} holds no {ref_type} file{others}", hint=f"Known endings: {endings}.")
    return _Listing(media, metadata, ignored)


def _rows(listing: _Listing, column: str) -> tuple[pa.Table, int]:
    import pyarrow as pa

    paths = [member.path for member in listing.media]
    columns: dict[str, pa.Array | pa.ChunkedArray] = {column: pa.array(paths, pa.string())}
    told = {name: pa.array(values, pa.string()) for name, values in folder_columns(paths).items()}
    if not listing.metadata:
        return pa.table({**columns, **told}), 0
    files = [(member.path, member.content) for member in listing.metadata if isinstance(member.content, Path)]
    described, undescribed = join_metadata(paths, files)
    named = {name.lower() for name in described.schema.names}
    if column in named:
        raise InvalidSourceError(
            f"{files[0][1]} has a column {column!r}, which is the name of the column of files", hint="Rename it."
        )
    columns |= {name: values for name, values in told.items() if name not in named}
    return pa.table(columns | dict(zip(described.schema.names, described.columns, strict=True))), undescribed
