"""Windows as something to stream: which there are, in which order, and what an epoch of them takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from warpdata.errors import BadInputError
from warpdata.kinds.episodes.index_reader import Origin
from warpdata.kinds.episodes.open_channels import OpenTracks, step_form
from warpdata.kinds.episodes.window_loader import Ahead, Batches, WindowsFeed
from warpdata.kinds.episodes.window_spec import Places, WindowSpec
from warpdata.limits import (
    EPISODES_BLOCK_BYTES,
    EPISODES_OPENING_BLOCKS,
    STREAM_MAX_BLOCK_ROWS,
    STREAM_WINDOW_BYTES,
)
from warpdata.primitives.cached_property import cached_property
from warpdata.streaming import OwnedPositions, SampleLocation, Shuffle, VersionIdentity

__all__ = ["WindowsIdentity", "WindowsPlan", "choose_blocks"]

_WHOLE_EPISODES = 4
"""At least so many episodes are mixed, even if each has to be decoded several times for that."""
_LEAST_USES = 2
"""Rows in place are brought together where each is used in so many windows."""
_LOOKED_AT = 65_536
_MOST_AHEAD = 2
"""A shuffle that a user chose may hold so many times what one that was chosen for them would."""


_LEAST_GROUPS = 3
"""The one that is being handed out, and two that batches are made of already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowsIdentity(VersionIdentity):
    """The order of the windows of one set of episodes."""

    episodes: str
    windows: WindowSpec

    def sample_fields(self) -> dict[str, Any]:
        return {"episodes": self.episodes, "windows": self.windows.document()}


@dataclass(frozen=True)
class WindowsPlan:
    """Implements `SampleSource`. A place is the number of an episode and a step of it."""

    origin: Origin
    name: str
    filter: str
    spec: WindowSpec
    episodes: OpenTracks
    batches: Batches
    asked: bool | Shuffle
    seed: int

    @cached_property
    def places(self) -> Places:
        return Places.of(self.spec, self.episodes.lengths)

    @property
    def sample_bytes(self) -> float:
        forms = [step_form(channel) for channel in self.episodes.channels]
        return float(sum(key.steps * size for key, (_, _, size) in zip(self.spec.keys, forms, strict=True)))

    @cached_property
    def blocks(self) -> Shuffle:
        """What is read together, also where nothing is shuffled."""
        if isinstance(self.asked, Shuffle):
            return self.asked
        typical = self.places.count // max(len(self.episodes.numbers), 1)
        least = typical if self.episodes.has_whole_blocks else 1
        return choose_blocks(self.places.count, self._step_bytes, self.spec, least)

    @property
    def shuffle(self) -> Shuffle | None:
        return None if self.asked is False else self.blocks

    @cached_property
    def identity(self) -> WindowsIdentity:
        return WindowsIdentity(
            dataset_id=self.origin.dataset_id,
            version=self.origin.version,
            episodes=self.name,
            filter=self.filter,
            windows=self.spec,
            sample_count=self.places.count,
            seed=self.seed,
            shuffle=self.shuffle,
        )

    @property
    def known_count(self) -> int:
        return self.places.count

    @property
    def max_samples(self) -> int:
        return self.places.count

    @property
    def media_bytes(self) -> float:
        """What a window adds to what its neighbour has: it is read like media, by ranges of large blobs."""
        return float(self._step_bytes * min(self.spec.stride, self.spec.extent))

    @property
    def cache_bytes(self) -> int:
        return 0

    @property
    def table_requests(self) -> int:
        return 0

    def open(self, epoch: int, owned: OwnedPositions, *, with_media: bool) -> WindowsFeed:
        return WindowsFeed(
            self.identity.order(epoch),
            self.places,
            self.blocks.block_rows,
            self.episodes,
            self.batches,
            ahead=self._ahead(owned),
        )

    def _ahead(self, owned: OwnedPositions) -> Ahead:
        """Who takes a small share of the windows would bring together rows mostly for others."""
        places = owned(max(0, self.places.count - _LOOKED_AT), self.places.count)
        share = len(places) / (int(places[-1]) - int(places[0]) + 1) if len(places) else 0.0
        uses = share * self.sample_bytes / max(self.media_bytes, 1.0)
        return Ahead(gathers=uses >= _LEAST_USES, most_groups=self._most_groups)

    @property
    def _most_groups(self) -> int:
        """How many groups may be held at once: of small ones as many as fit, of those that are too large none."""
        if self._group_bytes > _MOST_AHEAD * STREAM_WINDOW_BYTES:
            return 0
        return max(_LEAST_GROUPS, STREAM_WINDOW_BYTES // max(self._group_bytes, 1))

    @property
    def _group_bytes(self) -> int:
        """What is held of one window of the shuffle, or of one block where nothing is shuffled."""
        blocks = self.blocks
        held = -(-self.places.count // blocks.block_rows) if self.asked is not False else 1
        return min(held, blocks.window_blocks) * _block_bytes(blocks.block_rows, self._step_bytes, self.spec)

    @property
    def _step_bytes(self) -> int:
        return sum(step_form(channel)[2] for channel in self.episodes.channels)

    def locate(self, start: int, stop: int, epoch: int) -> list[SampleLocation]:
        positions, steps = self.places.locate(self.identity.order(epoch).samples(start, stop))
        return list(zip(self.episodes.numbers[positions].tolist(), steps.tolist(), strict=True))

    def position_of(self, location: SampleLocation, epoch: int) -> int:
        number, step = location
        position = int(np.searchsorted(self.episodes.numbers, number))
        if position >= len(self.episodes.numbers) or self.episodes.numbers[position] != number:
            raise BadInputError(f"episode {number} is not among those that windows are taken from")
        return self.identity.order(epoch).position_of(self.places.number_of(position, step))


def choose_blocks(count: int, step_bytes: int, spec: WindowSpec, least: int) -> Shuffle:
    """Blocks of neighbouring windows that are worth a request, and as many as fit into memory. Pure.

    Neighbours share steps: a block takes the steps from its first window to its last, and those are counted.
    `least` is how many windows should be in a block because they can only be decoded together.
    """
    each = max(step_bytes * min(spec.stride, spec.extent), 1)
    together = min(least, STREAM_WINDOW_BYTES // (_WHOLE_EPISODES * each))
    rows = max(EPISODES_BLOCK_BYTES // each, -(-spec.extent // spec.stride), together, 1)
    block_rows = 1 << (min(rows, STREAM_MAX_BLOCK_ROWS).bit_length() - 1)
    blocks = STREAM_WINDOW_BYTES // max(_block_bytes(block_rows, step_bytes, spec), 1)
    window_blocks = max(1, min(blocks, -(-max(count, 1) // block_rows)))
    return Shuffle(block_rows, window_blocks, EPISODES_OPENING_BLOCKS if window_blocks > EPISODES_OPENING_BLOCKS else 0)


def _block_bytes(block_rows: int, step_bytes: int, spec: WindowSpec) -> int:
    """What the steps of a block of neighbouring windows take."""
    return step_bytes * (block_rows * min(spec.stride, spec.extent) + spec.extent)
