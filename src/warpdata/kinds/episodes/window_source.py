"""Windows as a source of a stream: their order, their size, and the loader of an epoch."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from warpdata.errors import BadInputError, NotFoundError
from warpdata.formats.wshard import Array
from warpdata.kinds.episodes.camera_loader import CameraKey, CameraLoader, find_cameras, parse_resize
from warpdata.kinds.episodes.channel_reader import OpenChannels, row_format
from warpdata.kinds.episodes.index import ChannelLayout, EpisodeIndex, EpisodesContext
from warpdata.kinds.episodes.window_loader import BatchLayout, ReadAhead, WindowLoader
from warpdata.kinds.episodes.window_spec import (
    EPISODE,
    STEP,
    BlockCost,
    WindowIndex,
    WindowRequest,
    WindowSpec,
    make_spec,
    mask_name,
)
from warpdata.limits import MIB
from warpdata.primitives.cached_property import cached_property
from warpdata.streaming import OwnedPositions, SampleLocation, Shuffle, StreamOptions, VersionIdentity

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["WindowIdentity", "WindowSource", "choose_blocks", "make_source", "max_prefetch", "row_cost"]

_BLOCK_BYTES = 2 * MIB
_SHUFFLE_BYTES = 256 * MIB
_MAX_BLOCK_ROWS = 8192
_OPENING_BLOCKS = 16
_MIN_WHOLE_EPISODES = 4
"""A shuffle window mixes at least this many episodes, even if each has to be decoded several times."""
_MIN_ROW_USES = 2
"""Rows are gathered if each is used by at least this many windows."""
_SAMPLED_POSITIONS = 65_536
"""Positions of the order that show the share of this rank and worker."""
_MAX_SHUFFLE_FACTOR = 2
"""A user's shuffle is loaded ahead up to this multiple of `_SHUFFLE_BYTES`."""
_MIN_GROUPS = 3
"""The group that is being delivered, and two that batches are made of."""
_PREFETCH_BYTES = 64 * MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowIdentity(VersionIdentity):
    """The order of the windows of one episode set."""

    episodes: str
    windows: WindowSpec

    def sample_fields(self) -> dict[str, Any]:
        return {"episodes": self.episodes, "windows": self.windows.document()}


