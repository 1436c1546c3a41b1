"""DuckDB connections, all of which work offline.

A sealed engine evaluates filters and can access nothing but the data it is given. An open connection reads Parquet
files in a store, for `Table.duckdb()`. Extensions are never downloaded: httpfs comes from its wheel, in DuckDB's
version.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from warpdata.errors import MissingExtraError
from warpdata.primitives.fork import register_after_fork
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
    """Return a cursor of the process's sealed engine: no files, no network, no extensions, locked settings.

    The first call takes milliseconds, later ones microseconds. Use a cursor from one thread, and close it.
    """
    return _sealed_engine().cursor()


@functools.cache
def _sealed_engine() -> DuckDBPyConnection:
    import duckdb

    engine = duckdb.connect(config={**_OFFLINE, "threads": 1})
    engine.execute("SET enable_external_access = false")
    engine.execute("SET lock_configuration = true")
    return engine


_engines_of_parents: list[DuckDBPyConnection] = []


def _abandon_engine() -> None:
    """Have a forked child make its own engine.

    The parent's engine stays referenced: closing it could wait for a lock that a thread of the parent held.
    """
    if _sealed_engine.cache_info().currsize:
        _engines_of_parents.append(_sealed_engine())
        _sealed_engine.cache_clear()


register_after_fork(_abandon_engine)


def connect_open(store_url: str, settings: Settings) -> DuckDBPyConnection:
    """Return a connection that can read from `store_url`, with the credentials of the store."""
    import duckdb

    connection = duckdb.connect(config=_OFFLINE)
    scheme = urlsplit(store_url).scheme
    if scheme in ("s3", "http", "https"):
        connection.execute(f"LOAD {quoted(str(httpfs_path()))}")
    if scheme == "s3":
        connection.execute(_s3_secret(settings))
    return connection


def httpfs_path() -> Path:
    """Return the path of the httpfs extension for the installed DuckDB, inside the extension's wheel."""
    import duckdb

    hint = f"pip install duckdb-extension-httpfs=={duckdb.__version__}"
    try:
        import duckdb_extension_httpfs
    except ImportError as error:
        raise MissingExtraError("DuckDB's httpfs extension is not installed", hint=hint) from error
    root = Path(duckdb_extension_httpfs.__file__).parent / "extensions"
    path = root / f"v{duckdb.__version__}" / "httpfs.duckdb_extension"
    if not path.is_file():
        found = ", ".join(sorted(version.name for version in root.iterdir())) or "none"
        raise MissingExtraError(
            f"httpfs was built for DuckDB {found}, but DuckDB {duckdb.__version__} is installed", hint=hint
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
    """Return the text as an SQL string literal. A query parameter would make DuckDB import pandas."""
    return "'" + text.replace("'", "''") + "'"
