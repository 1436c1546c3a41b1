"""Data and model of `warp demo`: the handwritten digits of scikit-learn and a linear classifier."""

from __future__ import annotations

import struct
import time
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from warpdata.primitives.extras import require

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "PIXELS",
    "TrainedModel",
    "digit_files",
    "digits_table",
    "draw_images",
    "measure_accuracy",
    "train",
]

PIXELS = 64
_SIDE = 8
_MAX_SHADE = 16
_TEST_SHARE = 5  # one row in five
_WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


@dataclass(frozen=True, slots=True)
class TrainedModel:
    """A trained model with the number of samples and the duration of the training."""

    model: Any
    samples: int
    seconds: float


def digits_table() -> pa.Table:
    """Return 1,797 images of 8 × 8 pixels with label, caption, split and file name."""
    import pyarrow as pa

    digits = require("sklearn.datasets", purpose="the demo", extra="demo").load_digits()
    pixels = pa.array(digits.data.astype("uint8").reshape(-1))
    labels = [int(label) for label in digits.target]
    return pa.table(
        {
            "image": pa.FixedSizeListArray.from_arrays(pixels, PIXELS),
            "label": pa.array(labels, pa.int8()),
            "caption": [f"a handwritten {_WORDS[label]}" for label in labels],
            "split": [_split(row) for row in range(len(labels))],
            "file": [f"{label}/{row:04d}.png" for row, label in enumerate(labels)],
        }
    )


def digit_files(table: pa.Table) -> dict[str, bytes]:
    """Return the images as PNG files, by the names in the column `file`."""
    images = table["image"].to_pylist()
    return {name: _png(image) for name, image in zip(table["file"].to_pylist(), images, strict=True)}


def _png(pixels: list[int]) -> bytes:
    """Encode a greyscale image, uncompressed: the bytes must not depend on the version of zlib."""
    shades = bytes(min(255, pixel * 256 // _MAX_SHADE) for pixel in pixels)
    rows = b"".join(b"\0" + shades[start : start + _SIDE] for start in range(0, PIXELS, _SIDE))
    header = struct.pack(">IIBBBBB", _SIDE, _SIDE, 8, 0, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows, 0)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )


def _split(row: int) -> str:
    """Assign a row to a split by a hash of its number, so that new rows do not move old ones."""
    return "test" if zlib.crc32(str(row).encode()) % _TEST_SHARE == 0 else "train"


def train(stream: Callable[[], Iterable[pa.RecordBatch]], epochs: int) -> TrainedModel:
    """Train a linear classifier batch by batch."""
    from sklearn.linear_model import SGDClassifier

    model = SGDClassifier(loss="log_loss", alpha=1e-4, average=True, random_state=0)
    samples, began = 0, time.perf_counter()
    for _ in range(epochs):
        for batch in stream():
            images, labels = _arrays(batch)
            model.partial_fit(images, labels, classes=range(len(_WORDS)))
            samples += len(labels)
    return TrainedModel(model, samples, time.perf_counter() - began)


def measure_accuracy(model: Any, batches: Iterable[pa.RecordBatch]) -> tuple[int, int]:
    """Return the number of correct predictions and of samples."""
    correct = seen = 0
    for batch in batches:
        images, labels = _arrays(batch)
        correct += int((model.predict(images) == labels).sum())
        seen += len(labels)
    return correct, seen


def draw_images(images: list[list[int]]) -> list[str]:
    """Draw images side by side in block characters, two rows of pixels per line."""
    lines = []
    for row in range(0, _SIDE, 2):
        cells = []
        for image in images:
            upper, lower = (image[(row + down) * _SIDE : (row + down + 1) * _SIDE] for down in (0, 1))
            cells.append("".join(_block(*pair) for pair in zip(upper, lower, strict=True)))
        lines.append("   ".join(cells).rstrip())
    return lines


def _block(upper: int, lower: int) -> str:
    return " ▄▀█"[2 * (upper > _MAX_SHADE // 3) + (lower > _MAX_SHADE // 3)]


def _arrays(batch: pa.RecordBatch) -> tuple[Any, Any]:
    images = batch["image"].flatten().to_numpy(zero_copy_only=False).reshape(-1, PIXELS) / _MAX_SHADE
    return images, batch["label"].to_numpy(zero_copy_only=False)
