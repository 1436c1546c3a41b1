"""Pictures to train on: JPEGs of about 50 kB that look a little like photographs, each with a label and a score.

Smooth colour, a few soft edges and grain at several scales, so that decoding costs what it costs for photographs.
Labels ascend with the numbers of the pictures: the data is sorted by class, which only matters to who looks at it.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.harness.data import made

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["CLASSES", "SIDE", "Pictures", "pictures"]

SIDE = 296
CLASSES = 100
_QUALITY = 88
_A_TASK = 250


@dataclass(frozen=True, slots=True)
class Pictures:
    """Files `00000042.jpg`, numbered from 0 in the order of their names."""

    folder: Path
    count: int

    @property
    def paths(self) -> list[Path]:
        return [self.folder / f"{number:08d}.jpg" for number in range(self.count)]

    @property
    def size_bytes(self) -> int:
        return sum(path.stat().st_size for path in self.paths)

    def label(self, number: int) -> int:
        return number * CLASSES // self.count

    def score(self, number: int) -> float:
        """Spread evenly over [0, 1), without any relation to the place: a filter on it keeps samples here and there."""
        return number * 2654435761 % 2**32 / 2**32


def pictures(count: int, first: int = 0) -> Pictures:
    """As many, numbered from 0; `first` makes others than those that begin at 0."""

    def make(folder: Path) -> None:
        tasks = [(folder, first, low, min(low + _A_TASK, count)) for low in range(0, count, _A_TASK)]
        with ProcessPoolExecutor(2) as pool:
            list(pool.map(_draw_some, *zip(*tasks, strict=True)))

    return Pictures(made(f"pictures-{count}-{first}", make), count)


def _draw_some(folder: Path, first: int, low: int, high: int) -> None:
    import numpy as np
    from PIL import Image

    grain = _grain(np.random.default_rng(7))
    for number in range(low, high):
        pixels = _draw(np.random.default_rng(first + number), grain)
        content = io.BytesIO()
        Image.fromarray(pixels).save(content, "JPEG", quality=_QUALITY)
        (folder / f"{number:08d}.jpg").write_bytes(content.getvalue())


def _grain(rng: np.random.Generator) -> Sequence[NDArray[np.float32]]:
    """Noise of several scales, larger than a picture, to cut pieces from."""
    import numpy as np

    layers = []
    for scale in (1, 2, 4, 16):
        coarse = rng.normal(0, 1, (2 * SIDE // scale + 1, 2 * SIDE // scale + 1, 3)).astype(np.float32)
        layers.append(coarse.repeat(scale, axis=0).repeat(scale, axis=1)[: 2 * SIDE, : 2 * SIDE])
    return layers


def _draw(rng: np.random.Generator, grain: Sequence[NDArray[np.float32]]) -> NDArray[np.uint8]:
    import numpy as np

    ramp = np.linspace(-1, 1, SIDE, dtype=np.float32)
    colour = rng.uniform(60, 190, 3).astype(np.float32)
    image = colour + rng.uniform(-50, 50, 3).astype(np.float32) * ramp[:, None, None]
    image = image + rng.uniform(-50, 50, 3).astype(np.float32) * ramp[None, :, None]
    for _ in range(3):
        y, x, r = rng.uniform(-0.8, 0.8), rng.uniform(-0.8, 0.8), rng.uniform(0.1, 0.6)
        distance = (ramp[:, None] - y) ** 2 + (ramp[None, :] - x) ** 2 - r * r
        disc = 1 / (1 + np.exp(np.clip(40 * distance, -30, 30)))
        image = image + disc[:, :, None].astype(np.float32) * rng.uniform(-80, 80, 3).astype(np.float32)
    for layer, strength in zip(grain, (22, 14, 9, 8), strict=True):
        top, left = rng.integers(0, SIDE, 2)
        image = image + strength * layer[top : top + SIDE, left : left + SIDE]
    pixels: NDArray[np.uint8] = np.clip(image, 0, 255).astype(np.uint8)
    return pixels
