"""If this fails, demonstrations that pass through an HDF5 file differ from the report."""

from __future__ import annotations

import json
import tempfile
import tracemalloc
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.formats.convert.scenes import check_export, check_return, episodes, list_outcomes, saved
from warpdata.conversion import export_hdf5, import_hdf5
from warpdata.errors import BadInputError, InvalidSourceError
from warpdata.wshard import Channel, Episode, load_wshard, open_wshard


@settings(max_examples=40, deadline=None)
@given(episode=episodes(), seal=st.booleans())
def test_any_episode_round_trips(episode: Episode, seal: bool) -> None:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        source = saved(episode, directory, seal=seal)
        report = export_hdf5([source], directory / "demos.hdf5")
        outcomes = check_export(report, source)
        assert set(outcomes.values()) <= ({"kept", "lost"} if seal else {"kept"})
        back = import_hdf5(directory / "demos.hdf5", directory / "back")
        assert back.is_lossless
        check_return(outcomes, source, back.written[0])


def make_robomimic(path: Path, **extra: Any) -> dict[str, Any]:
    """Write a file like robomimic's scripts do, and return every dataset by its path."""
    chance = np.random.default_rng(3)
    arrays: dict[str, Any] = {}
    with h5py.File(path, "w") as file:
        data = file.create_group("data")
        for number, length in ((0, 5), (2, 3), (10, 4)):
            demo = data.create_group(f"demo_{number}")
            demo.attrs["num_samples"] = length
            demo.attrs["model_file"] = "<mujoco/>" * 10_000
            made = {
                "actions": chance.standard_normal((length, 7)),
                "states": chance.standard_normal((length, 32)),
                "rewards": (chance.random(length) < 0.5).astype(np.float64),
                "dones": (np.arange(length) == length - 1).astype(np.int64),
                "obs/robot0_eef_pos": chance.standard_normal((length, 3)),
                "obs/states": chance.standard_normal((length, 2)),
                "obs/agentview_image": chance.integers(0, 256, (length, 8, 8, 3), dtype=np.uint8),
                "next_obs/robot0_eef_pos": chance.standard_normal((length, 3)),
                **extra,
            }
            for name, values in made.items():
                demo.create_dataset(name, data=values, **({"compression": "gzip"} if "image" in name else {}))
                arrays[f"data/demo_{number}/{name}"] = values
        data.attrs["total"] = 12
        data.attrs["env_args"] = json.dumps({"env_name": "Lift", "type": 1, "env_kwargs": {"control_freq": 20}})
        for name, demos in (("train", ["demo_0", "demo_10"]), ("valid", ["demo_2"])):
            arrays[f"mask/{name}"] = np.array(demos, dtype="S")
            file.create_dataset(f"mask/{name}", data=arrays[f"mask/{name}"])
    return arrays


def test_robomimic_file_round_trips(tmp_path: Path) -> None:
    arrays = make_robomimic(tmp_path / "lift.hdf5")
    report = import_hdf5(tmp_path / "lift.hdf5", tmp_path / "episodes", compression="zstd")
    assert [path.name for path in report.written] == ["demo_0.wshard", "demo_2.wshard", "demo_10.wshard"]
    assert {outcome.field for outcome in report.changed} == {"rewards", "dones"}
    assert all("every value is exact" in outcome.how for outcome in report.changed)
    assert not report.lost
    assert (report.episodes, report.steps) == (3, 12)
    episode = load_wshard(report.written[0])
    assert (episode.env_id, episode.timebase.hz, episode.length) == ("Lift", 20, 5)
    np.testing.assert_array_equal(episode.observations["states"].data, arrays["data/demo_0/obs/states"])
    again = export_hdf5(report.written, tmp_path / "again.hdf5")
    assert again.is_lossless
    with h5py.File(tmp_path / "lift.hdf5") as old, h5py.File(tmp_path / "again.hdf5") as new:
        for name, values in arrays.items():
            assert new[name].dtype == old[name].dtype, name
            assert new[name][:].tobytes() == values.tobytes(), name
        for name in ("data", "data/demo_0", "data/demo_10"):
            assert {key: new[name].attrs[key] for key in old[name].attrs} == dict(old[name].attrs), name


def test_unsupported_data_is_reported(tmp_path: Path) -> None:
    make_robomimic(tmp_path / "x.hdf5", short=np.zeros(1), words=np.array([b"a"] * 3), rewards=np.full(3, 0.1))
    with h5py.File(tmp_path / "x.hdf5", "a") as file:
        file["data/demo_0/external"] = h5py.ExternalLink("/etc/passwd", "/")
        file["data/demo_0/soft"] = h5py.SoftLink("/data/demo_2/actions")
        file["data/demo_0"].attrs["list"] = np.arange(3)
        file["calibration"] = np.zeros(3)
        file.attrs["date"] = "today"
        file["data/loose"] = np.zeros(3)
    report = import_hdf5(tmp_path / "x.hdf5", tmp_path / "episodes")
    lost = {outcome.field: outcome for outcome in report.lost}
    assert {"short", "external", "soft", "@list", "calibration", "@date", "data/loose", "words"} <= set(lost)
    assert lost["external"].count == 1
    assert "links are not followed" in report.text()
    rounded = [outcome for outcome in report.changed if outcome.field == "rewards"]
    assert any("values are rounded" in outcome.how for outcome in rounded)


