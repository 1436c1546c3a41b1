"""DuckDB connections, all of which work offline.

A sealed engine evaluates filters and can access nothing but the data it is given. An open connection reads Parquet
files in a store, for `Table.duckdb()`. Extensions are never downloaded: httpfs comes from its wheel, in DuckDB's
version.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlsplit

from warpdata.errors import MissingExtraError
from warpdata.primitives.fork import register_after_fork
from warpdata.settings import Settings
from warpdata.storage import resolve_s3

if TYPE_CHECKING:
    import pyarrow as pa
    from duckdb import DuckDBPyConnection, DuckDBPyRelation

__all__ = [
    "connect_open",
    "first_line",
    "httpfs_path",
    "open_sealed",
    "quote_identifier",
    "quoted",
    "read_files",
    "run_sealed",
]

_T = TypeVar("_T")
_MAX_ATTEMPTS = 8

_OFFLINE: dict[str, str | bool | int | float | list[str]] = {
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
}
_PRIVATE: dict[str, str | bool | int | float | list[str]] = {
    "allow_persistent_secrets": False,
    "python_enable_replacements": False,
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


def open_sealed(memory_bytes: int, threads: int) -> DuckDBPyConnection:
    """Return a sealed database of its own, for a query over registered Arrow data. The caller closes it."""
    return _connect_sealed({"threads": threads, "memory_limit": f"{memory_bytes}B", "temp_directory": ""})


def _connect_sealed(config: dict[str, str | bool | int | float | list[str]]) -> DuckDBPyConnection:
    """Open a database that reads no file, no secret, no network and no Python variable, with locked settings."""
    import duckdb

    connection = duckdb.connect(config={**_OFFLINE, **_PRIVATE, **config})
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")
    return connection


class _SealedEngine:
    """An engine with one cursor for each thread, because a cursor runs one query at a time."""

    def __init__(self) -> None:
        self._connection = _connect_sealed(_BOUNDED)
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
    """Return the thread's connection for reading stores, with the credentials of this store.

    A process has one open database. Relations of one connection can be joined, whatever their stores.
    """
    scheme = urlsplit(store_url).scheme
    with _open_lock:
        if not _open_databases:
            _open_databases.append(_OpenDatabase())
        database = _open_databases[0]
        if scheme in ("s3", "http", "https"):
            database.load_httpfs()
        has_new_secret = scheme == "s3" and database.add_secret(store_url, settings)
        cursor = database.cursor()
    if has_new_secret:
        _end_transaction(cursor)  # an open transaction does not see the secret
    return cursor


def _end_transaction(cursor: DuckDBPyConnection) -> None:
    """End the transaction that a result which was not read to its end, or a failure, left open."""
    import duckdb

    with suppress(duckdb.TransactionException):  # "no transaction is active" now
        cursor.rollback()


class _OpenDatabase:
    """The database of all relations, with one connection for each thread."""

    def __init__(self) -> None:
        import duckdb

        self._connection = duckdb.connect(config=_OFFLINE)
        self._local = threading.local()
        self._has_httpfs = False
        self._secrets: dict[str, str] = {}

    def load_httpfs(self) -> None:
        if not self._has_httpfs:
            self._connection.execute(f"LOAD {quoted(str(httpfs_path()))}")
            self._has_httpfs = True

    def add_secret(self, store_url: str, settings: Settings) -> bool:
        """Have DuckDB use these credentials for the store's objects, and for no other. False: it did already."""
        options = _s3_options(settings)
        if self._secrets.get(store_url) == options:
            return False
        self._secrets.setdefault(store_url, "")
        number = list(self._secrets).index(store_url)
        scope = quoted(store_url.rstrip("/") + "/")
        self._connection.execute(f"CREATE OR REPLACE SECRET store_{number} (TYPE s3, SCOPE {scope}, {options})")
        self._secrets[store_url] = options
        return True

    def cursor(self) -> DuckDBPyConnection:
        cursor: DuckDBPyConnection | None = getattr(self._local, "cursor", None)
        if cursor is None:
            cursor = self._local.cursor = self._connection.cursor()
        return cursor


_open_lock = threading.Lock()
_open_databases: list[_OpenDatabase] = []
_databases_of_parents: list[_OpenDatabase] = []


def _abandon_database() -> None:
    """Have a forked child open its own database, like `_abandon_engine`."""
    global _open_lock  # noqa: PLW0603 - a thread of the parent may hold the lock
    _open_lock = threading.Lock()
    _databases_of_parents.extend(_open_databases)
    _open_databases.clear()


register_after_fork(_abandon_database)


def read_files(connection: DuckDBPyConnection, sources: list[str], schema: pa.Schema) -> DuckDBPyRelation:
    """Return a relation over Parquet files with the types that DuckDB gives the Arrow schema, as filters see them.

    A fixed-size list, for example, is stored as a list and becomes an array again.
    """
    import duckdb

    empty = schema.empty_table()
    if not sources:
        return connection.from_arrow(empty)
    try:
        relation = connection.read_parquet(sources)
    except duckdb.TransactionException:  # an earlier failure of this connection
        _end_transaction(connection)
        relation = connection.read_parquet(sources)
    try:
        wanted = run_sealed(lambda cursor: [str(each) for each in cursor.from_arrow(empty.__arrow_c_stream__()).types])
    except (duckdb.Error, NotImplementedError):  # a type that filters cannot use either
        return relation
    if relation.columns != schema.names or [str(each) for each in relation.types] == wanted:
        return relation
    names = [quote_identifier(name) for name in schema.names]
    casts = [
        name if str(found) == sql_type else f"CAST({name} AS {sql_type}) AS {name}"
        for name, found, sql_type in zip(names, relation.types, wanted, strict=True)
    ]
    return relation.project(", ".join(casts))


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


def _s3_options(settings: Settings) -> str:
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
    return ", ".join(f"{name} {quoted(value)}" for name, value in options.items() if value is not None)


def quoted(text: str) -> str:
    """Return the text as an SQL string literal. A query parameter would make DuckDB import pandas."""
    return "'" + text.replace("'", "''") + "'"


def quote_identifier(name: str) -> str:
    """Return a name as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def first_line(error: Exception) -> str:
    """Return DuckDB's message without its stack trace."""
    return str(error).partition("\n\nStack Trace")[0]
