"""Decoded frames of one camera of an episode, over all its files.

A camera is a channel of encoded images or video, or of uncompressed images. Implements "Cameras" of
docs/specs/episodes.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from warpdata.errors import BadInputError, LimitExceededError, MediaDecodeError
from warpdata.formats.media import parse_size, resize_rgb
from warpdata.formats.wshard import Array, BlockType, DType
from warpdata.kinds.episodes.encoded_frames import PutFrame, Size
from warpdata.limits import EPISODES_MAX_DECODED_BYTES, EPISODES_MAX_FRAME_PIXELS, MIB
from warpdata.primitives.cached_property import cached_property

if TYPE_CHECKING:
    from warpdata.kinds.episodes.episode import FileEpisode

__all__ = ["CameraReader", "FrameSource", "RawFrames", "check_frame_pixels", "check_resize"]

_TASK_BYTES = 8 * MIB
_NO_FRAMES: Array = np.empty(0, np.int64)


class FrameSource(Protocol):
    """The frames of a camera in one file."""

    def __len__(self) -> int: ...

    @property
    def size(self) -> Size | None:
        """Height and width of a frame, if known without decoding."""
        ...

    @property
    def times_ns(self) -> Array | None:
        """The times of the frames; None for rows without times."""
        ...

    def encoded(self, frame: int) -> bytes:
        """Return the stored bytes of a frame."""
        ...

    def split(self, frames: Array, frame_bytes: int) -> Iterator[Array]:
        """Split ascending frames into parts that are worth a task of their own."""
        ...

    def decode(
        self, frames: Array, resize: Size | None, put: PutFrame, also: Array | None
    ) -> Mapping[int, MediaDecodeError]:
        """Pass ascending frames to `put`. Return the error of each frame that cannot be decoded.

        Frames of `also`, and the neighbours of the wanted ones, are needed soon, and cached if they are decoded on
        the way. With None, no other frames are decoded.
        """
        ...


class CameraReader:
    """Decoded frames of a camera: height × width × 3, RGB, uint8. Safe to share between threads.

    Frames are counted from 0, in the order in which they are shown. Most cameras have one frame for each step.
    """

    def __init__(self, name: str, parts: Sequence[FrameSource]) -> None:
        self.name = name
        """The channel and the episode, for messages."""
        self.parts = tuple(parts)
        """The frames of each file."""

    def __repr__(self) -> str:
        return f"CameraReader({self.name})"

    def __len__(self) -> int:
        """Return the number of frames."""
        return self._starts[-1]

    @cached_property
    def size(self) -> Size:
        """Height and width of the first frame."""
        return self.parts[0].size or self._decode_size()

    @property
    def block_type(self) -> BlockType:
        """Element type, shape and number of the decoded frames."""
        return BlockType(DType.U8, (*self.size, 3), len(self))

    @property
    def times_ns(self) -> Array | None:
        """The times of the frames in nanoseconds, as in the frame index of each file."""
        times = [found for part in self.parts if (found := part.times_ns) is not None]
        return np.concatenate(times) if len(times) == len(self.parts) else None

    def encoded(self, frame: int) -> bytes:
        """Return the stored bytes of a frame: an image, or a packet of a video."""
        self._check_range(frame, frame + 1)
        number = int(np.searchsorted(self._starts, frame, side="right")) - 1
        return self.parts[number].encoded(frame - self._starts[number])

    def read(self, *, resize: Size | None = None) -> Array:
        """Decode all frames."""
        return self.window(0, len(self), resize=resize)

    def window(self, start: int, stop: int, *, out: Array | None = None, resize: Size | None = None) -> Array:
        """Decode frames `start` to `stop`, into `out` if given. `resize` scales them to (height, width)."""
        self._check_range(start, stop)
        size = check_resize(resize)
        shape = (stop - start, *(size or self.size), 3)
        self._check_memory(shape)
        if out is not None and (out.shape != shape or out.dtype != np.uint8):
            raise BadInputError(f"out is {out.dtype}{list(out.shape)}, but the frames are uint8{list(shape)}")
        pixels = np.empty(shape, np.uint8) if out is None else out

        def put(frame: int, found: Array) -> None:
            pixels[frame - start] = found

        self._raise_first(self.decode(np.arange(start, stop), size, put, _NO_FRAMES))
        return pixels

    def split(self, frames: Array, frame_bytes: int) -> Iterator[Array]:
        """Split ascending frames into parts that are worth a task of their own."""
        for number, low, high in self._by_part(frames):
            begin = self._starts[number]
            yield from (part + begin for part in self.parts[number].split(frames[low:high] - begin, frame_bytes))

    def decode(
        self, frames: Array, resize: Size | None, put: PutFrame, also: Array | None
    ) -> dict[int, MediaDecodeError]:
        """Pass ascending frames to `put`; see `FrameSource.decode`."""
        failed: dict[int, MediaDecodeError] = {}
        for number, low, high in self._by_part(frames):
            begin = self._starts[number]

            def put_part(frame: int, pixels: Array, begin: int = begin) -> None:
                put(begin + frame, pixels)

            end = self._starts[number + 1]
            near = None if also is None else also[(also >= begin) & (also < end)] - begin
            found = self.parts[number].decode(frames[low:high] - begin, resize, put_part, near)
            failed |= {begin + frame: error for frame, error in found.items()}
        return failed

    @cached_property
    def _starts(self) -> list[int]:
        return [0, *accumulate(len(part) for part in self.parts)]

    def _by_part(self, frames: Array) -> Iterator[tuple[int, int, int]]:
        """Yield the number of each file that has some of these frames, with their range in the array."""
        bounds = np.searchsorted(frames, self._starts).tolist()
        for number, (low, high) in enumerate(pairwise(bounds)):
            if low < high:
                yield number, low, high

    def _decode_size(self) -> Size:
        self._check_range(0, 1)
        found: list[Size] = []
        self._raise_first(self.decode(np.arange(1), None, lambda _, pixels: found.append(pixels.shape[:2]), None))
        return found[0]

    def _check_range(self, start: int, stop: int) -> None:
        if not 0 <= start <= stop <= len(self):
            raise BadInputError(f"frames {start}…{stop} are not within the {len(self)} of {self.name}")

    def _check_memory(self, shape: tuple[int, ...]) -> None:
        if math.prod(shape) > EPISODES_MAX_DECODED_BYTES:
            raise LimitExceededError(
                f"{shape[0]} frames of {self.name} take {math.prod(shape)} bytes; "
                f"one read takes at most {EPISODES_MAX_DECODED_BYTES}",
                hint="Read fewer frames with window(start, stop), or smaller ones with resize=(height, width).",
            )

    def _raise_first(self, failed: Mapping[int, MediaDecodeError]) -> None:
        for frame, error in failed.items():
            raise MediaDecodeError(f"{self.name}, frame {frame}: {error.message}", hint=error.hint) from error


class RawFrames:
    """Implements `FrameSource` over the rows of an array, uint8 of height × width × 3."""

    def __init__(self, episode: FileEpisode, block: str) -> None:
        self._episode = episode
        self._reader = episode.file[block]

    @property
    def size(self) -> Size | None:
        height, width = self._reader.block_type.shape[:2]
        return height, width

    @property
    def times_ns(self) -> Array | None:
        return None

    def __len__(self) -> int:
        return self._reader.block_type.rows

    def encoded(self, frame: int) -> bytes:
        return self._rows(frame, frame + 1).tobytes()

    def split(self, frames: Array, frame_bytes: int) -> Iterator[Array]:
        length = max(1, _TASK_BYTES // max(self._reader.block_type.step_bytes, 1))
        yield from (frames[at : at + length] for at in range(0, len(frames), length))

    def decode(
        self, frames: Array, resize: Size | None, put: PutFrame, also: Array | None
    ) -> dict[int, MediaDecodeError]:
        for run in np.split(frames, np.flatnonzero(np.diff(frames) > 1) + 1):
            first = int(run[0])
            for at, pixels in enumerate(self._rows(first, int(run[-1]) + 1)):
                put(first + at, pixels if resize is None else resize_rgb(pixels, resize))
        return {}

    def _rows(self, first: int, last: int) -> Array:
        return self._episode.retry_corrupt(lambda: self._reader.window(first, last))


def check_resize(resize: Any) -> Size | None:
    """Return a size that the caller gave as (height, width)."""
    if resize is None:
        return None
    size = parse_size(resize)
    check_frame_pixels(size, f"resize={resize!r}")
    return size


def check_frame_pixels(size: Size, name: str) -> None:
    """Raise `LimitExceededError` if a frame of this size is too large for a camera."""
    if size[0] * size[1] > EPISODES_MAX_FRAME_PIXELS:
        raise LimitExceededError(
            f"{name} has {size[1]} × {size[0]} pixels; a camera frame has at most {EPISODES_MAX_FRAME_PIXELS}"
        )
