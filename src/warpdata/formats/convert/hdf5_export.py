"""Export of episodes into one HDF5 file for robomimic: `data/demo_N` with `obs`, `actions`, `rewards`, `dones`.

Everything that robomimic cannot hold goes under `data/demo_N/wshard` and into an attribute `wshard`, which robomimic
ignores. Only the seal of a file is lost.
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
    find_spec,
    is_stepwise,
    is_usual_series,
    iterate_rows,
    list_fields,
    open_episode,
    require_info,
)
from warpdata.formats.convert.hdf5_demo import HINTS, default_env_args, join_actions
from warpdata.formats.convert.output import list_sources, make_unique, new_output
from warpdata.formats.convert.report import ConversionLog, ConversionReport
from warpdata.formats.convert.sidecar import write_sidecar
from warpdata.formats.wshard import BlockReader, DType, WShardFile
from warpdata.primitives.extras import require
from warpdata.primitives.paths import check_path

__all__ = ["export_hdf5"]


def export_hdf5(
    sources: Iterable[str | Path], target: str | Path, *, compression: str | None = None
) -> ConversionReport:
    """Write episodes into one file, in the given order. Memory is a few MiB, or the largest compressed block.

    `compression` is one of HDF5's own, such as `gzip` or `lzf`.
    """
    h5py = require("h5py", purpose="writing HDF5", extra="hdf5")
    log, paths = ConversionLog("wshard", "hdf5"), list_sources(sources)
    masks: dict[str, list[str]] = {}
    total, env_args, env_id, taken = 0, None, "", set[str]()
    with new_output(check_path(target)) as staged, h5py.File(staged, "w") as out:
        data = out.create_group("data")
        for number, source in enumerate(paths):
            with open_episode(source) as file:
                hints = _hints(file)
                name = make_unique(hints.get("demo", f"demo_{number}"), taken)
                total += _Demo(file, data.create_group(name), compression, log).write(hints)
                env_args = env_args or hints.get("env_args")
                env_id = env_id or require_info(file).env_id
                for mask in hints.get("masks", ()):
                    masks.setdefault(mask, []).append(name)
        if not taken:
            raise BadInputError("there are no episodes to write")
        data.attrs["total"] = total
        if env_args is None:
            log.open((), is_shared=True)
            log.added("data@env_args", "a Gym environment with the first env_id of an episode")
            log.close()
        data.attrs["env_args"] = env_args or default_env_args(env_id)
        for mask, names in masks.items():
            out.create_dataset(f"mask/{mask}", data=np.array([name.encode() for name in names]))
    log.wrote(check_path(target))
    return log.report()


def _hints(file: WShardFile) -> dict[str, Any]:
    """Return the members that an import stored, if they still have the expected form."""
    found = require_info(file).attributes.get(HINTS)
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
    """Writes one episode into its group."""

    def __init__(self, file: WShardFile, group: Any, compression: str | None, log: ConversionLog) -> None:
        self._file, self._group, self._compression, self._log = file, group, compression, log
        self._paths: dict[str, str] = {}
        self._actions = [block for block in file.blocks if block.startswith("action/")]

    def write(self, hints: dict[str, Any]) -> int:
        """Write the episode, record an outcome for each field, and return the number of steps."""
        file, log = self._file, self._log
        info = require_info(file)
        fields = list_fields(file)
        log.open(fields)
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
                log.lost(field, "a seal is valid only for its own file")
            elif field in self._paths:
                log.kept(field, f"as {self._paths[field]}" if len(self._paths[field]) < 80 else "")
            else:
                self._record_attributes(field)
        log.close(info.length)
        return info.length

    def _record_attributes(self, field: str) -> None:
        block = field.removesuffix(".attributes")
        spec = find_spec(require_info(self._file), block) if field == attributes_field(block) else None
        if spec is not None and "encoding" in spec.attributes and (spec.dtype is not DType.U8 or spec.shape):
            self._log.changed(field, "the declared type and shape of decoded frames are dropped")
        else:
            self._log.kept(field, "in the attribute wshard")

    def _add(self, block: str, hints: dict[str, Any]) -> None:
        reader = self._file[block]
        wanted = hints.get("paths", {}).get(block) or self._default_path(block)
        path = wanted if isinstance(wanted, str) and self._is_free(wanted) else f"wshard/{len(self._paths)}"
        dtype = _stored_dtype(reader, hints.get("dtypes", {}).get(block))
        if block == "done" and not hints.get("dtypes") and is_usual_series(self._file, block):
            # robomimic writes int64, with the values 0 and 1.
            dtype = np.dtype("<i8")
        shape = (reader.block_type.rows, *reader.block_type.shape)
        options = {"compression": self._compression} if self._compression and all(shape) else {}
        dataset = self._group.create_dataset(path, shape, dtype, **options)
        for first, rows in iterate_rows(reader):
            if rows.size:
                dataset[first : first + len(rows)] = rows
        self._paths[block] = path

    def _default_path(self, block: str) -> str:
        lane, _, name = block.partition("/")
        if block in ("reward", "done") and is_usual_series(self._file, block):
            return f"{block}s"
        if not is_stepwise(self._file, block):
            return f"wshard/{block}"
        if lane == "action":
            return "actions" if name == "actions" or len(self._actions) == 1 else f"action_dict/{name}"
        if lane == "signal":
            return block.removeprefix("signal/") if name.startswith("next_obs/") else f"obs/{name}"
        return f"wshard/{block}"

    def _is_free(self, path: str) -> bool:
        """Return whether no other dataset has this path, or one above or below it."""
        parts = path.split("/")
        above = ["/".join(parts[: count + 1]) for count in range(len(parts))]
        taken = set(self._paths.values())
        below = any(other.startswith(f"{path}/") for other in taken)
        # Numbers under wshard are for blocks without a free name.
        return _is_plain(path) and not below and not taken.intersection(above) and not parts[-1].isdigit()

    def _join_actions(self) -> None:
        """Write the single matrix of actions that robomimic expects, from all stepwise action channels."""
        if "actions" in self._paths.values() or not self._is_free("actions"):
            return
        flat = sorted(block for block in self._actions if is_stepwise(self._file, block))
        if flat and require_info(self._file).length:
            self._group.create_dataset("actions", data=self._joined(flat))
            self._log.added("actions", "the action channels concatenated, as float64")

    def _joined(self, blocks: list[str]) -> Array:
        return join_actions([(self._file[block].read(), self._file[block].block_type.dtype) for block in blocks])


def _is_plain(path: str) -> bool:
    return "\0" not in path and all(part not in ("", ".") for part in path.split("/"))


def _stored_dtype(reader: BlockReader, hint: object) -> np.dtype[Any]:
    """Return the dtype of the dataset: that of the block, or the wider one that it was imported from."""
    dtype = reader.block_type.dtype
    natural: np.dtype[Any] = np.dtype("<u2") if dtype is DType.BF16 else dtype.numpy
    if isinstance(hint, str) and reader.entry.name in ("reward", "done"):
        try:
            wider = np.dtype(hint)
        except TypeError:
            return natural
        # Use the hint only if it holds every value.
        if wider.kind in "fiub" and np.can_cast(natural, wider):
            return wider
    return natural
