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
    "warpdata": ("errors", "ingest"),
    "warpdata.datasets": ("Dataset", "dataset", "diff", "find_commit", "list_datasets", "mix"),
    "warpdata.formats.tensors": ("SourcePolicy", "narrow", "open_tensors", "transpose"),
    "warpdata.kinds.artifacts": ("Artifact", "AudioRef", "FileRef", "ImageRef", "VideoRef", "read_many"),
    "warpdata.kinds.episodes": ("Episodes", "StoredEpisode"),
    "warpdata.kinds.tables": ("Table",),
    "warpdata.publish": ("DatasetBuilder", "verify"),
    "warpdata.session": ("connect",),
    "warpdata.settings": ("Settings", "load_settings"),
    "warpdata.streaming": ("Shuffle", "Stream"),
}
"""Public names by module. The imports below repeat them for type checkers, and a test compares both."""

_HOMES = {name: home for home, names in _EXPORTS.items() for name in names}
__all__ = sorted([*_HOMES, "__version__"])  # noqa: PLE0605

if TYPE_CHECKING:
    from warpdata import errors as errors
    from warpdata import ingest as ingest
    from warpdata.datasets import Dataset as Dataset
    from warpdata.datasets import dataset as dataset
    from warpdata.datasets import diff as diff
    from warpdata.datasets import find_commit as find_commit
    from warpdata.datasets import list_datasets as list_datasets
    from warpdata.datasets import mix as mix
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
    from warpdata.publish import DatasetBuilder as DatasetBuilder
    from warpdata.publish import verify as verify
    from warpdata.session import connect as connect
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
