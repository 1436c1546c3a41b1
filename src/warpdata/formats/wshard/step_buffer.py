"""Buffers of a recording, and the checks a step must pass before it may enter them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from warpdata.errors import BadInputError, CorruptError, LimitExceededError, SchemaMismatchError
from warpdata.formats.wshard.block_type import DONE, REWARD, TIMESTAMPS, TRUNCATED
from warpdata.formats.wshard.canonical_json import Json
from warpdata.formats.wshard.codecs import parse_compression
from warpdata.formats.wshard.dtypes import Array, DType
from warpdata.formats.wshard.libraries import np
from warpdata.formats.wshard.metadata import ChannelSpec, parse_channel
from warpdata.formats.wshard.model import Timebase
from warpdata.limits import WSHARD_MAX_RECORD_BYTES, WSHARD_STREAM_BUFFER_BYTES

__all__ = [
    "Slot",
    "buffer_rows",
    "bytes_of",
    "check_series",
    "check_value",
    "list_part",
    "make_slot",
    "parse_channels",
    "series_specs",
]

_F32_MOST = 3.4028235677973366e38


@dataclass(frozen=True, slots=True)
class Slot:
    """A channel and its buffer: `rows[n]` is the n-th step since the last flush."""

    spec: ChannelSpec
    dtypes: tuple[Any, ...]
    rows: Array


def parse_channels(channels: Sequence[Mapping[str, Any]]) -> tuple[list[ChannelSpec], dict[str, Json]]:
    specs: list[ChannelSpec] = []
    compression: dict[str, Json] = {}
    for item in channels:
        rest = dict(item)
        how = rest.pop("compression", None), rest.pop("level", None)
        if "shape" in rest:
            rest["shape"] = list(rest["shape"])
        try:
            spec = parse_channel(rest)
        except (CorruptError, NotImplementedError) as error:
            raise BadInputError(f"the channel {item!r} cannot be recorded: {error}") from error
        if not spec.block.startswith(("signal/", "action/")):
            raise BadInputError(f"the block {spec.block!r} belongs neither to signal/ nor to action/")
        if how[0] is not None:
            chosen = parse_compression(how if how[1] is not None else how[0])
            compression[spec.block] = [chosen.codec.name.lower(), chosen.level]
        specs.append(spec)
    if len({spec.id for spec in specs}) != len(specs) or len({spec.block for spec in specs}) != len(specs):
        raise BadInputError("two channels have the same id or block")
    return specs, compression


def series_specs(timebase: Timebase) -> list[ChannelSpec]:
    named = {REWARD: DType.F32, DONE: DType.BOOL, TRUNCATED: DType.BOOL}
    if timebase.type == "timestamps_ns":
        named[TIMESTAMPS] = DType.I64
    return [ChannelSpec(name, dtype, (), name) for name, dtype in named.items()]


def buffer_rows(parts: Sequence[ChannelSpec], flush_steps: int) -> int:
    """How many steps wait in memory: as many as asked for, if they fit."""
    step_bytes = sum(part.step_bytes for part in parts)
    if step_bytes > WSHARD_MAX_RECORD_BYTES:
        raise LimitExceededError(f"one step takes {step_bytes} bytes; the most is {WSHARD_MAX_RECORD_BYTES}")
    return max(1, min(flush_steps, WSHARD_STREAM_BUFFER_BYTES // step_bytes))


def list_part(spec: ChannelSpec) -> dict[str, Json]:
    own: dict[str, Json] = {"id": spec.id, "dtype": str(spec.dtype), "shape": spec.shape, "signal_block": spec.block}
    return {**spec.attributes, **own}


def make_slot(spec: ChannelSpec, rows: int) -> Slot:
    dtype = spec.dtype.numpy
    # The bits of bf16 may also be handed over as uint16.
    accepted = (dtype, np.dtype("<u2")) if spec.dtype is DType.BF16 else (dtype,)
    stored = np.dtype("<u2") if spec.dtype is DType.BF16 else dtype
    return Slot(spec, accepted, np.zeros((rows, *spec.shape), stored))


def check_value(slot: Slot, values: Mapping[str, Any]) -> Array:
    spec = slot.spec
    try:
        value = values[spec.id]
    except KeyError:
        raise SchemaMismatchError(f"the step lacks the channel {spec.id!r}") from None
    array = value if isinstance(value, np.ndarray) else np.asarray(value)
    if array.shape != spec.shape:
        raise SchemaMismatchError(f"channel {spec.id!r} has the shape {array.shape} instead of {spec.shape}")
    if array.dtype not in slot.dtypes:
        raise SchemaMismatchError(f"channel {spec.id!r} has the dtype {array.dtype} instead of {spec.dtype}")
    return array.view(np.dtype("<u2")) if spec.dtype is DType.BF16 else array


def bytes_of(rows: Array) -> memoryview:
    return rows.reshape(-1).view(np.uint8).data


def check_series(reward: float, done: bool, truncated: bool) -> None:
    """`SchemaMismatchError` unless these are a number that fits and two booleans."""
    if not isinstance(reward, int | float | np.floating | np.integer) or isinstance(reward, bool):
        raise SchemaMismatchError(f"the reward {reward!r} is not a number")
    if math.isfinite(reward) and abs(reward) > _F32_MOST:
        raise SchemaMismatchError(f"the reward {reward!r} does not fit in an f32")
    for word, value in (("done", done), ("truncated", truncated)):
        if not isinstance(value, bool | np.bool_):
            raise SchemaMismatchError(f"{word} is {value!r}, not a boolean")
