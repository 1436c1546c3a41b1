"""Connections to SQLite or PostgreSQL, and transactions that read or write.

SQLite has one writer at a time. A transaction that writes takes that lock when it begins, so it never fails half-way
with "database is locked". Within a process, writers wait for each other without polling.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, Engine, create_engine, event, make_url, text
from sqlalchemy.exc import ArgumentError, DBAPIError
from sqlalchemy.orm import Session as OrmSession

from warpdata.errors import BadInputError, StoreUnavailableError
from warpdata.primitives.redaction import redact

__all__ = ["Database", "open_database"]

_BUSY_MS = 30_000
_POOL_SIZE = 16
_MIGRATION_LOCK = 0x77617270
"""Key of the advisory lock of PostgreSQL, so that replicas that start together migrate one after another."""


class Database:
    """A migrated database. Safe to share between threads."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._writing = engine.execution_options(warp_write=True)
        self.is_sqlite = engine.dialect.name == "sqlite"
        self.path = Path(engine.url.database) if self.is_sqlite and engine.url.database else None
        self._writer: Any = threading.Lock() if self.is_sqlite else nullcontext()
        self.commits = 0
        """Transactions that this process has committed, at least. What it has read before may be out of date."""

    @property
    def engine(self) -> Engine:
        """The engine of SQLAlchemy, for migrations and tests."""
        return self._engine

    @contextmanager
    def read(self) -> Iterator[OrmSession]:
        """Yield a session that sees one state of the database."""
        with OrmSession(self._engine, expire_on_commit=False) as session:
            yield session

    @contextmanager
    def write(self) -> Iterator[OrmSession]:
        """Yield a session that commits at the end, or rolls back if the block raises."""
        with self._writer, OrmSession(self._writing, expire_on_commit=False) as session:
            with session.begin():
                yield session
            self.commits += 1

    def close(self) -> None:
        """Close all idle connections."""
        self._engine.dispose()


def open_database(url: str) -> Database:
    """Open a database and bring its tables to this release. `BadInputError` for a URL that names none."""
    engine = _make_engine(url)
    try:
        _migrate(engine)
    except DBAPIError as error:
        raise StoreUnavailableError(
            f"the database {redact(url)} cannot be used: {error.orig}", hint="Check --database and that it is running."
        ) from error
    return Database(engine)


def _make_engine(url: str) -> Engine:
    try:
        parsed = make_url(url)
    except ArgumentError as error:
        raise _bad_url(url) from error
    if parsed.drivername in ("postgres", "postgresql"):
        parsed = parsed.set(drivername="postgresql+psycopg")
    if parsed.drivername == "postgresql+psycopg":
        return create_engine(parsed, pool_size=_POOL_SIZE, max_overflow=_POOL_SIZE, pool_pre_ping=True)
    if parsed.drivername != "sqlite" or not parsed.database or parsed.database == ":memory:":
        raise _bad_url(url)
    Path(parsed.database).parent.mkdir(parents=True, exist_ok=True)
    engine = create_engine(parsed, pool_size=_POOL_SIZE, max_overflow=_POOL_SIZE, connect_args={"timeout": 30})
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _bad_url(url: str) -> BadInputError:
    return BadInputError(
        f"{redact(url)!r} is not the URL of a database",
        hint="Write sqlite:///PATH or postgresql://USER:PASSWORD@HOST/NAME.",
    )


def _prepare_sqlite(connection: Any, _record: object) -> None:
    connection.isolation_level = None  # the driver begins no transaction; `_begin_sqlite` does
    cursor = connection.cursor()
    for pragma in ("journal_mode=WAL", "synchronous=NORMAL", f"busy_timeout={_BUSY_MS}", "foreign_keys=ON"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _begin_sqlite(connection: Connection) -> None:
    is_write = connection.get_execution_options().get("warp_write", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if is_write else "BEGIN")


def _migrate(engine: Engine) -> None:
    """Run the migrations that are missing, in one transaction."""
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    with engine.execution_options(warp_write=True).begin() as connection:
        if engine.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _MIGRATION_LOCK})
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