@pytest.mark.parametrize("rate", [None, 60])
def test_joined_actions_are_not_reported_as_lost(rate: int | None, tmp_path: Path) -> None:
    """The report once called `actions` lost if an action has its own rate, although every channel came back."""
    attributes: dict[str, Any] = {} if rate is None else {"sampling_rate_hz": rate}
    fast = Channel("fast", np.arange(8 if rate else 4, dtype=np.float32), attributes=attributes)
    slow = {name: Channel(name, np.full((4, 2), len(name), np.float32)) for name in ("arm", "grip")}
    source = saved(Episode("ep", 4, actions={"fast": fast, **slow}), tmp_path)
    report = export_hdf5([source], tmp_path / "demos.hdf5")
    assert "actions" in {outcome.field for outcome in report.added}
    back = import_hdf5(tmp_path / "demos.hdf5", tmp_path / "back")
    assert not back.lost
    check_return(list_outcomes(report), source, back.written[0])
    with h5py.File(tmp_path / "demos.hdf5", "a") as file:
        file["data/demo_0/actions"][0, 0] = 9.0
    changed = import_hdf5(tmp_path / "demos.hdf5", tmp_path / "changed")
    assert {outcome.field for outcome in changed.lost} == {"actions"}


def test_many_episodes_keep_their_order(tmp_path: Path) -> None:
    sources = []
    for number in range(12):
        data = np.full((2, 1), number, np.float32)
        episode = Episode(f"e{number}", 2, actions={"a": Channel("a", data), "b": Channel("b", data)})
        sources.append(saved(episode, tmp_path, name=f"e{number}"))
    report = export_hdf5(sources, tmp_path / "all.hdf5")
    assert report.episodes == 12
    assert list_outcomes(report)["action/a"] == "kept"
    assert {outcome.field for outcome in report.added} == {"actions", "data@env_args"}
    with h5py.File(tmp_path / "all.hdf5") as file:
        assert file["data"].attrs["total"] == 24
        np.testing.assert_array_equal(file["data/demo_7/actions"][:], np.full((2, 2), 7.0))
    back = import_hdf5(tmp_path / "all.hdf5", tmp_path / "back")
    assert [path.stem for path in back.written] == [f"e{number}" for number in range(12)]


def test_changes_of_other_tools_after_an_export_are_kept(tmp_path: Path) -> None:
    sources = [saved(Episode(f"e{number}", 2, "Lift"), tmp_path, name=f"e{number}") for number in range(3)]
    export_hdf5(sources, tmp_path / "all.hdf5")
    with h5py.File(tmp_path / "all.hdf5", "a") as file:
        file["mask/train"] = np.array([b"demo_0", b"demo_2"])
        file["data"].attrs["env_args"] = '{"env_name": "Stack", "type": 1, "env_kwargs": {}}'
        file["data/demo_1"].attrs["success"] = True
    report = import_hdf5(tmp_path / "all.hdf5", tmp_path / "back")
    assert {outcome.field for outcome in report.lost} == {"@success"}
    export_hdf5(report.written, tmp_path / "again.hdf5")
    with h5py.File(tmp_path / "again.hdf5") as file:
        assert file["mask/train"][:].tolist() == [b"demo_0", b"demo_2"]
        assert json.loads(file["data"].attrs["env_args"])["env_name"] == "Stack"


def test_memory_is_independent_of_the_file_size(tmp_path: Path) -> None:
    rows = 48
    with h5py.File(tmp_path / "big.hdf5", "w") as file:
        demo = file.create_group("data/demo_0")
        demo.attrs["num_samples"] = rows
        # Rows that do not end at a boundary of a piece.
        images = demo.create_dataset("obs/image", (rows, 1000, 1003), np.uint8)
        for number in range(rows):
            images[number] = number
        demo["actions"] = np.zeros((rows, 2))
    tracemalloc.start()
    report = import_hdf5(tmp_path / "big.hdf5", tmp_path / "out")
    export_hdf5(report.written, tmp_path / "again.hdf5")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20 * 2**20, peak
    with open_wshard(report.written[0]) as file:
        assert int(file["signal/image"].window(31, 32)[0, 0, 0]) == 31
    with h5py.File(tmp_path / "again.hdf5") as again:
        for number in range(rows):
            row = again["data/demo_0/obs/image"][number]
            assert (row.min(), row.max()) == (number, number)


def test_unreadable_sources(tmp_path: Path) -> None:
    (tmp_path / "x.hdf5").write_bytes(b"nothing")
    with h5py.File(tmp_path / "empty.hdf5", "w"):
        pass
    with h5py.File(tmp_path / "lies.hdf5", "w") as file:
        file.create_group("data/demo_0").attrs["wshard"] = '{"v": 1}'
    for name in ("x", "empty", "lies"):
        with pytest.raises(InvalidSourceError, match=name):
            import_hdf5(tmp_path / f"{name}.hdf5", tmp_path / "out")
    with pytest.raises(BadInputError, match="no episodes"):
        export_hdf5([], tmp_path / "none.hdf5")
    assert not (tmp_path / "none.hdf5").exists()
