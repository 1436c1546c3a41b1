"""One thing to open: the composition root and the `Dataset` façade."""

from warpdata.datasets.artifacts import ArtifactAddress, open_artifact
from warpdata.datasets.dataset import Dataset, Revision, dataset, diff, list_datasets, mix, open_dataset, plan, resolve
from warpdata.datasets.info import ArtifactInfo, DatasetInfo, EpisodesInfo, TableInfo, TensorsInfo
from warpdata.datasets.warm import Warmed
from warpdata.session import Connection, connect, open_cache

__all__ = [
    "ArtifactAddress",
    "ArtifactInfo",
    "Connection",
    "Dataset",
    "DatasetInfo",
    "EpisodesInfo",
    "Revision",
    "TableInfo",
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
