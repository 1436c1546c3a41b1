"""Count the modules between the call of a user and its result.

    python -m tests.architecture.call_paths [--modules]

Each call runs twice, on different data. The first run loads modules; the second one is observed by a profiler on all
threads. A module counts if one of its functions runs.
"""

from __future__ import annotations

import inspect
import json
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import TypeAlias

import numpy as np
import pyarrow as pa

import warpdata as wd
from warpdata.wshard import Channel, Episode

__all__ = ["CALLS", "measure_all"]

Call: TypeAlias = Callable[[], object]
_SOURCE = str(Path(wd.__file__).parent)
_ROWS = 64


def _builder(directory: Path, name: str) -> wd.DatasetBuilder:
    """Return a builder of a table with references, without anything published. `name` makes contents differ."""
    members = {f"{name}-{row:03d}.bin": f"{name}{row}".encode() for row in range(_ROWS)}
    table = pa.table({"id": range(_ROWS), "file": list(members), "name": [name] * _ROWS})
    builder = wd.DatasetBuilder(f"a/{name}", directory.as_uri())
    return builder.add_table("main", table).add_artifact("raw", members).bind("main", "file", "raw")


def _published(directory: Path, name: str) -> str:
    _builder(directory, name).publish()
    return f"a/{name}"


def _open(directory: Path, name: str) -> Call:
    address = _published(directory, name)
    return lambda: wd.dataset(address, store=directory.as_uri())


def _filter(directory: Path, name: str) -> Call:
    dataset = wd.dataset(_published(directory, name), store=directory.as_uri())
    return lambda: list(dataset.table().filter("id > 10").batches())


def _stream(directory: Path, name: str) -> Call:
    dataset = wd.dataset(_published(directory, name), store=directory.as_uri())
    return lambda: list(dataset.stream(shuffle=True, batch_size=8).epoch(0))


def _windows(directory: Path, name: str) -> Call:
    steps = np.arange(_ROWS * 3, dtype=np.float32).reshape(_ROWS, 3) + len(name)
    episodes = [
        Episode(id=f"{name}-{number}", length=_ROWS, observations={"joints": Channel("joints", steps + number)})
        for number in range(3)
    ]
    wd.DatasetBuilder(f"a/{name}", directory.as_uri()).add_episodes("demos", episodes).publish()
    dataset = wd.dataset(f"a/{name}", store=directory.as_uri())
    return lambda: list(dataset.episodes().windows(history=2, horizon=2, shuffle=True, batch_size=8).epoch(0))


def _publish(directory: Path, name: str) -> Call:
    return _builder(directory, name).publish


CALLS: dict[str, Callable[[Path, str], Call]] = {
    "wd.dataset(name)": _open,
    "ds.table().filter().batches()": _filter,
    "ds.stream(shuffle=True)": _stream,
    "ds.episodes().windows()": _windows,
    "builder.publish()": _publish,
}
"""Functions that prepare a directory and return the call to observe."""


class _Profiler:
    """Records modules in the order of their first function call. Installed for the rest of the process."""

    def __init__(self) -> None:
        self.modules: dict[str, None] | None = None
        threading.setprofile(self._observe)
        sys.setprofile(self._observe)

    def _observe(self, frame: FrameType, event: str, _argument: object) -> None:
        code, modules = frame.f_code, self.modules
        if modules is None or event != "call" or not code.co_filename.startswith(_SOURCE):
            return
        if code.co_flags & inspect.CO_OPTIMIZED:  # a function, not the body of a module or class
            modules.setdefault(code.co_filename[len(_SOURCE) + 1 : -len(".py")])


def measure_all() -> dict[str, list[str]]:
    """Return the modules of each call. Runs once per process, before any other thread of the library."""
    profiler, out = _Profiler(), {}
    for title, prepare in CALLS.items():
        with tempfile.TemporaryDirectory() as directory:
            prepare(Path(directory), "first")()
            call = prepare(Path(directory), "second")
            profiler.modules = {}
            call()
            out[title], profiler.modules = list(profiler.modules), None
    return out


def main(arguments: list[str]) -> None:
    measured = measure_all()
    if "--json" in arguments:
        print(json.dumps(measured))
        return
    for title, modules in measured.items():
        packages = {module.rpartition("/")[0] for module in modules}
        above = [module for module in modules if not module.startswith(("primitives/", "storage/"))]
        print(
            f"{title:32} {len(modules):3} modules in {len(packages):2} packages, "
            f"{len(above):3} of them above primitives and storage"
        )
        if "--modules" in arguments:
            print("   ", "\n    ".join(modules))


if __name__ == "__main__":
    main(sys.argv[1:])
