"""The definition of windows: their steps, their number in each episode, and their numbering. Pure.

Implements "Windows" of docs/specs/episodes.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import numpy as np

from warpdata.errors import BadInputError
from warpdata.kinds.episodes.index import ChannelLayout
from warpdata.limits import EPISODES_MAX_WINDOW_STEPS
from warpdata.streaming import Collate, OnError, StreamKeywords, StreamOptions

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "EPISODE",
    "STEP",
    "BlockCost",
    "Keys",
    "Pad",
    "Resize",
    "WindowIndex",
    "WindowKey",
    "WindowKeywords",
    "WindowRequest",
    "WindowSpec",
    "make_spec",
    "mask_name",
]

Pad: TypeAlias = Literal["edge", "zero"]
Keys: TypeAlias = "Mapping[str, tuple[int, int] | None] | Sequence[str]"
"""Channels by id or block name, each with a range of steps `(start, stop)` around the current one, or None for all."""

Resize: TypeAlias = "tuple[int, int] | Mapping[str, tuple[int, int]]"
"""Height and width of all cameras, or of each."""

EPISODE, STEP = "episode", "step"
"""Names in every batch besides the channels: the episode and the current step of each window."""


class WindowKeywords(StreamKeywords, total=False):
    """Keyword arguments of streams over windows. `WindowRequest` holds the defaults of these."""

    keys: Keys | None
    history: int | None
    horizon: int | None
    stride: int
    pad: Pad | None
    mask: bool
    resize: Resize | None
    on_error: OnError


@dataclass(frozen=True, slots=True)
class WindowRequest:
    """The arguments that determine the windows."""

    keys: Keys | None = None
    history: int | None = None
    horizon: int | None = None
    stride: int = 1
    pad: Pad | None = "edge"
    mask: bool = False
    resize: Resize | None = None

    @staticmethod
    def parse(keywords: WindowKeywords, *, collate: Collate) -> tuple[WindowRequest, StreamOptions]:
        """Split the keyword arguments of a call. `make_spec` checks the request."""
        given: dict[str, Any] = dict(keywords)
        request = WindowRequest(
            **{field.name: given.pop(field.name) for field in fields(WindowRequest) if field.name in given}
        )
        return request, StreamOptions.parse(given, WindowKeywords.__annotations__, collate=collate)


@dataclass(frozen=True, slots=True)
class WindowKey:
    """The steps [start, stop) of one channel, counted from the current step."""

    name: str
    start: int
    stop: int

    @property
    def step_count(self) -> int:
        return self.stop - self.start


@dataclass(frozen=True, slots=True)
class WindowSpec:
    """The window of step `t` has the steps [t - history, t + horizon)."""

    history: int
    horizon: int
    stride: int
    pad: Pad | None
    keys: tuple[WindowKey, ...]

    @property
    def extent(self) -> int:
        return self.history + self.horizon

    @property
    def first_step(self) -> int:
        """The first step with a window."""
        return 0 if self.pad is not None else max(self.history, 0)

    def counts(self, lengths: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the number of windows of each episode."""
        last = lengths - 1 if self.pad is not None else lengths - max(self.horizon, 1)
        return np.maximum((last - self.first_step) // self.stride + 1, 0)

    def document(self) -> dict[str, Any]:
        """Return everything that determines the windows and their content, as JSON."""
        return {
            "history": self.history,
            "horizon": self.horizon,
            "stride": self.stride,
            "pad": self.pad,
            "keys": {key.name: [key.start, key.stop] for key in self.keys},
        }


@dataclass(frozen=True, slots=True)
class BlockCost:
    """The memory of a block of adjacent windows, and the windows that a block should have.

    Each window adds `window_bytes`, and the block has `overlap_bytes` more. Blocks of fewer than `min_rows` windows
    share most of their bytes with their neighbours. `together` windows can only be decoded together.
    """

    window_bytes: int
    overlap_bytes: int
    min_rows: int
    together: int = 1

    def block_bytes(self, block_rows: int) -> int:
        return block_rows * self.window_bytes + self.overlap_bytes


@dataclass(frozen=True)
class WindowIndex:
    """Windows numbered over all episodes: those of the first, then those of the second, each by time."""

    spec: WindowSpec
    starts: NDArray[np.int64]
    """The number of each episode's first window, followed by the total."""

    @staticmethod
    def of(spec: WindowSpec, lengths: NDArray[np.int64]) -> WindowIndex:
        return WindowIndex(spec, np.concatenate([np.zeros(1, np.int64), np.cumsum(spec.counts(lengths))]))

    @property
    def count(self) -> int:
        return int(self.starts[-1])

    def locate(self, samples: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the position of the episode and the current step of each window."""
        positions = np.searchsorted(self.starts, samples, side="right") - 1
        steps = self.spec.first_step + (samples - self.starts[positions]) * self.spec.stride
        return positions, steps

    def number_of(self, position: int, step: int) -> int:
        """Return the number of the window of a step; raise `BadInputError` if the step has none."""
        at, remainder = divmod(step - self.spec.first_step, self.spec.stride)
        number = int(self.starts[position]) + at
        if remainder or at < 0 or number >= self.starts[position + 1]:
            raise BadInputError(f"step {step} of this episode has no window")
        return number

    def split_by_episode(self, first: int, last: int) -> list[tuple[int, int, int]]:
        """Return the windows [first, last) as (position of the episode, first and last current step)."""
        out = []
        while first < last:
            position = int(np.searchsorted(self.starts, first, side="right")) - 1
            end = min(last, int(self.starts[position + 1]))
            begin = int(self.starts[position])
            low, high = ((n - begin) * self.spec.stride + self.spec.first_step for n in (first, end - 1))
            out.append((position, low, high))
            first = end
        return out


def make_spec(request: WindowRequest, layout: Sequence[ChannelLayout]) -> WindowSpec:
    """Check a request. History and horizon default to the smallest that hold all keys."""
    if request.pad not in (None, *get_args(Pad)):
        raise BadInputError(
            f"pad={request.pad!r} is unknown", hint="Use 'edge', 'zero', or None for complete windows only."
        )
    _check_count("stride", request.stride, 1)
    ranges = _parse_keys(request.keys, layout)
    history, horizon = request.history, request.horizon
    given = [span for span in ranges.values() if span is not None]
    if history is None:
        history = max([0, *(-start for start, _ in given)])
    if horizon is None:
        horizon = max([0, *(stop for _, stop in given)]) if given else 1
    _check_count("history", history, 0)
    _check_count("horizon", horizon, 0)
    if not 1 <= history + horizon <= EPISODES_MAX_WINDOW_STEPS:
        raise BadInputError(f"a window of {history + horizon} steps is not within 1…{EPISODES_MAX_WINDOW_STEPS}")
    made = tuple(WindowKey(name, *(span or (-history, horizon))) for name, span in ranges.items())
    for key in made:
        if not -history <= key.start < key.stop <= horizon:
            raise BadInputError(
                f"keys[{key.name!r}]={(key.start, key.stop)} is empty, or not within {(-history, horizon)}",
                hint="A range is (start, stop) in steps from the current one; widen history or horizon.",
            )
    return WindowSpec(history, horizon, request.stride, request.pad, made)


def mask_name(key: str) -> str:
    """Return the name of a key's mask in a batch."""
    return f"{key}.mask"


def _parse_keys(keys: Keys | None, layout: Sequence[ChannelLayout]) -> dict[str, tuple[int, int] | None]:
    if keys is None:
        keys = [spec.id for spec in layout if spec.block.startswith(("signal/", "action/"))]
    if isinstance(keys, str) or not keys:
        raise BadInputError(f"keys={keys!r} names no channel", hint='Use keys={"rgb": (-4, 0), "ctrl": (0, 16)}.')
    ranges = dict(keys) if isinstance(keys, Mapping) else dict.fromkeys(keys)
    reserved = {EPISODE, STEP, *(mask_name(name) for name in ranges)}
    for name, span in ranges.items():
        if name in reserved:
            raise BadInputError(
                f"{name!r} has another meaning in a batch", hint=f"Use the block name: 'signal/{name}'."
            )
        if span is not None and not _is_range(span):
            raise BadInputError(f"keys[{name!r}]={span!r} is not a range of steps", hint="Use (start, stop).")
    return {name: None if span is None else (span[0], span[1]) for name, span in ranges.items()}


def _is_range(span: object) -> bool:
    return (
        isinstance(span, tuple | list)
        and len(span) == 2
        and all(isinstance(step, int) and not isinstance(step, bool) for step in span)
    )


def _check_count(name: str, value: object, minimum: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
        raise BadInputError(f"{name}={value!r} is not an integer of at least {minimum}")
