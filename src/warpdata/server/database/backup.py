"""Backups of the database: a consistent copy while the service runs, by the means of each database."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from sqlalchemy import URL, text

from warpdata.errors import AlreadyExistsError, StorageError, UnsupportedError
from warpdata.server.database.engine import Database
from warpdata.settings import child_environment

__all__ = ["back_up"]

_MAX_MESSAGE = 500


def back_up(database: Database, target: Path) -> int:
    """Write a copy of the database to a new file, and return its size.

    SQLite gives a database file, PostgreSQL an archive for `pg_restore`. `AlreadyExistsError` if the file exists.
    """
    if target.exists():
        raise AlreadyExistsError(f"{target} exists", hint="Choose another name.")
    partial = target.with_name(f".{target.name}.partial")
    partial.unlink(missing_ok=True)
    try:
        if database.is_sqlite:
            with database.engine.connect() as connection:
                connection.exec_driver_sql("COMMIT")  # of the transaction that the engine began
                connection.execute(text("VACUUM INTO :path"), {"path": str(partial)})
        else:
            _dump(database.engine.url, partial)
        with partial.open("rb") as file:
            os.fsync(file.fileno())
        os.link(partial, target)  # fails if another backup was first
    except FileExistsError as error:
        raise AlreadyExistsError(f"{target} exists", hint="Choose another name.") from error
    finally:
        partial.unlink(missing_ok=True)
    return target.stat().st_size


def _dump(url: URL, target: Path) -> None:
    program = shutil.which("pg_dump")
    if program is None:
        raise UnsupportedError("pg_dump is not installed", hint="Install the client programs of PostgreSQL.")
    plain = url.set(drivername="postgresql", password=None).render_as_string()
    environment = child_environment({"PGPASSWORD": str(url.password)} if url.password else {})
    command = [program, "--format=custom", "--no-owner", f"--file={target}", f"--dbname={plain}"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise StorageError(f"pg_dump failed: {done.stderr.strip()[:_MAX_MESSAGE]}")
