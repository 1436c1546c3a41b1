"""If this fails, the Go or the TypeScript library reads or records more slowly than it should, compared with Python.

Both are measured in turns, so that a busy machine slows both. The ratio is the median over all turns. Windows of a
block in a single frame are faster because the other libraries cache it. Their decoders are not always faster: on noise,
zstd in Go takes about twice the time of zstd in C.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.formats.wshard.drivers import Driver
from warpdata.wshard import Channel, Episode, WShardStreamWriter, open_wshard, save_wshard

STEPS, WINDOW, TURNS = 2000, 16, 7
FILES: dict[str, dict[str, Any]] = {
    "plain": {},
    "zstd": {"compression": "zstd"},
    "lz4": {"compression": "lz4"},
    "time chunks": {"compression": "zstd", "time_chunk_steps": 16},
}

SLOWER = {
    ("typescript", "plain"): 0.03,
    ("typescript", "time chunks"): 0.5,
    ("typescript", 4096): 0.4,
}
"""Least ratios below 1. Node cannot map a file, so a window is a read and a promise; its CRC-32C is WebAssembly."""


def median_ratio(here: Callable[[], float], there: Callable[[], float]) -> float:
    """Return how many times as long this library takes."""
    return statistics.median(here() / there() for _ in range(TURNS))


def least_ratio(request: pytest.FixtureRequest, case: str | int) -> float:
    return SLOWER.get((request.node.callspec.params["driver"].replace("js_driver", "typescript"), case), 1)


def read_windows(path: Path, block: str, count: int) -> float:
    with open_wshard(path) as file:
        reader = file[block]
        started = time.perf_counter()
        for number in range(count):
            start = number * 7919 % (STEPS - WINDOW)
            reader.window(start, start + WINDOW)
        return (time.perf_counter() - started) / count


def record_steps(path: Path, count: int, width: int) -> float:
    channels: list[dict[str, Any]] = [
        {"id": "state", "dtype": "f32", "shape": [width]},
        {"id": "ctrl", "dtype": "f32", "shape": [7], "signal_block": "action/ctrl"},
    ]
    values = {"state": np.zeros(width, np.float32), "ctrl": np.zeros(7, np.float32)}
    with WShardStreamWriter(path, "ep", channels, fsync="never") as writer:
        writer.begin_episode(tick_hz=30)
        started = time.perf_counter()
        for _ in range(count):
            writer.write_timestep(values, reward=1.0)
        spent = time.perf_counter() - started
    writer.partial_path.unlink()
    return spent / count


@pytest.mark.soak
@pytest.mark.parametrize("name", FILES)
def test_windows(driver: Driver, name: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    path = tmp_path / "a.wshard"
    state = np.cumsum(np.random.default_rng(0).normal(size=(STEPS, 64)), 0).round(1).astype(np.float32)
    save_wshard(Episode("e", STEPS, observations={"state": Channel("state", state)}), path, **FILES[name])
    count = 2000 if name in ("plain", "time chunks") else 50
    asked = {"block": "signal/state", "rows": [count, WINDOW]}
    ratio = median_ratio(
        lambda: read_windows(path, "signal/state", count),
        lambda: float(driver.answer("bench", path, **asked)),
    )
    print(f"windows of {name}: {ratio:.2f}x")
    assert ratio >= least_ratio(request, name)


@pytest.mark.soak
@pytest.mark.parametrize("width", [7, 64, 4096])
def test_recording(driver: Driver, width: int, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    def record_there() -> float:
        spent = float(driver.answer("bench", tmp_path / "b.wshard", rows=[4000, width]))
        (tmp_path / "b.wshard.partial").unlink()
        return spent

    ratio = median_ratio(lambda: record_steps(tmp_path / "a.wshard", 4000, width), record_there)
    print(f"steps of {width} values: {ratio:.2f}x")
    assert ratio >= least_ratio(request, width)
