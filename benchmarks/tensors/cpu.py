"""Tensors into ordinary memory, beside safetensors: whole with every byte touched, and eighths along two axes.

One set of float32 matrices in several safetensors files, in the page cache. All arms run in turn within each round;
ratios are medians over rounds. A mapping is not a load, so what was loaded whole is also summed, inside of the
clock: by one thread, as most programs would, and by all, which is the best case of a mapping. Whole loads of
safetensors come as arrays (copied by it) and as tensors of torch (mapped), where that is installed.

    PYTHONPATH=src python benchmarks/tensors_cpu.py [--gigabytes 2] [--rounds 7] [--folder /tmp]
"""

from __future__ import annotations

import argparse
import importlib
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
from safetensors.numpy import load_file, save_file

from warpdata import tensors

ROWS, COLUMNS = 4096, 8192
BIG_BYTES = ROWS * COLUMNS * 4
FILES = 4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--folder", type=Path, default=None)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=asked.folder) as home:
        write_files(Path(home), max(FILES, round(asked.gigabytes * 1e9 / BIG_BYTES)))
        report(Path(home), asked.rounds)


def write_files(folder: Path, count: int) -> None:
    noise = np.random.default_rng(1).standard_normal((ROWS, COLUMNS), np.float32)
    for file in range(FILES):
        held = {f"layer.{number:02}": noise + np.float32(number) for number in range(file, count, FILES)}
        save_file(held, folder / f"model-{file}.safetensors")


def touched(arrays: Any, threads: int) -> float:
    """Every byte is read, whoever loaded it."""
    pieces = [piece for array in arrays for piece in np.array_split(array.reshape(-1), 8)]
    with ThreadPoolExecutor(threads) as pool:
        return float(sum(pool.map(lambda piece: float(np.add.reduce(piece, dtype=np.float64)), pieces)))


class Arms:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files = sorted(folder.iterdir())

    def ours(self, dim: int | None, region: np.ndarray[Any, Any] | None = None) -> list[np.ndarray[Any, Any]]:
        with tensors.open_tensors(self.folder) as art:
            spec = {name: tensors.narrow(dim, *eighth(dim)) for name in art.names()} if dim is not None else None
            view = art.view(spec)
            out = view.materialize() if region is None else view.materialize_into(region)
        return [out[name] for name in sorted(out)]

    def safetensors(self, dim: int | None) -> list[np.ndarray[Any, Any]]:
        out: dict[str, Any] = {}
        for file in self.files:
            if dim is None:
                out.update(load_file(file))
                continue
            first, length = eighth(dim)
            with safetensors.safe_open(file, framework="np") as opened:
                for name in opened.keys():  # noqa: SIM118
                    part = opened.get_slice(name)
                    out[name] = part[first : first + length] if dim == 0 else part[:, first : first + length]
        return [out[name] for name in sorted(out)]

    def safetensors_torch(self) -> list[np.ndarray[Any, Any]]:
        load = importlib.import_module("safetensors.torch").load_file
        out = {name: tensor for file in self.files for name, tensor in load(file).items()}
        return [out[name].numpy() for name in sorted(out)]


def eighth(dim: int) -> tuple[int, int]:
    extent = (ROWS, COLUMNS)[dim]
    return extent // 8 * 3, extent // 8


def report(folder: Path, rounds: int) -> None:
    arms = Arms(folder)
    region = np.ones(sum(file.stat().st_size for file in arms.files), np.uint8)
    work: dict[str, Callable[[], list[np.ndarray[Any, Any]]]] = {
        "whole": lambda: arms.ours(None),
        "whole, into memory": lambda: arms.ours(None, region),
        "whole, safetensors": lambda: arms.safetensors(None),
        "dim 0": lambda: arms.ours(0),
        "dim 0, safetensors": lambda: arms.safetensors(0),
        "dim 1": lambda: arms.ours(1),
        "dim 1, safetensors": lambda: arms.safetensors(1),
    }
    try:
        importlib.import_module("torch")
        work["whole, mapped"] = arms.safetensors_torch
    except ImportError:
        pass
    sums: dict[str, float] = {}
    everybody = os.cpu_count() or 1
    work |= {f"{name}; all threads": run for name, run in work.items() if name.startswith("whole")}
    rates: dict[str, list[float]] = {name: [] for name in work}
    for _ in range(rounds):
        for name, run in work.items():
            start = time.perf_counter()
            arrays = run()
            total = touched(arrays, everybody if name.endswith("all threads") else 1) if "whole" in name else 0.0
            seconds = time.perf_counter() - start
            rates[name].append(sum(array.nbytes for array in arrays) / seconds / 1e9)
            sums[name] = total or touched(arrays, everybody)
            del arrays
    for name, total in sums.items():
        assert np.isclose(total, sums[name.split(",")[0].split(";")[0]]), name
    size = sum(file.stat().st_size for file in arms.files)
    print(f"\n{os.cpu_count()} processors, {size / 1e9:.1f} GB in {FILES} files, warm. ", end="")
    print(f"Python {sys.version.split()[0]}, numpy {np.__version__}, ", end="")
    print(f"safetensors {safetensors.__version__}. {rounds} rounds.\n")
    print("| case | ours, GB/s | safetensors, GB/s | ratio (range) | target |  |")
    print("|---|---|---|---|---|---|")
    for case, ours, peer, target in (
        ("whole and summed by one thread, against mapped", "whole", "whole, mapped", 1.0),
        ("the same, against arrays", "whole", "whole, safetensors", 1.0),
        ("whole and summed by all threads, against mapped", "whole; all threads", "whole, mapped; all threads", 1.0),
        ("the same, into memory that is there", "whole, into memory; all threads", "whole, mapped; all threads", None),
        ("1/8 along dim 0", "dim 0", "dim 0, safetensors", None),
        ("1/8 along dim 1", "dim 1", "dim 1, safetensors", 2.0),
    ):
        if peer not in rates:
            continue
        ratios = sorted(one / other for one, other in zip(rates[ours], rates[peer], strict=True))
        ratio = statistics.median(ratios)
        told = f"{ratio:.2f} ({ratios[0]:.2f}–{ratios[-1]:.2f})"
        mine, other = statistics.median(rates[ours]), statistics.median(rates[peer])
        judged = "|  |  |" if target is None else f"| ≥ {target} | {'met' if ratio >= target else 'missed'} |"
        print(f"| {case} | {mine:.1f} | {other:.1f} | {told} {judged}")


if __name__ == "__main__":
    main()
