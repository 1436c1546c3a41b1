"""One thing to open: the composition root and the `Dataset` façade."""

from warpdata.datasets.connection import Connection, connect, open_cache
from warpdata.datasets.facade import (
    Dataset,
    Revision,
    dataset,
    diff,
    list_datasets,
    mix,
    open_dataset,
    plan,
    resolve,
)
from warpdata.datasets.info import ArtifactInfo, DatasetInfo, EpisodesInfo, TableInfo, TensorsInfo
from warpdata.datasets.media import ArtifactAddress, open_artifact
from warpdata.datasets.tensor_entry import TensorsEntry
from warpdata.datasets.warming import Warmed

__all__ = [
    "ArtifactAddress",
    "ArtifactInfo",
    "Connection",
    "Dataset",
    "DatasetInfo",
    "EpisodesInfo",
    "Revision",
    "TableInfo",
    "TensorsEntry",
    "TensorsInfo",
    "Warmed",
    "connect",
    "dataset",
    "diff",
    "list_datasets",
    "mix",
    "open_artifact",
    "open_cache",
    "open_dataset",
    "plan",
    "resolve",
]
