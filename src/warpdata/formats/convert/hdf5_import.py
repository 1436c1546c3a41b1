"""robomimic's HDF5 into episode files, one for each demo, rows streamed from one file into the other.

Only what lies in the file itself is read: links, external and virtual datasets lead elsewhere and are
reported, not followed.
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
from warpdata.formats.convert.hdf5_demo import DemoReader, attributes_of
from warpdata.formats.convert.libraries import load
from warpdata.formats.convert.output_dir import free_name, plain_name, staged
from warpdata.formats.convert.report import ConversionReport, Ledger
from warpdata.formats.wshard import compose_wshard

__all__ = ["import_hdf5"]


@dataclass(frozen=True, slots=True)
class _Shared:
    """What the file says for all demos."""

    env_id: str
    tick_hz: float | None
    env_args: str | None
    masks: Mapping[str, list[str]]


def import_hdf5(source: str | Path, folder: str | Path, *, compression: str = "none") -> ConversionReport:
    """Make an episode file of each demo, named after it, in `folder`. Memory is some MiB, whatever the file holds."""
    h5py, path = load("h5py"), Path(source)
    ledger = Ledger("hdf5", "wshard")
    if not path.exists():
        raise ObjectNotFoundError(f"{path} does not exist")
    try:
        file = h5py.File(path, "r")
    except OSError as error:
        raise InvalidSourceError(f"{path} is not an HDF5 file that can be read: {error}") from error
    taken: set[str] = set()
    with file:
        data = file.get("data") if isinstance(file.get("data", getlink=True), h5py.HardLink) else None
        if not isinstance(data, h5py.Group):
            raise InvalidSourceError(f"{path} has no group 'data'", hint="Files of robomimic have one.")
        shared = _shared(file, data, ledger)
        for name in _demo_names(data, ledger):
            demo = DemoReader(h5py, data[name], f"{path}: data/{name}", ledger)
            masks = [mask for mask, names in shared.masks.items() if name in names]
            episode, rows = demo.read(name, shared.env_args, masks)
            if not demo.is_ours:
                base = replace(episode.timebase, tick_hz=shared.tick_hz)
                episode = replace(episode, env_id=shared.env_id, timebase=base)
            target = Path(folder) / f"{free_name(plain_name(episode.id), taken)}.wshard"
            with staged(target) as making:
                compose_wshard(episode, making, rows, compression=compression)
            ledger.close(episode.length)
            ledger.wrote(target)
    return ledger.report()


def _demo_names(data: Any, ledger: Ledger) -> Iterator[str]:
    h5py = load("h5py")
    names = list(data)
    demos = [name for name in names if isinstance(data.get(name, getlink=True), h5py.HardLink)]
    demos = [name for name in demos if isinstance(data[name], h5py.Group)]
    ledger.open((f"data/{name}" for name in names if name not in demos), is_shared=True)
    for name in names:
        if name not in demos:
            ledger.lost(f"data/{name}", "it is not a demo")
    ledger.close()
    # demo_10 comes after demo_2.
    yield from sorted(demos, key=lambda name: [int(part) if part.isdigit() else part for part in _parts(name)])


def _parts(name: str) -> list[str]:
    # Splitting by digits puts text at even places, so that numbers meet numbers.
    return re.split(r"([0-9]+)", name)


def _shared(file: Any, data: Any, ledger: Ledger) -> _Shared:
    """Everything outside the demos, accounted for."""
    h5py = load("h5py")
    said, odd = attributes_of(data)
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
    fields = [f"data@{name}" for name in [*said, *odd]] + [f"mask/{name}" for name in masks] + others
    fields += [f"@{name}" for name in file.attrs]
    ledger.open(fields, is_shared=True)
    for name in masks:
        ledger.kept(f"mask/{name}", "each episode says to which filter keys it belongs")
    for name in others:
        ledger.lost(name, "robomimic knows data and mask only")
    for name in file.attrs:
        ledger.lost(f"@{name}", "robomimic knows attributes of data only")
    env_args = said.get("env_args")
    for name in [*said, *odd]:
        if name == "total":
            ledger.kept("data@total", "it follows from the episodes")
        elif name == "env_args" and isinstance(env_args, str):
            ledger.kept("data@env_args", "in each episode")
        else:
            ledger.lost(f"data@{name}", "only total and env_args are known")
    ledger.close()
    text = env_args if isinstance(env_args, str) else None
    return _Shared(*_environment(text), text, masks)


def _environment(env_args: str | None) -> tuple[str, float | None]:
    """The name of the environment and its rate, where robomimic's JSON tells them."""
    try:
        told = json.loads(env_args or "{}")
    except ValueError:
        return "", None
    name = told.get("env_name", "") if isinstance(told, dict) else ""
    options = told.get("env_kwargs") if isinstance(told, dict) else None
    rate = options.get("control_freq") if isinstance(options, dict) else None
    sound = isinstance(rate, int | float) and not isinstance(rate, bool) and np.isfinite(rate) and rate > 0
    return name if isinstance(name, str) else "", float(rate) if sound and rate is not None else None
