"""Load a finished episode into memory, leaving nothing behind.

Every block ends up somewhere: in a field of `Episode` where the format gives it a meaning, in `extra`
otherwise; saving writes all of them back. Implements "Meaning of blocks" of docs/specs/wshard.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from warpdata.errors import EpisodeCorruptedError, LimitExceededError, NotFoundError
from warpdata.formats.wshard.block_type import DONE, REWARD, TIMESTAMPS, TRUNCATED
from warpdata.formats.wshard.byte_source import ByteSource, PathLike
from warpdata.formats.wshard.canonical_json import JsonObject, decode_object
from warpdata.formats.wshard.codecs import Codec
from warpdata.formats.wshard.container import Entry
from warpdata.formats.wshard.dtypes import Array
from warpdata.formats.wshard.identity import META_IDENTITY, META_PROVENANCE
from warpdata.formats.wshard.libraries import np
from warpdata.formats.wshard.metadata import META_CHANNELS, META_EPISODE, META_WSHARD, EpisodeInfo
from warpdata.formats.wshard.model import Block, Channel, Episode, Origin
from warpdata.formats.wshard.reader import BlockReader, WShardFile, open_wshard
from warpdata.limits import WSHARD_MAX_READ_BYTES, WSHARD_READ_EXPANSION

__all__ = ["SERIES", "load_episode"]

_META = (META_WSHARD, META_EPISODE, META_CHANNELS, META_PROVENANCE)
_GROUPS = {
    "signal": "observations",
    "action": "actions",
    "omen": "omens",
    "uncert": "uncertainties",
    "residual": "residuals",
}
SERIES = {REWARD: "rewards", DONE: "terminations", TRUNCATED: "truncations", TIMESTAMPS: "timestamps_ns"}


@dataclass(slots=True)
class _Parts:
    """What has been taken out of a file so far."""

    groups: dict[str, dict[str, Channel]] = field(default_factory=lambda: {name: {} for name in _GROUPS.values()})
    series: dict[str, Array] = field(default_factory=dict)
    extra: dict[str, Block] = field(default_factory=dict)
    kept: dict[str, bytes] = field(default_factory=dict)
    provenance: JsonObject | None = None


def load_episode(path: PathLike | ByteSource, channels: Sequence[str] | None = None) -> Episode:
    """The episode in arrays of its own, every checksum verified.

    `channels` picks some by id or block name; their predictions, and blocks not understood, then stay behind.
    """
    with open_wshard(path) as file:
        info = file.info
        if info is None:
            raise EpisodeCorruptedError(f"there is no block {META_EPISODE!r}")
        parts = _Parts()
        wanted = None if channels is None else _wanted(channels, file, info)
        names = [name for name in file.blocks if wanted is None or name in wanted or name in SERIES]
        _check_size([file[name].entry for name in names])
        for name in names:
            _take(name, file[name], info, parts)
        return _assembled(info, parts, None if wanted is not None else _origin(file, parts))


def _check_size(entries: Sequence[Entry]) -> None:
    """Each block may be as large as it may be; many of them in a small file must not fill the memory."""
    packed = [entry for entry in entries if entry.codec is not Codec.NONE]
    stored, decoded = sum(entry.stored_bytes for entry in packed), sum(entry.size_bytes for entry in packed)
    if decoded > max(WSHARD_MAX_READ_BYTES, WSHARD_READ_EXPANSION * stored):
        raise LimitExceededError(
            f"the blocks would take {decoded} bytes, decoded from {stored}: too many to load at once",
            hint="Name some channels, or read windows with open_wshard.",
        )


def _wanted(channels: Sequence[str], file: WShardFile, info: EpisodeInfo) -> set[str]:
    by_id: dict[str, list[str]] = {}
    for spec in info.channels.values():
        by_id.setdefault(spec.id, []).append(spec.block)
    out: set[str] = set()
    for name in channels:
        found = [block for block in [name, f"signal/{name}", f"action/{name}", *by_id.get(name, [])] if block in file]
        if not found:
            raise NotFoundError(f"there is no channel {name!r}", hint=f"There are: {', '.join(by_id)}.")
        out.update(found)
    return out


def _take(name: str, reader: BlockReader, info: EpisodeInfo, parts: _Parts) -> None:
    lane, _, rest = name.partition("/")
    if name in _META:
        parts.kept[name] = bytes(reader.raw())
        if name == META_PROVENANCE:
            parts.provenance = decode_object(parts.kept[name], name)
    elif name == META_IDENTITY:
        # A seal is made anew when the episode is saved; here it only has to be whole.
        reader.raw()
    elif name in SERIES:
        parts.series[SERIES[name]] = _owned(name, reader, parts)
    elif lane in _GROUPS and rest:
        spec = info.channels.get(name) or info.lanes.get(name)
        meaning = reader.meaning
        parts.groups[_GROUPS[lane]][rest] = Channel(
            spec.id if spec else rest,
            _owned(name, reader, parts),
            meaning.dtype,
            spec.attributes if spec else {},
            is_declared=meaning.is_declared,
            decoded=(spec.dtype, spec.shape) if spec is not None and "encoding" in spec.attributes else None,
        )
    else:
        parts.extra[name] = Block(bytes(reader.raw()), reader.entry.content_type, reader.entry.tags)


def _owned(name: str, reader: BlockReader, parts: _Parts) -> Array:
    array = reader.read().copy()
    if array.dtype == np.bool_ and reader.entry.size_bytes and bytes(reader.raw()) != array.tobytes():
        # True was spelled with another byte than 1, and must be spelled so again.
        parts.kept[name] = bytes(reader.raw())
    return array


def _origin(file: WShardFile, parts: _Parts) -> Origin:
    entries = (file[name].entry for name in file.blocks)
    layout = tuple((entry.name, entry.content_type, entry.tags) for entry in entries)
    return Origin(layout, parts.kept, META_IDENTITY in file)


def _assembled(info: EpisodeInfo, parts: _Parts, origin: Origin | None) -> Episode:
    if info.timebase.type == "timestamps_ns" and "timestamps_ns" not in parts.series:
        raise EpisodeCorruptedError(f"the timebase is timestamps_ns, and there is no block {TIMESTAMPS!r}")
    return Episode(
        info.id,
        info.length,
        info.env_id,
        info.timebase,
        metadata=info.metadata,
        attributes=info.attributes,
        chunk=info.chunk,
        provenance=parts.provenance,
        extra=parts.extra,
        origin=origin,
        observations=parts.groups["observations"],
        actions=parts.groups["actions"],
        omens=parts.groups["omens"],
        uncertainties=parts.groups["uncertainties"],
        residuals=parts.groups["residuals"],
        rewards=parts.series.get("rewards"),
        terminations=parts.series.get("terminations"),
        truncations=parts.series.get("truncations"),
        timestamps_ns=parts.series.get("timestamps_ns"),
    )
