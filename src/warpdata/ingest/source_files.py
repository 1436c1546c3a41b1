"""Files on disk: their types by suffix, and tables in CSV, TSV, JSON lines and Parquet, read as Arrow.

Arrow infers types from a whole file, so memory holds a file while it is read. An empty cell of a text column is an
empty string.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from warpdata.errors import InvalidSourceError
from warpdata.formats.parquet import describe_parquet, plain_rows
from warpdata.primitives.paths import check_inside, find_files, glob_root, is_glob

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "REF_TYPE_BY_SUFFIX",
    "TABLE_SUFFIXES",
    "FileSource",
    "count_suffixes",
    "list_files",
    "read_first",
    "read_rows",
    "read_tables",
    "ref_type_of",
]

FileSource: TypeAlias = str | Path | Iterable[str | Path]
"""A file, a directory, a glob, or a list of these."""

TABLE_SUFFIXES = (".csv", ".tsv", ".jsonl", ".ndjson", ".parquet")
_SUFFIXES = {
    "image": "jpg jpeg jfif png webp gif tif tiff bmp dib ppm pgm pbm pnm jp2 j2k avif qoi",
    "audio": "wav flac mp3 ogg oga opus aif aiff aifc au snd caf w64 rf64",
    "video": "mp4 m4v mov mkv webm avi mpg mpeg ts m2ts flv ogv wmv asf ivf",
}

REF_TYPE_BY_SUFFIX: Mapping[str, str] = {
    suffix: ref_type for ref_type, suffixes in _SUFFIXES.items() for suffix in suffixes.split()
}
"""Suffixes of files that references can decode, without the dot."""


def suffix_of(path: str) -> str:
    """Return the part of the file name after the last dot, in lower case; "" for `README` and `.profile`."""
    stem, dot, suffix = path.rpartition("/")[2].rpartition(".")
    return suffix.lower() if stem and dot else ""


def ref_type_of(path: str) -> str | None:
    """Return "image", "audio" or "video"; None for other files."""
    return REF_TYPE_BY_SUFFIX.get(suffix_of(path))


def count_suffixes(paths: Iterable[str]) -> dict[str, int]:
    """Count files by suffix, the most frequent first. Files without a suffix count as ""."""
    counts = Counter(suffix_of(path) for path in paths)
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def list_files(source: FileSource, suffixes: Sequence[str], *, follow_links: bool = False) -> list[Path]:
    """Return files in order of their paths. Of directories, those with one of the suffixes.

    Links that leave a directory, or the directory of a glob, are refused, or with `follow_links` followed.
    """
    found: list[Path] = []
    for name in [source] if isinstance(source, str | Path) else source:
        matches = find_files(name, suffixes, ignore_case=True)
        if not matches and is_glob(name):
            raise InvalidSourceError(f"no file matches {str(name)!r}", hint="Check the path; quote globs in a shell.")
        if not matches:
            raise InvalidSourceError(f"{name} contains no file that ends in {' or '.join(suffixes)}")
        if not follow_links and is_glob(name):
            check_inside(matches, glob_root(name))
        elif not follow_links and Path(name).expanduser().is_dir():
            check_inside(matches, Path(name).expanduser())
        found.extend(matches)
    return sorted(dict.fromkeys(found), key=lambda file: str(file).encode("utf-8", "surrogateescape"))


def read_tables(paths: Sequence[Path]) -> pa.Table:
    """Return the rows of all files, in order. Columns that a file lacks are null."""
    import pyarrow as pa

    try:
        return pa.concat_tables([read_rows(path) for path in paths], promote_options="permissive")
    except (pa.ArrowException, TypeError) as error:
        raise InvalidSourceError(f"{paths[0]} and {len(paths) - 1} more have no common columns: {error}") from error


def read_first(path: Path, limit: int) -> pa.Table:
    """Return up to `limit` rows of a Parquet file, and read little more."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            batch = next(file.iter_batches(limit), None)
            return plain_rows(file.schema_arrow.empty_table() if batch is None else pa.Table.from_batches([batch]))
    except (pa.ArrowException, OSError) as error:
        raise InvalidSourceError(f"{path} cannot be read as parquet: {error}") from error


def read_rows(path: Path) -> pa.Table:
    """Read a file as a table. Raise `InvalidSourceError` with the file and the reason."""
    import pyarrow as pa

    readers = {".csv": _read_csv, ".tsv": _read_csv, ".jsonl": _read_json, ".ndjson": _read_json}
    readers[".parquet"] = _read_parquet
    read = readers.get(path.suffix.lower())
    if read is None:
        raise InvalidSourceError(f"{path} is not a known table format", hint=f"Known: {', '.join(TABLE_SUFFIXES)}.")
    try:
        rows = read(path)
    except FileNotFoundError as error:
        raise InvalidSourceError(f"{path} does not exist") from error
    except (pa.ArrowException, OSError, ValueError) as error:
        raise InvalidSourceError(f"{path} cannot be read as {path.suffix[1:].lower()}: {error}") from error
    return _with_text_columns(rows, path)


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
    return plain_rows(pq.read_table(path))


def _with_text_columns(rows: pa.Table, path: Path) -> pa.Table:
    """Turn columns without any value into text columns, so that later rows can have values."""
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
