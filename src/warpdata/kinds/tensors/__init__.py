"""Tensors as a payload kind of a dataset version. The reader needs NumPy, so it is loaded on first use."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from warpdata.kinds.tensors.entry import TensorsEntry, find_tensors

if TYPE_CHECKING:
    from warpdata.kinds.tensors.reader import PublishedTensors, open_published

__all__ = ["PublishedTensors", "TensorsEntry", "find_tensors", "open_published"]


def __getattr__(name: str) -> Any:
    if name in ("PublishedTensors", "open_published"):
        return getattr(importlib.import_module("warpdata.kinds.tensors.reader"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
