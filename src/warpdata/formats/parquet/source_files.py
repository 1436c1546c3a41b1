"""Local Parquet files that are to become shards: described, and checked against one another."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from warpdata.errors import CorruptError, InvalidSourceError, SchemaMismatchError
from warpdata.formats.parquet.file_sink import WrittenFile
from warpdata.formats.parquet.layout import open_layout, parse_footer_size
from warpdata.formats.parquet.nan_stats import check_nan_metadata, columns_without_nan
from warpdata.formats.parquet.widening import can_widen
from warpdata.limits import KIB, MAX_FOOTER_BYTES
from warpdata.primitives.parallel import IO_POOL, disk_threads
from warpdata.repository.manifest import Footer

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

__all__ = [
    "ParquetSource",
    "check_appendable",
    "check_same_schema",
    "check_unique",
    "describe_all",
    "describe_parquet",
    "read_unified",
]

_FOOTER_GUESS_BYTES = 8 * KIB
_MAX_LISTED_PROBLEMS = 5
_DAMAGED = "The file is damaged: restore it, or leave it out."
_CAST_HINT = "Cast the rows to the table's types, or publish the whole table again with add_table."
_REWRITE = "Make the files agree, or pass rewrite=True to convert them to one schema."


@dataclass(frozen=True, slots=True)
class ParquetSource:
    """A Parquet file that is to become a shard. With `data`, it is in memory, and `path` only names it."""

    path: Path
    row_count: int
    footer: Footer
    schema: pa.Schema
    has_nan_metadata: bool = False
    """True if the footer lists columns without NaN."""
    claims_extensions: bool = False
    """True if the embedded Arrow schema claims an extension type of this library. `schema` is without it."""
    data: bytes | None = None

    def open(self) -> pq.ParquetFile:
        """Open the file with Arrow."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        return pq.ParquetFile(self.path if self.data is None else pa.BufferReader(self.data))


def describe_all(files: Iterable[Path | WrittenFile]) -> list[ParquetSource]:
    """Describe the files, which must agree on one schema.

    NaN metadata is checked, except in files that `write_spooled` made.
    """

    def describe(file: Path | WrittenFile) -> ParquetSource:
        if isinstance(file, WrittenFile):
            return describe_parquet(file.path, file.data)
        source = describe_parquet(file)
        if source.has_nan_metadata:
            check_nan_metadata(file)
        return source

    sources = IO_POOL.map_all(describe, files, limit=disk_threads())
    for source in sources[1:]:
        check_same_schema(sources[0].schema, str(sources[0].path), source.schema, str(source.path))
    return sources


def describe_parquet(path: Path, data: bytes | None = None) -> ParquetSource:
    """Read and check the footer. `InvalidSourceError` if the file is not a valid Parquet file.

    With `data`, the content of the file, nothing is read.
    """
    import xxhash

    try:
        tail = _read_footer(path) if data is None else _footer_of(data)
        size_bytes = path.stat().st_size if data is None else len(data)
        layout = open_layout(tail, size_bytes, path.name, is_verified=False)
        schema, row_count = layout.schema, sum(layout.footer.group_rows)
    except FileNotFoundError as error:
        raise InvalidSourceError(f"{path} does not exist") from error
    except (OSError, CorruptError) as error:
        raise InvalidSourceError(f"{path} is not a readable Parquet file: {_first_line(error)}") from error
    check_unique(schema, str(path))
    footer = Footer(len(tail), xxhash.xxh3_64_hexdigest(tail))
    has_nan_metadata = bool(columns_without_nan(layout.metadata.metadata))
    return ParquetSource(path, row_count, footer, schema, has_nan_metadata, layout.claims_extensions, data)


