"""What the bytes of a block mean: element type, shape of a step, number of rows.

A declaration decides; then the names that the format itself defines; otherwise bytes stay bytes. Nothing
is guessed from a size alone. Implements "Meaning of blocks" of docs/specs/wshard.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from warpdata.errors import EpisodeCorruptedError
from warpdata.formats.wshard.dtypes import DType
from warpdata.formats.wshard.metadata import ChannelSpec, EpisodeInfo
from warpdata.formats.wshard.model import is_of_own_length

__all__ = ["DONE", "REWARD", "TIMESTAMPS", "TRUNCATED", "Meaning", "default_lane", "meaning_of"]

REWARD, DONE, TRUNCATED = "reward", "done", "truncated"
TICKS, TIMESTAMPS = "time/ticks", "time/timestamps_ns"
_SERIES = {
    REWARD: DType.F32,
    DONE: DType.BOOL,
    TRUNCATED: DType.BOOL,
    TICKS: DType.I32,
    TIMESTAMPS: DType.I64,
}
_LATENT = {"omen/latent_action/": DType.F32, "omen/latent_action_codebook/": DType.I32}


@dataclass(frozen=True, slots=True)
class Meaning:
    """`rows` steps of `shape`. Where `is_declared` is false the bytes are uint8, one to a row."""

    dtype: DType
    shape: tuple[int, ...]
    rows: int
    is_declared: bool = True

    @property
    def step_bytes(self) -> int:
        return math.prod(self.shape) * self.dtype.size_bytes


def meaning_of(name: str, size_bytes: int, info: EpisodeInfo | None) -> Meaning:
    """`EpisodeCorruptedError` where a declaration and the size of the block contradict each other."""
    raw = Meaning(DType.U8, (), size_bytes, is_declared=False)
    if info is None:
        return raw
    spec = info.channels.get(name) or info.lanes.get(name)
    if spec is not None:
        return _declared(spec, size_bytes, info.length)
    if name in _SERIES:
        return _checked(name, Meaning(_SERIES[name], (), info.length), size_bytes)
    found = default_lane(name, size_bytes, info)
    return Meaning(found[0], found[1], info.length) if found else raw


def default_lane(name: str, size_bytes: int, info: EpisodeInfo) -> tuple[DType, tuple[int, ...]] | None:
    """Element type and step shape of a prediction that nobody declared, where its name tells them."""
    for prefix, dtype in _LATENT.items():
        if name.startswith(prefix):
            return _latent(dtype, size_bytes, info.length)
    lane, _, rest = name.partition("/")
    if lane not in ("omen", "uncert"):
        return None
    # Channels and models may both contain slashes; the longest channel is the one meant.
    spec, at = None, rest.rfind("/")
    while spec is None and at > 0:
        # A long name of nothing but slashes has many beginnings; few of them are as long as any id.
        if at in info.id_lengths:
            spec = info.by_id.get(rest[:at])
        at = rest.rfind("/", 0, at)
    if spec is None or is_of_own_length(spec.attributes) or spec.step_bytes * info.length != size_bytes:
        return None
    return spec.dtype, spec.shape


def _latent(dtype: DType, size_bytes: int, length: int) -> tuple[DType, tuple[int, ...]] | None:
    per_step, left = divmod(size_bytes, length) if length else (0, 1)
    if left or per_step % dtype.size_bytes or not per_step:
        return None
    width = per_step // dtype.size_bytes
    return dtype, () if dtype is DType.I32 and width == 1 else (width,)


def _declared(spec: ChannelSpec, size_bytes: int, length: int) -> Meaning:
    if "encoding" in spec.attributes:
        return Meaning(DType.U8, (), size_bytes)
    if is_of_own_length(spec.attributes) and spec.step_bytes:
        length = size_bytes // spec.step_bytes
    return _checked(spec.block, Meaning(spec.dtype, spec.shape, length), size_bytes)


def _checked(name: str, meaning: Meaning, size_bytes: int) -> Meaning:
    if meaning.rows * meaning.step_bytes != size_bytes:
        raise EpisodeCorruptedError(
            f"block {name!r} has {size_bytes} bytes, and {meaning.rows} steps of {meaning.dtype}"
            f"{list(meaning.shape)} take {meaning.rows * meaning.step_bytes}"
        )
    return meaning
