"""The windows of one epoch, written straight into the arrays of batches."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from warpdata.errors import BadInputError
from warpdata.formats.wshard import Array
from warpdata.kinds.episodes.block_loader import BatchLoads, BlockLoads, LoadingGroup
from warpdata.kinds.episodes.buffer_pool import BatchMemory
from warpdata.kinds.episodes.gather import Gathering
from warpdata.kinds.episodes.open_channels import OpenTracks, step_form
from warpdata.kinds.episodes.padding import fill_window, inside
from warpdata.kinds.episodes.window_spec import EPISODE, STEP, Places, mask_name
from warpdata.limits import STREAM_THREADS
from warpdata.primitives.parallel import usable_cores
from warpdata.streaming import Order

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Ahead", "Batches", "WindowsFeed"]


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


@dataclass(frozen=True, slots=True)
class Ahead:
    """Whether blocks of windows are loaded before they are asked for, and in what way.

    `gathers`: every row is used by several windows, so that rows are brought together before.
    `most_groups`: how many groups of blocks may be held at once; none, and windows are loaded one by one.
    """

    gathers: bool
    most_groups: int


class WindowsFeed:
    """Implements `BatchReader`. Blocks of `block_rows` windows are loaded together."""

    def __init__(
        self, order: Order, places: Places, block_rows: int, episodes: OpenTracks, batches: Batches, *, ahead: Ahead
    ) -> None:
        self._order = order
        self._places = places
        self._episodes = episodes
        self._batches = batches
        self._block_rows = block_rows
        self._gathered = episodes.gathered if ahead.most_groups and ahead.gathers else ()
        forms = {at: step_form(episodes.channels[at])[:2] for at in self._gathered}
        most_blocks = 1 if order.shuffle is None else min(order.shuffle.window_blocks, -(-order.count // block_rows))
        gathering = Gathering(places, block_rows, most_blocks, episodes.lengths, forms, batches.memory)
        groups = self._blocks_of if ahead.most_groups else None
        self._loads = BlockLoads(gathering, episodes, groups, ahead.most_groups)
        self._is_copying = groups is not None or episodes.are_in_place

    @property
    def batch_threads(self) -> int:
        """One where rows are in place, or brought into memory by others before; a core each where they are decoded."""
        if self._is_copying:
            return 1
        return min(usable_cores(), STREAM_THREADS) if self._episodes.are_here else STREAM_THREADS

    def arrays(self, spans: Sequence[tuple[int, int]], turn: int) -> dict[str, Array]:
        runs = [run for span in spans for run in self._runs(*span)]
        # First of all: whoever comes later may let go of a group that nobody has.
        groups = [self._loads.group(number) for number, _ in runs]
        samples = np.concatenate([np.empty(0, np.int64), *(self._order.samples(*span) for span in spans)])
        positions, steps = self._places.locate(samples)
        out = self._batches.arrays(len(samples), turn)
        loads: BatchLoads | None = None
        begin = 0
        for (_, count), group in zip(runs, groups, strict=True):
            mine = slice(begin, begin + count)
            part = _Windows(samples[mine], positions[mine], steps[mine], begin)
            if group is not None:
                self._gather(out, part, group)
            if group is None or len(self._gathered) < len(self._places.spec.keys):
                loads = loads or self._loads.for_batch(samples.tolist(), _spread(runs, groups))
                self._copy(out, part, loads, is_alone=group is None)
            begin += count
        out[EPISODE][:] = self._episodes.numbers[positions]
        out[STEP][:] = steps
        if self._batches.has_masks:
            for key in self._places.spec.keys:
                out[mask_name(key.name)][:] = inside(steps, self._episodes.lengths[positions], key)
        return out

    def _gather(self, out: Mapping[str, Array], part: _Windows, group: LoadingGroup) -> None:
        """Windows of keys that are in the arrays of the group."""
        if not self._gathered:
            return
        if not group.is_complete:
            for block in np.unique(part.samples // self._block_rows).tolist():
                group.block(block)
        spec, slots = self._places.spec, group.rows.slots(part.samples)
        lengths = self._episodes.lengths[part.positions]
        for at in self._gathered:
            windows = out[spec.keys[at].name][part.begin : part.begin + len(slots)]
            group.rows.take(at, slots, part.steps, lengths - 1, windows)
            if spec.pad == "zero":
                windows[~inside(part.steps, lengths, spec.keys[at])] = 0

    def _copy(self, out: Mapping[str, Array], part: _Windows, loads: BatchLoads, *, is_alone: bool) -> None:
        """Windows that were not gathered, one by one, from where they lie or were loaded to.

        `is_alone`: nothing was loaded ahead.
        """
        spec = self._places.spec
        rest = [(at, key) for at, key in enumerate(spec.keys) if is_alone or at not in self._gathered]
        where = list(zip(part.positions.tolist(), part.steps.tolist(), strict=True))
        opened = [self._episodes.tracks(position) for position, _ in where]
        for at, key in rest:
            windows = out[key.name]
            for i, (position, step) in enumerate(where, part.begin):
                track, low, high = opened[i - part.begin][at], step + key.start, step + key.stop
                rows = track.ready(low, high)
                if rows is None and track.is_apart and low >= 0 and high <= track.length:
                    if is_alone and track.decodes_here:
                        track.decode(low, high, windows[i])
                        continue
                    rows = loads.rows(i, position, at).between(low, high)
                if rows is not None:
                    windows[i] = rows
                else:
                    loaded = functools.partial(loads.rows, i, position, at)
                    fill_window(windows[i], track, key, step, spec.pad, loaded)

    def advance(self, position: int) -> None:
        """Loads look ahead by themselves, as batches are asked for; here they hear what is behind."""
        group, _ = next(self._runs(position, position + 1))
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


def _spread(runs: Sequence[tuple[int, int]], groups: Sequence[LoadingGroup | None]) -> list[LoadingGroup | None]:
    """The group of each window."""
    return [group for (_, count), group in zip(runs, groups, strict=True) for _ in range(count)]


class _Windows(NamedTuple):
    """Windows of one group that stand from `begin` on in a batch."""

    samples: NDArray[np.int64]
    positions: NDArray[np.int64]
    steps: NDArray[np.int64]
    begin: int
