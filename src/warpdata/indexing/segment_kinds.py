"""The kinds of segments: the columns that they fit, their parameters, and how their files are written and described."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from warpdata.errors import BadInputError, SchemaMismatchError
from warpdata.formats.indexes import is_list, value_type_of, write_bitmap, write_btree
from warpdata.formats.parquet import describe_parquet
from warpdata.formats.search import (
    METRICS,
    VECTOR_KINDS,
    VectorOptions,
    describe_vectors,
    vectors_of,
    write_text,
    write_vectors,
)
from warpdata.kinds.indexes import Parameters
from warpdata.limits import MAX_IVF_LISTS
from warpdata.repository.manifest import Footer

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

__all__ = ["SEGMENT_KINDS", "ColumnToIndex", "SegmentKind", "check_kind"]


@dataclass(frozen=True, slots=True)
class ColumnToIndex:
    """A column, its type, and the kind and parameters of its index."""

    kind: str
    name: str
    type: pa.DataType
    parameters: Parameters


@dataclass(frozen=True, slots=True)
class SegmentKind:
    """What a kind adds to a build."""

    check: Callable[[ColumnToIndex], None]
    """Raises an error unless the column and the parameters fit."""
    write: Callable[[Iterator[pa.Array], int, ColumnToIndex, Path], object]
    """Writes the values of this number of rows."""
    describe: Callable[[Path], tuple[Footer | None, int | None]]
    """Returns the footer of a file, and the rows of a Parquet file."""


def check_kind(column: ColumnToIndex) -> None:
    """Raise an error unless the column can have an index of this kind and with these parameters."""
    kind = SEGMENT_KINDS.get(column.kind)
    if kind is None:
        raise BadInputError(
            f"{column.kind!r} is not a kind of index that can be built", hint=f"Use {', '.join(SEGMENT_KINDS)}."
        )
    kind.check(column)


def _check_scalar(column: ColumnToIndex) -> None:
    value_type_of(column.name, column.type)
    _check_parameters(column, ())
    if column.kind == "btree" and is_list(column.type):
        raise SchemaMismatchError(f"column {column.name!r} is {column.type}: a list", hint="Use kind='bitmap'.")


def _check_vectors(column: ColumnToIndex) -> None:
    import pyarrow as pa

    if not pa.types.is_fixed_size_list(column.type) or not pa.types.is_floating(column.type.value_type):
        raise SchemaMismatchError(
            f"column {column.name!r} is {column.type}, and not a fixed-size list of floating-point numbers"
        )
    is_ivf = column.kind == "ivf"
    _check_parameters(column, ("lists", "metric") if is_ivf else ("metric",))
    metrics = METRICS if is_ivf else ("cosine",)
    if column.parameters.get("metric") not in metrics:
        raise BadInputError(
            f"metric={column.parameters.get('metric')!r} is none of {', '.join(metrics)}",
            hint=None if is_ivf else "An index of kind 'ivf' has other metrics, too.",
        )
    if column.kind == "imi" and column.type.list_size % 2:
        raise SchemaMismatchError(
            f"column {column.name!r} has vectors of {column.type.list_size} numbers, which cannot be halved",
            hint="Use kind='ivf'.",
        )
    lists = column.parameters.get("lists", 1)
    if not isinstance(lists, int) or not 1 <= lists <= MAX_IVF_LISTS:
        raise BadInputError(f"lists={lists!r} is not a number from 1 to {MAX_IVF_LISTS:,}")


def _check_text(column: ColumnToIndex) -> None:
    import pyarrow as pa

    plain = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if plain not in (pa.string(), pa.large_string(), pa.string_view()):
        raise SchemaMismatchError(f"column {column.name!r} is {column.type}, and not text")
    _check_parameters(column, ())


def _check_parameters(column: ColumnToIndex, known: Iterable[str]) -> None:
    unknown = sorted(column.parameters.keys() - set(known))
    if unknown:
        raise BadInputError(f"an index of kind {column.kind!r} has no parameter {unknown[0]!r}")


def _write_bitmap(chunks: Iterator[pa.Array], _row_count: int, column: ColumnToIndex, path: Path) -> None:
    write_bitmap(chunks, column.type, value_type_of(column.name, column.type), path)


def _write_btree(chunks: Iterator[pa.Array], _row_count: int, column: ColumnToIndex, path: Path) -> None:
    write_btree(chunks, value_type_of(column.name, column.type), path)


def _write_vectors(chunks: Iterator[pa.Array], row_count: int, column: ColumnToIndex, path: Path) -> None:
    metric = next(each for each in METRICS if each == column.parameters["metric"])
    lists = column.parameters.get("lists")
    options = VectorOptions(metric, int(lists) if lists is not None else None, column.kind)
    write_vectors(_vectors(chunks), row_count, path, options)


def _vectors(chunks: Iterator[pa.Array]) -> Iterator[tuple[NDArray[np.int64], NDArray[Any]]]:
    start = 0
    for chunk in chunks:
        positions, vectors = vectors_of(chunk)
        yield start + positions, vectors
        start += len(chunk)


def _write_text(chunks: Iterator[pa.Array], _row_count: int, _column: ColumnToIndex, path: Path) -> None:
    write_text(chunks, path)


def _describe_parquet(path: Path) -> tuple[Footer | None, int | None]:
    described = describe_parquet(path)
    return described.footer, described.row_count


def _describe_vectors(path: Path) -> tuple[Footer | None, int | None]:
    return describe_vectors(path), None


_parquet_kind = partial(SegmentKind, describe=_describe_parquet)

SEGMENT_KINDS: Mapping[str, SegmentKind] = {
    "bitmap": _parquet_kind(check=_check_scalar, write=_write_bitmap),
    "btree": _parquet_kind(check=_check_scalar, write=_write_btree),
    "text": _parquet_kind(check=_check_text, write=_write_text),
    **dict.fromkeys(VECTOR_KINDS, SegmentKind(check=_check_vectors, write=_write_vectors, describe=_describe_vectors)),
}
