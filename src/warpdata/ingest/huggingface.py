"""Datasets of Hugging Face: objects of its library, directories of `save_to_disk`, and directories of Parquet files.

Directories are read without the library. A `ClassLabel` column becomes two: its own name holds the class names as
text, and NAME_id the integers. `Image`, `Audio` and `Video` columns become files of an artifact with a bound column.
Field metadata keep the features, so that an export gives them back.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from warpdata.errors import InvalidSourceError
from warpdata.formats.huggingface import (
    CLASS_NAMES_KEY,
    COLUMN_KEY,
    FEATURE_KEY,
    MEDIA_FEATURES,
    NO_LABEL,
    Features,
    schema_features,
)
from warpdata.formats.parquet import describe_parquet, plain_rows
from warpdata.ingest.foreign_table import (
    ColumnRule,
    ForeignSource,
    ImportTarget,
    MediaColumn,
    PlainColumn,
    SourcePart,
    Splits,
    add_foreign,
    media_rules,
)
from warpdata.ingest.media_spool import is_media_type
from warpdata.ingest.options import OnReport, Packing, log_report
from warpdata.ingest.source_files import (
    check_file_name,
    check_listed_once,
    list_files,
    read_json,
    source_errors,
    split_order,
)
from warpdata.primitives.arguments import check_arguments
from warpdata.primitives.paths import check_path
from warpdata.publish import DatasetBuilder
from warpdata.session import Session

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["huggingface"]

_BATCH_ROWS = 256
_END_OF_STREAM = b"\xff\xff\xff\xff\0\0\0\0"
_SPLIT_FILE = re.compile(r"(?P<split>\w[\w.]*)-[0-9]+(?:-of-[0-9]+)?(?:-[0-9a-f]+)?")
_SPLIT_NAMES = frozenset({"train", "val", "valid", "validation", "dev", "test"})


@check_arguments
def huggingface(
    dataset_id: str,
    source: Any,
    *,
    store: str | Session | None = None,
    table: str = "main",
    splits: Splits = "column",
    media: Mapping[str, str] | None = None,
    media_root: str | Path | None = None,
    packing: Packing | None = None,
    report: OnReport = log_report,
) -> DatasetBuilder:
    """Build a dataset from a `datasets.Dataset` or `DatasetDict`, a directory of `save_to_disk`, or Parquet files.

    Several splits become one table with a column `split`, or with `splits="tables"` a table each. `media` maps further
    columns of bytes to "image", "audio", "video" or "file". Rows that have a path instead of bytes are refused, unless
    the file is inside of `media_root`.
    """
    target = ImportTarget(table, splits, packing or Packing())
    builder = DatasetBuilder(dataset_id, store)
    if isinstance(source, str | os.PathLike):
        name, parts, features = _read_directory(check_path(source).expanduser())
    else:
        name, parts, features = _read_object(source)
    rules: dict[str, ColumnRule] = {}
    for part in parts:
        rules |= _rules(part.schema, features, part.where)
        rules |= media_rules(media, part.schema, part.where)
    root = None if media_root is None else Path(media_root)
    add_foreign(builder, ForeignSource(name, parts, rules, root), target, report)
    return builder


_Found: TypeAlias = tuple[str, list[SourcePart], Features]


def _read_object(source: Any) -> _Found:
    """Describe an object of the library. It is recognized by its methods; the library is not imported."""
    splits = dict(source) if isinstance(source, Mapping) else {None: source}
    parts: list[SourcePart] = []
    merged: dict[str, Any] = {}
    for split, dataset in splits.items():
        features = getattr(dataset, "features", None)
        if not hasattr(dataset, "with_format") or features is None:
            raise InvalidSourceError(
                f"a {type(dataset).__name__} is no Hugging Face dataset with features",
                hint="Pass a Dataset, a DatasetDict, or the directory of one.",
            )
        where = "the dataset" if split is None else f"split {split}"
        with source_errors(where):
            schema = features.arrow_schema
            merged |= features.to_dict()
        parts.append(
            SourcePart(None if split is None else str(split), schema, partial(_object_batches, dataset), where)
        )
    return type(source).__name__, parts, merged


def _object_batches(dataset: Any) -> Iterator[pa.RecordBatch]:
    with source_errors("the dataset"):
        for table in dataset.with_format("arrow").iter(batch_size=_BATCH_ROWS):
            yield from table.combine_chunks().to_batches()


def _read_directory(folder: Path) -> _Found:
    if not folder.exists():
        raise InvalidSourceError(f"{folder} does not exist", hint="Check the path.")
    if (folder / "dataset_dict.json").is_file():
        listed = read_json(folder / "dataset_dict.json").get("splits")
        if not isinstance(listed, list) or not listed or not all(isinstance(name, str) for name in listed):
            raise InvalidSourceError(f"{folder / 'dataset_dict.json'} lists no splits")
        check_listed_once(listed, folder / "dataset_dict.json")
        found = [_read_saved(folder / check_file_name(name, folder / "dataset_dict.json"), name) for name in listed]
        return str(folder), [part for part, _ in found], {k: v for _, features in found for k, v in features.items()}
    if (folder / "state.json").is_file():
        part, features = _read_saved(folder, None)
        return str(folder), [part], features
    return _read_parquet(folder)


def _read_saved(folder: Path, split: str | None) -> tuple[SourcePart, Features]:
    """Describe a directory of `Dataset.save_to_disk`."""
    import pyarrow as pa

    state_path = folder / "state.json"
    state = read_json(state_path)
    if state.get("_indices_data_files") or state.get("_indices_files"):
        raise InvalidSourceError(
            f"{state_path} selects rows by an index file of an old release of datasets",
            hint="Load the dataset and save it again with a current release.",
        )
    listed = state.get("_data_files")
    if not isinstance(listed, list) or not all(isinstance(item, dict) for item in listed):
        raise InvalidSourceError(f"{state_path} has no list _data_files")
    files = [folder / check_file_name(item.get("filename"), state_path) for item in listed]
    check_listed_once((file.name for file in files), state_path)
    info = folder / "dataset_info.json"
    given = read_json(info).get("features") if info.is_file() else None
    if not isinstance(given, dict | None):
        raise InvalidSourceError(f"{info} has features of a {type(given).__name__}, not an object")
    if not files:
        return SourcePart(split, pa.schema([]), list, str(folder)), given or {}
    for file in files:
        _check_stream_end(file)
    with source_errors(files[0]), pa.memory_map(str(files[0])) as raw:
        schema = pa.ipc.open_stream(raw).schema
    features = schema_features(schema, files[0]) if given is None else given
    return SourcePart(split, schema, partial(_saved_batches, files, schema), str(folder)), features


def _check_stream_end(file: Path) -> None:
    """Refuse a truncated stream. Arrow reads one that is cut between two batches without an error."""
    with source_errors(file), file.open("rb") as raw:
        raw.seek(max(0, file.stat().st_size - len(_END_OF_STREAM)))
        end = raw.read()
    if end != _END_OF_STREAM:
        raise InvalidSourceError(f"{file} is truncated: the stream has no end mark")


def _saved_batches(files: Sequence[Path], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    for file in files:
        with source_errors(file), pa.memory_map(str(file)) as raw, pa.ipc.open_stream(raw) as stream:
            if not stream.schema.remove_metadata().equals(schema.remove_metadata()):
                raise InvalidSourceError(f"{file} has other columns than {files[0]}")
            for batch in stream:
                batch.validate(full=True)
                yield from _sliced(batch)


def _sliced(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    for start in range(0, batch.num_rows, _BATCH_ROWS):
        yield batch.slice(start, _BATCH_ROWS)


def _read_parquet(folder: Path) -> _Found:
    """Describe Parquet files. The names of files or directories give the splits if all of them do."""
    import pyarrow.parquet as pq

    files = list_files(folder, (".parquet",))
    for file in files:  # Arrow ends the process at some damaged footers
        describe_parquet(file)
    splits = [_split_of(file, folder) for file in files]
    groups: dict[str | None, list[Path]] = {}
    for file, split in zip(files, splits, strict=True):
        groups.setdefault(split if None not in splits else None, []).append(file)
    parts, merged = [], dict[str, Any]()
    for split in sorted(groups, key=lambda split: split_order(split or "")):
        group = groups[split]
        with source_errors(group[0]):
            schema = pq.read_schema(group[0])
        merged |= schema_features(schema, group[0])
        where = str(folder) if split is None else f"{folder}, split {split}"
        parts.append(SourcePart(split, schema, partial(_parquet_batches, group, schema), where))
    return str(folder), parts, merged


def _split_of(file: Path, folder: Path) -> str | None:
    named = _SPLIT_FILE.fullmatch(file.stem)
    if named is not None:
        return named["split"]
    directories = () if file == folder else file.relative_to(folder).parts[:-1]
    return next((part for part in (*directories, file.stem) if part.lower() in _SPLIT_NAMES), None)


def _parquet_batches(files: Sequence[Path], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    import pyarrow.parquet as pq

    for file in files:
        with source_errors(file), pq.ParquetFile(file) as parquet:
            if not parquet.schema_arrow.remove_metadata().equals(schema.remove_metadata()):
                raise InvalidSourceError(
                    f"{file} has other columns than {files[0]}", hint="Import each configuration by its own directory."
                )
            for batch in parquet.iter_batches(_BATCH_ROWS):
                yield plain_rows(batch)


def _rules(schema: pa.Schema, features: Features, where: str) -> dict[str, ColumnRule]:
    rules: dict[str, ColumnRule] = {}
    for column in schema:
        feature = features.get(column.name)
        kind = feature.get("_type") if isinstance(feature, dict) else None
        if feature is None or kind == "Value":
            continue
        metadata = {FEATURE_KEY: json.dumps(feature, sort_keys=True).encode()}
        if kind == "ClassLabel":
            rules[column.name] = _label_rule(column, feature, metadata, where)
        elif kind in MEDIA_FEATURES and is_media_type(column.type):
            rules[column.name] = MediaColumn(MEDIA_FEATURES[kind], metadata)
        else:
            plain = column.type.storage_type if hasattr(column.type, "storage_type") else column.type
            text = "media inside of lists stay in the table, as bytes" if _has_media(feature) else ""
            rules[column.name] = PlainColumn((column.with_type(plain).with_metadata(metadata),), how=text)
    return rules


def _has_media(feature: Any) -> bool:
    if isinstance(feature, dict):
        return feature.get("_type") in MEDIA_FEATURES or any(map(_has_media, feature.values()))
    return isinstance(feature, list) and any(map(_has_media, feature))


def _label_rule(column: pa.Field, feature: Features, metadata: Mapping[bytes, bytes], where: str) -> PlainColumn:
    import pyarrow as pa

    names = feature.get("names")
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise InvalidSourceError(f"{where}: the feature of column {column.name!r} is a ClassLabel without names")
    if not pa.types.is_integer(column.type):
        raise InvalidSourceError(f"{where}: column {column.name!r} is a ClassLabel of type {column.type}")
    ids = f"{column.name}_id"
    fields = (
        pa.field(column.name, pa.string(), metadata={CLASS_NAMES_KEY: ids.encode()}),
        pa.field(ids, column.type, metadata={**metadata, COLUMN_KEY: column.name.encode()}),
    )
    return PlainColumn(fields, _label_converter(names), f"names in {column.name}, integers in {ids}")


def _label_converter(names: Sequence[str]) -> Callable[[pa.Array, str, int], Sequence[pa.Array]]:
    def convert(values: pa.Array, where: str, row: int) -> Sequence[pa.Array]:
        import pyarrow as pa

        texts: list[str | None] = []
        for number, label in enumerate(values.to_pylist(), row):
            if label is not None and not NO_LABEL <= label < len(names):
                raise InvalidSourceError(f"{where}, row {number}: label {label} has no name; there are {len(names)}")
            texts.append(None if label is None or label == NO_LABEL else names[label])
        return [pa.array(texts, pa.string()), values]

    return convert
