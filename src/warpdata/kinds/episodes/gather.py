"""The rows of many windows in one array for each key, so that a batch is gathered from it at once.

Neighbouring windows share steps: the rows of a block of them are little beside the windows, and to bring them
together costs little beside copying these. Where each row goes is decided before anything is read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from warpdata.formats.wshard import Array
from warpdata.kinds.episodes.buffer_pool import BatchMemory
from warpdata.kinds.episodes.window_spec import Key, Places

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Gathering", "Group", "Part", "Stretch", "intervals"]


class Stretch(NamedTuple):
    """Rows from `first` up to `last` of a channel, which stand from `begin` on in the array of their key."""

    first: int
    last: int
    begin: int


@dataclass(frozen=True, slots=True)
class Part:
    """Windows of one episode from the current step `low` to `high`, and the rows they need of the gathered keys."""

    position: int
    low: int
    high: int
    stretches: Mapping[int, Sequence[Stretch]]


@dataclass(frozen=True)
class Gathering:
    """How windows are gathered: in groups of at most `most_blocks` blocks of `block_rows` windows.

    `forms` are those of a row, by the position of the keys that are gathered.
    """

    places: Places
    block_rows: int
    most_blocks: int
    lengths: NDArray[np.int64]
    forms: Mapping[int, tuple[tuple[int, ...], np.dtype[Any]]]
    memory: BatchMemory

    def block_parts(self, block: int) -> list[tuple[int, int, int]]:
        rows = self.block_rows
        return self.places.parts(block * rows, min((block + 1) * rows, self.places.count))

    def array(self, at: int, rows: int) -> Array:
        """Room for the rows of a group: as much as most need, so that one after the other has the same memory."""
        shape, dtype = self.forms[at]
        spec = self.places.spec
        steps = spec.keys[at].steps
        usual = self.most_blocks * (self.block_rows * min(spec.stride, steps) + 2 * steps)
        return self.memory.array((max(rows, usual), *shape), dtype)[:rows]


class Group:
    """Blocks of windows that are loaded together. Whoever takes windows waits for their blocks first."""

    def __init__(self, gathering: Gathering, blocks: Sequence[int]) -> None:
        self._gathering = gathering
        self._blocks = np.sort(np.asarray(blocks, np.int64))
        self._shifts = {at: np.zeros(len(blocks) * gathering.block_rows, np.int64) for at in gathering.forms}
        sizes = dict.fromkeys(gathering.forms, 0)
        self.parts = {
            block: self._laid_out(number * gathering.block_rows, block, sizes)
            for number, block in enumerate(self._blocks.tolist())
        }
        self.arrays = {at: gathering.array(at, rows) for at, rows in sizes.items()}

    def slots(self, samples: NDArray[np.int64]) -> NDArray[np.int64]:
        """Where each of these windows stands among those of the group."""
        rows = self._gathering.block_rows
        found: NDArray[np.int64] = np.searchsorted(self._blocks, samples // rows) * rows + samples % rows
        return found

    def take(
        self, at: int, slots: NDArray[np.int64], steps: NDArray[np.int64], last: NDArray[np.int64], out: Array
    ) -> None:
        """Write windows of one key. Where they are padded, they have the first step of the episode, or its `last`."""
        spec, shifts = self._gathering.places.spec, self._shifts[at][slots]
        offsets = np.arange(spec.keys[at].start, spec.keys[at].stop)
        if spec.pad is None:
            wanted = np.add.outer(steps + shifts, offsets)
        else:
            wanted = np.add.outer(steps, offsets)
            np.maximum(np.minimum(wanted, last[:, None], out=wanted), 0, out=wanted)
            wanted += shifts[:, None]
        # All of these rows are there. The mode that makes sure of that would copy everything once more.
        np.take(self.arrays[at], wanted, axis=0, out=out, mode="clip")

    def _laid_out(self, slot: int, block: int, sizes: dict[int, int]) -> list[Part]:
        """What a block needs, behind what others need, which is counted in `sizes`; its windows begin at `slot`."""
        out = []
        spec = self._gathering.places.spec
        for position, low, high in self._gathering.block_parts(block):
            steps, length = range(low, high + 1, spec.stride), int(self._gathering.lengths[position])
            stretches: dict[int, list[Stretch]] = {}
            for at in sizes:
                stretches[at] = found = []
                for first, last in intervals(spec.keys[at], steps, length):
                    found.append(Stretch(first, last + 1, sizes[at]))
                    sizes[at] += last + 1 - first
                self._shifts[at][slot : slot + len(steps)] = _shifts(found, spec.keys[at], steps, length)
            out.append(Part(position, low, high, stretches))
            slot += len(steps)
        return out


def _shifts(stretches: Sequence[Stretch], key: Key, steps: range, length: int) -> NDArray[np.int64] | int:
    """How far the rows of each window stand from their numbers in the channel: the same for a whole stretch."""
    if len(stretches) == 1:
        return stretches[0].begin - stretches[0].first
    rows = np.clip(np.asarray(steps) + key.start, 0, length - 1)
    firsts = np.array([stretch.first for stretch in stretches])
    shifts: NDArray[np.int64] = np.array([stretch.begin for stretch in stretches]) - firsts
    found: NDArray[np.int64] = shifts[np.searchsorted(firsts, rows, side="right") - 1]
    return found


def intervals(key: Key, steps: range, length: int) -> list[tuple[int, int]]:
    """The steps that some windows need of a channel, both ends included: one interval, or one for each window."""
    if steps.step <= key.steps:
        return [(_clipped(steps[0] + key.start, length), _clipped(steps[-1] + key.stop - 1, length))]
    out: list[tuple[int, int]] = []
    for step in steps:
        low, high = _clipped(step + key.start, length), _clipped(step + key.stop - 1, length)
        if out and low <= out[-1][1]:
            out[-1] = (out[-1][0], max(high, out[-1][1]))
        else:
            out.append((low, high))
    return out


def _clipped(step: int, length: int) -> int:
    return min(max(step, 0), length - 1)
