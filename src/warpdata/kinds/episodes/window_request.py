"""What a user asks of windows, checked once and made into a plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from warpdata.errors import BadInputError
from warpdata.formats.wshard import Array
from warpdata.kinds.episodes.index_reader import Library
from warpdata.kinds.episodes.open_channels import OpenTracks, step_form
from warpdata.kinds.episodes.window_loader import Batches
from warpdata.kinds.episodes.window_source import WindowsPlan
from warpdata.kinds.episodes.window_spec import EPISODE, STEP, Keys, Pad, make_spec, mask_name
from warpdata.limits import EPISODES_BATCH_BYTES_AHEAD, STREAM_PREFETCH_BATCHES
from warpdata.streaming import Shuffle

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["WindowsRequest", "batches_ahead", "make_plan"]


@dataclass(frozen=True, slots=True)
class WindowsRequest:
    """`ranges` are history and horizon."""

    keys: Keys | None
    ranges: tuple[int | None, int | None]
    stride: int
    pad: Pad | None
    mask: bool
    shuffle: bool | Shuffle
    seed: int

    def __post_init__(self) -> None:
        if isinstance(self.seed, bool) or not isinstance(self.seed, int):
            raise BadInputError(f"seed={self.seed!r} is not an integer")


def make_plan(
    library: Library,
    numbers: NDArray[np.int64],
    filter_text: str,
    request: WindowsRequest,
    out: Sequence[Mapping[str, Array]],
) -> WindowsPlan:
    """Reads two columns of the index. `NotFoundError` and `BadInputError` say what some episode lacks."""
    if not len(numbers):
        raise BadInputError(f"there is no episode to take windows from: {filter_text or 'the set is empty'}")
    overview = library.overview
    first = overview.layouts[int(overview.layout_numbers[numbers[0]])]
    spec = make_spec(request.keys, request.ranges, request.stride, request.pad, first)
    episodes = OpenTracks(library, numbers, [key.name for key in spec.keys])
    forms: dict[str, tuple[tuple[int, ...], np.dtype[Any]]] = {}
    for key, channel in zip(spec.keys, episodes.channels, strict=True):
        shape, dtype, _ = step_form(channel)
        forms[key.name] = (key.steps, *shape), dtype
        if request.mask:
            forms[mask_name(key.name)] = (key.steps,), np.dtype(np.bool_)
    forms[EPISODE] = forms[STEP] = (), np.dtype(np.int64)
    batches = Batches(forms, request.mask, tuple(out))
    return WindowsPlan(
        library.origin, library.name, filter_text, spec, episodes, batches, request.shuffle, request.seed
    )


def batches_ahead(prefetch: int | str, batch_bytes: float) -> int:
    """How many batches to prepare ahead: large ones take memory."""
    if prefetch != "auto":
        if isinstance(prefetch, bool) or not isinstance(prefetch, int):
            raise BadInputError(f"prefetch={prefetch!r} is neither 'auto' nor a count")
        return prefetch
    return max(1, min(STREAM_PREFETCH_BATCHES, int(EPISODES_BATCH_BYTES_AHEAD / max(batch_bytes, 1.0))))
