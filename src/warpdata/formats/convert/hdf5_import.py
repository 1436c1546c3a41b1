"""Import of robomimic's HDF5 into episode files, one for each demo, with streamed rows.

Only data in the file itself is read: links, external and virtual datasets are reported, and not followed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from warpdata.errors import InvalidSourceError, ObjectNotFoundError
from warpdata.formats.convert.hdf5_demo import DemoReader, read_attributes
from warpdata.formats.convert.output import make_unique, new_output, source_errors, to_file_name
from warpdata.formats.convert.report import ConversionLog, ConversionReport
from warpdata.formats.wshard import compose_wshard
from warpdata.primitives.extras import require
from warpdata.primitives.paths import check_path

__all__ = ["import_hdf5"]


@dataclass(frozen=True, slots=True)
class _Shared:
    """The properties that all demos share."""

    env_id: str
    tick_hz: float | None
    env_args: str | None
    masks: Mapping[str, list[str]]


def import_hdf5(source: str | Path, directory: str | Path, *, compression: str = "none") -> ConversionReport:
    """Write an episode file for each demo, named after it, into `directory`. Memory is a few MiB."""
    h5py, path = _h5py(), check_path(source)
    log = ConversionLog("hdf5", "wshard")
    if not path.exists():
        raise ObjectNotFoundError(f"{path} does not exist")
    taken: set[str] = set()
    with source_errors(path), h5py.File(path, "r") as file:
        data = file.get("data") if isinstance(file.get("data", getlink=True), h5py.HardLink) else None
        if not isinstance(data, h5py.Group):
            raise InvalidSourceError(f"{path} has no group 'data'", hint="Files of robomimic have one.")
        shared = _shared(file, data, log)
        for name in _demo_names(data, log):
            demo = DemoReader(h5py, data[name], f"{path}: data/{name}", log)
            masks = [mask for mask, names in shared.masks.items() if name in names]
            episode, rows = demo.read(name, shared.env_args, masks)
            if not demo.has_sidecar:
                base = replace(episode.timebase, tick_hz=shared.tick_hz)
                episode = replace(episode, env_id=shared.env_id, timebase=base)
            target = check_path(directory) / f"{make_unique(to_file_name(episode.id), taken)}.wshard"
            with new_output(target) as staged:
                compose_wshard(episode, staged, rows, compression=compression)
            log.close(episode.length)
            log.wrote(target)
    return log.report()


def _h5py() -> Any:
    return require("h5py", purpose="reading HDF5", extra="hdf5")


def _demo_names(data: Any, log: ConversionLog) -> Iterator[str]:
    h5py = _h5py()
    names = list(data)
    demos = [name for name in names if isinstance(data.get(name, getlink=True), h5py.HardLink)]
    demos = [name for name in demos if isinstance(data[name], h5py.Group)]
    log.open((f"data/{name}" for name in names if name not in demos), is_shared=True)
    for name in names:
        if name not in demos:
            log.lost(f"data/{name}", "it is not a demo")
    log.close()
    # Natural order: demo_10 comes after demo_2.
    yield from sorted(demos, key=lambda name: [int(part) if part.isdigit() else part for part in _parts(name)])


def _parts(name: str) -> list[str]:
    # The split puts text at even positions, so that numbers are compared with numbers.
    return re.split(r"([0-9]+)", name)


def _shared(file: Any, data: Any, log: ConversionLog) -> _Shared:
    """Read everything outside the demos, and record its outcome."""
    h5py = _h5py()
    attributes, unreadable = read_attributes(data)
    masks: dict[str, list[str]] = {}
    others = [name for name in file if name != "data"]
    mask = file["mask"] if isinstance(file.get("mask", getlink=True), h5py.HardLink) else None
    if isinstance(mask, h5py.Group):
        others.remove("mask")
        for name in mask:
            key = mask[name] if isinstance(mask.get(name, getlink=True), h5py.HardLink) else None
            if isinstance(key, h5py.Dataset) and key.ndim == 1 and key.dtype.kind in "SO":
                masks[name] = [item.decode(errors="replace") if isinstance(item, bytes) else str(item) for item in key]
            else:
                others.append(f"mask/{name}")
    fields = [f"data@{name}" for name in [*attributes, *unreadable]] + [f"mask/{name}" for name in masks] + others
    fields += [f"@{name}" for name in file.attrs]
    log.open(fields, is_shared=True)
    for name in masks:
        log.kept(f"mask/{name}", "each episode lists its filter keys")
    for name in others:
        log.lost(name, "robomimic defines data and mask only")
    for name in file.attrs:
        log.lost(f"@{name}", "robomimic defines attributes of data only")
    env_args = attributes.get("env_args")
    for name in [*attributes, *unreadable]:
        if name == "total":
            log.kept("data@total", "it follows from the episodes")
        elif name == "env_args" and isinstance(env_args, str):
            log.kept("data@env_args", "in each episode")
        else:
            log.lost(f"data@{name}", "only total and env_args are defined")
    log.close()
    text = env_args if isinstance(env_args, str) else None
    return _Shared(*_environment(text), text, masks)


def _environment(env_args: str | None) -> tuple[str, float | None]:
    """Return the name of the environment and its rate, if robomimic's JSON has them."""
    try:
        document = json.loads(env_args or "{}")
    except ValueError:
        return "", None
    name = document.get("env_name", "") if isinstance(document, dict) else ""
    options = document.get("env_kwargs") if isinstance(document, dict) else None
    rate = options.get("control_freq") if isinstance(options, dict) else None
    is_rate = isinstance(rate, int | float) and not isinstance(rate, bool) and np.isfinite(rate) and rate > 0
    return name if isinstance(name, str) else "", float(rate) if is_rate and rate is not None else None