def read_unified(paths: Sequence[Path]) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """Return a schema that has the columns of all files, and all rows in it. Conversions lose nothing."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    schemas = [describe_parquet(path).schema for path in paths]
    try:
        schema = pa.unify_schemas([each.remove_metadata() for each in schemas], promote_options="permissive")
    except (pa.ArrowException, TypeError) as error:
        raise SchemaMismatchError(f"the files have no common schema: {error}") from error

    def rows() -> Iterator[pa.RecordBatch]:
        for path in paths:
            try:
                with pq.ParquetFile(path, page_checksum_verification=True) as file:
                    for batch in file.iter_batches():
                        yield _widen(batch, schema)
            except (pa.ArrowException, OSError) as error:
                raise InvalidSourceError(f"{path} cannot be decoded: {_first_line(error)}", hint=_DAMAGED) from error

    return schema, rows()


def check_same_schema(first: pa.Schema, first_name: str, other: pa.Schema, other_name: str) -> None:
    """Raise `SchemaMismatchError` unless both have the same columns and types. Order and metadata may differ."""
    _check_columns(first, first_name, other, other_name, operator.eq, _REWRITE)


def check_appendable(table: pa.Schema, table_name: str, rows: pa.Schema, rows_name: str) -> None:
    """Raise `SchemaMismatchError` unless the rows have the table's columns, in types that widen to the table's."""

    def fits(declared: pa.DataType, found: pa.DataType) -> bool:
        return can_widen(found, declared)

    _check_columns(table, table_name, rows, rows_name, fits, _CAST_HINT)


def _check_columns(
    first: pa.Schema,
    first_name: str,
    other: pa.Schema,
    other_name: str,
    fits: Callable[[pa.DataType, pa.DataType], bool],
    hint: str,
) -> None:
    first_names, other_names = set(first.names), set(other.names)
    problems = [f"column {name!r} is missing from {other_name}" for name in first.names if name not in other_names]
    problems += [f"column {name!r} is only in {other_name}" for name in other.names if name not in first_names]
    for name in first.names:
        if name in other_names and not fits(first.field(name).type, other.field(name).type):
            here, there = first.field(name).type, other.field(name).type
            problems.append(f"column {name!r} is {here} in {first_name}, but {there} in {other_name}")
    if problems:
        unlisted = len(problems) - _MAX_LISTED_PROBLEMS
        suffix = f" (and {unlisted} more)" if unlisted > 0 else ""
        raise SchemaMismatchError("; ".join(problems[:_MAX_LISTED_PROBLEMS]) + suffix, hint=hint)


def check_unique(schema: pa.Schema, where: str) -> None:
    """Raise `SchemaMismatchError` for column names that are equal if case is ignored, as SQL ignores it."""
    seen: dict[str, str] = {}
    for name in schema.names:
        other = seen.get(name.lower())
        if other is not None:
            raise SchemaMismatchError(f"{where} has two columns that SQL cannot tell apart: {other!r} and {name!r}")
        seen[name.lower()] = name


def _read_footer(path: Path) -> bytes:
    """Read the footer. The first read is large enough for most footers."""
    with path.open("rb", buffering=0) as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - _FOOTER_GUESS_BYTES))
        tail = file.read()
        footer_bytes = parse_footer_size(tail)
        if footer_bytes > min(size, MAX_FOOTER_BYTES):
            raise CorruptError(f"the footer claims {footer_bytes} bytes, the file has {size}")
        if footer_bytes > len(tail):
            file.seek(size - footer_bytes)
            tail = file.read()
        return tail[-footer_bytes:]


def _footer_of(data: bytes) -> bytes:
    return data[-parse_footer_size(data[-_FOOTER_GUESS_BYTES:]) :]


def _widen(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the batch in a wider schema, with nulls in the columns that it lacks."""
    import pyarrow as pa

    columns = []
    for field in schema:
        position = batch.schema.get_field_index(field.name)
        if position < 0:
            columns.append(pa.nulls(batch.num_rows, field.type))
        else:
            columns.append(batch.column(position).cast(field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _first_line(error: BaseException) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
