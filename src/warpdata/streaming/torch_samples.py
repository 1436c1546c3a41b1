"""Samples of a stream as an `IterableDataset`, for a DataLoader of the caller that makes its own batches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from warpdata.primitives.extras import require

if TYPE_CHECKING:
    from warpdata.streaming.stats import StreamStats
    from warpdata.streaming.torch import TorchLoader

__all__ = ["samples_of"]


def samples_of(loader: TorchLoader) -> Any:
    """Return the samples of a loader, whose own workers are not used. Each worker of a DataLoader gets its share."""
    return _dataset_class()(loader.dataset)


class _WorkerSamples:
    """The samples of one worker, one by one, from the batches of the loader."""

    def __init__(self, batches: Any) -> None:
        self._batches = batches

    def __repr__(self) -> str:
        return f"WorkerSamples({self._batches!r})"

    @property
    def stats(self) -> StreamStats:
        """Totals of what all workers read, also of samples that wait in a queue of the DataLoader."""
        stats: StreamStats = self._batches.stats
        return stats

    def set_epoch(self, number: int) -> None:
        """Begin the next iteration with this epoch."""
        self._batches.set_epoch(number)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for batch in self._batches:
            for values in zip(*batch.values(), strict=True):
                yield dict(zip(batch, values, strict=True))


def _dataset_class() -> type:
    """Return the class as a dataset of torch. It is created on first use of torch."""
    if "WorkerSamples" not in globals():
        torch = require("torch", purpose="as_iterable_dataset()", extra="torch")
        bases = (_WorkerSamples, torch.utils.data.IterableDataset)
        globals()["WorkerSamples"] = type("WorkerSamples", bases, {"__module__": __name__})
    created: type = globals()["WorkerSamples"]
    return created


def __getattr__(name: str) -> Any:
    """Create the class in a spawned worker, which looks the name up while it unpickles."""
    if name == "WorkerSamples":
        return _dataset_class()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
