"""One way in for all formats: what a path is follows from its name or from what lies in it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from warpdata.errors import BadInputError, ObjectNotFoundError
from warpdata.formats.convert.hdf5_export import export_hdf5
from warpdata.formats.convert.hdf5_import import import_hdf5
from warpdata.formats.convert.lerobot_export import export_lerobot
from warpdata.formats.convert.lerobot_import import import_lerobot
from warpdata.formats.convert.mcap_export import export_mcap
from warpdata.formats.convert.npz import export_npz, import_npz
from warpdata.formats.convert.report import ConversionReport, merged

__all__ = ["FORMATS", "convert"]

FORMATS = ("wshard", "npz", "hdf5", "lerobot", "mcap")
"""The formats that `convert` knows. MCAP is written only."""

_ENDINGS = {".wshard": "wshard", ".npz": "npz", ".hdf5": "hdf5", ".h5": "hdf5", ".mcap": "mcap"}
_SINGLE: dict[str, Callable[[Path, Path], ConversionReport]] = {"npz": export_npz, "mcap": export_mcap}
_MANY: dict[str, Callable[[Sequence[Path], Path], ConversionReport]] = {"hdf5": export_hdf5, "lerobot": export_lerobot}


def convert(
    source: str | Path, target: str | Path, *, source_format: str | None = None, target_format: str | None = None
) -> ConversionReport:
    """Convert episodes from WShard to another format, or from another to WShard.

    A format that is not told follows from the ending of a name, or from what a folder holds; a target folder is
    of WShard unless the source is. HDF5 and LeRobot hold many episodes, so their other side is a folder of
    episode files, in the order of their names. NPZ and MCAP hold one: a folder of them becomes a folder.
    """
    here, there = Path(source), Path(target)
    kind = source_format or _format_of(here)
    wanted = target_format or _ENDINGS.get(there.suffix.lower()) or ("wshard" if kind not in (None, "wshard") else None)
    if kind is None or wanted is None:
        unknown = here if kind is None else there
        raise BadInputError(f"the format of {unknown} is not clear", hint=f"Say it: one of {', '.join(FORMATS)}.")
    for told in (kind, wanted):
        if told not in FORMATS:
            raise BadInputError(f"there is no format {told!r}", hint=f"There are {', '.join(FORMATS)}.")
    if kind == "wshard" and wanted in _MANY:
        return _MANY[wanted](_files(here, ".wshard"), there)
    if kind == "wshard" and wanted in _SINGLE:
        return _one_by_one(here, there, ".wshard", f".{wanted}", _SINGLE[wanted])
    if kind == "npz" and wanted == "wshard":
        return _one_by_one(here, there, ".npz", ".wshard", import_npz)
    if kind == "hdf5" and wanted == "wshard":
        return import_hdf5(here, there)
    if kind == "lerobot" and wanted == "wshard":
        return import_lerobot(here, there)
    raise BadInputError(
        f"{kind} cannot be converted to {wanted}",
        hint="One side is wshard, and MCAP is written only: go by way of episode files.",
    )


def _format_of(path: Path) -> str | None:
    if not path.is_dir():
        return _ENDINGS.get(path.suffix.lower())
    if (path / "meta" / "info.json").is_file():
        return "lerobot"
    held = {_ENDINGS[item.suffix] for item in path.iterdir() if item.suffix in (".wshard", ".npz")}
    return held.pop() if len(held) == 1 else None


def _files(path: Path, ending: str) -> list[Path]:
    """The file, or all with that ending in a folder."""
    if not path.exists():
        raise ObjectNotFoundError(f"{path} does not exist")
    if not path.is_dir():
        return [path]
    found = sorted(item for item in path.iterdir() if item.suffix == ending and not item.name.startswith("."))
    if not found:
        raise ObjectNotFoundError(f"{path} holds no files that end in {ending}")
    return found


def _one_by_one(
    source: Path, target: Path, ending: str, made: str, convert_one: Callable[[Path, Path], ConversionReport]
) -> ConversionReport:
    if not source.is_dir():
        # A target without the ending is a folder to put the file into.
        place = target if target.suffix.lower() == made else target / f"{source.stem}{made}"
        _files(source, ending)
        return convert_one(source, place)
    return merged([convert_one(path, target / f"{path.stem}{made}") for path in _files(source, ending)])
