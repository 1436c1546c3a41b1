"""An episode in memory. Values only: no files, no bytes of the format.

A loaded `Episode` remembers its file (`origin`), so that saving it again changes only what the user changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from warpdata.errors import BadInputError
from warpdata.formats.wshard.array_input import is_bf16_tensor, to_array
from warpdata.formats.wshard.canonical_json import JsonObject
from warpdata.formats.wshard.dtypes import Array, DType, np
from warpdata.primitives.reprs import short_repr

if TYPE_CHECKING:
    from warpdata.formats.wshard.metadata import ChannelSpec

__all__ = [
    "SERIES_FIELDS",
    "Block",
    "Channel",
    "ChunkPlace",
    "Episode",
    "Origin",
    "Timebase",
    "check_episodes",
    "fits_declaration",
    "has_own_length",
]

SERIES_FIELDS = {
    "reward": ("rewards", DType.F32),
    "done": ("terminations", DType.BOOL),
    "truncated": ("truncations", DType.BOOL),
    "time/timestamps_ns": ("timestamps_ns", DType.I64),
}
"""Blocks with one value for each step: the field of `Episode` that holds each, and its type without a declaration."""


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

    `data` may also be a torch tensor, a list or a tuple, and becomes an array. `dtype` is the stored type; None means
    the type of the array. It is required for bf16 in a uint16 array. `attributes` are further members of the
    declaration, such as `modality` or `sampling_rate_hz`. A channel without a declaration has its bytes as uint8.
    `decoded` is the declared type and shape of one decoded frame of an encoded channel.
    """

    id: str
    data: Array
    dtype: DType | None = None
    attributes: JsonObject = field(default_factory=dict)
    is_declared: bool = True
    decoded: tuple[DType, tuple[int, ...]] | None = None

    def __post_init__(self) -> None:
        dtype: object = self.dtype
        if dtype is not None and not isinstance(dtype, DType):
            try:
                object.__setattr__(self, "dtype", DType(str(dtype)))
            except ValueError as error:
                raise BadInputError(f"channel {self.id!r} has the dtype {dtype!r}, which no file has") from error
        if type(self.data) is not np.ndarray:
            if dtype is None and is_bf16_tensor(self.data):
                object.__setattr__(self, "dtype", DType.BF16)
            object.__setattr__(self, "data", to_array(self.data, f"channel {self.id!r}", self.dtype))

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

    def __post_init__(self) -> None:
        data: object = self.data
        if not isinstance(data, bytes):
            if not isinstance(data, bytearray | memoryview):
                raise BadInputError(f"a block holds bytes, not a {type(data).__name__}")
            object.__setattr__(self, "data", bytes(data))

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
    """The file of a loaded episode: order, content types and tags of its blocks, and bytes to write back verbatim.

    `series` has the declarations of `reward` and the like, which allow other types than those of the format. An
    episode that is only a part of a file, or joined from several, has these alone.
    """

    layout: tuple[tuple[str, int, int], ...] = ()
    verbatim: Mapping[str, bytes] = field(default_factory=dict)
    is_sealed: bool = False
    series: Mapping[str, ChannelSpec] = field(default_factory=dict)

    def __repr__(self) -> str:
        return short_repr("Origin", blocks=len(self.layout), is_sealed=self.is_sealed)


@dataclass(frozen=True, slots=True, eq=False)
class Episode:
    """A time-indexed bundle of observations, actions, rewards and endings.

    `rewards`, `terminations`, `truncations` and `timestamps_ns` may also be tensors or lists; lists become float32,
    bool and int64.
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

    def __post_init__(self) -> None:
        for name, dtype in SERIES_FIELDS.values():
            value = getattr(self, name)
            if value is not None and type(value) is not np.ndarray:
                object.__setattr__(self, name, to_array(value, name, dtype))

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
        self._check_types()
        for name, channel in self.lanes().items():
            if channel.data.ndim < 1:
                raise BadInputError(f"channel {name!r} is a scalar; its first axis must be time")
            has_steps = channel.is_declared and not name.startswith("residual/")
            if has_steps and not has_own_length(channel.attributes) and len(channel.data) != self.length:
                raise BadInputError(f"channel {name!r} has {len(channel.data)} steps, the episode {self.length}")
        for name, (member, _) in SERIES_FIELDS.items():
            array: Array | None = getattr(self, member)
            if array is None or self.declared_series(name) is not None:
                continue
            if array.shape != (self.length,):
                raise BadInputError(f"{member} has the shape {array.shape}, the episode {self.length} steps")
        if self.timebase.type == "timestamps_ns" and self.timestamps_ns is None:
            raise BadInputError("the timebase is timestamps_ns, but the episode has no timestamps")

    def _check_types(self) -> None:
        for group in ("observations", "actions", "omens", "uncertainties", "residuals", "extra"):
            if not isinstance(getattr(self, group), Mapping):
                raise BadInputError(f"{group} is a {type(getattr(self, group)).__name__}, not a mapping of names")
        if not isinstance(self.id, str) or not isinstance(self.env_id, str) or type(self.length) is not int:
            raise BadInputError(
                f"the episode has id={self.id!r}, env_id={self.env_id!r} and length={self.length!r}; "
                "two texts and an integer were expected"
            )
        lanes: Mapping[str, object] = self.lanes()
        for name, value in lanes.items():
            if not isinstance(value, Channel):
                hint = f"Pass Channel({name.partition('/')[2]!r}, array)."
                raise BadInputError(f"{name!r} is a {type(value).__name__}, not a Channel", hint=hint)

    def declared_series(self, name: str) -> ChannelSpec | None:
        """Return the declaration of a series in the file of this episode, if the array still has that type."""
        spec = self.origin.series.get(name) if self.origin is not None else None
        array: Array | None = getattr(self, SERIES_FIELDS[name][0])
        return spec if spec is not None and array is not None and fits_declaration(array, spec, self.length) else None


def fits_declaration(array: Array, spec: ChannelSpec, length: int) -> bool:
    """Return whether the array has the declared type and shape."""
    if "encoding" in spec.attributes:
        return array.dtype == np.uint8 and array.ndim == 1
    dtypes = {spec.dtype.numpy, np.dtype("<u2")} if spec.dtype is DType.BF16 else {spec.dtype.numpy}
    has_rows = array.ndim > 0 and (len(array) == length or has_own_length(spec.attributes))
    return has_rows and array.dtype.newbyteorder("<") in dtypes and array.shape[1:] == spec.shape


def check_episodes(*values: object) -> None:
    """Raise `BadInputError` unless all values are episodes."""
    for value in values:
        if not isinstance(value, Episode):
            raise BadInputError(f"an Episode was expected, not a {type(value).__name__}")


def has_own_length(attributes: JsonObject) -> bool:
    """Return whether a channel may have another number of rows than steps: its own rate, or an encoded stream."""
    return "sampling_rate_hz" in attributes or "encoding" in attributes
