"""One function for all formats. The format of a path follows from its suffix or from the content of a directory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from warpdata.errors import BadInputError, ObjectNotFoundError
from warpdata.formats.convert.hdf5_export import export_hdf5
from warpdata.formats.convert.hdf5_import import import_hdf5
from warpdata.formats.convert.lerobot_export import export_lerobot
from warpdata.formats.convert.lerobot_import import import_lerobot
from warpdata.formats.convert.mcap import export_mcap
from warpdata.formats.convert.npz import export_npz, import_npz
from warpdata.formats.convert.output import to_file_name
from warpdata.formats.convert.report import ConversionReport, merge_reports
from warpdata.formats.wshard import is_chunk_manifest, load_chunk_manifest
from warpdata.primitives.paths import check_path

__all__ = ["FORMATS", "convert"]

FORMATS = ("wshard", "npz", "hdf5", "lerobot", "mcap")
"""The formats of `convert`. MCAP is written only."""

_SUFFIXES = {".wshard": "wshard", ".npz": "npz", ".hdf5": "hdf5", ".h5": "hdf5", ".mcap": "mcap"}
_SINGLE: dict[str, Callable[[Path, Path], ConversionReport]] = {"npz": export_npz, "mcap": export_mcap}
_MANY: dict[str, Callable[[Sequence[Path], Path], ConversionReport]] = {"hdf5": export_hdf5, "lerobot": export_lerobot}


def convert(
    source: str | Path, target: str | Path, *, source_format: str | None = None, target_format: str | None = None
) -> ConversionReport:
    """Convert episodes from WShard to another format, or from another format to WShard.

    A format that is not given follows from the suffix, or from the content of a directory; a target directory is
    WShard unless the source is. HDF5 and LeRobot hold many episodes, so the other side is a directory of episode
    files, in the order of their names. NPZ and MCAP hold one: a directory of them becomes a directory. An episode in
    chunks is named by its manifest, and converted as one episode.
    """
    source_path, target_path = check_path(source), check_path(target)
    kind = source_format or _detect_format(source_path)
    wanted = target_format or _SUFFIXES.get(target_path.suffix.lower())
    wanted = wanted or ("wshard" if kind not in (None, "wshard") else None)
    if kind is None or wanted is None:
        unknown = source_path if kind is None else target_path
        hint = f"Pass source_format or target_format: one of {', '.join(FORMATS)}."
        raise BadInputError(f"the format of {unknown} is not clear", hint=hint)
    for name in (kind, wanted):
        if name not in FORMATS:
            raise BadInputError(f"there is no format {name!r}", hint=f"Formats: {', '.join(FORMATS)}.")
    if kind == "wshard" and wanted in _MANY:
        return _MANY[wanted](_find_files(source_path, ".wshard"), target_path)
    if kind == "wshard" and wanted in _SINGLE:
        return _convert_each(source_path, target_path, ".wshard", f".{wanted}", _SINGLE[wanted])
    if kind == "npz" and wanted == "wshard":
        return _convert_each(source_path, target_path, ".npz", ".wshard", import_npz)
    if kind == "hdf5" and wanted == "wshard":
        return import_hdf5(source_path, target_path)
    if kind == "lerobot" and wanted == "wshard":
        return import_lerobot(source_path, target_path)
    raise BadInputError(
        f"{kind} cannot be converted to {wanted}",
        hint="One side must be wshard, and MCAP is written only. Convert to episode files first.",
    )


def _detect_format(path: Path) -> str | None:
    if not path.is_dir():
        return _SUFFIXES.get(path.suffix.lower())
    if (path / "meta" / "info.json").is_file():
        return "lerobot"
    found = {_SUFFIXES[item.suffix] for item in path.iterdir() if item.suffix in (".wshard", ".npz")}
    return found.pop() if len(found) == 1 else None


def _find_files(path: Path, suffix: str) -> list[Path]:
    """Return the file, or all files with the suffix directly in a directory, sorted.

    A chunk manifest replaces its chunks.
    """
    if not path.exists():
        raise ObjectNotFoundError(f"{path} does not exist")
    if not path.is_dir():
        return [path]
    found = sorted(item for item in path.iterdir() if item.suffix == suffix and not item.name.startswith("."))
    if not found:
        raise ObjectNotFoundError(f"{path} has no {suffix} files")
    manifests = [item for item in found if is_chunk_manifest(item)]
    chunks = {item.with_name(entry.uri) for item in manifests for entry in load_chunk_manifest(item).chunks}
    return [item for item in found if item not in chunks]


def _stem(path: Path) -> str:
    """Return the name of a new file without its suffix: that of the source, or the id of an episode in chunks."""
    return to_file_name(load_chunk_manifest(path).episode_id) if is_chunk_manifest(path) else path.stem


def _convert_each(
    source: Path, target: Path, suffix: str, new_suffix: str, convert_one: Callable[[Path, Path], ConversionReport]
) -> ConversionReport:
    if not source.is_dir():
        # A target without the suffix is a directory.
        file = target if target.suffix.lower() == new_suffix else target / f"{_stem(source)}{new_suffix}"
        _find_files(source, suffix)
        return convert_one(source, file)
    return merge_reports(
        [convert_one(path, target / f"{_stem(path)}{new_suffix}") for path in _find_files(source, suffix)]
    )
