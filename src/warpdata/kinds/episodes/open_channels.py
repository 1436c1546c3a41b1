"""The channels that windows are made of, in every episode they are taken from."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from warpdata.errors import BadInputError
from warpdata.formats.wshard import DType
from warpdata.kinds.episodes.chunked_channel import AnyTrack, open_track
from warpdata.kinds.episodes.description import ChannelLayout
from warpdata.kinds.episodes.index_reader import Library
from warpdata.kinds.episodes.window_spec import find_channel
from warpdata.limits import EPISODES_GATHERED_ROW_BYTES
from warpdata.primitives.cached_property import cached_property

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["OpenTracks", "step_form"]


class OpenTracks:
    """Tracks by the position of their episode among `numbers`, one for each name. Remembers the latest."""

    def __init__(self, library: Library, numbers: NDArray[np.int64], names: Sequence[str]) -> None:
        overview = library.overview
        self._library = library
        self.numbers = numbers
        self.lengths = overview.lengths[numbers]
        self._layout_numbers = overview.layout_numbers[numbers]
        self._channels = self._checked(overview.layouts, names)
        self.tracks = functools.lru_cache(maxsize=library.most_open)(self._tracks)

    @property
    def channels(self) -> tuple[ChannelLayout, ...]:
        """Of the first episode; all others have the same types and shapes."""
        return self._channels[int(self._layout_numbers[0])] if len(self.numbers) else ()

    @property
    def has_whole_blocks(self) -> bool:
        """Whether some channel of some episode can be decoded only whole."""
        return any(spec.is_whole for specs in self._channels.values() for spec in specs)

    @property
    def are_in_place(self) -> bool:
        """Whether rows are used where they lie, as it seems from the first episode."""
        return bool(len(self.numbers)) and all(track.is_in_place for track in self.tracks(0))

    @property
    def are_here(self) -> bool:
        """Whether files lie on this machine, as it seems from the first episode."""
        return bool(len(self.numbers)) and self.tracks(0)[0].is_here

    @cached_property
    def gathered(self) -> tuple[int, ...]:
        """The positions of names whose rows are brought together before windows are made of them.

        They have a row for every step of every episode. Large rows that lie in place stay there, as it seems from
        the first episode: to copy their windows takes long beside finding them.
        """
        if not len(self.numbers):
            return ()
        first, all_specs = self.tracks(0), list(self._channels.values())
        return tuple(
            at
            for at, track in enumerate(first)
            if all(specs[at].rate_hz is None for specs in all_specs)
            and (not track.is_in_place or track.step_bytes <= EPISODES_GATHERED_ROW_BYTES)
        )

    def _tracks(self, position: int) -> tuple[AnyTrack, ...]:
        episode = self._library.open(int(self.numbers[position]))
        channels = self._channels[int(self._layout_numbers[position])]
        return tuple(open_track(episode, channel) for channel in channels)

    def _checked(
        self, layouts: Sequence[Sequence[ChannelLayout]], names: Sequence[str]
    ) -> dict[int, tuple[ChannelLayout, ...]]:
        """The channels in each layout that occurs. Windows of all episodes must fit into one array."""
        out: dict[int, tuple[ChannelLayout, ...]] = {}
        first: tuple[ChannelLayout, ...] | None = None
        for number, position in zip(*np.unique(self._layout_numbers, return_index=True), strict=True):
            what = f"episode {int(self.numbers[position])} of {self._library.name!r}"
            found = tuple(find_channel(name, layouts[int(number)], what) for name in names)
            first = first or found
            for mine, other in zip(found, first, strict=True):
                if (mine.dtype, mine.shape) != (other.dtype, other.shape):
                    raise BadInputError(
                        f"channel {mine.id!r} is {mine.dtype}{list(mine.shape)} in {what}, "
                        f"and {other.dtype}{list(other.shape)} in another",
                        hint="Choose episodes of one kind with where(…).",
                    )
            out[int(number)] = found
        return out


def step_form(channel: ChannelLayout) -> tuple[tuple[int, ...], np.dtype[Any], int]:
    """The shape and type of one step, and its size in bytes."""
    dtype = DType(channel.dtype)
    return channel.shape, dtype.numpy, math.prod(channel.shape) * dtype.size_bytes
