"""Relations of DuckDB over tables: over the stored files where they hold the rows as readers see them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from warpdata.errors import UnsupportedError
from warpdata.kinds.tables.arrow_dataset import as_arrow_dataset
from warpdata.primitives.hashing import blob_key
from warpdata.query import connect_open, read_files
from warpdata.repository.manifest import Shard
from warpdata.settings import Settings
from warpdata.storage import Reader

if TYPE_CHECKING:
    import pyarrow as pa
    from duckdb import DuckDBPyRelation

__all__ = ["relate_files", "relate_table"]


def relate_table(table: Any, reader: Reader, settings: Settings) -> DuckDBPyRelation:
    """Return a relation over a table that this library reads."""
    return connect_open(reader.url, settings).from_arrow(as_arrow_dataset(table))


def relate_files(shards: Iterable[Shard], schema: pa.Schema, reader: Reader, settings: Settings) -> DuckDBPyRelation:
    """Return a relation over the files of shards, which DuckDB reads itself."""
    return read_files(connect_open(reader.url, settings), _sources(shards, reader), schema)


def _sources(shards: Iterable[Shard], reader: Reader) -> list[str]:
    sources = []
    for shard in shards:
        key = blob_key(shard.hash)
        path = reader.local_path(key)
        if path is not None:
            sources.append(str(path))
        elif reader.is_local(key):
            reader.stat(key)  # raises for a file that is missing, or not cached in mode `local`
        elif reader.url.startswith(("s3://", "http://", "https://")):
            sources.append(f"{reader.url}/{key}")
        else:
            raise UnsupportedError(f"DuckDB cannot read from {reader.url}", hint="Use to_arrow() or batches().")
    return sources
