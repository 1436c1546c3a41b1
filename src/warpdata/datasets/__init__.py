"""One thing to open: the composition root and the `Dataset` façade."""

from warpdata.datasets.connection import Connection, connect
from warpdata.datasets.facade import (
    Dataset,
    Revision,
    dataset,
    diff,
    list_datasets,
    open_dataset,
    resolve,
)
from warpdata.datasets.info import ArtifactInfo, DatasetInfo, TableInfo
from warpdata.datasets.media import ArtifactAddress

__all__ = [
    "ArtifactAddress",
    "ArtifactInfo",
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
