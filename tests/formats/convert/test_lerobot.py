"""If this fails, a LeRobot dataset differs from the episodes that it was made of, or that were made of it.

test_lerobot_library.py uses LeRobot's own library; here every file is read with Arrow alone.
"""

from __future__ import annotations

import json
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import assume, given, settings

from tests.formats.convert.scenes import check_export, check_return, episodes, list_outcomes, saved
from tests.kinds.artifacts.media import Scene, encode_test_image
from warpdata.conversion import export_lerobot, import_lerobot
from warpdata.errors import BadInputError, InvalidSourceError, SchemaMismatchError
from warpdata.formats.wshard import ChannelSpec, DType, Origin
from warpdata.wshard import (
    Channel,
    Episode,
    FrameReader,
    Timebase,
    compose_wshard,
    frames_block,
    index_video,
    load_wshard,
    open_wshard,
)

VIDEO = Scene("libx264", "mp4", {"g": "10", "bf": "0"})


@settings(max_examples=40, deadline=None)
@given(episode=episodes())
def test_any_episode_round_trips(episode: Episode) -> None:
    assume(episode.length)
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        source = saved(episode, directory)
        report = export_lerobot([source], directory / "ds", fps=episode.timebase.hz or 30)
        outcomes = check_export(report, source)
        back = import_lerobot(directory / "ds", directory / "back")
        assert {outcome.field for outcome in back.lost} == {"meta/info.json: splits", "meta/stats.json"}
        check_return(outcomes, source, back.written[0])


def test_nan_payloads_and_negative_zeros_are_kept(tmp_path: Path) -> None:
    bits = np.array([0x7FC00000, 0x7FC00001, 0xFFC00000, 0x80000000, 0, 0x7F800001] * 50, np.uint32)
    episode = Episode("ep", 300, observations={"x": Channel("x", bits.view(np.float32))})
    source = saved(episode, tmp_path)
    export_lerobot([source], tmp_path / "ds", fps=10)
    back = import_lerobot(tmp_path / "ds", tmp_path / "back")
    assert load_wshard(back.written[0]).observations["x"].data.tobytes() == bits.tobytes()


def filmed(directory: Path, number: int) -> Path:
    chance = np.random.default_rng(number)
    video = directory / "video.mp4"
    video.write_bytes(VIDEO.data)
    rows, index = index_video(video, "cam", is_verified=False)
    episode = Episode(
        f"ep{number}",
        40,
        "Lift-v1",
        Timebase("ticks", 30.0),
        observations={"state": Channel("state", chance.standard_normal((40, 3)).astype(np.float32))},
        actions={"ctrl": Channel("ctrl", chance.standard_normal((40, 2)).astype(np.float32))},
        metadata={"task": f"task {number % 2}"},
        extra={frames_block("signal/cam"): index},
    )
    path = directory / f"ep{number}.wshard"
    compose_wshard(episode, path, {"signal/cam": rows})
    return path


def test_videos_are_stored_unchanged(tmp_path: Path) -> None:
    sources = [filmed(tmp_path, number) for number in range(3)]
    report = export_lerobot(sources, tmp_path / "ds")
    assert report.is_lossless
    root = tmp_path / "ds"
    info = json.loads((root / "meta/info.json").read_text())
    assert (info["codebase_version"], info["fps"], info["total_episodes"], info["total_frames"]) == ("v3.0", 30, 3, 120)
    assert info["features"]["observation.cam"]["dtype"] == "video"
    listed = pq.read_table(root / "meta/episodes/chunk-000/file-000.parquet").to_pylist()
    data = pq.read_table(root / "data/chunk-000/file-000.parquet")
    for number, entry in enumerate(listed):
        video = info["video_path"].format(
            video_key="observation.cam",
            chunk_index=entry["videos/observation.cam/chunk_index"],
            file_index=entry["videos/observation.cam/file_index"],
        )
        assert (root / video).read_bytes() == VIDEO.data
        rows = data.slice(entry["dataset_from_index"], entry["length"])
        assert set(rows["episode_index"].to_pylist()) == {number}
        state = load_wshard(sources[number]).observations["state"].data
        np.testing.assert_array_equal(np.array(rows["observation.state"].to_pylist(), np.float32), state)
    tasks = pq.read_table(root / "meta/tasks.parquet").to_pylist()
    assert tasks == [{"task_index": 0, "task": "task 0"}, {"task_index": 1, "task": "task 1"}]
    stats = json.loads((root / "meta/stats.json").read_text())["observation.state"]
    everything = np.concatenate([load_wshard(source).observations["state"].data for source in sources])
    np.testing.assert_allclose(stats["mean"], everything.mean(axis=0, dtype=np.float64))
    np.testing.assert_allclose(stats["std"], everything.std(axis=0, dtype=np.float64))
    back = import_lerobot(root, tmp_path / "back")
    outcomes = list_outcomes(report)
    for source, path in zip(sources, back.written, strict=True):
        check_return(outcomes, source, path)


