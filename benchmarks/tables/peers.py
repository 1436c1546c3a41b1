"""The peers, used as their own documentation says: no tuning for them, none against them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from warpdata.settings import Settings
from warpdata.store import resolve_s3
from warpdata.tables import httpfs_path

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

__all__ = ["arrow_dataset", "connect_duckdb", "duckdb_rows", "parquet_list"]


def arrow_dataset(sources: Sequence[str], settings: Settings | None) -> Any:
    """`pyarrow.dataset` over paths, or over `s3://` URLs where settings are given."""
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
    """A fresh connection, so that nothing read before is remembered; with S3 where settings are given."""
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
    """The files as DuckDB's table function takes them."""
    return "read_parquet([" + ", ".join(f"'{source}'" for source in sources) + "])"


def duckdb_rows(connection: DuckDBPyConnection, query: str, batch_size: int) -> int:
    """Run a query as a stream of Arrow batches and count what comes."""
    return sum(batch.num_rows for batch in connection.execute(query).to_arrow_reader(batch_size))
