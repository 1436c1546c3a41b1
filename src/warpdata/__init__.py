"""warpdata: one versioned, content-addressed home for everything a model trains on.

    import warpdata as wd

    wd.DatasetBuilder("acme/trips").add_table("main", "data/*.parquet").publish()
    wd.dataset("acme/trips").table().filter("fare > 20").head()

Importing this package does no I/O and loads no heavy library: names are resolved when first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from warpdata import errors, ingest
    from warpdata.datasets import Dataset, dataset, diff, find_commit, list_datasets, mix
    from warpdata.formats.tensors import SourcePolicy, narrow, open_tensors, transpose
    from warpdata.kinds.artifacts import Artifact, AudioRef, FileRef, ImageRef, VideoRef, read_many
    from warpdata.kinds.episodes import Episodes, StoredEpisode
    from warpdata.kinds.tables import Table
    from warpdata.publish import DatasetBuilder, verify
    from warpdata.session import connect
    from warpdata.settings import Settings, load_settings
    from warpdata.streaming import Shuffle, Stream

__version__ = "0.1.0"

_HOMES = {
    "Artifact": "warpdata.kinds.artifacts",
    "AudioRef": "warpdata.kinds.artifacts",
    "Dataset": "warpdata.datasets",
    "DatasetBuilder": "warpdata.publish",
    "Episodes": "warpdata.kinds.episodes",
    "FileRef": "warpdata.kinds.artifacts",
    "ImageRef": "warpdata.kinds.artifacts",
    "Settings": "warpdata.settings",
    "Shuffle": "warpdata.streaming",
    "StoredEpisode": "warpdata.kinds.episodes",
    "SourcePolicy": "warpdata.formats.tensors",
    "Stream": "warpdata.streaming",
    "Table": "warpdata.kinds.tables",
    "VideoRef": "warpdata.kinds.artifacts",
    "connect": "warpdata.datasets",
    "dataset": "warpdata.datasets",
    "diff": "warpdata.datasets",
    "list_datasets": "warpdata.datasets",
    "load_settings": "warpdata.settings",
    "mix": "warpdata.datasets",
    "narrow": "warpdata.formats.tensors",
    "open_tensors": "warpdata.formats.tensors",
    "read_many": "warpdata.kinds.artifacts",
    "find_commit": "warpdata.datasets",
    "transpose": "warpdata.formats.tensors",
    "verify": "warpdata.publish",
}

_MODULES = ("errors", "ingest")

__all__ = [
    "Artifact",
    "AudioRef",
    "Dataset",
    "DatasetBuilder",
    "Episodes",
    "FileRef",
    "ImageRef",
    "Settings",
    "Shuffle",
    "SourcePolicy",
    "StoredEpisode",
    "Stream",
    "Table",
    "VideoRef",
    "__version__",
    "connect",
    "dataset",
    "diff",
    "errors",
    "find_commit",
    "ingest",
    "list_datasets",
    "load_settings",
    "mix",
    "narrow",
    "open_tensors",
    "read_many",
    "transpose",
    "verify",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"warpdata.{name}")
    if name in _HOMES:
        value = getattr(importlib.import_module(_HOMES[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'warpdata' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
