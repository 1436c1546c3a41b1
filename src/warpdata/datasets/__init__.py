"""One thing to open: the composition root and the `Dataset` façade."""

from warpdata.datasets.connection import Connection, connect
from warpdata.datasets.facade import (
    Dataset,
    DatasetInfo,
    Revision,
    TableInfo,
    dataset,
    diff,
    list_datasets,
    open_dataset,
    resolve,
)

__all__ = [
    "Connection",
    "Dataset",
    "DatasetInfo",
    "Revision",
    "TableInfo",
    "connect",
    "dataset",
    "diff",
    "list_datasets",
    "open_dataset",
    "resolve",
]
