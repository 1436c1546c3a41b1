"""Tensors into ordinary memory, beside safetensors: whole files, and eighths along two axes.

Float32 matrices in several safetensors files, in the page cache. A mapping is not a load, so whole loads are also
summed inside the clock: by one thread, as in most programs, and by all threads, the best case of a mapping. The
NumPy interface of safetensors copies into arrays; its torch interface maps, and is measured if torch is installed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import safetensors
from safetensors.numpy import load_file, save_file

from benchmarks.harness.data import make_once
from benchmarks.harness.machine import is_installed, skip_lines
from benchmarks.harness.timing import Arm, RunOptions, format_bytes, interleave
from benchmarks.results import Outcome
from warpdata import tensors

__all__ = ["run"]

_FILES = 4
_UNIT = "GB/s"
Arrays: TypeAlias = list[np.ndarray[Any, Any]]
Load: TypeAlias = Callable[[], Arrays]


def run(options: RunOptions) -> Outcome:
    shape, count = ((64, 128), _FILES) if options.is_smoke else ((4096, 8192), 30)
    directory = make_once(f"tensors-{count}x{shape[0]}x{shape[1]}", partial(_write_files, shape, count))
    loads = _Loads(directory, shape)
    threads = os.cpu_count() or 1
    arms: dict[str, Arm] = {}
    counts: dict[str, int] = {}
    whole: dict[str, Load] = {
        "whole": partial(loads.ours, None),
        "into memory": partial(loads.ours, None, np.ones(loads.size_bytes, np.uint8)),
        "arrays": partial(loads.safetensors, None),
    }
    if is_installed("torch"):
        whole["mapped"] = loads.safetensors_torch
    for name, load in whole.items():
        for suffix, thread_count in (("", 1), (" all", threads)):
            arms[name + suffix] = partial(partial, _load_and_sum, load, thread_count)
            counts[name + suffix] = sum(array.nbytes for array in load())
    for dim in (0, 1):
        for name, read in (("dim", loads.ours), ("peer dim", loads.safetensors)):
            arms[f"{name} {dim}"] = partial(partial, _load, partial(read, dim))
            counts[f"{name} {dim}"] = sum(array.nbytes for array in read(dim))
        expected, found = (_sum(read(dim), threads) for read in (loads.safetensors, loads.ours))
        assert np.isclose(expected, found), dim
    sums = {name: _sum(load(), threads) for name, load in whole.items()}
    assert all(np.isclose(total, sums["arrays"]) for total in sums.values()), sums
    times = interleave(arms, options.rounds).per_item(counts)
    mapped = {"peer_name": "safetensors, mapped", "unit": _UNIT}
    copied = {"peer_name": "safetensors, arrays", "unit": _UNIT}
    measurements = [
        times.compare("whole, summed by one thread", "whole", "arrays", promise="tensor-cpu-whole", **copied),
        times.compare("1/8 along dim 0", "dim 0", "peer dim 0", peer_name="safetensors", unit=_UNIT),
        times.compare(
            "1/8 along dim 1", "dim 1", "peer dim 1", peer_name="safetensors", unit=_UNIT, promise="tensor-cpu-slice"
        ),
    ]
    if "mapped" in whole:
        measurements += [
            times.compare("whole, summed by one thread", "whole", "mapped", promise="tensor-cpu-whole", **mapped),
            times.compare("whole, summed by all threads", "whole all", "mapped all", **mapped),
            times.compare("whole, into memory of the caller", "into memory all", "mapped all", **mapped),
        ]
    return Outcome(
        title="Tensors on a CPU",
        method=f"{format_bytes(loads.size_bytes)} in {_FILES} files, in the page cache.",
        measurements=measurements,
        skipped=skip_lines(["torch"]),
    )


def _write_files(shape: tuple[int, int], count: int, directory: Path) -> None:
    noise = np.random.default_rng(1).standard_normal(shape, np.float32)
    for file in range(_FILES):
        arrays = {f"layer.{number:02}": noise + np.float32(number) for number in range(file, count, _FILES)}
        save_file(arrays, directory / f"model-{file}.safetensors")


class _Loads:
    """Loads of the same files by warpdata and by safetensors; `dim` None means whole tensors."""

    def __init__(self, directory: Path, shape: tuple[int, int]) -> None:
        self.directory = directory
        self.shape = shape
        self.files = sorted(directory.iterdir())
        self.size_bytes = sum(file.stat().st_size for file in self.files)

    def ours(self, dim: int | None, region: np.ndarray[Any, Any] | None = None) -> Arrays:
        with tensors.open_tensors(self.directory) as opened:
            spec = None if dim is None else {name: tensors.narrow(dim, *self._eighth(dim)) for name in opened.names()}
            view = opened.view(spec)
            found = view.materialize() if region is None else view.materialize_into(region)
        return [found[name] for name in sorted(found)]

    def safetensors(self, dim: int | None) -> Arrays:
        found: dict[str, Any] = {}
        for file in self.files:
            if dim is None:
                found.update(load_file(file))
                continue
            first, length = self._eighth(dim)
            with safetensors.safe_open(file, framework="np") as opened:
                for name in opened.keys():  # noqa: SIM118 - not a mapping
                    part = opened.get_slice(name)
                    found[name] = part[first : first + length] if dim == 0 else part[:, first : first + length]
        return [found[name] for name in sorted(found)]

    def safetensors_torch(self) -> Arrays:
        from safetensors.torch import load_file as load_torch_file

        found = {name: tensor for file in self.files for name, tensor in load_torch_file(file).items()}
        return [found[name].numpy() for name in sorted(found)]

    def _eighth(self, dim: int) -> tuple[int, int]:
        return self.shape[dim] // 8 * 3, self.shape[dim] // 8


def _load(load: Load) -> int:
    return len(load())


def _load_and_sum(load: Load, threads: int) -> int:
    arrays = load()
    _sum(arrays, threads)
    return len(arrays)


def _sum(arrays: Sequence[np.ndarray[Any, Any]], threads: int) -> float:
    """Read every byte."""
    pieces = [piece for array in arrays for piece in np.array_split(array.reshape(-1), 8)]
    with ThreadPoolExecutor(threads) as pool:
        return float(sum(pool.map(lambda piece: float(np.add.reduce(piece, dtype=np.float64)), pieces)))
