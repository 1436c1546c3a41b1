"""Small episodes for the tests of this directory, and a naive implementation of windows."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from warpdata.primitives.hashing import sha256_hex
from warpdata.session import Session
from warpdata.settings import load_settings
from warpdata.storage import Writer, open_store
from warpdata.wshard import Channel, Episode, Timebase, save_wshard

__all__ = ["FORMS", "KEYS", "make_episode", "memory_store", "naive_window", "open_session", "save_all"]

Array = np.ndarray[Any, Any]

FORMS: dict[str, dict[str, Any]] = {
    "plain": {},
    "sealed": {"seal": True},
    "zstd": {"compression": "zstd"},
    "lz4": {"compression": "lz4"},
    "chunks": {"compression": "zstd", "time_chunk_steps": 8},
    "mixed": {"per_block": {"signal/rgb": ("zstd", 3), "reward": ("lz4", None)}, "alignment": 0},
}
"""Options of `save_wshard` for all ways to store a block."""

KEYS = {"rgb": (-4, 0), "ctrl": (0, 6), "imu": (-2, 3), "reward": (-1, 1), "done": (0, 1), "time/timestamps_ns": (0, 2)}


def make_episode(number: int, length: int, *, timestamps: bool = False, rate: float = 30.0) -> Episode:
    """Make an episode with a camera, joints, actions, an IMU with its own rate, rewards and terminations."""
    rng = np.random.default_rng(number)
    times = np.cumsum(rng.integers(20_000_000, 40_000_000, length)).astype(np.int64)
    return Episode(
        f"ep_{number:03d}",
        length,
        "Lift-v1" if number % 2 == 0 else "Stack-v1",
        Timebase("timestamps_ns") if timestamps else Timebase("ticks", rate),
        observations={
            "rgb": Channel("rgb", rng.integers(0, 6, (length, 6, 5, 3), dtype=np.uint8)),
            "joint": Channel("joint", rng.integers(0, 9, (length, 7)).astype(np.float32)),
            "imu": Channel("imu", rng.random((max(1, length * 10 // 3), 2)), attributes={"sampling_rate_hz": 100.0}),
        },
        actions={"ctrl": Channel("ctrl", rng.random((length, 4), np.float32))},
        rewards=rng.random(length).astype(np.float32),
        terminations=np.arange(length) == length - 1,
        timestamps_ns=times,
        metadata={"success": number % 3 == 0, "operator": f"person {number % 2}", "tries": number, "notes": [1, 2]},
    )


def save_all(directory: Path, lengths: list[int], **options: Any) -> list[Path]:
    """Save an episode of each length, named in order."""
    directory.mkdir(parents=True, exist_ok=True)
    paths = [directory / f"{number:03d}.wshard" for number in range(len(lengths))]
    for number, (path, length) in enumerate(zip(paths, lengths, strict=True)):
        save_wshard(make_episode(number, length), path, **options)
    return paths


def naive_window(episode: Episode, name: str, span: tuple[int, int], step: int, pad: str | None) -> Array:
    """Look up each step of a window as the specification describes it."""
    arrays: dict[str, Array] = {
        **{key: channel.data for key, channel in episode.observations.items()},
        **{key: channel.data for key, channel in episode.actions.items()},
    }
    series = {"reward": episode.rewards, "done": episode.terminations, "time/timestamps_ns": episode.timestamps_ns}
    data = arrays[name] if name in arrays else series[name]
    assert data is not None
    channel = episode.observations.get(name)
    rate = channel.attributes.get("sampling_rate_hz") if channel else None
    out = []
    for at in range(step + span[0], step + span[1]):
        inside = 0 <= at < episode.length
        nearest = min(max(at, 0), episode.length - 1)
        if rate is not None:
            assert episode.timestamps_ns is not None
            seconds = (int(episode.timestamps_ns[nearest]) - int(episode.timestamps_ns[0])) / 1e9
            rows = [row for row in range(len(data)) if row / float(str(rate)) <= seconds + 1e-8]
            nearest = rows[-1]
        row = data[nearest]
        out.append(row if inside or pad == "edge" else np.zeros_like(row))
    return np.stack(out)


def open_session(store: Writer, seed: int = 0) -> Session:
    """Open a session with a fixed clock and without delays."""
    return Session(
        writer=store,
        reader=store,
        settings=load_settings(),
        clock=lambda: datetime(2026, 1, 1, tzinfo=UTC),
        sleep=lambda _: None,
        rng=random.Random(seed),
    )


def memory_store(name: str) -> Writer:
    """Open an empty store for each name. It has no local paths, so everything is read by range, as from a server."""
    return open_store(f"memory://{sha256_hex(name.encode())}", load_settings())
