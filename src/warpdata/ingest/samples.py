"""Samples in WebDataset tars: files that differ only in their endings belong together.

Two walks over the headers: one learns which columns there are and of which type, one makes the rows.
Only small texts are read, and one tar is open at a time. Whether a tar is sound in every detail is
found out when it is published.
"""

from __future__ import annotations

import re
import tarfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from warpdata.errors import InvalidSourceError
from warpdata.ingest.file_types import REF_TYPE_BY_ENDING
from warpdata.kinds.artifacts import check_member_path
from warpdata.limits import INGEST_BATCH_BYTES, INGEST_BATCH_ROWS, INGEST_TEXT_BYTES

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["KEY", "SampleColumns", "learn_columns", "sample_batches"]

KEY = "__key__"
_NAME = re.compile(r"(?P<key>(?:.*/)?[^./]+)\.(?P<ending>[^/]+)", re.DOTALL)
_TEXTS = frozenset({"txt", "text", "transcript", "cls", "cls2", "class", "count", "index", "inx", "id", "json", "jsn"})
_JSON = frozenset({"json", "jsn"})
_INTEGER = re.compile(r"\s*(?:0|-?[1-9][0-9]{0,18})\s*", re.ASCII)
_INT64 = range(-(2**63), 2**63)


@dataclass(slots=True)
class SampleColumns:
    """What the first walk learned: for each ending an integer, a text, or a reference of some type."""

    integers: set[str] = field(default_factory=set)
    texts: set[str] = field(default_factory=set)
    references: dict[str, str] = field(default_factory=dict)
    sample_count: int = 0
    member_count: int = 0
    nameless_count: int = 0
    """Members without an ending, which belong to no sample."""

    def schema(self) -> pa.Schema:
        import pyarrow as pa

        types = dict.fromkeys(self.integers, pa.int64()) | dict.fromkeys((*self.texts, *self.references), pa.string())
        return pa.schema([(KEY, pa.string()), *((ending, types[ending]) for ending in sorted(types))])


@dataclass(frozen=True, slots=True)
class _Sample:
    key: str
    parts: dict[str, tarfile.TarInfo]


def learn_columns(paths: Sequence[Path]) -> SampleColumns:
    """A text column is one of integers if all its values are; where one is large or no text, all are references."""
    columns = SampleColumns()
    for path in paths:
        with _opened(path) as tar:
            samples, nameless_count = _samples(tar, path)
            for sample in samples:
                for ending, info in sample.parts.items():
                    _learn(columns, ending, tar, info)
                columns.member_count += len(sample.parts)
            columns.sample_count += len(samples)
            columns.nameless_count += nameless_count
    columns.member_count += columns.nameless_count
    return columns


def sample_batches(paths: Iterable[Path], columns: SampleColumns) -> Iterator[pa.RecordBatch]:
    """A row for each sample, in the order of the tars; in memory are a batch, and the headers of a tar."""
    import pyarrow as pa

    schema = columns.schema()
    rows: list[dict[str, str | int]] = []
    held_bytes = 0
    for path in paths:
        with _opened(path) as tar:
            for sample in _samples(tar, path)[0]:
                parts = sample.parts.items()
                values = {ending: _value(columns, ending, tar, info) for ending, info in parts}
                rows.append({KEY: sample.key, **values})
                held_bytes += sum(len(value) for value in values.values() if isinstance(value, str))
                if len(rows) >= INGEST_BATCH_ROWS or held_bytes >= INGEST_BATCH_BYTES:
                    yield pa.RecordBatch.from_pylist(rows, schema)
                    rows, held_bytes = [], 0
    if rows:
        yield pa.RecordBatch.from_pylist(rows, schema)


def _learn(columns: SampleColumns, ending: str, tar: tarfile.TarFile, info: tarfile.TarInfo) -> None:
    if ending in columns.references:
        return
    last = ending.rpartition(".")[2]
    text = _text(tar, info) if last in _TEXTS else None
    if text is None:
        columns.integers.discard(ending)
        columns.texts.discard(ending)
        columns.references[ending] = REF_TYPE_BY_ENDING.get(last, "file")
    elif last in _JSON or ending in columns.texts or _integer(text) is None:
        columns.integers.discard(ending)
        columns.texts.add(ending)
    else:
        columns.integers.add(ending)


def _value(columns: SampleColumns, ending: str, tar: tarfile.TarFile, info: tarfile.TarInfo) -> str | int:
    """A member path, or what a text says."""
    if ending in columns.references:
        return info.name
    text = _text(tar, info)
    value = _integer(text) if text is not None and ending in columns.integers else text
    if value is None:
        raise InvalidSourceError(f"{tar.name!s}: member {info.name!r} changed while it was being ingested")
    return value


def _integer(text: str) -> int | None:
    """Only in the one spelling that can be given back; 007 stays a text."""
    if not _INTEGER.fullmatch(text):
        return None
    value = int(text)
    return value if value in _INT64 else None


def _text(tar: tarfile.TarFile, info: tarfile.TarInfo) -> str | None:
    """None if the member is large, or no text."""
    file = tar.extractfile(info) if info.size <= INGEST_TEXT_BYTES else None
    try:
        return None if file is None else file.read().decode("utf-8")
    except UnicodeDecodeError:
        return None


def _samples(tar: tarfile.TarFile, path: Path) -> tuple[list[_Sample], int]:
    """In the order in which they begin, with names as they will be members' paths; and how many files are no part."""
    found: dict[str, _Sample] = {}
    nameless_count = 0
    for info in tar:
        if not info.isreg():
            continue
        info.name = check_member_path(info.name.removeprefix("./"), str(path))
        split = _NAME.fullmatch(info.name)
        if split is None:
            nameless_count += 1
            continue
        sample = found.setdefault(split["key"], _Sample(split["key"], {}))
        ending = split["ending"].lower()
        if ending in sample.parts:
            raise InvalidSourceError(f"{path}: sample {sample.key!r} has two files that end in {ending!r}")
        sample.parts[ending] = info
    return list(found.values()), nameless_count


@contextmanager
def _opened(path: Path) -> Iterator[tarfile.TarFile]:
    try:
        with tarfile.open(path, "r:", encoding="utf-8", errors="surrogateescape") as tar:
            yield tar
    except (tarfile.TarError, EOFError) as error:
        raise InvalidSourceError(
            f"{path} cannot be read as a tar archive: {error}", hint="Compressed archives must be unpacked first."
        ) from error
    except OSError as error:
        raise InvalidSourceError(f"{path} cannot be read: {error.strerror or error}") from error