def foreign(root: Path, lengths: list[int], video: Scene | None, **columns: Any) -> None:
    """Write a dataset like LeRobot does: one file of rows and one video for all episodes."""
    total = sum(lengths)
    features: dict[str, Any] = {"action": {"dtype": "float32", "shape": [2], "names": ["x", "y"]}}
    table: dict[str, Any] = {"action": pa.array([[i, -i] for i in range(total)], pa.list_(pa.float32(), 2))}
    episodes: list[dict[str, Any]] = []
    first = 0
    steps: list[int] = []
    owner: list[int] = []
    for number, length in enumerate(lengths):
        entry: dict[str, Any] = {"episode_index": number, "length": length, "tasks": ["lift"]}
        entry |= {"data/chunk_index": 0, "data/file_index": 0}
        entry |= {"dataset_from_index": first, "dataset_to_index": first + length, "stats/action/mean": [0.0]}
        if video is not None:
            entry |= {"videos/observation.images.top/chunk_index": 0, "videos/observation.images.top/file_index": 0}
            entry |= {
                "videos/observation.images.top/from_timestamp": first / 30,
                "videos/observation.images.top/to_timestamp": (first + length) / 30,
            }
        episodes.append(entry)
        first += length
        steps += range(length)
        owner += [number] * length
    table |= {"timestamp": np.array(steps, np.float32) / np.float32(30), "frame_index": np.array(steps)}
    table |= {"episode_index": np.array(owner), "index": np.arange(total), "task_index": np.zeros(total, np.int64)}
    for name in ("timestamp", "frame_index", "episode_index", "index", "task_index"):
        features[name] = {"dtype": "float32" if name == "timestamp" else "int64", "shape": [1], "names": None}
    for name, (feature, column) in columns.items():
        features[name], table[name] = feature, column
    for directory in ("meta/episodes/chunk-000", "data/chunk-000", "videos/observation.images.top/chunk-000"):
        (root / directory).mkdir(parents=True)
    if video is not None:
        features["observation.images.top"] = {"dtype": "video", "shape": [48, 64, 3], "names": None}
        (root / "videos/observation.images.top/chunk-000/file-000.mp4").write_bytes(video.data)
    info = {
        "codebase_version": "v3.0",
        "robot_type": "so100",
        "fps": 30,
        "data_path": "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet",
        "video_path": "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4",
        "features": features,
    }
    (root / "meta/info.json").write_text(json.dumps(info))
    pq.write_table(pa.Table.from_pylist(episodes), root / "meta/episodes/chunk-000/file-000.parquet")
    pq.write_table(pa.table(table), root / "data/chunk-000/file-000.parquet")


def test_shared_video_is_cut_between_packets(tmp_path: Path) -> None:
    foreign(tmp_path / "ds", [20, 10, 10], VIDEO)
    report = import_lerobot(tmp_path / "ds", tmp_path / "out")
    outcomes = {outcome.field: outcome for outcome in report.changed}
    assert "encoded frames are unchanged" in outcomes["observation.images.top"].how
    video = tmp_path / "whole.mp4"
    video.write_bytes(VIDEO.data)
    rows, index = index_video(video, "cam")
    save = Episode("x", 1, extra={frames_block("signal/cam"): index})
    compose_wshard(save, tmp_path / "whole.wshard", {"signal/cam": rows})
    at = 0
    with open_wshard(tmp_path / "whole.wshard") as whole:
        all_frames = FrameReader(whole, "signal/cam")
        for path, length in zip(report.written, (20, 10, 10), strict=True):
            with open_wshard(path) as file:
                part = FrameReader(file, "signal/images.top")
                assert len(part) == length
                for number in range(length):
                    assert part.encoded(number) == all_frames.encoded(at + number)
                np.testing.assert_array_equal(part.frame(length - 1), VIDEO.decoded[at + length - 1][1])
                np.testing.assert_array_equal(file["action/action"].read()[:, 0], range(at, at + length))
            at += length
    episode = load_wshard(report.written[1])
    assert episode.attributes["lerobot"] == {"episode_index": 1, "tasks": ["lift"], "robot_type": "so100"}
    assert episode.timebase.hz == 30
    assert episode.actions["action"].attributes == {"names": ["x", "y"]}


