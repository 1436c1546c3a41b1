"""Parsing of the metadata blocks, in all their forms, into one value.

Lengths, shapes and counts are bounded before they are multiplied. Implements "Metadata" of docs/specs/wshard.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from warpdata.errors import CorruptError, UnsupportedError
from warpdata.formats.wshard.canonical_json import JsonObject, decode_object, is_count
from warpdata.formats.wshard.dtypes import DType
from warpdata.formats.wshard.model import ChunkPlace, Timebase
from warpdata.limits import WSHARD_MAX_CHANNELS, WSHARD_MAX_DIMENSIONS, WSHARD_MAX_STEPS
from warpdata.primitives.cached_property import cached_property
from warpdata.primitives.reprs import short_repr

__all__ = [
    "KNOWN_MEMBERS",
    "META_CHANNELS",
    "META_EPISODE",
    "META_WSHARD",
    "ChannelSpec",
    "EpisodeInfo",
    "parse_channel",
    "parse_info",
]

META_WSHARD, META_EPISODE, META_CHANNELS = "meta/wshard", "meta/episode", "meta/channels"
KNOWN_MEMBERS = {
    "episode_id",
    "id",
    "env_id",
    "length_T",
    "length_t",
    "timebase",
    "chunk_index",
    "total_chunks",
    "timestep_range",
    "metadata",
}
_DTYPES = frozenset(map(str, DType))
_VERSIONS = (1, "1", "0.1")
_MAX_DIMENSION = 2**31 - 1
_ROUNDING = 1e-6


@dataclass(frozen=True, slots=True)
class ChannelSpec:
    """The declaration of one block: its element type and the shape of one step."""

    id: str
    dtype: DType
    shape: tuple[int, ...]
    block: str
    attributes: JsonObject = field(default_factory=dict)

    @property
    def step_bytes(self) -> int:
        return math.prod(self.shape) * self.dtype.size_bytes


@dataclass(frozen=True)
class EpisodeInfo:
    """The content of the metadata blocks. `channels` and `lanes` are keyed by block name, in file order."""

    id: str
    env_id: str
    length: int
    timebase: Timebase
    chunk: ChunkPlace | None
    metadata: JsonObject
    attributes: JsonObject
    channels: Mapping[str, ChannelSpec]
    lanes: Mapping[str, ChannelSpec]

    def __repr__(self) -> str:
        return short_repr("EpisodeInfo", self.id, length=self.length, channels=list(self.channels))

    @cached_property
    def by_id(self) -> Mapping[str, ChannelSpec]:
        """Channels by id; the first one if several share an id."""
        return {spec.id: spec for spec in reversed([*self.channels.values()])}

    @cached_property
    def id_lengths(self) -> frozenset[int]:
        """The lengths of all channel ids, in characters."""
        return frozenset(map(len, self.by_id))


def parse_info(blocks: Mapping[str, bytes]) -> EpisodeInfo:
    """Parse `meta/episode`, with `meta/wshard` and `meta/channels` if they exist."""
    if META_EPISODE not in blocks:
        raise CorruptError(f"there is no block {META_EPISODE!r}")
    episode = decode_object(blocks[META_EPISODE], META_EPISODE)
    shard = decode_object(blocks[META_WSHARD], META_WSHARD) if META_WSHARD in blocks else {}
    _check_version(shard)
    length: Any = episode.get("length_T", episode.get("length_t"))
    if not is_count(length, WSHARD_MAX_STEPS):
        raise CorruptError(f"{META_EPISODE} has the length {length!r}")
    name, env = episode.get("episode_id", episode.get("id")), episode.get("env_id", "")
    user = episode.get("metadata", {})
    if not isinstance(name, str) or not isinstance(env, str) or not isinstance(user, dict):
        raise CorruptError(f"{META_EPISODE} has no proper episode_id, env_id or metadata")
    channels, lanes = _parse_channels(blocks.get(META_CHANNELS))
    return EpisodeInfo(
        name,
        env,
        length,
        _timebase(episode.get("timebase"), shard.get("timebase")),
        _place(episode, length),
        user,
        {key: value for key, value in episode.items() if key not in KNOWN_MEMBERS},
        channels,
        lanes,
    )


def _check_version(shard: dict[str, Any]) -> None:
    version = shard.get("version", shard.get("wshard_version", 1))
    if isinstance(version, bool) or version not in _VERSIONS:
        raise UnsupportedError(f"{META_WSHARD} has the version {version!r}")
    if shard.get("endianness", "little") != "little":
        raise UnsupportedError(f"{META_WSHARD} has the endianness {shard['endianness']!r}")


def _timebase(of_episode: Any, of_shard: Any) -> Timebase:
    """Prefer `meta/episode`; take the rate of `meta/wshard` if it agrees with the rounded `dt_ns`."""
    timebase, fallback = _one_timebase(of_episode, META_EPISODE), _one_timebase(of_shard, META_WSHARD)
    if timebase is None:
        return fallback or Timebase()
    exact = fallback.tick_hz if fallback is not None and timebase.type == fallback.type == "ticks" else None
    if timebase.tick_hz is None and exact is not None:
        agrees = timebase.dt_ns is None or abs(timebase.dt_ns * exact / 1e9 - 1) < _ROUNDING
        return Timebase(timebase.type, exact if agrees else None, timebase.dt_ns)
    return timebase


def _one_timebase(value: Any, what: str) -> Timebase | None:
    if value is None:
        return None
    if not isinstance(value, dict) or value.get("type", "ticks") not in ("ticks", "timestamps_ns"):
        raise CorruptError(f"{what} has the timebase {value!r}")
    rate, step = value.get("tick_hz"), value.get("dt_ns")
    is_rate = rate is None or (isinstance(rate, int | float) and not isinstance(rate, bool) and 0 <= rate < math.inf)
    if not is_rate or (step is not None and not is_count(step, 2**63 - 1)):
        raise CorruptError(f"{what} has the timebase {value!r}")
    try:
        # Some writers put 0 for an unknown rate.
        return Timebase(value.get("type", "ticks"), float(rate) if rate else None, step or None)
    except OverflowError as error:
        raise CorruptError(f"the rate of {what} does not fit in float64") from error


def _place(episode: dict[str, Any], length: int) -> ChunkPlace | None:
    index, total, span = episode.get("chunk_index"), episode.get("total_chunks"), episode.get("timestep_range")
    for count in (index, total):
        if count is not None and not is_count(count, WSHARD_MAX_STEPS):
            raise CorruptError(f"{META_EPISODE} is chunk {index!r} of {total!r}")
    first = 0
    if span is not None:
        if not (
            isinstance(span, list) and len(span) == 2 and all(is_count(item, 2 * WSHARD_MAX_STEPS) for item in span)
        ):
            raise CorruptError(f"{META_EPISODE} has the timestep_range {span!r}")
        first, last = span
        # The end is exclusive in old complete episodes, and inclusive in chunks.
        if last - first not in (length, length - 1):
            raise CorruptError(f"{META_EPISODE} has {length} steps in the timestep_range {span!r}")
    return None if index is None and total is None and not first else ChunkPlace(index, total, first)


def _parse_channels(data: bytes | None) -> tuple[dict[str, ChannelSpec], dict[str, ChannelSpec]]:
    if data is None:
        return {}, {}
    document = decode_object(data, META_CHANNELS)
    listed = document.get("channels")
    if "channels" not in document:
        # In the older form, block names are the keys.
        listed = [{"signal_block": name, **_object(value)} for name, value in document.items() if name != "lanes"]
    return _by_block(listed), _by_block(document.get("lanes", []))


def _by_block(listed: Any) -> dict[str, ChannelSpec]:
    if not isinstance(listed, list) or len(listed) > WSHARD_MAX_CHANNELS:
        raise CorruptError(f"{META_CHANNELS} does not hold a list of channels")
    specs = [parse_channel(_object(item)) for item in listed]
    out = {spec.block: spec for spec in specs}
    if len(out) != len(specs):
        raise CorruptError(f"{META_CHANNELS} describes one block twice")
    return out


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise CorruptError(f"{META_CHANNELS} has {value!r} instead of the object of a channel")
    return value


def parse_channel(item: dict[str, Any]) -> ChannelSpec:
    """Parse one declaration of `meta/channels`."""
    rest = dict(item)
    block, name = rest.pop("signal_block", None), rest.pop("id", None)
    if name is None and isinstance(block, str):
        name = block.partition("/")[2] or block
    block = f"signal/{name}" if block is None else block
    if not isinstance(name, str) or not isinstance(block, str) or not name or not block:
        raise CorruptError(f"{META_CHANNELS} has a channel without a proper id: {name!r}, {block!r}")
    dtype, shape = rest.pop("dtype", None), rest.pop("shape", [])
    if not isinstance(dtype, str) or dtype not in _DTYPES:
        raise UnsupportedError(f"channel {name!r} has the dtype {dtype!r}, which the format does not have")
    is_shape = isinstance(shape, list) and len(shape) <= WSHARD_MAX_DIMENSIONS
    if not is_shape or not all(is_count(size, _MAX_DIMENSION) for size in shape):
        raise CorruptError(f"channel {name!r} has the shape {shape!r}")
    return ChannelSpec(name, DType(dtype), tuple(shape), block, rest)
