"""Streams in the loops of Lightning, torchdata and the Trainer of Hugging Face, with exact resume.

Each opens its stream when the loop begins, because only then every process knows its rank.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias, Unpack

from warpdata.datasets import Dataset
from warpdata.kinds.tables import Table
from warpdata.primitives.extras import require
from warpdata.streaming import RowKeywords, Stream, TorchLoader

__all__ = ["lightning_data", "torch_samples", "torchdata_node"]

OpenLoader: TypeAlias = Callable[[], TorchLoader]
"""Opens a loader in the process that trains, such as `lambda: wd.dataset(NAME).to_torch(64, shuffle=True)`."""

_SPLITS = ("train", "val", "test", "predict")


def lightning_data(
    train: OpenLoader | None = None,
    *,
    val: OpenLoader | None = None,
    test: OpenLoader | None = None,
    predict: OpenLoader | None = None,
) -> Any:
    """Return a `LightningDataModule`. Each argument opens a loader, by `Dataset.to_torch`, in every process.

    Checkpoints of Lightning hold the position of the training loader, so `fit(ckpt_path=…)` goes on at the next batch,
    also with another number of processes.
    """
    require("lightning", purpose="lightning_data", install="lightning")
    opens = {name: each for name, each in zip(_SPLITS, (train, val, test, predict), strict=True) if each is not None}
    return _data_module_class()(opens)


def torchdata_node(open_stream: Callable[[], Stream]) -> Any:
    """Return the batches of a stream as a `torchdata.nodes.BaseNode`, whose state is that of the stream."""
    require("torchdata.nodes", purpose="torchdata_node", install="torchdata")
    return _node_class()(open_stream)


def torch_samples(dataset: Dataset, table: str | Table | None = None, **keywords: Unpack[RowKeywords]) -> Any:
    """Return single samples as a `torch.utils.data.IterableDataset`, for a `Trainer` that forms batches itself.

    A Trainer divides the samples among its processes, so every process streams all of them: `shard` is None by default.
    Arguments are those of `Dataset.stream`; `batch_size` is the number of samples that are read together.
    """
    require("torch", purpose="torch_samples", extra="torch")
    keywords.setdefault("shard", None)
    loader = dataset.to_torch(table=table, **keywords)
    return _samples_class()(loader.dataset)


def unbatch(batch: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the samples of a batch."""
    count = len(next(iter(batch.values()))) if batch else 0
    for row in range(count):
        yield {name: values[row] for name, values in batch.items()}


class Epochs:
    """The epochs of a loader, for a loop that counts batches and never asks for more than there are."""

    def __init__(self, loader: TorchLoader) -> None:
        self._loader = loader

    def __len__(self) -> int:
        return len(self._loader)

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the rest of the current epoch, or over the next one if nothing is left."""
        is_over = True
        for batch in self._loader:
            is_over = False
            yield batch
        if is_over:
            yield from self._loader


@functools.cache
def _data_module_class() -> type[Any]:
    from lightning import LightningDataModule

    class WarpDataModule(LightningDataModule):  # type: ignore[misc]
        """Opens loaders on request, and keeps the state of the one for training in checkpoints."""

        def __init__(self, opens: Mapping[str, OpenLoader]) -> None:
            super().__init__()
            self._opens = opens
            self._loader: TorchLoader | None = None
            self._state: Mapping[str, Any] | None = None

        def train_dataloader(self) -> Epochs:
            self._loader = self._opens["train"]()
            if self._state is not None:
                self._loader.load_state_dict(self._state)
            return Epochs(self._loader)

        def state_dict(self) -> dict[str, Any]:
            return {} if self._loader is None else {"stream": self._loader.state_dict()}

        def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
            self._state = state_dict.get("stream")

        def __getattr__(self, name: str) -> Any:
            split = name.removesuffix("_dataloader")
            if split in _SPLITS and name != split and split in self.__dict__.get("_opens", {}):
                return self._opens[split]
            raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}")

    return WarpDataModule


@functools.cache
def _node_class() -> type[Any]:
    from torchdata.nodes import BaseNode

    class WarpNode(BaseNode):  # type: ignore[misc]
        """Yields the rest of an epoch. After a reset without a state, the next epoch."""

        def __init__(self, open_stream: Callable[[], Stream]) -> None:
            super().__init__()
            self._open = open_stream
            self._stream: Stream | None = None
            self._batches: Iterator[Any] = iter(())

        def reset(self, initial_state: dict[str, Any] | None = None) -> None:
            super().reset(initial_state)
            if self._stream is None:
                self._stream = self._open()
            if initial_state is not None:
                self._stream.load_state_dict(initial_state)
            self._batches = iter(self._stream)

        def next(self) -> Any:
            return next(self._batches)

        def get_state(self) -> dict[str, Any]:
            assert self._stream is not None, "reset comes first"
            return self._stream.state_dict()

    return WarpNode


@functools.cache
def _samples_class() -> type[Any]:
    from torch.utils.data import IterableDataset

    class WarpSamples(IterableDataset):  # type: ignore[type-arg]
        """The samples of a loader's batches. Its workers share them."""

        def __init__(self, batches: Any) -> None:
            self._batches = batches

        def __iter__(self) -> Iterator[dict[str, Any]]:
            for batch in self._batches:
                yield from unbatch(batch)

        def set_epoch(self, epoch: int) -> None:
            self._batches.set_epoch(epoch)

    return WarpSamples
