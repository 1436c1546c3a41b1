"""What a window is, and how many an episode has. Pure.

Implements "Windows" of docs/specs/episodes.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import numpy as np

from warpdata.errors import BadInputError, NotFoundError
from warpdata.kinds.episodes.description import ChannelLayout
from warpdata.limits import EPISODES_MAX_WINDOW_STEPS

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["EPISODE", "STEP", "Key", "Keys", "Pad", "Places", "WindowSpec", "find_channel", "make_spec", "mask_name"]

Pad: TypeAlias = Literal["edge", "zero"]
Keys: TypeAlias = "Mapping[str, tuple[int, int] | None] | Sequence[str]"
"""Channels by id or block name, each with its steps `(start, stop)` around the current one, or None for all."""

EPISODE, STEP = "episode", "step"
"""What every batch has beside the channels: whose window it is, and its current step."""


@dataclass(frozen=True, slots=True)
class Key:
    """Steps from `start` up to, not including, `stop` of one channel, counted from the current step."""

    name: str
    start: int
    stop: int

    @property
    def steps(self) -> int:
        return self.stop - self.start


@dataclass(frozen=True, slots=True)
class WindowSpec:
    """The window of step `t` has the steps from `t - history` up to, not including, `t + horizon`."""

    history: int
    horizon: int
    stride: int
    pad: Pad | None
    keys: tuple[Key, ...]

    @property
    def extent(self) -> int:
        return self.history + self.horizon

    @property
    def first_step(self) -> int:
        """The first step that has a window."""
        return 0 if self.pad is not None else max(self.history, 0)

    def counts(self, lengths: NDArray[np.int64]) -> NDArray[np.int64]:
        """How many windows each episode has."""
        last = lengths - 1 if self.pad is not None else lengths - max(self.horizon, 1)
        return np.maximum((last - self.first_step) // self.stride + 1, 0)

    def document(self) -> dict[str, Any]:
        """All that decides which windows there are and what is in them, as JSON."""
        return {
            "history": self.history,
            "horizon": self.horizon,
            "stride": self.stride,
            "pad": self.pad,
            "keys": {key.name: [key.start, key.stop] for key in self.keys},
        }


@dataclass(frozen=True)
class Places:
    """Windows numbered over all episodes: those of the first, then those of the second, each in order of time."""

    spec: WindowSpec
    starts: NDArray[np.int64]
    """The number of each episode's first window, and how many there are in all."""

    @staticmethod
    def of(spec: WindowSpec, lengths: NDArray[np.int64]) -> Places:
        return Places(spec, np.concatenate([np.zeros(1, np.int64), np.cumsum(spec.counts(lengths))]))

    @property
    def count(self) -> int:
        return int(self.starts[-1])

    def locate(self, samples: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Of each window the position of its episode and its current step."""
        positions = np.searchsorted(self.starts, samples, side="right") - 1
        steps = self.spec.first_step + (samples - self.starts[positions]) * self.spec.stride
        return positions, steps

    def number_of(self, position: int, step: int) -> int:
        """The window of a step; `BadInputError` if it has none."""
        at, left = divmod(step - self.spec.first_step, self.spec.stride)
        number = int(self.starts[position]) + at
        if left or at < 0 or number >= self.starts[position + 1]:
            raise BadInputError(f"step {step} of that episode has no window")
        return number

    def parts(self, first: int, last: int) -> list[tuple[int, int, int]]:
        """Windows `first` up to `last` by episode: its position, and the current steps of the first and the last."""
        out = []
        while first < last:
            position = int(np.searchsorted(self.starts, first, side="right")) - 1
            end = min(last, int(self.starts[position + 1]))
            begin = int(self.starts[position])
            low, high = ((n - begin) * self.spec.stride + self.spec.first_step for n in (first, end - 1))
            out.append((position, low, high))
            first = end
        return out


def make_spec(
    keys: Keys | None,
    ranges: tuple[int | None, int | None],
    stride: int,
    pad: Pad | None,
    layout: Sequence[ChannelLayout],
) -> WindowSpec:
    """Check what a user asked for. `ranges` are history and horizon; without them, what the keys need."""
    if pad not in (None, *get_args(Pad)):
        raise BadInputError(f"pad={pad!r} is not known", hint="Use 'edge', 'zero', or None for whole windows only.")
    _check_count("stride", stride, 1)
    wanted = _wanted(keys, layout)
    history, horizon = ranges
    given = [span for span in wanted.values() if span is not None]
    if history is None:
        history = max([0, *(-start for start, _ in given)])
    if horizon is None:
        horizon = max([0, *(stop for _, stop in given)]) if given else 1
    _check_count("history", history, 0)
    _check_count("horizon", horizon, 0)
    if not 1 <= history + horizon <= EPISODES_MAX_WINDOW_STEPS:
        raise BadInputError(f"a window of {history + horizon} steps is not within 1…{EPISODES_MAX_WINDOW_STEPS}")
    made = tuple(Key(name, *(span or (-history, horizon))) for name, span in wanted.items())
    for key in made:
        if not -history <= key.start < key.stop <= horizon:
            raise BadInputError(
                f"keys[{key.name!r}]={(key.start, key.stop)} is empty, or not within {(-history, horizon)}",
                hint="A range is (start, stop) in steps from the current one; widen history or horizon.",
            )
    return WindowSpec(history, horizon, stride, pad, made)


def mask_name(key: str) -> str:
    """What the mask of a key is called in a batch."""
    return f"{key}.mask"


def find_channel(name: str, layout: Sequence[ChannelLayout], what: str) -> ChannelLayout:
    """The channel that a name means; `what` says where it was looked for."""
    found = [spec for spec in layout if spec.block == name] or [
        spec for spec in layout if name in (spec.id, spec.block.partition("/")[2])
    ]
    if len(found) > 1:
        raise BadInputError(
            f"{name!r} may be {' or '.join(spec.block for spec in found)} in {what}", hint="Name the block."
        )
    if not found:
        listed = ", ".join(spec.id for spec in layout[:20])
        raise NotFoundError(f"{what} has no channel {name!r} with steps", hint=f"There are: {listed or 'none'}.")
    return found[0]


def _wanted(keys: Keys | None, layout: Sequence[ChannelLayout]) -> dict[str, tuple[int, int] | None]:
    if keys is None:
        keys = [spec.id for spec in layout if spec.block.startswith(("signal/", "action/"))]
    if isinstance(keys, str) or not keys:
        raise BadInputError(f"keys={keys!r} names no channel", hint='Use keys={"rgb": (-4, 0), "ctrl": (0, 16)}.')
    wanted = dict(keys) if isinstance(keys, Mapping) else dict.fromkeys(keys)
    taken = {EPISODE, STEP, *(mask_name(name) for name in wanted)}
    for name, span in wanted.items():
        if name in taken:
            raise BadInputError(f"{name!r} has another meaning in a batch", hint=f"Name the block: 'signal/{name}'.")
        if span is not None and not _is_range(span):
            raise BadInputError(f"keys[{name!r}]={span!r} is not a range of steps", hint="Use (start, stop).")
    return {name: None if span is None else (span[0], span[1]) for name, span in wanted.items()}


def _is_range(span: object) -> bool:
    return (
        isinstance(span, tuple | list)
        and len(span) == 2
        and all(isinstance(step, int) and not isinstance(step, bool) for step in span)
    )


def _check_count(name: str, value: object, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise BadInputError(f"{name}={value!r} is not a whole number from {least} on")
