"""The parts of an episode that a foreign format cannot hold, as one JSON text inside the foreign file.

It holds the members of `meta/episode`, and for each block the data needed to rebuild it from the foreign file. Other
readers ignore it. A sidecar is foreign input, and checked like any other.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from warpdata.errors import CorruptError, InvalidSourceError
from warpdata.formats.convert.episode_fields import META_BLOCKS, SERIES_BLOCKS, find_spec, require_info
from warpdata.formats.wshard import ChannelSpec, ChunkPlace, DType, Episode, Origin, Timebase, WShardFile
from warpdata.primitives.strict_json import decode_json

__all__ = ["Sidecar", "SidecarBlock", "read_sidecar", "write_sidecar"]


@dataclass(frozen=True, slots=True)
class SidecarBlock:
    """The location and type of a block in the foreign file. `dtype` is None for uninterpreted bytes."""

    path: str
    dtype: DType | None
    shape: tuple[int, ...] = ()
    channel_id: str | None = None
    attributes: Mapping[str, Any] = field(default_factory=dict)
    content_type: int = 0
    tags: int = 0


@dataclass(frozen=True, slots=True)
class Sidecar:
    """An episode without its arrays, and the locations of its blocks."""

    episode: Episode
    blocks: Mapping[str, SidecarBlock]


def write_sidecar(file: WShardFile, paths: Mapping[str, str]) -> str:
    """Return the sidecar. `paths` has the location of each block that the foreign file holds."""
    info = require_info(file)
    blocks: dict[str, Any] = {}
    for block, path in paths.items():
        entry, spec, block_type = file[block].entry, find_spec(info, block), file[block].block_type
        item: dict[str, Any] = {"path": path, "content_type": entry.content_type, "tags": entry.tags}
        if block_type.is_declared:
            item.update(dtype=str(block_type.dtype), shape=list(block_type.shape))
        if spec is not None:
            item.update(id=spec.id, attributes=spec.attributes)
        blocks[block] = item
    timebase = info.timebase
    document: dict[str, Any] = {
        "v": 1,
        "episode_id": info.id,
        "env_id": info.env_id,
        "length": info.length,
        "timebase": {"type": timebase.type, "tick_hz": timebase.tick_hz, "dt_ns": timebase.dt_ns},
        "metadata": info.metadata,
        "attributes": info.attributes,
        "blocks": blocks,
    }
    if info.chunk is not None:
        document["chunk"] = [info.chunk.index, info.chunk.total, info.chunk.first_step]
    return json.dumps(document, sort_keys=True, default=dict, allow_nan=False)


def read_sidecar(text: object, where: str) -> Sidecar:
    """Parse a sidecar; `InvalidSourceError` if it is not valid."""
    try:
        if not isinstance(text, str):
            raise TypeError("it is not text")
        document = decode_json(text.encode(), where)
        if document["v"] != 1:
            raise ValueError(f"it has the version {document['v']!r}")
        blocks = {str(name): _parse_block(item) for name, item in document["blocks"].items() if name not in META_BLOCKS}
        timebase, place = document["timebase"], document.get("chunk")
        episode = Episode(
            str(document["episode_id"]),
            int(document["length"]),
            str(document["env_id"]),
            Timebase(timebase["type"], timebase["tick_hz"], timebase["dt_ns"]),
            metadata=dict(document["metadata"]),
            attributes=dict(document["attributes"]),
            chunk=ChunkPlace(*place) if place is not None else None,
            origin=Origin(series=_declared_series(blocks)),
        )
    except (KeyError, TypeError, ValueError, AttributeError, CorruptError) as error:
        raise InvalidSourceError(f"{where} does not describe an episode: {error}") from error
    return Sidecar(episode, blocks)


def _declared_series(blocks: Mapping[str, SidecarBlock]) -> dict[str, ChannelSpec]:
    """Return the declarations of rewards and endings, which allow other types than those of the format."""
    return {
        name: ChannelSpec(block.channel_id, block.dtype, block.shape, name, block.attributes)
        for name, block in blocks.items()
        if name in SERIES_BLOCKS and block.channel_id is not None and block.dtype is not None
    }


def _parse_block(item: Mapping[str, Any]) -> SidecarBlock:
    dtype = item.get("dtype")
    return SidecarBlock(
        str(item["path"]),
        None if dtype is None else DType(dtype),
        tuple(int(size) for size in item.get("shape", ())),
        item.get("id"),
        dict(item.get("attributes", {})),
        int(item["content_type"]),
        int(item["tags"]),
    )
