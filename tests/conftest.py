"""Fixtures for every test: an environment of its own, and one real S3 server for the whole run."""

from __future__ import annotations

import json
import os
import re
import secrets
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict
from itertools import count
from pathlib import Path
from typing import Any

import hypothesis
import pytest

if sys.dont_write_bytecode:
    # The tests start more than a thousand processes; without cached bytecode each of them compiles all libraries.
    sys.dont_write_bytecode = False
    sys.pycache_prefix = str(Path(__file__).parents[1] / "build" / "bytecode")
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix

pytest.register_assert_rewrite("warpdata.testing.store_suite")

from warpdata.testing import S3Endpoint, S3Server  # noqa: E402

hypothesis.settings.register_profile("warp", deadline=None, print_blob=True, max_examples=50)
hypothesis.settings.register_profile("soak", deadline=None, print_blob=True, max_examples=1000)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or "warp")

_OURS_TO_CLEAR = ("AWS_", "WARP_", "SLURM_", "OMPI_", "PMI_")
_RANKS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
_PATIENCE_S = 90
_NUMBERS = count()


@pytest.fixture(scope="session")
def test_directories(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The parent of the directories of all tests. Each has a number, because `mktemp` lists all to find a name."""
    return tmp_path_factory.mktemp("tests")


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest, test_directories: Path) -> Path:
    """An empty directory. Its path is never used again: caches of the process would answer for the older one."""
    name = re.sub(r"\W", "_", request.node.name)[:30]
    path = test_directories / f"{next(_NUMBERS)}-{name}"
    path.mkdir()
    return path


@pytest.fixture(autouse=True)
def isolated_environment(monkeypatch: pytest.MonkeyPatch, test_directories: Path) -> None:
    """No test sees the developer's credentials, launcher, store or cache, nor those of another test."""
    for name in [*os.environ]:
        if name.startswith(_OURS_TO_CLEAR) or name in _RANKS:
            monkeypatch.delenv(name)
    home = test_directories / f"{next(_NUMBERS)}-environment"
    home.mkdir()
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(home / "no-aws-config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(home / "no-aws-credentials"))
    monkeypatch.setenv("WARP_STORE", (home / "store").as_uri())
    monkeypatch.setenv("WARP_CACHE_DIR", str(home / "cache"))
    monkeypatch.setenv("WARP_DATABASE", f"sqlite:///{home / 'service.db'}")


@pytest.fixture(autouse=True)
def no_decoded_segments() -> None:
    """No test finds the segments of another test in memory: equal rows have equal segments."""
    indexes = sys.modules.get("warpdata.formats.indexes")
    if indexes is not None:
        indexes.forget_groups()


@pytest.fixture(autouse=True)
def own_budgets() -> Iterator[None]:
    """Give the process its own budgets back: sessions of a test may have set others."""
    yield
    parallel = sys.modules.get("warpdata.primitives.parallel")
    if parallel is not None:
        parallel.REQUEST_LIMIT.fix(None)
        parallel.READ_MEMORY.resize(None)
        parallel.set_threads(None)


@pytest.fixture(autouse=True)
def unchanged_priority() -> Iterator[None]:
    """Fail if a library gives this thread real-time priority, as SVT-AV1 does: processes that it starts inherit it."""
    before = os.sched_getscheduler(0) if hasattr(os, "sched_getscheduler") else None
    yield
    assert before is None or os.sched_getscheduler(0) == before


@pytest.fixture(scope="session")
def s3_server(request: pytest.FixtureRequest) -> Iterator[S3Endpoint]:
    """The run's S3 server, started when the first test asks for it."""
    worker: dict[str, Any] | None = getattr(request.config, "workerinput", None)
    if worker is not None:
        yield _ask_broker(worker["s3_broker_port"])
        return
    with S3Server() as endpoint:
        yield endpoint


@pytest.fixture
def s3_url(s3_server: S3Endpoint) -> str:
    """An empty root on the S3 server."""
    return s3_server.url(f"test-{secrets.token_hex(8)}")


# Sharing one server among the workers of pytest-xdist. A worker cannot own it, because another may
# still need it when the owner ends; so the controller does, in a thread that outlives all of them.


def pytest_configure(config: pytest.Config) -> None:
    os.environ["NO_PROXY"] = os.environ["no_proxy"] = "127.0.0.1,localhost"
    # A shell starts background jobs with SIGINT ignored, and child processes inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Called in the controller for each worker, before it starts."""
    broker = node.config.stash.setdefault(_BROKER, None) or _Broker()
    node.config.stash[_BROKER] = broker
    node.workerinput["s3_broker_port"] = broker.port


def pytest_unconfigure(config: pytest.Config) -> None:
    broker = config.stash.get(_BROKER, None)
    if broker is not None:
        broker.close()


class _Broker:
    """Start the server for the first worker that asks, and pass its address to the others."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        _send(self.port, b"end")
        self._thread.join()

    def _serve(self) -> None:
        answer: dict[str, str] = {}
        with self._listener, ExitStack() as stack:
            while True:
                connection, _ = self._listener.accept()
                with connection:
                    if connection.recv(16) == b"end":
                        return
                    try:
                        answer = answer or asdict(stack.enter_context(S3Server()))
                    except Exception as error:
                        answer = {"error": str(error)}
                    connection.sendall(json.dumps(answer).encode())


_BROKER = pytest.StashKey[_Broker | None]()


def _ask_broker(port: int) -> S3Endpoint:
    answer = json.loads(_send(port, b"where"))
    if "error" in answer:
        pytest.fail(f"the S3 server did not start: {answer['error']}", pytrace=False)
    return S3Endpoint(**answer)


def _send(port: int, question: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=_PATIENCE_S) as connection:
        connection.sendall(question)
        return b"".join(iter(lambda: connection.recv(65536), b""))
