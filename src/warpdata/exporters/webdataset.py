"""Export to WebDataset tars: `[SPLIT-]000000.tar`, with the files of a row under one key.

References become files. Columns whose name is a suffix of texts, such as `txt`, become files with that suffix. The
integers of the label become `cls`. All other columns are members of one JSON object.
"""

from __future__ import annotations

import base64
import io
import json
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from warpdata.errors import BadInputError
from warpdata.exporters.mediafolder import file_suffix
from warpdata.exporters.options import Content, ExportBatch, ExportSource, path_field
from warpdata.exporters.output import ExportDirectory, check_name, check_split_count
from warpdata.formats.huggingface import CLASS_NAMES_KEY
from warpdata.formats.media import REF_TYPE_BY_SUFFIX
from warpdata.kinds.artifacts import FileRef, check_member_path
from warpdata.limits import MIB
from warpdata.primitives.outcomes import FieldOutcomes, OutcomeLog

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["WebDatasetExport"]

_KEY = "__key__"
_CLASS = "cls"
_TEXTS = frozenset({"txt", "text", "transcript", "cls", "cls2", "class", "count", "index", "inx", "id", "json", "jsn"})
_SHARD_BYTES = 256 * MIB
_MODE = 0o644


class _Part(NamedTuple):
    """One file of a sample. `is_file`: it is the content of a reference."""

    suffix: str
    content: Content
    is_file: bool = False


class WebDatasetExport:
    """Tars of a given size, in the order of the rows. The same rows always give the same bytes."""

    def __init__(self, source: ExportSource) -> None:
        self._source = source
        self.file_columns = tuple(source.ref_types)
        if source.options.media:
            raise BadInputError("media does not apply to format 'webdataset': all columns of files are exported")
        self._has_key = _KEY in source.schema.names
        self._class = self._class_column()
        self._texts = [name for name in source.schema.names if name in _TEXTS and self._is_text(name)]
        special = {_KEY, self._class, source.split, *self._texts, *source.ref_types}
        self._values = [name for name in source.schema.names if name not in special]
        taken = {*self._texts, *([_CLASS] if self._class else [])}
        self._json = "json" if "json" not in taken else "columns.json"
        self._suffixes = _SuffixNames(self.file_columns, frozenset({*taken, self._json}))
        self._shard_bytes = source.options.shard_size(_SHARD_BYTES)

    def outcomes(self) -> FieldOutcomes:
        source = self._source
        log = OutcomeLog([*source.schema.names, *map(path_field, self.file_columns)])
        for name in source.schema.names:
            if name == _KEY:
                log.kept(name)
            elif name in source.ref_types:
                suffix = name if self._suffixes.is_suffix(name) else "SUFFIX"
                log.kept(name, f"files .{suffix}")
                log.changed(path_field(name), f"KEY.{suffix}")
            elif name == source.split:
                log.changed(name, "in the names of the tars")
            elif name in (self._class, *self._texts):
                record = log.changed if self._is_integer(name) else log.kept
                record(name, f"files .{_CLASS if name == self._class else name}")
            elif _has_json_type(source.schema.field(name).type):
                log.kept(name, f"in .{self._json}")
            else:
                log.changed(name, f"as text in .{self._json}")
        if not self._has_key:
            log.added(_KEY, "row numbers")
        return log.outcomes()

    def write(self, out: ExportDirectory) -> int:
        rows = 0
        with ExitStack() as stack:
            tars: dict[str, _TarSeries] = {}
            keys: set[str] = set()
            for batch in self._source.batches():
                for split, key, parts in self._samples(batch):
                    if key in keys:
                        raise BadInputError(f"two rows have the key {key!r}", hint=f"Values of {_KEY} must differ.")
                    if self._has_key:
                        keys.add(key)
                    if split not in tars:
                        check_split_count(len(tars), self._source.split)
                        tars[split] = stack.enter_context(_TarSeries(out, split, self._shard_bytes))
                    tars[split].add(key, parts)
                    rows += 1
            if not rows:
                stack.enter_context(_TarSeries(out, "", self._shard_bytes)).open()
        return rows

    def _samples(self, batch: ExportBatch) -> Iterator[tuple[str, str, list[_Part]]]:
        source = self._source
        files = {name: batch.contents(name) for name in source.ref_types}
        splits = batch.rows.column(source.split).to_pylist() if source.split else None
        rows = batch.rows.to_pylist()
        for number, row in enumerate(rows):
            where = batch.first_row + number
            parts: list[_Part] = []
            for name, contents in files.items():
                ref, content = batch.refs[name][number], contents[number]
                if ref is not None and content is not None:
                    parts.append(_Part(self._suffixes.of(name, ref, content), content, is_file=True))
            parts += self._text_parts(row)
            values = {name: row[name] for name in self._values}
            if values or not parts:
                parts.append(_Part(self._json, _json(values, where)))
            split = "" if splits is None else check_name(splits[number], _split_text(source.split, where))
            yield split, self._key(row, where), parts

    def _text_parts(self, row: Mapping[str, Any]) -> Iterator[_Part]:
        if self._class is not None and row[self._class] is not None:
            yield _Part(_CLASS, str(row[self._class]).encode())
        for name in self._texts:
            if row[name] is not None:
                yield _Part(name, str(row[name]).encode())

    def _key(self, row: Mapping[str, Any], where: int) -> str:
        key = row[_KEY] if self._has_key else f"{where:08d}"
        if not isinstance(key, str) or not key or "." in key.rpartition("/")[2] or key.endswith("/"):
            raise BadInputError(f"row {where} has {_KEY} {key!r}", hint="A key is a path whose last part has no dot.")
        return key

    def _class_column(self) -> str | None:
        """Return the column of class integers: the label itself, or the integers that belong to its names."""
        label = self._source.label
        if label is None:
            return None
        paired = (self._source.schema.field(label).metadata or {}).get(CLASS_NAMES_KEY, b"").decode()
        for name in (label, paired):
            if name in self._source.schema.names and self._is_integer(name):
                return None if name == _CLASS else name
        return None

    def _is_integer(self, name: str) -> bool:
        import pyarrow as pa

        return bool(pa.types.is_integer(self._source.schema.field(name).type))

    def _is_text(self, name: str) -> bool:
        import pyarrow as pa

        kind = self._source.schema.field(name).type
        is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_integer(kind)
        return bool(is_text) and name not in self._source.ref_types


