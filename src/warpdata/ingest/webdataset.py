"""WebDataset tars, published as they are: an artifact, and a table with a row for each sample.

Files that differ only in their suffixes form a sample. Two passes read the headers: the first finds the columns and
their types, the second makes the rows. Only small texts are read, and one tar is open at a time. Headers are
read by the rules of publishing, which also reads the contents.
"""

from __future__ import annotations

import errno
import gzip
import re
import shutil
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from warpdata.errors import ErrorKind, InvalidSourceError, StorageError
from warpdata.formats.media import REF_TYPE_BY_SUFFIX
from warpdata.ingest.options import IngestReport, OnReport, Packing, log_report
from warpdata.ingest.source_files import FileSource, list_files, source_errors
from warpdata.kinds.artifacts import TarEntry, list_tar
from warpdata.limits import MAX_SAMPLE_SUFFIXES, MIB
from warpdata.primitives.arguments import check_arguments
from warpdata.publish import DatasetBuilder
from warpdata.session import Session

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["webdataset"]

KEY = "__key__"
_NAME = re.compile(r"(?P<key>(?:.*/)?[^./]+)\.(?P<suffix>[^/]+)", re.DOTALL)
_TEXTS = frozenset({"txt", "text", "transcript", "cls", "cls2", "class", "count", "index", "inx", "id", "json", "jsn"})
_JSON = frozenset({"json", "jsn"})
_INTEGER = re.compile(r"\s*(?:0|-?[1-9][0-9]{0,18})\s*", re.ASCII)
_INT64 = range(-(2**63), 2**63)
_GZIP_SUFFIXES = (".tar.gz", ".tgz")
_MAX_TEXT_BYTES = 1 * MIB
_BATCH_ROWS = 8192
_BATCH_BYTES = 16 * MIB
_COPY_BYTES = 1 * MIB


@check_arguments
def webdataset(
    dataset_id: str,
    source: FileSource,
    *,
    store: str | Session | None = None,
    table: str = "main",
    artifact: str = "raw",
    follow_links: bool = False,
    report: OnReport = log_report,
) -> DatasetBuilder:
    """Build a dataset from tars in a directory, a glob or a list, with one row for each sample, in order.

    `__key__` is the common part of the names of a sample's files. Each suffix is a column. Image, audio, video and
    other files are bound to the artifact. `.cls`, `.id`, `.txt`, `.json` and similar files become values: integers if
    all of them are, else text. If a sample lacks a file, its cell is null. Tars that end in `.tar.gz` or `.tgz` are
    decompressed first. Links that leave the directory are refused, or with `follow_links` followed.
    """
    import pyarrow as pa

    builder = DatasetBuilder(dataset_id, store)
    listed = list_files(source, (".tar", *_GZIP_SUFFIXES), follow_links=follow_links)
    paths = _expand_all(listed, builder)
    columns = learn_columns(paths)
    if not columns.sample_count:
        raise InvalidSourceError(f"{source!s} contains no sample", hint="A sample is 0001.jpg and 0001.cls.")
    rows = pa.RecordBatchReader.from_batches(columns.schema(), sample_batches(paths, columns))
    builder.add_table(table, rows)
    Packing("webdataset_shards").add(builder, artifact, paths)
    for suffix, ref_type in sorted(columns.references.items()):
        builder.bind(table, suffix, artifact, ref_type)
    ignored = {"": columns.nameless_count} if columns.nameless_count else {}
    report(IngestReport(str(source), columns.sample_count, columns.member_count, ignored))
    return builder


def _expand_all(paths: Sequence[Path], builder: DatasetBuilder) -> list[Path]:
    """Replace compressed tars by plain ones in the staging directory, so that members can be read by range."""
    return [_expand(path, number, builder) if _is_gzip(path) else path for number, path in enumerate(paths)]


def _is_gzip(path: Path) -> bool:
    return path.name.lower().endswith(_GZIP_SUFFIXES)


def _expand(path: Path, number: int, builder: DatasetBuilder) -> Path:
    target = builder.staging_dir / f"{number:06d}-{path.name}.tar"
    try:
        with gzip.open(path, "rb") as packed, target.open("xb") as file:
            shutil.copyfileobj(packed, file, _COPY_BYTES)
    except (OSError, EOFError, zlib.error) as error:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StorageError(
                f"{path} does not fit into the staging directory when it is decompressed",
                hint="Free some space, or set WARP_CACHE_DIR to a directory on a larger disk.",
                kind=ErrorKind.STORE_FULL,
            ) from error
        raise InvalidSourceError(f"{path} cannot be decompressed: {error}") from error
    return target


