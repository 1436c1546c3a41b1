"""Generated episodes in the formats of all arms, kept under `.data`.

An episode has a camera of 84×84 bytes and two channels of seven floats. The camera is `rendered`, as in a simulator,
or `noisy`, as from a sensor: a still scene, moving rectangles, and noise in the low bits.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import warpdata as wd
from benchmarks.harness.data import make_once, scratch
from warpdata import Settings
from warpdata.primitives.hashing import blob_key
from warpdata.wshard import Channel, Episode, Timebase, save_wshard

__all__ = [
    "CHANNELS",
    "CHUNK_STEPS",
    "LEVEL",
    "SIDE",
    "Recordings",
    "npy_path",
    "open_episodes",
    "publish_files",
    "to_episode",
]

SIDE = 84
CHUNK_STEPS = 16
LEVEL = 3
CHANNELS = ("rgb", "joint", "ctrl")
_JOINTS = 7
_RECTANGLES = 4
_EPISODES = "demos"
Arrays = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Recordings:
    """Episodes of equal length. Each format is a directory, written on the first use."""

    episodes: int
    steps: int
    camera: str = "rendered"

    def arrays(self, number: int) -> Arrays:
        rng = np.random.default_rng(number)
        floats = rng.normal(size=(2, self.steps, _JOINTS)).cumsum(axis=1).astype(np.float32)
        return {"rgb": self._video(rng), "joint": floats[0], "ctrl": floats[1]}

    def all(self) -> Iterator[tuple[int, Arrays]]:
        for number in range(self.episodes):
            yield number, self.arrays(number)

    def directory(self, kind: str, make: Callable[[Recordings, Path], None]) -> Path:
        name = f"episodes-{self.episodes}x{self.steps}-{self.camera}-{kind}"
        return make_once(name, lambda directory: make(self, directory))

    def memmaps(self) -> Path:
        """Return a directory with a `.npy` file for each channel of each episode."""
        return self.directory("npy", _write_npy)

    def published(self, compression: str) -> wd.Episodes:
        """Open the published episodes; `compression` is `none`, or `zstd` in time chunks."""
        return open_episodes(self._store(compression))

    def paths(self, compression: str) -> list[Path]:
        """Return the files of the published episodes."""
        store = self._store(compression)
        reader = wd.connect(store.as_uri(), _settings(store)).reader
        found = [reader.local_path(blob_key(episode.hash)) for episode in self.published(compression)]
        return [path for path in found if path is not None]

    def _store(self, compression: str) -> Path:
        return self.directory(f"store-{compression}", lambda _, directory: _publish(self, directory, compression))

    def _video(self, rng: np.random.Generator) -> Any:
        """Return frames of a still scene in which rectangles bounce."""
        coarse = rng.integers(0, 200, (SIDE // 12 + 1, SIDE // 12 + 1)).astype(np.float64)
        scene = np.kron(coarse, np.ones((12, 12)))[:SIDE, :SIDE] + np.linspace(0, 40, SIDE)
        video = np.repeat(scene.astype(np.uint8)[None], self.steps, axis=0)
        begin, speed = rng.uniform(0, SIDE, (_RECTANGLES, 2)), rng.uniform(-2, 2, (_RECTANGLES, 2))
        extent = SIDE - 12
        for number in range(_RECTANGLES):
            path = np.abs((begin[number] + np.arange(self.steps)[:, None] * speed[number]) % (2 * extent) - extent)
            for step, (y, x) in enumerate(path.astype(int)):
                video[step, y : y + 10, x : x + 8] = 60 * number + 30
        if self.camera == "noisy":
            video += rng.integers(0, 4, video.shape, np.uint8)
        return video


def open_episodes(store: Path) -> wd.Episodes:
    return wd.dataset("bench/episodes", store=store.as_uri(), settings=_settings(store)).episodes(_EPISODES)


@functools.cache
def _settings(store: Path) -> Settings:
    return Settings(store_url=store.as_uri(), cache_dir=scratch("episodes-cache"))


def publish_files(files: Path, store: Path) -> None:
    """Publish a file or a directory of files to a store in a directory."""
    store.mkdir(exist_ok=True)
    builder = wd.DatasetBuilder("bench/episodes", store.as_uri(), settings=_settings(store))
    builder.add_episodes(_EPISODES, files).publish()


def to_episode(name: str, arrays: Arrays, actions: tuple[str, ...] = ("ctrl",)) -> Episode:
    length = len(next(iter(arrays.values())))
    channels = {key: Channel(key, array) for key, array in arrays.items()}
    return Episode(
        name,
        length,
        "Bench-v1",
        Timebase("ticks", 30.0),
        observations={key: channel for key, channel in channels.items() if key not in actions},
        actions={key: channel for key, channel in channels.items() if key in actions},
        metadata={"success": len(name) % 2 == 0},
    )


def npy_path(directory: Path, number: int, channel: str) -> Path:
    return directory / f"{number:04d}-{channel}.npy"


def _publish(recordings: Recordings, directory: Path, compression: str) -> None:
    files = scratch("episodes-files")
    codec = ("zstd", LEVEL) if compression == "zstd" else "none"
    for number, arrays in recordings.all():
        path = files / f"{number:04d}.wshard"
        save_wshard(to_episode(path.stem, arrays), path, compression=codec, time_chunk_steps=CHUNK_STEPS)
    publish_files(files, directory)
    scratch("episodes-files")


def _write_npy(recordings: Recordings, directory: Path) -> None:
    for number, arrays in recordings.all():
        for name, array in arrays.items():
            np.save(npy_path(directory, number, name), array)
