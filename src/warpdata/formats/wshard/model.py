"""An episode in memory. Values only: no files, no bytes of the format.

A loaded `Episode` remembers its file (`origin`), so that saving it again changes only what the user changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from warpdata.errors import BadInputError
from warpdata.formats.wshard.canonical_json import JsonObject
from warpdata.formats.wshard.dtypes import Array, DType
from warpdata.primitives.reprs import short_repr

__all__ = ["Block", "Channel", "ChunkPlace", "Episode", "Origin", "Timebase", "has_own_length"]


@dataclass(frozen=True, slots=True)
class Timebase:
    """The time axis: steps at a fixed rate (`ticks`), or a timestamp for each step (`timestamps_ns`)."""

    type: str = "ticks"
    tick_hz: float | None = None
    dt_ns: int | None = None

    @property
    def hz(self) -> float | None:
        """Steps per second. `tick_hz` takes precedence over `dt_ns`, which is rounded."""
        if self.type != "ticks":
            return None
        if self.tick_hz:
            return self.tick_hz
        return 1e9 / self.dt_ns if self.dt_ns else None


@dataclass(frozen=True, slots=True, eq=False)
class Channel:
    """One stream of values: an array whose first axis is time.

    `dtype` is the stored type; None means the type of the array. It is required for bf16 in a uint16 array.
    `attributes` are further members of the declaration, such as `modality` or `sampling_rate_hz`. A channel without
    a declaration has its bytes as uint8. `decoded` is the declared type and shape of one decoded frame of an encoded
    channel.
    """

    id: str
    data: Array
    dtype: DType | None = None
    attributes: JsonObject = field(default_factory=dict)
    is_declared: bool = True
    decoded: tuple[DType, tuple[int, ...]] | None = None

    def __repr__(self) -> str:
        shape, dtype = getattr(self.data, "shape", None), getattr(self.data, "dtype", None)
        return short_repr("Channel", self.id, shape=shape, dtype=None if dtype is None else str(self.dtype or dtype))

    @property
    def stored_dtype(self) -> DType:
        return self.dtype or DType.of(self.data.dtype)

    @property
    def step_shape(self) -> tuple[int, ...]:
        return tuple(self.data.shape[1:])


@dataclass(frozen=True, slots=True)
class Block:
    """Bytes that are stored without interpretation, with the content type and tags of their index entry."""

    data: bytes
    content_type: int = 0
    tags: int = 0

    def __repr__(self) -> str:
        return short_repr("Block", self.data, content_type=self.content_type, tags=self.tags)


@dataclass(frozen=True, slots=True)
class ChunkPlace:
    """The position of a chunk in its episode. `first_step` counts from the start of the whole episode."""

    index: int | None
    total: int | None
    first_step: int


@dataclass(frozen=True, slots=True)
class Origin:
    """The file of a loaded episode: order, content types and tags of its blocks, and bytes to write back verbatim."""

    layout: tuple[tuple[str, int, int], ...]
    verbatim: Mapping[str, bytes]
    is_sealed: bool

    def __repr__(self) -> str:
        return short_repr("Origin", blocks=len(self.layout), is_sealed=self.is_sealed)


@dataclass(frozen=True, slots=True, eq=False)
class Episode:
    """A time-indexed bundle of observations, actions, rewards and endings.

    `omens` are keyed `channel/model`, `uncertainties` `channel/model/type`, `residuals` `channel/sign2nddiff`
    (packed bits, see `unpack_residual`). `metadata` belongs to the user; `attributes` are further members of
    `meta/episode`. `extra` holds every other block.
    """

    id: str
    length: int
    env_id: str = ""
    timebase: Timebase = field(default_factory=Timebase)
    observations: Mapping[str, Channel] = field(default_factory=dict)
    actions: Mapping[str, Channel] = field(default_factory=dict)
    rewards: Array | None = None
    terminations: Array | None = None
    truncations: Array | None = None
    timestamps_ns: Array | None = None
    omens: Mapping[str, Channel] = field(default_factory=dict)
    uncertainties: Mapping[str, Channel] = field(default_factory=dict)
    residuals: Mapping[str, Channel] = field(default_factory=dict)
    metadata: JsonObject = field(default_factory=dict)
    attributes: JsonObject = field(default_factory=dict)
    chunk: ChunkPlace | None = None
    provenance: JsonObject | None = None
    extra: Mapping[str, Block] = field(default_factory=dict)
    origin: Origin | None = field(default=None, repr=False)

    def __repr__(self) -> str:
        return short_repr(
            "Episode",
            self.id,
            length=self.length,
            env_id=self.env_id or None,
            observations=list(self.observations) or None,
            actions=list(self.actions) or None,
            extra=list(self.extra) or None,
        )

    def lanes(self) -> dict[str, Channel]:
        """Return every channel by the name of its block."""
        groups = (
            ("signal", self.observations),
            ("action", self.actions),
            ("omen", self.omens),
            ("uncert", self.uncertainties),
            ("residual", self.residuals),
        )
        return {f"{prefix}/{name}": channel for prefix, group in groups for name, channel in group.items()}

    def check(self) -> None:
        """Raise `BadInputError` unless every array has the length of the episode."""
        for name, channel in self.lanes().items():
            if channel.data.ndim < 1:
                raise BadInputError(f"channel {name!r} is a scalar; its first axis must be time")
            has_steps = channel.is_declared and not name.startswith("residual/")
            if has_steps and not has_own_length(channel.attributes) and len(channel.data) != self.length:
                raise BadInputError(f"channel {name!r} has {len(channel.data)} steps, the episode {self.length}")
        series = {
            "rewards": self.rewards,
            "terminations": self.terminations,
            "truncations": self.truncations,
            "timestamps_ns": self.timestamps_ns,
        }
        for name, array in series.items():
            if array is not None and array.shape != (self.length,):
                raise BadInputError(f"{name} has the shape {array.shape}, the episode {self.length} steps")
        if self.timebase.type == "timestamps_ns" and self.timestamps_ns is None:
            raise BadInputError("the timebase is timestamps_ns, but the episode has no timestamps")


def has_own_length(attributes: JsonObject) -> bool:
    """Return whether a channel may have another number of rows than steps: its own rate, or an encoded stream."""
    return "sampling_rate_hz" in attributes or "encoding" in attributes
