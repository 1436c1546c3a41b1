"""Video: frames by number or time, encoded packets, and cuts without encoding. The only user of PyAV.

Only containers that hold their own bytes are opened: no playlists, no other files, no network. Sizes in a header
are compared with `limits` before memory is allocated.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from itertools import count, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Self

from warpdata.errors import BadInputError, MediaDecodeError, UnsupportedError, WarpError
from warpdata.formats.media.callback_file import CallbackFile
from warpdata.formats.media.image import Array, check_pixels
from warpdata.formats.media.video_seek import SeekableVideo
from warpdata.limits import MAX_IMAGE_PIXELS
from warpdata.primitives.extras import require

if TYPE_CHECKING:
    from av.container import InputContainer
    from av.video.stream import VideoStream

__all__ = [
    "DecodedFrame",
    "DecoderSettings",
    "PacketReader",
    "VideoInfo",
    "VideoPacket",
    "VideoReader",
    "cut_video",
    "decode_packets",
    "open_packets",
    "require_decoders",
]

_VIDEO_FORMATS = "mov,matroska,avi,mpegts,mpeg,flv,ogg,asf,ivf"
"""Containers that hold their own bytes. Playlists are absent: they name files and addresses."""
_PACKET_FORMATS = "mov,matroska"
"""Containers that store each packet contiguously."""
_PACKET_CODECS = frozenset({"av1", "ffv1", "h264", "hevc", "mjpeg", "png", "prores", "vp9"})
"""Codecs in which a packet is a frame."""
_DECODERS = {"av1": ("libdav1d", "libaom-av1")}
"""Decoders that run everywhere: FFmpeg's own for AV1 needs a GPU."""


@dataclass(frozen=True, slots=True)
class VideoInfo:
    """Properties from the header of a video; None where the header has no value.

    `frame_count` may include frames that are never shown; `len` of a reader is exact. With a variable rate, `fps`
    is a mean or an estimate.
    """

    width: int
    height: int
    fps: float | None
    duration_s: float | None
    frame_count: int | None
    codec: str


