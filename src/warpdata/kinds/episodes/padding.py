"""From rows to windows: copies into the arrays of a batch, with what lies beyond an episode's ends filled in."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from warpdata.formats.wshard import Array
from warpdata.kinds.episodes.channel_reader import Rows
from warpdata.kinds.episodes.chunked_channel import AnyTrack
from warpdata.kinds.episodes.window_spec import Key, Pad

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["fill_window", "inside"]


def fill_window(out: Array, track: AnyTrack, key: Key, step: int, pad: Pad | None, loaded: Callable[[], Rows]) -> None:
    """Write the window of `step` into `out`, of shape (steps, …). `loaded` gives rows that are not in place."""
    length = track.length
    low, high = step + key.start, step + key.stop
    first, last = min(max(low, 0), length), max(min(high, length), 0)
    if first < last:
        _copy(out[first - low : last - low], track, first, last, loaded)
    if low < first or last < high:
        _fill_ends(out, track, (low, high), pad, loaded)


def inside(steps: NDArray[np.int64], lengths: NDArray[np.int64], key: Key) -> NDArray[np.bool_]:
    """Which steps of each window lie within its episode."""
    wanted = steps[:, None] + np.arange(key.start, key.stop)
    return (wanted >= 0) & (wanted < lengths[:, None])


def _fill_ends(out: Array, track: AnyTrack, span: tuple[int, int], pad: Pad | None, loaded: Callable[[], Rows]) -> None:
    length = track.length
    low, high = span
    before, after = min(max(-low, 0), high - low), min(max(high - length, 0), high - low)
    for part, edge in ((out[:before], 0), (out[len(out) - after :], length - 1)):
        if not len(part):
            continue
        if pad == "edge":
            _copy(part[:1], track, edge, edge + 1, loaded)
            part[1:] = part[0]
        else:
            part[...] = 0


def _copy(out: Array, track: AnyTrack, first: int, last: int, loaded: Callable[[], Rows]) -> None:
    """Rows of the steps `first` up to `last`, which lie within the episode."""
    low, high = (first, last) if track.is_stepwise else (track.row_of(first), track.row_of(last - 1) + 1)
    rows = track.in_place(low, high)
    if rows is None:
        rows = loaded().between(low, high)
    out[...] = rows if track.is_stepwise else rows[track.rows_of(np.arange(first, last)) - low]
