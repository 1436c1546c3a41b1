"""Sources of tables on a command line.

`warp publish --table` accepts Parquet files. A person who names a CSV file, a directory of images or a dataset of
Hugging Face gets the next step instead of a remark about Parquet. `warp append` and `warp upsert` know the types of
the table, so they also read CSV, TSV and JSON lines.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from warpdata.errors import InvalidSourceError, SchemaMismatchError
from warpdata.primitives.paths import is_glob

if TYPE_CHECKING:
    import pyarrow as pa

    from warpdata.datasets import Dataset
    from warpdata.kinds.tables import TableInput

__all__ = ["check_table_source", "read_table_source"]

_LISTED_FILES = 10_000
_PARQUET = (".parquet", ".pq")
_ROWS = (".csv", ".tsv", ".jsonl", ".ndjson")
_IMAGES = (".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff")
_AUDIO = (".wav", ".flac", ".mp3", ".ogg")
_SAVED_DATASET = ("state.json", "dataset_dict.json")
"""Files that `save_to_disk` of Hugging Face writes beside its Arrow files."""


def check_table_source(dataset_id: str, table: str, source: str) -> None:
    """Raise `InvalidSourceError` if another command publishes this source. Missing files are not checked."""
    path = Path(source).expanduser()
    if path.is_dir():
        files = [file for file in islice(path.rglob("*"), _LISTED_FILES) if file.is_file()]
        suffixes = Counter(file.suffix.lower() for file in files)
        if not any(suffixes[suffix] for suffix in _PARQUET):
            raise InvalidSourceError(
                f"{source} contains no Parquet files, which --table {table} needs",
                hint=_directory_hint(dataset_id, table, path, suffixes),
            )
    elif path.is_file() or is_glob(path):
        hint = _file_hint(dataset_id, table, source, path.suffix.lower())
        if hint is not None:
            raise InvalidSourceError(f"{source} is not a Parquet file, which --table {table} needs", hint=hint)


def _directory_hint(dataset_id: str, table: str, path: Path, suffixes: Counter[str]) -> str:
    if any((path / name).is_file() for name in _SAVED_DATASET):
        is_dict = (path / "dataset_dict.json").is_file()
        split = "[SPLIT]" if is_dict else ""
        return (
            f"It is a saved Hugging Face dataset. Write Parquet first, in Python: "
            f"datasets.load_from_disk({str(path)!r}){split}.to_parquet({path.name + '.parquet'!r})"
        )
    quoted = shlex.quote(str(path))
    commands = {
        _ROWS: f"warp ingest csv {dataset_id} {quoted} --table {table}",
        _IMAGES: f"warp ingest imagefolder {dataset_id} {quoted} --table {table}",
        _AUDIO: f"warp ingest audiofolder {dataset_id} {quoted} --table {table}",
        (".tar",): f"warp ingest webdataset {dataset_id} {quoted} --table {table}",
        (".wshard",): f"warp publish {dataset_id} --episodes {table}={quoted}",
        (".safetensors",): f"warp publish {dataset_id} --tensors {table}={quoted}",
    }
    counts = {group: sum(suffixes[suffix] for suffix in group) for group in commands}
    most = max(counts, key=lambda group: counts[group])
    if counts[most]:
        return f"Try `{commands[most]}`."
    return f"Raw files are an artifact: `warp publish {dataset_id} --artifact raw={quoted}`."


def _file_hint(dataset_id: str, table: str, source: str, suffix: str) -> str | None:
    quoted = shlex.quote(source)
    if suffix in _ROWS:
        return f"Try `warp ingest csv {dataset_id} {quoted} --table {table}`."
    if suffix in (".arrow", ".feather", ".json", ".xlsx", ".pkl", ".npy", ".npz"):
        return "Write it as Parquet first, for example with the to_parquet method of a pandas or polars frame."
    return None


def read_table_source(dataset: Dataset, table: str, sources: Sequence[str]) -> TableInput:
    """Return the rows to add to a table: Parquet files as they are, or other files read with the table's types."""
    from warpdata.ingest import list_files, read_tables

    paths = list_files(sources, (*_PARQUET, *_ROWS))
    if all(path.suffix.lower() in _PARQUET for path in paths):
        return [str(path) for path in paths]
    found = dataset.find_table(table)
    rows = read_tables(paths)
    return rows if found is None else _cast_columns(rows, found.schema(), table)


def _cast_columns(rows: pa.Table, schema: pa.Schema, table: str) -> pa.Table:
    """Give the columns of a text file the types of the table. Columns that it lacks stay as they are."""
    import pyarrow as pa

    for position, name in enumerate(rows.column_names):
        if name not in schema.names:
            continue
        field = schema.field(name)
        try:
            rows = rows.set_column(position, field, rows.column(position).cast(field.type))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise SchemaMismatchError(
                f"column {name!r} of table {table!r} is {field.type}, and the file has other values: {error}"
            ) from error
    return rows
