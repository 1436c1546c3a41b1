"""Tables on their way into a version: any input becomes Parquet files on this machine, described and hashed.

Files are published as they are, byte for byte. Everything else (Arrow tables, batches, data frames, rows) is written
once into the staging directory. Adjacent in-memory parts become one run of files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from warpdata.errors import InvalidSourceError
from warpdata.formats.parquet import ParquetSource, describe_all, read_unified, write_parquet
from warpdata.kinds import StageContext, StagedBlob, StagedEntry, hash_file
from warpdata.kinds.tables.arrow_input import ArrowRows, convert, read_arrow, read_columns
from warpdata.primitives.hashing import Fingerprint
from warpdata.primitives.parallel import IO_POOL
from warpdata.primitives.paths import find_files
from warpdata.primitives.progress import ProgressCounter
from warpdata.repository.manifest import Shard, ShardList, TableEntry

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["StagedTable", "TableInput", "TableSpec", "stage_table"]

TableInput: TypeAlias = Any
"""A path or glob; an Arrow table, batch, reader, or any object with the Arrow C stream or array protocol; a pandas or
polars frame, a DuckDB relation, a Hugging Face dataset; a dict of columns, a list of dicts, an iterator of batches, or
a list of these."""

_HASH_THREADS = 4
_INPUTS = "Give a path or glob, an Arrow table or batches, a data frame, a dict of columns, or a list of these."


@dataclass(frozen=True, slots=True)
class TableSpec:
    """A table to publish. `rewrite` writes files again: one schema, even row groups, page checksums."""

    source: TableInput
    rewrite: bool = False


@dataclass(frozen=True, slots=True)
class StagedTable(StagedEntry):
    files: tuple[ParquetSource, ...]

    @property
    def schema(self) -> pa.Schema | None:
        """The schema of all files; None for a table without files."""
        return self.files[0].schema if self.files else None

    def read_column(self, column: str) -> Iterator[tuple[Path, int, list[Any]]]:
        """Yield the values of one column, a row group at a time, after its file and the number of its first row."""
        import pyarrow.parquet as pq

        for file in self.files:
            first_row = 0
            with pq.ParquetFile(file.path) as parquet:
                for group in range(parquet.num_row_groups):
                    values: pa.ChunkedArray = parquet.read_row_group(group, columns=[column])[column]
                    yield file.path, first_row, values.to_pylist()
                    first_row += len(values)


def stage_table(name: str, spec: TableSpec, context: StageContext) -> StagedTable:
    files = _parquet_files(name, spec, context.directory)
    counter = ProgressCounter(context.progress, "hash", sum(file.path.stat().st_size for file in files), len(files))

    def hash_one(file: ParquetSource) -> Fingerprint:
        fingerprint = hash_file(file.path, counter)
        counter.finish_file()
        return fingerprint

    fingerprints = IO_POOL.map_all(hash_one, files, limit=_HASH_THREADS)
    columns = files[0].schema.names if files else ()
    return StagedTable(
        entry=TableEntry(ShardList(), schema=TableEntry.listing(columns) if files else None),
        shards=tuple(
            Shard(fingerprint.blob.hash, fingerprint.blob.byte_size, file.row_count, file.footer)
            for file, fingerprint in zip(files, fingerprints, strict=True)
        ),
        blobs=tuple(StagedBlob(file.path, fingerprint) for file, fingerprint in zip(files, fingerprints, strict=True)),
        item_count=sum(file.row_count for file in files),
        files=tuple(files),
    )


@dataclass(frozen=True, slots=True)
class _Files:
    paths: tuple[Path, ...]


@dataclass(frozen=True, slots=True)
class _Rows:
    schema: pa.Schema
    batches: Iterable[pa.RecordBatch]


def _parquet_files(name: str, spec: TableSpec, directory: Path) -> list[ParquetSource]:
    """Return files in table order, all of one schema. Raise `InvalidSourceError` with the file that is not."""
    parts = list(_parts(spec.source, name))
    paths: list[Path] = []
    written: set[Path] = set()
    number = 0
    for is_files, group in groupby(parts, key=lambda part: isinstance(part, _Files)):
        run = list(group)
        if is_files:
            listed = [path for part in run if isinstance(part, _Files) for path in part.paths]
            if not spec.rewrite:
                paths.extend(listed)
                continue
            schema, batches = read_unified(listed)
        else:
            rows = [part for part in run if isinstance(part, _Rows)]
            schema, batches = rows[0].schema, chain.from_iterable(part.batches for part in rows)
        made = list(write_parquet(batches, schema, directory, f"{name}-{number}"))
        paths.extend(made)
        written.update(made)
        number += 1
    return describe_all(paths, written)


def _parts(source: TableInput, name: str) -> Iterator[_Files | _Rows]:
    import pyarrow as pa

    if isinstance(source, str | Path):
        found = find_files(source, (".parquet",))
        if not found:
            raise InvalidSourceError(f"no file matches {str(source)!r}", hint="Check the path; quote globs in a shell.")
        yield _Files(tuple(found))
    elif isinstance(source, pa.RecordBatch):
        yield _Rows(source.schema, [source])
    elif isinstance(source, pa.RecordBatchReader):
        yield _Rows(source.schema, source)
    elif isinstance(source, Mapping):
        yield _of_table(read_columns(source, name))
    elif isinstance(source, list | tuple):
        yield from _list_parts(source, name)
    else:
        rows = read_arrow(source, name)
        if rows is None and isinstance(source, Iterable):
            rows = _of_iterator(iter(source), name)
        if rows is None:
            raise InvalidSourceError(f"table {name!r} cannot be made from a {type(source).__name__}", hint=_INPUTS)
        yield _Rows(*rows)


def _list_parts(items: list[Any] | tuple[Any, ...], name: str) -> Iterator[_Files | _Rows]:
    import pyarrow as pa

    if not items:
        raise InvalidSourceError(f"table {name!r} was given an empty list")
    if all(isinstance(item, Mapping) for item in items):
        yield _of_table(convert(lambda: pa.Table.from_pylist(list(items)), name))
        return
    for item in items:
        yield from _parts(item, name)


def _of_table(table: pa.Table) -> _Rows:
    return _Rows(table.schema, table.to_batches())


def _of_iterator(items: Iterator[Any], name: str) -> ArrowRows:
    """Chain batches or tables. The first one decides the schema."""

    def batches() -> Iterator[pa.RecordBatch]:
        for item in items:
            rows = read_arrow(item, name)
            if rows is None:
                raise InvalidSourceError(f"table {name!r} cannot be made of a {type(item).__name__}", hint=_INPUTS)
            yield from rows[1]

    stream = batches()
    first = next(stream, None)
    if first is None:
        raise InvalidSourceError(f"the iterator for table {name!r} yielded no batch, so the table has no schema")
    return first.schema, chain([first], stream)
