"""Work that all stream arms share: the specification of a read, decoding, collation, and the timed loop.

The module also runs under the peers' interpreters, so it imports nothing of warpdata.
"""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["FEATURES", "ReadSpec", "SourceSpec", "collate", "consume", "decode", "make_features", "write_log"]

FEATURES = 8
_STEP_S = 0.01
"""Duration of a simulated training step."""

_DIGEST_STRIDE = 37


@dataclass(frozen=True, slots=True)
class SourceSpec:
    """Data to write: images of a directory, or `count` rows in shards of `shard_rows`."""

    kind: str
    count: int
    directory: str = ""
    shard_rows: int | None = None
    first: int = 0
    """Id of the first row."""

    shard_bytes: int | None = None
    """Shard size for a peer that needs other shards than its defaults."""

    @property
    def name(self) -> str:
        shape = Path(self.directory).name if self.directory else f"{self.count}by{self.shard_rows}from{self.first}"
        return f"{self.kind}-{shape}" + (f"-{self.shard_bytes}" if self.shard_bytes else "")


@dataclass(frozen=True, slots=True)
class ReadSpec:
    """Data to stream. `kind` is `images` or `rows`; `keep` is a filter that keeps scores below it."""

    url: str
    cache: str
    kind: str = "images"
    batch_size: int = 64
    workers: int = 2
    shuffle: bool = True
    seed: int = 1
    epoch: int = 0
    keep: float | None = None
    cache_limit_bytes: int | None = None
    files: tuple[str, ...] = ()
    """Objects with samples, for peers that need a list."""
    version: str = ""
    """Version for warpdata; empty for the newest."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "files", tuple(self.files))


def decode(content: bytes) -> Any:
    """Decode a JPEG into height × width × 3 pixels."""
    import numpy as np
    from PIL import Image

    return np.asarray(Image.open(io.BytesIO(content)))


def collate(samples: list[Any]) -> dict[str, Any]:
    """Stack decoded images or row features into a batch of tensors."""
    import numpy as np
    import torch

    batch = {"id": torch.tensor([int(sample["id"]) for sample in samples])}
    if not samples:
        return batch
    name = "image" if "image" in samples[0] else "x"
    batch[name] = torch.from_numpy(np.stack([sample[name] for sample in samples]))
    return batch


def make_features(first: int, count: int) -> Any:
    """Return the features of rows, count × FEATURES."""
    import numpy as np

    ids = np.arange(first, first + count, dtype=np.uint64)[:, None]
    columns = np.arange(FEATURES, dtype=np.uint64)[None, :]
    mixed = (ids * np.uint64(2654435761) + columns * np.uint64(40503)) % np.uint64(65536)
    return (mixed / 65536).astype(np.float32)


def consume(open_loader: Callable[[], Iterable[Any]], limit: int | None = None) -> dict[str, Any]:
    """Open and read a loader; the clock includes opening. Return the ids by batch and a digest of the pixels."""
    batches: list[list[int]] = []
    digest, first_s = 0, 0.0
    start = time.perf_counter()
    for batch in open_loader():
        first_s = first_s or time.perf_counter() - start
        batches.append(batch["id"].tolist())
        if "image" in batch:
            digest += int(batch["image"].flatten(1)[:, ::_DIGEST_STRIDE].long().sum())
        if limit is not None and len(batches) >= limit:
            took_s = time.perf_counter() - start
            break
    else:
        took_s = time.perf_counter() - start
    return {"first_s": first_s, "took_s": took_s, "batches": batches, "digest": digest}


def write_log(path: str, steps: Iterable[tuple[list[int], Any]]) -> None:
    """Write the ids of each step and the state after it as a line, with a pause for the training step."""
    with Path(path).open("w", encoding="utf-8") as log:
        for ids, state in steps:
            time.sleep(_STEP_S)
            log.write(json.dumps({"ids": ids, "state": state}) + "\n")
            log.flush()
