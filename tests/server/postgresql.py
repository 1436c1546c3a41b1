"""A real PostgreSQL for tests, of this machine."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

import psycopg
import pytest

_NUMBERS = count()


@contextmanager
def running_postgresql() -> Iterator[str]:
    """Yield the URL of a PostgreSQL of this machine, on a free loopback port, without its database."""
    found = shutil.which("initdb") or next(
        (str(path) for path in sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), reverse=True)), None
    )
    if found is None:
        pytest.skip("PostgreSQL is not installed on this machine")
    as_user: list[str] = []
    root = Path(tempfile.mkdtemp(prefix="warp-postgresql-"))
    if os.geteuid() == 0:  # PostgreSQL refuses to run as root
        if shutil.which("runuser") is None:
            pytest.skip("PostgreSQL does not run as root, and there is no runuser")
        account = pwd.getpwnam("nobody")
        os.chown(root, account.pw_uid, account.pw_gid)
        as_user = ["runuser", "-u", "nobody", "--"]
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    data = root / "data"
    initdb = [found, "-D", str(data), "-U", "warp", "-A", "trust", "-E", "UTF8", "--no-sync"]
    subprocess.run([*as_user, *initdb], check=True, capture_output=True, cwd="/")
    settings = ("fsync=off", "max_connections=200", "unix_socket_directories=", "listen_addresses=127.0.0.1")
    options = [part for setting in settings for part in ("-c", setting)]
    server = [str(Path(found).with_name("postgres")), "-D", str(data), "-p", str(port), *options]
    process = subprocess.Popen([*as_user, *server], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/")
    url = f"postgresql://warp@127.0.0.1:{port}"
    try:
        _wait_for(url)
        yield url
    finally:
        process.terminate()
        process.wait()
        shutil.rmtree(root, ignore_errors=True)


def _wait_for(url: str) -> None:
    for _ in range(300):
        with suppress(psycopg.OperationalError):
            psycopg.connect(f"{url}/postgres").close()
            return
        time.sleep(0.1)
    pytest.fail("PostgreSQL did not start")


def new_database(url: str) -> str:
    """Return the URL of an empty database of a server."""
    name = f"test_{os.getpid()}_{next(_NUMBERS)}"
    with psycopg.connect(f"{url}/postgres", autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return f"{url}/{name}"
