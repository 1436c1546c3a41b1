"""If this fails, an imported LeRobot dataset cannot be trained on, or training on S3 downloads whole videos."""

from __future__ import annotations

import io
import json
import multiprocessing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest

import warpdata as wd
from tests.formats.convert.test_lerobot import VIDEO, foreign
from tests.kinds.artifacts.media import Scene
from tests.kinds.episodes.filmed import Filmed, jpegs
from tests.kinds.episodes.test_torch import places
from warpdata.conversion import import_lerobot
from warpdata.errors import CorruptError
from warpdata.kinds.episodes import Episodes
from warpdata.kinds.episodes.encoded_frames import FRAME_CACHE
from warpdata.testing import S3Endpoint

torch = pytest.importorskip("torch", reason="the extra warpdata[torch] is not installed")

KEYWORDS: dict[str, Any] = {
    "keys": {"images.top": (-1, 1), "action": (0, 4)},
    "batch_size": 6,
    "shuffle": True,
    "seed": 7,
}


def imported(directory: Path) -> list[Path]:
    """Import a dataset as LeRobot writes it: one video for three episodes, one of which is stored decoded."""
    foreign(directory / "ds", [20, 5, 15], VIDEO)
    return list(import_lerobot(directory / "ds", directory / "out").written)


def check_frames(batch: Any) -> None:
    """The action of a step of this dataset is its number over all episodes, and the number of its frame."""
    for at, step in enumerate(batch["step"].tolist()):
        frame = int(batch["action"][at, 0, 0])
        np.testing.assert_array_equal(np.asarray(batch["images.top"][at, 1]), VIDEO.decoded[frame][1])
        before = frame - 1 if step else frame
        np.testing.assert_array_equal(np.asarray(batch["images.top"][at, 0]), VIDEO.decoded[before][1])


@pytest.fixture(params=["local", "s3"])
def episodes(
    request: pytest.FixtureRequest, tmp_path: Path, s3_url: str, s3_server: S3Endpoint
) -> Callable[[], Episodes] | Episodes:
    is_local = request.param == "local"
    store = (tmp_path / "store").as_uri() if is_local else s3_url
    settings = None if is_local else s3_server.settings(cache_dir=tmp_path / "cache")
    wd.DatasetBuilder("a/lerobot", store, settings=settings).add_episodes("demos", imported(tmp_path)).publish()
    return wd.dataset("a/lerobot", store=store, settings=settings).episodes()


def test_an_imported_lerobot_dataset_trains(episodes: Episodes) -> None:
    batch = next(iter(episodes.windows(keys={"images.top": (0, 1)}, batch_size=4)))
    assert batch["images.top"].shape == (4, 1, 48, 64, 3)
    whole = list(episodes.windows(**KEYWORDS).epoch(1))
    loader = episodes.to_torch(**KEYWORDS, num_workers=2)
    iterator = loader.epoch(1)
    made = [next(iterator) for _ in range(3)]
    token = json.loads(json.dumps(loader.state_dict()))
    del iterator
    stream = episodes.windows(**KEYWORDS)
    stream.load_state_dict(token)
    made += list(stream)
    assert places(made) == places(whole)
    for mine, other in zip(made, whole, strict=True):
        check_frames(mine)
        assert np.array_equal(np.asarray(mine["images.top"]), other["images.top"])
    assert sum(len(batch["step"]) for batch in made) == 40
    assert not multiprocessing.active_children()


def noise_video(frame_count: int, group: int, size: tuple[int, int] = (120, 160)) -> bytes:
    """Encode noise, so that GOPs are large."""
    out, rng = io.BytesIO(), np.random.default_rng(0)
    with av.open(out, "w", format="mp4") as container:
        stream: Any = container.add_stream("libx264", rate=30)
        stream.height, stream.width, stream.pix_fmt = *size, "yuv420p"
        stream.codec_context.options = {"g": str(group), "preset": "ultrafast", "crf": "18", "sc_threshold": "0"}
        for _ in range(frame_count):
            pixels = rng.integers(0, 255, (*size, 3), dtype=np.uint8)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")))
        container.mux(stream.encode(None))
    return out.getvalue()


