"""What every arm of the stream benchmarks does alike: what is asked of it, how it decodes, how it is timed.

Runs under the peers' interpreters too, so it imports nothing of ours.
"""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

__all__ = ["FEATURES", "PAUSE_S", "Spec", "collate", "consume", "decode", "features"]

FEATURES = 8
PAUSE_S = 0.01
"""What a step of training takes where one is only walked through."""

_SPARSE = 37


@dataclass(frozen=True, slots=True)
class Spec:
    """What to stream. `kind` is `pictures` or `rows`; `keep` is a filter: only scores below it."""

    url: str
    cache: str
    kind: str = "pictures"
    batch_size: int = 64
    workers: int = 2
    shuffle: bool = True
    seed: int = 1
    epoch: int = 0
    keep: float | None = None
    cache_limit_bytes: int | None = None
    files: tuple[str, ...] = ()
    """The objects that hold samples, for peers that want to be told."""
    version: str = ""
    """Ours: which version is meant, else the newest."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "files", tuple(self.files))


def decode(content: bytes) -> Any:
    """JPEG → pixels, height × width × 3, as every arm does it."""
    import numpy as np
    from PIL import Image

    return np.asarray(Image.open(io.BytesIO(content)))


def collate(samples: list[Any]) -> dict[str, Any]:
    """Samples with decoded pictures, or rows with features → a batch of tensors."""
    import numpy as np
    import torch

    batch = {"id": torch.tensor([int(sample["id"]) for sample in samples])}
    if not samples:
        return batch
    name = "image" if "image" in samples[0] else "x"
    batch[name] = torch.from_numpy(np.stack([sample[name] for sample in samples]))
    return batch


def features(first: int, count: int) -> Any:
    """The features of rows, count × FEATURES."""
    import numpy as np

    ids = np.arange(first, first + count, dtype=np.uint64)[:, None]
    columns = np.arange(FEATURES, dtype=np.uint64)[None, :]
    mixed = (ids * np.uint64(2654435761) + columns * np.uint64(40503)) % np.uint64(65536)
    return (mixed / 65536).astype(np.float32)


def consume(open_loader: Callable[[], Iterable[Any]], limit: int | None = None) -> dict[str, Any]:
    """Open and read, timed from before the opening. The ids by batch, and a digest of what came with them."""
    batches: list[list[int]] = []
    digest, first_s = 0, 0.0
    begun = time.perf_counter()
    for batch in open_loader():
        first_s = first_s or time.perf_counter() - begun
        batches.append(batch["id"].tolist())
        if "image" in batch:
            digest += int(batch["image"].flatten(1)[:, ::_SPARSE].long().sum())
        if limit is not None and len(batches) >= limit:
            took_s = time.perf_counter() - begun
            break
    else:
        took_s = time.perf_counter() - begun
    return {"first_s": first_s, "took_s": took_s, "batches": batches, "digest": digest}
