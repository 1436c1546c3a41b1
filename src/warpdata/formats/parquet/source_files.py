"""Parquet files on this machine that are about to become shards: are they whole, and what is in them?"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from warpdata.errors import CorruptError, InvalidSourceError, SchemaMismatchError
from warpdata.formats.parquet.nan_stats import check_told, columns_without_nan, told_nothing
from warpdata.formats.parquet.shard import parse_tail
from warpdata.limits import KIB, MAX_FOOTER_BYTES
from warpdata.query import check_same_schema, check_unique
from warpdata.repository.manifest import Footer

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["ParquetSource", "describe_all", "describe_parquet", "read_unified"]

_PARALLEL_READS = 4
_TAIL_GUESS_BYTES = 8 * KIB


@dataclass(frozen=True, slots=True)
class ParquetSource:
    path: Path
    row_count: int
    footer: Footer
    schema: pa.Schema
    tells_of_nan: bool = False
    """Whether its footer says that some columns have no NaN."""


def describe_all(paths: Iterable[Path], written: Collection[Path] = ()) -> list[ParquetSource]:
    """Describe every file and insist that they agree on one schema.

    Those in `written` were made by `write_parquet`. What others tell about NaN is checked.
    """

    def look(path: Path) -> ParquetSource:
        source = describe_parquet(path)
        if source.tells_of_nan and path not in written:
            check_told(path)
        return source

    with ThreadPoolExecutor(_PARALLEL_READS) as pool:
        sources = list(pool.map(look, paths))
    for source in sources[1:]:
        check_same_schema(sources[0].schema, str(sources[0].path), source.schema, str(source.path))
    return sources


def describe_parquet(path: Path) -> ParquetSource:
    """Read the footer; `InvalidSourceError` names the file that is no sound Parquet file."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    import xxhash

    try:
        tail = _tail(path)
        metadata = pq.read_metadata(pa.BufferReader(tail))
        schema = told_nothing(metadata.schema.to_arrow_schema())
    except FileNotFoundError as error:
        raise InvalidSourceError(f"{path} does not exist") from error
    except (pa.ArrowException, OSError, CorruptError) as error:
        raise InvalidSourceError(f"{path} is not a readable Parquet file: {_fact(error)}") from error
    check_unique(schema, str(path))
    footer = Footer(len(tail), xxhash.xxh3_64_hexdigest(tail))
    return ParquetSource(path, metadata.num_rows, footer, schema, bool(columns_without_nan(metadata.metadata)))


def read_unified(paths: Sequence[Path]) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """All rows of the files in one schema that holds every file's columns, converting where that loses nothing."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    schemas = [describe_parquet(path).schema for path in paths]
    try:
        schema = pa.unify_schemas([each.remove_metadata() for each in schemas], promote_options="permissive")
    except (pa.ArrowException, TypeError) as error:
        raise SchemaMismatchError(f"the files have no common schema: {error}") from error

    def rows() -> Iterator[pa.RecordBatch]:
        for path in paths:
            with pq.ParquetFile(path) as file:
                for batch in file.iter_batches():
                    yield _widened(batch, schema)

    return schema, rows()


def _tail(path: Path) -> bytes:
    """One read is enough for most footers."""
    with path.open("rb", buffering=0) as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - _TAIL_GUESS_BYTES))
        end = file.read()
        footer_bytes = parse_tail(end)
        if footer_bytes > min(size, MAX_FOOTER_BYTES):
            raise CorruptError(f"the footer claims {footer_bytes} bytes, the file has {size}")
        if footer_bytes > len(end):
            file.seek(size - footer_bytes)
            end = file.read()
        return end[-footer_bytes:]


def _widened(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    import pyarrow as pa

    columns = []
    for field in schema:
        position = batch.schema.get_field_index(field.name)
        if position < 0:
            columns.append(pa.nulls(batch.num_rows, field.type))
        else:
            columns.append(batch.column(position).cast(field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _fact(error: BaseException) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
