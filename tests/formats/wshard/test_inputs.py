"""If this fails, a value that a caller passes is changed or dropped silently, or raises an error of another library."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

from warpdata.errors import BadInputError, SchemaMismatchError
from warpdata.wshard import (
    Block,
    Channel,
    DType,
    Episode,
    Timebase,
    WShardStreamWriter,
    load_wshard,
    recover,
    save_wshard,
)

BF16 = np.array([1.5, -2.0, 3.0], ml_dtypes.bfloat16)
MASKED = np.ma.array([1.0, 2.0, 3.0], mask=[False, True, False], dtype=np.float32)

GOOD: dict[str, tuple[Any, Any, str]] = {
    "list": ([1, 2, 3], None, "i64"),
    "tuple": ((1.5, 2.0, 3.0), None, "f64"),
    "nested": ([[1, 2], [3, 4], [5, 6]], "u8", "u8"),
    "list as f32": ([0.1, 2, 3], DType.F32, "f32"),
    "booleans": ([True, False, True], None, "bool"),
    "tensor": (torch.arange(3, dtype=torch.float32), None, "f32"),
    "tensor with a gradient": (torch.arange(3, dtype=torch.float32, requires_grad=True), None, "f32"),
    "tensor view": (torch.arange(6).reshape(2, 3).T, None, "i64"),
    "bf16 tensor": (torch.tensor([1.5, -2, 3], dtype=torch.bfloat16, requires_grad=True), None, "bf16"),
    "nothing masked": (np.ma.array([1.0, 2.0, 3.0], mask=False), None, "f64"),
}


@pytest.mark.parametrize("name", GOOD)
def test_lists_and_tensors_are_channels(name: str, tmp_path: Path) -> None:
    data, dtype, stored = GOOD[name]
    save_wshard(Episode("ep", 3, observations={"x": Channel("x", data, dtype)}), tmp_path / "a.wshard")
    found = load_wshard(tmp_path / "a.wshard").observations["x"]
    assert found.stored_dtype == stored
    plain = data.detach().to(torch.float64).numpy() if isinstance(data, torch.Tensor) else np.asarray(data)
    np.testing.assert_array_equal(found.data.astype(np.float64), plain.astype(found.data.dtype).astype(np.float64))


def test_bf16_tensors_keep_their_bits_without_ml_dtypes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(__import__("sys").modules, "ml_dtypes", None)
    tensor = torch.tensor([1.5, -2, 3], dtype=torch.bfloat16)
    channel = Channel("x", tensor)  # type: ignore[arg-type]
    assert (channel.stored_dtype, channel.data.dtype) == (DType.BF16, np.dtype(np.uint16))
    assert channel.data.tobytes() == BF16.tobytes()
    writer = WShardStreamWriter(tmp_path / "a.wshard", "ep", [{"id": "x", "dtype": "u16", "shape": [3]}])
    writer.begin_episode()
    with pytest.raises(SchemaMismatchError, match="bf16 instead of u16"):
        writer.write_timestep({"x": tensor})
    writer.close()


BAD: dict[str, tuple[Callable[[], object], str]] = {
    "ragged": (lambda: Channel("cam", [[1], [1, 2]]), "'cam'"),  # type: ignore[arg-type]
    "none": (lambda: Channel("cam", None), "'cam'"),  # type: ignore[arg-type]
    "text": (lambda: Channel("cam", ["a"]), "'cam'"),  # type: ignore[arg-type]
    "huge": (lambda: Channel("cam", [10**400]), "'cam'"),  # type: ignore[arg-type]
    "overflow": (lambda: Channel("cam", [256], DType.U8), "256, which u8"),  # type: ignore[arg-type]
    "negative": (lambda: Channel("cam", [-1], DType.U64), "-1, which u64"),  # type: ignore[arg-type]
    "fraction": (lambda: Channel("cam", [1.9], DType.I64), "fractions"),  # type: ignore[arg-type]
    "f32": (lambda: Channel("cam", [1e39], DType.F32), "f32"),  # type: ignore[arg-type]
    "masked": (lambda: Channel("cam", MASKED), "'cam' has masked elements"),
    "masked in a list": (lambda: Channel("cam", [MASKED]), "masked"),  # type: ignore[arg-type]
    "float8": (lambda: Channel("cam", torch.zeros(2).to(torch.float8_e4m3fn)), "float8"),  # type: ignore[arg-type]
    "sparse": (lambda: Channel("cam", torch.zeros(2).to_sparse()), "'cam'"),  # type: ignore[arg-type]
    "dtype": (lambda: Channel("cam", np.zeros(2), "f99"), "f99"),  # type: ignore[arg-type]
    "rewards": (lambda: Episode("ep", 1, rewards=[10**400]), "rewards"),  # type: ignore[arg-type]
    "endings": (lambda: Episode("ep", 1, terminations=[2]), "terminations"),  # type: ignore[arg-type]
    "times": (lambda: Episode("ep", 1, timestamps_ns=[1.9]), "timestamps_ns"),  # type: ignore[arg-type]
    "masked rewards": (lambda: Episode("ep", 3, rewards=MASKED), "rewards has masked"),
    "block": (lambda: Block("text"), "bytes"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("name", BAD)
def test_values_that_do_not_fit_are_refused_by_name(name: str) -> None:
    make, said = BAD[name]
    with pytest.raises(BadInputError, match=said):
        make()


def test_lists_are_series(tmp_path: Path) -> None:
    episode = Episode(
        "ep",
        2,
        timebase=Timebase("timestamps_ns"),
        rewards=[0.5, 1],  # type: ignore[arg-type]
        terminations=(False, True),  # type: ignore[arg-type]
        truncations=torch.tensor([True, False]),  # type: ignore[arg-type]
        timestamps_ns=[2**62, 2**62 + 1],  # type: ignore[arg-type]
    )
    save_wshard(episode, tmp_path / "a.wshard")
    found = load_wshard(tmp_path / "a.wshard")
    series = (found.rewards, found.terminations, found.truncations, found.timestamps_ns)
    assert [None if array is None else array.tolist() for array in series] == [
        [0.5, 1.0],
        [False, True],
        [True, False],
        [2**62, 2**62 + 1],
    ]


@pytest.mark.parametrize(
    "changes",
    [
        {"observations": {"a": np.zeros(2)}},
        {"id": 5},
        {"length": 2.0},
        {"metadata": [1]},
        {"attributes": 5},
        {"timebase": Timebase("ticks", "30")},  # type: ignore[arg-type]
    ],
    ids=str,
)
def test_episode_of_wrong_types_is_refused(changes: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(BadInputError):
        save_wshard(Episode(**{"id": "ep", "length": 2, **changes}), tmp_path / "a.wshard")
    assert list(tmp_path.iterdir()) == []


CHANNELS: list[dict[str, Any]] = [
    {"id": "joint", "dtype": "f32", "shape": [3]},
    {"id": "half", "dtype": "bf16", "shape": [3]},
    {"id": "count", "dtype": "u8", "shape": []},
]
STEP: dict[str, Any] = {"joint": [0.5, 1, 2], "half": BF16, "count": 7}


def recording(path: Path, timebase: Timebase | None = None) -> WShardStreamWriter:
    writer = WShardStreamWriter(path, "ep", CHANNELS, fsync="never")
    writer.begin_episode(timebase=timebase)
    return writer


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"joint": (0.5, 1.0, 2.0)},
        {"joint": torch.tensor([0.5, 1, 2], requires_grad=True)},
        {"joint": np.ma.array([0.5, 1, 2], mask=False, dtype=np.float32)},
        {"half": torch.tensor([1.5, -2, 3], dtype=torch.bfloat16, requires_grad=True)},
        {"half": [1.5, -2, 3]},
        {"half": BF16.view(np.uint16)},
        {"count": np.uint8(7)},
        {"count": torch.tensor(7, dtype=torch.uint8)},
    ],
    ids=str,
)
def test_steps_of_lists_and_tensors(change: dict[str, Any], tmp_path: Path) -> None:
    writer = recording(tmp_path / "a.wshard")
    writer.write_timestep({**STEP, **change}, reward=torch.tensor(0.25), done=torch.tensor(True))  # type: ignore[arg-type]
    writer.end_episode()
    found = load_wshard(tmp_path / "a.wshard")
    assert found.observations["joint"].data.tolist() == [[0.5, 1, 2]]
    assert found.observations["half"].data.tobytes() == BF16.tobytes()
    assert found.observations["count"].data.tolist() == [7]
    assert found.rewards is not None
    assert found.rewards.tolist() == [0.25]


@pytest.mark.parametrize(
    ("values", "series", "said"),
    [
        ({"joint": MASKED}, {}, r"step 1: channel 'joint' has masked elements"),
        ({"joint": [1, 2]}, {}, r"step 1: channel 'joint' has the shape \(2,\)"),
        ({"joint": [1, 2, 1e39]}, {}, r"step 1: channel 'joint' has the value 1e\+39"),
        ({"joint": [1, 2, 10**400]}, {}, r"step 1: channel 'joint'"),
        ({"joint": torch.zeros(3, dtype=torch.bfloat16)}, {}, r"step 1: channel 'joint' has the dtype bf16"),
        ({"joint": torch.zeros(3, dtype=torch.float64)}, {}, r"step 1: channel 'joint' has the dtype float64"),
        ({"joint": {}}, {}, r"step 1: channel 'joint'"),
        ({"count": 256}, {}, r"step 1: channel 'count' has the value 256"),
        ({"count": 1.5}, {}, r"step 1: channel 'count' has fractions"),
        ({"count": True}, {}, r"step 1: channel 'count'"),
        ({}, {"reward": 10**400}, r"step 1: the reward"),
        ({}, {"reward": -(10**400)}, r"step 1: the reward"),
        ({}, {"reward": True}, r"step 1: the reward"),
        ({}, {"reward": [1.0]}, r"step 1: the reward"),
        ({}, {"reward": np.ma.masked}, r"step 1: the reward has masked"),
        ({}, {"reward": torch.zeros(2)}, r"step 1: the reward has the shape"),
        ({}, {"reward": 1j}, r"step 1: the reward"),
        ({}, {"done": torch.tensor(1)}, r"step 1: done"),
        ({}, {"timestamp_ns": 1.9}, r"step 1: timestamp_ns is 1.9, not an integer"),
        ({}, {"timestamp_ns": True}, r"step 1: timestamp_ns"),
        ({}, {"timestamp_ns": "1"}, r"step 1: timestamp_ns"),
        ({}, {"timestamp_ns": 2**63}, r"step 1: timestamp_ns"),
        ({}, {"timestamp_ns": None}, r"step 1: timestamp_ns"),
    ],
    ids=str,
)
def test_step_that_does_not_fit_names_channel_and_step(
    values: dict[str, Any], series: dict[str, Any], said: str, tmp_path: Path
) -> None:
    writer = recording(tmp_path / "a.wshard", Timebase("timestamps_ns"))
    writer.write_timestep(STEP, timestamp_ns=5)
    with pytest.raises(SchemaMismatchError, match=said):
        writer.write_timestep({**STEP, **values}, **{"timestamp_ns": 6, **series})
    assert writer.step_count == 1
    writer.write_timestep(STEP, timestamp_ns=np.int64(7))  # type: ignore[arg-type]
    writer.end_episode()
    found = load_wshard(tmp_path / "a.wshard")
    assert found.timestamps_ns is not None
    assert found.timestamps_ns.tolist() == [5, 7]


@pytest.mark.parametrize("values", [None, 5, [("joint", 1)], "joint"], ids=repr)
def test_step_that_is_no_mapping_is_refused(values: Any, tmp_path: Path) -> None:
    writer = recording(tmp_path / "a.wshard")
    with pytest.raises(SchemaMismatchError, match="step 0"):
        writer.write_timestep(values)
    writer.close()


@pytest.mark.parametrize(
    ("channels", "options"),
    [
        ([5], {}),
        ({"a": 1}, {}),
        ([{"id": "a", "dtype": "f32", "shape": 3}], {}),
        ([], {"flush_steps": "64"}),
        ([], {"time_chunk_steps": 1.5}),
    ],
    ids=str,
)
def test_wrong_options_of_a_recording_are_refused(channels: Any, options: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(BadInputError):
        WShardStreamWriter(tmp_path / "a.wshard", "ep", channels, **options)


def test_predictions_are_recorded(tmp_path: Path) -> None:
    """The stream writer once refused the omen and uncert blocks that a file may have."""
    channels: list[dict[str, Any]] = [
        {"id": "state", "dtype": "f32", "shape": [2]},
        {"id": "state/dreamer", "dtype": "f32", "shape": [2], "signal_block": "omen/state/dreamer"},
        {"id": "wide", "dtype": "f64", "shape": [5], "signal_block": "omen/state/wide"},
        {"id": "latent_action/g", "dtype": "f32", "shape": [4], "signal_block": "omen/latent_action/g"},
        {"id": "std", "dtype": "f16", "shape": [2], "signal_block": "uncert/state/dreamer/std", "compression": "zstd"},
    ]
    for is_ended in (True, False):
        path = tmp_path / f"{is_ended}.wshard"
        with WShardStreamWriter(path, "ep", channels, fsync="never") as writer:
            writer.begin_episode()
            for step in range(40):
                values = {item["id"]: [step + 0.5] * item["shape"][0] for item in channels}
                writer.write_timestep(values)
            writer.flush()
            assert set(load_wshard(writer.partial_path).omens) == {"state/dreamer", "state/wide", "latent_action/g"}
            if is_ended:
                writer.end_episode()
        if not is_ended:
            recover(writer.partial_path)
        found = load_wshard(path)
        assert {name: (str(one.stored_dtype), one.data.shape, one.id) for name, one in found.lanes().items()} == {
            "signal/state": ("f32", (40, 2), "state"),
            "omen/state/dreamer": ("f32", (40, 2), "state/dreamer"),
            "omen/state/wide": ("f64", (40, 5), "wide"),
            "omen/latent_action/g": ("f32", (40, 4), "latent_action/g"),
            "uncert/state/dreamer/std": ("f16", (40, 2), "std"),
        }
        assert all(float(one.data[7, 0]) == 7.5 for one in found.lanes().values())
    with pytest.raises(BadInputError, match="not in one of"):
        WShardStreamWriter(tmp_path / "x.wshard", "ep", [{"id": "r", "dtype": "u8", "signal_block": "residual/x"}])
