"""Tensors into the memory of a GPU, beside safetensors: whole, eighths along two axes, transposed, and verified.

Bfloat16 tensors in several safetensors files, once more in a warpdata tensor file, which has hashes to verify, and
published from these files to a local store.
All files are in the page cache. Rates count the bytes that arrive on the GPU. The rate of one large copy from pinned
memory, measured in the same run, is the upper bound of any loader. Results of the arms are compared bit by bit.
`python -m benchmarks.tensors.gpu DIRECTORY LIBRARY` loads a directory once and prints the rate.
"""

from __future__ import annotations

import importlib
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import warpdata as wd
from benchmarks.harness.data import scratch
from benchmarks.harness.machine import is_installed
from benchmarks.harness.process import CHECKOUT
from benchmarks.harness.timing import Arm, RunOptions, ScenarioUnavailableError, Timings, interleave
from benchmarks.results import Measurement, Outcome
from warpdata import Settings, tensors

__all__ = ["run"]

_GPU = "cuda:0"
_MODEL = "bench/model"
_FILES = 5
_FIRST_LOADS = 2
_UNIT = "GB/s"
_KINDS_VERIFIED = {"dim 0": "1/8 along dim 0", "dim 1": "1/8 along dim 1"}
_KINDS = {**_KINDS_VERIFIED, "transpose": "transpose"}


def run(options: RunOptions) -> Outcome:
    if not is_installed("torch") or not is_installed("safetensors"):
        raise ScenarioUnavailableError("torch and safetensors are needed")
    torch = importlib.import_module("torch")
    if not torch.cuda.is_available():
        raise ScenarioUnavailableError("a CUDA device is needed")
    side, matrix_count = (512, _FILES) if options.is_smoke else (16384, 24)
    directory = scratch("tensors-gpu")
    _write_files(directory, side, matrix_count)
    first = _time_first_loads(directory / "shards")
    engine = tensors.Engine()
    loads = _GpuLoads(directory, engine, side)
    loads.check()
    pinned = _pinned_rate(size_bytes=1 << (24 if options.is_smoke else 30))
    times = _time(loads, options)
    plans = {kind: loads.view(kind).explain() for kind in ("dim 0", "dim 1")}
    total_gb = loads.opened.index.total_size / 1e9
    outcome = Outcome(
        title="Tensors on a GPU",
        method=f"{torch.cuda.get_device_name()}; {total_gb:.1f} GB in {len(loads.opened)} tensors of {_FILES} "
        "files, in the page cache.",
        measurements=_measure(times, pinned, first),
        notes=[
            f"Pinned host-to-device copy: {pinned:.1f} GB/s. Staging buffers: {engine.pinned_bytes >> 20} MiB.",
            *(
                f"Bytes read for {kind}: {plan.bytes_read:,}, kept: {plan.bytes_kept:,}, in {plan.requests} requests."
                for kind, plan in plans.items()
            ),
        ],
    )
    scratch("tensors-gpu")
    return outcome


def _write_files(directory: Path, side: int, matrix_count: int) -> None:
    """Write the same tensors as safetensors and as a warpdata file: large matrices and small vectors."""
    import torch
    from safetensors.torch import save_file

    noise = torch.randint(0, 256, (side * side * 2,), dtype=torch.uint8, device=_GPU)
    shards = directory / "shards"
    shards.mkdir()
    for file in range(_FILES):
        held: dict[str, torch.Tensor] = {}
        for number in range(file, matrix_count, _FILES):
            matrix = (noise + number).cpu().view(torch.bfloat16).reshape(side, side)
            held[f"layer.{number:02}.weight"] = matrix
            held[f"layer.{number:02}.norm"] = matrix[0].clone()
        save_file(held, shards / f"model-{file}.safetensors")
    with tensors.open_tensors(shards) as opened, tensors.create_tensors(directory / "ours", opened.index) as draft:
        for name in opened.names():
            draft.write_view(draft.view(names=(name,)), opened.view(names=[name]).materialize().region)
        draft.seal().close()
    settings = Settings((directory / "store").as_uri(), directory / "cache")
    builder = wd.DatasetBuilder(_MODEL, (directory / "store").as_uri(), settings=settings)
    builder.add_tensors("weights", str(shards)).publish()


def _load_once(directory: Path, library: str) -> float:
    """Return the rate of one whole load in GB/s; modules and the device are ready before."""
    import torch
    from safetensors.torch import load_file

    torch.zeros(1, device=_GPU)
    loaded: list[Any] = []

    def load() -> None:
        if library == "warpdata":
            with tensors.open_tensors(directory) as opened:
                loaded.append(opened.view().materialize(_GPU))
        else:
            loaded.extend(load_file(file, device=_GPU) for file in sorted(directory.iterdir()))

    return sum(file.stat().st_size for file in directory.iterdir()) / _clock(load) / 1e9


