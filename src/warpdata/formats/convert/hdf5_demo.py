"""One demo of a robomimic file: the mapping of its datasets to blocks, and its attributes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from warpdata.errors import BadInputError, CorruptError, InvalidSourceError
from warpdata.formats.convert.episode_fields import SERIES_BLOCKS, Array, widen_bf16
from warpdata.formats.convert.output import make_unique, source_errors
from warpdata.formats.convert.report import ConversionLog
from warpdata.formats.convert.sidecar import Sidecar, SidecarBlock, read_sidecar
from warpdata.formats.wshard import Block, Channel, DType, Episode, RowSource
from warpdata.primitives.strict_json import decode_json

__all__ = ["HINTS", "DemoReader", "default_env_args", "join_actions", "read_attributes"]

HINTS = "robomimic"
"""The member of `meta/episode` in which an import stores everything of a file that is not an array."""

_GYM = 2
"""The number of Gym environments in robomimic."""
_MAX_DEPTH = 16
_LANES = ("signal/", "action/", "omen/", "uncert/")


class DemoReader:
    """Reads one demo, and records an outcome for every dataset and attribute."""

    def __init__(self, h5py: Any, group: Any, where: str, log: ConversionLog) -> None:
        self._h5py, self._group, self._where, self._log = h5py, group, where, log
        self._attributes, self._unreadable = read_attributes(group)
        self._sidecar: Sidecar | None = None
        if "wshard" in self._attributes:
            self._sidecar = read_sidecar(self._attributes["wshard"], where)
        self._hints: dict[str, Any] = {"paths": {}, "dtypes": {}}
        self._series: dict[str, Any] = {}
        self._extra: dict[str, Block] = {}
        self._residuals: dict[str, Channel] = {}
        self._undeclared: dict[str, dict[str, Channel]] = {"signal": {}, "action": {}, "omen": {}, "uncert": {}}
        self._rows: dict[str, RowSource] = {}
        self._provenance: Any = None
        self._joined: Any = None

    @property
    def has_sidecar(self) -> bool:
        """True if `export_hdf5` wrote the demo, with a sidecar that describes the episode."""
        return self._sidecar is not None

    def read(self, name: str, env_args: str | None, masks: list[str]) -> tuple[Episode, dict[str, RowSource]]:
        """Return the episode without its large arrays, and sources for their rows."""
        datasets, unreadable = self._list_datasets()
        attributes = [*self._attributes, *self._unreadable]
        self._log.open([*datasets, *unreadable, *(f"@{key}" for key in attributes)])
        for path, why in unreadable.items():
            self._log.lost(path, why)
        length = self._length(datasets)
        for path, dataset in datasets.items():
            self._read_dataset(path, dataset, length)
        self._check_joined_actions(length)
        self._record_attributes(length)
        if self._sidecar is not None:
            episode = replace(self._sidecar.episode, length=length)
            episode = replace(episode, attributes=_updated_attributes(episode, env_args, masks))
        else:
            hints = {key: value for key, value in self._hints.items() if value}
            known = {key: value for key, value in self._attributes.items() if key != "num_samples"}
            hints |= {"demo": name, "attributes": known, "masks": masks, "env_args": env_args or ""}
            episode = Episode(name, length, attributes={HINTS: hints})
        complete = replace(
            episode,
            observations=self._undeclared["signal"],
            actions=self._undeclared["action"],
            omens=self._undeclared["omen"],
            uncertainties=self._undeclared["uncert"],
            residuals=self._residuals,
            extra=self._extra,
            provenance=self._provenance,
            **self._series,
        )
        return complete, self._rows

    def _list_datasets(self) -> tuple[dict[str, Any], dict[str, str]]:
        """Return all datasets by path, and the unreadable ones with the reason."""
        datasets: dict[str, Any] = {}
        unreadable: dict[str, str] = {}
        for path, found in self._walk(self._group, "", 0):
            if isinstance(found, str):
                unreadable[path] = found
                continue
            if found.ndim < 1 or found.is_virtual or found.external:
                unreadable[path] = "it has no steps" if found.ndim < 1 else "its values are in another file"
                continue
            try:
                DType.of(found.dtype)
                datasets[path] = found
            except BadInputError:
                unreadable[path] = f"an episode has no element type for {found.dtype}"
        return datasets, unreadable

    def _walk(self, group: Any, above: str, depth: int) -> Iterator[tuple[str, Any]]:
        for name in group:
            path = f"{above}{name}"
            if not isinstance(group.get(name, getlink=True), self._h5py.HardLink):
                yield path, "links are not followed"
            elif isinstance(group[name], self._h5py.Dataset):
                yield path, group[name]
            elif depth == _MAX_DEPTH or not isinstance(group[name], self._h5py.Group):
                yield path, "it is nested too deeply, or no dataset"
            else:
                yield from self._walk(group[name], f"{path}/", depth + 1)

    def _length(self, datasets: dict[str, Any]) -> int:
        count = self._attributes.get("num_samples")
        if isinstance(count, int) and not isinstance(count, bool) and count >= 0:
            return count
        for path in ("actions", *datasets):
            if path in datasets:
                return len(datasets[path])
        raise InvalidSourceError(f"{self._where} has no datasets")

    def _read_dataset(self, path: str, dataset: Any, length: int) -> None:
        stored = {entry.path: (block, entry) for block, entry in self._sidecar.blocks.items()} if self._sidecar else {}
        if path in stored:
            self._read_stored(path, dataset, *stored[path])
        elif self._sidecar is not None and path == "actions":
            self._joined = dataset
        elif len(dataset) != length:
            self._log.lost(path, "it has another number of rows than num_samples")
        elif path in ("rewards", "dones") and dataset.ndim == 1 and self._read_series(path, dataset):
            return
        else:
            block = self._block_of(path)
            self._rows[block] = _row_source(dataset, DType.of(dataset.dtype), SidecarBlock(path, None))
            swapped = dataset.dtype.byteorder == ">"
            record = self._log.changed if swapped else self._log.kept
            record(path, f"as {block}" + (", in little-endian order" if swapped else ""))

    def _check_joined_actions(self, length: int) -> None:
        """Drop the matrix that an export makes of several action channels, if it follows from them."""
        if self._joined is None:
            return
        # An export joins the channels with one row for each step only.
        rows = [self._rows[block] for block in sorted(self._rows) if block.startswith("action/")]
        parts = [
            (source.read(0, length), source.dtype)
            for source in rows
            if source.rows == length and "encoding" not in source.attributes
        ]
        if parts and length and join_actions(parts).tobytes() == self._joined[:].tobytes():
            self._log.kept("actions", "it follows from the action channels, and an export writes it again")
        else:
            self._log.lost("actions", "it differs from the action channels, which are read instead")

    def _read_stored(self, path: str, dataset: Any, block: str, entry: SidecarBlock) -> None:
        lane, _, name = block.partition("/")
        if block in SERIES_BLOCKS:
            member, dtype = SERIES_BLOCKS[block]
            stored = dtype if entry.dtype is None else entry.dtype
            # bf16 is stored as its bits.
            self._series[member] = dataset[:].astype(np.dtype("<u2") if stored is DType.BF16 else stored.numpy)
        elif block.startswith(_LANES) and entry.dtype is not None:
            self._rows[block] = _row_source(dataset, entry.dtype, entry)
        elif block.startswith(("residual/", *_LANES)):
            channel = Channel(entry.channel_id or name, dataset[:], DType.U8, entry.attributes, is_declared=False)
            (self._residuals if lane == "residual" else self._undeclared[lane])[name] = channel
        elif block == "meta/provenance":
            self._provenance = self._read_json(dataset)
        else:
            self._extra[block] = Block(dataset[:].tobytes(), entry.content_type, entry.tags)
        self._log.kept(path, f"as {block}")

    def _read_json(self, dataset: Any) -> Any:
        try:
            return decode_json(dataset[:].tobytes(), f"{self._where}: meta/provenance")
        except CorruptError as error:
            raise InvalidSourceError(error.message) from error

    def _read_series(self, path: str, dataset: Any) -> bool:
        values: Array = dataset[:]
        if path == "dones":
            if not bool(((values == 0) | (values == 1)).all()):
                return False
            self._series["terminations"] = values != 0
            block, exact = "done", True
        else:
            with np.errstate(over="ignore"):
                self._series["rewards"] = values.astype(np.float32)
            back = self._series["rewards"].astype(values.dtype)
            block, exact = "reward", bool(np.array_equal(back, values, equal_nan=values.dtype.kind == "f"))
        natural = SERIES_BLOCKS[block][1].numpy
        if values.dtype == natural:
            self._log.kept(path, f"as {block}")
        else:
            self._hints["dtypes"][block] = values.dtype.str
            accuracy = "every value is exact, and an export widens it again" if exact else "values are rounded"
            self._log.changed(path, f"{values.dtype} became {natural} in {block}; {accuracy}")
        return True

    def _block_of(self, path: str) -> str:
        """Return the block for a dataset, and store its path if an export could not derive it."""
        taken = set(self._rows)
        if path == "actions" or path.startswith("action_dict/"):
            return make_unique(f"action/{path.removeprefix('action_dict/')}", taken)
        block = make_unique(f"signal/{path.removeprefix('obs/')}", taken)
        if not path.startswith(("obs/", "next_obs/")) or block != f"signal/{path.removeprefix('obs/')}":
            self._hints["paths"][block] = path
        return block

    def _record_attributes(self, length: int) -> None:
        for key in self._unreadable:
            self._log.lost(f"@{key}", "only text, numbers and booleans are kept")
        for key, value in self._attributes.items():
            if key == "num_samples" and value == length:
                self._log.kept("@num_samples", "as the length of the episode")
            elif key == "wshard" or self._sidecar is None:
                self._log.kept(f"@{key}", "in meta/episode")
            else:
                self._record_foreign_attribute(key, value)

    def _record_foreign_attribute(self, key: str, value: object) -> None:
        """Record an attribute beside the sidecar: from the hints of an export, or added later by other tools."""
        assert self._sidecar is not None
        hints = self._sidecar.episode.attributes.get(HINTS)
        known = hints.get("attributes") if isinstance(hints, dict) else None
        if isinstance(known, dict) and known.get(key) == value:
            self._log.kept(f"@{key}", "in meta/episode")
        else:
            self._log.lost(f"@{key}", "the attribute wshard describes the episode, and does not contain it")


def default_env_args(env_id: str) -> str:
    """Return the `env_args` that an export writes if robomimic gave none."""
    return json.dumps({"env_name": env_id, "type": _GYM, "env_kwargs": {}})


def _updated_attributes(episode: Episode, env_args: str | None, masks: list[str]) -> dict[str, Any]:
    """Return the attributes of an exported episode, with changes that robomimic's tools made since the export."""
    found = episode.attributes.get(HINTS)
    before = found if isinstance(found, dict) else {}
    changes: dict[str, Any] = {}
    if masks != before.get("masks", []):
        changes["masks"] = masks
    if env_args and env_args not in (before.get("env_args"), default_env_args(episode.env_id)):
        changes["env_args"] = env_args
    return {**episode.attributes, HINTS: {**before, **changes}} if changes else dict(episode.attributes)


