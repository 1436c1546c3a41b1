"""Camera frames of batches of windows: aligned with the steps, decoded in parallel, each GOP once.

Frames are decoded when a batch needs them, not in blocks ahead: a worker takes some windows of a block, and should not
decode for the others. The cache of decoded groups serves the windows that follow. Implements "Cameras" of
docs/specs/episodes.md.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from warpdata.errors import BadInputError, CorruptError, LimitExceededError, MediaDecodeError, MissingExtraError
from warpdata.formats.media import require_decoders
from warpdata.formats.wshard import Array
from warpdata.kinds.episodes.camera import CameraReader, FrameSource, RawFrames, check_frame_pixels, check_resize
from warpdata.kinds.episodes.channel_reader import align_rows, step_seconds
from warpdata.kinds.episodes.encoded_frames import EncodedFrames, Size
from warpdata.kinds.episodes.episode import StoredEpisode
from warpdata.kinds.episodes.gather import step_intervals
from warpdata.kinds.episodes.index import ChannelLayout, EpisodeIndex, find_channel
from warpdata.kinds.episodes.window_spec import BlockCost, Pad, Resize, WindowKey
from warpdata.limits import EPISODES_MAX_DECODED_BYTES, MIB
from warpdata.primitives.cached_property import cached_property
from warpdata.primitives.parallel import CPU_POOL, IO_POOL

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["CameraBatch", "CameraKey", "CameraLoader", "FailedWindows", "find_cameras", "parse_resize"]

FailedWindows = dict[int, MediaDecodeError]
"""The errors of windows with a frame that cannot be decoded, by their position in the batch."""

_TOLERANCE_NS = 1_000_000
"""A frame that is less than this later than a step counts as not later: containers round times to milliseconds."""
"""Tasks that fetch and decode frames of remote files at a time. Local files use one thread for each core."""
_MAX_PACKETS_PER_FRAME = 3
"""Windows that decode at most this many packets for each new frame are as well decoded alone."""
_MAX_BLOCK_BYTES = 128 * MIB
"""Bound on the decoded frames of a block of windows that are cached together."""
_HINT = "on_error='substitute' takes another window of the batch instead."


@dataclass(frozen=True, slots=True)
class CameraKey:
    """A key of windows whose rows are images, and the size that the caller wants."""

    key: WindowKey
    resize: Size | None


class CameraBatch(NamedTuple):
    """The windows of a batch: the position of their episode, and their current step.

    `blocks` has the blocks of windows that they belong to, as (position, first and last current step). Other windows
    of these blocks follow soon. Empty if `CameraLoader.block_cost` is None.
    """

    positions: NDArray[np.int64]
    steps: NDArray[np.int64]
    stride: int
    blocks: Sequence[tuple[int, int, int]]


class CameraLoader:
    """Writes the frames of camera keys into the arrays of batches. Safe to share between threads."""

    def __init__(
        self, index: EpisodeIndex, numbers: NDArray[np.int64], keys: Sequence[CameraKey], pad: Pad | None
    ) -> None:
        summary = index.summary
        self._index = index
        self._numbers = numbers
        self._keys = tuple(keys)
        self._pad = pad
        self._lengths = summary.lengths[numbers]
        self._layout_numbers = summary.layout_numbers[numbers]
        self._channels = self._check_layouts(summary.layouts)
        self._require_decoders()
        self._cameras = functools.lru_cache(maxsize=index.max_open)(self._open)

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of one frame, by the name of its key."""
        first = self._channels[int(self._layout_numbers[0])]
        return {
            camera.key.name: (*(camera.resize or channel.shape[:2]), 3)
            for camera, channel in zip(self._keys, first, strict=True)
        }

    def new_bytes(self, stride: int) -> int:
        """Return the size of the decoded frames that a window adds to those of the window before it."""
        shapes = self.shapes
        return sum(min(stride, camera.key.step_count) * math.prod(shapes[camera.key.name]) for camera in self._keys)

    def block_cost(self, stride: int) -> BlockCost | None:
        """Return the cost of the frames that should be decoded together; None if there are none.

        Windows of a camera with short GOPs decode almost as fast one by one, so it does not limit a shuffle.
        """
        shapes, window_bytes, overlap_bytes, min_rows, together = self.shapes, 0, 0, 1, 1
        for at in self._kept(stride):
            steps, frame_bytes = self._keys[at].key.step_count, math.prod(shapes[self._keys[at].key.name])
            window_bytes += min(stride, steps) * frame_bytes
            overlap_bytes += steps * frame_bytes
            min_rows = max(min_rows, -(-steps // stride))
            # Rounded up, because blocks have a power of two of windows and should not be shorter than a GOP.
            together = max(together, 1 << (-(-self._group_frames[at] // stride) - 1).bit_length())
        return BlockCost(window_bytes, overlap_bytes, min_rows, together) if window_bytes else None

    def _kept(self, stride: int) -> list[int]:
        """Return the keys whose frames are worth caching for other windows of a block."""
        out = []
        for at, camera in enumerate(self._keys):
            steps = camera.key.step_count
            alone = steps + (self._group_frames[at] - 1) / 2  # packets that one window decodes
            if alone > _MAX_PACKETS_PER_FRAME * min(stride, steps):
                out.append(at)
        return out

    @cached_property
    def _group_frames(self) -> list[int]:
        """The number of frames in the largest GOP of each camera."""
        layouts = self._channels.values()
        return [max(specs[at].group_frames or 1 for specs in layouts) for at in range(len(self._keys))]

    def check_batch(self, batch_size: int) -> None:
        """Raise `LimitExceededError` if the decoded frames of a batch exceed the limit."""
        shapes = self.shapes
        needed = batch_size * sum(camera.key.step_count * math.prod(shapes[camera.key.name]) for camera in self._keys)
        if needed > EPISODES_MAX_DECODED_BYTES:
            raise LimitExceededError(
                f"the camera frames of a batch of {batch_size} windows take {needed} bytes; "
                f"the most is {EPISODES_MAX_DECODED_BYTES}",
                hint="Use a smaller batch_size, fewer steps in keys, or resize=(height, width).",
            )

    def fill(self, out: Mapping[str, Array], batch: CameraBatch) -> FailedWindows:
        """Write the frames of all windows. Return the windows with a frame that cannot be decoded."""
        opened, kept = np.unique(batch.positions).tolist(), self._kept(batch.stride)
        is_local = self._index.open(int(self._numbers[opened[0]])).chunks[0].source.mapped is not None
        pool = CPU_POOL if is_local else IO_POOL
        pool.map_all(self._cameras, opened)
        tasks: list[_FrameTask] = []
        for at, camera in enumerate(self._keys):
            key = camera.key
            windows = out[key.name]
            wanted = batch.steps[:, None] + np.arange(key.start, key.stop)
            last = self._lengths[batch.positions, None] - 1
            if self._pad == "zero":
                windows[(wanted < 0) | (wanted > last)] = 0
            for position in opened:
                tasks += self._plan(at, position, wanted, batch, windows, keeps=at in kept)
        failed: FailedWindows = {}
        for found in pool.map_all(_FrameTask.run, tasks):
            failed |= {window: error for window, error in found.items() if window not in failed}
        return failed

    def _plan(
        self, at: int, position: int, wanted: NDArray[np.int64], batch: CameraBatch, out: Array, *, keeps: bool
    ) -> list[_FrameTask]:
        """Return tasks that write the frames of one camera of one episode."""
        camera, length = self._cameras(position)[at], int(self._lengths[position])
        windows = np.flatnonzero(batch.positions == position)
        steps = wanted[windows]
        inside = (steps >= 0) & (steps < length) if self._pad == "zero" else np.ones(steps.shape, np.bool_)
        rows, columns = np.nonzero(inside)
        places = _Places(windows[rows], columns, np.clip(steps[inside], 0, length - 1))
        frames = camera.frames_of(places.steps)
        order = np.argsort(frames, kind="stable")
        places, frames = places.take(order), frames[order]
        frame_bytes = out[0, 0].nbytes
        also = camera.frames_of(self._block_steps(at, position, batch, frame_bytes)) if keeps else None
        return [
            _FrameTask(camera, self._keys[at].resize, part, also, frames, places, out)
            for part in camera.reader.split(np.unique(frames), frame_bytes)
            if len(part)
        ]

    def _block_steps(self, at: int, position: int, batch: CameraBatch, frame_bytes: int) -> NDArray[np.int64]:
        """Return the steps that other windows of the same blocks need of a key."""
        length, out = int(self._lengths[position]), []
        for owner, low, high in batch.blocks:
            if owner == position:
                steps = step_intervals(self._keys[at].key, range(low, high + 1, batch.stride), length)
                out += [np.arange(first, last + 1) for first, last in steps]
        found = np.concatenate(out) if out else np.empty(0, np.int64)
        # Larger blocks would evict one another from the cache.
        return found if len(found) * frame_bytes <= _MAX_BLOCK_BYTES else found[:0]

    def _open(self, position: int) -> tuple[_AlignedCamera, ...]:
        episode = self._index.open(int(self._numbers[position]))
        channels = self._channels[int(self._layout_numbers[position])]
        return tuple(_open_camera(episode, channel) for channel in channels)

    def _require_decoders(self) -> None:
        """Raise now if a library is missing, rather than in a worker in the middle of an epoch."""
        for at, camera in enumerate(self._keys):
            found = {specs[at].encoding for specs in self._channels.values()}
            needed = {encoding or "png" for encoding in found if encoding is not None or camera.resize is not None}
            try:
                require_decoders(sorted(needed), f"the camera {camera.key.name!r}")
            except MissingExtraError as error:
                hint = f"{error.hint}, or name other channels in keys=…."
                raise MissingExtraError(error.message, hint=hint) from error

    def _check_layouts(self, layouts: Sequence[Sequence[ChannelLayout]]) -> dict[int, tuple[ChannelLayout, ...]]:
        """Return the channels of each layout. Raise `BadInputError` unless frames of all fit into one array."""
        out: dict[int, tuple[ChannelLayout, ...]] = {}
        sizes: dict[str, tuple[int, ...]] = {}
        for number, position in zip(*np.unique(self._layout_numbers, return_index=True), strict=True):
            owner = f"episode {int(self._numbers[position])} of {self._index.name!r}"
            found = tuple(find_channel(camera.key.name, layouts[int(number)], owner) for camera in self._keys)
            for camera, channel in zip(self._keys, found, strict=True):
                _check_camera(channel, camera, owner)
                size = sizes.setdefault(camera.key.name, channel.shape[:2])
                if camera.resize is None and channel.shape[:2] != size:
                    raise BadInputError(
                        f"camera {channel.id!r} has {_format_size(channel.shape)} pixels in {owner}, "
                        f"and {_format_size(size)} in another",
                        hint="Use resize=(height, width), or select episodes of one size: filter(…).",
                    )
            out[int(number)] = found
        return out


class _AlignedCamera(NamedTuple):
    """A camera, and the frame of each step; None if frames have the numbers of their steps."""

    reader: CameraReader
    frames: NDArray[np.int64] | None

    def frames_of(self, steps: NDArray[np.int64]) -> NDArray[np.int64]:
        return steps if self.frames is None else self.frames[steps]


class _Places(NamedTuple):
    """The position of each frame in a batch: its window, its index in the window, and its step in the episode."""

    windows: NDArray[np.int64]
    columns: NDArray[np.int64]
    steps: NDArray[np.int64]

    def take(self, order: NDArray[np.int64]) -> _Places:
        return _Places(*(each[order] for each in self))


class _FrameTask(NamedTuple):
    """Decodes the frames `wanted`, and `also` others on the way.

    `frames` ascends and has the frame of each of `places` in `out`.
    """

    camera: _AlignedCamera
    resize: Size | None
    wanted: NDArray[np.int64]
    also: NDArray[np.int64] | None
    frames: NDArray[np.int64]
    places: _Places
    out: Array

    def run(self) -> FailedWindows:
        reader = self.camera.reader
        try:
            failed = reader.decode(self.wanted, self.resize, self._put, self.also)
        except (CorruptError, LimitExceededError) as error:
            step = self.places.steps[self._span(int(self.wanted[0]))][0]
            raise type(error)(f"{reader.name}, from step {step} on: {error.message}", hint=error.hint) from error
        out: FailedWindows = {}
        for frame, problem in failed.items():
            span = self._span(frame)
            for window, step in zip(self.places.windows[span].tolist(), self.places.steps[span].tolist(), strict=True):
                message = f"{reader.name}, step {step}: {problem.message}"
                out.setdefault(window, MediaDecodeError(message, hint=problem.hint or _HINT))
        return out

    def _put(self, frame: int, pixels: Array) -> None:
        span = self._span(frame)
        for window, column in zip(self.places.windows[span].tolist(), self.places.columns[span].tolist(), strict=True):
            self.out[window, column] = pixels

    def _span(self, frame: int) -> slice:
        first, last = np.searchsorted(self.frames, [frame, frame + 1])
        return slice(int(first), int(last))


def find_cameras(index: EpisodeIndex, numbers: NDArray[np.int64], names: Sequence[str]) -> tuple[set[str], set[str]]:
    """Return the names whose rows are images in all of these episodes, and those that are encoded in some."""
    summary, images, encoded = index.summary, set(names), set()
    for number, position in zip(*np.unique(summary.layout_numbers[numbers], return_index=True), strict=True):
        owner = f"episode {int(numbers[position])} of {index.name!r}"
        for name in names:
            channel = find_channel(name, summary.layouts[int(number)], owner)
            if channel.encoding is not None:
                encoded.add(name)
            if not _is_image(channel):
                images.discard(name)
    return images, encoded


def parse_resize(resize: Resize | None, images: Collection[str]) -> dict[str, Size]:
    """Return the size of each resized key. One size is for all keys whose rows are images."""
    if resize is None:
        return {}
    given = resize if isinstance(resize, Mapping) else dict.fromkeys(images, resize)
    for name in given:
        if name not in images:
            raise BadInputError(
                f"resize names {name!r}, which is not a camera among the keys", hint=f"Cameras: {sorted(images)}."
            )
    sizes = {name: size for name in given if (size := check_resize(given[name])) is not None}
    if not sizes:
        raise BadInputError(f"resize={resize!r} has no camera to apply to: the keys have none")
    return sizes


def _is_image(channel: ChannelLayout) -> bool:
    """Return whether the rows of a channel are images: encoded ones, or uint8 of height × width × 3."""
    is_raw = channel.dtype == "u8" and len(channel.shape) == 3 and channel.shape[2] == 3 and 0 not in channel.shape
    return channel.encoding is not None or is_raw


def _check_camera(channel: ChannelLayout, camera: CameraKey, owner: str) -> None:
    """Raise `BadInputError` unless the frames of a channel can be read."""
    if not _is_image(channel):
        raise BadInputError(
            f"channel {channel.id!r} is {channel.dtype}{list(channel.shape)} in {owner}, and a camera in another",
            hint="Select episodes with equal channels: filter(…).",
        )
    if channel.encoding is not None and channel.group_frames is None:
        problem, hint = "has no frame index, so it has no rows", "write it with index_video or index_images"
    elif not channel.group_frames and channel.encoding is not None:
        problem, hint = "has no frames", "record some"
    elif len(channel.shape) != 3 and camera.resize is None:
        problem, hint = "does not declare the size of its frames", "use resize=(height, width)"
    else:
        if len(channel.shape) == 3:
            check_frame_pixels((channel.shape[0], channel.shape[1]), f"channel {channel.id!r} of {owner}")
        return
    raise BadInputError(
        f"channel {channel.id!r} of {owner} is encoded as {channel.encoding} and {problem}",
        hint=f"Name other channels in keys=…, or {hint}.",
    )


def _open_camera(episode: StoredEpisode, channel: ChannelLayout) -> _AlignedCamera:
    size = (channel.shape[0], channel.shape[1]) if len(channel.shape) == 3 else None
    parts: list[FrameSource] = []
    for chunk in episode.chunks:
        is_raw = channel.encoding is None
        parts.append(RawFrames(chunk, channel.block) if is_raw else EncodedFrames(chunk, channel.block, size))
    reader = CameraReader(f"channel {channel.id!r} of episode {episode.id!r}", parts)
    if channel.rate_hz is not None:
        return _AlignedCamera(reader, align_rows(episode, channel, len(reader)))
    if all(len(part) == chunk.length for part, chunk in zip(parts, episode.chunks, strict=True)):
        return _AlignedCamera(reader, None)
    return _AlignedCamera(reader, _align_times(episode, channel, parts))


def _align_times(episode: StoredEpisode, channel: ChannelLayout, parts: Sequence[FrameSource]) -> NDArray[np.int64]:
    """Return for each step the latest frame that is not later, by the times of the frames of its file."""
    out: list[NDArray[np.int64]] = []
    begin = 0
    for chunk, part in zip(episode.chunks, parts, strict=True):
        times = part.times_ns
        if times is None or not len(times):
            raise BadInputError(f"channel {channel.id!r} of episode {episode.id!r} has no frames")
        steps_ns = np.round(step_seconds(chunk, channel) * 1e9).astype(np.int64) + _TOLERANCE_NS
        found = np.searchsorted(times - times[0], steps_ns, side="left") - 1
        out.append(begin + np.clip(found, 0, len(times) - 1))
        begin += len(times)
    return np.concatenate(out)


def _format_size(shape: Sequence[int]) -> str:
    return f"{shape[1]} × {shape[0]}" if len(shape) >= 2 else "unknown"
