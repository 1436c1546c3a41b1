"""If this fails, `device="cpu"` gives arrays where a caller of torch expects tensors, or tensors of other values."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from warpdata.errors import UnsupportedError
from warpdata.tensors import TensorSet, narrow, open_tensors, transpose, write_tensors

TENSORS: dict[str, Any] = {
    "bf16": torch.randn(6, 5).to(torch.bfloat16),
    "c128": torch.randn(3, dtype=torch.complex128),
    "empty": torch.empty(0, 4, dtype=torch.float16),
    "f8": torch.randn(4, 4).to(torch.float8_e4m3fn),
    "odd": torch.arange(3, dtype=torch.int8),
    "scalar": torch.tensor(7.5),
    "u16": torch.arange(9, dtype=torch.int32).to(torch.uint16).reshape(3, 3),
}


@pytest.fixture
def art(tmp_path: Path) -> TensorSet:
    return write_tensors(tmp_path / "t", TENSORS)


def same(one: Any, two: Any) -> bool:
    """Return whether two tensors have the same type, shape and bits."""
    as_bytes = [bytes(t.contiguous().reshape(-1).view(torch.uint8).numpy()) for t in (one, two)]
    return bool(one.dtype == two.dtype and one.shape == two.shape and as_bytes[0] == as_bytes[1])


@pytest.mark.parametrize("device", ["cpu", "cpu:0", torch.device("cpu"), torch.device("cpu", 0)])
def test_the_cpu_as_a_device_gives_tensors_of_torch(art: TensorSet, device: Any) -> None:
    out = art.view({"bf16": [narrow(0, 1, 4), transpose(0, 1)]}).materialize(device=device, verify=True)
    assert same(out["bf16"], TENSORS["bf16"][1:5].T)
    for name in TENSORS.keys() - {"bf16"}:
        assert same(out[name], TENSORS[name]), name
        assert out[name].device.type == "cpu"
    assert isinstance(out.region, torch.Tensor)
    assert out.view_data_hash == art.view({"bf16": [narrow(0, 1, 4), transpose(0, 1)]}).materialize().view_data_hash
    assert not art.view().explain(device).on_device
    with art.deferred(device) as deferred:
        late, part = deferred.take("bf16"), deferred.slice("u16", 1, 1, 2)
        deferred.commit()
    assert same(late, TENSORS["bf16"])
    assert same(part, TENSORS["u16"][:, 1:])


def test_one_tensor_becomes_a_tensor_of_torch(art: TensorSet) -> None:
    assert same(art["bf16"][2:4, ::2].torch(), TENSORS["bf16"][2:4, ::2])
    assert same(art["bf16"][2].torch("cpu"), TENSORS["bf16"][2])
    assert same(art["scalar"].torch(), TENSORS["scalar"])
    assert same(art["bf16"][2:2].torch(), TENSORS["bf16"][2:2])


def test_no_device_gives_arrays(art: TensorSet) -> None:
    assert all(isinstance(array, np.ndarray) for array in art.view().materialize().values())
    with pytest.raises(UnsupportedError):
        art.view().materialize(device="mps")


def test_without_torch_the_cpu_gives_arrays(art: TensorSet, tmp_path: Path) -> None:
    art.close()
    script = (
        "import sys; sys.modules['torch'] = None\n"
        "from warpdata.tensors import open_tensors\n"
        f"art = open_tensors({str(tmp_path / 't')!r})\n"
        "out = art.view(names=['odd']).materialize(device='cpu')['odd']\n"
        "deferred = art.deferred('cpu'); late = deferred.take('odd'); deferred.commit()\n"
        "print(type(out).__module__, type(late).__module__, out.tolist(), late.tolist())\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split(None, 2) == ["numpy", "numpy", "[0, 1, 2] [0, 1, 2]\n"]
    assert open_tensors(tmp_path / "t").names() == sorted(TENSORS)
