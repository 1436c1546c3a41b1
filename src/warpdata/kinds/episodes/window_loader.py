"""The windows of one epoch, written directly into the arrays of batches.

Gathered keys are taken from the arrays of their group at once. Other keys are copied window by window, from the mapped
file or from loaded rows, with padding beyond the ends of an episode.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from warpdata.errors import BadInputError
from warpdata.formats.wshard import Array
from warpdata.kinds.episodes.block_loader import BatchLoader, BlockLoader, PendingGroup, RowBuffer
from warpdata.kinds.episodes.camera_loader import CameraBatch, CameraLoader, FailedWindows
from warpdata.kinds.episodes.channel_reader import AnyChannelReader, OpenChannels, row_format
from warpdata.kinds.episodes.gather import BlockGroups, BufferPool, GatherPlan
from warpdata.kinds.episodes.window_spec import EPISODE, STEP, Pad, WindowIndex, WindowKey, mask_name
from warpdata.primitives.parallel import usable_cores
from warpdata.streaming import OnError, Order, max_batch_threads

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["BatchLayout", "ReadAhead", "WindowLoader"]


@dataclass(frozen=True)
class BatchLayout:
    """The arrays of a batch: shape of a sample and type by name, and the caller's own arrays, used in turn."""

    formats: Mapping[str, tuple[tuple[int, ...], np.dtype[Any]]]
    masked: tuple[WindowKey, ...]
    """The keys with a mask."""
    out: tuple[Mapping[str, Array], ...] = ()
    pool: BufferPool = field(default_factory=BufferPool)

    def allocate(self, size: int, turn: int) -> dict[str, Array]:
        given = self.out[turn % len(self.out)] if self.out else {}
        return {
            name: given[name][:size] if name in given else self.pool.array((size, *shape), dtype)
            for name, (shape, dtype) in self.formats.items()
        }

    def check_out(self, batch_size: int) -> None:
        """Raise `BadInputError` unless the caller's arrays can hold every batch."""
        for arrays in self.out:
            for name, array in arrays.items():
                shape, dtype = self.formats.get(name, ((), None))
                if dtype is None:
                    raise BadInputError(f"out has the key {name!r}; a batch has {sorted(self.formats)}")
                fits = isinstance(array, np.ndarray) and array.dtype == dtype and array.shape[1:] == shape
                if not fits or len(array) < batch_size or not array.flags.c_contiguous or not array.flags.writeable:
                    raise BadInputError(
                        f"out[{name!r}] is not a writable contiguous array of {dtype} and shape {(batch_size, *shape)}"
                    )


@dataclass(frozen=True, slots=True)
class ReadAhead:
    """The policy for loading blocks of windows ahead.

    `gathers`: windows share rows, so rows are gathered before windows are made. `max_groups`: bound on the groups of
    blocks in memory; with 0, windows are loaded one by one.
    """

    gathers: bool
    max_groups: int


