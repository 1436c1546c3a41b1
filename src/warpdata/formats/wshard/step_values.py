"""The values of one step of a recording: declared channels, their buffers, and checks of what a caller passes.

The stream writer decides when buffers become records of the journal. Implements the steps of "Recording" of
docs/specs/wshard.md.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from warpdata.errors import BadInputError, CorruptError, LimitExceededError, SchemaMismatchError
from warpdata.formats.wshard.array_input import is_bf16_tensor, to_array
from warpdata.formats.wshard.block_type import DONE, REWARD, SERIES_DTYPES, TIMESTAMPS, TRUNCATED
from warpdata.formats.wshard.canonical_json import Json
from warpdata.formats.wshard.codecs import parse_compression
from warpdata.formats.wshard.dtypes import Array, DType, np
from warpdata.formats.wshard.metadata import ChannelSpec, parse_channel
from warpdata.formats.wshard.model import Timebase
from warpdata.limits import MIB, WSHARD_MAX_RECORD_BYTES

__all__ = [
    "ChannelBuffer",
    "buffer_rows",
    "bytes_of",
    "check_flag",
    "check_reward",
    "check_timestamp",
    "check_value",
    "make_buffer",
    "parse_channels",
    "part_document",
    "series_specs",
]

_BUFFER_BYTES = 16 * MIB
_F32_MAX = 3.4028235677973366e38
_LANES = ("signal/", "action/", "omen/", "uncert/")


@dataclass(frozen=True, slots=True)
class ChannelBuffer:
    """The buffered rows of one channel: `rows[n]` is the n-th step since the last flush."""

    spec: ChannelSpec
    dtypes: tuple[Any, ...]
    rows: Array


def parse_channels(channels: Sequence[Mapping[str, Any]]) -> tuple[list[ChannelSpec], dict[str, Json]]:
    specs: list[ChannelSpec] = []
    compression: dict[str, Json] = {}
    given: object = channels
    if not isinstance(given, list | tuple):
        raise BadInputError(f"the channels are a {type(given).__name__}, not a list of mappings")
    for item in channels:
        if not isinstance(item, Mapping):
            raise BadInputError(f"the channel {item!r} is not a mapping with id, dtype and shape")
        rest = dict(item)
        codec, level = rest.pop("compression", None), rest.pop("level", None)
        if isinstance(rest.get("shape"), tuple):
            rest["shape"] = list(rest["shape"])
        try:
            spec = parse_channel(rest)
        except (CorruptError, NotImplementedError) as error:
            raise BadInputError(f"the channel {item!r} cannot be recorded: {error}") from error
        if not spec.block.startswith(_LANES) or spec.block in _LANES:
            raise BadInputError(f"the block {spec.block!r} is not in one of {', '.join(_LANES)}")
        if codec is not None:
            parsed = parse_compression((codec, level) if level is not None else codec)
            compression[spec.block] = [parsed.codec.name.lower(), parsed.level]
        specs.append(spec)
    if len({spec.id for spec in specs}) != len(specs) or len({spec.block for spec in specs}) != len(specs):
        raise BadInputError("two channels have the same id or block")
    return specs, compression


def series_specs(timebase: Timebase) -> list[ChannelSpec]:
    names = [REWARD, DONE, TRUNCATED, *([TIMESTAMPS] if timebase.type == "timestamps_ns" else [])]
    return [ChannelSpec(name, SERIES_DTYPES[name], (), name) for name in names]


def buffer_rows(parts: Sequence[ChannelSpec], flush_steps: int) -> int:
    """Return the number of steps to buffer: `flush_steps`, or fewer if they would not fit."""
    step_bytes = sum(part.step_bytes for part in parts)
    if step_bytes > WSHARD_MAX_RECORD_BYTES:
        raise LimitExceededError(f"one step takes {step_bytes} bytes; the most is {WSHARD_MAX_RECORD_BYTES}")
    return max(1, min(flush_steps, _BUFFER_BYTES // step_bytes))


def part_document(spec: ChannelSpec) -> dict[str, Json]:
    own: dict[str, Json] = {"id": spec.id, "dtype": str(spec.dtype), "shape": spec.shape, "signal_block": spec.block}
    return {**spec.attributes, **own}


def make_buffer(spec: ChannelSpec, rows: int) -> ChannelBuffer:
    dtype = spec.dtype.numpy
    # bf16 values may also be passed as uint16 with the same bits.
    accepted = (dtype, np.dtype("<u2")) if spec.dtype is DType.BF16 else (dtype,)
    stored = np.dtype("<u2") if spec.dtype is DType.BF16 else dtype
    return ChannelBuffer(spec, accepted, np.zeros((rows, *spec.shape), stored))


def check_value(buffer: ChannelBuffer, values: Mapping[str, Any]) -> Array:
    spec = buffer.spec
    try:
        value = values[spec.id]
    except KeyError:
        raise SchemaMismatchError(f"the step lacks the channel {spec.id!r}") from None
    if type(value) is np.ndarray:
        array = value
    else:
        array = to_array(value, f"channel {spec.id!r}", spec.dtype)
        if is_bf16_tensor(value) and spec.dtype is not DType.BF16:
            raise SchemaMismatchError(f"channel {spec.id!r} has the dtype bf16 instead of {spec.dtype}")
    if array.shape != spec.shape:
        raise SchemaMismatchError(f"channel {spec.id!r} has the shape {array.shape} instead of {spec.shape}")
    if array.dtype not in buffer.dtypes:
        raise SchemaMismatchError(f"channel {spec.id!r} has the dtype {array.dtype} instead of {spec.dtype}")
    return array.view(np.dtype("<u2")) if spec.dtype is DType.BF16 else array


def bytes_of(rows: Array) -> memoryview:
    return rows.reshape(-1).view(np.uint8).data


def check_reward(reward: Any) -> float:
    if isinstance(reward, bool) or not isinstance(reward, int | float | np.floating | np.integer):
        reward = _unwrap("the reward", reward)
        if not isinstance(reward, int | float) or isinstance(reward, bool):
            raise SchemaMismatchError(f"the reward {reward!r} is not a number")
    try:
        number = float(reward)
    except OverflowError:
        raise SchemaMismatchError("the reward is an integer that does not fit in an f32") from None
    if math.isfinite(number) and abs(number) > _F32_MAX:
        raise SchemaMismatchError(f"the reward {reward!r} does not fit in an f32")
    return number


def check_flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool | np.bool_):
        value = _unwrap(name, value)
        if not isinstance(value, bool):
            raise SchemaMismatchError(f"{name} is {value!r}, not a boolean")
    return bool(value)


def check_timestamp(value: Any) -> int:
    try:
        number = operator.index(value)
    except (TypeError, ValueError):
        number = None
    if number is None or isinstance(value, bool):
        raise SchemaMismatchError(f"timestamp_ns is {value!r}, not an integer")
    if not -(2**63) <= number < 2**63:
        raise SchemaMismatchError("timestamp_ns does not fit in 64 bits")
    return number


def _unwrap(what: str, value: Any) -> Any:
    """Return the number in an array or tensor without axes."""
    if isinstance(value, str | bytes | bool | list | tuple) or value is None:
        raise SchemaMismatchError(f"{what} is {value!r}, not a single number")
    array = to_array(value, what)
    if array.shape:
        raise SchemaMismatchError(f"{what} has the shape {array.shape}, not a single number")
    return array.item()
