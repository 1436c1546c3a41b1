"""Encoding of the metadata blocks: the newest form, or the old bytes if their content did not change.

A loaded episode that was not changed keeps its metadata byte for byte, and so its identity. Implements "Metadata"
of docs/specs/wshard.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from warpdata.errors import BadInputError, CorruptError, UnsupportedError
from warpdata.formats.wshard.block_type import SERIES, default_lane
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

__all__ = ["encode_metadata", "make_episode_document", "make_metadata"]

_LANES = ("signal/", "action/", "omen/", "uncert/", "residual/")
_NEWEST = {"endianness": "little", "format": "W-SHARD", "residual_edges": "pad", "version": "0.1"}


def encode_metadata(episode: Episode) -> dict[str, bytes]:
    """Encode the three metadata blocks, and refuse content that no reader accepts."""
    verbatim = dict(episode.origin.verbatim) if episode.origin else {}
    before = parse_info(verbatim) if META_EPISODE in verbatim else None
    try:
        out = _blocks(episode, verbatim, before)
        parse_info(out)
    except (CorruptError, UnsupportedError) as error:
        raise BadInputError(f"the episode cannot be described: {error.message}") from error
    return out


def _blocks(episode: Episode, verbatim: Mapping[str, bytes], before: EpisodeInfo | None) -> dict[str, bytes]:
    out: dict[str, bytes] = {}
    if before is not None and _is_unchanged(before, episode):
        out.update({name: verbatim[name] for name in (META_WSHARD, META_EPISODE) if name in verbatim})
    else:
        out[META_WSHARD] = encode_json(_NEWEST)
        out[META_EPISODE] = encode_json(make_episode_document(episode))
    channels, lanes = _specs(episode, before)
    if before is not None and _same_specs(before.channels, channels) and _same_specs(before.lanes, lanes):
        out.update({META_CHANNELS: verbatim[META_CHANNELS]} if META_CHANNELS in verbatim else {})
    else:
        out[META_CHANNELS] = encode_json(_channels_document(channels, lanes, verbatim.get(META_CHANNELS)))
    return out


def make_metadata(
    document: Mapping[str, Any], channels: Sequence[ChannelSpec], lanes: Sequence[ChannelSpec] = ()
) -> dict[str, bytes]:
    """Encode the three blocks of a new episode, from its `meta/episode` document."""
    by_block = {spec.block: spec for spec in channels}
    info = EpisodeInfo("", "", document["length_T"], Timebase(), None, {}, {}, by_block, {})
    needed = {spec.block: spec for spec in lanes if _must_declare(spec.block, spec, info)}
    return {
        META_WSHARD: encode_json(_NEWEST),
        META_EPISODE: encode_json(document),
        META_CHANNELS: encode_json(_channels_document(by_block, needed, None)),
    }


def make_episode_document(episode: Episode) -> dict[str, Any]:
    """Return `meta/episode` in its newest form."""
    if not 0 <= episode.length <= WSHARD_MAX_STEPS:
        raise BadInputError(f"the episode has {episode.length} steps; 0 to {WSHARD_MAX_STEPS} are possible")
    for name, members in (("attributes", episode.attributes), ("metadata", episode.metadata)):
        if not isinstance(members, Mapping):
            raise BadInputError(f"{name} is a {type(members).__name__}, not a mapping")
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


def _is_unchanged(before: EpisodeInfo, episode: Episode) -> bool:
    same = (before.id, before.env_id, before.length) == (episode.id, episode.env_id, episode.length)
    placed = before.timebase == episode.timebase and before.chunk == episode.chunk
    members = same_json(before.metadata, episode.metadata) and same_json(before.attributes, episode.attributes)
    return same and placed and members


def _timebase_document(timebase: Timebase) -> dict[str, Any]:
    if timebase.type == "timestamps_ns":
        return {"type": "timestamps_ns"}
    if timebase.type != "ticks":
        raise BadInputError(f"the timebase {timebase.type!r} is neither ticks nor timestamps_ns")
    document: dict[str, Any] = {"type": "ticks"}
    rate, step = timebase.tick_hz, timebase.dt_ns
    if not isinstance(rate, int | float | None) or not isinstance(step, int | None):
        raise BadInputError(f"the timebase {timebase} has a rate that is not a number")
    if (rate is not None and not 0 < rate < math.inf) or (step is not None and step <= 0):
        raise BadInputError(f"the timebase {timebase} has a rate that is not positive")
    if rate is not None:
        document["tick_hz"] = rate
        step = _rounded_step_ns(rate) if step is None else step
    if step:
        document["dt_ns"] = step
    return document


def _rounded_step_ns(rate: float) -> int:
    try:
        return round(1e9 / rate)
    except OverflowError as error:
        raise BadInputError(f"the rate {str(rate)[:40]} has no step length in nanoseconds") from error


def _place_document(place: ChunkPlace | None, length: int) -> dict[str, Any]:
    if place is None:
        return {}
    members = {"chunk_index": place.index, "total_chunks": place.total}
    out: dict[str, Any] = {key: value for key, value in members.items() if value is not None}
    if length:
        out["timestep_range"] = [place.first_step, place.first_step + length - 1]
    return out


def _specs(episode: Episode, before: EpisodeInfo | None) -> tuple[dict[str, ChannelSpec], dict[str, ChannelSpec]]:
    """Return declarations of channels in their old order, and of lanes whose type does not follow from their name."""
    old_channels = before.channels if before is not None else {}
    old_lanes = before.lanes if before is not None else {}
    # If a block is declared as both, the channel takes precedence.
    old = {**old_channels, **{name: spec for name, spec in old_lanes.items() if name not in old_channels}}
    found = {name: _spec(name, channel, old) for name, channel in episode.lanes().items() if channel.is_declared}
    found = {**_unused_specs(episode, old), **found, **_series_specs(episode)}
    names = [name for name in old if name in found] + [name for name in found if name not in old]
    channels = {
        name: found[name] for name in names if name in old_channels or (name not in old_lanes and _is_channel(name))
    }
    info = EpisodeInfo(episode.id, "", episode.length, Timebase(), None, {}, {}, channels, {})
    lanes = {name: old_lanes[name] if name in channels else found[name] for name in old_lanes if name in found}
    for name in names:
        if name in channels or name in lanes or name.startswith("residual/"):
            continue
        if name in SERIES or _must_declare(name, found[name], info):
            lanes[name] = found[name]
    return channels, lanes


def _must_declare(name: str, spec: ChannelSpec, info: EpisodeInfo) -> bool:
    """Return whether the type or the id of a prediction does not follow from its name."""
    default = default_lane(name, spec.step_bytes * info.length, info)
    is_named = spec.id == name.partition("/")[2]
    return default != (spec.dtype, spec.shape) or bool(spec.attributes) or not is_named


def _is_channel(name: str) -> bool:
    return name.startswith(("signal/", "action/"))


def _unused_specs(episode: Episode, old: Mapping[str, ChannelSpec]) -> dict[str, ChannelSpec]:
    """Return declarations of blocks that are no channel of the episode, such as blocks absent from the file."""
    names = {name for name, _, _ in episode.origin.layout} if episode.origin else set()
    series = {name for name, member in SERIES.items() if getattr(episode, member) is not None}
    unused = {name: spec for name, spec in old.items() if name not in names or not _is_lane(name)}
    return {name: spec for name, spec in unused.items() if name not in series}


def _series_specs(episode: Episode) -> dict[str, ChannelSpec]:
    """Return the declarations of series that still apply. A series of the usual type needs none."""
    found = {name: episode.declared_series(name) for name in SERIES}
    return {name: spec for name, spec in found.items() if spec is not None}


def _is_lane(name: str) -> bool:
    return name.startswith(_LANES) and name not in _LANES


def _spec(name: str, channel: Channel, old: Mapping[str, ChannelSpec]) -> ChannelSpec:
    if "encoding" in channel.attributes:
        # The declaration describes decoded frames, which the stored bytes do not show.
        if name in old:
            return replace(old[name], attributes=channel.attributes)
        dtype, shape = channel.decoded or (channel.stored_dtype, ())
        return ChannelSpec(channel.id, dtype, shape, name, channel.attributes)
    return ChannelSpec(channel.id, channel.stored_dtype, channel.step_shape, name, channel.attributes)


def _same_specs(before: Mapping[str, ChannelSpec], now: Mapping[str, ChannelSpec]) -> bool:
    return list(before) == list(now) and all(
        _spec_key(before[name]) == _spec_key(now[name]) and same_json(before[name].attributes, now[name].attributes)
        for name in now
    )


def _spec_key(spec: ChannelSpec) -> tuple[object, ...]:
    shape = () if "encoding" in spec.attributes else spec.shape
    return spec.id, None if "encoding" in spec.attributes else spec.dtype, shape, spec.block


def _channels_document(
    channels: Mapping[str, ChannelSpec], lanes: Mapping[str, ChannelSpec], old: bytes | None
) -> dict[str, Any]:
    before = decode_object(old, META_CHANNELS) if old is not None else {}
    # Unknown members exist beside the list only; in the older form every member is a channel.
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