@dataclass(frozen=True)
class WindowSource:
    """Implements `SampleSource`. A location is the number of an episode and one of its steps."""

    context: EpisodesContext
    name: str
    filter: str
    spec: WindowSpec
    channels: OpenChannels
    cameras: CameraLoader | None
    layout: BatchLayout
    options: StreamOptions

    @cached_property
    def windows(self) -> WindowIndex:
        """The windows, with the keys that are not cameras."""
        return WindowIndex.of(self._row_spec, self.channels.lengths)

    @cached_property
    def _row_spec(self) -> WindowSpec:
        names = set() if self.cameras is None else self.cameras.shapes.keys()
        return replace(self.spec, keys=tuple(key for key in self.spec.keys if key.name not in names))

    @property
    def sample_bytes(self) -> float:
        shapes = {} if self.cameras is None else self.cameras.shapes
        pixels = sum(key.step_count * math.prod(shapes[key.name]) for key in self.spec.keys if key.name in shapes)
        return self._sample_row_bytes + pixels

    @property
    def _sample_row_bytes(self) -> float:
        """Size of a window without cameras."""
        formats = [row_format(channel) for channel in self.channels.channels]
        return float(sum(key.step_count * size for key, (_, _, size) in zip(self._row_spec.keys, formats, strict=True)))

    @cached_property
    def blocks(self) -> Shuffle:
        """The blocks that are read together, with or without a shuffle."""
        if isinstance(self.options.shuffle, Shuffle):
            return self.options.shuffle
        return choose_blocks(self.windows.count, self._block_cost())

    def _block_cost(self) -> BlockCost:
        rows = row_cost(self._row_bytes, self.spec)
        typical = self.windows.count // max(len(self.channels.numbers), 1)
        rows = replace(rows, together=typical if self.channels.has_whole_blocks else 1)
        frames = None if self.cameras is None else self.cameras.block_cost(self.spec.stride)
        if frames is None:
            return rows
        return BlockCost(
            rows.window_bytes + frames.window_bytes,
            rows.overlap_bytes + frames.overlap_bytes,
            # Small channels may be read twice where blocks overlap.
            frames.min_rows,
            max(rows.together, frames.together),
        )

    @property
    def shuffle(self) -> Shuffle | None:
        return None if self.options.shuffle is False else self.blocks

    @cached_property
    def identity(self) -> WindowIdentity:
        return WindowIdentity(
            dataset_id=self.context.dataset_id,
            version=self.context.version,
            episodes=self.name,
            filter=self.filter,
            windows=self.spec,
            sample_count=self.windows.count,
            seed=self.options.seed,
            shuffle=self.shuffle,
        )

    @property
    def known_count(self) -> int:
        return self.windows.count

    @property
    def max_samples(self) -> int:
        return self.windows.count

    @property
    def media_bytes(self) -> float:
        """Bytes that a window adds to those of the window before it. Read like media, by ranges of large blobs."""
        rows = self._row_bytes * min(self.spec.stride, self.spec.extent)
        return float(rows + (0 if self.cameras is None else self.cameras.new_bytes(self.spec.stride)))

    @property
    def cache_bytes(self) -> int:
        return 0

    @property
    def table_requests(self) -> int:
        return 0

    def open(self, epoch: int, owned: OwnedPositions, *, with_media: bool) -> WindowLoader:
        return WindowLoader(
            self.identity.order(epoch),
            self.windows,
            self.blocks.block_rows,
            self.channels,
            self.layout,
            read_ahead=self._read_ahead(owned),
            cameras=self.cameras,
            on_error=self.options.on_error,
        )

    def _read_ahead(self, owned: OwnedPositions) -> ReadAhead:
        """Gather rows unless this rank and worker takes so few windows that most rows would serve others."""
        positions = owned(max(0, self.windows.count - _SAMPLED_POSITIONS), self.windows.count)
        share = len(positions) / (int(positions[-1]) - int(positions[0]) + 1) if len(positions) else 0.0
        uses = share * self._sample_row_bytes / max(self._row_bytes * min(self.spec.stride, self.spec.extent), 1)
        return ReadAhead(gathers=uses >= _MIN_ROW_USES, max_groups=self._max_groups)

    @property
    def _max_groups(self) -> int:
        """Bound on the groups in memory: as many small ones as fit, and 0 if a group is too large."""
        if self._group_bytes > _MAX_SHUFFLE_FACTOR * _SHUFFLE_BYTES:
            return 0
        return max(_MIN_GROUPS, _SHUFFLE_BYTES // max(self._group_bytes, 1))

    @property
    def _group_bytes(self) -> int:
        """Size of one shuffle window, or of one block without a shuffle."""
        blocks = self.blocks
        count = -(-self.windows.count // blocks.block_rows) if self.options.shuffle is not False else 1
        return min(count, blocks.window_blocks) * row_cost(self._row_bytes, self.spec).block_bytes(blocks.block_rows)

    @property
    def _row_bytes(self) -> int:
        """Size of one step of the keys that are not cameras."""
        return sum(row_format(channel)[2] for channel in self.channels.channels)

    def locate(self, start: int, stop: int, epoch: int) -> list[SampleLocation]:
        positions, steps = self.windows.locate(self.identity.order(epoch).samples(start, stop))
        return list(zip(self.channels.numbers[positions].tolist(), steps.tolist(), strict=True))

    def position_of(self, location: SampleLocation, epoch: int) -> int:
        number, step = location
        position = int(np.searchsorted(self.channels.numbers, number))
        if position >= len(self.channels.numbers) or self.channels.numbers[position] != number:
            raise BadInputError(f"episode {number} is not among the selected episodes")
        return self.identity.order(epoch).position_of(self.windows.number_of(position, step))


def make_source(
    index: EpisodeIndex,
    numbers: NDArray[np.int64],
    filter_text: str,
    request: WindowRequest,
    options: StreamOptions,
    out: Sequence[Mapping[str, Array]] = (),
) -> WindowSource:
    """Check a request against the layouts of all episodes, which reads two columns of the index."""
    if not len(numbers):
        raise BadInputError(f"there is no episode to take windows from: {filter_text or 'the set is empty'}")
    summary = index.summary
    layout = summary.layouts[int(summary.layout_numbers[numbers[0]])]
    spec = make_spec(request, layout)
    if request.keys is None:
        _refuse_unlisted_cameras(index, int(numbers[0]), layout)
    try:
        cameras = _open_cameras(index, numbers, spec, request)
        shapes = {} if cameras is None else cameras.shapes
        channels = OpenChannels(index, numbers, [key.name for key in spec.keys if key.name not in shapes])
    except NotFoundError:
        _refuse_unlisted_cameras(index, int(numbers[0]), layout, [key.name for key in spec.keys])
        raise
    rows = {key: row_format(channel) for key, channel in zip(channels.names, channels.channels, strict=True)}
    formats: dict[str, tuple[tuple[int, ...], np.dtype[Any]]] = {}
    for key in spec.keys:
        shape, dtype = (shapes[key.name], np.dtype(np.uint8)) if key.name in shapes else rows[key.name][:2]
        formats[key.name] = (key.step_count, *shape), dtype
        if request.mask:
            formats[mask_name(key.name)] = (key.step_count,), np.dtype(np.bool_)
    formats[EPISODE] = formats[STEP] = (), np.dtype(np.int64)
    batch_layout = BatchLayout(formats, spec.keys if request.mask else (), tuple(out))
    batch_layout.check_out(options.batch_size)
    if cameras is not None:
        cameras.check_batch(options.batch_size)
    return WindowSource(index.context, index.name, filter_text, spec, channels, cameras, batch_layout, options)


def _open_cameras(
    index: EpisodeIndex, numbers: NDArray[np.int64], spec: WindowSpec, request: WindowRequest
) -> CameraLoader | None:
    """Return a loader of the keys that are encoded in some episode, or resized; None if there are none."""
    layouts = (index.summary.layouts[number] for number in np.unique(index.summary.layout_numbers[numbers]).tolist())
    if request.resize is None and all(channel.encoding is None for layout in layouts for channel in layout):
        return None
    images, encoded = find_cameras(index, numbers, [key.name for key in spec.keys])
    sizes = parse_resize(request.resize, images)
    keys = [CameraKey(key, sizes.get(key.name)) for key in spec.keys if key.name in encoded or key.name in sizes]
    return CameraLoader(index, numbers, keys, request.pad) if keys else None


def _refuse_unlisted_cameras(
    index: EpisodeIndex, number: int, layout: Sequence[ChannelLayout], names: Sequence[str] | None = None
) -> None:
    """Raise if an episode has cameras that its index does not list, of these names or of any.

    Development versions did not list them. Leaving them out without a word would be wrong.
    """
    episode, listed = index.open(number).chunks[0], {spec.block for spec in layout}
    missing = [
        block
        for block in episode.blocks
        if episode.is_encoded(block)
        and block not in listed
        and (names is None or {block, block.partition("/")[2]} & set(names))
    ]
    if missing:
        raise BadInputError(
            f"the index of {index.name!r} does not list the cameras {', '.join(missing)}",
            hint="Publish the episodes again with this release, or name the channels to read in keys=….",
        )


def max_prefetch(batch_bytes: float) -> int:
    """Return the number of batches that may be prepared ahead without taking much memory."""
    return max(1, int(_PREFETCH_BYTES / max(batch_bytes, 1.0)))


def row_cost(step_bytes: int, spec: WindowSpec) -> BlockCost:
    """Return the cost of rows of `step_bytes`. Adjacent windows share steps."""
    extent, stride = spec.extent, spec.stride
    return BlockCost(step_bytes * min(stride, extent), step_bytes * extent, -(-extent // stride))


def choose_blocks(count: int, cost: BlockCost) -> Shuffle:
    """Choose blocks of adjacent windows that are worth a request, and as many as fit into memory. Pure."""
    each = max(cost.window_bytes, 1)
    together = min(cost.together, _SHUFFLE_BYTES // (_MIN_WHOLE_EPISODES * each))
    rows = max(_BLOCK_BYTES // each, cost.min_rows, together, 1)
    block_rows = 1 << (min(rows, _MAX_BLOCK_ROWS).bit_length() - 1)
    blocks = _SHUFFLE_BYTES // max(cost.block_bytes(block_rows), 1)
    window_blocks = max(1, min(blocks, -(-max(count, 1) // block_rows)))
    return Shuffle(block_rows, window_blocks, _OPENING_BLOCKS if window_blocks > _OPENING_BLOCKS else 0)