@dataclass(slots=True)
class SampleColumns:
    """The columns that the first pass found: each suffix is an integer, a text, or a reference of some type."""

    integers: set[str] = field(default_factory=set)
    texts: set[str] = field(default_factory=set)
    references: dict[str, str] = field(default_factory=dict)
    sample_count: int = 0
    member_count: int = 0
    nameless_count: int = 0
    """Members without a suffix, which belong to no sample."""

    def count(self) -> int:
        return len(self.integers) + len(self.texts) + len(self.references)

    def schema(self) -> pa.Schema:
        import pyarrow as pa

        types = dict.fromkeys(self.integers, pa.int64()) | dict.fromkeys((*self.texts, *self.references), pa.string())
        return pa.schema([(KEY, pa.string()), *((suffix, types[suffix]) for suffix in sorted(types))])


@dataclass(frozen=True, slots=True)
class _Sample:
    key: str
    parts: dict[str, TarEntry]


def learn_columns(paths: Sequence[Path]) -> SampleColumns:
    """Find the columns. A text column has integers if all its values are; with a large or binary value, references."""
    columns = SampleColumns()
    for path in paths:
        samples, nameless_count = _samples(path)
        with source_errors(path), path.open("rb") as file:
            for sample in samples:
                for suffix, entry in sample.parts.items():
                    _learn(columns, suffix, file, entry)
                if columns.count() > MAX_SAMPLE_SUFFIXES:
                    raise InvalidSourceError(
                        f"{path}: the members up to sample {sample.key!r} have more than {MAX_SAMPLE_SUFFIXES:,} "
                        "different suffixes, and each would be a column",
                        hint="A suffix begins at the first dot of a file name. Rename the members.",
                    )
                columns.member_count += len(sample.parts)
            columns.sample_count += len(samples)
            columns.nameless_count += nameless_count
    columns.member_count += columns.nameless_count
    return columns


def sample_batches(paths: Iterable[Path], columns: SampleColumns) -> Iterator[pa.RecordBatch]:
    """Yield a row for each sample, in the order of the tars. Memory holds a batch and the headers of one tar."""
    import pyarrow as pa

    schema = columns.schema()
    rows: list[dict[str, str | int]] = []
    held_bytes = 0
    for path in paths:
        samples, _ = _samples(path)
        with source_errors(path), path.open("rb") as file:
            for sample in samples:
                parts = sample.parts.items()
                values = {suffix: _value(columns, suffix, file, entry) for suffix, entry in parts}
                rows.append({KEY: sample.key, **values})
                held_bytes += sum(len(value) for value in values.values() if isinstance(value, str))
                if len(rows) >= _BATCH_ROWS or held_bytes >= _BATCH_BYTES:
                    yield pa.RecordBatch.from_pylist(rows, schema)
                    rows, held_bytes = [], 0
    if rows:
        yield pa.RecordBatch.from_pylist(rows, schema)


def _learn(columns: SampleColumns, suffix: str, file: BinaryIO, entry: TarEntry) -> None:
    if suffix in columns.references:
        return
    last = suffix.rpartition(".")[2]
    text = _text(file, entry) if last in _TEXTS else None
    if text is None:
        columns.integers.discard(suffix)
        columns.texts.discard(suffix)
        columns.references[suffix] = REF_TYPE_BY_SUFFIX.get(last, "file")
    elif last in _JSON or suffix in columns.texts or _integer(text) is None:
        columns.integers.discard(suffix)
        columns.texts.add(suffix)
    else:
        columns.integers.add(suffix)


def _value(columns: SampleColumns, suffix: str, file: BinaryIO, entry: TarEntry) -> str | int:
    """Return a member path, or the value of a text."""
    if suffix in columns.references:
        return entry.name
    text = _text(file, entry)
    value = _integer(text) if text is not None and suffix in columns.integers else text
    if value is None:
        raise InvalidSourceError(f"{file.name}: member {entry.name!r} changed while it was ingested")
    return value


def _integer(text: str) -> int | None:
    """Parse an integer in its canonical spelling; 007 stays a text."""
    if not _INTEGER.fullmatch(text):
        return None
    value = int(text)
    return value if value in _INT64 else None


def _text(file: BinaryIO, entry: TarEntry) -> str | None:
    """Return the text of a member; None if it is large or binary."""
    if entry.size_bytes > _MAX_TEXT_BYTES:
        return None
    file.seek(entry.offset)
    try:
        return file.read(entry.size_bytes).decode("utf-8")
    except UnicodeDecodeError:
        return None


def _samples(path: Path) -> tuple[list[_Sample], int]:
    """Return the samples in order of their first files, and the number of files without a suffix."""
    found: dict[str, _Sample] = {}
    nameless_count = 0
    for entry in list_tar(path):
        split = _NAME.fullmatch(entry.name)
        if split is None:
            nameless_count += 1
            continue
        sample = found.setdefault(split["key"], _Sample(split["key"], {}))
        suffix = split["suffix"].lower()
        if suffix in sample.parts:
            raise InvalidSourceError(f"{path}: sample {sample.key!r} has two files with the suffix {suffix!r}")
        if suffix == KEY:
            raise InvalidSourceError(
                f"{path}: member {entry.name!r} has the suffix {KEY}, which is the column of keys", hint="Rename it."
            )
        sample.parts[suffix] = entry
    return list(found.values()), nameless_count
