"""If this fails, imported and exported tensors differ, or corruption goes unnoticed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

import warpdata as wd
from tests.cli.scenes import ask, run
from warpdata.cli.exit_codes import CORRUPT
from warpdata.primitives.hashing import blob_key
from warpdata.tensors import open_arrays

EVERY_TYPE = [
    *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint16, torch.uint32),
    *(torch.float16, torch.float32, torch.float64, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2),
]


def checkpoint() -> dict[str, Any]:
    torch.manual_seed(0)
    made: dict[str, Any] = {f"layers.{n}.w": torch.randn(64, 96).to(torch.bfloat16) for n in range(3)}
    for number, kind in enumerate(EVERY_TYPE):
        made[f"type.{number:02}"] = (torch.rand(number, 3) * 100).to(kind)
    return {**made, "scalar": torch.tensor(2.5), 'ünïcode "name"': torch.arange(5)}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "model.safetensors"
    save_file(checkpoint(), path)
    return path


def bits(tensor: Any) -> tuple[Any, ...]:
    flat = tensor.contiguous().reshape(-1).view(torch.uint8)
    return str(tensor.dtype), tuple(tensor.shape), bytes(flat.numpy())


def test_import_and_export_round_trip(file: Path, tmp_path: Path) -> None:
    done = ask("tensors", "import", "acme/model", str(file), "--label", "v1", "-m", "first")
    assert done["changed"] is True
    out = tmp_path / "out.safetensors"
    exported = ask("tensors", "export", "acme/model@v1", str(out))
    assert exported["tensors"] == len(checkpoint())
    written = load_file(out)
    assert {name: bits(value) for name, value in written.items()} == {
        name: bits(value) for name, value in checkpoint().items()
    }
    with safe_open(out, "pt") as opened:
        assert set(opened.keys()) == set(checkpoint())
    again = ask("tensors", "import", "acme/model", str(out))
    assert (again["changed"], again["version"]) == (False, done["version"])
    assert run("tensors", "export", "acme/model", str(out)).exit_code != 0, "export never overwrites a file"


def test_ls_and_show(file: Path) -> None:
    ask("publish", "acme/model", "--tensors", f"weights={file}", "--tensors", f"ema={file}")
    listed = ask("tensors", "ls", "acme/model")["tensors"]
    assert [one["name"] for one in listed] == ["ema", "weights"]
    assert listed[0]["artifact_id"] == listed[1]["artifact_id"] == wd.open_tensors(file).artifact_id
    assert ask("info", "acme/model")["tensors"] == listed
    shown = ask("tensors", "show", "acme/model", "--name", "ema")
    assert [row["name"] for row in shown["tensors"]] == sorted(checkpoint())
    row = next(row for row in shown["tensors"] if row["name"] == "layers.1.w")
    assert (row["dtype"], row["shape"], row["size_bytes"]) == ("torch.bfloat16", [64, 96], 64 * 96 * 2)
    assert shown["view_id"] is None
    for args in (("tensors", "ls", "acme/model"), ("info", "acme/model"), ("inspect", "acme/model")):
        text = run(*args).stdout
        assert "weights" in text
        assert "ema" in text
    text = run("tensors", "show", "acme/model", "--name", "weights", "--limit", "2").stdout
    assert "64 × 96" in text
    assert f"and {len(checkpoint()) - 2} more" in text
    assert "Name one of: ema, weights" in run("tensors", "show", "acme/model").stderr


def test_view_is_explained_and_written(file: Path, tmp_path: Path) -> None:
    ask("tensors", "import", "acme/model", str(file))
    art = wd.dataset("acme/model").tensors()
    out = tmp_path / "view.safetensors"
    flags = ("--narrow", "layers.*.w=0:3/8", "--transpose", "type.09=0,1", "--only", "layers.*,type.09")
    explained = ask("tensors", "view", "acme/model", *flags, "--output", str(out))
    spec: dict[str, Any] = {f"layers.{n}.w": wd.narrow(0, 24, 8) for n in range(3)}
    view = art.view({**spec, "type.09": wd.transpose(0, 1)}, names=[*spec, "type.09"])
    assert explained["view_id"] == view.view_id == ask("tensors", "show", "acme/model", *flags)["view_id"]
    plan = view.explain()
    assert (explained["requests"], explained["bytes_read"], explained["bytes_kept"]) == (
        plan.requests,
        plan.bytes_read,
        plan.bytes_kept,
    )
    written = load_file(out)
    assert bits(written["layers.2.w"]) == bits(checkpoint()["layers.2.w"][24:32])
    assert bits(written["type.09"]) == bits(checkpoint()["type.09"].T)
    assert set(written) == {*spec, "type.09"}
    text = run("tensors", "view", str(file), "--narrow", "layers.0.w=1:10:20").stdout
    assert "view id" in text
    assert "times the size it keeps" in text


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (("--narrow", "layers.0.w=0:60:10"), "layers.0.w"),
        (("--narrow", "layers.9.w=0:0:1"), "no tensor matches 'layers.9.w'"),
        (("--narrow", "layers.0.w=9:0/2"), "no dimension 9"),
        (("--narrow", "layers.0.w=0:2/2"), "is not of the form"),
        (("--narrow", "layers.0.w"), "is not of the form"),
        (("--transpose", "layers.0.w=1"), "is not of the form"),
        (("--only", "nothing*"), "no tensor matches 'nothing*'"),
        (("--name", "weights"), "--name needs a dataset"),
    ],
)
def test_invalid_view_is_error(file: Path, flags: tuple[str, ...], text: str) -> None:
    result = run("tensors", "view", str(file), *flags)
    assert result.exit_code != 0
    assert text in " ".join(result.stderr.split())


def test_verify_names_corrupt_tensors(file: Path, tmp_path: Path) -> None:
    ask("tensors", "import", "acme/model", str(file))
    assert ask("tensors", "verify", "acme/model")["ok"] is True
    assert "is valid" in run("tensors", "verify", "acme/model").stdout
    dataset = wd.dataset("acme/model")
    (shard,) = dataset.manifest.tensors["weights"].shards.shards
    path = Path(dataset.session.reader.url.removeprefix("file://")) / blob_key(shard.hash)
    path.chmod(0o600)
    data = bytearray(path.read_bytes())
    data[9] ^= 1
    path.write_bytes(data)
    result = run("tensors", "verify", "acme/model", "--json")
    assert result.exit_code == CORRUPT
    (corrupt,) = json.loads(result.stdout)["damaged"]
    assert corrupt["names"][0] == "layers.0.w"
    result = run("verify", "acme/model")
    assert result.exit_code == CORRUPT
    assert "tensors 'weights': bytes 0…" in result.stdout
    out = tmp_path / "out.safetensors"
    assert run("tensors", "export", "acme/model", str(out)).exit_code == CORRUPT
    assert not out.exists()
    assert list(tmp_path.glob("*.partial")) == []
    assert "no hashes to verify them with" in run("tensors", "verify", str(file)).stderr


def test_dtype_without_safetensors_equivalent(tmp_path: Path) -> None:
    art = open_arrays({"w": torch.zeros(2, dtype=torch.complex128)})
    with pytest.raises(wd.errors.UnsupportedError, match="complex128"):
        art.save_safetensors(tmp_path / "out.safetensors")


def test_path_or_dataset(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(file.parent)
    for target in ("model.safetensors", "./model.safetensors", str(file.parent), "."):
        assert ask("tensors", "show", target)["path"] == target
    assert "acme/model is not published" in run("tensors", "show", "acme/model").stderr


@pytest.mark.parametrize(
    ("name", "data", "found"),
    [
        ("notes.txt", b"some words, and more of them", "is not a tensor file"),
        ("short.txt", b"abc", "is not a tensor file"),
        ("empty", b"", "is not a tensor file"),
        ("model.pt", b"PK\x03\x04" + bytes(100), "zip archive"),
        ("array.npy", b"\x93NUMPY" + bytes(100), "numpy.save"),
    ],
)
def test_another_file_is_called_another_file(tmp_path: Path, name: str, data: bytes, found: str) -> None:
    (tmp_path / name).write_bytes(data)
    done = run("tensors", "show", str(tmp_path / name))
    assert done.exit_code == 5  # bad input
    assert found in done.output
    assert "header of" not in done.output
    (tmp_path / "cut.safetensors").write_bytes(data)
    assert run("tensors", "show", str(tmp_path / "cut.safetensors")).exit_code == CORRUPT


def test_options_of_one_tensor_combine(tmp_path: Path) -> None:
    """Each narrow applies to the result of those before, and transposes come last."""
    matrix = torch.arange(96).reshape(8, 12)
    save_file({"a": matrix}, tmp_path / "m.safetensors")
    out = tmp_path / "out.safetensors"
    halves = ("--narrow", "a=0:1/2", "--narrow", "a=0:1/2", "--narrow", "a=1:2:6", "--transpose", "a=0,1")
    done = ask("tensors", "export", str(tmp_path / "m.safetensors"), str(out), *halves)
    assert done["view_id"]
    assert torch.equal(load_file(out)["a"], matrix[6:8, 2:8].T)
