"""Datasets: the `Dataset` façade, what a version holds, and streams over its tables."""

from warpdata.datasets.dataset import Dataset, dataset, open_dataset
from warpdata.datasets.functions import diff, find_commit, list_datasets, mix
from warpdata.datasets.info import DatasetInfo, Revision, to_revision
from warpdata.datasets.prefetch import Warmed
from warpdata.datasets.refs import (
    Removed,
    Restored,
    RestoreRequest,
    check_uncollected,
    execute_removal,
    plan_removal,
    refuse_offline,
    remove,
    remove_dataset,
    restore,
)
from warpdata.datasets.sql import sql, sql_reader
from warpdata.session import Session, connect, open_cache

__all__ = [
    "Dataset",
    "DatasetInfo",
    "Removed",
    "RestoreRequest",
    "Restored",
    "Revision",
    "Session",
    "Warmed",
    "check_uncollected",
    "connect",
    "dataset",
    "diff",
    "execute_removal",
    "find_commit",
    "list_datasets",
    "mix",
    "open_cache",
    "open_dataset",
    "plan_removal",
    "refuse_offline",
    "remove",
    "remove_dataset",
    "restore",
    "sql",
    "sql_reader",
    "to_revision",
]
