"""The method of `Dataset` that gives its samples to a DataLoader of PyTorch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack, cast

from warpdata.kinds.tables import Table
from warpdata.primitives.arguments import check_arguments

if TYPE_CHECKING:
    from warpdata.datasets.dataset import Dataset
    from warpdata.streaming import RowKeywords

__all__ = ["TorchAccess"]


@check_arguments
class TorchAccess:
    """Samples for PyTorch."""

    def as_iterable_dataset(self, table: str | Table | None = None, **keywords: Unpack[RowKeywords]) -> Any:
        """Return the samples of an epoch as an `IterableDataset`, for a DataLoader with a `batch_size` of its own.

        Each sample is a dict with the values of `to_torch`; `transform` receives it first. Workers and ranks read
        disjoint parts. Call `set_epoch(n)` before each epoch, for another order. `batch_size` is only the number of
        samples that a worker reads at once. `to_torch` is faster, because it makes whole batches.
        """
        from warpdata.streaming import samples_of

        keywords.setdefault("batch_size", 64)
        return samples_of(cast("Dataset", self).to_torch(None, table, **keywords))