def test_video_that_cannot_be_cut_is_decoded_and_reported(tmp_path: Path) -> None:
    foreign(tmp_path / "ds", [15, 25], VIDEO)
    report = import_lerobot(tmp_path / "ds", tmp_path / "out")
    (outcome,) = [outcome for outcome in report.changed if outcome.count == 1 and "decoded" in outcome.how]
    assert "does not begin with a key frame" in outcome.how
    pixels = load_wshard(report.written[1]).observations["images.top"].data
    assert all(np.array_equal(pixels[number], VIDEO.decoded[15 + number][1]) for number in range(25))


def test_dataset_round_trips(tmp_path: Path) -> None:
    images = [encode_test_image(np.full((4, 5, 3), number, np.uint8), "PNG") for number in range(6)]
    cells = pa.array([{"bytes": data, "path": "x.png"} for data in images])
    more = {
        "observation.state": (
            {"dtype": "float64", "shape": [3], "names": None},
            pa.array([[float(number)] * 3 for number in range(6)], pa.list_(pa.float64())),
        ),
        "next.reward": ({"dtype": "float32", "shape": [1], "names": None}, pa.array(np.arange(6, dtype=np.float32))),
        "note": ({"dtype": "string", "shape": [1], "names": None}, pa.array(["a"] * 6)),
        "observation.image": ({"dtype": "image", "shape": [4, 5, 3], "names": None}, cells),
    }
    foreign(tmp_path / "ds", [4, 2], None, **more)
    report = import_lerobot(tmp_path / "ds", tmp_path / "out")
    assert {outcome.field for outcome in report.lost} == {"note"}
    episode = load_wshard(report.written[0])
    assert episode.rewards is not None
    assert episode.rewards.tolist() == [0, 1, 2, 3]
    with open_wshard(report.written[1]) as file:
        reader = FrameReader(file, "signal/image")
        assert [reader.encoded(number) for number in range(2)] == images[4:]
    again = export_lerobot(report.written, tmp_path / "again")
    old = pq.read_table(tmp_path / "ds/data/chunk-000/file-000.parquet")
    new = pq.read_table(tmp_path / "again/data/chunk-000/file-000.parquet")
    assert again.is_lossless
    assert [cell["bytes"] for cell in new["observation.image"].to_pylist()] == images
    third = import_lerobot(tmp_path / "again", tmp_path / "third")
    for one, two in zip(report.written, third.written, strict=True):
        check_return(list_outcomes(again), one, two)
    for name in ("action", "observation.state", "next.reward", "timestamp", "frame_index", "index", "episode_index"):
        assert new[name].to_pylist() == old[name].to_pylist(), name
    info = json.loads((tmp_path / "again/meta/info.json").read_text())
    assert info["robot_type"] == "so100"


NAMES: list[Any] = [None, ["x", "y"], {"motors": ["x", "y"]}, [], ["é", 1]]


@pytest.mark.parametrize("names", NAMES, ids=str)
def test_names_of_features_round_trip(names: Any, tmp_path: Path) -> None:
    """Names of motors were once lost, while the report said that everything was kept."""
    images = pa.array([{"bytes": encode_test_image(np.zeros((4, 5, 3), np.uint8), "PNG"), "path": "x"}] * 6)
    more = {
        "observation.state": (
            {"dtype": "float64", "shape": [2], "names": names},
            pa.array([[0.0, 1.0]] * 6, pa.list_(pa.float64())),
        ),
        "next.reward": ({"dtype": "float32", "shape": [1], "names": names}, pa.array(np.arange(6, dtype=np.float32))),
        "observation.image": ({"dtype": "image", "shape": [4, 5, 3], "names": names or ["h", "w", "c"]}, images),
    }
    foreign(tmp_path / "ds", [4, 2], None, **more)
    report = import_lerobot(tmp_path / "ds", tmp_path / "out")
    assert not report.lost
    again = export_lerobot(report.written, tmp_path / "again")
    assert again.is_lossless
    infos = [json.loads((tmp_path / name / "meta/info.json").read_text())["features"] for name in ("ds", "again")]
    for name, feature in infos[0].items():
        assert infos[1][name]["names"] == feature["names"], name
    third = import_lerobot(tmp_path / "again", tmp_path / "third")
    for one, two in zip(report.written, third.written, strict=True):
        check_return(list_outcomes(again), one, two)


