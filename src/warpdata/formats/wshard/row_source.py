"""Write an episode whose channels are too large for memory: their rows are asked for window by window.

Without encoded channels the file is the same, to the byte, as `save_wshard` writes of the same values.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import prod
from pathlib import Path

from warpdata.errors import BadInputError
from warpdata.formats.wshard.byte_source import PathLike
from warpdata.formats.wshard.canonical_json import JsonObject
from warpdata.formats.wshard.codecs import Compression, CompressionName, parse_compression
from warpdata.formats.wshard.container_writer import BlockPlan, ContainerOptions, is_decodable, write_container
from warpdata.formats.wshard.dtypes import Array, DType, encode_array
from warpdata.formats.wshard.libraries import np
from warpdata.formats.wshard.model import Channel, Episode
from warpdata.formats.wshard.save import plan_blocks
from warpdata.limits import STREAM_CHUNK_BYTES

__all__ = ["RowSource", "compose_wshard"]

_GROUPS = {"signal": "observations", "action": "actions", "omen": "omens", "uncert": "uncertainties"}


@dataclass(frozen=True, slots=True)
class RowSource:
    """Rows of a channel that lie elsewhere. `read(start, stop)` gives those rows, the same ones each time.

    `channel_id` is the channel's id where that is not the rest of its block's name.
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
        """All rows as bytes, some MiB at a time."""
        step = max(1, STREAM_CHUNK_BYTES // max(1, self.row_bytes))
        for start in range(0, self.rows, step):
            stop = min(start + step, self.rows)
            rows = self.read(start, stop)
            if rows.shape != (stop - start, *self.shape):
                raise BadInputError(f"rows {start}…{stop} have the shape {rows.shape}, each should have {self.shape}")
            yield encode_array(rows, self.dtype)


def compose_wshard(
    episode: Episode, path: PathLike, rows: Mapping[str, RowSource], *, compression: CompressionName = "none"
) -> None:
    """Write the episode with further channels, whose rows are read while they are written.

    `rows` is keyed by block name: `signal/…`, `action/…`, `omen/…` or `uncert/…`. Memory is a few MiB beside
    what `episode` holds. What would be too large to be decoded at once stays uncompressed.
    """
    how = parse_compression(compression)
    whole = _with_places(episode, rows)
    whole.check()
    encoded = {name for name, channel in whole.lanes().items() if "encoding" in channel.attributes}
    plans = [_chosen(_filled(plan, rows), how, encoded) for plan in plan_blocks(whole, rows)]
    write_container(Path(path), plans, ContainerOptions(default_codec=how.codec))


def _with_places(episode: Episode, rows: Mapping[str, RowSource]) -> Episode:
    """The episode with arrays of the right type and shape, which take no memory, where rows are to come."""
    groups = {member: dict(getattr(episode, member)) for member in _GROUPS.values()}
    for block, source in rows.items():
        lane, _, name = block.partition("/")
        if lane not in _GROUPS or not name or name in groups[_GROUPS[lane]]:
            raise BadInputError(f"the block {block!r} is not that of one more channel")
        place = np.broadcast_to(np.zeros((), source.dtype.numpy), (source.rows, *source.shape))
        channel = Channel(source.channel_id or name, place, source.dtype, source.attributes)
        groups[_GROUPS[lane]][name] = channel
    return replace(
        episode,
        observations=groups["observations"],
        actions=groups["actions"],
        omens=groups["omens"],
        uncertainties=groups["uncertainties"],
    )


def _filled(plan: BlockPlan, rows: Mapping[str, RowSource]) -> BlockPlan:
    source = rows.get(plan.name)
    return plan if source is None else replace(plan, size_bytes=source.rows * source.row_bytes, pieces=source.pieces)


def _chosen(plan: BlockPlan, how: Compression, encoded: Collection[str]) -> BlockPlan:
    """Metadata stays plain, as ever; so do films and pictures, of which single frames are read."""
    plain = plan.name.startswith("meta/") or plan.name in encoded or not is_decodable(plan.size_bytes, 0)
    return plan if plain else replace(plan, compression=how)
