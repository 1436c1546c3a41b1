"""The windows of one epoch, written straight into the arrays of batches."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from warpdata.episodes.filling import fill_window, inside
from warpdata.episodes.loading import BlockLoads
from warpdata.episodes.memory import BatchMemory
from warpdata.episodes.open_tracks import OpenTracks
from warpdata.episodes.spec import EPISODE, STEP, Places, mask_name
from warpdata.errors import BadInputError
from warpdata.streaming import Order
from warpdata.wshard import Array

__all__ = ["Batches", "WindowsFeed"]


@dataclass(frozen=True)
class Batches:
    """What arrays a batch has: names, shapes of a sample and types; and the caller's own, used in turn."""

    forms: Mapping[str, tuple[tuple[int, ...], np.dtype[Any]]]
    has_masks: bool
    out: tuple[Mapping[str, Array], ...] = ()
    memory: BatchMemory = field(default_factory=BatchMemory)

    def arrays(self, size: int, turn: int) -> dict[str, Array]:
        given = self.out[turn % len(self.out)] if self.out else {}
        return {
            name: given[name][:size] if name in given else self.memory.array((size, *shape), dtype)
            for name, (shape, dtype) in self.forms.items()
        }

    def check(self, batch_size: int) -> None:
        """`BadInputError` unless the caller's arrays can hold every batch as it is."""
        for slot in self.out:
            for name, array in slot.items():
                shape, dtype = self.forms.get(name, ((), None))
                if dtype is None:
                    raise BadInputError(f"out has {name!r}, and a batch has only {sorted(self.forms)}")
                fits = isinstance(array, np.ndarray) and array.dtype == dtype and array.shape[1:] == shape
                if not fits or len(array) < batch_size or not array.flags.c_contiguous or not array.flags.writeable:
                    raise BadInputError(
                        f"out[{name!r}] is no writable contiguous array of {dtype} and shape {(batch_size, *shape)}"
                    )


class WindowsFeed:
    """Implements `ArrayFeed`. Blocks of `block_rows` windows are loaded together, in up to `most_groups` groups."""

    def __init__(
        self,
        order: Order,
        places: Places,
        block_rows: int,
        episodes: OpenTracks,
        batches: Batches,
        *,
        most_groups: int,
    ) -> None:
        self._order = order
        self._places = places
        self._episodes = episodes
        self._batches = batches
        self._block_rows = block_rows
        groups = self._blocks_of if most_groups else None
        self._loads = BlockLoads(places, block_rows, episodes, groups, most_groups)

    def arrays(self, spans: Sequence[tuple[int, int]], turn: int) -> dict[str, Array]:
        spec = self._places.spec
        samples = np.concatenate([np.empty(0, np.int64), *(self._order.samples(*span) for span in spans)])
        groups: list[int] = []
        for group, count in (run for span in spans for run in self._runs(*span)):
            groups += [group] * count
        positions, steps = self._places.locate(samples)
        out = self._batches.arrays(len(samples), turn)
        loads = self._loads.for_batch(samples.tolist(), groups)
        opened = [self._episodes.tracks(position) for position in positions.tolist()]
        where = list(zip(positions.tolist(), steps.tolist(), strict=True))
        for at, key in enumerate(spec.keys):
            windows = out[key.name]
            for i, (position, step) in enumerate(where):
                track, low, high = opened[i][at], step + key.start, step + key.stop
                rows = track.ready(low, high)
                if rows is None and track.is_apart and low >= 0 and high <= track.length:
                    rows = loads.rows(i, position, at).between(low, high)
                if rows is not None:
                    windows[i] = rows
                else:
                    loaded = functools.partial(loads.rows, i, position, at)
                    fill_window(windows[i], track, key, step, spec.pad, loaded)
        out[EPISODE][:] = self._episodes.numbers[positions]
        out[STEP][:] = steps
        if self._batches.has_masks:
            for key in spec.keys:
                out[mask_name(key.name)][:] = inside(steps, self._episodes.lengths[positions], key)
        return out

    def ahead(self, place: int) -> None:
        """Loads look ahead by themselves, as batches are asked for; here they hear what is behind."""
        group, _ = next(self._runs(place, place + 1))
        self._loads.let_go(group)

    def close(self) -> None:
        self._loads.close()

    def _runs(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """Groups of blocks that are loaded together, and how many of the places each has.

        A group is a window of the shuffle; without a shuffle, a block.
        """
        while start < stop:
            if self._order.shuffle is None:
                group = start // self._block_rows
                end = (group + 1) * self._block_rows
            else:
                group = self._order.window_at(start)
                end = self._order.window_span(group)[1]
            end = min(end, stop)
            yield group, end - start
            start = end

    def _blocks_of(self, group: int) -> Sequence[int]:
        if self._order.shuffle is None:
            return [group] if group * self._block_rows < self._order.count else []
        blocks: Sequence[int] = self._order.window_blocks(group).tolist() if group < self._order.window_count else []
        return blocks