class VideoReader:
    """Frames of a video by number or time, as RGB: height × width × 3, uint8. For one thread at a time.

    Frames are numbered in the order in which they are shown. The first access by number or time reads the whole
    file once, without decoding it. Later accesses decode from the preceding key frame. Rotation tags are not
    applied. FFmpeg conceals damage inside the stream, like players do. The reader owns the file and closes it.
    """

    def __init__(self, file: BinaryIO, name: str) -> None:
        self._name = name
        self._file = file
        self._source = CallbackFile(file, name)
        self._video = SeekableVideo(functools.partial(_open_stream, self._source), name)
        with self._decoding():
            self._info = _describe(*self._video.open(), name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __len__(self) -> int:
        """Return the exact number of frames."""
        with self._decoding():
            return self._video.timeline().length

    @property
    def info(self) -> VideoInfo:
        return self._info

    def close(self) -> None:
        """Free the decoder and close the file."""
        self._video.reset()
        self._file.close()

    def frame(self, index: int) -> Array:
        """Return the frame with this number, counted from 0."""
        with self._decoding():
            self._video.timeline()
            found = self._video.frame(index)
            if found is not None:
                return found.to_ndarray(format="rgb24")
        raise BadInputError(f"{self._name}: there is no frame {index}; it has {len(self)}, numbered from 0")

    def frame_at(self, seconds: float) -> Array:
        """Return the frame that a player shows at this time: the last one that began by then."""
        if not (math.isfinite(seconds) and seconds >= 0):
            raise BadInputError(f"{self._name}: {seconds} s is not a valid time")
        with self._decoding():
            index = self._video.timeline().frame_at(seconds)
        if index is None:
            raise UnsupportedError(f"{self._name}: its frames have no times")
        if index < 0:
            raise BadInputError(f"{self._name}: no frame is shown yet at {seconds} s")
        return self.frame(index)

    def frames(self, start: int = 0, stop: int | None = None, step: int = 1) -> Iterator[Array]:
        """Yield frames in order, decoded on demand, up to `stop` or the end of the video.

        From 0 with step 1, this needs no pass over the whole file first.
        """
        if start < 0 or step < 1 or (stop is not None and stop < 0):
            raise BadInputError(f"{self._name}: frames from {start} to {stop} by {step} cannot be counted from 0")
        return self._walk(count(start, step) if stop is None else range(start, stop, step), start > 0 or step > 1)

    def _walk(self, numbers: Iterable[int], jumps: bool) -> Iterator[Array]:
        for number in numbers:
            with self._decoding():
                if jumps:
                    self._video.timeline()
                found = self._video.frame(number)
                if found is None:
                    return
                pixels = found.to_ndarray(format="rgb24")
            yield pixels

    @contextmanager
    def _decoding(self) -> Iterator[None]:
        """Reset the decoder after a failure, because its state is unknown."""
        try:
            with self._source.decoding():
                yield
        except BaseException:
            self._video.reset()
            raise


def _open_stream(source: CallbackFile) -> tuple[InputContainer, VideoStream]:
    av = require("av", purpose=f"decoding {source.member}", extra="video")
    source.seek(0)
    container: InputContainer = _open_container(av, source, _VIDEO_FORMATS)
    for stream in container.streams.video:
        if not stream.disposition & av.stream.Disposition.attached_pic:
            if stream.codec_context is None:
                raise UnsupportedError(f"{source.member}: this FFmpeg cannot decode its video")
            stream.codec_context.options = {"max_pixels": str(MAX_IMAGE_PIXELS)}
            return container, stream
    raise MediaDecodeError(f"{source.member} has no video stream")


def _open_container(av: Any, source: Any, formats: str, protocols: str = "") -> Any:
    options = {"format_whitelist": formats, "protocol_whitelist": protocols}
    return av.open(source, "r", options=options, metadata_errors="replace")


def _describe(container: InputContainer, stream: VideoStream, name: str) -> VideoInfo:
    check_pixels((stream.width, stream.height), name)
    rate = stream.average_rate or stream.guessed_rate
    duration = None if container.duration is None else container.duration / 1e6
    if stream.duration is not None and stream.time_base:
        duration = float(stream.duration * stream.time_base)
    return VideoInfo(
        width=stream.width,
        height=stream.height,
        fps=float(rate) if rate else None,
        duration_s=duration,
        frame_count=stream.frames or None,
        codec=stream.codec_context.codec.canonical_name,
    )


@dataclass(frozen=True, slots=True)
class VideoPacket:
    """One encoded frame. The container stores its bytes at or shortly after `offset`."""

    data: bytes
    offset: int
    time_ns: int
    is_key: bool
    is_hidden: bool


@dataclass(frozen=True, slots=True)
class PacketReader:
    """The first video stream of a container. `packets()` may be called once."""

    codec: str
    container: str
    height: int
    width: int
    extradata: bytes
    packets: Callable[[], Iterator[VideoPacket]]


@contextmanager
def open_packets(path: Path) -> Iterator[PacketReader]:
    """Open a video of which each packet is one frame, stored contiguously; `UnsupportedError` otherwise."""
    av = require("av", purpose=f"reading {path}", extra="video")
    hint = "The container must be MP4, MOV, Matroska or WebM."
    with (
        _video_errors(str(path), hint),
        path.open("rb") as file,
        _open_container(av, file, _PACKET_FORMATS) as container,
    ):
        stream = next((found for found in container.streams.video), None)
        context = stream.codec_context if stream is not None else None
        if stream is None or context is None or context.codec.canonical_name not in _PACKET_CODECS:
            raise UnsupportedError(f"{path} has no video of which each packet is a frame")
        yield PacketReader(
            context.codec.canonical_name,
            container.format.name.partition(",")[0],
            stream.height,
            stream.width,
            bytes(context.extradata or b""),
            lambda: map(_read_packet, _nonempty_packets(container, stream)),
        )


def _nonempty_packets(container: Any, stream: Any) -> Iterator[Any]:
    return (packet for packet in container.demux(stream) if packet.pts is not None and packet.size)


def _read_packet(packet: Any) -> VideoPacket:
    time_ns = round(packet.pts * Fraction(packet.time_base) * 10**9)
    return VideoPacket(bytes(packet), packet.pos or 0, time_ns, packet.is_keyframe, packet.is_discard)


@dataclass(frozen=True, slots=True)
class DecoderSettings:
    """The configuration of a decoder. Some codecs, such as FFV1, need the size (height, width) from the container."""

    codec: str
    extradata: bytes = b""
    size: tuple[int, int] | None = None
    max_pixels: int = MAX_IMAGE_PIXELS


class DecodedFrame:
    """One decoded frame. `pts` is that of its packet; None for a frame that the decoder invented."""

    __slots__ = ("_frame", "_reformatter", "pts")

    def __init__(self, frame: Any, reformatter: Any) -> None:
        self.pts: int | None = frame.pts
        self._frame = frame
        self._reformatter = reformatter

    @property
    def size(self) -> tuple[int, int]:
        """Height and width."""
        return self._frame.height, self._frame.width

    def rgb(self, resize: tuple[int, int] | None = None) -> Array:
        """Return the pixels as height × width × 3, uint8, scaled to `resize` (height, width) if given."""
        height, width = resize or self.size
        with _video_errors("the video"):
            scaled = self._reformatter.reformat(
                self._frame, width=width, height=height, format="rgb24", interpolation="BILINEAR"
            )
            pixels: Array = scaled.to_ndarray()
            return pixels


def decode_packets(settings: DecoderSettings, packets: Iterable[tuple[int, bool, bytes]]) -> Iterator[DecodedFrame]:
    """Decode packets of (pts, is_key, data), and yield their frames in the order in which they are shown.

    Damage in a packet is a `MediaDecodeError`, and not concealed. The frames of earlier packets are yielded first.
    """
    av = require("av", purpose="decoding video frames", extra="video")
    with _video_errors("the video"):
        context, reformatter = _open_decoder(av, settings), av.video.reformatter.VideoReformatter()
        failure: Exception | None = None
        for pts, is_key, data in packets:
            packet = av.Packet(data)
            packet.pts, packet.is_keyframe = pts, is_key
            try:
                frames = context.decode(packet)
            except (av.FFmpegError, ValueError) as error:
                failure = error
                break
            yield from (DecodedFrame(frame, reformatter) for frame in frames)
        yield from (DecodedFrame(frame, reformatter) for frame in context.decode(None))
        if failure is not None:
            raise failure


def _open_decoder(av: Any, settings: DecoderSettings) -> Any:
    context = _create_decoder(av, settings.codec)
    if settings.extradata:
        context.extradata = settings.extradata
    if settings.size is not None:
        context.height, context.width = settings.size
    context.options = {"max_pixels": str(settings.max_pixels), "err_detect": "crccheck+explode"}
    # With threads, a decoder reads further ahead, and dav1d can hang when it is freed in the middle of a video.
    context.thread_count = 1
    return context


def require_decoders(encodings: Iterable[str], purpose: str) -> None:
    """Raise `MissingExtraError` unless the libraries that decode these encodings are installed."""
    for encoding in encodings:
        if encoding in ("jpeg", "png"):
            require("PIL.Image", purpose=purpose, extra="image")
        else:
            require("av", purpose=purpose, extra="video")


def _create_decoder(av: Any, codec: str) -> Any:
    # The name comes from a file, and FFmpeg has decoders for much more than video.
    for name in _DECODERS.get(codec, (codec,)) if codec in _PACKET_CODECS else ():
        try:
            return av.CodecContext.create(name, "r")
        except (ValueError, av.FFmpegError):
            continue
    raise UnsupportedError(f"this FFmpeg cannot decode {codec!r}")


def cut_video(path: Path, first: int, frame_count: int, target: Path) -> bool:
    """Write frames of an MP4 to a new MP4, packet by packet, without encoding.

    False, without a file: the part does not begin with a key frame, or depends on frames outside of it.
    `BadInputError` if the video has fewer frames.
    """
    av = require("av", purpose=f"cutting {path}", extra="video")
    with _open_container(av, str(path), "mov", "file") as source:
        read = _nonempty_packets(source, source.streams.video[0])
        packets = [(packet.pts, packet.is_keyframe, packet.is_discard) for packet in read]
    shown = sorted(pts for pts, _, is_hidden in packets if not is_hidden)
    wanted = set(shown[first : first + frame_count])
    positions = [number for number, (pts, _, _) in enumerate(packets) if pts in wanted]
    if len(positions) != frame_count or not positions:
        raise BadInputError(f"{path} has {len(shown)} frames; at least {first + frame_count} were expected")
    begin, begin_pts = positions[0], min(wanted)
    if positions[-1] - begin + 1 != frame_count or packets[begin][:2] != (begin_pts, True):
        return False
    # A second pass, so that only one packet is in memory.
    with _open_container(av, str(path), "mov", "file") as source, av.open(str(target), "w", format="mp4") as out:
        stream = out.add_stream_from_template(source.streams.video[0], opaque=True)
        for packet in islice(_nonempty_packets(source, source.streams.video[0]), begin, begin + frame_count):
            packet.pts -= begin_pts
            packet.dts = None if packet.dts is None else packet.dts - begin_pts
            packet.stream = stream
            out.mux(packet)
    return True


@contextmanager
def _video_errors(name: str, hint: str | None = None) -> Iterator[None]:
    """Map errors of FFmpeg to `MediaDecodeError`."""
    av = require("av", purpose=f"decoding {name}", extra="video")
    try:
        yield
    except (WarpError, GeneratorExit):
        raise
    except (av.FFmpegError, ValueError, OSError) as error:
        raise MediaDecodeError(f"{name} cannot be decoded: {error}", hint=hint) from error
