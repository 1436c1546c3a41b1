"""How each peer steps through an epoch on several ranks, and goes on from what it calls its state.

A walk gives the ids of this rank's batch and the state after it, as JSON. `states` are those of all ranks of the
run before, which may have been more or fewer. Runs under the peers' interpreters.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any, TypeAlias

from benchmarks.streams.spec import Spec

__all__ = ["WALKS", "clean_up_mosaic", "import_litdata", "open_lance"]

Walk: TypeAlias = Iterator[tuple[list[int], Any]]
_SPLITS = 4
_LITDATA_CLIENT = "_OBSTORE_CLIENT_OPTIONS"


def import_litdata() -> Any:
    """Its S3 client refuses plain `http://`, which only a loopback server has; that is lifted."""
    getattr(import_module("litdata.streaming.downloader"), _LITDATA_CLIENT)["allow_http"] = True
    return import_module("litdata")


def clean_up_mosaic() -> None:
    """What earlier turns left in shared memory when they were killed, as its documentation says; all ranks together."""
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


def _lancedb(spec: Spec, rank: int, world_size: int, states: list[Any] | None) -> Walk:
    """Merges the states of all ranks; its splits are fixed, as many as there are ranks at the most."""
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


def _mosaic(spec: Spec, rank: int, world_size: int, states: list[Any] | None) -> Walk:
    """Finds its ranks by `torch.distributed`. Its loader counts the samples of all; any rank's state will do."""
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


def _litdata(spec: Spec, rank: int, world_size: int, states: list[Any] | None) -> Walk:
    """Finds its ranks by `torch.distributed`; each has a state of its own."""
    import torch.distributed

    torch.distributed.init_process_group("gloo", rank=rank, world_size=world_size)
    litdata = import_litdata()
    dataset = litdata.StreamingDataset(spec.url, cache_dir=spec.cache, shuffle=True, seed=spec.seed)
    loader = litdata.StreamingDataLoader(dataset, batch_size=spec.batch_size, collate_fn=_ids)
    if states:
        loader.load_state_dict(states[min(rank, len(states) - 1)])
    for batch in loader:
        yield batch, loader.state_dict()


def _datasets(spec: Spec, rank: int, world_size: int, states: list[Any] | None) -> Walk:
    """A rank has every so-manieth shard; a state belongs to the rank that wrote it."""
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
    held: list[int] = []
    for sample in mine:
        held.append(sample["id"])
        if len(held) == spec.batch_size:
            yield held, mine.state_dict()
            held = []
    if held:
        yield held, mine.state_dict()


def _named_ids(samples: list[Any]) -> dict[str, list[int]]:
    """In the form whose length its loader can tell."""
    return {"id": _ids(samples)}


def _ids(samples: list[Any]) -> list[int]:
    return [int(sample["id"]) for sample in samples]


WALKS: dict[str, Callable[[Spec, int, int, list[Any] | None], Walk]] = {
    "lancedb": _lancedb,
    "mosaicml-streaming": _mosaic,
    "litdata": _litdata,
    "datasets": _datasets,
}
