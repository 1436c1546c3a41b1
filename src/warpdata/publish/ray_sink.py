"""A Ray Data dataset as a table of a new version: write tasks store shards, and the driver commits once.

A shard that a failed or repeated task has stored belongs to no version, and garbage collection removes it. A lease
keeps the shards until the commit. Implements "Tables of Ray Data" of docs/specs/jobs.md.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from warpdata.errors import InvalidSourceError, SchemaMismatchError
from warpdata.formats.parquet import ShardOpener, describe_parquet, write_parquet
from warpdata.kinds.tables import Table
from warpdata.limits import MIB
from warpdata.primitives.arguments import check_arguments
from warpdata.primitives.extras import require
from warpdata.primitives.hashing import fingerprint_file
from warpdata.publish.builder import DatasetBuilder, Published
from warpdata.repository.catalog import MAIN, mark_store, put_blob_file, read_marker
from warpdata.repository.gc import CondemnedKeys
from warpdata.repository.manifest import JsonObject, Shard, TableEntry, page_shards
from warpdata.session import Session, StoreAddress, connect
from warpdata.settings import Settings
from warpdata.storage import GenerationReader
from warpdata.storage.cache import StagingDirectory

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["write_ray"]

_SHARD_BYTES = 128 * MIB
"""The least size of the rows of a write task, so that small blocks do not become small shards."""
_TENSOR = "ray.data.arrow_"


@check_arguments
def write_ray(
    rows: Any,
    dataset_id: str,
    *,
    table: str = "main",
    message: str = "",
    append: bool = False,
    branch: str = MAIN,
    label: str | None = None,
    author: str | None = None,
    metadata: JsonObject | None = None,
    replace: bool = False,
    keep: bool = False,
    store: str | Session | None = None,
    settings: Settings | None = None,
) -> Published:
    """Publish a `ray.data.Dataset` as a table. Workers write and store the shards, and this process commits once.

    `append` adds the rows to the table of the branch. The other arguments are those of `DatasetBuilder.publish`. Rows
    have the order of their blocks if the context of Ray Data preserves it. Tensors of a fixed shape become lists of a
    fixed size.
    """
    require("ray.data", purpose="write_ray", extra="ray")
    session = store if isinstance(store, Session) else connect(store, settings)
    builder = DatasetBuilder(dataset_id, session)
    if read_marker(session.writer) is None:
        mark_store(session.writer, session.pause)
    with session.lease(f"write_ray {dataset_id}") as lease:
        sink = _sink_class()(_ShardWriter(StoreAddress.of(session), table, lease.condemned, session.new_generation()))
        rows.write_datasink(sink)
        written = _open_table(session, table, sink.written)
        (builder.append_table if append else builder.add_table)(table, written)
        return builder.publish(
            message,
            branch=branch,
            label=label,
            author=author,
            metadata=metadata,
            replace=replace,
            keep=keep,
        )


@dataclass(frozen=True, slots=True)
class _WrittenShard:
    shard: Shard
    generation: str | None
    schema: pa.Schema


@dataclass(frozen=True)
class _ShardWriter:
    """Writes the blocks of a task into shards, and stores them. Can be pickled."""

    address: StoreAddress
    table: str
    condemned: CondemnedKeys
    generation: str

    def write(self, blocks: Iterable[Any]) -> list[_WrittenShard]:
        import pyarrow as pa

        session = _open_store(self.address)
        tables = [part for part in map(_plain, blocks) if part.num_rows or part.schema.names]
        if not tables:
            return []
        staging = StagingDirectory(session.settings.cache_dir)
        try:
            schema = pa.unify_schemas([part.schema for part in tables], promote_options="permissive")
            batches = (batch for part in tables for batch in part.cast(schema).to_batches())
            files = write_parquet(batches, schema, staging.path, self.table)
            return [self._store(session, path) for path in files]
        except pa.ArrowException as error:
            raise SchemaMismatchError(f"blocks of table {self.table!r} have different columns: {error}") from error
        finally:
            staging.remove()

    def _store(self, session: Session, path: Any) -> _WrittenShard:
        described, fingerprint = describe_parquet(path), fingerprint_file(path)
        generation = self.generation if fingerprint.blob.hash in self.condemned else None
        put_blob_file(session.writer, path, fingerprint, generation, session.pause)
        blob = fingerprint.blob
        shard = Shard(blob.hash, blob.byte_size, described.row_count, described.footer)
        return _WrittenShard(shard, generation, described.schema)


@functools.lru_cache(maxsize=4)
def _open_store(address: StoreAddress) -> Session:
    return address.open()


def _open_table(session: Session, name: str, written: Iterable[_WrittenShard]) -> Table:
    """Open the shards as a table, which a builder publishes as it is."""
    listed = list(written)
    full = [each for each in listed if each.shard.row_count] or listed[:1]
    if not full:
        raise InvalidSourceError(f"the dataset for table {name!r} has no rows and no columns")
    first = full[0].schema.remove_metadata()
    for each in full:
        if not each.schema.remove_metadata().equals(first):
            raise SchemaMismatchError(
                f"blocks of table {name!r} have different columns: {_difference(first, each.schema)}",
                hint="Cast the columns in the last map_batches, so that every block has the same types.",
            )
    generations: Mapping[str, str] = {each.shard.hash: each.generation for each in full if each.generation is not None}
    paged = page_shards([each.shard for each in full])
    entry = TableEntry(paged.shards, schema=TableEntry.listing(first.names))
    opener = ShardOpener(GenerationReader(session.writer, generations))
    return Table(name, entry, opener, lambda page: paged.new_pages[page.hash], session.settings)


def _difference(first: pa.Schema, other: pa.Schema) -> str:
    names = [
        name for name in first.names if name not in other.names or other.field(name).type != first.field(name).type
    ]
    name = names[0] if names else next(each for each in other.names if each not in first.names)
    types = [str(schema.field(name).type) if name in schema.names else "absent" for schema in (first, other)]
    return f"column {name!r} is {types[0]} and {types[1]}"


def _plain(block: Any) -> pa.Table:
    """Return a block as an Arrow table, in which tensors are lists of a fixed size."""
    import pyarrow as pa
    from ray.data.block import BlockAccessor

    rows: pa.Table = BlockAccessor.for_block(block).to_arrow()
    for position, column in enumerate(rows.schema):
        if isinstance(column.type, pa.ExtensionType) and _is_tensor(column.type):
            rows = rows.set_column(position, column.name, _as_lists(column, rows.column(position)))
    return rows.replace_schema_metadata(None)


def _is_tensor(kind: pa.ExtensionType) -> bool:
    name = str(kind.extension_name)
    return name.startswith(_TENSOR) or name == "arrow.fixed_shape_tensor"


def _as_lists(column: pa.Field, values: pa.ChunkedArray) -> pa.ChunkedArray:
    import pyarrow as pa

    shape = getattr(column.type, "shape", None)
    if shape is None:
        raise SchemaMismatchError(
            f"column {column.name!r} has tensors of different shapes", hint="Reshape them to one shape, or store bytes."
        )

    def convert(chunk: Any) -> pa.Array:
        flat = chunk.storage.flatten()
        for size in reversed(shape):
            flat = pa.FixedSizeListArray.from_arrays(flat, size)
        return flat

    kind: pa.DataType = column.type.storage_type.value_type
    for size in reversed(shape):
        kind = pa.list_(kind, size)
    return pa.chunked_array([convert(chunk) for chunk in values.chunks], kind)


def _ordered(returns: Iterable[tuple[int, list[_WrittenShard]]]) -> Iterator[_WrittenShard]:
    """Yield the shards in the order of the write tasks."""
    for _, shards in sorted(returns, key=lambda each: each[0]):
        yield from shards


@functools.cache
def _sink_class() -> type[Any]:
    """Return the class of sinks. Ray is imported to make it."""
    import ray.data as data

    class WarpdataDatasink(data.Datasink):  # type: ignore[misc]
        """Implements the public interface of Ray Data."""

        def __init__(self, writer: _ShardWriter) -> None:
            self._writer = writer
            self.written: list[_WrittenShard] = []

        @property
        def min_bytes_per_write(self) -> int:
            return _SHARD_BYTES

        def write(self, blocks: Iterable[Any], ctx: Any) -> tuple[int, list[_WrittenShard]]:
            return ctx.task_idx, self._writer.write(blocks)

        def on_write_complete(self, write_result: Any) -> None:
            self.written = list(_ordered(write_result.write_returns))

    return WarpdataDatasink
