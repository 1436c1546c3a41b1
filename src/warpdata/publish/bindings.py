"""Columns bound to artifacts: does every cell lead to bytes that will be there?

A reference that leads nowhere would be found months later, by somebody else. So every value is looked
up before anything is sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from warpdata.errors import BadInputError, ColumnNotFoundError, InvalidSourceError
from warpdata.kinds.tables import check_reference_column
from warpdata.primitives.suggest import suggest
from warpdata.publish.plan import StagedFile
from warpdata.repository.manifest import REF_TYPES, Binding

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Target", "check_binding", "check_ref_type", "some_paths"]

_SOME = 16


@dataclass(frozen=True, slots=True)
class Target:
    """An artifact as far as a binding needs it: is a path there, and how long is each shard?"""

    contains: Callable[[str], bool]
    shard_bytes: Sequence[int]
    example: str


def check_ref_type(ref_type: str) -> str:
    if ref_type not in REF_TYPES:
        raise BadInputError(f"ref_type={ref_type!r} is not known", hint=f"Known: {', '.join(sorted(REF_TYPES))}.")
    return ref_type


def some_paths(files: Sequence[StagedFile], column: str) -> list[str]:
    """The first few values of a column of paths."""
    found = (value for _, _, values in _columns(files, column) for value in values if isinstance(value, str))
    return list(islice(found, _SOME))


def check_binding(binding: Binding, files: Sequence[StagedFile], target: Target) -> None:
    """`InvalidSourceError` names the first cell that leads nowhere."""
    for file in files[:1]:
        schema = file.source.schema
        if binding.column not in schema.names:
            raise ColumnNotFoundError(
                f"table {binding.table!r} has no column {binding.column!r} to bind",
                hint=suggest(binding.column, schema.names, label="The columns are"),
            )
        check_reference_column(schema.field(binding.column))
    for path, first_row, values in _columns(files, binding.column):
        for number, value in enumerate(values):
            problem = _problem(value, target)
            if problem is not None:
                raise InvalidSourceError(
                    f"row {first_row + number} of {path.name} (table {binding.table!r}, column {binding.column!r}): "
                    f"{problem} artifact {binding.artifact!r}",
                    hint=f"Its members are called like {target.example!r}; prefix=… changes what goes before them.",
                )


def _problem(value: Any, target: Target) -> str | None:
    if value is None:
        return None
    if isinstance(value, str):
        return None if target.contains(value) else f"{value!r} is not in"
    shard, offset, length = (value[name] for name in ("shard", "offset", "length"))
    if None in (shard, offset, length) or min(shard, offset, length) < 0:
        return f"{value} names no bytes of"
    if shard >= len(target.shard_bytes) or offset + length > target.shard_bytes[shard]:
        return f"bytes {offset}…{offset + length} of shard {shard} are not in"
    return None


def _columns(files: Iterable[StagedFile], column: str) -> Iterator[tuple[Path, int, list[Any]]]:
    """Values of one column, a row group at a time, each with its file and the number of its first row."""
    import pyarrow.parquet as pq

    for file in files:
        if column not in file.source.schema.names:
            continue
        first_row = 0
        with pq.ParquetFile(file.path) as parquet:
            for group in range(parquet.num_row_groups):
                values: pa.ChunkedArray = parquet.read_row_group(group, columns=[column])[column]
                yield file.path, first_row, values.to_pylist()
                first_row += len(values)
