"""Rows in files that people keep: CSV, TSV, JSON lines, Parquet, read as Arrow tables.

Types are those that Arrow infers from the whole file, so a file is in memory while it is read. An
empty cell of a text column is an empty text.
"""

from __future__ import annotations

import glob
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from warpdata.errors import InvalidSourceError
from warpdata.formats.parquet import describe_parquet

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["TABLE_ENDINGS", "FileSource", "find_files", "read_first", "read_rows", "read_tables"]

FileSource: TypeAlias = str | Path | Iterable[str | Path]
"""A file, a folder, a glob, or a list of these."""

TABLE_ENDINGS = (".csv", ".tsv", ".jsonl", ".ndjson", ".parquet")
_MAGIC = frozenset("*?[")


def find_files(source: FileSource, endings: Sequence[str]) -> list[Path]:
    """Files in the order of their paths; of folders, those with one of the endings."""
    found: list[Path] = []
    for name in [source] if isinstance(source, str | Path) else source:
        path = Path(name).expanduser()
        if path.is_dir():
            inside = [file for file in path.rglob("*") if file.suffix.lower() in endings and file.is_file()]
            if not inside:
                raise InvalidSourceError(f"{path} holds no file that ends in {' or '.join(endings)}")
            found.extend(inside)
        elif _MAGIC & set(str(path)) and not path.exists():
            matches = glob.glob(str(path), recursive=True)  # noqa: PTH207
            if not matches:
                raise InvalidSourceError(
                    f"no file matches {str(name)!r}", hint="Check the path; quote globs in a shell."
                )
            found.extend(Path(match) for match in matches)
        else:
            found.append(path)
    return sorted(dict.fromkeys(found), key=lambda file: str(file).encode("utf-8", "surrogateescape"))


def read_tables(paths: Sequence[Path]) -> pa.Table:
    """The rows of all files, one after another; columns that only some have are null in the others."""
    import pyarrow as pa

    try:
        return pa.concat_tables([read_rows(path) for path in paths], promote_options="permissive")
    except (pa.ArrowException, TypeError) as error:
        raise InvalidSourceError(f"{paths[0]} and {len(paths) - 1} more have no common columns: {error}") from error


def read_first(path: Path, limit: int) -> pa.Table:
    """Up to `limit` rows of a Parquet file, reading little more."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            batch = next(file.iter_batches(limit), None)
            return file.schema_arrow.empty_table() if batch is None else pa.Table.from_batches([batch])
    except (pa.ArrowException, OSError) as error:
        raise InvalidSourceError(f"{path} cannot be read as parquet: {error}") from error


def read_rows(path: Path) -> pa.Table:
    """`InvalidSourceError` names the file that can not be read, and why."""
    import pyarrow as pa

    readers = {".csv": _read_csv, ".tsv": _read_csv, ".jsonl": _read_json, ".ndjson": _read_json}
    readers[".parquet"] = _read_parquet
    read = readers.get(path.suffix.lower())
    if read is None:
        raise InvalidSourceError(f"{path} is none of the tables known here", hint=f"Known: {', '.join(TABLE_ENDINGS)}.")
    try:
        rows = read(path)
    except FileNotFoundError as error:
        raise InvalidSourceError(f"{path} does not exist") from error
    except (pa.ArrowException, OSError, ValueError) as error:
        raise InvalidSourceError(f"{path} cannot be read as {path.suffix[1:].lower()}: {error}") from error
    return _settled(rows, path)


def _read_csv(path: Path) -> pa.Table:
    from pyarrow import csv

    delimiter = "\t" if path.suffix.lower() == ".tsv" else ","
    return csv.read_csv(path, parse_options=csv.ParseOptions(delimiter=delimiter, newlines_in_values=True))


def _read_json(path: Path) -> pa.Table:
    from pyarrow import json

    return json.read_json(path, parse_options=json.ParseOptions(newlines_in_values=True))


def _read_parquet(path: Path) -> pa.Table:
    import pyarrow.parquet as pq

    describe_parquet(path)
    return pq.read_table(path)


def _settled(rows: pa.Table, path: Path) -> pa.Table:
    """Columns that are empty throughout become text, so that later rows can have values there."""
    import pyarrow as pa

    is_text = path.suffix.lower() != ".parquet"
    for position, field in enumerate(rows.schema):
        if is_text and pa.types.is_binary(field.type):
            raise InvalidSourceError(
                f"{path}: column {field.name!r} is not valid UTF-8", hint="Convert the file to UTF-8."
            )
        if pa.types.is_null(field.type):
            rows = rows.set_column(position, field.name, pa.nulls(rows.num_rows, pa.string()))
    return rows
