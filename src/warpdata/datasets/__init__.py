"""Datasets: the `Dataset` façade, what a version holds, and streams over its tables."""

from warpdata.datasets.dataset import Dataset, Revision, dataset, diff, find_commit, list_datasets, mix, open_dataset
from warpdata.datasets.info import DatasetInfo
from warpdata.datasets.prefetch import Warmed
from warpdata.session import Session, connect, open_cache

__all__ = [
    "Dataset",
    "DatasetInfo",
    "Revision",
    "Session",
    "Warmed",
    "connect",
    "dataset",
    "diff",
    "find_commit",
    "list_datasets",
    "mix",
    "open_cache",
    "open_dataset",
]
