"""Saving of an episode: from memory, or with channels whose rows are read while they are written.

Blocks that were in the file before keep their order. `compose_wshard` writes the same bytes as `save_wshard` if no
channel is encoded. Implements "Rewriting" of docs/specs/wshard.md.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod

from warpdata.errors import BadInputError, CorruptError
from warpdata.formats.wshard.block_type import GROUPS, SERIES, SERIES_DTYPES, TICKS, find_block_type
from warpdata.formats.wshard.canonical_json import JsonObject, decode_object, encode_json, same_json
from warpdata.formats.wshard.codecs import Codec, Compression, CompressionName, parse_compression
from warpdata.formats.wshard.container import JSON_CONTENT
from warpdata.formats.wshard.container_writer import (
    UNCOMPRESSED,
    BlockPlan,
    ContainerOptions,
    is_decodable,
    write_container,
)
from warpdata.formats.wshard.dtypes import Array, DType, encode_array, np
from warpdata.formats.wshard.identity import META_IDENTITY, META_PROVENANCE, check_provenance
from warpdata.formats.wshard.metadata import META_CHANNELS, META_EPISODE, META_WSHARD, parse_info
from warpdata.formats.wshard.metadata_writer import encode_metadata
from warpdata.formats.wshard.model import Channel, Episode, Origin, check_episodes
from warpdata.formats.wshard.source import PathLike
from warpdata.limits import MIB
from warpdata.primitives.paths import check_path

__all__ = ["RowSource", "compose_wshard", "save_wshard"]

_META = (META_WSHARD, META_EPISODE, META_CHANNELS, META_IDENTITY, META_PROVENANCE)
_ROW_PIECE_BYTES = 4 * MIB


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
    """Write the episode, atomically and durably. Return the identity if the file is sealed.

    Every known reader accepts files written with the defaults. `per_block` overrides `compression` by block name.
    `time_chunk_steps` splits zstd blocks into chunks that windows read alone; use 0 for files to be exchanged.
    `seal=None` seals an episode that was loaded from a sealed file.
    """
    check_episodes(episode)
    episode.check()
    default = parse_compression(compression)
    overrides = {name: parse_compression(value) for name, value in (per_block or {}).items()}
    plans = _plan_blocks(episode)
    _check_sizes(plans, episode)
    unknown = set(overrides) - {plan.name for plan in plans}
    if unknown:
        raise BadInputError(f"per_block names blocks that the episode does not have: {', '.join(sorted(unknown))}")
    if time_chunk_steps < 0:
        raise BadInputError(f"time_chunk_steps={time_chunk_steps} is negative")
    is_sealed = seal if seal is not None else bool(episode.origin and episode.origin.is_sealed)
    lanes = episode.lanes()
    compressed = [
        replace(
            plan,
            compression=overrides.get(plan.name, UNCOMPRESSED if plan.name.startswith("meta/") else default),
            chunk_bytes=_chunk_bytes(lanes.get(plan.name), time_chunk_steps, overrides.get(plan.name, default)),
        )
        for plan in plans
    ]
    return write_container(
        check_path(path),
        compressed,
        ContainerOptions(alignment=alignment, default_codec=default.codec, is_sealed=is_sealed),
    )


def _chunk_bytes(channel: Channel | None, steps: int, compression: Compression) -> int:
    if channel is None or not steps or compression.codec is not Codec.ZSTD or not channel.data.size:
        return 0
    return steps * (channel.data.nbytes // len(channel.data))


@dataclass(frozen=True, slots=True)
class RowSource:
    """A channel whose rows are not in memory. Each call of `read(start, stop)` returns the same rows.

    `channel_id` is the id of the channel if it differs from the rest of the block name.
    """

    dtype: DType
    shape: tuple[int, ...]
    rows: int
    read: Callable[[int, int], Array]
    attributes: JsonObject = field(default_factory=dict)
    channel_id: str | None = None

    @property
    def row_bytes(self) -> int:
        return prod(self.shape) * self.dtype.size_bytes

    def pieces(self) -> Iterator[memoryview]:
        """Yield all rows as bytes, a few MiB at a time."""
        step = max(1, _ROW_PIECE_BYTES // max(1, self.row_bytes))
        for start in range(0, self.rows, step):
            stop = min(start + step, self.rows)
            rows = self.read(start, stop)
            if rows.shape != (stop - start, *self.shape):
                raise BadInputError(f"rows {start}…{stop} have the shape {rows.shape}; each should have {self.shape}")
            yield encode_array(rows, self.dtype)


def compose_wshard(
    episode: Episode, path: PathLike, rows: Mapping[str, RowSource], *, compression: CompressionName = "none"
) -> None:
    """Write the episode with further channels, whose rows are read while they are written.

    `rows` is keyed by block name: `signal/…`, `action/…`, `omen/…` or `uncert/…`. Memory is a few MiB beside the
    episode. Blocks that are too large to decode at once stay uncompressed.
    """
    check_episodes(episode)
    default = parse_compression(compression)
    whole = _with_placeholders(episode, rows)
    whole.check()
    encoded = {name for name, channel in whole.lanes().items() if "encoding" in channel.attributes}
    plans = [_compressed(_with_rows(plan, rows), default, encoded) for plan in _plan_blocks(whole, rows)]
    _check_sizes(plans, whole)
    write_container(check_path(path), plans, ContainerOptions(default_codec=default.codec))


def _with_placeholders(episode: Episode, rows: Mapping[str, RowSource]) -> Episode:
    """Add broadcast arrays, which take no memory, for the channels that are read later."""
    groups = {name: dict(getattr(episode, name)) for lane, name in GROUPS.items() if lane != "residual"}
    for block, source in rows.items():
        lane, _, name = block.partition("/")
        group = groups.get(GROUPS.get(lane, ""))
        if group is None or not name or name in group:
            raise BadInputError(f"the block {block!r} is not that of a new channel")
        placeholder = np.broadcast_to(np.zeros((), source.dtype.numpy), (source.rows, *source.shape))
        group[name] = Channel(source.channel_id or name, placeholder, source.dtype, source.attributes)
    return replace(
        episode,
        observations=groups["observations"],
        actions=groups["actions"],
        omens=groups["omens"],
        uncertainties=groups["uncertainties"],
    )


def _with_rows(plan: BlockPlan, rows: Mapping[str, RowSource]) -> BlockPlan:
    source = rows.get(plan.name)
    return plan if source is None else replace(plan, size_bytes=source.rows * source.row_bytes, pieces=source.pieces)


def _compressed(plan: BlockPlan, compression: Compression, encoded: Collection[str]) -> BlockPlan:
    """Compress a block, except metadata, and video and images, of which single frames are read."""
    stays = plan.name.startswith("meta/") or plan.name in encoded or not is_decodable(plan.size_bytes, 0)
    return plan if stays else replace(plan, compression=compression)


def _plan_blocks(episode: Episode, placeholders: Collection[str] = ()) -> list[BlockPlan]:
    """Return all blocks in order: those of the original file, then new ones, provenance last.

    Blocks in `placeholders` are empty: their bytes are not in the arrays of the episode.
    """
    blocks: dict[str, tuple[bytes | memoryview, int, int]] = {
        name: (data, JSON_CONTENT, 0) for name, data in encode_metadata(episode).items()
    }
    verbatim = episode.origin.verbatim if episode.origin else {}
    for name, channel in episode.lanes().items():
        is_placeholder = name in placeholders
        blocks[name] = (b"" if is_placeholder else _stored(name, channel.data, channel.stored_dtype, verbatim), 0, 0)
    for name, member in SERIES.items():
        array = getattr(episode, member)
        if array is not None:
            spec = episode.declared_series(name)
            dtype = SERIES_DTYPES[name] if spec is None else DType.U8 if "encoding" in spec.attributes else spec.dtype
            blocks[name] = (_stored(name, array, dtype, verbatim), 0, 0)
    for name, block in episode.extra.items():
        if name in blocks or name in _META:
            raise BadInputError(f"the block {name!r} cannot be in extra; it has a field of its own")
        if not (0 <= block.content_type < 2**16 and 0 <= block.tags < 2**16):
            raise BadInputError(f"block {name!r} has a content type or tags beyond 16 bits")
        blocks[name] = (block.data, block.content_type, block.tags)
    if episode.provenance is not None:
        blocks[META_PROVENANCE] = (_provenance(episode.provenance, verbatim), JSON_CONTENT, 0)
    return _ordered(blocks, episode.origin, set(episode.extra))


def _check_sizes(plans: Sequence[BlockPlan], episode: Episode) -> None:
    """Refuse a block that `load_wshard` would reject, because its size contradicts its type."""
    blocks = {plan.name: b"".join(plan.pieces()) for plan in plans if plan.name in _META}
    info = parse_info(blocks)
    before = {name for name, _, _ in episode.origin.layout} if episode.origin is not None else set()
    for plan in plans:
        # Loading does not interpret ticks, so a file that has them keeps them.
        is_read = plan.name in SERIES or plan.name.partition("/")[0] in GROUPS
        if not is_read and (plan.name != TICKS or plan.name in before):
            continue
        try:
            find_block_type(plan.name, plan.size_bytes, info)
        except CorruptError as error:
            raise BadInputError(f"no reader would accept the episode: {error.message}") from error


def _ordered(
    blocks: Mapping[str, tuple[bytes | memoryview, int, int]], origin: Origin | None, extra: set[str]
) -> list[BlockPlan]:
    before = {name: (content_type, tags) for name, content_type, tags in origin.layout} if origin else {}
    names = [name for name in before if name in blocks] + [name for name in blocks if name not in before]
    if META_PROVENANCE in names:
        names.remove(META_PROVENANCE)
        names.append(META_PROVENANCE)
    out = []
    for name in names:
        data, content_type, tags = blocks[name]
        if name not in extra:
            content_type, tags = before.get(name, (content_type, tags))
        view = memoryview(data)
        out.append(BlockPlan(name, view.nbytes, lambda view=view: (view,), content_type, tags))  # type: ignore[misc]
    return out


def _stored(name: str, array: Array, dtype: DType, verbatim: Mapping[str, bytes]) -> memoryview:
    data = encode_array(array, dtype)
    old = verbatim.get(name)
    if (
        old is not None
        and len(old) == data.nbytes
        and bool(np.array_equal(np.frombuffer(old, np.uint8) != 0, array.reshape(-1)))
    ):
        return memoryview(old)
    return data


def _provenance(provenance: JsonObject, verbatim: Mapping[str, bytes]) -> bytes:
    old = verbatim.get(META_PROVENANCE)
    if old is not None and same_json(decode_object(old, META_PROVENANCE), provenance):
        return old
    check_provenance(provenance)
    return encode_json(provenance)
