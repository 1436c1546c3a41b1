"""`python -m benchmarks.streams.worker`: streams with us on command, one line of JSON each way.

Default settings; the store is reached by the environment, the cache is where it is told.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import warpdata as wd
from benchmarks.harness.worker import serve
from benchmarks.streams.spec import FEATURES, PAUSE_S, Spec, consume

__all__ = ["DATASET", "open_loader"]

DATASET = "bench/stream"


def open_loader(spec: Spec) -> Iterable[Any]:
    """As a user would write it. Without worker processes, as is the default: threads decode, on the same cores."""
    settings = replace(wd.load_settings(), cache_dir=Path(spec.cache))
    if spec.cache_limit_bytes is not None:
        settings = replace(settings, cache_limit_bytes=spec.cache_limit_bytes)
    address = f"{DATASET}@{spec.version}" if spec.version else DATASET
    opened = wd.dataset(address, store=spec.url, settings=settings)
    loader = opened.to_torch(
        columns=["id", "image"] if spec.kind == "pictures" else ["id", *(f"x{n}" for n in range(FEATURES))],
        filter=None if spec.keep is None else f"score < {spec.keep}",
        batch_size=spec.batch_size,
        shuffle=spec.shuffle,
        seed=spec.seed,
    )
    return loader.epoch(spec.epoch)


class _Reader:
    def ready(self) -> dict[str, Any]:
        """Everything that is imported once."""
        import obstore.store
        import PIL.JpegImagePlugin
        import platformdirs
        import pyarrow.compute
        import pyarrow.parquet
        import torch.utils.data

        import warpdata.datasets
        import warpdata.streaming

        assert all(
            (
                obstore.store,
                PIL.JpegImagePlugin,
                platformdirs,
                pyarrow.compute,
                pyarrow.parquet,
                warpdata.datasets,
                warpdata.streaming,
            )
        )
        return {"torch": torch.__version__, "pillow": PIL.__version__}

    def epoch(self, limit: int | None = None, **spec: Any) -> dict[str, Any]:
        return consume(lambda: open_loader(Spec(**spec)), limit)

    def walk(
        self,
        log: str,
        rank: int,
        world_size: int,
        states: Sequence[Any] | None,
        weights: Sequence[float] = (),
        second: str = "",
        **spec: Any,
    ) -> dict[str, Any]:
        """Take this rank's batches to the end of the epoch, and write each down with the state after it."""
        asked = Spec(**spec)
        parts = [_stream(asked, (rank, world_size))]
        if second:
            parts.append(_stream(replace(asked, url=second), (rank, world_size)))
        stream = wd.mix(dict(zip(parts, weights, strict=True)), seed=asked.seed) if second else parts[0]
        if states:
            stream.load_state_dict(states[0])
        with Path(log).open("w", encoding="utf-8") as written:
            for batch in stream:
                time.sleep(PAUSE_S)
                written.write(json.dumps({"ids": batch["id"], "state": stream.state_dict()}) + "\n")
                written.flush()
        return {}


def _stream(spec: Spec, shard: tuple[int, int]) -> wd.Stream:
    settings = replace(wd.load_settings(), cache_dir=Path(spec.cache))
    return wd.dataset(DATASET, store=spec.url, settings=settings).stream(
        filter=None if spec.keep is None else f"x0 < {spec.keep}",
        batch_size=spec.batch_size,
        shuffle=spec.shuffle,
        seed=spec.seed,
        shard=shard,
        collate="dict",
    )


if __name__ == "__main__":
    serve(_Reader())
