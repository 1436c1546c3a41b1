"""Episodes from and into other formats, each with a report of what was kept, changed and lost.

docs/guides/converting.md shows how. Libraries of other formats are extras, loaded when they are needed.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from warpdata.formats.convert.convert import FORMATS, convert
from warpdata.formats.convert.hdf5_export import export_hdf5
from warpdata.formats.convert.hdf5_import import import_hdf5
from warpdata.formats.convert.lerobot_export import export_lerobot
from warpdata.formats.convert.lerobot_import import import_lerobot
from warpdata.formats.convert.mcap_export import export_mcap
from warpdata.formats.convert.npz import export_npz, import_npz
from warpdata.formats.convert.report import ConversionReport, Fate

if TYPE_CHECKING:
    from warpdata.formats.convert.gymnasium_recorder import RecordEpisodes


__all__ = [
    "FORMATS",
    "ConversionReport",
    "Fate",
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
    # Its base class is Gymnasium's, so the class can not be made where that is not installed.
    if name == "RecordEpisodes":
        return importlib.import_module("warpdata.formats.convert.gymnasium_recorder").RecordEpisodes
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
