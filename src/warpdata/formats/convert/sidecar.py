"""What a foreign format has no words for, as one JSON text that it carries along for us.

It holds the members of `meta/episode`, and of each block what tells how to make it again from what the
foreign file holds. Other readers pass over it. What is read from it is as hostile as any other input.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from warpdata.errors import CorruptError, InvalidSourceError
from warpdata.formats.convert.episode_fields import META, info_of, spec_of
from warpdata.formats.wshard import ChunkPlace, DType, Episode, Timebase, WShardFile
from warpdata.primitives.strict_json import decode_json

__all__ = ["Kept", "Sidecar", "read_sidecar", "write_sidecar"]


@dataclass(frozen=True, slots=True)
class Kept:
    """How a block lies in the foreign file. `dtype` is `None` for bytes that are not understood."""

    path: str
    dtype: DType | None
    shape: tuple[int, ...] = ()
    channel_id: str | None = None
    attributes: Mapping[str, Any] = field(default_factory=dict)
    content_type: int = 0
    tags: int = 0


@dataclass(frozen=True, slots=True)
class Sidecar:
    """An episode without its arrays, and where those are."""

    episode: Episode
    blocks: Mapping[str, Kept]


def write_sidecar(file: WShardFile, paths: Mapping[str, str]) -> str:
    """`paths` says where each block went that the foreign file holds."""
    info = info_of(file)
    blocks: dict[str, Any] = {}
    for block, path in paths.items():
        entry, spec, meaning = file[block].entry, spec_of(info, block), file[block].meaning
        told: dict[str, Any] = {"path": path, "content_type": entry.content_type, "tags": entry.tags}
        if meaning.is_declared:
            told.update(dtype=str(meaning.dtype), shape=list(meaning.shape))
        if spec is not None:
            told.update(id=spec.id, attributes=spec.attributes)
        blocks[block] = told
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
    """`InvalidSourceError` for a text that nobody of us wrote."""
    try:
        if not isinstance(text, str):
            raise TypeError("it is not text")
        document = decode_json(text.encode(), where)
        if document["v"] != 1:
            raise ValueError(f"it has the version {document['v']!r}")
        blocks = {str(name): _kept(item) for name, item in document["blocks"].items() if name not in META}
        timebase, place = document["timebase"], document.get("chunk")
        episode = Episode(
            str(document["episode_id"]),
            int(document["length"]),
            str(document["env_id"]),
            Timebase(timebase["type"], timebase["tick_hz"], timebase["dt_ns"]),
            metadata=dict(document["metadata"]),
            attributes=dict(document["attributes"]),
            chunk=ChunkPlace(*place) if place is not None else None,
        )
    except (KeyError, TypeError, ValueError, AttributeError, CorruptError) as error:
        raise InvalidSourceError(f"{where} does not describe an episode: {error}") from error
    return Sidecar(episode, blocks)


def _kept(item: Mapping[str, Any]) -> Kept:
    dtype = item.get("dtype")
    return Kept(
        str(item["path"]),
        None if dtype is None else DType(dtype),
        tuple(int(size) for size in item.get("shape", ())),
        item.get("id"),
        dict(item.get("attributes", {})),
        int(item["content_type"]),
        int(item["tags"]),
    )
