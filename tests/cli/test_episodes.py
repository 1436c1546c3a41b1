"""If this fails, a recorded episode cannot be listed, verified or recovered from the command line."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import warpdata as wd
from tests.cli.scenes import ask, run
from tests.kinds.artifacts.media import Scene, encode_test_image
from tests.kinds.episodes.filmed import Filmed
from tests.kinds.episodes.scenes import make_episode, save_all
from warpdata.primitives.hashing import blob_key
from warpdata.wshard import (
    Channel,
    ChunkedEpisodeWriter,
    ChunkPlace,
    Episode,
    WShardStreamWriter,
    identity,
    save_wshard,
)


@pytest.fixture
def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    monkeypatch.chdir(tmp_path)
    paths = save_all(tmp_path / "recordings", [12, 30, 7])
    published = run("publish", "acme/robot", "--episodes", "demos=recordings/*.wshard", "-q")
    assert published.exit_code == 0, published.stderr
    return paths


def test_publish_episodes(recorded: list[Path]) -> None:
    plan = ask("publish", "acme/robot", "--episodes", "demos=recordings", "--dry-run")
    assert plan["episodes"] == {"demos": 3}
    assert plan["uploaded_files"] == 0
    both = ask("publish", "acme/two", *(f"--episodes=demos={path}" for path in recorded[:2]))
    assert both["uploaded_files"] == 1, "only the index is new"
    (entry,) = ask("info", "acme/two")["episodes"]
    assert (entry["name"], entry["episodes"], entry["steps"]) == ("demos", 2, 42)
    assert "2 episodes" in run("info", "acme/two").stdout
    assert "42 steps" in run("inspect", "acme/two").stdout
    assert ask("warm", "acme/two", "--episodes", "demos")["blobs"] == 3
    refused = run("publish", "acme/two", "--episodes", "demos=recordings", "--append")
    assert refused.exit_code == 2


def test_ls_of_dataset_equals_ls_of_files(recorded: list[Path]) -> None:
    stored, files = ask("episodes", "ls", "acme/robot"), ask("episodes", "ls", "recordings")
    shared = ("id", "env_id", "length", "timebase", "tick_hz", "channels", "byte_size")
    assert [[row[key] for key in shared] for row in stored["episodes"]] == [
        [row[key] for key in shared] for row in files["episodes"]
    ]
    assert [Path(row["path"]).name for row in files["episodes"]] == [path.name for path in recorded]
    assert [row["identity"] for row in stored["episodes"]] == [identity(path) for path in recorded]
    kept = ask("episodes", "ls", "acme/robot", "--filter", "env_id = 'Lift-v1' AND length > 10", "--limit", "5")
    assert [row["id"] for row in kept["episodes"]] == ["ep_000"]
    shown = run("episodes", "ls", "acme/robot", "--episodes", "demos").stdout
    assert [line.split()[0] for line in shown.splitlines()[2:]] == ["ep_000", "ep_001", "ep_002"]
    assert run("episodes", "ls", "recordings", "--filter", "length > 1").exit_code == 5
    assert run("episodes", "ls", "acme/robot", "acme/robot").exit_code == 5
    assert run("episodes", "ls", "acme/robot", "--episodes", "demo").exit_code == 3
    assert run("episodes", "ls", "nothing.wshard").exit_code == 3
    assert "no episodes" in run("episodes", "ls", "acme/robot", "--filter", "length > 99").stderr


def test_show_channels_rates_and_lengths(recorded: list[Path]) -> None:
    by_id, by_number = ask("episodes", "show", "acme/robot", "ep_001"), ask("episodes", "show", "acme/robot", "1")
    of_file = ask("episodes", "show", str(recorded[1]))
    assert by_id == by_number
    assert by_id["blocks"] == of_file["blocks"]
    imu = next(block for block in by_id["blocks"] if block["name"] == "signal/imu")
    assert (imu["dtype"], imu["shape"], imu["rows"], imu["rate_hz"]) == ("f64", [2], 100, 100.0)
    text = run("episodes", "show", "acme/robot", "ep_001").stdout
    assert "signal/rgb" in text
    assert "100 Hz" in text
    assert run("episodes", "show", "acme/robot").exit_code == 5
    assert run("episodes", "show", str(recorded[0]), "ep_000").exit_code == 5
    assert run("episodes", "show", "acme/robot", "ep_9").exit_code == 3


def test_plot_has_frames_and_lines(recorded: list[Path], tmp_path: Path) -> None:
    from PIL import Image

    red = np.zeros((20, 32, 32, 3), np.uint8)
    red[..., 0] = 255
    depth = np.linspace(0, 5, 20 * 32 * 32, dtype=np.float32).reshape(20, 32, 32)
    for name, episode in {
        "colour": Episode("colour", 20, observations={"rgb": Channel("rgb", red)}),
        "depth": Episode("depth", 20, observations={"depth": Channel("depth", depth)}),
        "lines": Episode("lines", 20, rewards=np.full(20, np.nan, np.float32), terminations=np.ones(20, np.bool_)),
        "short": make_episode(1, 1),
        "empty": Episode("empty", 0),
    }.items():
        save_wshard(episode, tmp_path / f"{name}.wshard")
        done = run("episodes", "show", str(tmp_path / f"{name}.wshard"), "--png", str(tmp_path / f"{name}.png"))
        assert done.exit_code == 0, done.stderr
        plot = Image.open(io.BytesIO((tmp_path / f"{name}.png").read_bytes()))
        assert plot.width == 1000
    pixels = np.asarray(Image.open(tmp_path / "colour.png"))
    share = float((pixels == (255, 0, 0)).all(axis=2).mean())
    assert 0.2 < share < 0.9, "a strip of eight red frames"
    lines = np.asarray(Image.open(tmp_path / "lines.png"))
    assert ((lines == (31, 119, 180)).all(axis=2)).sum() > 500, "one line for terminations, none for NaN rewards"


def test_encoded_cameras_are_shown_as_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A camera is not a series of bytes: the plot shows its frames, and the table its resolution and rate."""
    from PIL import Image

    monkeypatch.chdir(tmp_path)
    red = [encode_test_image(np.full((48, 64, 3), (254, 0, 0), np.uint8), "PNG") for _ in range(20)]
    made = Filmed("ep", 20, tmp_path).add_images("red", red, [n * 50_000_000 for n in range(20)])
    path = made.add_video("top", Scene("libx264", "mp4", {"g": "8", "bf": "2"}, length=20)).save()
    assert run("publish", "acme/cameras", "--episodes", f"demos={path}", "-q").exit_code == 0
    for target in ([str(path)], ["acme/cameras", "ep"]):
        text = run("episodes", "show", *target).stdout
        rows = {line.split()[0]: line for line in text.splitlines() if line.startswith("signal/")}
        assert "camera h264 64×48" in rows["signal/top"]
        assert "30 fps" in rows["signal/top"]
        assert "camera png 64×48" in rows["signal/red"]
        assert "20 fps" in rows["signal/red"]
        blocks = {block["name"]: block for block in ask("episodes", "show", *target)["blocks"]}
        top = blocks["signal/top"]
        assert (top["encoding"], top["shape"], top["rows"], round(top["rate_hz"])) == ("h264", [48, 64, 3], 20, 30)
        assert blocks["signal/state"]["encoding"] is None
        done = run("episodes", "show", *target, "--png", "plot.png")
        assert done.exit_code == 0, done.stderr
        pixels = np.asarray(Image.open("plot.png"))
        assert (pixels == (254, 0, 0)).all(axis=2).sum() == 8 * 115 * 86, "a strip of eight red frames"
        corner = Image.fromarray(made.expected["top"][0]).resize((115, 86), Image.Resampling.NEAREST)
        assert _contains(pixels, np.asarray(corner)), "the first frame of the video"


