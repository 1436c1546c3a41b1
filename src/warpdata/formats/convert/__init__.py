"""Conversion of episodes from and to other formats, with a report of the fields kept, changed and lost.

docs/guides/converting.md has examples. Libraries of other formats are extras, imported on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from warpdata.formats.convert.convert import FORMATS, convert
from warpdata.formats.convert.hdf5_export import export_hdf5
from warpdata.formats.convert.hdf5_import import import_hdf5
from warpdata.formats.convert.lerobot_export import export_lerobot
from warpdata.formats.convert.lerobot_import import import_lerobot
from warpdata.formats.convert.mcap import export_mcap
from warpdata.formats.convert.npz import export_npz, import_npz
from warpdata.formats.convert.report import ConversionReport, FieldOutcome

if TYPE_CHECKING:
    from warpdata.formats.convert.gymnasium import RecordEpisodes


__all__ = [
    "FORMATS",
    "ConversionReport",
    "FieldOutcome",
    "RecordEpisodes",
    "convert",
    "export_hdf5",
    "export_lerobot",
    "export_mcap",
    "export_npz",
    "import_hdf5",
    "import_lerobot",
    "import_npz",
]


def __getattr__(name: str) -> Any:
    # Its base class is Gymnasium's, so the class cannot exist without that library.
    if name == "RecordEpisodes":
        return importlib.import_module("warpdata.formats.convert.gymnasium").RecordEpisodes
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
