"""Libraries of other formats, each behind a function that says which extra is missing."""

from __future__ import annotations

import importlib
from typing import Any

from warpdata.errors import MissingExtraError

__all__ = ["load"]

_EXTRAS = {
    "av": "video",
    "gymnasium": "gymnasium",
    "h5py": "hdf5",
    "mcap.writer": "mcap",
    "PIL.Image": "image",
}


def load(name: str) -> Any:
    """The module of that name. `MissingExtraError` where it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        library, extra = name.partition(".")[0], _EXTRAS[name]
        raise MissingExtraError(
            f"the library {library!r} is not installed, and this conversion needs it",
            hint=f"pip install 'warpdata[{extra}]'",
        ) from error
