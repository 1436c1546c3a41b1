"""If this fails, `warp episodes convert` mistakes the format of a path, or hides lost fields."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.cli.scenes import run
from warpdata.cli.commands.episodes import _FORMATS
from warpdata.conversion import FORMATS
from warpdata.wshard import Channel, Episode, Timebase, load_wshard, save_wshard


@pytest.fixture
def directory(tmp_path: Path) -> Path:
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


def test_formats_match_library() -> None:
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
def test_round_trip(directory: Path, target: str, options: tuple[str, ...], back: bool) -> None:
    done = run("episodes", "convert", str(directory / "episodes"), str(directory / target), *options, "--json")
    assert done.exit_code == 0, done.stderr
    document = json.loads(done.stdout)
    assert (document["from"], document["episodes"], document["steps"]) == ("wshard", 2, 6)
    assert all(Path(path).exists() for path in document["written"])
    if back:
        done = run("episodes", "convert", str(directory / target), str(directory / "back"))
        assert done.exit_code == 0, done.stderr
        found = [load_wshard(path) for path in sorted((directory / "back").iterdir())]
        assert [int(episode.observations["state"].data[0, 0]) for episode in found] == [0, 1]


def test_report_is_printed(directory: Path) -> None:
    done = run("episodes", "convert", str(directory / "episodes" / "ep0.wshard"), str(directory / "ep0.npz"))
    assert done.exit_code == 0
    assert "lost:\n" in done.stdout
    assert "  meta/episode.metadata: an NPZ has no metadata" in done.stdout
    assert "  signal/state" in done.stdout
    assert "lost" in done.stderr


def test_unknown_format_is_error(directory: Path) -> None:
    def error(*args: str) -> str:
        done = run("episodes", "convert", *args)
        assert done.exit_code != 0
        return done.stderr

    assert "format of" in error(str(directory / "episodes"), str(directory / "target"))
    assert "format of" in error(str(directory / "thing.xyz"), str(directory / "target"))
    assert "does not exist" in error(str(directory / "gone.wshard"), str(directory / "a.npz"))
    assert "cannot be converted" in error(str(directory / "a.npz"), str(directory / "a.mcap"))
    (directory / "a.npz").write_bytes(b"")
    assert "already exists" in error(str(directory / "episodes" / "ep0.wshard"), str(directory / "a.npz"))
