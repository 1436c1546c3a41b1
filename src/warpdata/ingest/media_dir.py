"""A directory of image or audio files: an artifact, and a table with a row for each file.

The columns are the file, its class and split if directories name them, and the columns of metadata files.
`metadata.csv`, `.jsonl` or `.parquet` describe the files in their directory, by the column `file_name`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from warpdata.errors import InvalidSourceError
from warpdata.formats.media import REF_TYPE_BY_SUFFIX, ref_type_of
from warpdata.ingest.options import IngestReport, OnReport, Packing, log_report
from warpdata.ingest.source_files import count_suffixes, read_rows
from warpdata.kinds.artifacts import MemberSource, list_sources
from warpdata.primitives.arguments import check_arguments
from warpdata.publish import DatasetBuilder
from warpdata.session import Session

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["audiofolder", "imagefolder"]

_METADATA_NAMES = frozenset({"metadata.csv", "metadata.jsonl", "metadata.parquet"})
_KEY = "file_name"
_SPLITS = frozenset({"train", "val", "valid", "validation", "dev", "test"})
_MIN_CLASSES = 2


@check_arguments
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
    """Build a dataset from images, one row each. The column `image` is bound to the artifact.

    `label` is the class directory of a file, if there are several. `split` is the outermost directory, if all of them
    are named train, val, valid, validation, dev or test. `metadata.csv`, `.jsonl` or `.parquet` add columns to the
    rows of the files in their column `file_name`, and take precedence over directories. Other files are skipped and
    counted in the report. Links that leave the directory are refused, unless `packing` has `follow_links`.
    """
    target = _Target("image", table, artifact, packing or Packing())
    return _prepare(DatasetBuilder(dataset_id, store), Path(folder), target, report)


@check_arguments
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
    """Build a dataset from audio files, like `imagefolder`, with a column `audio`."""
    target = _Target("audio", table, artifact, packing or Packing())
    return _prepare(DatasetBuilder(dataset_id, store), Path(folder), target, report)


@dataclass(frozen=True, slots=True)
class _Target:
    """The target of a directory. The column of files has the name of its type."""

    ref_type: str
    table: str
    artifact: str
    packing: Packing


@dataclass(frozen=True, slots=True)
class _Listing:
    """The files of a directory, by purpose."""

    media: Sequence[MemberSource]
    metadata: Sequence[MemberSource]
    ignored: Sequence[MemberSource]


def _prepare(builder: DatasetBuilder, folder: Path, target: _Target, report: OnReport) -> DatasetBuilder:
    listing = _list(folder.expanduser(), target)
    rows, undescribed = _rows(listing, target.ref_type)
    target.packing.add(builder, target.artifact, {member.path: member.content for member in listing.media})
    builder.add_table(target.table, rows).bind(target.table, target.ref_type, target.artifact, target.ref_type)
    ignored = count_suffixes(member.path for member in listing.ignored)
    report(IngestReport(str(folder), rows.num_rows, len(listing.media), ignored, undescribed))
    return builder


def _list(folder: Path, target: _Target) -> _Listing:
    ref_type = target.ref_type
    if not folder.is_dir():
        raise InvalidSourceError(f"{folder} is not a directory", hint="Check the path.")
    media, metadata, ignored = [], [], []
    for member in list_sources(folder, follow_links=target.packing.follow_links):
        if ref_type_of(member.path) == ref_type:
            media.append(member)
        elif member.path.rpartition("/")[2] in _METADATA_NAMES:
            metadata.append(member)
        else:
            ignored.append(member)
    if not media:
        suffixes = ", ".join(sorted(suffix for suffix, kind in REF_TYPE_BY_SUFFIX.items() if kind == ref_type))
        others = f", only {len(ignored):,} of other types" if ignored else ""
        raise InvalidSourceError(f"{folder} contains no {ref_type} file{others}", hint=f"Known suffixes: {suffixes}.")
    return _Listing(media, metadata, ignored)


def _rows(listing: _Listing, column: str) -> tuple[pa.Table, int]:
    import pyarrow as pa

    paths = [member.path for member in listing.media]
    columns: dict[str, pa.Array | pa.ChunkedArray] = {column: pa.array(paths, pa.string())}
    inferred = {name: pa.array(values, pa.string()) for name, values in _directory_columns(paths).items()}
    if not listing.metadata:
        return pa.table({**columns, **inferred}), 0
    files = [(member.path, member.content) for member in listing.metadata if isinstance(member.content, Path)]
    described, undescribed = _join_metadata(paths, files)
    named = {name.lower() for name in described.schema.names}
    if column in named:
        raise InvalidSourceError(
            f"{files[0][1]} has a column {column!r}, which is the name of the column of files", hint="Rename it."
        )
    columns |= {name: values for name, values in inferred.items() if name not in named}
    return pa.table(columns | dict(zip(described.schema.names, described.columns, strict=True))), undescribed


def _directory_columns(paths: Sequence[str]) -> dict[str, list[str | None]]:
    """Return the columns `split` and `label`, one value for each path, if the directories imply them.

    `split` is the outermost directory, if it names a split for every file. `label` is the directory below; with fewer
    than two of them there is no column.
    """
    columns: dict[str, list[str | None]] = {}
    directories = [path.split("/")[:-1] for path in paths]
    if all(inside and inside[0].lower() in _SPLITS for inside in directories):
        columns["split"] = [inside[0] for inside in directories]
        directories = [inside[1:] for inside in directories]
    labels = [inside[0] if inside else None for inside in directories]
    if len(set(labels) - {None}) >= _MIN_CLASSES:
        columns = {"label": labels, **columns}
    return columns


def _join_metadata(media: Sequence[str], files: Sequence[tuple[str, Path]]) -> tuple[pa.Table, int]:
    """Return the columns of all metadata files, with a row for each media file, in order.

    Also return the number of media files without metadata, whose cells are null. `files` are pairs of the path within
    the directory and the local path. Raise `InvalidSourceError` for a row whose file is missing or described twice.
    """
    import pyarrow as pa

    wanted = set(media)
    rows_of: dict[str, int] = {}
    tables = []
    for within, path in files:
        rows = read_rows(path)
        for row, member in _described_files(rows, within, path):
            if member not in wanted:
                raise InvalidSourceError(f"row {row} of {path} names {member!r}, which is not among the media files")
            if member in rows_of:
                raise InvalidSourceError(
                    f"row {row} of {path} describes {member!r}, which another row describes too",
                    hint="If a file has many rows, ingest the metadata as a table with csv and its media option.",
                )
            rows_of[member] = len(rows_of)
        tables.append(rows.drop_columns([_KEY]))
    try:
        joined = pa.concat_tables(tables, promote_options="permissive")
    except (pa.ArrowException, TypeError) as error:
        raise InvalidSourceError(
            f"{files[0][1]} and other metadata files have incompatible columns: {error}"
        ) from error
    order = pa.array([rows_of.get(path) for path in media], pa.int64())
    return joined.take(order), order.null_count


def _described_files(rows: pa.Table, within: str, path: Path) -> Iterator[tuple[int, str]]:
    """Yield the number of each row, and the path of its media file."""
    import pyarrow as pa

    if _KEY not in rows.schema.names or not pa.types.is_string(rows.schema.field(_KEY).type):
        raise InvalidSourceError(
            f"{path} has no text column {_KEY!r}", hint=f"Its columns: {', '.join(rows.schema.names)}"
        )
    directory = PurePosixPath(within).parent
    for row, name in enumerate(rows[_KEY].to_pylist()):
        yield row, (directory / (name or "")).as_posix()