def test_members_of_features_that_an_episode_cannot_hold_are_reported(tmp_path: Path) -> None:
    feature = {"dtype": "float32", "shape": [1], "names": None, "info": {"unit": "m"}}
    foreign(tmp_path / "ds", [3], None, **{"observation.height": (feature, pa.array(np.zeros(3, np.float32)))})
    report = import_lerobot(tmp_path / "ds", tmp_path / "out")
    assert {outcome.field for outcome in report.lost} == {"meta/info.json: info of observation.height"}


@pytest.mark.parametrize(
    ("others", "shape", "dtype", "expected"),
    [
        ([], (3,), np.float32, "observation.state"),
        ([], (4, 5, 3), np.uint8, "observation.image"),
        (["state"], (3,), np.float32, "observation"),
        (["image"], (4, 5, 3), np.uint8, "observation"),
    ],
)
def test_observation_of_gymnasium_has_the_name_that_policies_expect(
    others: list[str], shape: tuple[int, ...], dtype: Any, expected: str, tmp_path: Path
) -> None:
    """It was once called `observation.observation`, which no policy reads."""
    channels = {name: Channel(name, np.zeros((2, *shape), dtype)) for name in ["observation", *others]}
    episode = Episode("ep", 2, timebase=Timebase("ticks", 30.0), observations=channels)
    source = saved(episode, tmp_path)
    report = export_lerobot([source], tmp_path / "ds")
    features = json.loads((tmp_path / "ds/meta/info.json").read_text())["features"]
    assert expected in features
    assert "observation.observation" not in features
    back = import_lerobot(tmp_path / "ds", tmp_path / "back")
    check_return(list_outcomes(report), source, back.written[0])
    assert set(load_wshard(back.written[0]).observations) == set(channels)


def test_paths_outside_of_the_dataset_are_refused(tmp_path: Path) -> None:
    foreign(tmp_path / "secret", [2], None)
    (tmp_path / "secret/data/chunk-000/file-000.parquet").rename(tmp_path / "secret.parquet")
    for template in (
        "../secret.parquet",
        str(tmp_path / "secret.parquet"),
        "/etc/passwd",
        "{chunk_index.__class__}",
        "data/none-{file_index:03d}",
    ):
        root = tmp_path / f"d{len(list(tmp_path.iterdir()))}"
        foreign(root, [2], None)
        info = json.loads((root / "meta/info.json").read_text())
        (root / "meta/info.json").write_text(json.dumps({**info, "data_path": template}))
        with pytest.raises(InvalidSourceError):
            import_lerobot(root, tmp_path / "out")
    root = tmp_path / "old"
    foreign(root, [2], None)
    info = json.loads((root / "meta/info.json").read_text())
    (root / "meta/info.json").write_text(json.dumps({**info, "codebase_version": "v2.1"}))
    with pytest.raises(InvalidSourceError, match=r"v2\.1"):
        import_lerobot(root, tmp_path / "out")


def test_incompatible_episodes_are_refused(tmp_path: Path) -> None:
    one = Episode("a", 2, timebase=Timebase("ticks", 30.0), observations={"x": Channel("x", np.zeros((2, 3)))})
    other = replace(one, observations={"x": Channel("x", np.zeros((2, 4)))})
    slow = replace(one, timebase=Timebase("ticks", 10.0))
    first = saved(one, tmp_path, name="one")
    for odd, error in ((other, SchemaMismatchError), (slow, SchemaMismatchError), (Episode("e", 0), BadInputError)):
        with pytest.raises(error):
            export_lerobot([first, saved(odd, tmp_path, name="odd")], tmp_path / "ds")
    with pytest.raises(BadInputError, match="rate"):
        export_lerobot([saved(Episode("e", 1), tmp_path, name="odd")], tmp_path / "ds")
    with pytest.raises(BadInputError, match="no episodes"):
        export_lerobot([], tmp_path / "ds")
    assert not (tmp_path / "ds").exists()


@pytest.mark.parametrize("shape", [(), (1,), (2,)])
def test_endings_in_bf16_come_back_as_float32(tmp_path: Path, shape: tuple[int, ...]) -> None:
    bits = np.arange(3 * int(np.prod(shape)), dtype=np.uint16).reshape(3, *shape) << 8
    spec = ChannelSpec("done", DType.BF16, shape, "done")
    episode = Episode("ep", 3, terminations=bits, origin=Origin(series={"done": spec}))
    export_lerobot([saved(episode, tmp_path)], tmp_path / "ds", fps=10)
    (back,) = import_lerobot(tmp_path / "ds", tmp_path / "back").written
    found = load_wshard(back).terminations
    assert found is not None
    np.testing.assert_array_equal(found, (bits.astype(np.uint32) << 16).view(np.float32), strict=True)
