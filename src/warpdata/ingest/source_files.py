"""Files on disk: tables in CSV, TSV, JSON lines and Parquet, read as Arrow.

Arrow infers types from a whole file, so memory holds a file while it is read. An empty cell of a text column is an
empty string.
"""

from __future__ import annotations

import json
import stat
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from warpdata.errors import InvalidSourceError, LimitExceededError, UnsupportedError, WarpError
from warpdata.formats.media import suffix_of
from warpdata.formats.parquet import describe_parquet, plain_rows
from warpdata.limits import MAX_FOREIGN_INDEX_BYTES
from warpdata.primitives.paths import find_files, is_glob
from warpdata.primitives.strict_json import unique_keys

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "TABLE_SUFFIXES",
    "FileSource",
    "check_file_name",
    "check_listed_once",
    "count_suffixes",
    "list_files",
    "read_bytes",
    "read_first",
    "read_json",
    "read_rows",
    "read_tables",
    "source_errors",
    "split_order",
]

FileSource: TypeAlias = str | Path | Iterable[str | Path]
"""A file, a directory, a glob, or a list of these."""

TABLE_SUFFIXES = (".csv", ".tsv", ".jsonl", ".ndjson", ".parquet")


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
        matches = find_files(name, suffixes, ignore_case=True, follow_links=follow_links)
        if not matches and is_glob(name):
            raise InvalidSourceError(f"no file matches {str(name)!r}", hint="Check the path; quote globs in a shell.")
        if not matches:
            raise InvalidSourceError(f"{name} contains no file that ends in {' or '.join(suffixes)}")
        found.extend(matches)
    if not found:
        raise InvalidSourceError("the list of files is empty", hint="Pass a path, a glob, or a list of these.")
    return sorted(dict.fromkeys(found), key=lambda file: str(file).encode("utf-8", "surrogateescape"))


def check_file_name(name: object, where: str | Path) -> str:
    """Return the name of a file of a foreign index. `InvalidSourceError` if it leads out of its directory."""
    if not isinstance(name, str) or name in ("", ".", "..") or any(mark in name for mark in "/\\\0"):
        raise InvalidSourceError(f"{where} names {name!r}, which is not a file of its directory")
    return name


def check_listed_once(names: Iterable[str], where: str | Path) -> None:
    """Raise `InvalidSourceError` if an index lists a file or a split twice: its samples would come twice."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise InvalidSourceError(f"{where} lists {name!r} twice")
        seen.add(name)


def split_order(split: str) -> tuple[int, str]:
    """Return a key that sorts splits as people list them: training, validation, test, then others by name."""
    order = ("train", "val", "valid", "validation", "dev", "test")
    return order.index(split.lower()) if split.lower() in order else len(order), split


@contextmanager
def source_errors(where: str | Path) -> Iterator[None]:
    """Raise `InvalidSourceError` for errors of a library or of the system while a foreign file is read.

    A decoder knows no file, so the place is added to what it does not support or bounds.
    """
    try:
        yield
    except (UnsupportedError, LimitExceededError) as error:
        if str(where) in error.message:
            raise
        raise type(error)(f"{where}: {error.message}", hint=error.hint, kind=error.kind) from error
    except (WarpError, GeneratorExit):
        raise
    except OSError as error:
        raise InvalidSourceError(f"{where} cannot be read: {error.strerror or error}") from error
    except BaseException as error:
        # A panic of a library in Rust is no `Exception`.
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise InvalidSourceError(f"{where} is damaged: {type(error).__name__}: {error}") from error


def read_bytes(path: Path, limit: int) -> bytes:
    """Return the content of a regular file. `InvalidSourceError` if it is another kind of file, or larger."""
    with source_errors(path):
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise InvalidSourceError(f"{path} is not a regular file")
        if status.st_size > limit:
            raise InvalidSourceError(f"{path} has {status.st_size:,} bytes; the limit is {limit:,}")
        with path.open("rb") as file:
            data = file.read(status.st_size + 1)
    if len(data) != status.st_size:
        raise InvalidSourceError(f"{path} changed while it was read")
    return data


def read_json(path: Path) -> dict[str, Any]:
    """Read a small JSON object of another library. `InvalidSourceError` if it is missing, large or no object."""
    data = read_bytes(path, MAX_FOREIGN_INDEX_BYTES)
    with source_errors(path):
        document = json.loads(data, object_pairs_hook=unique_keys)
    if not isinstance(document, dict):
        raise InvalidSourceError(f"{path} holds no JSON object")
    return document


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
