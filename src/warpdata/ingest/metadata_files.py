"""`metadata.csv`, `.jsonl` or `.parquet` beside media files: further columns, joined by `file_name`.

A row describes the file of that name, counted from the folder of the metadata file. Several folders
may have one each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from warpdata.errors import InvalidSourceError
from warpdata.ingest.rows import read_rows

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["METADATA_NAMES", "join_metadata"]

METADATA_NAMES = frozenset({"metadata.csv", "metadata.jsonl", "metadata.parquet"})
_KEY = "file_name"


def join_metadata(media: Sequence[str], files: Sequence[tuple[str, Path]]) -> tuple[pa.Table, int]:
    """The columns of all `files` (path within the folder, and where it is), a row for each of `media`, in that order.

    Also, how many of them no file describes; their cells are null. `InvalidSourceError` for a row whose
    file is not there, or that another row describes, too.
    """
    import pyarrow as pa

    wanted = set(media)
    rows_of: dict[str, int] = {}
    tables = []
    for within, path in files:
        rows = read_rows(path)
        for row, member in _named(rows, within, path):
            if member not in wanted:
                raise InvalidSourceError(f"row {row} of {path} names {member!r}, which is not among the media files")
            if member in rows_of:
                raise InvalidSourceError(
                    f"row {row} of {path} describes {member!r}, which another row does already",
                    hint="Where a file has many rows, ingest the metadata as a table with csv and its media option.",
                )
            rows_of[member] = len(rows_of)
        tables.append(rows.drop_columns([_KEY]))
    try:
        joined = pa.concat_tables(tables, promote_options="permissive")
    except (pa.ArrowException, TypeError) as error:
        raise InvalidSourceError(f"{files[0][1]} and the other metadata files do not go together: {error}") from error
    order = pa.array([rows_of.get(path) for path in media], pa.int64())
    return joined.take(order), order.null_count


def _named(rows: pa.Table, within: str, path: Path) -> Iterator[tuple[int, str]]:
    """Each row's number, and the path of the file that it describes."""
    import pyarrow as pa

    if _KEY not in rows.schema.names or not pa.types.is_string(rows.schema.field(_KEY).type):
        raise InvalidSourceError(
            f"{path} has no text column {_KEY!r}", hint=f"Its columns: {', '.join(rows.schema.names)}"
        )
    folder = PurePosixPath(within).parent
    for row, name in enumerate(rows[_KEY].to_pylist()):
        yield row, (folder / (name or "")).as_posix()
