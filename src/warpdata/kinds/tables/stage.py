"""Tables on their way into a version: any input becomes Parquet files on this machine, described and hashed.

Files are published as they are, byte for byte. Everything else (Arrow tables, batches, data frames, rows) is written
once into the staging directory. Adjacent in-memory parts become one run of files. A whole table of another version
keeps its shards. Reference columns are written as their stored values; their types are kept beside them, for the
builder to bind the columns again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from warpdata.errors import InvalidSourceError, SchemaMismatchError
from warpdata.formats.parquet import (
    ParquetSource,
    WrittenFile,
    describe_all,
    has_own_extension,
    read_unified,
    write_spooled,
)
from warpdata.kinds import MemoryBlob, StageContext, StagedBlob, StagedEntry, copied_blob, hash_file
from warpdata.kinds.tables.arrow_input import ArrowRows, convert, read_arrow, read_columns
from warpdata.kinds.tables.external import describe_external
from warpdata.kinds.tables.row_values import DetachedReference, detach_references
from warpdata.kinds.tables.table import Table
from warpdata.primitives.hashing import fingerprint_bytes
from warpdata.primitives.parallel import IO_POOL, disk_threads
from warpdata.primitives.paths import find_files
from warpdata.primitives.progress import ProgressCounter
from warpdata.repository.manifest import Shard, ShardList, TableEntry, iter_shards
from warpdata.settings import Settings
from warpdata.storage import BlobCopy

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["StagedTable", "TableInput", "TableSpec", "stage_table"]

TableInput: TypeAlias = Any
"""A path or glob; a `Table` of a dataset; an Arrow table, batch, reader, or any object with the Arrow C stream or array
protocol; a pandas or polars frame, a DuckDB relation, a Hugging Face dataset; a dict of columns, a list of dicts, an
iterator of batches, or a list of these."""

_INPUTS = "Give a path or glob, an Arrow table or batches, a data frame, a dict of columns, or a list of these."


@dataclass(frozen=True, slots=True)
class TableSpec:
    """A table to publish. `rewrite` writes files again: one schema, even row groups, page checksums.

    With `appends`, the rows come after those of the stored table. With `follow_links`, links that leave a directory
    of files are followed. With `in_place`, the files stay where they are; these are the settings to find them with.
    """

    source: TableInput
    rewrite: bool = False
    appends: bool = False
    follow_links: bool = False
    in_place: Settings | None = None


@dataclass(frozen=True, slots=True)
class StagedTable(StagedEntry):
    files: tuple[ParquetSource, ...]
    appends: bool = False
    references: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    """The origins of each column that was given as references, in order of appearance: the extension types of Arrow
    columns, and `DetachedReference` for Python values."""
    stored: Table | None = None
    """The table of another version, if this one has its shards and no files."""

    @property
    def schema(self) -> pa.Schema | None:
        """The schema of all files; None for a table without files."""
        if self.stored is not None:
            return self.stored.schema() if self.shards else None
        return self.files[0].schema if self.files else None

    def read_column(self, column: str) -> Iterator[tuple[Path, int, list[Any]]]:
        """Yield the values of one column, a row group at a time, after its file and the number of its first row."""
        import pyarrow as pa

        if self.stored is not None:
            first_row = 0
            for batch in self.stored.batches(columns=[column]):
                yield Path(f"table {self.stored.name!r}"), first_row, batch.column(0).to_pylist()
                first_row += batch.num_rows
        for file in self.files:
            first_row = 0
            try:
                with file.open() as parquet:
                    for group in range(parquet.num_row_groups):
                        values: pa.ChunkedArray = parquet.read_row_group(group, columns=[column])[column]
                        yield file.path, first_row, values.to_pylist()
                        first_row += len(values)
            except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
                raise InvalidSourceError(f"column {column!r} of {file.path} cannot be decoded: {error}") from error


def stage_table(name: str, spec: TableSpec, context: StageContext) -> StagedTable:
    """Turn the source of a table into Parquet files on this machine, described and hashed."""
    if spec.in_place is not None:
        return _stage_stored(describe_external(name, spec.source, spec.in_place, context), appends=spec.appends)
    if isinstance(spec.source, Table) and not spec.rewrite and _is_whole(spec.source, appends=spec.appends):
        return _stage_stored(spec.source, appends=spec.appends)
    references: _References = {}
    files = _parquet_files(name, spec, context, references)
    blobs = _hash_all(files, context)
    columns = files[0].schema.names if files else ()
    return StagedTable(
        entry=TableEntry(ShardList(), schema=TableEntry.listing(columns) if files else None),
        shards=tuple(
            Shard(staged.fingerprint.blob.hash, staged.fingerprint.blob.byte_size, file.row_count, file.footer)
            for file, staged in zip(files, blobs, strict=True)
        ),
        blobs=tuple(blobs),
        item_count=sum(file.row_count for file in files),
        files=tuple(files),
        appends=spec.appends,
        references={column: tuple(types) for column, types in references.items()},
    )


def _hash_all(files: Sequence[ParquetSource], context: StageContext) -> list[StagedBlob]:
    sizes = [file.path.stat().st_size if file.data is None else len(file.data) for file in files]
    counter = ProgressCounter(context.progress, "hash", sum(sizes), len(files))

    def hash_one(file: ParquetSource) -> StagedBlob:
        if file.data is None:
            staged = StagedBlob(file.path, hash_file(file.path, counter))
        else:
            staged = StagedBlob(file.path, fingerprint_bytes(file.data), MemoryBlob(file.data))
            counter.add_bytes(len(file.data))
        counter.finish_file()
        return staged

    return IO_POOL.map_all(hash_one, files, limit=disk_threads())


def _is_whole(table: Table, *, appends: bool) -> bool:
    """Return whether the shards of a table can be published as they are. Reads all footers.

    The rows of an edited table that are appended to another get new sample ids, so they are written again.
    """
    if appends and table.entry.manifest_format > 1:
        return False
    if table.filters or table.columns is not None or table.rows is not None:
        return False
    shards = list(iter_shards(table.entry.shards, table.load_page))
    claims = IO_POOL.map_all(lambda shard: table.opener.peek(shard).claims_extensions, shards, limit=disk_threads())
    return not any(claims)


def _stage_stored(table: Table, *, appends: bool) -> StagedTable:
    """Stage a table of another version. Its blobs are copied only to another store."""
    shards = tuple(iter_shards(table.entry.shards, table.load_page))
    references: _References = {}
    _note_references(table.schema(), references)
    blobs = dict.fromkeys(blob for shard in shards for blob in shard.blobs())
    return StagedTable(
        entry=replace(table.entry, shards=ShardList()),
        shards=shards,
        blobs=tuple(copied_blob(table.name, BlobCopy(table.shards.reader, blob)) for blob in blobs),
        item_count=table.entry.shards.row_count,
        files=(),
        appends=appends,
        references={column: tuple(types) for column, types in references.items()},
        stored=table.raw(),
    )


@dataclass(frozen=True, slots=True)
class _Files:
    paths: tuple[Path, ...]


@dataclass(frozen=True, slots=True)
class _Rows:
    schema: pa.Schema
    batches: Iterable[pa.RecordBatch]
    origins: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    """The origins of columns that were given as reference objects."""


_References: TypeAlias = dict[str, list[Any]]


def _parquet_files(name: str, spec: TableSpec, context: StageContext, references: _References) -> list[ParquetSource]:
    """Return files in table order, all of one schema. Raise `InvalidSourceError` with the file that is not.

    Adds the extension types of reference columns to `references`.
    """
    parts = list(_parts(spec.source, name, follow_links=spec.follow_links))
    files: list[Path | WrittenFile] = []
    number = 0

    def write(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> list[WrittenFile]:
        nonlocal number
        made = list(write_spooled(batches, schema, context.find_directory, f"{name}-{number}"))
        number += 1
        return made

    for is_files, group in groupby(parts, key=lambda part: isinstance(part, _Files)):
        run = list(group)
        if is_files:
            listed = [path for part in run if isinstance(part, _Files) for path in part.paths]
            if not spec.rewrite:
                files.extend(listed)
                continue
            schema, batches = read_unified(listed)
        else:
            rows = [part for part in run if isinstance(part, _Rows)]
            schema, batches = rows[0].schema, _noted(rows, references)
        files.extend(write(schema, batches))
    found = describe_all(files)
    if not any(source.claims_extensions for source in found):
        return found
    # A file that claims references is written again, without the claim. Only files of the user claim some.
    kept = [
        write(*read_unified([source.path])) if source.claims_extensions else [file]
        for source, file in zip(found, files, strict=True)
    ]
    return describe_all(chain.from_iterable(kept))


def _noted(parts: Iterable[_Rows], references: _References) -> Iterator[pa.RecordBatch]:
    """Yield all batches, and add the types of their reference columns to `references`."""
    for part in parts:
        known = part.schema
        _note_references(known, references)
        for column, origins in part.origins.items():
            references.setdefault(column, []).extend(origins)
        for batch in part.batches:
            if not batch.schema.equals(known):
                known = batch.schema
                _note_references(known, references)
            yield batch


def _note_references(schema: pa.Schema, references: _References) -> None:
    import pyarrow as pa

    for column in schema:
        if not has_own_extension(column.type):
            continue
        if not isinstance(column.type, pa.BaseExtensionType):
            raise SchemaMismatchError(
                f"column {column.name!r} has references inside of {column.type}; only whole columns can be bound",
                hint="Publish the references as a column of their own, or cast the column to the stored values.",
            )
        seen = references.setdefault(column.name, [])
        if column.type not in seen:
            seen.append(column.type)


def _parts(source: TableInput, name: str, *, follow_links: bool) -> Iterator[_Files | _Rows]:
    import pyarrow as pa

    if isinstance(source, str | Path):
        found = find_files(source, (".parquet",), follow_links=follow_links)
        if not found:
            raise InvalidSourceError(f"no file matches {str(source)!r}", hint="Check the path; quote globs in a shell.")
        yield _Files(tuple(found))
    elif isinstance(source, Table):
        unread = replace(source, on_lookahead=None)  # the media of the rows are not read
        yield _Rows(unread.schema(), unread.batches())
    elif isinstance(source, pa.Table):
        yield _of_table(source)
    elif isinstance(source, pa.RecordBatch):
        yield _Rows(source.schema, [source])
    elif isinstance(source, pa.RecordBatchReader):
        yield _Rows(source.schema, source)
    elif isinstance(source, Mapping):
        yield _of_columns(lambda: source, lambda: read_columns(source, name), name)
    elif isinstance(source, list | tuple):
        yield from _list_parts(source, name, follow_links=follow_links)
    else:
        rows = read_arrow(source, name)
        if rows is None and isinstance(source, Iterable):
            rows = _of_iterator(iter(source), name)
        if rows is None:
            raise InvalidSourceError(f"table {name!r} cannot be made from a {type(source).__name__}", hint=_INPUTS)
        yield _Rows(*rows)


def _list_parts(items: list[Any] | tuple[Any, ...], name: str, *, follow_links: bool) -> Iterator[_Files | _Rows]:
    import pyarrow as pa

    if not items:
        raise InvalidSourceError(f"table {name!r} was given an empty list")
    if all(isinstance(item, Mapping) for item in items):
        yield _of_columns(
            lambda: _columns_of(items), lambda: convert(lambda: pa.Table.from_pylist(list(items)), name), name
        )
        return
    for item in items:
        yield from _parts(item, name, follow_links=follow_links)


def _detached(columns: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, list[DetachedReference]]]:
    listed = {key: list(values) for key, values in columns.items() if isinstance(values, Iterable)}
    return detach_references(listed) if len(listed) == len(columns) else ({}, {})


def _columns_of(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    return {key: [row.get(key) for row in rows] for key in dict.fromkeys(key for row in rows for key in row)}


def _of_columns(columns: Callable[[], Mapping[str, Iterable[Any]]], make: Callable[[], pa.Table], name: str) -> _Rows:
    """Convert Python values. Only if Arrow cannot, look for references among them."""
    import pyarrow as pa

    try:
        return _of_table(make())
    except InvalidSourceError:
        plain, origins = _detached(columns())
        if not origins:
            raise
    return replace(_of_table(convert(lambda: pa.table(plain), name)), origins=origins)


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