def _contains(plot: Any, frame: Any) -> bool:
    """Return whether the left edge of the plot has this frame, at any height."""
    height, width = frame.shape[:2]
    tops = range(plot.shape[0] - height)
    return any(np.array_equal(plot[top : top + height, 16 : 16 + width], frame) for top in tops)


def test_cameras_of_chunks_are_shown_as_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    scene = Scene("libx264", "mp4", {"g": "8"}, length=20)
    chunks = [Filmed("long", 20, tmp_path, chunk=ChunkPlace(n, 2, 20 * n)).add_video("top", scene) for n in range(2)]
    assert all(chunk.save().exists() for chunk in chunks)
    assert run("publish", "acme/long", "--episodes", f"demos={tmp_path}/*.wshard", "-q").exit_code == 0
    shown = ask("episodes", "show", "acme/long", "long")
    (top,) = [block for block in shown["blocks"] if block["name"] == "signal/top"]
    assert (top["rows"], top["shape"], shown["apart"]) == (40, [48, 64, 3], [])
    assert run("episodes", "show", "acme/long", "long", "--png", "plot.png").exit_code == 0


def test_verify_finds_corrupt_episodes(recorded: list[Path]) -> None:
    good = ask("episodes", "verify", "acme/robot", "recordings")
    assert good["ok"]
    assert len(good["episodes"]) == 6
    corrupt = bytearray(recorded[1].read_bytes())
    corrupt[-3] ^= 1
    recorded[1].write_bytes(corrupt)
    found = run("episodes", "verify", "recordings")
    assert found.exit_code == 8
    assert "checksum" in found.stdout
    assert "1 of 3 episodes" in found.stderr
    session = wd.connect()
    key = blob_key(wd.dataset("acme/robot").episodes()[2].hash)
    session.writer.replace(key, session.writer.read(key).data[:-1] + b"\xff")
    document = json.loads(run("episodes", "verify", "acme/robot", "--json").stdout)
    assert [entry["problem"] is None for entry in document["episodes"]] == [True, True, False]


