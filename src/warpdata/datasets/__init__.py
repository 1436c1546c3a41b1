"""Datasets: the `Dataset` façade, what a version holds, and streams over its tables."""

from warpdata.datasets.artifacts import ArtifactAddress, open_artifact
from warpdata.datasets.dataset import Dataset, Revision, dataset, diff, find_commit, list_datasets, mix, open_dataset
from warpdata.datasets.info import ArtifactInfo, DatasetInfo, EpisodesInfo, TableInfo, TensorsInfo
from warpdata.datasets.prefetch import Warmed
from warpdata.session import Session, connect, open_cache

__all__ = [
    "ArtifactAddress",
    "ArtifactInfo",
    "Dataset",
    "DatasetInfo",
    "EpisodesInfo",
    "Revision",
    "Session",
    "TableInfo",
    "TensorsInfo",
    "Warmed",
    "connect",
    "dataset",
    "diff",
    "find_commit",
    "list_datasets",
    "mix",
    "open_artifact",
    "open_cache",
    "open_dataset",
]
