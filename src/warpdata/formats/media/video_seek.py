"""Frames of a video stream by number, exact also with variable frame rates and reordered frames.

One pass over the packets, without decoding, finds the time of each frame and the key packets at which decoding can
start. Every decoded frame is compared with that timeline. FFmpeg objects come from the caller; their errors pass
through.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING

from warpdata.errors import LimitExceededError, MediaDecodeError
from warpdata.limits import MAX_VIDEO_FRAMES

if TYPE_CHECKING:
    from av import VideoFrame
    from av.container import InputContainer
    from av.video.stream import VideoStream

__all__ = ["SeekableVideo", "VideoTimeline"]

_FRAME_PER_PACKET = frozenset({"av1", "ffv1", "h264", "hevc", "mjpeg", "mpeg4", "png", "prores", "rawvideo", "vp9"})
_MPEG4_SKIP_BYTES = 19
"""An MPEG-4 packet of at most this size may repeat the last frame and produce none."""
_PROBED_FRAMES = 8
"""Number of frames decoded up front to verify that packets and frames agree."""


class SeekableVideo:
    """The frames of one video stream. Each call of `reopen` returns the stream at its beginning."""

    def __init__(self, reopen: Callable[[], tuple[InputContainer, VideoStream]], name: str) -> None:
        self._reopen = reopen
        self._name = name
        self._opened: tuple[InputContainer, VideoStream] | None = None
        self._is_at_start = False
        self._timeline: VideoTimeline | None = None
        self._running: Iterator[VideoFrame] | None = None
        self._next = 0
        self._last: tuple[int, VideoFrame] | None = None

    def open(self) -> tuple[InputContainer, VideoStream]:
        """Return the stream at its beginning, for its header."""
        opened = self._rewind()
        self._is_at_start = True
        return opened

    def reset(self) -> None:
        """Close the stream and drop the timeline, which may come from a partial read after a failure."""
        self._timeline = None
        self._free()

    def timeline(self) -> VideoTimeline:
        """Return the timeline. The first call reads the whole file once."""
        if self._timeline is None:
            read, is_sure = _read_timeline(*self._rewind(), self._name)
            self._timeline = read if is_sure else self._count(read)
            self.frame(min(_PROBED_FRAMES, self._timeline.length) - 1)
        return self._timeline

    def frame(self, index: int) -> VideoFrame | None:
        """Return the frame with this number, or None if there is none.

        If the decoded frames differ from the timeline, the timeline is rebuilt by decoding everything. If they
        still differ, every access decodes from the beginning.
        """
        while index >= 0 and (self._last is None or self._last[0] != index):
            try:
                if not self._advance(index):
                    return None
            except _TimelineMismatchError:
                timeline = self._timeline
                if timeline is None or not timeline.starts:
                    raise MediaDecodeError(f"{self._name}: decoding it again gives other frames") from None
                self._running = None
                self._timeline = self._count(timeline) if timeline.from_packets else replace(timeline, starts=())
        return self._last[1] if self._last is not None and index >= 0 else None

    def _advance(self, index: int) -> bool:
        """Decode up to this frame and store it. False: the video ends before it."""
        timeline = self._timeline
        if timeline is not None and index >= timeline.length:
            return False
        number, start = timeline.start_of(index) if timeline is not None else (0, None)
        if self._running is None or not number <= self._next <= index:
            self._running, self._next = self._decode_from(start), number
        for frame in self._running:
            at, self._next = self._next, self._next + 1
            if timeline is not None and timeline.pts is not None and timeline.pts[at] != frame.pts:
                raise _TimelineMismatchError
            if at == index:
                self._last = (index, frame)
                return True
        self._running = None
        if timeline is not None:
            raise _TimelineMismatchError
        return False

    def _decode_from(self, start: tuple[int, int] | None) -> Iterator[VideoFrame]:
        """Decode from a key packet, given by its pts and dts, or from the beginning."""
        if start is None:
            return _decode(*self._rewind(), None)
        container, stream = self._opened or self._rewind()
        try:
            container.seek(start[1], stream=stream)
        except Exception as error:
            raise _TimelineMismatchError from error
        return _decode(container, stream, start[0])

    def _free(self) -> None:
        self._running = self._last = None
        if self._opened is not None:
            self._opened[0].close()
            self._opened = None

    def _rewind(self) -> tuple[InputContainer, VideoStream]:
        if self._opened is None or not self._is_at_start:
            self._free()
            self._opened = self._reopen()
        self._is_at_start = False
        return self._opened

    def _count(self, read: VideoTimeline) -> VideoTimeline:
        """Build the timeline by decoding every frame."""
        pts = array("q")
        length = 0
        for frame in self._decode_from(None):
            length += 1
            _check_length(length, self._name)
            if frame.pts is not None:
                pts.append(frame.pts)
        if len(pts) < length or not _ascends(pts):
            return replace(read, length=length, pts=None, starts=(), from_packets=False)
        return replace(read, length=length, pts=pts, from_packets=False)


def _decode(container: InputContainer, stream: VideoStream, key_pts: int | None) -> Iterator[VideoFrame]:
    """Yield frames from the key packet with this pts on.

    A frame that follows the key packet but is shown before it is skipped: it may depend on earlier packets.
    """
    is_waiting = key_pts is not None
    for packet in container.demux(stream):
        is_waiting = is_waiting and not (packet.is_keyframe and packet.pts == key_pts)
        for frame in [] if is_waiting else packet.decode():
            if key_pts is None or frame.pts is None or frame.pts >= key_pts:
                yield frame


class _TimelineMismatchError(Exception):
    """The decoded frames differ from the timeline."""


@dataclass(frozen=True, slots=True)
class VideoTimeline:
    """The time of each frame, and the key packets at which decoding can start, as (pts, dts).

    Times are multiples of `unit_s`; a player counts them from `begin`. `pts` is None if the frames have no reliable
    times.
    """

    length: int
    pts: array[int] | None
    starts: tuple[tuple[int, int], ...]
    from_packets: bool
    unit_s: Fraction | None
    begin: int

    def frame_at(self, seconds: float) -> int | None:
        """Return the last frame that began by then: -1 before the first, None if the times are unknown."""
        if self.pts is None or self.unit_s is None:
            return None
        return bisect_right(self.pts, seconds, key=self.seconds) - 1

    def seconds(self, pts: int) -> float:
        """Return the time at which a player shows the frame."""
        return float((pts - self.begin) * (self.unit_s or 0))

    def start_of(self, index: int) -> tuple[int, tuple[int, int] | None]:
        """Return the first frame that decoding yields for this frame, and the key packet to seek to."""
        if self.pts is None:
            return 0, None
        at = bisect_right(self.starts, self.pts[index], key=lambda start: start[0]) - 1
        return (0, None) if at < 0 else (bisect_left(self.pts, self.starts[at][0]), self.starts[at])


def _read_timeline(container: InputContainer, stream: VideoStream, name: str) -> tuple[VideoTimeline, bool]:
    """Build the timeline from the packets, and return whether each packet is certain to become one frame."""
    pts = array("q")
    starts = []
    codec = stream.codec_context.codec.canonical_name
    min_bytes = _MPEG4_SKIP_BYTES if codec == "mpeg4" else 0
    is_sure = codec in _FRAME_PER_PACKET
    for packet in container.demux(stream):
        if packet.is_corrupt:
            raise MediaDecodeError(f"{name}: the file ends in the middle of a frame")
        if packet.pts is None:
            is_sure = is_sure and packet.size == 0
            continue
        if packet.is_keyframe:
            starts.append((packet.pts, packet.pts if packet.dts is None else packet.dts))
        if not packet.is_discard:
            pts.append(packet.pts)
            _check_length(len(pts), name)
        is_sure = is_sure and packet.size > min_bytes
    ordered = array("q", sorted(pts))
    starts.sort()
    is_sure = is_sure and _ascends(ordered) and bool(starts) and starts[0][0] <= ordered[0]
    begin = ordered[0] if ordered else 0
    if container.start_time is not None and stream.time_base:
        begin = min(begin, round(Fraction(container.start_time, 1_000_000) / stream.time_base))
    return VideoTimeline(len(ordered), ordered, tuple(starts), True, stream.time_base, begin), is_sure


def _check_length(length: int, name: str) -> None:
    if length > MAX_VIDEO_FRAMES:
        raise LimitExceededError(f"{name} has more than {MAX_VIDEO_FRAMES} frames")


def _ascends(pts: array[int]) -> bool:
    return all(before < after for before, after in pairwise(pts))