def test_chunked_episode_is_one_episode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    save_all(tmp_path / "rec", [5])
    writer = ChunkedEpisodeWriter(tmp_path / "rec", "long")
    red = np.full((8, 16, 16, 3), (255, 0, 0), np.uint8)
    for _ in range(3):
        video = Channel("video", np.zeros(9, np.uint8), attributes={"encoding": "h264"})
        writer.write_chunk(Episode("long", 8, observations={"rgb": Channel("rgb", red), "video": video}))
    writer.finalize_manifest()
    done = run("publish", "acme/robot", "--episodes", "demos=rec/*.wshard", "-q")
    assert done.exit_code == 0, done.stderr
    for target in ("acme/robot", "rec"):
        assert [(row["id"], row["length"]) for row in ask("episodes", "ls", target)["episodes"]] == [
            ("ep_000", 5),
            ("long", 24),
        ]
    stored = ask("episodes", "show", "acme/robot", "long")
    of_files = ask("episodes", "show", "rec/long_manifest.wshard")
    assert {**stored, "where": ""} == {**of_files, "where": ""}
    assert (stored["files"], stored["length"], stored["apart"]) == (3, 24, ["signal/video"])
    assert [(block["name"], block["rows"]) for block in stored["blocks"]] == [("signal/rgb", 24)]
    shown = run("episodes", "show", "acme/robot", "long", "--png", "long.png")
    assert "in 3 files" in shown.stdout
    assert "signal/video" in shown.stderr
    assert (tmp_path / "long.png").exists()
    good = ask("episodes", "verify", "acme/robot", "rec")
    assert good["ok"]
    names = [entry["identity"] for entry in good["episodes"]]
    assert names[:2] == names[2:]
    chunk = tmp_path / "rec" / "long_chunk_0001.wshard"
    data = chunk.read_bytes()
    chunk.write_bytes(data[:-1] + b"\xff")
    assert run("episodes", "verify", "rec").exit_code == 8
    chunk.unlink()
    missing = run("episodes", "verify", "rec")
    assert missing.exit_code == 8
    assert "chunk 1 of 'long' is missing" in missing.stdout
    manifest = tmp_path / "rec" / "long_manifest.wshard"
    manifest.write_bytes(manifest.read_bytes()[:-1])
    assert run("episodes", "verify", "rec").exit_code == 8
    session = wd.connect()
    key = blob_key(wd.dataset("acme/robot").episodes()["long"].chunks[2].hash)
    session.writer.replace(key, session.writer.read(key).data[:-1] + b"\xff")
    document = json.loads(run("episodes", "verify", "acme/robot", "--json").stdout)
    assert [entry["problem"] is None for entry in document["episodes"]] == [True, False]


def test_interrupted_recording_is_recovered_and_published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with WShardStreamWriter("run.wshard", "run", [{"id": "x", "dtype": "f32", "shape": [2]}], flush_steps=4) as writer:
        writer.begin_episode()
        for step in range(10):
            writer.write_timestep({"x": np.full(2, step, np.float32)})
    refused = run("publish", "acme/robot", "--episodes", "demos=run.wshard.partial")
    assert refused.exit_code == 5
    (hint,) = [line for line in refused.stderr.splitlines() if line.startswith("hint:")]
    command = hint.split("`")[1].split()[1:]
    done = run(*command, "--remove", "--json")
    assert done.exit_code == 0, done.stderr
    report = json.loads(done.stdout)
    assert (report["episode_id"], report["is_complete"]) == ("run", False)
    assert not Path("run.wshard.partial").exists()
    assert run("publish", "acme/robot", "--episodes", "demos=run.wshard").exit_code == 0
    assert wd.dataset("acme/robot").episodes()["run"].length == report["step_count"]
    assert run("episodes", "recover", "other.wshard.partial").exit_code == 3
