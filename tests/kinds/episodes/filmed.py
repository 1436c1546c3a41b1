"""Episodes with encoded cameras for the tests of this directory, and their frames decoded by another path.

`expected` is decoded by PyAV or Pillow from the first frame to the last, without any code of warpdata.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from tests.kinds.artifacts.media import Scene, encode_test_image
from warpdata.wshard import (
    Channel,
    ChunkPlace,
    Episode,
    RowSource,
    Timebase,
    compose_wshard,
    frames_block,
    index_images,
    index_video,
    save_wshard,
)

Array = np.ndarray[Any, Any]

HZ = 30.0
H264 = Scene("libx264", "mp4", {"g": "8", "bf": "2"})
SCENES = [
    H264,
    Scene("libx264", "mp4", {"g": "12", "bf": "3", "x264-params": "open-gop=1"}),
    Scene("libx264", "matroska", {"g": "2", "bf": "0"}),
    Scene("libsvtav1", "mp4", {"g": "5"}),
    Scene("ffv1", "matroska", {"g": "4"}),
]


@dataclass
class Filmed:
    """An episode under construction, and the frames that each camera should have."""

    id: str
    length: int
    directory: Path
    observations: dict[str, Channel] = field(default_factory=dict)
    rows: dict[str, RowSource] = field(default_factory=dict)
    extra: dict[str, Any] = field(default_factory=dict)
    expected: dict[str, Array] = field(default_factory=dict)
    timebase: Timebase = field(default_factory=lambda: Timebase("ticks", HZ))
    chunk: ChunkPlace | None = None
    compression: str = "none"
    time_chunk_steps: int = 0

    def add_video(self, name: str, scene: Scene, **attributes: Any) -> Filmed:
        path = self.directory / f"{self.id}-{self.chunk.index if self.chunk else 0}.{name}.{scene.container}"
        path.write_bytes(scene.data)
        rows, self.extra[frames_block(f"signal/{name}")] = index_video(path, name, is_verified=False)
        rows.attributes.update(attributes)  # type: ignore[attr-defined]
        self.rows[f"signal/{name}"] = rows
        self.expected[name] = np.stack([pixels for _, pixels in scene.decoded])
        return self

    def put_images(self, name: str, images: Sequence[bytes], times_ns: Sequence[int] | None = None) -> Filmed:
        """Add images that need not be valid."""
        times = range(len(images)) if times_ns is None else times_ns
        channel, self.extra[frames_block(f"signal/{name}")] = index_images(images, times, name)
        self.observations[name] = channel
        return self

    def add_images(self, name: str, images: Sequence[bytes], times_ns: Sequence[int] | None = None) -> Filmed:
        self.put_images(name, images, times_ns).expected[name] = np.stack(
            [np.asarray(Image.open(io.BytesIO(data)).convert("RGB")) for data in images]
        )
        return self

    def save(self) -> Path:
        rng = np.random.default_rng(self.length)
        path = self.directory / f"{self.id}-{self.chunk.index if self.chunk else 0}.wshard"
        episode = Episode(
            self.id,
            self.length,
            timebase=self.timebase,
            observations={"state": Channel("state", rng.random((self.length, 3), np.float32)), **self.observations},
            actions={"ctrl": Channel("ctrl", np.arange(self.length, dtype=np.float32)[:, None])},
            extra=self.extra,
            chunk=self.chunk,
        )
        if self.rows:
            compose_wshard(episode, path, self.rows)
        else:
            save_wshard(episode, path, compression=self.compression, time_chunk_steps=self.time_chunk_steps)
        return path


def jpegs(count: int, seed: int = 0, size: tuple[int, int] = (24, 32)) -> list[bytes]:
    rng = np.random.default_rng(seed)
    small = rng.integers(0, 255, (count, 3, 4, 3), dtype=np.uint8)
    scale = np.ones((size[0] // 3, size[1] // 4, 1), np.uint8)
    return [encode_test_image(np.kron(image, scale), "JPEG") for image in small]
