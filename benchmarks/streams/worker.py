"""Worker process that streams with warpdata and its default settings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import warpdata as wd
from benchmarks.harness.worker import serve
from benchmarks.streams.spec import FEATURES, ReadSpec, consume, write_log

__all__ = ["DATASET"]

DATASET = "bench/stream"
_IMPORTS = (
    "obstore.store",
    "platformdirs",
    "pyarrow.compute",
    "pyarrow.parquet",
    "torch.utils.data",
    "warpdata.datasets",
    "warpdata.streaming",
)


def _open(spec: ReadSpec) -> wd.Dataset:
    settings = replace(wd.load_settings(), cache_dir=Path(spec.cache))
    if spec.cache_limit_bytes is not None:
        settings = replace(settings, cache_limit_bytes=spec.cache_limit_bytes)
    address = f"{DATASET}@{spec.version}" if spec.version else DATASET
    return wd.dataset(address, store=spec.url, settings=settings)


def _open_loader(spec: ReadSpec) -> Iterable[Any]:
    """Open a loader without worker processes, the default: threads decode on the same cores."""
    loader = _open(spec).to_torch(
        columns=["id", "image"] if spec.kind == "images" else ["id", *(f"x{n}" for n in range(FEATURES))],
        filter=None if spec.keep is None else f"score < {spec.keep}",
        batch_size=spec.batch_size,
        shuffle=spec.shuffle,
        seed=spec.seed,
    )
    return loader.epoch(spec.epoch)


def _open_stream(spec: ReadSpec, shard: tuple[int, int]) -> wd.Stream:
    return _open(spec).stream(
        filter=None if spec.keep is None else f"x0 < {spec.keep}",
        batch_size=spec.batch_size,
        shuffle=spec.shuffle,
        seed=spec.seed,
        shard=shard,
        collate="dict",
    )


class _StreamReader:
    def warm_up(self) -> dict[str, Any]:
        """Import everything before the clock starts."""
        import PIL.JpegImagePlugin
        import torch

        for name in _IMPORTS:
            import_module(name)
        return {"torch": torch.__version__, "pillow": PIL.__version__}

    def read_epoch(self, limit: int | None = None, **spec: Any) -> dict[str, Any]:
        return consume(lambda: _open_loader(ReadSpec(**spec)), limit)

    def log_epoch(
        self,
        log: str,
        rank: int,
        world_size: int,
        states: Sequence[Any] | None,
        weights: Sequence[float] = (),
        second: str = "",
        **spec: Any,
    ) -> dict[str, Any]:
        """Read the batches of this rank to the end of the epoch and log each with the state after it."""
        first = ReadSpec(**spec)
        parts = [_open_stream(first, (rank, world_size))]
        if second:
            parts.append(_open_stream(replace(first, url=second), (rank, world_size)))
        stream = wd.mix(dict(zip(parts, weights, strict=True)), seed=first.seed) if second else parts[0]
        if states:
            stream.load_state_dict(states[0])
        write_log(log, _steps(stream))
        return {}


def _steps(stream: Any) -> Iterator[tuple[list[int], Any]]:
    for batch in stream:
        yield batch["id"], stream.state_dict()


if __name__ == "__main__":
    serve(_StreamReader())
