"""The one place that makes DuckDB connections. They work offline and run no surprises.

Two kinds: a sealed engine that can touch nothing but what it is handed, for evaluating filters;
and an open one that may read Parquet where a table lies, for `Table.duckdb()`. Extensions are never
fetched from the network: httpfs comes from its wheel, of the same version as DuckDB.
"""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from warpdata.errors import MissingExtraError
from warpdata.settings import Settings
from warpdata.storage import resolve_s3

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

__all__ = ["connect_open", "httpfs_path", "quoted", "sealed_cursor"]

_OFFLINE: dict[str, str | bool | int | float | list[str]] = {
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
}


def sealed_cursor() -> DuckDBPyConnection:
    """A cursor of this process's sealed engine: no files, no network, no extensions, no way to change that.

    Making the engine takes milliseconds, a cursor microseconds. Use each from one thread, and close it.
    """
    return _sealed_engine(os.getpid()).cursor()


@functools.cache
def _sealed_engine(_process: int) -> DuckDBPyConnection:
    """One for each process, because an engine does not survive a fork."""
    import duckdb

    engine = duckdb.connect(config={**_OFFLINE, "threads": 1})
    engine.execute("SET enable_external_access = false")
    engine.execute("SET lock_configuration = true")
    return engine


def connect_open(store_url: str, settings: Settings) -> DuckDBPyConnection:
    """Able to read from `store_url` with the same credentials as the store itself."""
    import duckdb

    connection = duckdb.connect(config=_OFFLINE)
    scheme = urlsplit(store_url).scheme
    if scheme in ("s3", "http", "https"):
        connection.execute(f"LOAD {quoted(str(httpfs_path()))}")
    if scheme == "s3":
        connection.execute(_s3_secret(settings))
    return connection


def httpfs_path() -> Path:
    """The extension file inside its wheel, for the DuckDB that is installed."""
    import duckdb

    try:
        import duckdb_extension_httpfs
    except ImportError as error:
        raise MissingExtraError(
            "DuckDB's httpfs extension is not installed",
            hint=f"pip install duckdb-extension-httpfs=={duckdb.__version__}",
        ) from error
    root = Path(duckdb_extension_httpfs.__file__).parent / "extensions"
    path = root / f"v{duckdb.__version__}" / "httpfs.duckdb_extension"
    if not path.is_file():
        found = ", ".join(sorted(folder.name for folder in root.iterdir())) or "none"
        raise MissingExtraError(
            f"httpfs was built for DuckDB {found}, but DuckDB {duckdb.__version__} is installed",
            hint=f"pip install duckdb-extension-httpfs=={duckdb.__version__}",
        )
    return path


def _s3_secret(settings: Settings) -> str:
    s3 = resolve_s3(settings.s3)
    options = {
        "KEY_ID": s3.access_key_id,
        "SECRET": s3.secret_access_key,
        "SESSION_TOKEN": s3.session_token,
        "REGION": s3.region or "us-east-1",
    }
    if s3.endpoint_url:
        endpoint = urlsplit(s3.endpoint_url)
        options["ENDPOINT"] = endpoint.netloc
        options["USE_SSL"] = "false" if endpoint.scheme == "http" else "true"
        options["URL_STYLE"] = "vhost" if s3.virtual_hosted else "path"
    listed = ", ".join(f"{name} {quoted(value)}" for name, value in options.items() if value is not None)
    return f"CREATE SECRET (TYPE s3, {listed})"


def quoted(text: str) -> str:
    """A text as SQL writes it. Handed over as a parameter, it would make DuckDB load pandas where it is installed."""
    return "'" + text.replace("'", "''") + "'"