def _time_first_loads(directory: Path) -> dict[str, float]:
    """Return the median rate of the first load of a new process, by library."""
    rates: dict[str, list[float]] = {"warpdata": [], "safetensors": []}
    for _ in range(_FIRST_LOADS):
        for library, found in rates.items():
            command = [sys.executable, "-m", "benchmarks.tensors.gpu", str(directory), library]
            done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=True)
            found.append(float(done.stdout))
    return {library: statistics.median(found) for library, found in rates.items()}


def _clock(work: Callable[[], Any]) -> float:
    import torch

    torch.cuda.synchronize()
    start = time.perf_counter()
    work()
    torch.cuda.synchronize()
    return time.perf_counter() - start


def _pinned_rate(size_bytes: int) -> float:
    import torch

    host = torch.empty(size_bytes, dtype=torch.uint8, pin_memory=True)
    device = torch.empty(size_bytes, dtype=torch.uint8, device=_GPU)

    def copy() -> None:
        for _ in range(10):
            device.copy_(host, non_blocking=True)

    copy()
    return 10 * size_bytes / statistics.median(_clock(copy) for _ in range(5)) / 1e9


class _GpuLoads:
    """Loads that are compared. Slices go into `region`, which is large enough for each of them."""

    def __init__(self, directory: Path, engine: tensors.Engine, side: int) -> None:
        import torch

        self.side = side
        self.files = sorted((directory / "shards").iterdir())
        self.opened = tensors.open_tensors(directory / "shards", engine=engine)
        settings = Settings((directory / "store").as_uri(), directory / "cache")
        model = wd.dataset(_MODEL, store=(directory / "store").as_uri(), settings=settings)
        self.verifiable = {
            "own": tensors.open_tensors(directory / "ours", engine=engine),
            "published": model.tensors(engine=engine),
        }
        self.matrices = [name for name in self.opened.names() if name.endswith("weight")]
        self.region = torch.empty(self.opened.index.total_size, dtype=torch.uint8, device=_GPU)

    def whole(self) -> int:
        return int(self.opened.view().materialize(_GPU).region.numel())

    def whole_safetensors(self) -> int:
        from safetensors.torch import load_file

        return sum(t.numel() * t.element_size() for f in self.files for t in load_file(f, device=_GPU).values())

    def view(self, kind: str, opened: tensors.TensorSet | None = None) -> tensors.View:
        operations: dict[str, Any] = {
            "dim 0": tensors.narrow(0, self.side // 8 * 3, self.side // 8),
            "dim 1": tensors.narrow(1, self.side // 8 * 3, self.side // 8),
            "transpose": tensors.transpose(0, 1),
        }
        return (opened or self.opened).view(dict.fromkeys(self.matrices, operations[kind]), names=self.matrices)

    def slices(self, kind: str) -> int:
        view = self.view(kind)
        view.materialize_into(self.region)
        return view.size

    def read(self, form: str, kind: str, *, verify: bool) -> int:
        opened = self.verifiable[form]
        view = opened.view() if kind == "whole" else self.view(kind, opened)
        view.materialize_into(self.region, verify=verify)
        return view.size

    def slices_safetensors(self, kind: str, *, by_slice: bool) -> int:
        """Use `get_slice`, or `get_tensor` and a slice on the GPU, and copy the result into the region."""
        import safetensors

        offset = 0
        for file in self.files:
            with safetensors.safe_open(file, framework="pt", device=_GPU) as opened:
                for name in (key for key in opened.keys() if key.endswith("weight")):  # noqa: SIM118 - not a mapping
                    tensor = opened.get_slice(name) if by_slice else opened.get_tensor(name)
                    part = self._cut(tensor[:] if by_slice and kind == "transpose" else tensor, kind)
                    size = part.numel() * part.element_size()
                    self.region[offset : offset + size].view(part.dtype).view(part.shape).copy_(part)
                    offset += size
        return offset

    def check(self) -> None:
        """Check that every arm returns the same bits."""
        import torch
        from safetensors.torch import load_file

        found = self.opened.view().materialize(_GPU)
        for file in self.files:
            for name, tensor in load_file(file, device=_GPU).items():
                assert torch.equal(found[name].view(torch.int16), tensor.view(torch.int16)), name
        del found
        for kind in _KINDS:
            for opened in (self.opened, *self.verifiable.values()):
                got = self.view(kind, opened).materialize_into(self.region)
                for name in self.matrices:
                    whole = self.opened.view(names=[name]).materialize(_GPU)[name].view(torch.int16)
                    assert torch.equal(got[name].view(torch.int16), self._cut(whole, kind)), (kind, name)

    def _cut(self, whole: Any, kind: str) -> Any:
        eighth = slice(self.side // 8 * 3, self.side // 8 * 4)
        if kind == "transpose":
            return whole.t()
        return whole[eighth] if kind == "dim 0" else whole[:, eighth]


def _time(loads: _GpuLoads, options: RunOptions) -> Timings:
    """Time all loads in seconds per byte."""
    works: dict[str, Callable[[], int]] = {"whole": loads.whole, "whole load_file": loads.whole_safetensors}
    for form in loads.verifiable:
        for kind in ("whole", "dim 0", "dim 1"):
            for verify in (False, True):
                works[f"{form} {kind} {verify}"] = partial(loads.read, form, kind, verify=verify)
    for kind in _KINDS:
        works[kind] = partial(loads.slices, kind)
        works[f"{kind} get_slice"] = partial(loads.slices_safetensors, kind, by_slice=True)
        works[f"{kind} get_tensor"] = partial(loads.slices_safetensors, kind, by_slice=False)
    counts = {name: work() for name, work in works.items()}
    arms: dict[str, Arm] = {name: partial(_synchronized, work) for name, work in works.items()}
    return interleave(arms, options.rounds).per_item(counts)


def _synchronized(work: Callable[[], int]) -> Callable[[], int]:
    import torch

    torch.cuda.synchronize()

    def run() -> int:
        work()
        torch.cuda.synchronize()
        return 0

    return run


def _measure(times: Timings, pinned: float, first: Mapping[str, float]) -> list[Measurement]:
    whole = times.value("whole", _UNIT)
    measurements = [
        Measurement(
            case="whole load, of the pinned rate",
            unit=_UNIT,
            ours=whole,
            peer=pinned,
            peer_name="pinned copy",
            is_baseline=True,
            ratio=whole / pinned,
            promise="tensor-gpu-bus",
        ),
        times.compare(
            "whole load",
            "whole",
            "whole load_file",
            peer_name="safetensors `load_file`",
            unit=_UNIT,
            promise="tensor-gpu-whole",
        ),
        Measurement(
            case="whole load, the first of a process, pinning included",
            unit=_UNIT,
            ours=first["warpdata"],
            peer=first["safetensors"],
            peer_name="safetensors `load_file`",
            ratio=first["warpdata"] / first["safetensors"],
        ),
    ]
    for kind, case in _KINDS.items():
        best = min((f"{kind} get_slice", f"{kind} get_tensor"), key=times.median_s)
        detail = ", ".join(
            f"`{name}` {times.value(f'{kind} {name}', _UNIT):.1f}" for name in ("get_slice", "get_tensor")
        )
        measurements.append(
            times.compare(
                f"{case}, into a region",
                kind,
                best,
                peer_name=f"safetensors `{best.rpartition(' ')[2]}`",
                unit=_UNIT,
                promise="tensor-gpu-slice",
                detail=f"safetensors {detail} {_UNIT}",
            )
        )
    for form, name in (("own", "tensor file"), ("published", "published")):
        for kind, case in (("whole", "whole load"), *_KINDS_VERIFIED.items()):
            verified, unverified = f"{form} {kind} True", f"{form} {kind} False"
            promise = {"whole": "tensor-gpu-verified", "dim 0": "tensor-gpu-verified-slice"}.get(kind, "")
            measurements.append(_against(times, f"{case}, {name}, every byte verified", verified, unverified, promise))
    for kind, local in (("whole", "own whole False"), *((each, each) for each in _KINDS_VERIFIED)):
        case = f"{_KINDS.get(kind, 'whole load')}, published"
        measurements.append(
            _against(times, case, f"published {kind} False", local, "tensor-gpu-published", "local file")
        )
    return measurements


def _against(
    times: Timings, case: str, ours: str, baseline: str, promise: str, baseline_name: str = "unverified"
) -> Measurement:
    return Measurement(
        case=case,
        unit=_UNIT,
        ours=times.value(ours, _UNIT),
        peer=times.value(baseline, _UNIT),
        peer_name=baseline_name,
        is_baseline=True,
        ratio=times.speed_ratio(ours, baseline),
        promise=promise,
    )


if __name__ == "__main__":
    print(_load_once(Path(sys.argv[1]), sys.argv[2]))
