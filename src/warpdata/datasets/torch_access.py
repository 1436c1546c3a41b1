"""The method of `Dataset` that gives its samples to a DataLoader of PyTorch."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, Unpack

from warpdata.kinds.tables import Table
from warpdata.primitives.arguments import check_arguments

if TYPE_CHECKING:
    from warpdata.streaming import RowKeywords, TorchLoader

__all__ = ["TorchAccess"]


@check_arguments
class TorchAccess:
    """Samples for PyTorch."""

    @abstractmethod
    def to_torch(self, batch_size: int | None = None, /, table: str | Table | None = None, **keywords: Any) -> Any: ...

    def as_iterable_dataset(self, table: str | Table | None = None, **keywords: Unpack[RowKeywords]) -> Any:
        """Return the samples of an epoch as an `IterableDataset`, for a DataLoader with a `batch_size` of its own.

        Each sample is a dict with the values of `to_torch`; `transform` receives it first. Workers and ranks read
        disjoint parts. Call `set_epoch(n)` before each epoch, for another order. `batch_size` is only the number of
        samples that a worker reads at once. `to_torch` is faster, because it makes whole batches.
        """
        from warpdata.streaming import samples_of

        keywords.setdefault("batch_size", 64)
        loader: TorchLoader = self.to_torch(None, table, **keywords)
        return samples_of(loader)
