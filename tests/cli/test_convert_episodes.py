"""If this fails, `warp episodes convert` takes a path for something it is not, or hides what was lost."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.cli.scenes import run
from warpdata.cli.commands.convert_episodes import _FORMATS
from warpdata.conversion import FORMATS
from warpdata.wshard import Channel, Episode, Timebase, load_wshard, save_wshard


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "episodes").mkdir()
    for number in range(2):
        episode = Episode(
            f"ep{number}",
            3,
            "Lift",
            Timebase("ticks", 10.0),
            observations={"state": Channel("state", np.full((3, 2), number, np.float32))},
            actions={"ctrl": Channel("ctrl", np.ones((3, 1), np.float32))},
            metadata={"who": "Ada"},
        )
        save_wshard(episode, tmp_path / "episodes" / f"ep{number}.wshard")
    return tmp_path


def test_the_formats_are_those_of_the_library() -> None:
    assert _FORMATS == FORMATS


@pytest.mark.parametrize(
    ("target", "options", "back"),
    [
        ("all.hdf5", (), True),
        ("dataset", ("--to", "lerobot"), True),
        ("npz", ("--to", "npz"), True),
        ("m", ("--to", "mcap"), False),
    ],
)
def test_there_and_back(folder: Path, target: str, options: tuple[str, ...], back: bool) -> None:
    done = run("episodes", "convert", str(folder / "episodes"), str(folder / target), *options, "--json")
    assert done.exit_code == 0, done.stderr
    document = json.loads(done.stdout)
    assert (document["from"], document["episodes"], document["steps"]) == ("wshard", 2, 6)
    assert all(Path(path).exists() for path in document["written"])
    if back:
        done = run("episodes", "convert", str(folder / target), str(folder / "back"))
        assert done.exit_code == 0, done.stderr
        found = [load_wshard(path) for path in sorted((folder / "back").iterdir())]
        assert [int(episode.observations["state"].data[0, 0]) for episode in found] == [0, 1]


def test_the_report_is_printed(folder: Path) -> None:
    done = run("episodes", "convert", str(folder / "episodes" / "ep0.wshard"), str(folder / "ep0.npz"))
    assert done.exit_code == 0
    assert "lost:\n" in done.stdout
    assert "  meta/episode.metadata: an NPZ has no metadata" in done.stdout
    assert "  signal/state" in done.stdout
    assert "lost" in done.stderr


def test_what_is_not_clear_is_asked_for(folder: Path) -> None:
    def told(*words: str) -> str:
        done = run("episodes", "convert", *words)
        assert done.exit_code != 0
        return done.stderr

    assert "format of" in told(str(folder / "episodes"), str(folder / "somewhere"))
    assert "format of" in told(str(folder / "thing.xyz"), str(folder / "somewhere"))
    assert "does not exist" in told(str(folder / "gone.wshard"), str(folder / "a.npz"))
    assert "cannot be converted" in told(str(folder / "a.npz"), str(folder / "a.mcap"))
    (folder / "a.npz").write_bytes(b"")
    assert "already exists" in told(str(folder / "episodes" / "ep0.wshard"), str(folder / "a.npz"))