class WindowLoader:
    """Implements `BatchReader`. Blocks of `block_rows` windows are loaded together."""

    def __init__(
        self,
        order: Order,
        windows: WindowIndex,
        block_rows: int,
        channels: OpenChannels,
        layout: BatchLayout,
        *,
        read_ahead: ReadAhead,
        cameras: CameraLoader | None = None,
        on_error: OnError = "raise",
    ) -> None:
        self._order = order
        self._windows = windows
        self._channels = channels
        self._layout = layout
        self._block_rows = block_rows
        self._gathered = channels.gathered if read_ahead.max_groups and read_ahead.gathers else ()
        formats = {at: row_format(channels.channels[at])[:2] for at in self._gathered}
        self._groups = BlockGroups(order, block_rows)
        max_blocks = self._groups.max_blocks
        self._plan = GatherPlan(windows, block_rows, max_blocks, channels.lengths, formats, layout.pool)
        self._blocks = BlockLoader(self._plan, channels, self._groups, read_ahead.max_groups)
        self._cameras = cameras
        self._keeps_frames = cameras is not None and cameras.block_cost(windows.spec.stride) is not None
        self._on_error = on_error
        self._only_copies = cameras is None and (bool(read_ahead.max_groups) or channels.are_mapped)

    @property
    def batch_threads(self) -> int:
        """One thread if batches are copies of mapped or loaded rows; several if making them decodes or fetches."""
        if self._only_copies:
            return 1
        return usable_cores() if self._channels.are_local else max_batch_threads()

    def arrays(self, spans: Sequence[tuple[int, int]], turn: int) -> tuple[dict[str, Array], int]:
        runs = [run for span in spans for run in self._groups.runs(*span)]
        # Take the groups first, because another thread may release them at any time.
        groups = [self._blocks.group(number) for number, _ in runs]
        samples = np.concatenate([np.empty(0, np.int64), *(self._order.samples(*span) for span in spans)])
        positions, steps = self._windows.locate(samples)
        out = self._layout.allocate(len(samples), turn)
        loader: BatchLoader | None = None
        begin = 0
        for (_, count), group in zip(runs, groups, strict=True):
            run = slice(begin, begin + count)
            part = _WindowRun(samples[run], positions[run], steps[run], begin)
            if group is not None:
                self._gather(out, part, group)
            if group is None or len(self._gathered) < len(self._windows.spec.keys):
                loader = loader or BatchLoader(self._blocks, samples.tolist(), _repeat_groups(runs, groups))
                self._copy(out, part, loader, has_group=group is not None)
            begin += count
        out[EPISODE][:] = self._channels.numbers[positions]
        out[STEP][:] = steps
        for key in self._layout.masked:
            out[mask_name(key.name)][:] = _mask(steps, self._channels.lengths[positions], key)
        failed: FailedWindows = {}
        if self._cameras is not None and len(samples):
            blocks = np.unique(samples // self._block_rows).tolist() if self._keeps_frames else []
            slices = [part for block in blocks for part in self._plan.split_block(block)]
            failed = self._cameras.fill(out, CameraBatch(positions, steps, self._windows.spec.stride, slices))
        return out, self._substitute(out, failed, len(samples))

    def _substitute(self, out: Mapping[str, Array], failed: FailedWindows, count: int) -> int:
        """Replace windows that do not decode by the next ones that do, cyclically. Return their number."""
        if failed and (self._on_error == "raise" or len(failed) == count):
            raise failed[min(failed)]
        for window in failed:
            at = next(i % count for i in range(window, window + count) if i % count not in failed)
            for array in out.values():
                array[window] = array[at]
        return len(failed)

    def advance(self, position: int) -> None:
        """Release the groups before this position of the order, and load ahead."""
        self._blocks.release_before(self._groups.group_at(position))

    def close(self) -> None:
        self._blocks.close()

    def _gather(self, out: Mapping[str, Array], part: _WindowRun, group: PendingGroup) -> None:
        """Take the windows of gathered keys from the arrays of the group."""
        if not self._gathered:
            return
        if not group.is_loaded:
            for block in np.unique(part.samples // self._block_rows).tolist():
                group.wait(block)
        spec, slots = self._windows.spec, group.windows.slots(part.samples)
        lengths = self._channels.lengths[part.positions]
        for at in self._gathered:
            windows = out[spec.keys[at].name][part.begin : part.begin + len(slots)]
            group.windows.take(at, slots, part.steps, lengths - 1, windows)
            if spec.pad == "zero":
                windows[~_mask(part.steps, lengths, spec.keys[at])] = 0

    def _copy(self, out: Mapping[str, Array], part: _WindowRun, loader: BatchLoader, *, has_group: bool) -> None:
        """Copy the windows of other keys one by one, or of all keys if nothing was loaded ahead."""
        spec = self._windows.spec
        keys = [(at, key) for at, key in enumerate(spec.keys) if not has_group or at not in self._gathered]
        where = list(zip(part.positions.tolist(), part.steps.tolist(), strict=True))
        opened = [self._channels.readers(position) for position, _ in where]
        for at, key in keys:
            windows = out[key.name]
            for i, (position, step) in enumerate(where, part.begin):
                reader, low, high = opened[i - part.begin][at], step + key.start, step + key.stop
                rows = reader.verified_rows(low, high)
                if rows is None and reader.must_load and low >= 0 and high <= reader.length:
                    if not has_group and reader.decodes_locally:
                        reader.decode(low, high, windows[i])
                        continue
                    rows = loader.rows(i, position, at).between(low, high)
                if rows is not None:
                    windows[i] = rows
                else:
                    loaded = functools.partial(loader.rows, i, position, at)
                    _fill_window(windows[i], reader, key, step, spec.pad, loaded)


class _WindowRun(NamedTuple):
    """Windows of one group, which begin at `begin` in a batch."""

    samples: NDArray[np.int64]
    positions: NDArray[np.int64]
    steps: NDArray[np.int64]
    begin: int


_LoadRows = Callable[[], RowBuffer]
"""Returns the rows of a window that are not mapped."""


def _repeat_groups(runs: Sequence[tuple[int, int]], groups: Sequence[PendingGroup | None]) -> list[PendingGroup | None]:
    """Return the group of each window."""
    return [group for (_, count), group in zip(runs, groups, strict=True) for _ in range(count)]


def _mask(steps: NDArray[np.int64], lengths: NDArray[np.int64], key: WindowKey) -> NDArray[np.bool_]:
    """Return the steps of each window that are within its episode."""
    wanted = steps[:, None] + np.arange(key.start, key.stop)
    return (wanted >= 0) & (wanted < lengths[:, None])


def _fill_window(
    out: Array, reader: AnyChannelReader, key: WindowKey, step: int, pad: Pad | None, loaded: _LoadRows
) -> None:
    """Write the window of `step` into `out`, with padding."""
    length = reader.length
    low, high = step + key.start, step + key.stop
    first, last = min(max(low, 0), length), max(min(high, length), 0)
    if first < last:
        _copy_steps(out[first - low : last - low], reader, first, last, loaded)
    before, after = min(max(-low, 0), high - low), min(max(high - length, 0), high - low)
    for part, edge in ((out[:before], 0), (out[len(out) - after :], length - 1)):
        if not len(part):
            continue
        if pad == "edge":
            _copy_steps(part[:1], reader, edge, edge + 1, loaded)
            part[1:] = part[0]
        else:
            part[...] = 0


def _copy_steps(out: Array, reader: AnyChannelReader, first: int, last: int, loaded: _LoadRows) -> None:
    """Copy the rows of the steps [first, last), which are within the episode."""
    low, high = (first, last) if reader.is_stepwise else (reader.row_of(first), reader.row_of(last - 1) + 1)
    rows = reader.mapped_rows(low, high)
    if rows is None:
        rows = loaded().between(low, high)
    out[...] = rows if reader.is_stepwise else rows[reader.rows_of(np.arange(first, last)) - low]
