"""DuckDB connections, all of which work offline.

A sealed engine evaluates filters and can access nothing but the data it is given. An open connection reads Parquet
files in a store, for `Table.duckdb()`. Extensions are never downloaded: httpfs comes from its wheel, in DuckDB's
version.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlsplit

from warpdata.errors import MissingExtraError
from warpdata.primitives.fork import register_after_fork
from warpdata.settings import Settings
from warpdata.storage import resolve_s3

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

__all__ = ["connect_open", "first_line", "httpfs_path", "quoted", "run_sealed"]

_T = TypeVar("_T")
_MAX_ATTEMPTS = 8

_OFFLINE: dict[str, str | bool | int | float | list[str]] = {
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
}
_BOUNDED: dict[str, str | bool | int | float | list[str]] = {
    "threads": 1,
    "memory_limit": "2GiB",
    "temp_directory": "",
}
"""Filters need little memory. A query beyond this limit fails; it never writes temporary files."""


def run_sealed(work: Callable[[DuckDBPyConnection], _T]) -> _T:
    """Call `work` with the thread's cursor of the sealed engine: no files, no network, locked settings.

    The first call takes milliseconds, later ones microseconds. An internal error of DuckDB invalidates an engine for
    all threads. Then the next call makes another engine, and queries that failed in other threads are repeated.
    """
    import duckdb

    for attempt in range(_MAX_ATTEMPTS):
        engine = _current_engine()
        try:
            return work(engine.cursor())
        except duckdb.InternalException:  # this query invalidated the engine
            _discard(engine)
            raise
        except duckdb.FatalException:  # an earlier query did
            _discard(engine)
            if attempt == _MAX_ATTEMPTS - 1:
                raise
    raise AssertionError("unreachable")


class _SealedEngine:
    """An engine with one cursor for each thread, because a cursor runs one query at a time."""

    def __init__(self) -> None:
        import duckdb

        self._connection = duckdb.connect(config={**_OFFLINE, **_BOUNDED})
        self._connection.execute("SET enable_external_access = false")
        self._connection.execute("SET lock_configuration = true")
        self._cursors: dict[int, DuckDBPyConnection] = {}

    def cursor(self) -> DuckDBPyConnection:
        """Return the cursor of the calling thread. Threads that end leave theirs to later threads of the same id."""
        thread = threading.get_ident()
        cursor = self._cursors.get(thread)
        if cursor is None:
            cursor = self._cursors[thread] = self._connection.cursor()
        return cursor


_engines: list[_SealedEngine] = []
"""The engine of the process, if there is one."""
_engines_lock = threading.Lock()
_engines_of_parents: list[_SealedEngine] = []


def _current_engine() -> _SealedEngine:
    try:
        return _engines[0]
    except IndexError:
        with _engines_lock:
            if not _engines:
                _engines.append(_SealedEngine())
            return _engines[0]


def _discard(engine: _SealedEngine) -> None:
    """Have the next query make another engine."""
    with _engines_lock:
        if engine in _engines:
            _engines.remove(engine)


def _abandon_engine() -> None:
    """Have a forked child make its own engine.

    The parent's engine stays referenced: closing it could wait for a lock that a thread of the parent held.
    """
    global _engines_lock  # noqa: PLW0603 - a thread of the parent may hold the lock
    _engines_lock = threading.Lock()
    _engines_of_parents.extend(_engines)
    _engines.clear()


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


def first_line(error: Exception) -> str:
    """Return DuckDB's message without its stack trace."""
    return str(error).partition("\n\nStack Trace")[0]