@dataclass(frozen=True, slots=True)
class _SuffixNames:
    """Chooses the suffix of a file: the column's name if it is one, or else that of the file."""

    columns: Sequence[str]
    taken: frozenset[str]

    def is_suffix(self, column: str) -> bool:
        return column.lower() == column and "/" not in column and column.rpartition(".")[2] in REF_TYPE_BY_SUFFIX

    def of(self, column: str, ref: FileRef, content: Content) -> str:
        if self.is_suffix(column):
            return column
        suffix = file_suffix(ref, content)
        if len(self.columns) == 1 and suffix not in self.taken:
            return suffix
        if "/" in column:
            raise BadInputError(
                f"column {column!r} cannot be a suffix: a slash begins a directory", hint="Leave the column out."
            )
        return f"{column.lower()}.{suffix}"


class _TarSeries:
    """Tars of one split, each closed when it has its size. A sample is never divided."""

    def __init__(self, out: ExportDirectory, split: str, shard_bytes: int) -> None:
        self._out, self._shard_bytes = out, shard_bytes
        self._names = (f"{split}-{number:06d}.tar" if split else f"{number:06d}.tar" for number in count())
        self._tar: tarfile.TarFile | None = None
        self._path = Path()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._tar is not None:
            self._tar.close()

    def open(self) -> tarfile.TarFile:
        if self._tar is None:
            self._path = self._out.new_file(next(self._names))
            self._tar = tarfile.open(self._path, "x", format=tarfile.PAX_FORMAT)  # noqa: SIM115 - closed by `add`
        return self._tar

    def add(self, key: str, parts: Sequence[_Part]) -> None:
        tar = self.open()
        if len({part.suffix for part in parts}) < len(parts):
            names = ", ".join(part.suffix for part in parts)
            raise BadInputError(f"sample {key!r} has two files with one suffix: {names}", hint="Leave a column out.")
        for part in parts:
            content = part.content
            info = tarfile.TarInfo(check_member_path(f"{key}.{part.suffix}", "the export"))
            info.size = len(content) if isinstance(content, bytes) else content.size
            info.mode = _MODE
            tar.addfile(info, _open(content))
            if part.is_file:
                self._out.counter.add_bytes(info.size)
                self._out.counter.finish_file()
        if tar.offset >= self._shard_bytes:
            tar.close()
            self._tar = None


def _open(content: Content) -> io.BufferedIOBase | Any:
    return io.BytesIO(content) if isinstance(content, bytes) else content.open()


def _split_text(column: str | None, row: int) -> Any:
    return lambda: f"column {column!r} of row {row}"


def _json(values: Mapping[str, Any], row: int) -> bytes:
    try:
        text = json.dumps(values, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_as_text)
    except ValueError as error:
        raise BadInputError(
            f"row {row} has a number that JSON does not have: {error}",
            hint="Leave the column out with columns (--columns), or export to parquet.",
        ) from error
    return text.encode("utf-8", "surrogatepass")


def _as_text(value: Any) -> str:
    """Return a value that JSON does not have as text: ISO 8601 for times, base64 for bytes."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, date | datetime | time):
        return value.isoformat()
    if isinstance(value, timedelta):
        return str(value.total_seconds())
    if isinstance(value, Decimal):
        return str(value)
    raise BadInputError(f"a {type(value).__name__} cannot be written as JSON", hint="Leave the column out.")


def _has_json_type(arrow_type: pa.DataType) -> bool:
    """Return whether JSON gives equal values back."""
    import pyarrow as pa

    if pa.types.is_dictionary(arrow_type):
        return _has_json_type(arrow_type.value_type)
    is_list = pa.types.is_list(arrow_type) or pa.types.is_large_list(arrow_type)
    if is_list or pa.types.is_fixed_size_list(arrow_type):
        return _has_json_type(arrow_type.value_type)
    if pa.types.is_struct(arrow_type):
        return all(_has_json_type(arrow_type.field(index).type) for index in range(arrow_type.num_fields))
    checks = (pa.types.is_string, pa.types.is_large_string, pa.types.is_integer, pa.types.is_boolean)
    return any(check(arrow_type) for check in (*checks, pa.types.is_floating, pa.types.is_null))
