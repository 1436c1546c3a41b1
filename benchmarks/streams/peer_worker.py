"""Worker process that streams with a peer: `python -m benchmarks.streams.peer_worker PEER`.

Each peer is used as its documentation says, with its defaults. The S3 endpoint comes from the environment. The
process runs under an interpreter that has the peer and not warpdata.
"""

from __future__ import annotations

import functools
import io
import json
import os
import sys
from collections.abc import Callable, Iterable
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.harness.worker import serve
from benchmarks.streams.peer_epochs import EPOCHS, clean_up_mosaic, import_litdata, open_lance
from benchmarks.streams.peer_formats import WRITERS, SampleSource
from benchmarks.streams.spec import FEATURES, ReadSpec, SourceSpec, collate, consume, decode, write_log

__all__: list[str] = []

_MODULES = {"mosaicml-streaming": "streaming", "lancedb": "lancedb.streaming"}
_MOSAIC_DOWNLOADER = "_downloader"
_BUFFER = 1000


class _PeerStreamReader:
    def __init__(self, peer: str) -> None:
        self.peer = peer

    def warm_up(self) -> dict[str, Any]:
        """Import everything before the clock starts."""
        import_module(_MODULES.get(self.peer, self.peer))
        import PIL.Image
        import torch.utils.data

        if self.peer == "mosaicml-streaming":
            clean_up_mosaic()
        return {"torch": torch.__version__, "pillow": PIL.__version__}

    def write(self, out: str, **source: Any) -> dict[str, Any]:
        """Write the samples in the peer's format."""
        WRITERS[self.peer](SampleSource(SourceSpec(**source)), Path(out))
        return {}

    def read_epoch(self, limit: int | None = None, **spec: Any) -> dict[str, Any]:
        return consume(lambda: LOADERS[self.peer](ReadSpec(**spec)), limit)

    def log_epoch(self, log: str, rank: int, world_size: int, states: list[Any] | None, **spec: Any) -> dict[str, Any]:
        """Read the batches of this rank to the end of the epoch and log each with the state after it."""
        write_log(log, EPOCHS[self.peer](ReadSpec(**spec), rank, world_size, states))
        return {}


def decode_sample(sample: Any) -> Any:
    return {**sample, "image": decode(sample["image"])} if "image" in sample else sample


def decode_batch(samples: list[Any], keep: float | None = None) -> dict[str, Any]:
    """Decode and collate a batch; drop filtered samples before decoding, for peers without a filter."""
    kept = [sample for sample in samples if keep is None or sample["score"] < keep]
    return collate([decode_sample(sample) for sample in kept])


def _litdata(spec: ReadSpec) -> Iterable[Any]:
    litdata = import_litdata()
    dataset = litdata.StreamingDataset(
        spec.url,
        cache_dir=spec.cache,
        shuffle=spec.shuffle,
        seed=spec.seed,
        **({} if spec.cache_limit_bytes is None else {"max_cache_size": str(spec.cache_limit_bytes) + "B"}),
    )
    return litdata.StreamingDataLoader(  # type: ignore[no-any-return]
        dataset,
        batch_size=spec.batch_size,
        num_workers=spec.workers,
        collate_fn=functools.partial(decode_batch, keep=spec.keep),
    )


def _mosaic(spec: ReadSpec) -> Iterable[Any]:
    """Close the S3 client before the workers start, so that each worker opens its own.

    The client fetches the index in the main process, and forked workers inherit its open connection. Over plain
    `http://` they receive each other's responses, and shards have wrong bytes.
    """
    import torch.utils.data

    dataset = import_module("streaming").StreamingDataset(
        remote=spec.url,
        local=spec.cache,
        shuffle=spec.shuffle,
        shuffle_seed=spec.seed,
        batch_size=spec.batch_size,
        cache_limit=spec.cache_limit_bytes,
    )
    for stream in dataset.streams:
        getattr(stream, _MOSAIC_DOWNLOADER).clean_up()
    return torch.utils.data.DataLoader(
        dataset,
        batch_size=spec.batch_size,
        num_workers=spec.workers,
        collate_fn=functools.partial(decode_batch, keep=spec.keep),
    )


