"""warpdata: one versioned, content-addressed home for everything a model trains on.

    import warpdata as wd

    wd.DatasetBuilder("acme/trips").add_table("main", "data/*.parquet").publish()
    wd.dataset("acme/trips").table().filter("fare > 20").head()

Importing this package does no I/O and loads no heavy library: each name loads its module on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_EXPORTS = {
    "warpdata": ("errors", "ingest", "jobs", "loaders", "simulation"),
    "warpdata.collections": (
        "Box",
        "Collection",
        "Keypoints",
        "Label",
        "Mask",
        "Polygon",
        "Polyline",
        "collection",
        "create_collection",
    ),
    "warpdata.datasets": (
        "Dataset",
        "dataset",
        "diff",
        "find_commit",
        "list_datasets",
        "mix",
        "remove",
        "sql",
        "sql_reader",
    ),
    "warpdata.exporters": ("ExportReport", "export"),
    "warpdata.formats.tensors": ("SourcePolicy", "narrow", "open_tensors", "transpose"),
    "warpdata.kinds.artifacts": ("Artifact", "AudioRef", "FileRef", "ImageRef", "VideoRef", "read_many"),
    "warpdata.kinds.episodes": ("Episodes", "StoredEpisode"),
    "warpdata.kinds.tables": ("Table",),
    "warpdata.edit": ("Edit", "MergeConflict"),
    "warpdata.maintenance": ("copy", "gc", "pin", "pins", "rename", "unpin", "verify"),
    "warpdata.publish": ("DatasetBuilder", "write_ray"),
    "warpdata.query": ("Filter", "col", "expr"),
    "warpdata.samples": (
        "Audio",
        "Boolean",
        "Categorical",
        "DatasetWriter",
        "Embedding",
        "File",
        "Float",
        "Image",
        "Integer",
        "Schema",
        "Tags",
        "Text",
        "Timestamp",
        "Video",
        "create",
        "open_writer",
    ),
    "warpdata.connection": ("connect",),
    "warpdata.settings": ("Settings", "load_settings"),
    "warpdata.streaming": ("Shuffle", "Stream"),
}
"""Public names by module. The imports below repeat them for type checkers, and a test compares both."""

_HOMES = {name: home for home, names in _EXPORTS.items() for name in names}
__all__ = sorted([*_HOMES, "__version__"])  # noqa: PLE0605

if TYPE_CHECKING:
    from warpdata import errors as errors
    from warpdata import ingest as ingest
    from warpdata import jobs as jobs
    from warpdata import loaders as loaders
    from warpdata import simulation as simulation
    from warpdata.collections import Box as Box
    from warpdata.collections import Collection as Collection
    from warpdata.collections import Keypoints as Keypoints
    from warpdata.collections import Label as Label
    from warpdata.collections import Mask as Mask
    from warpdata.collections import Polygon as Polygon
    from warpdata.collections import Polyline as Polyline
    from warpdata.collections import collection as collection
    from warpdata.collections import create_collection as create_collection
    from warpdata.connection import connect as connect
    from warpdata.datasets import Dataset as Dataset
    from warpdata.datasets import dataset as dataset
    from warpdata.datasets import diff as diff
    from warpdata.datasets import find_commit as find_commit
    from warpdata.datasets import list_datasets as list_datasets
    from warpdata.datasets import mix as mix
    from warpdata.datasets import remove as remove
    from warpdata.datasets import sql as sql
    from warpdata.datasets import sql_reader as sql_reader
    from warpdata.edit import Edit as Edit
    from warpdata.edit import MergeConflict as MergeConflict
    from warpdata.exporters import ExportReport as ExportReport
    from warpdata.exporters import export as export
    from warpdata.formats.tensors import SourcePolicy as SourcePolicy
    from warpdata.formats.tensors import narrow as narrow
    from warpdata.formats.tensors import open_tensors as open_tensors
    from warpdata.formats.tensors import transpose as transpose
    from warpdata.kinds.artifacts import Artifact as Artifact
    from warpdata.kinds.artifacts import AudioRef as AudioRef
    from warpdata.kinds.artifacts import FileRef as FileRef
    from warpdata.kinds.artifacts import ImageRef as ImageRef
    from warpdata.kinds.artifacts import VideoRef as VideoRef
    from warpdata.kinds.artifacts import read_many as read_many
    from warpdata.kinds.episodes import Episodes as Episodes
    from warpdata.kinds.episodes import StoredEpisode as StoredEpisode
    from warpdata.kinds.tables import Table as Table
    from warpdata.maintenance import copy as copy
    from warpdata.maintenance import gc as gc
    from warpdata.maintenance import pin as pin
    from warpdata.maintenance import pins as pins
    from warpdata.maintenance import rename as rename
    from warpdata.maintenance import unpin as unpin
    from warpdata.maintenance import verify as verify
    from warpdata.publish import DatasetBuilder as DatasetBuilder
    from warpdata.publish import write_ray as write_ray
    from warpdata.query import Filter as Filter
    from warpdata.query import col as col
    from warpdata.query import expr as expr
    from warpdata.samples import Audio as Audio
    from warpdata.samples import Boolean as Boolean
    from warpdata.samples import Categorical as Categorical
    from warpdata.samples import DatasetWriter as DatasetWriter
    from warpdata.samples import Embedding as Embedding
    from warpdata.samples import File as File
    from warpdata.samples import Float as Float
    from warpdata.samples import Image as Image
    from warpdata.samples import Integer as Integer
    from warpdata.samples import Schema as Schema
    from warpdata.samples import Tags as Tags
    from warpdata.samples import Text as Text
    from warpdata.samples import Timestamp as Timestamp
    from warpdata.samples import Video as Video
    from warpdata.samples import create as create
    from warpdata.samples import open_writer as open_writer
    from warpdata.settings import Settings as Settings
    from warpdata.settings import load_settings as load_settings
    from warpdata.streaming import Shuffle as Shuffle
    from warpdata.streaming import Stream as Stream


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'warpdata' has no attribute {name!r}")
    if home == __name__:
        return importlib.import_module(f"{home}.{name}")
    value = globals()[name] = getattr(importlib.import_module(home), name)
    return value


def __dir__() -> list[str]:
    return __all__
