"""Generated images, audio and video, and files that count or fail, for the tests of decoding."""

from __future__ import annotations

import functools
import io
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, cast

import av
import numpy as np
import soundfile
from av.video.stream import VideoStream
from PIL import Image

Array = np.ndarray[Any, np.dtype[Any]]

UNIT = Fraction(1, 30_000)
WIDTH, HEIGHT = 64, 48


def encode_test_image(pixels: Array, kind: str, mode: str | None = None, **options: Any) -> bytes:
    out = io.BytesIO()
    image = Image.fromarray(pixels)
    (image if mode is None else image.convert(mode)).save(out, kind, **options)
    return out.getvalue()


def sound(samples: Array, kind: str, rate: int = 8000, subtype: str | None = None) -> bytes:
    out = io.BytesIO()
    soundfile.write(out, samples, rate, format=kind, subtype=subtype)
    return out.getvalue()


def melody(frames: int, channels: int = 1, rate: int = 8000) -> Array:
    """Something that no two parts of sound alike."""
    time = np.arange(frames)[:, None] / rate
    tones = np.sin(2 * np.pi * time * (200 + 100 * time + 50 * np.arange(channels)))
    return (0.4 * tones + 0.05 * np.random.default_rng(5).standard_normal((frames, channels))).astype(np.float32)


def mp3_without_length(samples: Array, rate: int = 44_100, *, varies: bool = False) -> bytes:
    """An MP3 that begins with its first packet, as old encoders wrote them."""
    out = io.BytesIO()
    with av.open(out, "w", format="mp3", options={"write_xing": "0", "id3v2_version": "0"}) as container:
        stream = container.add_stream("libmp3lame", rate=rate, layout="mono")
        if varies:
            stream.codec_context.qscale = True
            stream.codec_context.global_quality = 4 * 118
        else:
            stream.bit_rate = 64_000
        frame = av.AudioFrame.from_ndarray(np.ascontiguousarray(samples.T), format="fltp", layout="mono")
        frame.sample_rate = rate
        container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return out.getvalue()


@dataclass(frozen=True)
class Scene:
    """Parameters of a generated video. Frame `i` shows the number `i` in its corner, and moves."""

    codec: str
    container: str
    options: Mapping[str, str] = field(default_factory=dict)
    length: int = 40
    varies: bool = False
    unit: Fraction = UNIT
    hides: int = 0
    """The number of leading frames that are stored, and skipped by the container's edit list."""

    def times(self) -> list[int]:
        """When each frame is shown, in `UNIT`s."""
        if not self.varies:
            return [1000 * number for number in range(self.length)]
        gaps = np.random.default_rng(7).integers(200, 4000, self.length - 1)
        return [0, *np.cumsum(gaps).tolist()]

    @functools.cached_property
    def data(self) -> bytes:
        made = _encode(self)
        return made if not self.hides else _shift(made, self.times()[self.hides])

    @functools.cached_property
    def decoded(self) -> list[tuple[int | None, Array]]:
        """Naively, from the beginning to the end: times and pixels."""
        with av.open(io.BytesIO(self.data), "r") as container:
            return [(frame.pts, frame.to_ndarray(format="rgb24")) for frame in container.decode(video=0)]

    def __str__(self) -> str:
        words = [self.codec, self.container, *self.options.values()]
        return "-".join(words + ["varies"] * self.varies + ["hides"] * bool(self.hides))


def _encode(scene: Scene) -> bytes:
    """Encode in a thread of its own: for a superuser, SVT-AV1 gives the calling thread real-time priority for good.

    All processes that it starts later would inherit that, and could starve each other.
    """
    with ThreadPoolExecutor(1) as executor:
        return executor.submit(_encode_here, scene).result()


def _encode_here(scene: Scene) -> bytes:
    out = io.BytesIO()
    backdrop = np.random.default_rng(1).integers(0, 255, (HEIGHT, 2 * WIDTH, 3), dtype=np.uint8)
    with av.open(out, "w", format=scene.container) as container:
        stream = cast(VideoStream, container.add_stream(scene.codec, rate=30))
        stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, "yuv420p"
        stream.codec_context.time_base = scene.unit
        stream.codec_context.options = dict(scene.options)
        for number, time in enumerate(scene.times()):
            pixels = np.ascontiguousarray(np.roll(backdrop, 3 * number, axis=1)[:, :WIDTH])
            pixels[:16, :16] = shade(number)
            frame = av.VideoFrame.from_ndarray(pixels, format="rgb24")
            frame.pts, frame.time_base = time, UNIT
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return out.getvalue()


def shade(number: int) -> int:
    """The grey in the corner of a frame, from which `number_in` reads the number of a short video."""
    return 20 + 5 * (number % 40)


def number_in(pixels: Array) -> int:
    return round((float(pixels[4:12, 4:12].mean()) - 20) / 5)


def _shift(data: bytes, ticks: int) -> bytes:
    """The same packets, earlier: those before 0 are not shown."""
    out = io.BytesIO()
    keep = {"avoid_negative_ts": "disabled", "use_editlist": "1"}
    with av.open(io.BytesIO(data), "r") as source, av.open(out, "w", format="mp4", options=keep) as target:
        stream = target.add_stream_from_template(source.streams.video[0])
        for packet in source.demux(video=0):
            if packet.pts is not None and packet.dts is not None:
                packet.pts, packet.dts = packet.pts - ticks, packet.dts - ticks
                packet.stream = stream
                target.mux(packet)
    return out.getvalue()


def hide_frames(data: bytes, numbers: Sequence[int]) -> bytes:
    """A VP8 video with hidden frames, which encoders use as references for others."""
    out = io.BytesIO()
    with av.open(io.BytesIO(data), "r") as source, av.open(out, "w", format="matroska") as target:
        stream = target.add_stream_from_template(source.streams.video[0])
        for number, packet in enumerate(source.demux(video=0)):
            if packet.pts is not None:
                content = bytearray(bytes(packet))
                content[0] &= 0xEF if number in numbers else 0xFF
                changed = av.Packet(bytes(content))
                changed.pts, changed.dts, changed.time_base = packet.pts, packet.dts, packet.time_base
                changed.is_keyframe = packet.is_keyframe
                changed.stream = stream
                target.mux(changed)
    return out.getvalue()


class CountedFile(io.BytesIO):
    """Knows how many bytes were read from it."""

    taken = 0

    def read(self, size: int | None = -1, /) -> bytes:
        data = super().read(size)
        self.taken += len(data)
        return data


class FailingFile(io.BytesIO):
    """Raises `error` at read number `fails_at`, and from then on until the fault is reset."""

    def __init__(self, data: bytes, fails_at: int | None, error: BaseException) -> None:
        super().__init__(data)
        self.fails_at = fails_at
        self.error = error
        self.reads = 0

    def read(self, size: int | None = -1, /) -> bytes:
        self.reads += 1
        if self.fails_at is not None and self.reads > self.fails_at:
            raise self.error
        return super().read(size)


def pts_order(data: bytes) -> Sequence[int]:
    """Presentation times in the order of the packets."""
    with av.open(io.BytesIO(data), "r") as container:
        return [packet.pts for packet in container.demux(video=0) if packet.pts is not None]
