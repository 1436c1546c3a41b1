"""Metadata blocks as they are written: the newest form, or the old bytes where they still say the same.

A loaded episode that was not changed keeps its metadata to the byte, and with it its identity. Implements
"Metadata" of docs/specs/wshard.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from warpdata.errors import BadInputError, CorruptError, UnsupportedError
from warpdata.formats.wshard.block_type import default_lane
from warpdata.formats.wshard.canonical_json import decode_object, encode_json, same_json
from warpdata.formats.wshard.metadata import (
    KNOWN_MEMBERS,
    META_CHANNELS,
    META_EPISODE,
    META_WSHARD,
    ChannelSpec,
    EpisodeInfo,
    parse_channel,
    parse_info,
)
from warpdata.formats.wshard.model import Channel, ChunkPlace, Episode, Timebase
from warpdata.limits import WSHARD_MAX_STEPS

__all__ = ["encode_metadata", "episode_document", "fresh_metadata"]

_LANES = ("signal/", "action/", "omen/", "uncert/", "residual/")
_NEWEST = {"endianness": "little", "format": "W-SHARD", "residual_edges": "pad", "version": "0.1"}


def encode_metadata(episode: Episode) -> dict[str, bytes]:
    """The three metadata blocks."""
    kept = dict(episode.origin.kept) if episode.origin else {}
    before = parse_info(kept) if META_EPISODE in kept else None
    # What is written must be readable: a shape or an id that no reader accepts is refused here.
    try:
        out = _blocks(episode, kept, before)
        parse_info(out)
    except (CorruptError, UnsupportedError) as error:
        raise BadInputError(f"the episode cannot be described: {error.message}") from error
    return out


def _blocks(episode: Episode, kept: Mapping[str, bytes], before: EpisodeInfo | None) -> dict[str, bytes]:
    out: dict[str, bytes] = {}
    if before is not None and _says_the_same(before, episode):
        out.update({name: kept[name] for name in (META_WSHARD, META_EPISODE) if name in kept})
    else:
        out[META_WSHARD] = encode_json(_NEWEST)
        out[META_EPISODE] = encode_json(episode_document(episode))
    channels, lanes = _specs(episode, before)
    if before is not None and _alike(before.channels, channels) and _alike(before.lanes, lanes):
        out.update({META_CHANNELS: kept[META_CHANNELS]} if META_CHANNELS in kept else {})
    else:
        out[META_CHANNELS] = encode_json(_channels_document(channels, lanes, kept.get(META_CHANNELS)))
    return out


def fresh_metadata(document: Mapping[str, Any], channels: Sequence[ChannelSpec]) -> dict[str, bytes]:
    """The three blocks of a new episode, from its `meta/episode` document."""
    return {
        META_WSHARD: encode_json(_NEWEST),
        META_EPISODE: encode_json(document),
        META_CHANNELS: encode_json({"channels": [_declaration(spec) for spec in channels]}),
    }


def episode_document(episode: Episode) -> dict[str, Any]:
    """`meta/episode` in its newest form."""
    if not 0 <= episode.length <= WSHARD_MAX_STEPS:
        raise BadInputError(f"the episode has {episode.length} steps")
    if taken := KNOWN_MEMBERS & set(episode.attributes):
        raise BadInputError(f"attributes cannot hold {', '.join(sorted(taken))}, which have fields of their own")
    document: dict[str, Any] = {
        **episode.attributes,
        "episode_id": episode.id,
        "env_id": episode.env_id,
        "length_T": episode.length,
        "timebase": _timebase_document(episode.timebase),
        **_place_document(episode.chunk, episode.length),
    }
    if episode.metadata:
        document["metadata"] = episode.metadata
    return document


def _says_the_same(before: EpisodeInfo, episode: Episode) -> bool:
    same = (before.id, before.env_id, before.length) == (episode.id, episode.env_id, episode.length)
    placed = before.timebase == episode.timebase and before.chunk == episode.chunk
    words = same_json(before.metadata, episode.metadata) and same_json(before.attributes, episode.attributes)
    return same and placed and words


def _timebase_document(timebase: Timebase) -> dict[str, Any]:
    if timebase.type == "timestamps_ns":
        return {"type": "timestamps_ns"}
    if timebase.type != "ticks":
        raise BadInputError(f"the timebase {timebase.type!r} is neither ticks nor timestamps_ns")
    document: dict[str, Any] = {"type": "ticks"}
    rate, step = timebase.tick_hz, timebase.dt_ns
    if (rate is not None and not 0 < rate < math.inf) or (step is not None and step <= 0):
        raise BadInputError(f"the timebase {timebase} has a rate that is not positive")
    if rate is not None:
        document["tick_hz"] = rate
        step = _rounded_step(rate) if step is None else step
    if step:
        document["dt_ns"] = step
    return document


def _rounded_step(rate: float) -> int:
    try:
        return round(1e9 / rate)
    except OverflowError as error:
        raise BadInputError(f"the rate {str(rate)[:40]} is beyond measure: a step of it has no length in ns") from error


def _place_document(place: ChunkPlace | None, length: int) -> dict[str, Any]:
    if place is None:
        return {}
    named = {"chunk_index": place.index, "total_chunks": place.total}
    out: dict[str, Any] = {key: value for key, value in named.items() if value is not None}
    if length:
        out["timestep_range"] = [place.first_step, place.first_step + length - 1]
    return out


def _specs(episode: Episode, before: EpisodeInfo | None) -> tuple[dict[str, ChannelSpec], dict[str, ChannelSpec]]:
    """Declarations of channels, in the order they had before, and of those lanes whose name tells too little."""
    known = before.channels if before is not None else {}
    told = before.lanes if before is not None else {}
    # Where a block is declared twice, the channel counts.
    old = {**known, **{name: spec for name, spec in told.items() if name not in known}}
    found = {name: _spec(name, channel, old) for name, channel in episode.lanes().items() if channel.is_declared}
    found = {**_strays(episode, old), **found}
    names = [name for name in old if name in found] + [name for name in found if name not in old]
    channels = {name: found[name] for name in names if name in known or (name not in told and _is_channel(name))}
    info = EpisodeInfo(episode.id, "", episode.length, Timebase(), None, {}, {}, channels, {})
    lanes = {name: told[name] if name in channels else found[name] for name in told if name in found}
    for name in names:
        if name in channels or name in lanes or name.startswith("residual/"):
            continue
        spec = found[name]
        default = default_lane(name, spec.step_bytes * episode.length, info)
        if default != (spec.dtype, spec.shape) or spec.attributes:
            lanes[name] = spec
    return channels, lanes


def _is_channel(name: str) -> bool:
    return name.startswith(("signal/", "action/"))


def _strays(episode: Episode, old: Mapping[str, ChannelSpec]) -> dict[str, ChannelSpec]:
    """Declarations of what never was a channel of the episode, such as of a block that the file does not have."""
    names = {name for name, _, _ in episode.origin.layout} if episode.origin else set()
    return {name: spec for name, spec in old.items() if name not in names or not _is_lane(name)}


def _is_lane(name: str) -> bool:
    return name.startswith(_LANES) and name not in _LANES


def _spec(name: str, channel: Channel, old: Mapping[str, ChannelSpec]) -> ChannelSpec:
    if "encoding" in channel.attributes:
        # The declaration tells of decoded frames, which the bytes here do not show.
        if name in old:
            return replace(old[name], attributes=channel.attributes)
        dtype, shape = channel.decoded or (channel.stored_dtype, ())
        return ChannelSpec(channel.id, dtype, shape, name, channel.attributes)
    return ChannelSpec(channel.id, channel.stored_dtype, channel.step_shape, name, channel.attributes)


def _alike(before: Mapping[str, ChannelSpec], now: Mapping[str, ChannelSpec]) -> bool:
    return list(before) == list(now) and all(
        _entry_key(before[name]) == _entry_key(now[name]) and same_json(before[name].attributes, now[name].attributes)
        for name in now
    )


def _entry_key(spec: ChannelSpec) -> tuple[object, ...]:
    shape = () if "encoding" in spec.attributes else spec.shape
    return spec.id, None if "encoding" in spec.attributes else spec.dtype, shape, spec.block


def _channels_document(
    channels: Mapping[str, ChannelSpec], lanes: Mapping[str, ChannelSpec], old: bytes | None
) -> dict[str, Any]:
    before = decode_object(old, META_CHANNELS) if old is not None else {}
    # Members we do not know stand beside a list; in the older form every member is a channel.
    rest = (
        {key: value for key, value in before.items() if key not in ("channels", "lanes")}
        if "channels" in before
        else {}
    )
    document = {**rest, "channels": [_declaration(spec) for spec in channels.values()]}
    if lanes:
        document["lanes"] = [_declaration(spec) for spec in lanes.values()]
    return document


def _declaration(spec: ChannelSpec) -> dict[str, Any]:
    item: dict[str, Any] = {
        **spec.attributes,
        "id": spec.id,
        "dtype": str(spec.dtype),
        "shape": list(spec.shape),
        "signal_block": spec.block,
    }
    parse_channel(item)
    return item
