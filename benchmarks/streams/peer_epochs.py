"""Epochs of the stream peers on several ranks, resumed from the state that each peer defines.

An epoch yields the ids of this rank's batch and the state after it, as JSON. `states` are those of all ranks of the
previous run, which may have had more or fewer ranks. The module runs under the peers' interpreters.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any, TypeAlias

from benchmarks.streams.spec import ReadSpec

__all__ = ["EPOCHS", "clean_up_mosaic", "import_litdata", "open_lance"]

Epoch: TypeAlias = Iterator[tuple[list[int], Any]]
_SPLITS = 4
_LITDATA_CLIENT = "_OBSTORE_CLIENT_OPTIONS"


def import_litdata() -> Any:
    """Import litdata and let its S3 client accept plain `http://`, which the loopback server uses."""
    getattr(import_module("litdata.streaming.downloader"), _LITDATA_CLIENT)["allow_http"] = True
    return import_module("litdata")


def clean_up_mosaic() -> None:
    """Remove shared memory of killed processes, as its documentation says; a collective call of all ranks."""
    import_module("streaming.base.util").clean_stale_shared_memory()


def open_lance(url: str) -> Any:
    options = {
        "aws_access_key_id": os.environ["AWS_ACCESS_KEY_ID"],
        "aws_secret_access_key": os.environ["AWS_SECRET_ACCESS_KEY"],
        "aws_region": "us-east-1",
        "aws_endpoint": os.environ["AWS_ENDPOINT_URL"],
        "allow_http": "true",
    }
    return import_module("lancedb").connect(url, storage_options=options).open_table("samples")


def _lancedb(spec: ReadSpec, rank: int, world_size: int, states: list[Any] | None) -> Epoch:
    """Merge the states of all ranks; the number of splits is fixed at the largest number of ranks."""
    streaming = import_module("lancedb.streaming")
    dataset = streaming.StreamingDataset(
        open_lance(spec.url),
        num_splits=_SPLITS,
        shuffle_seed=spec.seed,
        rank=rank,
        world_size=world_size,
        columns=["id"],
        filter=None if spec.keep is None else f"x0 < {spec.keep}",
    )
    if states:
        dataset.load_state_dict(streaming.StreamingDataset.merge_state_dicts(states))
    for batch in streaming.StreamingDataLoader(dataset, batch_size=spec.batch_size, collate_fn=_ids):
        yield batch, dataset.state_dict()


def _mosaic(spec: ReadSpec, rank: int, world_size: int, states: list[Any] | None) -> Epoch:
    """Use `torch.distributed` for the ranks. The loader counts global samples, so the state of any rank suffices."""
    import torch.distributed

    torch.distributed.init_process_group("gloo", rank=rank, world_size=world_size)
    streaming = import_module("streaming")
    clean_up_mosaic()
    dataset = streaming.StreamingDataset(
        remote=spec.url, local=spec.cache, shuffle=True, shuffle_seed=spec.seed, batch_size=spec.batch_size
    )
    loader = streaming.StreamingDataLoader(dataset, batch_size=spec.batch_size, collate_fn=_named_ids)
    if states:
        loader.load_state_dict(states[0])
    for batch in loader:
        yield batch["id"], loader.state_dict()


def _litdata(spec: ReadSpec, rank: int, world_size: int, states: list[Any] | None) -> Epoch:
    """Use `torch.distributed` for the ranks; each rank has a state of its own."""
    import torch.distributed

    torch.distributed.init_process_group("gloo", rank=rank, world_size=world_size)
    litdata = import_litdata()
    dataset = litdata.StreamingDataset(spec.url, cache_dir=spec.cache, shuffle=True, seed=spec.seed)
    loader = litdata.StreamingDataLoader(dataset, batch_size=spec.batch_size, collate_fn=_ids)
    if states:
        loader.load_state_dict(states[min(rank, len(states) - 1)])
    for batch in loader:
        yield batch, loader.state_dict()


def _datasets(spec: ReadSpec, rank: int, world_size: int, states: list[Any] | None) -> Epoch:
    """Split the shards over the ranks; a state belongs to the rank that wrote it."""
    library = import_module("datasets")
    whole = library.load_dataset(
        "parquet",
        data_files=list(spec.files),
        split="train",
        streaming=True,
        storage_options={"endpoint_url": os.environ["AWS_ENDPOINT_URL"]},
    )
    mine = import_module("datasets.distributed").split_dataset_by_node(
        whole.shuffle(seed=spec.seed, buffer_size=1000), rank=rank, world_size=world_size
    )
    if states:
        mine.load_state_dict(states[min(rank, len(states) - 1)])
    pending: list[int] = []
    for sample in mine:
        pending.append(sample["id"])
        if len(pending) == spec.batch_size:
            yield pending, mine.state_dict()
            pending = []
    if pending:
        yield pending, mine.state_dict()


def _named_ids(samples: list[Any]) -> dict[str, list[int]]:
    """Return a dictionary, of which the loader can count the samples."""
    return {"id": _ids(samples)}


def _ids(samples: list[Any]) -> list[int]:
    return [int(sample["id"]) for sample in samples]


EPOCHS: dict[str, Callable[[ReadSpec, int, int, list[Any] | None], Epoch]] = {
    "lancedb": _lancedb,
    "mosaicml-streaming": _mosaic,
    "litdata": _litdata,
    "datasets": _datasets,
}
