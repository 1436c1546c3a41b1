"""Save an episode: every block, those that were there before in the order they had.

Implements "Rewriting" of docs/specs/wshard.md.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path

from warpdata.errors import BadInputError
from warpdata.formats.wshard.block_type import DONE, REWARD, TIMESTAMPS, TRUNCATED
from warpdata.formats.wshard.byte_source import PathLike
from warpdata.formats.wshard.canonical_json import JsonObject, decode_object, encode_json, same_json
from warpdata.formats.wshard.codecs import Codec, Compression, CompressionName, parse_compression
from warpdata.formats.wshard.container import JSON_CONTENT
from warpdata.formats.wshard.container_writer import BlockPlan, ContainerOptions, write_container
from warpdata.formats.wshard.documents import encode_metadata
from warpdata.formats.wshard.dtypes import Array, DType, encode_array
from warpdata.formats.wshard.episodes import SERIES
from warpdata.formats.wshard.identity import META_IDENTITY, META_PROVENANCE, check_provenance
from warpdata.formats.wshard.libraries import np
from warpdata.formats.wshard.model import Channel, Episode, Origin

__all__ = ["plan_blocks", "save_wshard"]

_STORED = {REWARD: DType.F32, DONE: DType.BOOL, TRUNCATED: DType.BOOL, TIMESTAMPS: DType.I64}


def save_wshard(
    episode: Episode,
    path: PathLike,
    *,
    compression: CompressionName = "none",
    per_block: Mapping[str, CompressionName] | None = None,
    alignment: int = 64,
    time_chunk_steps: int = 0,
    seal: bool | None = None,
) -> str | None:
    """Write the episode, replacing the file at once and durably. Returns the identity where it is sealed.

    The defaults make files that every known reader accepts. `per_block` overrules `compression` by block name.
    `time_chunk_steps` cuts zstd blocks into pieces that windows read alone; keep it 0 for files to be exchanged.
    `seal=None` seals what was sealed when it was loaded.
    """
    episode.check()
    how = parse_compression(compression)
    special = {name: parse_compression(value) for name, value in (per_block or {}).items()}
    plans = plan_blocks(episode)
    unknown = set(special) - {plan.name for plan in plans}
    if unknown:
        raise BadInputError(f"per_block names blocks that the episode does not have: {', '.join(sorted(unknown))}")
    if time_chunk_steps < 0:
        raise BadInputError(f"time_chunk_steps is {time_chunk_steps}")
    sealed = seal if seal is not None else bool(episode.origin and episode.origin.is_sealed)
    lanes = episode.lanes()
    chosen = [
        replace(
            plan,
            compression=special.get(plan.name, Compression(Codec.NONE) if plan.name.startswith("meta/") else how),
            chunk_bytes=_chunk_bytes(lanes.get(plan.name), time_chunk_steps, special.get(plan.name, how)),
        )
        for plan in plans
    ]
    return write_container(
        Path(path), chosen, ContainerOptions(alignment=alignment, default_codec=how.codec, is_sealed=sealed)
    )


def _chunk_bytes(channel: Channel | None, steps: int, how: Compression) -> int:
    if channel is None or not steps or how.codec is not Codec.ZSTD or not channel.data.size:
        return 0
    return steps * (channel.data.nbytes // len(channel.data))


def plan_blocks(episode: Episode, elsewhere: Collection[str] = ()) -> list[BlockPlan]:
    """All blocks in order: as they were in the file, new ones after them, provenance last.

    Blocks named in `elsewhere` come empty: their bytes are not in the episode's arrays.
    """
    blocks: dict[str, tuple[bytes | memoryview, int, int]] = {
        name: (data, JSON_CONTENT, 0) for name, data in encode_metadata(episode).items()
    }
    kept = episode.origin.kept if episode.origin else {}
    for name, channel in episode.lanes().items():
        blocks[name] = (
            b"" if name in elsewhere else _stored(name, channel.data, channel.stored_dtype, kept),
            0,
            0,
        )
    for name, member in SERIES.items():
        array = getattr(episode, member)
        if array is not None:
            blocks[name] = (_stored(name, array, _STORED[name], kept), 0, 0)
    for name, block in episode.extra.items():
        if name in blocks or name in (META_IDENTITY, META_PROVENANCE):
            raise BadInputError(f"the block {name!r} cannot stand in extra; it has a place of its own")
        if not (0 <= block.content_type < 2**16 and 0 <= block.tags < 2**16):
            raise BadInputError(f"block {name!r} has a content type or tags beyond 16 bits")
        blocks[name] = (block.data, block.content_type, block.tags)
    if episode.provenance is not None:
        blocks[META_PROVENANCE] = (_provenance(episode.provenance, kept), JSON_CONTENT, 0)
    return _ordered(blocks, episode.origin, set(episode.extra))


def _ordered(
    blocks: Mapping[str, tuple[bytes | memoryview, int, int]], origin: Origin | None, extra: set[str]
) -> list[BlockPlan]:
    notes = {name: (content_type, tags) for name, content_type, tags in origin.layout} if origin else {}
    names = [name for name in notes if name in blocks] + [name for name in blocks if name not in notes]
    if META_PROVENANCE in names:
        names.remove(META_PROVENANCE)
        names.append(META_PROVENANCE)
    out = []
    for name in names:
        data, content_type, tags = blocks[name]
        if name not in extra:
            content_type, tags = notes.get(name, (content_type, tags))
        view = memoryview(data)
        out.append(BlockPlan(name, view.nbytes, lambda view=view: (view,), content_type, tags))  # type: ignore[misc]
    return out


def _stored(name: str, array: Array, dtype: DType, kept: Mapping[str, bytes]) -> memoryview:
    data = encode_array(array, dtype)
    old = kept.get(name)
    if (
        old is not None
        and len(old) == data.nbytes
        and bool(np.array_equal(np.frombuffer(old, np.uint8) != 0, array.reshape(-1)))
    ):
        return memoryview(old)
    return data


def _provenance(provenance: JsonObject, kept: Mapping[str, bytes]) -> bytes:
    old = kept.get(META_PROVENANCE)
    if old is not None and same_json(decode_object(old, META_PROVENANCE), provenance):
        return old
    check_provenance(provenance)
    return encode_json(provenance)
