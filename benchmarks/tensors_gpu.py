"""Tensors into the memory of a GPU, beside safetensors: whole, in eighths along two axes, transposed, and checked.

A set of bfloat16 tensors in several safetensors files, and once more in a file of ours, which has hashes to
check against. All files are in the page cache. Every round runs all arms; medians over rounds are reported, in
GB/s of the bytes that end up on the GPU. The rate of one large copy from pinned memory, measured in the same
run, is what no loader can exceed. Results of the arms are compared bit by bit.

    PYTHONPATH=src python benchmarks/tensors_gpu.py [--gigabytes 20] [--rounds 5] [--runs 3] [--folder /tmp/tensors]
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import torch
from safetensors.torch import load_file, save_file

from warpdata import tensors

SIDE = 16384
BIG_BYTES = SIDE * SIDE * 2
FILES = 5
FIRST_ROUNDS = 2
GPU = "cuda:0"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=20.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--runs", type=int, default=1, help="tables, each from a process of its own, over the same files"
    )
    parser.add_argument("--folder", type=Path, default=None)
    parser.add_argument("--measure", action="store_true", help="files are in FOLDER already")
    parser.add_argument("--first", choices=["ours", "safetensors"], help="load FOLDER once, and say how fast")
    asked = parser.parse_args()
    if asked.first is not None:
        print(load_once(asked.folder, asked.first))
        return
    if asked.measure:
        report(asked.folder, asked.rounds)
        return
    with tempfile.TemporaryDirectory(dir=asked.folder) as home:
        folder = Path(home)
        write_files(folder, max(1, round(asked.gigabytes * 1e9 / BIG_BYTES)))
        command = [sys.executable, __file__, "--folder", home, "--measure", "--rounds", str(asked.rounds)]
        for _ in range(asked.runs):
            subprocess.run(command, check=True)


def write_files(folder: Path, count: int) -> None:
    """The same tensors twice: as safetensors, and as a file of ours. Big matrices, and a few small vectors."""
    noise = torch.randint(0, 256, (BIG_BYTES,), dtype=torch.uint8, device=GPU)
    shards = folder / "shards"
    shards.mkdir()
    names = [f"layer.{number:02}.weight" for number in range(count)]
    for file in range(FILES):
        held: dict[str, torch.Tensor] = {}
        for number in range(file, count, FILES):
            matrix = (noise + number).cpu().view(torch.bfloat16).reshape(SIDE, SIDE)
            held[names[number]] = matrix
            held[f"layer.{number:02}.norm"] = matrix[0].clone()
        save_file(held, shards / f"model-{file}.safetensors")
    with tensors.open_tensors(shards) as art, tensors.create_tensors(folder / "ours", art.index) as draft:
        for name in art.names():
            draft.write_view(draft.view(names=(name,)), art.view(names=[name]).materialize().region)
        draft.seal().close()


def load_once(folder: Path, who: str) -> float:
    """GB/s of one whole load. Python, its modules and the device are ready; nothing else is."""
    torch.zeros(1, device=GPU)
    loaded: list[Any] = []

    def load() -> None:
        if who == "ours":
            with tensors.open_tensors(folder) as art:
                loaded.append(art.view().materialize(GPU))
        else:
            loaded.extend(load_file(file, device=GPU) for file in sorted(folder.iterdir()))

    seconds = clocked(load)
    return sum(file.stat().st_size for file in folder.iterdir()) / seconds / 1e9


def first_rates(folder: Path, rounds: int) -> dict[str, float]:
    """The same in processes of their own, in turn."""
    rates: dict[str, list[float]] = {"ours": [], "safetensors": []}
    for _ in range(rounds):
        for who in rates:
            command = [sys.executable, __file__, "--folder", str(folder), "--first", who]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            rates[who].append(float(done.stdout))
    return {who: statistics.median(values) for who, values in rates.items()}


def clocked(work: Callable[[], Any]) -> float:
    torch.cuda.synchronize()
    start = time.perf_counter()
    work()
    torch.cuda.synchronize()
    return time.perf_counter() - start


def pinned_rate() -> float:
    size = 1 << 30
    here = torch.empty(size, dtype=torch.uint8, pin_memory=True)
    there = torch.empty(size, dtype=torch.uint8, device=GPU)

    def copy() -> None:
        for _ in range(10):
            there.copy_(here, non_blocking=True)

    copy()
    return 10 * size / statistics.median(clocked(copy) for _ in range(5)) / 1e9


class Arms:
    """What is compared, all into `region`, which is large enough for any of it."""

    def __init__(self, folder: Path, engine: tensors.Engine) -> None:
        self.shards = sorted((folder / "shards").iterdir())
        self.art = tensors.open_tensors(folder / "shards", engine=engine)
        self.own = tensors.open_tensors(folder / "ours", engine=engine)
        self.big = [name for name in self.art.names() if name.endswith("weight")]
        self.region = torch.empty(self.art.index.total_size, dtype=torch.uint8, device=GPU)

    def whole(self) -> int:
        return int(self.art.view().materialize(GPU).region.numel())

    def whole_safetensors(self) -> int:
        return sum(t.numel() * t.element_size() for f in self.shards for t in load_file(f, device=GPU).values())

    def view(self, kind: str, art: tensors.TensorSet | None = None) -> tensors.View:
        ops: dict[str, Any] = {
            "dim 0": tensors.narrow(0, SIDE // 8 * 3, SIDE // 8),
            "dim 1": tensors.narrow(1, SIDE // 8 * 3, SIDE // 8),
            "transpose": tensors.transpose(0, 1),
        }
        return (art or self.art).view(dict.fromkeys(self.big, ops[kind]), names=self.big)

    def ours(self, kind: str) -> int:
        view = self.view(kind)
        view.materialize_into(self.region)
        return view.size

    def own_file(self, kind: str, verify: bool) -> int:
        view = self.own.view() if kind == "whole" else self.view(kind, self.own)
        view.materialize_into(self.region, verify=verify)
        return view.size

    def peer(self, kind: str, by_slice: bool) -> int:
        """By `get_slice`, or by `get_tensor` and cutting on the GPU; what comes out is put into the region."""
        at = 0
        first, last = SIDE // 8 * 3, SIDE // 8 * 4
        for file in self.shards:
            with safetensors.safe_open(file, framework="pt", device=GPU) as opened:
                for name in (key for key in opened.keys() if key.endswith("weight")):  # noqa: SIM118
                    held = opened.get_slice(name) if by_slice else opened.get_tensor(name)
                    if kind == "transpose":
                        part = held[:].t() if by_slice else held.t()
                    else:
                        part = held[first:last] if kind == "dim 0" else held[:, first:last]
                    size = part.numel() * part.element_size()
                    self.region[at : at + size].view(part.dtype).view(part.shape).copy_(part)
                    at += size
        return at

    def check(self) -> None:
        """Every arm gives the same bits."""
        out = self.art.view().materialize(GPU)
        for file in self.shards:
            for name, tensor in load_file(file, device=GPU).items():
                assert torch.equal(out[name].view(torch.int16), tensor.view(torch.int16)), name
        del out
        for kind in ("dim 0", "dim 1", "transpose"):
            for art in (self.art, self.own):
                got = self.view(kind, art).materialize_into(self.region)
                for name in self.big:
                    whole = self.art.view(names=[name]).materialize(GPU)[name].view(torch.int16)
                    want = cut(whole, kind)
                    assert torch.equal(got[name].view(torch.int16), want), (kind, name)


def cut(whole: torch.Tensor, kind: str) -> torch.Tensor:
    eighth = slice(SIDE // 8 * 3, SIDE // 8 * 4)
    return {"dim 0": whole[eighth], "dim 1": whole[:, eighth], "transpose": whole.t()}[kind]


def report(folder: Path, rounds: int) -> None:
    first = first_rates(folder / "shards", FIRST_ROUNDS)
    engine = tensors.Engine()
    arms = Arms(folder, engine)
    work: dict[str, Callable[[], int]] = {
        "whole": arms.whole,
        "whole, load_file": arms.whole_safetensors,
        "ours whole": lambda: arms.own_file("whole", verify=False),
        "ours whole checked": lambda: arms.own_file("whole", verify=True),
        "ours dim 0": lambda: arms.own_file("dim 0", verify=False),
        "ours dim 0 checked": lambda: arms.own_file("dim 0", verify=True),
    }
    for kind in ("dim 0", "dim 1", "transpose"):
        work[kind] = lambda kind=kind: arms.ours(kind)  # type: ignore[misc]
        work[f"{kind}, get_slice"] = lambda kind=kind: arms.peer(kind, by_slice=True)  # type: ignore[misc]
        work[f"{kind}, get_tensor"] = lambda kind=kind: arms.peer(kind, by_slice=False)  # type: ignore[misc]
    arms.check()
    pinned = pinned_rate()
    rates: dict[str, list[float]] = {name: [] for name in work}
    for _ in range(rounds):
        for name, run in work.items():
            moved = [0]
            seconds = clocked(lambda run=run, moved=moved: moved.__setitem__(0, run()))  # type: ignore[misc]
            rates[name].append(moved[0] / seconds / 1e9)
    speed = {name: statistics.median(values) for name, values in rates.items()}
    total = arms.art.index.total_size
    shape = f"{torch.cuda.get_device_name()}, {len(os.sched_getaffinity(0))} cores"
    print(f"\n{shape}, {total / 1e9:.1f} GB in {len(arms.art)} tensors of {FILES} files, warm.")
    print(f"Python {sys.version.split()[0]}, torch {torch.__version__}, numpy {np.__version__}, ", end="")
    print(f"safetensors {safetensors.__version__}. {rounds} rounds; medians, with the range beside them.\n")
    print(f"Pinned host-to-device copy: {pinned:.1f} GB/s. Staging: {engine.pinned_bytes >> 20} MiB.\n")
    print("| case | ours, GB/s | safetensors, GB/s | ratio | target |  |")
    print("|---|---|---|---|---|---|")

    def row(case: str, ours: str, peer: str, ratio: float, target: float) -> None:
        told = f"{speed[ours]:.1f} ({min(rates[ours]):.1f}–{max(rates[ours]):.1f})"
        met = "met" if ratio >= target else "missed"
        print(f"| {case} | {told} | {peer} | {ratio:.2f} | ≥ {target:g} | {met} |")

    row("whole load, of the pinned rate", "whole", "", speed["whole"] / pinned, 0.75)
    peer = speed["whole, load_file"]
    row("whole load, against `load_file`", "whole", f"{peer:.1f}", speed["whole"] / peer, 6)
    told = f"| {first['ours']:.1f} | {first['safetensors']:.1f} | {first['ours'] / first['safetensors']:.2f} |"
    print(f"| whole load, the first of a process, pinning included {told}  |  |")
    for kind, case in (("dim 0", "1/8 along dim 0"), ("dim 1", "1/8 along dim 1"), ("transpose", "transpose")):
        slices, whole = speed[f"{kind}, get_slice"], speed[f"{kind}, get_tensor"]
        told = f"{slices:.1f} `get_slice`, {whole:.1f} `get_tensor`"
        row(f"{case}, into a region", kind, told, speed[kind] / max(slices, whole), 5)
    for kind in ("whole", "dim 0"):
        plain = speed[f"ours {kind}"]
        checked = f"ours {kind} checked"
        row(f"{kind}, every byte checked", checked, f"(ours unchecked: {plain:.1f})", speed[checked] / plain, 0.5)
    said = arms.view("dim 0").explain()
    print(f"\nBytes read for dim 0: {said.bytes_read}, kept: {said.bytes_kept}, in {said.requests} requests. ", end="")
    said = arms.view("dim 1").explain()
    print(f"For dim 1: {said.bytes_read} read, {said.bytes_kept} kept, in {said.requests} requests.")


if __name__ == "__main__":
    main()
