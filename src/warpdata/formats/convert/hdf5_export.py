"""Episodes into one HDF5 file as robomimic reads it: `data/demo_N` with `obs`, `actions`, `rewards`, `dones`.

What robomimic has no place for goes under `data/demo_N/wshard`, and into an attribute of that name, which it
passes over. So nothing is lost but the seal of a file.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from warpdata.errors import BadInputError
from warpdata.formats.convert.episode_fields import (
    Array,
    attributes_field,
    fields_of,
    info_of,
    is_stepwise,
    opened,
    row_windows,
    spec_of,
)
from warpdata.formats.convert.hdf5_demo import HINTS, joined_actions, made_env_args
from warpdata.formats.convert.libraries import load
from warpdata.formats.convert.output_dir import free_name, staged
from warpdata.formats.convert.report import ConversionReport, Ledger
from warpdata.formats.convert.sidecar import write_sidecar
from warpdata.formats.wshard import BlockReader, DType, WShardFile

__all__ = ["export_hdf5"]


def export_hdf5(
    sources: Iterable[str | Path], target: str | Path, *, compression: str | None = None
) -> ConversionReport:
    """Write many episodes into one file, in the order given. Memory is some MiB, or the largest compressed block.

    `compression` is one of HDF5's own, such as `gzip` or `lzf`.
    """
    h5py = load("h5py")
    ledger = Ledger("wshard", "hdf5")
    masks: dict[str, list[str]] = {}
    total, env_args, env_id, taken = 0, None, "", set[str]()
    with staged(Path(target)) as making, h5py.File(making, "w") as out:
        data = out.create_group("data")
        for number, source in enumerate(sources):
            with opened(Path(source)) as file:
                hints = _hints(file)
                name = free_name(hints.get("demo", f"demo_{number}"), taken)
                total += _Demo(file, data.create_group(name), compression, ledger).write(hints)
                env_args = env_args or hints.get("env_args")
                env_id = env_id or info_of(file).env_id
                for mask in hints.get("masks", ()):
                    masks.setdefault(mask, []).append(name)
        if not taken:
            raise BadInputError("there are no episodes to write")
        data.attrs["total"] = total
        if env_args is None:
            ledger.open((), is_shared=True)
            ledger.added("data@env_args", "an environment of Gym with the first name that an episode tells")
            ledger.close()
        data.attrs["env_args"] = env_args or made_env_args(env_id)
        for mask, names in masks.items():
            out.create_dataset(f"mask/{mask}", data=np.array([name.encode() for name in names]))
    ledger.wrote(Path(target))
    return ledger.report()


def _hints(file: WShardFile) -> dict[str, Any]:
    """What an import remembered, where that is still what an import writes."""
    found = info_of(file).attributes.get(HINTS)
    if not isinstance(found, dict):
        return {}
    texts = {key: found[key] for key in ("demo", "env_args") if isinstance(found.get(key), str) and found[key]}
    if not _is_plain(texts.get("demo", "demo_0")) or "/" in texts.get("demo", ""):
        texts.pop("demo")
    maps = {key: found[key] for key in ("attributes", "paths", "dtypes") if isinstance(found.get(key), dict)}
    listed = found.get("masks")
    masks = [mask for mask in listed if isinstance(mask, str) and _is_plain(mask)] if isinstance(listed, list) else []
    return {**texts, **maps, "masks": masks}


class _Demo:
    """One episode on its way into its group."""

    def __init__(self, file: WShardFile, group: Any, compression: str | None, ledger: Ledger) -> None:
        self._file, self._group, self._compression, self._ledger = file, group, compression, ledger
        self._paths: dict[str, str] = {}
        self._actions = [block for block in file.blocks if block.startswith("action/")]

    def write(self, hints: dict[str, Any]) -> int:
        """Write everything, account for everything, and return the number of steps."""
        file, ledger = self._file, self._ledger
        info = info_of(file)
        fields = fields_of(file)
        ledger.open(fields)
        for block in file.blocks:
            if block in fields and block != "meta/identity":
                self._add(block, hints)
        self._join_actions()
        self._group.attrs["num_samples"] = info.length
        for name, value in hints.get("attributes", {}).items():
            if name not in ("num_samples", "wshard") and isinstance(value, str | int | float | bool):
                self._group.attrs[name] = value
        self._group.attrs["wshard"] = write_sidecar(file, self._paths)
        for field in fields:
            if field == "meta/identity":
                ledger.lost(field, "a seal holds for the file it stands in")
            elif field in self._paths:
                ledger.kept(field, f"as {self._paths[field]}" if len(self._paths[field]) < 80 else "")
            else:
                self._settle_attributes(field)
        ledger.close(info.length)
        return info.length

    def _settle_attributes(self, field: str) -> None:
        block = field.removesuffix(".attributes")
        spec = spec_of(info_of(self._file), block) if field == attributes_field(block) else None
        if spec is not None and "encoding" in spec.attributes and (spec.dtype is not DType.U8 or spec.shape):
            self._ledger.changed(field, "the type and shape of decoded frames are not kept")
        else:
            self._ledger.kept(field, "in the attribute wshard")

    def _add(self, block: str, hints: dict[str, Any]) -> None:
        reader = self._file[block]
        wanted = hints.get("paths", {}).get(block) or self._natural(block)
        path = wanted if isinstance(wanted, str) and self._is_free(wanted) else f"wshard/{len(self._paths)}"
        dtype = _stored_dtype(reader, hints.get("dtypes", {}).get(block))
        if block == "done" and not hints.get("dtypes"):
            # As robomimic writes it; each value is 0 or 1.
            dtype = np.dtype("<i8")
        shape = (reader.meaning.rows, *reader.meaning.shape)
        options = {"compression": self._compression} if self._compression and all(shape) else {}
        made = self._group.create_dataset(path, shape, dtype, **options)
        for first, rows in row_windows(reader):
            if rows.size:
                made[first : first + len(rows)] = rows
        self._paths[block] = path

    def _natural(self, block: str) -> str:
        lane, _, name = block.partition("/")
        if block in ("reward", "done"):
            return f"{block}s"
        if not is_stepwise(self._file, block):
            return f"wshard/{block}"
        if lane == "action":
            return "actions" if name == "actions" or len(self._actions) == 1 else f"action_dict/{name}"
        if lane == "signal":
            return block.removeprefix("signal/") if name.startswith("next_obs/") else f"obs/{name}"
        return f"wshard/{block}"

    def _is_free(self, path: str) -> bool:
        """Whether a dataset of that path stands in nobody's way: no other is there, nor above, nor below."""
        parts = path.split("/")
        above = ["/".join(parts[: count + 1]) for count in range(len(parts))]
        taken = set(self._paths.values())
        below = any(other.startswith(f"{path}/") for other in taken)
        # Numbers under wshard are for those that have no free name.
        return _is_plain(path) and not below and not taken.intersection(above) and not parts[-1].isdigit()

    def _join_actions(self) -> None:
        """robomimic wants one matrix of actions. With several channels it is made of all that are flat."""
        if "actions" in self._paths.values() or not self._is_free("actions"):
            return
        flat = sorted(block for block in self._actions if is_stepwise(self._file, block))
        if flat and info_of(self._file).length:
            self._group.create_dataset("actions", data=self._joined(flat))
            self._ledger.added("actions", "the action channels side by side, as float64")

    def _joined(self, blocks: list[str]) -> Array:
        return joined_actions([(self._file[block].read(), self._file[block].meaning.dtype) for block in blocks])


def _is_plain(path: str) -> bool:
    return "\0" not in path and all(part not in ("", ".") for part in path.split("/"))


def _stored_dtype(reader: BlockReader, hint: object) -> np.dtype[Any]:
    """The type of the dataset: that of the block, or the wider one it came from."""
    dtype = reader.meaning.dtype
    natural: np.dtype[Any] = np.dtype("<u2") if dtype is DType.BF16 else dtype.numpy
    if isinstance(hint, str) and reader.entry.name in ("reward", "done"):
        try:
            wider = np.dtype(hint)
        except TypeError:
            return natural
        # Never a type that would not hold every value.
        if wider.kind in "fiub" and np.can_cast(natural, wider):
            return wider
    return natural
