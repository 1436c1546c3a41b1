"""The type of a block: element type, shape of a step, number of rows.

A declaration takes precedence; then the names that the format defines; otherwise the bytes are uint8. Nothing is
inferred from a size alone. Implements "Block types" of docs/specs/wshard.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from warpdata.errors import CorruptError
from warpdata.formats.wshard.dtypes import DType
from warpdata.formats.wshard.metadata import ChannelSpec, EpisodeInfo
from warpdata.formats.wshard.model import SERIES_FIELDS, has_own_length

__all__ = [
    "DONE",
    "GROUPS",
    "REWARD",
    "SERIES",
    "SERIES_DTYPES",
    "TICKS",
    "TIMESTAMPS",
    "TRUNCATED",
    "BlockType",
    "default_lane",
    "find_block_type",
]

REWARD, DONE, TRUNCATED = "reward", "done", "truncated"
TICKS, TIMESTAMPS = "time/ticks", "time/timestamps_ns"
SERIES = {block: member for block, (member, _) in SERIES_FIELDS.items()}
"""Blocks with one value for each step, and the field of `Episode` that holds each."""
SERIES_DTYPES = {TICKS: DType.I32, **{block: dtype for block, (_, dtype) in SERIES_FIELDS.items()}}
GROUPS = {
    "signal": "observations",
    "action": "actions",
    "omen": "omens",
    "uncert": "uncertainties",
    "residual": "residuals",
}
"""Prefixes of channel blocks, and the field of `Episode` that holds each."""
_LATENT = {"omen/latent_action/": DType.F32, "omen/latent_action_codebook/": DType.I32}


@dataclass(frozen=True, slots=True)
class BlockType:
    """`rows` steps of `shape`. Without a declaration the bytes are uint8, one to a row."""

    dtype: DType
    shape: tuple[int, ...]
    rows: int
    is_declared: bool = True

    @property
    def step_bytes(self) -> int:
        return math.prod(self.shape) * self.dtype.size_bytes


def find_block_type(name: str, size_bytes: int, info: EpisodeInfo | None) -> BlockType:
    """Return the type of a block; `CorruptError` if a declaration contradicts its size."""
    raw = BlockType(DType.U8, (), size_bytes, is_declared=False)
    if info is None:
        return raw
    spec = info.channels.get(name) or info.lanes.get(name)
    if spec is not None:
        return _declared(spec, size_bytes, info.length)
    if name in SERIES_DTYPES:
        return _checked(name, BlockType(SERIES_DTYPES[name], (), info.length), size_bytes)
    found = default_lane(name, size_bytes, info)
    return BlockType(found[0], found[1], info.length) if found else raw


def default_lane(name: str, size_bytes: int, info: EpisodeInfo) -> tuple[DType, tuple[int, ...]] | None:
    """Return the element type and step shape that follow from the name of an undeclared prediction."""
    for prefix, dtype in _LATENT.items():
        if name.startswith(prefix):
            return _latent(dtype, size_bytes, info.length)
    lane, _, rest = name.partition("/")
    if lane not in ("omen", "uncert"):
        return None
    # Channels and models may both contain slashes; the longest matching channel id counts.
    spec, at = None, rest.rfind("/")
    while spec is None and at > 0:
        # A long name of slashes has many prefixes, but few of them are as long as an id.
        if at in info.id_lengths:
            spec = info.by_id.get(rest[:at])
        at = rest.rfind("/", 0, at)
    if spec is None or has_own_length(spec.attributes) or spec.step_bytes * info.length != size_bytes:
        return None
    return spec.dtype, spec.shape


def _latent(dtype: DType, size_bytes: int, length: int) -> tuple[DType, tuple[int, ...]] | None:
    per_step, left = divmod(size_bytes, length) if length else (0, 1)
    if left or per_step % dtype.size_bytes or not per_step:
        return None
    width = per_step // dtype.size_bytes
    return dtype, () if dtype is DType.I32 and width == 1 else (width,)


def _declared(spec: ChannelSpec, size_bytes: int, length: int) -> BlockType:
    if "encoding" in spec.attributes:
        return BlockType(DType.U8, (), size_bytes)
    if has_own_length(spec.attributes) and spec.step_bytes:
        length = size_bytes // spec.step_bytes
    return _checked(spec.block, BlockType(spec.dtype, spec.shape, length), size_bytes)


def _checked(name: str, block_type: BlockType, size_bytes: int) -> BlockType:
    expected_bytes = block_type.rows * block_type.step_bytes
    if expected_bytes != size_bytes:
        steps = f"{block_type.rows} steps of {block_type.dtype}{list(block_type.shape)}"
        raise CorruptError(f"block {name!r} has {size_bytes} bytes; {steps} take {expected_bytes}")
    return block_type
