"""Recording: how many small steps a second, and how much longer than usual an append may take.

A step is two channels of seven floats, with a reward. Every append is timed for the spread, in a pass of its own;
the rate is of whole recordings, from the beginning to the finished file. Peers append to resizable arrays as their
documentation says, step by step, and in the same groups as ours flushes.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness.data import scratch
from benchmarks.harness.process import per_reference
from benchmarks.harness.timing import Arm, Effort, Finding, Report, interleave
from warpdata.wshard import WShardStreamWriter, load_wshard

__all__ = ["run"]

_LEAST_RATE = 20_000
_MOST_SPREAD = 10.0
_FLUSH = 64
_CHANNELS = (
    {"id": "joint", "dtype": "f32", "shape": [7]},
    {"id": "ctrl", "dtype": "f32", "shape": [7], "signal_block": "action/ctrl"},
)
Record = Callable[[Path, Any], None]


def run(effort: Effort) -> Report:
    steps = 500 if effort.quick else 50_000
    data = np.random.default_rng(2).normal(size=(2, steps, 7)).astype(np.float32)
    _check(data)
    counts = {"ours": steps, "ours, fsync": steps, "h5py": steps // 10, "h5py, groups": steps, "zarr": steps // 500}
    arms: dict[str, Arm] = {name: _arm(name, data[:, :count]) for name, count in counts.items()}
    times = per_reference(interleave(arms, effort.rounds), counts)
    rate = 1 / times.median_s("ours")
    findings = [
        Finding(
            "a recording with fsync off, begun and finished",
            f"{rate:,.0f} steps/s",
            target=f"≥ {_LEAST_RATE:,} steps/s",
            is_met=rate >= _LEAST_RATE,
        ),
        *[
            Finding(
                f"the same, against {words}",
                f"{rate:,.0f} steps/s",
                f"{1 / times.median_s(peer):,.0f} steps/s",
                f"{times.speed_ratio('ours', peer):.2f} ({times.spread('ours', peer)})",
            )
            for peer, words in (
                ("h5py", "h5py, step by step"),
                ("h5py, groups", f"h5py, {_FLUSH} steps at a time"),
                ("zarr", "zarr, step by step"),
            )
        ],
        Finding("a recording with fsync at every flush", f"{1 / times.median_s('ours, fsync'):,.0f} steps/s"),
        *_spread(data, effort),
    ]
    return Report(
        "Recording steps",
        f"{steps:,} steps of two channels of seven f32 and a reward; flushed every {_FLUSH} steps, the default.",
        findings,
        notes=(
            f"One append in {_FLUSH} writes a group to the journal, so the 99th percentile is the time of such a one.",
            "h5py and zarr write the two channels alone, without reward and endings, and without any checks.",
        ),
    )


def _spread(data: Any, effort: Effort) -> list[Finding]:
    medians, tails, ratios = [], [], []
    for _ in range(effort.rounds):
        took = _each_append(data)
        median, tail = (float(value) for value in np.percentile(took, (50, 99)))
        medians.append(median)
        tails.append(tail)
        ratios.append(tail / median)
    ratio = statistics.median(ratios)
    return [
        Finding(
            "one append with fsync off: 99th percentile against the median",
            f"{statistics.median(tails) * 1e6:.1f} µs",
            f"{statistics.median(medians) * 1e6:.1f} µs",
            f"{ratio:.2f} ({min(ratios):.2f}–{max(ratios):.2f})× the time",
            f"< {_MOST_SPREAD:.0f}×",
            ratio < _MOST_SPREAD,
        )
    ]


def _each_append(data: Any) -> Any:
    took = np.empty(data.shape[1])
    path = scratch("episodes-append") / "one.wshard"
    with WShardStreamWriter(path, "one", _CHANNELS, flush_steps=_FLUSH, fsync="never") as writer:
        writer.begin_episode(env_id="Bench-v1", tick_hz=30)
        for step, (joint, ctrl) in enumerate(zip(*data, strict=True)):
            values = {"joint": joint, "ctrl": ctrl}
            start = time.perf_counter()
            writer.write_timestep(values, reward=0.5)
            took[step] = time.perf_counter() - start
        writer.end_episode()
    return took


def _arm(name: str, data: Any) -> Arm:
    record = _RECORD[name]

    def prepare() -> Callable[[], int]:
        folder = scratch("episodes-append")

        def run() -> int:
            record(folder / "one", data)
            return 0

        return run

    return prepare


def _ours(path: Path, data: Any, fsync: str = "never") -> None:
    with WShardStreamWriter(path, "one", _CHANNELS, flush_steps=_FLUSH, fsync=fsync) as writer:
        writer.begin_episode(env_id="Bench-v1", tick_hz=30)
        for joint, ctrl in zip(*data, strict=True):
            writer.write_timestep({"joint": joint, "ctrl": ctrl}, reward=0.5)
        writer.end_episode()


def _h5py(path: Path, data: Any, group: int = 1) -> None:
    import h5py

    with h5py.File(path, "w") as file:
        sets = [
            file.create_dataset(name, (0, 7), "f4", maxshape=(None, 7), chunks=(1024, 7)) for name in ("joint", "ctrl")
        ]
        for start in range(0, data.shape[1], group):
            for one, values in zip(sets, data, strict=True):
                part = values[start : start + group]
                one.resize(start + len(part), axis=0)
                one[start : start + len(part)] = part


def _zarr(path: Path, data: Any) -> None:
    import zarr

    kept = zarr.open_group(path, mode="w")
    sets = [kept.create_array(name, shape=(0, 7), dtype="f4", chunks=(1024, 7)) for name in ("joint", "ctrl")]
    for step in range(data.shape[1]):
        for one, values in zip(sets, data, strict=True):
            one.append(values[step : step + 1])


_RECORD: Mapping[str, Record] = {
    "ours": _ours,
    "ours, fsync": lambda path, data: _ours(path, data, "flush"),
    "h5py": _h5py,
    "h5py, groups": lambda path, data: _h5py(path, data, _FLUSH),
    "zarr": _zarr,
}


def _check(data: Any) -> None:
    """What was recorded comes back."""
    import h5py
    import zarr

    few, folder = data[:, :100], scratch("episodes-append")
    for name, record in _RECORD.items():
        record(folder / name, few)
    for name in ("ours", "ours, fsync"):
        episode = load_wshard(folder / name)
        assert np.array_equal(episode.observations["joint"].data, few[0])
        assert np.array_equal(episode.actions["ctrl"].data, few[1])
    for name in ("h5py", "h5py, groups"):
        with h5py.File(folder / name, "r") as file:
            assert np.array_equal(file["joint"][:], few[0]), name
    kept: Any = zarr.open_group(folder / "zarr", mode="r")
    assert np.array_equal(kept["ctrl"][:], few[1])