def _webdataset(spec: ReadSpec) -> Iterable[Any]:
    import torch.utils.data

    Path(spec.cache).mkdir(parents=True, exist_ok=True)
    wds = import_module("webdataset")
    pipeline = wds.WebDataset(
        list(spec.files),
        shardshuffle=len(spec.files) if spec.shuffle else False,
        seed=spec.seed,
        cache_dir=spec.cache,
        **({} if spec.cache_limit_bytes is None else {"cache_size": spec.cache_limit_bytes}),
    )
    if spec.keep is not None:
        pipeline = pipeline.select(functools.partial(_is_kept, spec.keep))
    if spec.shuffle:
        pipeline = pipeline.shuffle(_BUFFER)
    pipeline = pipeline.map(_from_tar).batched(spec.batch_size, collation_fn=collate)
    return torch.utils.data.DataLoader(pipeline, batch_size=None, num_workers=spec.workers)


def _is_kept(keep: float, sample: Any) -> bool:
    return bool(json.loads(sample["json"])["score"] < keep)


def _from_tar(sample: Any) -> Any:
    number = int(sample["__key__"])
    if "jpg" in sample:
        return {"id": number, "image": decode(sample["jpg"])}
    import numpy as np

    return {"id": number, "x": np.load(io.BytesIO(sample["npy"]))}


def _datasets(spec: ReadSpec) -> Iterable[Any]:
    """Stream from S3 without a cache."""
    import torch.utils.data

    columns = ["id", "image"] if spec.kind == "images" else ["id", *(f"x{n}" for n in range(FEATURES))]
    dataset = import_module("datasets").load_dataset(
        "parquet",
        data_files=list(spec.files),
        split="train",
        streaming=True,
        storage_options={"endpoint_url": os.environ["AWS_ENDPOINT_URL"]},
        columns=columns,
        **({} if spec.keep is None else {"filters": [("score", "<", spec.keep)]}),
    )
    if spec.shuffle:
        dataset = dataset.shuffle(seed=spec.seed, buffer_size=_BUFFER)
    return torch.utils.data.DataLoader(
        dataset, batch_size=spec.batch_size, num_workers=spec.workers, collate_fn=_from_columns
    )


def _lancedb(spec: ReadSpec) -> Iterable[Any]:
    streaming = import_module("lancedb.streaming")
    dataset = streaming.StreamingDataset(
        open_lance(spec.url),
        num_splits=max(1, spec.workers),
        shuffle=spec.shuffle,
        shuffle_seed=spec.seed,
        epoch=spec.epoch,
        columns=["id", "image"] if spec.kind == "images" else None,
        filter=None if spec.keep is None else f"score < {spec.keep}",
        transform=_from_arrow,
    )
    return streaming.StreamingDataLoader(  # type: ignore[no-any-return]
        dataset,
        batch_size=spec.batch_size,
        num_workers=spec.workers,
        collate_fn=collate,
        multiprocessing_context="spawn" if spec.workers else None,
    )


def _from_arrow(rows: Any) -> list[Any]:
    return [_from_row(row) for row in rows.to_pylist()]


def _from_columns(samples: list[Any]) -> dict[str, Any]:
    return collate([_from_row(sample) for sample in samples])


def _from_row(row: Any) -> Any:
    import numpy as np

    if "image" in row:
        return decode_sample(row)
    return {"id": row["id"], "x": np.array([row[f"x{n}"] for n in range(FEATURES)], np.float32)}


LOADERS: dict[str, Callable[[ReadSpec], Iterable[Any]]] = {
    "litdata": _litdata,
    "mosaicml-streaming": _mosaic,
    "webdataset": _webdataset,
    "datasets": _datasets,
    "lancedb": _lancedb,
}


if __name__ == "__main__":
    serve(_PeerStreamReader(sys.argv[1]))
