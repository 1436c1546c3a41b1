"""Recording small steps: steps per second, and the tail of the time of one append.

A step has two channels of seven floats and a reward. The rate is that of whole recordings, from the first step to
the finished file; every append is timed in a separate pass. Peers append to resizable arrays as their documentation
says, step by step and in the groups in which warpdata flushes.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from benchmarks.harness.data import scratch
from benchmarks.harness.machine import is_installed, skip_lines
from benchmarks.harness.timing import Arm, RunOptions, interleave
from benchmarks.results import Measurement, Outcome
from warpdata.wshard import WShardStreamWriter, load_wshard

__all__ = ["run"]

_FLUSH_STEPS = 64
_CHANNELS = (
    {"id": "joint", "dtype": "f32", "shape": [7]},
    {"id": "ctrl", "dtype": "f32", "shape": [7], "signal_block": "action/ctrl"},
)
_UNIT = "steps/s"
_PEERS = {
    "h5py": "h5py, step by step",
    "h5py groups": f"h5py, {_FLUSH_STEPS} steps at a time",
    "zarr": "zarr, step by step",
}
Record: TypeAlias = Callable[[Path, Any], None]


def run(options: RunOptions) -> Outcome:
    steps = 500 if options.is_smoke else 50_000
    data = np.random.default_rng(2).normal(size=(2, steps, 7)).astype(np.float32)
    counts = {"ours": steps, "fsync": steps, "h5py": steps // 10, "h5py groups": steps, "zarr": max(1, steps // 500)}
    counts = {arm: count for arm, count in counts.items() if _is_available(arm)}
    _check(data, list(counts))
    arms: dict[str, Arm] = {arm: partial(_prepare, _RECORD[arm], data[:, :count]) for arm, count in counts.items()}
    times = interleave(arms, options.rounds).per_item(counts)
    case = "a recording without fsync"
    measurements = [
        Measurement(case=case, unit=_UNIT, ours=times.value("ours", _UNIT), promise="recorder-rate"),
        *(times.compare(case, "ours", arm, peer_name=_PEERS[arm], unit=_UNIT) for arm in _PEERS if arm in counts),
        Measurement(case="a recording with fsync at every flush", unit=_UNIT, ours=times.value("fsync", _UNIT)),
        _measure_tail(data, options),
    ]
    return Outcome(
        title="Recording steps",
        method=f"{steps:,} steps of two channels of seven f32 and a reward; flushed every {_FLUSH_STEPS} steps, the "
        "default.",
        measurements=measurements,
        notes=(
            f"One append in {_FLUSH_STEPS} writes a group to the journal, and the 99th percentile is such an append.",
            "h5py and zarr write the two channels only, without rewards, endings or validation.",
        ),
        skipped=skip_lines(["h5py", "zarr"]),
    )


def _is_available(arm: str) -> bool:
    return arm in ("ours", "fsync") or is_installed(arm.partition(" ")[0])


def _measure_tail(data: Any, options: RunOptions) -> Measurement:
    rounds = [np.percentile(_time_appends(data), (50, 99)) for _ in range(options.rounds)]
    ratios = [float(tail / median) for median, tail in rounds]
    return Measurement(
        case="99th percentile of an append without fsync",
        unit="µs",
        ours=statistics.median(float(tail) for _, tail in rounds) * 1e6,
        peer=statistics.median(float(median) for median, _ in rounds) * 1e6,
        peer_name="the median",
        is_baseline=True,
        ratio=statistics.median(ratios),
        ratio_range=(min(ratios), max(ratios)),
        quantity="time",
        promise="recorder-tail",
    )


def _time_appends(data: Any) -> Any:
    times_s = np.empty(data.shape[1])
    path = scratch("episodes-append") / "one.wshard"
    with WShardStreamWriter(path, "one", _CHANNELS, flush_steps=_FLUSH_STEPS, fsync="never") as writer:
        writer.begin_episode(env_id="Bench-v1", tick_hz=30)
        for step, (joint, ctrl) in enumerate(zip(*data, strict=True)):
            values = {"joint": joint, "ctrl": ctrl}
            start = time.perf_counter()
            writer.write_timestep(values, reward=0.5)
            times_s[step] = time.perf_counter() - start
        writer.end_episode()
    return times_s


def _prepare(record: Record, data: Any) -> Callable[[], int]:
    directory = scratch("episodes-append")

    def run() -> int:
        record(directory / "one", data)
        return 0

    return run


def _record(path: Path, data: Any, fsync: str = "never") -> None:
    with WShardStreamWriter(path, "one", _CHANNELS, flush_steps=_FLUSH_STEPS, fsync=fsync) as writer:
        writer.begin_episode(env_id="Bench-v1", tick_hz=30)
        for joint, ctrl in zip(*data, strict=True):
            writer.write_timestep({"joint": joint, "ctrl": ctrl}, reward=0.5)
        writer.end_episode()


def _record_h5py(path: Path, data: Any, group: int = 1) -> None:
    import h5py

    with h5py.File(path, "w") as file:
        arrays = [
            file.create_dataset(name, (0, 7), "f4", maxshape=(None, 7), chunks=(1024, 7)) for name in ("joint", "ctrl")
        ]
        for start in range(0, data.shape[1], group):
            for array, values in zip(arrays, data, strict=True):
                part = values[start : start + group]
                array.resize(start + len(part), axis=0)
                array[start : start + len(part)] = part


def _record_zarr(path: Path, data: Any) -> None:
    import zarr

    group = zarr.open_group(path, mode="w")
    arrays = [group.create_array(name, shape=(0, 7), dtype="f4", chunks=(1024, 7)) for name in ("joint", "ctrl")]
    for step in range(data.shape[1]):
        for array, values in zip(arrays, data, strict=True):
            array.append(values[step : step + 1])


_RECORD: Mapping[str, Record] = {
    "ours": _record,
    "fsync": partial(_record, fsync="flush"),
    "h5py": _record_h5py,
    "h5py groups": partial(_record_h5py, group=_FLUSH_STEPS),
    "zarr": _record_zarr,
}


def _check(data: Any, names: list[str]) -> None:
    """Check that each arm's recording reads back."""
    few, directory = data[:, :100], scratch("episodes-append")
    for name in names:
        _RECORD[name](directory / name, few)
    for name in ("ours", "fsync"):
        episode = load_wshard(directory / name)
        assert np.array_equal(episode.observations["joint"].data, few[0])
        assert np.array_equal(episode.actions["ctrl"].data, few[1])
    for name in ("h5py", "h5py groups"):
        if name in names:
            import h5py

            with h5py.File(directory / name, "r") as file:
                assert np.array_equal(file["joint"][:], few[0]), name
    if "zarr" in names:
        import zarr

        group: Any = zarr.open_group(directory / "zarr", mode="r")
        assert np.array_equal(group["ctrl"][:], few[1])
