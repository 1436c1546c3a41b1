"""The properties that all chunks of an episode share: environment, timebase, and the type of each channel.

Writing, joining and validating compare the same values, so that none of them accepts what another one refuses.
Implements "Joined chunks" of docs/specs/wshard.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from warpdata.errors import CorruptError
from warpdata.formats.wshard.block_type import GROUPS, SERIES, SERIES_DTYPES
from warpdata.formats.wshard.canonical_json import Json, JsonObject, encode_json
from warpdata.formats.wshard.dtypes import DType
from warpdata.formats.wshard.metadata import ChannelSpec, EpisodeInfo
from warpdata.formats.wshard.model import Episode, Timebase
from warpdata.formats.wshard.reader import WShardFile

__all__ = ["ChunkLayout", "episode_layout", "file_layout", "find_disagreement"]


@dataclass(frozen=True, slots=True)
class _BlockLayout:
    """The declared type of one block. `attributes` is canonical JSON, without values that differ between chunks."""

    id: str
    dtype: DType
    shape: tuple[int, ...]
    rate_hz: float | None = None
    is_encoded: bool = False
    attributes: bytes = b""

    def __str__(self) -> str:
        rate = "" if self.rate_hz is None else f" at {self.rate_hz:g} Hz"
        form = "encoded" if self.is_encoded else f"{self.dtype}{list(self.shape)}"
        return f"{self.id}: {form}{rate}"


@dataclass(frozen=True, slots=True)
class ChunkLayout:
    """The values that must be equal in all chunks."""

    env_id: str
    timebase: tuple[str, float | None]
    blocks: Mapping[str, _BlockLayout]


def episode_layout(episode: Episode) -> ChunkLayout:
    """Return the layout of a chunk in memory."""
    blocks: dict[str, _BlockLayout] = {}
    for name, channel in episode.lanes().items():
        if channel.is_declared and not name.startswith("residual/"):
            dtype, shape = channel.stored_dtype, channel.step_shape
            blocks[name] = _block_layout(ChannelSpec(channel.id, dtype, shape, name, channel.attributes))
    for name, member in SERIES.items():
        array = getattr(episode, member)
        if array is not None:
            spec = episode.declared_series(name)
            dtype = DType.of(array.dtype) if spec is None else spec.dtype
            blocks[name] = _BlockLayout(name, dtype, tuple(array.shape[1:]))
    return ChunkLayout(episode.env_id, _timebase(episode.timebase), blocks)


def file_layout(file: WShardFile) -> ChunkLayout:
    """Return the layout of a chunk on disk, from its metadata."""
    info = file.info
    if info is None:
        raise CorruptError("a chunk has no block 'meta/episode'")
    blocks = {name: found for name in file.blocks if (found := _block_of(file, name, info)) is not None}
    return ChunkLayout(info.env_id, _timebase(info.timebase), blocks)


def find_disagreement(first: ChunkLayout, other: ChunkLayout, *, is_strict: bool = True) -> str | None:
    """Return how a chunk differs from the first one, or None.

    With `is_strict=False`, attributes and encoded channels, which are not joined, may differ.
    """
    if other.env_id != first.env_id:
        return f"has the environment {other.env_id!r} instead of {first.env_id!r}"
    if other.timebase != first.timebase:
        return f"has {_format_rate(other.timebase)} instead of {_format_rate(first.timebase)}"
    expected, found = (_comparable(layout, is_strict=is_strict) for layout in (first, other))
    for name in [*expected, *found]:
        if expected.get(name) != found.get(name):
            return f"has the block {name!r} as {_format_block(other, name)} instead of {_format_block(first, name)}"
    return None


def _block_of(file: WShardFile, name: str, info: EpisodeInfo) -> _BlockLayout | None:
    lane, _, rest = name.partition("/")
    if name not in SERIES and (lane not in GROUPS or lane == "residual" or not rest):
        return None
    spec = info.channels.get(name) or info.lanes.get(name)
    if name in SERIES:
        dtype, shape = (SERIES_DTYPES[name], ()) if spec is None else (spec.dtype, spec.shape)
        return _BlockLayout(name, dtype, shape)
    if spec is None:
        block_type = file[name].block_type
        spec = ChannelSpec(rest, block_type.dtype, block_type.shape, name)
        return _block_layout(spec) if block_type.is_declared else None
    return _block_layout(spec)


def _block_layout(spec: ChannelSpec) -> _BlockLayout:
    rest: dict[str, Json] = {key: value for key, value in spec.attributes.items() if key != "frame_count"}
    if "encoding" in spec.attributes:
        return _BlockLayout(spec.id, DType.U8, (), None, is_encoded=True, attributes=encode_json(rest))
    return _BlockLayout(spec.id, spec.dtype, spec.shape, _rate(spec.attributes), attributes=encode_json(rest))


def _rate(attributes: JsonObject) -> float | None:
    rate = attributes.get("sampling_rate_hz")
    return float(rate) if isinstance(rate, int | float) and not isinstance(rate, bool) and rate > 0 else None


def _timebase(timebase: Timebase) -> tuple[str, float | None]:
    return timebase.type, None if timebase.hz is None else float(timebase.hz)


def _comparable(layout: ChunkLayout, *, is_strict: bool) -> dict[str, _BlockLayout]:
    if is_strict:
        return dict(layout.blocks)
    return {name: replace(block, attributes=b"") for name, block in layout.blocks.items() if not block.is_encoded}


def _format_rate(timebase: tuple[str, float | None]) -> str:
    kind, rate = timebase
    return "timestamps" if kind == "timestamps_ns" else "no rate" if rate is None else f"{rate:g} steps per second"


def _format_block(layout: ChunkLayout, name: str) -> str:
    block = layout.blocks.get(name)
    return "nothing" if block is None else f"{block} {block.attributes.decode()}".removesuffix(" {}").rstrip()
