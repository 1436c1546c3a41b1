"""Published tables of the scenarios, and the peers that read the same files: `pyarrow.dataset` and DuckDB.

Peers are used as their documentation says, without tuning.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import warpdata as wd
from warpdata import Settings
from warpdata.primitives.hashing import blob_key
from warpdata.query import httpfs_path
from warpdata.repository.manifest import Shard, iter_shards
from warpdata.storage import resolve_s3

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

__all__ = [
    "DATASET",
    "connect_duckdb",
    "count_duckdb_rows",
    "open_arrow_dataset",
    "open_table",
    "parquet_list",
    "publish_table",
    "shard_sources",
    "shards_of",
]

DATASET = "bench/table"


def publish_table(paths: Sequence[Path], store: str, settings: Settings, *, rewrite: bool = False) -> None:
    """Publish the files as the only table of `bench/table`; `rewrite` writes new files with the same rows."""
    wd.DatasetBuilder(DATASET, store, settings=settings).add_table("main", list(paths), rewrite=rewrite).publish()


def open_table(store: str, settings: Settings) -> wd.Table:
    return wd.dataset(DATASET, store=store, settings=settings).table("main")


def shards_of(table: wd.Table) -> list[Shard]:
    return list(iter_shards(table.entry.shards, table.load_page))


def shard_sources(store: str, settings: Settings) -> list[str]:
    """Return the blobs of the table in a form that peers accept: local paths, or URLs."""
    reader = wd.connect(store, settings).reader
    keys = [blob_key(shard.hash) for shard in shards_of(open_table(store, settings))]
    return [str(reader.local_path(key) or f"{reader.url}/{key}") for key in keys]


def open_arrow_dataset(sources: Sequence[str], settings: Settings | None) -> Any:
    """Open `pyarrow.dataset` over local paths, or over `s3://` URLs if settings are given."""
    import pyarrow.dataset as pds
    from pyarrow.fs import LocalFileSystem, S3FileSystem

    if settings is None:
        return pds.dataset(list(sources), format="parquet", filesystem=LocalFileSystem())
    s3 = resolve_s3(settings.s3)
    endpoint = urlsplit(s3.endpoint_url or "")
    filesystem = S3FileSystem(
        access_key=s3.access_key_id,
        secret_key=s3.secret_access_key,
        endpoint_override=endpoint.netloc,
        scheme=endpoint.scheme,
        region=s3.region,
    )
    keys = [url.removeprefix("s3://") for url in sources]
    return pds.dataset(keys, format="parquet", filesystem=filesystem)


def connect_duckdb(settings: Settings | None) -> DuckDBPyConnection:
    """Open a connection without cached metadata, with access to S3 if settings are given."""
    import duckdb

    connection = duckdb.connect(config={"autoinstall_known_extensions": False, "autoload_known_extensions": False})
    if settings is not None:
        s3 = resolve_s3(settings.s3)
        endpoint = urlsplit(s3.endpoint_url or "")
        connection.execute(f"LOAD '{httpfs_path()}'")
        connection.execute(
            f"CREATE SECRET (TYPE s3, KEY_ID '{s3.access_key_id}', SECRET '{s3.secret_access_key}', "
            f"REGION '{s3.region}', ENDPOINT '{endpoint.netloc}', USE_SSL {endpoint.scheme == 'https'}, "
            "URL_STYLE 'path')"
        )
    return connection


def parquet_list(sources: Sequence[str]) -> str:
    """Return the DuckDB table function over the files."""
    return "read_parquet([" + ", ".join(f"'{source}'" for source in sources) + "])"


def count_duckdb_rows(connection: DuckDBPyConnection, query: str, batch_size: int) -> int:
    """Run a query as a stream of Arrow batches and count the rows."""
    return sum(batch.num_rows for batch in connection.execute(query).to_arrow_reader(batch_size))
