"""If this fails, LeRobot's library reads our datasets differently, or we read its datasets differently.

Runs only with `lerobot` installed, which needs a large environment of its own.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.kinds.artifacts.media import Scene
from warpdata.conversion import export_lerobot, import_lerobot
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

pytest.importorskip("lerobot")
pytestmark = pytest.mark.filterwarnings("ignore")
VIDEO = Scene("libx264", "mp4", {"g": "10", "bf": "0"})


def library(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return `LeRobotDataset`. Newer torchvision has no `VideoReader`, so one over PyAV replaces it."""
    io = importlib.import_module("torchvision.io")
    if not hasattr(io, "VideoReader"):
        monkeypatch.setattr(io, "VideoReader", _StandIn, raising=False)
        vision = importlib.import_module("torchvision")
        monkeypatch.setattr(vision, "set_video_backend", lambda name: None, raising=False)
    return importlib.import_module("lerobot.datasets.lerobot_dataset").LeRobotDataset


class _StandIn:
    def __init__(self, path: str, stream: str) -> None:
        av, torch = importlib.import_module("av"), importlib.import_module("torch")
        self.container = av.open(path)
        self._frames = (
            {"data": torch.from_numpy(frame.to_ndarray(format="rgb24")).permute(2, 0, 1), "pts": float(frame.time)}
            for frame in self.container.decode(video=0)
        )

    def seek(self, time: float, keyframes_only: bool = False) -> None:
        """Ignore the seek, because reading begins at the start anyway."""

    def __iter__(self) -> Any:
        return self._frames


def test_library_reads_our_dataset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "video.mp4").write_bytes(VIDEO.data)
    sources, made = [], []
    for number in range(3):
        chance = np.random.default_rng(number)
        rows, index = index_video(tmp_path / "video.mp4", "cam")
        episode = Episode(
            f"ep{number}",
            40,
            "Lift-v1",
            Timebase("ticks", 30.0),
            observations={
                "state": Channel("state", chance.standard_normal((40, 7)).astype(np.float32)),
                "rgb": Channel("rgb", chance.integers(0, 256, (40, 16, 12, 3), dtype=np.uint8)),
                "matrix": Channel("matrix", chance.standard_normal((40, 2, 3)).astype(np.float32)),
                "touch": Channel("touch", chance.random(40) < 0.5),
                "count": Channel("count", np.arange(40)),
            },
            actions={"ctrl": Channel("ctrl", chance.standard_normal((40, 7)).astype(np.float32))},
            rewards=chance.standard_normal(40).astype(np.float32),
            terminations=np.arange(40) == 39,
            metadata={"task": f"task {number % 2}"},
            extra={frames_block("signal/cam"): index},
        )
        sources.append(tmp_path / f"ep{number}.wshard")
        compose_wshard(episode, sources[-1], {"signal/cam": rows})
        made.append(episode)
    assert export_lerobot(sources, tmp_path / "ds").is_lossless
    dataset = library(monkeypatch)("local/ds", root=tmp_path / "ds", video_backend="pyav")
    assert (dataset.num_episodes, dataset.num_frames, dataset.fps) == (3, 120, 30)
    for at in (0, 39, 40, 77, 119):
        number, step = divmod(at, 40)
        item, episode = dataset[at], made[number]
        assert item["task"] == f"task {number % 2}"
        assert int(item["episode_index"]) == number
        assert episode.rewards is not None
        state, action = episode.observations["state"].data[step], episode.actions["ctrl"].data[step]
        np.testing.assert_array_equal(item["observation.state"].numpy(), state)
        np.testing.assert_array_equal(item["observation.matrix"].numpy(), episode.observations["matrix"].data[step])
        np.testing.assert_array_equal(item["action"].numpy(), action)
        assert float(item["next.reward"]) == episode.rewards[step]
        assert bool(item["next.done"]) == (step == 39)
        assert bool(item["observation.touch"]) == episode.observations["touch"].data[step]
        assert int(item["observation.count"]) == step
        pixels = (item["observation.rgb"].numpy() * 255).round().astype(np.uint8).transpose(1, 2, 0)
        np.testing.assert_array_equal(pixels, episode.observations["rgb"].data[step])
        frame = (item["observation.cam"].numpy() * 255).round().astype(np.uint8).transpose(1, 2, 0)
        np.testing.assert_array_equal(frame, VIDEO.decoded[step][1])
    np.testing.assert_allclose(
        dataset.meta.stats["action"]["mean"],
        np.concatenate([episode.actions["ctrl"].data for episode in made]).mean(axis=0),
        atol=1e-6,
    )


@pytest.mark.parametrize("use_videos", [True, False])
def test_we_read_the_dataset_of_the_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, use_videos: bool) -> None:
    features = {
        "observation.state": {"dtype": "float32", "shape": (3,), "names": ["a", "b", "c"]},
        "observation.images.top": {
            "dtype": "video" if use_videos else "image",
            "shape": (64, 96, 3),
            "names": ["height", "width", "channels"],
        },
        "action": {"dtype": "float32", "shape": (2,), "names": ["x", "y"]},
    }
    kind = library(monkeypatch)
    dataset = kind.create("local/made", fps=10, features=features, root=tmp_path / "ds", use_videos=use_videos)
    chance = np.random.default_rng(0)
    seen: list[list[dict[str, Any]]] = []
    for length in (5, 8):
        seen.append([])
        for _ in range(length):
            frame = {
                "observation.state": chance.standard_normal(3).astype(np.float32),
                "observation.images.top": np.full((64, 96, 3), chance.integers(0, 256), np.uint8),
                "action": chance.standard_normal(2).astype(np.float32),
            }
            seen[-1].append(frame)
            dataset.add_frame({**frame, "task": "stack"})
        dataset.save_episode()
    dataset.finalize()
    report = import_lerobot(tmp_path / "ds", tmp_path / "out")
    assert not {outcome.field for outcome in report.lost} - {"meta/stats.json", "meta/info.json: splits"}
    for path, frames in zip(report.written, seen, strict=True):
        episode = load_wshard(path)
        assert (episode.length, episode.timebase.hz) == (len(frames), 10)
        for step, frame in enumerate(frames):
            np.testing.assert_array_equal(episode.observations["state"].data[step], frame["observation.state"])
            np.testing.assert_array_equal(episode.actions["action"].data[step], frame["action"])
        with open_wshard(path) as file:
            reader = FrameReader(file, "signal/images.top")
            assert len(reader) == len(frames)
            for step, pixels in enumerate(reader.frames(0, len(frames))):
                wanted = frames[step]["observation.images.top"].astype(int)
                assert abs(pixels.astype(int) - wanted).max() <= (6 if use_videos else 0)
