"""Tensors as a payload kind of a dataset version. The reader needs NumPy, so it is loaded on first use."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from warpdata.kinds.tensors.entry import TensorsEntry
from warpdata.kinds.tensors.kind import TENSORS, TensorsInfo

if TYPE_CHECKING:
    from warpdata.kinds.tensors.compare import StoredTensors, TensorChange, TensorDiff, diff_tensors, open_stored
    from warpdata.kinds.tensors.reader import PublishedTensors, open_published
    from warpdata.kinds.tensors.stage import TensorsInput

__all__ = [
    "TENSORS",
    "PublishedTensors",
    "StoredTensors",
    "TensorChange",
    "TensorDiff",
    "TensorsEntry",
    "TensorsInfo",
    "TensorsInput",
    "diff_tensors",
    "open_published",
    "open_stored",
]

_COMPARED = ("StoredTensors", "TensorChange", "TensorDiff", "diff_tensors", "open_stored")


def __getattr__(name: str) -> Any:
    if name in ("PublishedTensors", "open_published"):
        return getattr(importlib.import_module("warpdata.kinds.tensors.reader"), name)
    if name in _COMPARED:
        return getattr(importlib.import_module("warpdata.kinds.tensors.compare"), name)
    if name == "TensorsInput":
        return importlib.import_module("warpdata.kinds.tensors.stage").TensorsInput
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
