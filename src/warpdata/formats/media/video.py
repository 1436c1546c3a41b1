"""Frames of a film by number, exact also where frame rates vary and frames lean on later ones.

Packets are read once, without decoding, to learn when each frame is shown and where decoding can
start. Whether that was right is checked with each frame that is decoded. Knows FFmpeg only by the
objects it is handed; errors of theirs pass through.
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

__all__ = ["Film", "Timeline"]

_FRAME_PER_PACKET = frozenset({"av1", "ffv1", "h264", "hevc", "mjpeg", "mpeg4", "png", "prores", "rawvideo", "vp9"})
_MPEG4_SKIP_BYTES = 19
"""A packet of MPEG-4 that is not longer may say "as before" and give no frame."""
_PROBED_FRAMES = 8
"""So many are decoded to see that packets and frames agree."""


class Film:
    """The frames of one video stream. `reopen` gives the stream at its beginning, each time it is called."""

    def __init__(self, reopen: Callable[[], tuple[InputContainer, VideoStream]], name: str) -> None:
        self._reopen = reopen
        self._name = name
        self._opened: tuple[InputContainer, VideoStream] | None = None
        self._is_fresh = False
        self._timeline: Timeline | None = None
        self._running: Iterator[VideoFrame] | None = None
        self._next = 0
        self._last: tuple[int, VideoFrame] | None = None

    def look(self) -> tuple[InputContainer, VideoStream]:
        """The stream at its beginning, for what its header says."""
        opened = self._rewind()
        self._is_fresh = True
        return opened

    def forget(self) -> None:
        """As if it had never been opened. For after a failure: the timeline may come from half a file."""
        self._timeline = None
        self._free()

    def timeline(self) -> Timeline:
        """Made when it is first asked for, at the cost of one pass over the file."""
        if self._timeline is None:
            read, is_sure = _read_timeline(*self._rewind(), self._name)
            self._timeline = read if is_sure else self._count(read)
            self.fetch(min(_PROBED_FRAMES, self._timeline.length) - 1)
        return self._timeline

    def fetch(self, index: int) -> VideoFrame | None:
        """The frame with that number, or `None` if there is none.

        When what is decoded is not what the timeline says, a slower way is taken: first, frames are
        counted by decoding all of them; at last, each access begins at the beginning.
        """
        while index >= 0 and (self._last is None or self._last[0] != index):
            try:
                if not self._advance(index):
                    return None
            except _OtherFramesError:
                timeline = self._timeline
                if timeline is None or not timeline.starts:
                    raise MediaDecodeError(f"{self._name}: decoding it again gives other frames") from None
                self._running = None
                self._timeline = self._count(timeline) if timeline.from_packets else replace(timeline, starts=())
        return self._last[1] if self._last is not None and index >= 0 else None

    def _advance(self, index: int) -> bool:
        """Decodes up to that frame and keeps it; `False` at the end of the film."""
        timeline = self._timeline
        if timeline is not None and index >= timeline.length:
            return False
        number, start = timeline.start_of(index) if timeline is not None else (0, None)
        if self._running is None or not number <= self._next <= index:
            self._running, self._next = self._decode_from(start), number
        for frame in self._running:
            at, self._next = self._next, self._next + 1
            if timeline is not None and timeline.pts is not None and timeline.pts[at] != frame.pts:
                raise _OtherFramesError
            if at == index:
                self._last = (index, frame)
                return True
        self._running = None
        if timeline is not None:
            raise _OtherFramesError
        return False

    def _decode_from(self, start: tuple[int, int] | None) -> Iterator[VideoFrame]:
        """Frames from a key packet on, given by its pts and dts, or all of them."""
        if start is None:
            return _decode(*self._rewind(), None)
        container, stream = self._opened or self._rewind()
        try:
            container.seek(start[1], stream=stream)
        except Exception as error:
            raise _OtherFramesError from error
        return _decode(container, stream, start[0])

    def _free(self) -> None:
        self._running = self._last = None
        if self._opened is not None:
            self._opened[0].close()
            self._opened = None

    def _rewind(self) -> tuple[InputContainer, VideoStream]:
        if self._opened is None or not self._is_fresh:
            self._free()
            self._opened = self._reopen()
        self._is_fresh = False
        return self._opened

    def _count(self, read: Timeline) -> Timeline:
        """The timeline as decoding everything tells it."""
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
    """Frames from the key packet with that time on.

    One that is decoded after the key packet but shown before it may lean on what is not there.
    """
    waits = key_pts is not None
    for packet in container.demux(stream):
        waits = waits and not (packet.is_keyframe and packet.pts == key_pts)
        for frame in [] if waits else packet.decode():
            if key_pts is None or frame.pts is None or frame.pts >= key_pts:
                yield frame


class _OtherFramesError(Exception):
    """What was decoded is not what the timeline says."""


@dataclass(frozen=True, slots=True)
class Timeline:
    """When each frame is shown, and the key packets at which decoding can start, as (pts, dts).

    Times are multiples of `unit_s`, and a player counts them from `begin`. `pts` is `None` where frames
    have no times to rely on.
    """

    length: int
    pts: array[int] | None
    starts: tuple[tuple[int, int], ...]
    from_packets: bool
    unit_s: Fraction | None
    begin: int

    def shown_at(self, seconds: float) -> int | None:
        """The last frame that began by then: -1 before the first, `None` where that is not known."""
        if self.pts is None or self.unit_s is None:
            return None
        return bisect_right(self.pts, seconds, key=self.seconds) - 1

    def seconds(self, pts: int) -> float:
        """As a player counts."""
        return float((pts - self.begin) * (self.unit_s or 0))

    def start_of(self, index: int) -> tuple[int, tuple[int, int] | None]:
        """Where to start decoding for that frame: the number of the frame that comes first, and the packet."""
        if self.pts is None:
            return 0, None
        at = bisect_right(self.starts, self.pts[index], key=lambda start: start[0]) - 1
        return (0, None) if at < 0 else (bisect_left(self.pts, self.starts[at][0]), self.starts[at])


def _read_timeline(container: InputContainer, stream: VideoStream, name: str) -> tuple[Timeline, bool]:
    """The timeline as the packets tell it, and whether each packet is sure to become one frame."""
    pts = array("q")
    starts = []
    codec = stream.codec_context.codec.canonical_name
    shortest = _MPEG4_SKIP_BYTES if codec == "mpeg4" else 0
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
        is_sure = is_sure and packet.size > shortest
    ordered = array("q", sorted(pts))
    starts.sort()
    is_sure = is_sure and _ascends(ordered) and bool(starts) and starts[0][0] <= ordered[0]
    begin = ordered[0] if ordered else 0
    if container.start_time is not None and stream.time_base:
        begin = min(begin, round(Fraction(container.start_time, 1_000_000) / stream.time_base))
    return Timeline(len(ordered), ordered, tuple(starts), True, stream.time_base, begin), is_sure


def _check_length(length: int, name: str) -> None:
    if length > MAX_VIDEO_FRAMES:
        raise LimitExceededError(f"{name} has more than {MAX_VIDEO_FRAMES} frames")


def _ascends(pts: array[int]) -> bool:
    return all(before < after for before, after in pairwise(pts))
