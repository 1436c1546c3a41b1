"""Loading of an episode into memory, from a finished file or from the journal of a running recording.

Every block ends up in a field of `Episode` if the format defines its meaning, and in `extra` otherwise. Saving writes
all of them back. Implements "Block types" of docs/specs/wshard.md.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from warpdata.errors import BadInputError, CorruptError, LimitExceededError, NotFoundError
from warpdata.formats.wshard.block_type import DONE, GROUPS, REWARD, SERIES, TIMESTAMPS, TRUNCATED
from warpdata.formats.wshard.canonical_json import JsonObject, decode_object
from warpdata.formats.wshard.chunk_join import join_episodes
from warpdata.formats.wshard.chunk_manifest import is_chunk_manifest
from warpdata.formats.wshard.codecs import Codec
from warpdata.formats.wshard.container import BlockEntry
from warpdata.formats.wshard.dtypes import Array, decode_array, np
from warpdata.formats.wshard.episode_file import find_chunks
from warpdata.formats.wshard.identity import META_IDENTITY, META_PROVENANCE
from warpdata.formats.wshard.journal import JOURNAL_MAGIC, Journal, read_journal
from warpdata.formats.wshard.metadata import (
    META_CHANNELS,
    META_EPISODE,
    META_WSHARD,
    ChannelSpec,
    EpisodeInfo,
    parse_info,
)
from warpdata.formats.wshard.model import Block, Channel, Episode, Origin
from warpdata.formats.wshard.reader import BlockReader, WShardFile, open_file
from warpdata.formats.wshard.recovery import journal_metadata, open_journal
from warpdata.formats.wshard.source import PathLike
from warpdata.limits import WSHARD_MAX_READ_BYTES, WSHARD_READ_EXPANSION
from warpdata.primitives.paths import check_path
from warpdata.primitives.suggest import suggest
from warpdata.storage import RangeSource

__all__ = ["load_wshard"]

_META = (META_WSHARD, META_EPISODE, META_CHANNELS, META_PROVENANCE)


def load_wshard(path: PathLike | RangeSource, channels: Sequence[str] | None = None) -> Episode:
    """Load the episode into arrays of its own, with every checksum verified.

    `channels` selects some by id or block name, without predictions and uninterpreted blocks. A journal (`….partial`)
    gives the steps flushed so far, also while it is being written. The path of a chunk manifest loads all its chunks,
    verified and joined.
    """
    if channels is not None and not _is_names(channels):
        raise BadInputError(f"channels={channels!r} is not a list of names", hint="Pass a list, such as ['state'].")
    if isinstance(path, str | os.PathLike):
        if _is_journal(check_path(path)):
            with open_journal(check_path(path)) as handle:
                return _load_journal(handle, channels)
        if is_chunk_manifest(path):
            chunks = find_chunks(check_path(path), is_verified=True)
            return join_episodes([load_wshard(chunk, channels) for chunk in chunks])
    with open_file(path) as file:
        return _load_file(file, channels)


def _is_names(value: object) -> bool:
    if not isinstance(value, Collection) or isinstance(value, str | bytes):
        return False
    return all(isinstance(name, str) for name in value)


@dataclass(slots=True)
class _Contents:
    """The blocks read from a file so far."""

    groups: dict[str, dict[str, Channel]] = field(default_factory=lambda: {name: {} for name in GROUPS.values()})
    series: dict[str, Array] = field(default_factory=dict)
    extra: dict[str, Block] = field(default_factory=dict)
    verbatim: dict[str, bytes] = field(default_factory=dict)
    provenance: JsonObject | None = None


def _load_file(file: WShardFile, channels: Sequence[str] | None) -> Episode:
    info = file.info
    if info is None:
        raise CorruptError(f"there is no block {META_EPISODE!r}")
    contents = _Contents()
    selected = None if channels is None else _select(channels, file, info)
    names = [name for name in file.blocks if selected is None or name in selected or name in SERIES]
    _check_size([file[name].entry for name in names])
    for name in names:
        _read_block(name, file[name], info, contents)
    series = {name: spec for name in names if name in SERIES and (spec := _spec(name, info)) is not None}
    if selected is None:
        return _make_episode(info, contents, replace(_origin(file, contents), series=series))
    return _make_episode(info, contents, Origin(series=series) if series else None)


def _check_size(entries: Sequence[BlockEntry]) -> None:
    """Bound the sum of all decoded blocks. Each block has its own bound, but a small file may hold many."""
    packed = [entry for entry in entries if entry.codec is not Codec.NONE]
    stored, decoded = sum(entry.stored_bytes for entry in packed), sum(entry.size_bytes for entry in packed)
    if decoded > max(WSHARD_MAX_READ_BYTES, WSHARD_READ_EXPANSION * stored):
        raise LimitExceededError(
            f"the blocks would take {decoded} bytes, decoded from {stored}: too many to load at once",
            hint="Name some channels, or read windows with open_wshard.",
        )


def _select(channels: Sequence[str], file: WShardFile, info: EpisodeInfo) -> set[str]:
    by_id: dict[str, list[str]] = {}
    for spec in info.channels.values():
        by_id.setdefault(spec.id, []).append(spec.block)
    out: set[str] = set()
    for name in channels:
        found = [block for block in [name, f"signal/{name}", f"action/{name}", *by_id.get(name, [])] if block in file]
        if not found:
            raise NotFoundError(f"there is no channel {name!r}", hint=suggest(name, by_id, label="Channels"))
        out.update(found)
    return out


def _read_block(name: str, reader: BlockReader, info: EpisodeInfo, contents: _Contents) -> None:
    lane, _, rest = name.partition("/")
    if name in _META:
        contents.verbatim[name] = bytes(reader.raw())
        if name == META_PROVENANCE:
            contents.provenance = decode_object(contents.verbatim[name], name)
    elif name == META_IDENTITY:
        # Saving computes a new seal. Here only its checksum is verified.
        reader.raw()
    elif name in SERIES:
        contents.series[SERIES[name]] = _copy_array(name, reader, contents)
    elif lane in GROUPS and rest:
        spec = _spec(name, info)
        block_type = reader.block_type
        contents.groups[GROUPS[lane]][rest] = Channel(
            spec.id if spec else rest,
            _copy_array(name, reader, contents),
            block_type.dtype,
            spec.attributes if spec else {},
            is_declared=block_type.is_declared,
            decoded=(spec.dtype, spec.shape) if spec is not None and "encoding" in spec.attributes else None,
        )
    else:
        contents.extra[name] = Block(bytes(reader.raw()), reader.entry.content_type, reader.entry.tags)


def _spec(name: str, info: EpisodeInfo) -> ChannelSpec | None:
    return info.channels.get(name) or info.lanes.get(name)


def _copy_array(name: str, reader: BlockReader, contents: _Contents) -> Array:
    array = reader.read().copy()
    if array.dtype == np.bool_ and reader.entry.size_bytes and bytes(reader.raw()) != array.tobytes():
        # The file stores true as another byte than 1. Saving must write the same bytes.
        contents.verbatim[name] = bytes(reader.raw())
    return array


def _origin(file: WShardFile, contents: _Contents) -> Origin:
    entries = (file[name].entry for name in file.blocks)
    layout = tuple((entry.name, entry.content_type, entry.tags) for entry in entries)
    return Origin(layout, contents.verbatim, META_IDENTITY in file)


def _make_episode(info: EpisodeInfo, contents: _Contents, origin: Origin | None) -> Episode:
    if info.timebase.type == "timestamps_ns" and "timestamps_ns" not in contents.series:
        raise CorruptError(f"the timebase is timestamps_ns, but there is no block {TIMESTAMPS!r}")
    return Episode(
        info.id,
        info.length,
        info.env_id,
        info.timebase,
        metadata=info.metadata,
        attributes=info.attributes,
        chunk=info.chunk,
        provenance=contents.provenance,
        extra=contents.extra,
        origin=origin,
        observations=contents.groups["observations"],
        actions=contents.groups["actions"],
        omens=contents.groups["omens"],
        uncertainties=contents.groups["uncertainties"],
        residuals=contents.groups["residuals"],
        rewards=contents.series.get("rewards"),
        terminations=contents.series.get("terminations"),
        truncations=contents.series.get("truncations"),
        timestamps_ns=contents.series.get("timestamps_ns"),
    )


def _is_journal(path: Path) -> bool:
    # The reader of finished files explains why a path cannot be opened.
    with suppress(OSError), path.open("rb") as file:
        return file.read(len(JOURNAL_MAGIC)) == JOURNAL_MAGIC
    return False


def _load_journal(handle: int, channels: Sequence[str] | None) -> Episode:
    journal = read_journal(handle)
    info = parse_info(journal_metadata(journal))
    parts = dict(_read_parts(journal, handle, channels))
    if channels is not None:
        known = {name for block, channel in parts.items() for name in (block, channel.id)}
        if unknown := set(channels) - known:
            raise BadInputError(f"there are no channels {', '.join(sorted(unknown))} in the journal")
    series = {name: parts[name].data if name in parts else None for name in (REWARD, DONE, TRUNCATED, TIMESTAMPS)}
    return Episode(
        info.id,
        info.length,
        info.env_id,
        info.timebase,
        observations=_group(parts, "signal/"),
        actions=_group(parts, "action/"),
        omens=_group(parts, "omen/"),
        uncertainties=_group(parts, "uncert/"),
        rewards=series[REWARD],
        terminations=series[DONE],
        truncations=series[TRUNCATED],
        timestamps_ns=series[TIMESTAMPS],
        metadata=info.metadata,
        attributes=info.attributes,
    )


def _read_parts(journal: Journal, handle: int, channels: Sequence[str] | None) -> Iterator[tuple[str, Channel]]:
    for number, part in enumerate(journal.parts):
        is_channel = "/" in part.block and part.block != TIMESTAMPS
        if channels is not None and is_channel and not {part.id, part.block} & set(channels):
            continue
        data = b"".join(journal.pieces(handle, number))
        rows = decode_array(data, part.dtype, (journal.step_count, *part.shape)).copy()
        yield part.block, Channel(part.id, rows, part.dtype, part.attributes)


def _group(parts: Mapping[str, Channel], prefix: str) -> dict[str, Channel]:
    return {name.removeprefix(prefix): channel for name, channel in parts.items() if name.startswith(prefix)}
