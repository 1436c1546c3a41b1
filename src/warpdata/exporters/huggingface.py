"""Export for Hugging Face `datasets`: `data/SPLIT-00000-of-00001.parquet` with features, as on the Hub.

`datasets.load_dataset(DIRECTORY)` reads it. Files are embedded in the rows. Features that an import kept come back;
a label column of text becomes a `ClassLabel`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from warpdata.errors import BadInputError, InvalidSourceError
from warpdata.exporters.mediafolder import file_name
from warpdata.exporters.options import ExportBatch, ExportSource, path_field
from warpdata.exporters.output import ExportDirectory, check_split_count, read_pieces
from warpdata.formats.huggingface import COLUMN_KEY, NO_LABEL, field_feature
from warpdata.limits import MIB
from warpdata.primitives.arrow_buffers import take_rows
from warpdata.primitives.extras import require
from warpdata.primitives.outcomes import FieldOutcomes, OutcomeLog

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["HuggingFaceExport"]

_SHARD_BYTES = 500 * MIB
_DEFAULT_SPLIT = "train"
_LEAVE_OUT = "Leave the column out with columns (--columns), or export to parquet."
_SPLIT = re.compile(r"\w+(\.\w+)*")
_MAX_CELL_BYTES = 2**31 - 1
"""Arrow addresses the bytes of a column by 32 bits."""
_FEATURE_BY_REF_TYPE = {"image": "Image", "audio": "Audio", "video": "Video"}


@dataclass(frozen=True, slots=True)
class _Label:
    """A `ClassLabel` to write: its names, and the columns of names and integers it comes from."""

    names: tuple[str, ...]
    texts: str | None
    ids: str | None


class HuggingFaceExport:
    """Parquet files for each split, with the features in the metadata of the schema."""

    def __init__(self, source: ExportSource) -> None:
        self._source = source
        self.file_columns = tuple(source.ref_types)
        if source.options.media:
            raise BadInputError("media does not apply to format 'huggingface': all columns of files are exported")
        self._library = require("datasets", purpose="an export for Hugging Face", extra="huggingface")
        self._labels = self._find_labels()
        self._shard_bytes = source.options.shard_size(_SHARD_BYTES)

    def outcomes(self) -> FieldOutcomes:
        source = self._source
        log = OutcomeLog([*source.schema.names, *map(path_field, self.file_columns)])
        parts = {part: name for name, label in self._labels.items() for part in (label.texts, label.ids) if part}
        for name in source.schema.names:
            if name == source.split:
                log.kept(name, "as splits")
            elif name in parts:
                log.kept(name, f"ClassLabel {parts[name]}")
            elif name in source.ref_types:
                log.kept(name, "files inside of the rows")
                log.changed(path_field(name), "only the file name")
            else:
                log.kept(name)
        if source.split is None:
            log.added("split", f"all rows are in {_DEFAULT_SPLIT}")
        return log.outcomes()

    def write(self, out: ExportDirectory) -> int:
        features = self._features()
        rows = 0
        with ExitStack() as stack:
            writers: dict[str, _SplitWriter] = {}
            for batch in self._source.batches(holds_large=True):
                table = self._convert(batch, features)
                for split, part in self._by_split(batch, table):
                    if split not in writers:
                        check_split_count(len(writers), self._source.split)
                        writers[split] = stack.enter_context(_SplitWriter(out, split, table.schema, self._shard_bytes))
                    writers[split].write(part)
                rows += table.num_rows
            if not writers:
                schema = features.arrow_schema
                writers[_DEFAULT_SPLIT] = stack.enter_context(
                    _SplitWriter(out, _DEFAULT_SPLIT, schema, self._shard_bytes)
                )
                writers[_DEFAULT_SPLIT].write(schema.empty_table())
        for writer in writers.values():
            writer.rename()
        return rows

    def _find_labels(self) -> dict[str, _Label]:
        """Return the class labels: those that an import kept, and the label column if it is text."""
        import pyarrow as pa

        source, labels = self._source, dict[str, _Label]()
        for field in source.schema:
            feature = field_feature(field)
            if feature is None or feature.get("_type") != "ClassLabel" or not pa.types.is_integer(field.type):
                continue
            name = (field.metadata or {}).get(COLUMN_KEY, field.name.encode()).decode()
            texts = name if name in source.schema.names and name != field.name else None
            labels[name] = _Label(tuple(feature.get("names") or ()), texts, field.name)
        label = source.label
        if label is not None and label not in labels and _is_text(source.schema.field(label).type):
            labels[label] = _Label(self._distinct(label), label, None)
        return labels

    def _distinct(self, column: str) -> tuple[str, ...]:
        found: set[str] = set()
        for batch in self._source.table.raw().batches(columns=[column]):
            found.update(value for value in batch.column(0).to_pylist() if value is not None)
        return tuple(sorted(found))

    def _features(self) -> Any:
        """Return the features of the target, in the order of the columns."""
        library, source = self._library, self._source
        try:
            plain = library.Features.from_arrow_schema(_without_metadata(source.schema))
        except (ValueError, TypeError) as error:
            raise BadInputError(f"datasets has no feature for a column: {error}", hint=_LEAVE_OUT) from error
        hidden = {part for label in self._labels.values() for part in (label.texts, label.ids)}
        features: dict[str, Any] = {}
        for field in source.schema:
            owner = next((name for name, label in self._labels.items() if field.name in (label.texts, label.ids)), None)
            if owner is not None:
                features[owner] = library.ClassLabel(names=list(self._labels[owner].names))
            elif field.name in source.ref_types:
                features[field.name] = self._media_feature(field)
            elif field.name != source.split and field.name not in hidden:
                features[field.name] = self._kept_feature(field) or plain[field.name]
        return library.Features(features)

    def _media_feature(self, field: pa.Field) -> Any:
        kind = _FEATURE_BY_REF_TYPE.get(self._source.ref_types[field.name])
        kept = self._kept_feature(field)
        if kept is not None:
            return kept
        if kind is None:
            value = self._library.Value
            return {"bytes": value("binary"), "path": value("string")}
        return getattr(self._library, kind)()

    def _kept_feature(self, field: pa.Field) -> Any:
        feature = field_feature(field)
        if feature is None:
            return None
        try:
            return self._library.Features.from_dict({field.name: feature})[field.name]
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise InvalidSourceError(f"column {field.name!r} has a feature that datasets refuses: {error}") from error

    def _convert(self, batch: ExportBatch, features: Any) -> pa.Table:
        """Return the rows in the types of the features."""
        import pyarrow as pa

        columns: dict[str, pa.Array] = {}
        for name in features:
            if name in self._labels:
                columns[name] = _label_values(self._labels[name], batch)
            elif name in batch.refs:
                columns[name] = _embedded(batch, name)
            else:
                columns[name] = batch.rows.column(name)
        try:
            return self._library.table.table_cast(pa.table(columns), features.arrow_schema)
        except (pa.ArrowException, ValueError, TypeError) as error:
            raise BadInputError(
                f"rows from {batch.first_row}: datasets cannot convert a column: {error}", hint=_LEAVE_OUT
            ) from error

    def _by_split(self, batch: ExportBatch, table: pa.Table) -> list[tuple[str, pa.Table]]:
        if self._source.split is None:
            return [(_DEFAULT_SPLIT, table)]
        import pyarrow as pa

        rows: dict[str, list[int]] = {}
        for number, split in enumerate(batch.rows.column(self._source.split).to_pylist()):
            if not isinstance(split, str) or not _SPLIT.fullmatch(split):
                raise BadInputError(
                    f"row {batch.first_row + number} has split {split!r}, which datasets does not accept",
                    hint="Splits have letters, digits and underscores. Filter, or pass split=False (--no-split).",
                )
            rows.setdefault(split, []).append(number)
        return [(split, take_rows(table, pa.array(numbers, pa.int64()))) for split, numbers in rows.items()]


class _SplitWriter:
    """Files of one split. Their names have the number of files, so they are renamed at the end."""

    def __init__(self, out: ExportDirectory, split: str, schema: pa.Schema, shard_bytes: int) -> None:
        self._out, self._split, self._schema, self._shard_bytes = out, split, schema, shard_bytes
        self._count, self._written_bytes = 0, 0
        self._writer: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._writer is not None:
            self._writer.close()

    def write(self, rows: pa.Table) -> None:
        import pyarrow.parquet as pq

        if self._writer is None:
            path = self._out.new_file(f"data/{self._split}-{self._count:05d}.partial")
            self._writer = pq.ParquetWriter(path, self._schema, compression="zstd")
            self._count += 1
            self._written_bytes = 0
        self._writer.write_table(rows)
        self._written_bytes += rows.nbytes
        self._out.counter.add_bytes(rows.nbytes)
        if self._written_bytes >= self._shard_bytes:
            self._writer.close()
            self._writer = None

    def rename(self) -> None:
        for number in range(self._count):
            old = self._out.place(f"data/{self._split}-{number:05d}.partial")
            old.rename(old.with_name(f"{self._split}-{number:05d}-of-{self._count:05d}.parquet"))


def _label_values(label: _Label, batch: ExportBatch) -> pa.Array:
    """Return the integers of a class label. `BadInputError` if names and integers disagree."""
    import pyarrow as pa

    numbers: Mapping[str, int] = {name: number for number, name in enumerate(label.names)}
    texts = batch.rows.column(label.texts).to_pylist() if label.texts else None
    ids = batch.rows.column(label.ids).to_pylist() if label.ids else None
    if ids is None:
        assert texts is not None, "a label has names or integers"
        return pa.array([None if text is None else numbers[text] for text in texts], pa.int64())
    for number, given in enumerate(ids):
        expected = _class_name(label, given, batch.first_row + number)
        if texts is not None and texts[number] != expected:
            raise BadInputError(
                f"row {batch.first_row + number}: {label.texts} is {texts[number]!r}, but {label.ids} is {given}, "
                f"which means {expected!r}",
                hint=f"Correct the rows, or export without one of both: columns (--columns) or {label.ids}.",
            )
    return pa.array(ids, pa.int64())


def _class_name(label: _Label, given: int | None, row: int) -> str | None:
    if given is None or given == NO_LABEL:
        return None
    if not 0 <= given < len(label.names):
        raise BadInputError(f"row {row}: {label.ids} is {given}, and there are {len(label.names)} class names")
    return label.names[given]


def _embedded(batch: ExportBatch, column: str) -> pa.Array:
    import pyarrow as pa

    cells: list[dict[str, Any] | None] = []
    pairs = zip(batch.refs[column], batch.contents(column), strict=True)
    for row, (ref, content) in enumerate(pairs, batch.first_row):
        if ref is None or content is None:
            cells.append(None)
        elif ref.size > _MAX_CELL_BYTES:
            raise BadInputError(
                f"row {row}: the file of column {column!r} has {ref.size:,} bytes; the limit is {_MAX_CELL_BYTES:,}",
                hint="Filter the row out, or export to parquet, which keeps files beside the rows.",
            )
        else:
            cells.append({"bytes": b"".join(read_pieces(content)), "path": file_name(ref, content, row)})
    return pa.array(cells, pa.struct([("bytes", pa.binary()), ("path", pa.string())]))


def _is_text(arrow_type: pa.DataType) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_string(arrow_type) or pa.types.is_large_string(arrow_type))


def _without_metadata(schema: pa.Schema) -> pa.Schema:
    import pyarrow as pa

    return pa.schema([field.remove_metadata() for field in schema])
