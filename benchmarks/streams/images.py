"""Generated training images: JPEGs of about 50 kB, each with a label and a score.

Smooth colour, a few soft edges and grain at several scales make decoding as expensive as for photographs. Labels
ascend with the image number, so the data is sorted by class.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.harness.data import make_once
from warpdata.primitives.parallel import usable_cores

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["CLASS_COUNT", "ImageFiles", "make_images"]

CLASS_COUNT = 100
_SIDE = 296
_QUALITY = 88
_IMAGES_PER_TASK = 250


@dataclass(frozen=True, slots=True)
class ImageFiles:
    """Files such as `00000042.jpg`, numbered from 0."""

    directory: Path
    count: int

    @property
    def paths(self) -> list[Path]:
        return [self.directory / f"{number:08d}.jpg" for number in range(self.count)]

    @property
    def size_bytes(self) -> int:
        return sum(path.stat().st_size for path in self.paths)

    def label(self, number: int) -> int:
        return number * CLASS_COUNT // self.count

    def score(self, number: int) -> float:
        """Return a value in [0, 1) that is unrelated to the position, so that a filter keeps scattered samples."""
        return number * 2654435761 % 2**32 / 2**32


def make_images(count: int, first_seed: int = 0) -> ImageFiles:
    """Return images numbered from 0; another `first_seed` draws other images."""

    def make(directory: Path) -> None:
        starts = range(0, count, _IMAGES_PER_TASK)
        tasks = [(directory, first_seed, start, min(start + _IMAGES_PER_TASK, count)) for start in starts]
        with ProcessPoolExecutor(usable_cores()) as pool:
            list(pool.map(_draw_range, *zip(*tasks, strict=True)))

    return ImageFiles(make_once(f"images-{count}-{first_seed}", make), count)


def _draw_range(directory: Path, first_seed: int, start: int, end: int) -> None:
    import numpy as np
    from PIL import Image

    grain = _grain(np.random.default_rng(7))
    for number in range(start, end):
        pixels = _draw(np.random.default_rng(first_seed + number), grain)
        content = io.BytesIO()
        Image.fromarray(pixels).save(content, "JPEG", quality=_QUALITY)
        (directory / f"{number:08d}.jpg").write_bytes(content.getvalue())


def _grain(rng: np.random.Generator) -> Sequence[NDArray[np.float32]]:
    """Return noise at several scales, larger than an image, to crop from."""
    import numpy as np

    layers = []
    for scale in (1, 2, 4, 16):
        coarse = rng.normal(0, 1, (2 * _SIDE // scale + 1, 2 * _SIDE // scale + 1, 3)).astype(np.float32)
        layers.append(coarse.repeat(scale, axis=0).repeat(scale, axis=1)[: 2 * _SIDE, : 2 * _SIDE])
    return layers


def _draw(rng: np.random.Generator, grain: Sequence[NDArray[np.float32]]) -> NDArray[np.uint8]:
    import numpy as np

    ramp = np.linspace(-1, 1, _SIDE, dtype=np.float32)
    colour = rng.uniform(60, 190, 3).astype(np.float32)
    image = colour + rng.uniform(-50, 50, 3).astype(np.float32) * ramp[:, None, None]
    image = image + rng.uniform(-50, 50, 3).astype(np.float32) * ramp[None, :, None]
    for _ in range(3):
        y, x, r = rng.uniform(-0.8, 0.8), rng.uniform(-0.8, 0.8), rng.uniform(0.1, 0.6)
        distance = (ramp[:, None] - y) ** 2 + (ramp[None, :] - x) ** 2 - r * r
        disc = 1 / (1 + np.exp(np.clip(40 * distance, -30, 30)))
        image = image + disc[:, :, None].astype(np.float32) * rng.uniform(-80, 80, 3).astype(np.float32)
    for layer, strength in zip(grain, (22, 14, 9, 8), strict=True):
        top, left = rng.integers(0, _SIDE, 2)
        image = image + strength * layer[top : top + _SIDE, left : left + _SIDE]
    pixels: NDArray[np.uint8] = np.clip(image, 0, 255).astype(np.uint8)
    return pixels
