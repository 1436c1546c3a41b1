"""Windows and recordings of the Go and TypeScript libraries, beside the Python library on the same files.

Each library reports the time of the processor for one window or one step, measured within its own process, so that
starting processes and parsing questions do not count. Rounds are interleaved.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from tests.formats.wshard.drivers import Driver
from tests.formats.wshard.golang import build_go
from tests.formats.wshard.typescript import NODE, build, translated

from benchmarks.harness.data import scratch
from benchmarks.harness.timing import RunOptions, ScenarioUnavailableError, Timings
from benchmarks.results import Measurement, Outcome
from warpdata.wshard import Channel, Episode, WShardStreamWriter, open_wshard, save_wshard

__all__ = ["run"]

_STEPS, _WINDOW, _WIDTH = 2000, 16, 64
_BLOCK = "signal/state"
_FILES: Mapping[str, Mapping[str, Any]] = {
    "an uncompressed block": {},
    "a block in one zstd frame": {"compression": "zstd"},
    "a block in one lz4 block": {"compression": "lz4"},
    "time chunks of 16 steps": {"compression": "zstd", "time_chunk_steps": 16},
}
_WHOLE = ("a block in one zstd frame", "a block in one lz4 block")
"""Python decodes the whole block for each window, so fewer windows are measured."""
_RECORDED_WIDTHS = (7, 64, 4096)
_PYTHON = "Python"
_MIN_ROUNDS, _WARMUPS = 15, 10
"""Node compiles a function again while it runs often."""
Bench = Callable[[], float]
"""Returns the seconds of the processor for one window or step."""


def run(options: RunOptions) -> Outcome:
    steps, windows, whole = (200, 50, 5) if options.is_smoke else (_STEPS, 2000, 50)
    recorded = 200 if options.is_smoke else 4000
    rounds = 1 if options.is_smoke else max(options.rounds, _MIN_ROUNDS)
    directory = scratch("episodes-languages")
    measurements: list[Measurement] = []
    with _drivers() as (drivers, skipped):
        for case, saved in _FILES.items():
            path = _write(directory / "one.wshard", steps, saved)
            count = whole if case in _WHOLE else windows
            arms: dict[str, Bench] = {_PYTHON: partial(_read_windows, path, count)}
            for name, driver in drivers.items():
                arms[name] = partial(_ask, driver, path, block=_BLOCK, rows=[count, _WINDOW])
            measurements += _compare(f"windows of {case}", arms, rounds)
        for width in _RECORDED_WIDTHS:
            path = directory / "recorded.wshard"
            arms = {_PYTHON: partial(_record, path, recorded, width)}
            for name, driver in drivers.items():
                arms[name] = partial(_ask, driver, path, rows=[recorded, width])
            measurements += _compare(f"recorded steps of {width:,} values", arms, rounds)
    return Outcome(
        title="Go and TypeScript",
        method=f"Windows of {_WINDOW} of {steps:,} steps with {_WIDTH} f32, in a scattered order, from a file opened "
        "for each round; recordings without fsync of one channel and an action of seven f32. Time of the processor, "
        f"after {_WARMUPS} rounds for compilers.",
        measurements=measurements,
        notes=(
            "Windows of all three are views where the block is mapped or cached; only their values would be touched.",
            "Go and TypeScript cache a block in a single frame after its first window; Python decodes it each time.",
            "Node maps no files: it reads an uncompressed block whole once windows have read as many bytes.",
        ),
        skipped=skipped,
    )


@contextmanager
def _drivers() -> Iterator[tuple[dict[str, Driver], tuple[str, ...]]]:
    """Build and start both libraries, or say which one is missing."""
    commands: dict[str, Callable[[Path], list[str]]] = {
        "Go": lambda built: [str(built / "driver")],
        "TypeScript": lambda built: [NODE, str(built / "dist" / "test" / "driver.js")],
    }
    drivers, skipped = {}, []
    with ExitStack() as stack:
        for name, builder in (("Go", build_go), ("TypeScript", build)):
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            if reason := builder(directory):
                skipped.append(f"{name}: {reason}")
                continue
            drivers[name] = Driver(commands[name](directory), translated)
            stack.callback(drivers[name].close)
        if not drivers:
            raise ScenarioUnavailableError("; ".join(skipped))
        yield drivers, tuple(skipped)


def _compare(case: str, arms: Mapping[str, Bench], rounds: int) -> list[Measurement]:
    times: dict[str, list[float]] = {name: [] for name in arms}
    names = list(arms)
    for number in range(-_WARMUPS if rounds > 1 else 0, rounds):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            spent_s = arms[name]()
            if number >= 0:
                times[name].append(spent_s)
    timings = Timings(times)
    return [
        timings.compare(f"{case}, {name}", name, _PYTHON, unit="µs", promise="language-speed")
        for name in names
        if name != _PYTHON
    ]


def _write(path: Path, steps: int, saved: Mapping[str, Any]) -> Path:
    state = np.cumsum(np.random.default_rng(0).normal(size=(steps, _WIDTH)), 0).round(1).astype(np.float32)
    save_wshard(Episode("e", steps, observations={"state": Channel("state", state)}), path, **saved)
    return path


def _ask(driver: Driver, path: Path, **asked: Any) -> float:
    spent_s = float(driver.answer("bench", path, **asked))
    path.with_suffix(".wshard.partial").unlink(missing_ok=True)
    return spent_s


def _read_windows(path: Path, count: int) -> float:
    with open_wshard(path) as file:
        reader = file[_BLOCK]
        most = reader.block_type.rows - _WINDOW
        started = time.process_time()
        for number in range(count):
            start = number * 7919 % most
            reader.window(start, start + _WINDOW)
        return (time.process_time() - started) / count


def _record(path: Path, count: int, width: int) -> float:
    channels: list[dict[str, Any]] = [
        {"id": "state", "dtype": "f32", "shape": [width]},
        {"id": "ctrl", "dtype": "f32", "shape": [7], "signal_block": "action/ctrl"},
    ]
    values = {"state": np.zeros(width, np.float32), "ctrl": np.zeros(7, np.float32)}
    with WShardStreamWriter(path, "ep", channels, fsync="never") as writer:
        writer.begin_episode(tick_hz=30)
        started = time.process_time()
        for _ in range(count):
            writer.write_timestep(values, reward=1.0)
        spent_s = time.process_time() - started
    writer.partial_path.unlink()
    return spent_s / count