def test_one_window_on_s3_fetches_one_gop(s3_url: str, s3_server: S3Endpoint, tmp_path: Path) -> None:
    video = noise_video(120, 10)
    scene = Scene("noise", "mp4", length=120)
    scene.__dict__["data"] = video  # in place of the scene's own encoding
    made = Filmed("e", 120, tmp_path).add_video("cam", scene)
    settings = s3_server.settings(cache_dir=tmp_path / "cache")
    wd.DatasetBuilder("a/r", s3_url, settings=settings).add_episodes("demos", [made.save()]).publish()
    dataset = wd.dataset("a/r", store=s3_url, settings=settings, mode="remote")
    episode, camera = dataset.episodes()[0], dataset.episodes()[0]["cam"]
    assert len(camera) == 120  # type: ignore[arg-type]
    FRAME_CACHE.clear()
    before = dataset.io_stats
    np.testing.assert_array_equal(camera.window(64, 68), made.expected["cam"][64:68])
    fetched = dataset.io_stats.since(before)
    index = camera.parts[0].index  # type: ignore[union-attr]
    group = sum(end - start for start, end in (index.extent(frame) for frame in range(60, 70)))
    assert len(video) > 10 * group, "the video must be much larger than what is fetched"
    assert fetched.bytes_fetched == group
    assert fetched.requests == 1
    # Windows of the same group are then served from memory.
    before = dataset.io_stats
    camera.window(60, 70)
    assert dataset.io_stats.since(before).requests == 0
    assert episode.size_bytes > len(video)


def test_an_epoch_on_s3_fetches_each_group_once(s3_url: str, s3_server: S3Endpoint, tmp_path: Path) -> None:
    settings = s3_server.settings(cache_dir=tmp_path / "cache")
    made = [Filmed(f"e{n}", 30, tmp_path).add_images("cam", jpegs(30, n, (240, 320))) for n in range(3)]
    wd.DatasetBuilder("a/r", s3_url, settings=settings).add_episodes("demos", [each.save() for each in made]).publish()
    dataset = wd.dataset("a/r", store=s3_url, settings=settings, mode="remote")
    FRAME_CACHE.clear()
    before = dataset.io_stats
    stream = dataset.episodes().windows(keys={"cam": (-3, 1), "ctrl": (0, 1)}, batch_size=15, shuffle=True)
    assert sum(len(batch["step"]) for batch in stream.epoch(0)) == 90
    stored = sum(each.size_bytes for each in dataset.episodes())
    # Two images that are close to each other share a request, with the bytes between them.
    assert dataset.io_stats.since(before).bytes_fetched < 3 * stored


def test_a_flipped_bit_in_the_store_names_the_camera(tmp_path: Path) -> None:
    made = Filmed("e", 40, tmp_path).add_video("cam", VIDEO)
    store = tmp_path / "store"
    wd.DatasetBuilder("a/r", store.as_uri()).add_episodes("demos", [made.save()]).publish()
    episode = wd.dataset("a/r", store=store.as_uri()).episodes()[0]
    (path,) = [path for path in store.rglob("*") if path.is_file() and path.stat().st_size == episode.size_bytes]
    data = bytearray(path.read_bytes())
    data[data.index(VIDEO.data) + len(VIDEO.data) // 2] ^= 1
    path.chmod(0o644)
    path.write_bytes(data)
    episodes = wd.dataset("a/r", store=store.as_uri()).episodes()
    with pytest.raises(CorruptError, match=r"channel 'cam' of episode 'e', from step .* fail their checksum"):
        list(episodes.windows(keys=["cam"], on_error="substitute").epoch(0))
