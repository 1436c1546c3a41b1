"""One demo of a robomimic file: which dataset becomes which block, and what it said beside them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from warpdata.errors import BadInputError, CorruptError, InvalidSourceError
from warpdata.formats.convert.episode_fields import Array, widened
from warpdata.formats.convert.output_dir import free_name
from warpdata.formats.convert.report import Ledger
from warpdata.formats.convert.sidecar import Kept, Sidecar, read_sidecar
from warpdata.formats.wshard import Block, Channel, DType, Episode, RowSource
from warpdata.primitives.strict_json import decode_json

__all__ = ["HINTS", "DemoReader", "attributes_of", "joined_actions", "made_env_args"]

HINTS = "robomimic"
"""The member of `meta/episode` in which an import remembers what a file said beside its arrays."""

_GYM = 2
"""The number robomimic gives to environments of Gym."""
_MAX_DEPTH = 16
_LANES = ("signal/", "action/", "omen/", "uncert/")
_SERIES = {
    "reward": ("rewards", np.dtype("<f4")),
    "done": ("terminations", np.dtype(np.bool_)),
    "truncated": ("truncations", np.dtype(np.bool_)),
    "time/timestamps_ns": ("timestamps_ns", np.dtype("<i8")),
}


class DemoReader:
    """Reads a group and accounts for every dataset and attribute in it."""

    def __init__(self, h5py: Any, group: Any, where: str, ledger: Ledger) -> None:
        self._h5py, self._group, self._where, self._ledger = h5py, group, where, ledger
        self._attributes, self._odd = attributes_of(group)
        self._sidecar: Sidecar | None = None
        if "wshard" in self._attributes:
            self._sidecar = read_sidecar(self._attributes["wshard"], where)
        self._hints: dict[str, Any] = {"paths": {}, "dtypes": {}}
        self._series: dict[str, Any] = {}
        self._extra: dict[str, Block] = {}
        self._residuals: dict[str, Channel] = {}
        self._bare: dict[str, dict[str, Channel]] = {"signal": {}, "action": {}, "omen": {}, "uncert": {}}
        self._rows: dict[str, RowSource] = {}
        self._provenance: Any = None
        self._joined: Any = None

    @property
    def is_ours(self) -> bool:
        """Whether an export of ours wrote it, and said how to make the episode again."""
        return self._sidecar is not None

    def read(self, name: str, env_args: str | None, masks: list[str]) -> tuple[Episode, dict[str, RowSource]]:
        """The episode without its large arrays, and where their rows are."""
        datasets, odd = self._inventory()
        attributes = [*self._attributes, *self._odd]
        self._ledger.open([*datasets, *odd, *(f"@{key}" for key in attributes)])
        for path, why in odd.items():
            self._ledger.lost(path, why)
        length = self._length(datasets)
        for path, dataset in datasets.items():
            self._take(path, dataset, length)
        self._settle_joined()
        self._settle_attributes(length)
        if self._sidecar is not None:
            episode = replace(self._sidecar.episode, length=length)
            episode = replace(episode, attributes=_with_news(episode, env_args, masks))
        else:
            hints = {key: value for key, value in self._hints.items() if value}
            known = {key: value for key, value in self._attributes.items() if key != "num_samples"}
            hints |= {"demo": name, "attributes": known, "masks": masks, "env_args": env_args or ""}
            episode = Episode(name, length, attributes={HINTS: hints})
        made = replace(
            episode,
            observations=self._bare["signal"],
            actions=self._bare["action"],
            omens=self._bare["omen"],
            uncertainties=self._bare["uncert"],
            residuals=self._residuals,
            extra=self._extra,
            provenance=self._provenance,
            **self._series,
        )
        return made, self._rows

    def _inventory(self) -> tuple[dict[str, Any], dict[str, str]]:
        """All datasets by path, and what cannot be read with the reason."""
        datasets: dict[str, Any] = {}
        odd: dict[str, str] = {}
        for path, found in self._walk(self._group, "", 0):
            if isinstance(found, str):
                odd[path] = found
                continue
            if found.ndim < 1 or found.is_virtual or found.external:
                odd[path] = "it has no steps" if found.ndim < 1 else "its values lie in another file"
                continue
            try:
                DType.of(found.dtype)
                datasets[path] = found
            except BadInputError:
                odd[path] = f"an episode has no element type for {found.dtype}"
        return datasets, odd

    def _walk(self, group: Any, above: str, depth: int) -> Iterator[tuple[str, Any]]:
        for name in group:
            path = f"{above}{name}"
            if not isinstance(group.get(name, getlink=True), self._h5py.HardLink):
                yield path, "a link to elsewhere is not followed"
            elif isinstance(group[name], self._h5py.Dataset):
                yield path, group[name]
            elif depth == _MAX_DEPTH or not isinstance(group[name], self._h5py.Group):
                yield path, "it is nested too deeply, or not data"
            else:
                yield from self._walk(group[name], f"{path}/", depth + 1)

    def _length(self, datasets: dict[str, Any]) -> int:
        told = self._attributes.get("num_samples")
        if isinstance(told, int) and not isinstance(told, bool) and told >= 0:
            return told
        for path in ("actions", *datasets):
            if path in datasets:
                return len(datasets[path])
        raise InvalidSourceError(f"{self._where} holds no data")

    def _take(self, path: str, dataset: Any, length: int) -> None:
        kept = {entry.path: (block, entry) for block, entry in self._sidecar.blocks.items()} if self._sidecar else {}
        if path in kept:
            self._take_ours(path, dataset, *kept[path])
        elif self._sidecar is not None and path == "actions":
            self._joined = dataset
        elif len(dataset) != length:
            self._ledger.lost(path, "it has another number of rows than num_samples")
        elif path in ("rewards", "dones") and dataset.ndim == 1 and self._take_series(path, dataset):
            return
        else:
            block = self._block_of(path)
            self._rows[block] = _rows(dataset, DType.of(dataset.dtype), Kept(path, None))
            swapped = dataset.dtype.byteorder == ">"
            settle = self._ledger.changed if swapped else self._ledger.kept
            settle(path, f"as {block}" + (", in little-endian order" if swapped else ""))

    def _settle_joined(self) -> None:
        """The matrix that an export makes of several action channels is dropped only where it can be made again."""
        if self._joined is None:
            return
        blocks = sorted(block for block in self._rows if block.startswith("action/"))
        rows = [self._rows[block] for block in blocks]
        parts = [(source.read(0, source.rows), source.dtype) for source in rows]
        same = (
            len({source.rows for source in rows}) == 1 and joined_actions(parts).tobytes() == self._joined[:].tobytes()
        )
        if same:
            self._ledger.kept("actions", "it follows from the action channels, and is made anew by an export")
        else:
            self._ledger.lost("actions", "it is not what the action channels say, and those are read")

    def _take_ours(self, path: str, dataset: Any, block: str, entry: Kept) -> None:
        lane, _, name = block.partition("/")
        if block in _SERIES:
            member, dtype = _SERIES[block]
            self._series[member] = dataset[:].astype(dtype)
        elif block.startswith(_LANES) and entry.dtype is not None:
            self._rows[block] = _rows(dataset, entry.dtype, entry)
        elif block.startswith(("residual/", *_LANES)):
            channel = Channel(entry.channel_id or name, dataset[:], DType.U8, entry.attributes, is_declared=False)
            (self._residuals if lane == "residual" else self._bare[lane])[name] = channel
        elif block == "meta/provenance":
            self._provenance = self._read_json(dataset)
        else:
            self._extra[block] = Block(dataset[:].tobytes(), entry.content_type, entry.tags)
        self._ledger.kept(path, f"as {block}")

    def _read_json(self, dataset: Any) -> Any:
        try:
            return decode_json(dataset[:].tobytes(), f"{self._where}: meta/provenance")
        except CorruptError as error:
            raise InvalidSourceError(error.message) from error

    def _take_series(self, path: str, dataset: Any) -> bool:
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
        natural = _SERIES[block][1]
        if values.dtype == natural:
            self._ledger.kept(path, f"as {block}")
        else:
            self._hints["dtypes"][block] = values.dtype.str
            ending = "every value is exact, and an export widens it again" if exact else "and was rounded"
            self._ledger.changed(path, f"{values.dtype} became {natural} in {block}; {ending}")
        return True

    def _block_of(self, path: str) -> str:
        """The block for a dataset of robomimic, and a note where an export would not find the way back."""
        taken = set(self._rows)
        if path == "actions" or path.startswith("action_dict/"):
            return free_name(f"action/{path.removeprefix('action_dict/')}", taken)
        block = free_name(f"signal/{path.removeprefix('obs/')}", taken)
        if not path.startswith(("obs/", "next_obs/")) or block != f"signal/{path.removeprefix('obs/')}":
            self._hints["paths"][block] = path
        return block

    def _settle_attributes(self, length: int) -> None:
        for key in self._odd:
            self._ledger.lost(f"@{key}", "only text, numbers and booleans are kept")
        for key, value in self._attributes.items():
            if key == "num_samples" and value == length:
                self._ledger.kept("@num_samples", "as the length of the episode")
            elif key == "wshard" or self._sidecar is None:
                self._ledger.kept(f"@{key}", "in meta/episode")
            else:
                self._settle_known(key, value)

    def _settle_known(self, key: str, value: object) -> None:
        """An attribute beside ours: an export of ours wrote it from the hints, or somebody added it later."""
        assert self._sidecar is not None
        hints = self._sidecar.episode.attributes.get(HINTS)
        known = hints.get("attributes") if isinstance(hints, dict) else None
        if isinstance(known, dict) and known.get(key) == value:
            self._ledger.kept(f"@{key}", "in meta/episode")
        else:
            self._ledger.lost(f"@{key}", "the attribute wshard tells the episode, and does not name it")


def made_env_args(env_id: str) -> str:
    """What an export says of an environment of which robomimic has said nothing."""
    return json.dumps({"env_name": env_id, "type": _GYM, "env_kwargs": {}})


def _with_news(episode: Episode, env_args: str | None, masks: list[str]) -> dict[str, Any]:
    """The attributes of an episode of ours, and what robomimic's tools said of it since it was exported."""
    found = episode.attributes.get(HINTS)
    before = found if isinstance(found, dict) else {}
    news: dict[str, Any] = {}
    if masks != before.get("masks", []):
        news["masks"] = masks
    if env_args and env_args not in (before.get("env_args"), made_env_args(episode.env_id)):
        news["env_args"] = env_args
    return {**episode.attributes, HINTS: {**before, **news}} if news else dict(episode.attributes)


def joined_actions(parts: Sequence[tuple[Array, DType]]) -> Array:
    """Action channels side by side, as float64."""
    values = [widened(array) if dtype is DType.BF16 else array for array, dtype in parts]
    with np.errstate(invalid="ignore"):
        return np.concatenate([part.reshape(len(part), -1).astype(np.float64) for part in values], axis=1)


def attributes_of(thing: Any) -> tuple[dict[str, Any], set[str]]:
    """Attributes that JSON can hold as they are, and the names of the others."""
    plain: dict[str, Any] = {}
    odd: set[str] = set()
    for name in thing.attrs:
        value = thing.attrs[name]
        if isinstance(value, str):
            plain[name] = value
        elif isinstance(value, np.bool_):
            plain[name] = bool(value)
        elif isinstance(value, np.int64):
            plain[name] = int(value)
        elif isinstance(value, np.float64) and np.isfinite(value):
            plain[name] = float(value)
        else:
            odd.add(name)
    return plain, odd


def _rows(dataset: Any, dtype: DType, entry: Kept) -> RowSource:
    shape = tuple(int(size) for size in dataset.shape[1:])
    return RowSource(dtype, shape, len(dataset), lambda a, b: dataset[a:b], entry.attributes, entry.channel_id)