def join_actions(parts: Sequence[tuple[Array, DType]]) -> Array:
    """Concatenate action channels along the last axis, as float64."""
    values = [widen_bf16(array) if dtype is DType.BF16 else array for array, dtype in parts]
    with np.errstate(invalid="ignore"):
        return np.concatenate([part.reshape(len(part), -1).astype(np.float64) for part in values], axis=1)


def read_attributes(node: Any) -> tuple[dict[str, Any], set[str]]:
    """Return the attributes that JSON can hold exactly, and the names of the others."""
    plain: dict[str, Any] = {}
    unreadable: set[str] = set()
    for name in node.attrs:
        value = node.attrs[name]
        if isinstance(value, str):
            plain[name] = value
        elif isinstance(value, np.bool_):
            plain[name] = bool(value)
        elif isinstance(value, np.int64):
            plain[name] = int(value)
        elif isinstance(value, np.float64) and np.isfinite(value):
            plain[name] = float(value)
        else:
            unreadable.add(name)
    return plain, unreadable


def _row_source(dataset: Any, dtype: DType, entry: SidecarBlock) -> RowSource:
    shape = tuple(int(size) for size in dataset.shape[1:])

    def read(start: int, stop: int) -> Array:
        with source_errors(dataset.name):
            rows: Array = dataset[start:stop]
            return rows

    return RowSource(dtype, shape, len(dataset), read, entry.attributes, entry.channel_id)
