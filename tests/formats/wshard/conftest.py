"""Fixtures of the WShard tests: the built libraries of other languages."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.formats.wshard.drivers import Driver
from tests.formats.wshard.golang import build_go
from tests.formats.wshard.typescript import NODE, build, translated


def build_once(factory: pytest.TempPathFactory, name: str, build: Callable[[Path], str | None]) -> Path:
    """Return the built package, which all workers of a run share. Skip the test if it cannot be built here."""
    base = factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    directory, verdict = shared / name, shared / f"{name}.verdict"
    with (shared / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not verdict.exists():
            shutil.rmtree(directory, ignore_errors=True)
            directory.mkdir()
            verdict.write_text(build(directory) or "")
    if reason := verdict.read_text():
        pytest.skip(reason)
    return directory


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the built TypeScript package."""
    return build_once(tmp_path_factory, "wshard-js", build)


@pytest.fixture(scope="session")
def go_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the built Go package."""
    return build_once(tmp_path_factory, "wshard-go", build_go)


@pytest.fixture(scope="session")
def go_driver(go_library: Path) -> Iterator[Driver]:
    started = Driver([str(go_library / "driver")])
    yield started
    started.close()


@pytest.fixture(scope="session")
def js_driver(library: Path) -> Iterator[Driver]:
    started = Driver([NODE, str(library / "dist" / "test" / "driver.js")], translated)
    yield started
    started.close()


@pytest.fixture(scope="session", params=["go_driver", "js_driver"], ids=["go", "typescript"])
def driver(request: pytest.FixtureRequest) -> Driver:
    """Return the driver of each other language."""
    found: Driver = request.getfixturevalue(request.param)
    return found
