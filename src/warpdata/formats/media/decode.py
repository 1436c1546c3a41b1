"""Pictures, sounds and films out of bytes: the only home of Pillow, soundfile and PyAV.

Functions of bytes or of a seekable file, which know neither stores nor references. `name` is the path
that messages speak of. What a header promises is compared with limits.py before memory is taken, and
with what came out afterwards. Only formats that stand alone are opened: none that runs another program
or leads to another file. Nothing here writes media.
"""

from __future__ import annotations

import functools
import io
import math
import threading
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any, BinaryIO, Self, TypeAlias

from warpdata.errors import (
    BadInputError,
    LimitExceededError,
    MediaDecodeError,
    MissingExtraError,
    UnsupportedFormatError,
    WarpError,
)
from warpdata.formats.media.audio_probe import count_mp3_frames, missing_sample_bytes
from warpdata.formats.media.callback_file import WatchedFile, reason_of
from warpdata.formats.media.video import Film
from warpdata.limits import MAX_AUDIO_SAMPLES, MAX_IMAGE_PIXELS

if TYPE_CHECKING:
    import numpy as np
    from av.container import InputContainer
    from av.video.stream import VideoStream
    from PIL import Image, ImageFile

__all__ = [
    "AudioInfo",
    "VideoInfo",
    "VideoReader",
    "audio_info",
    "decode_audio",
    "decode_image",
    "image_size",
    "image_to_array",
]

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"

_IMAGE_FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "TIFF", "BMP", "PPM", "JPEG2000", "AVIF", "QOI")
"""Formats with a signature. Not among them: EPS, which Pillow hands to another program."""

_MP3_RUN_UP_FRAMES = 2**17
"""Packets of an MP3 lean on those before, and libsndfile starts too shortly before the place it is sent to."""

_VORBIS_PAGE_FRAMES = 255 * 4096
"""No page has more packets, and no packet more frames. In the last page libsndfile misses the place."""

_VIDEO_FORMATS = "mov,matroska,avi,mpegts,mpeg,flv,ogg,asf,ivf"
"""Containers that hold their own bytes. Not among them: playlists, which name files and addresses."""

_warning_filters = threading.Lock()


def decode_image(data: bytes | memoryview, name: str) -> Image.Image:
    """The picture, loaded; of several frames the first.

    As it is stored: an orientation tag stays a tag, for `PIL.ImageOps.exif_transpose`. TIFF and AVIF
    are the exception: Pillow turns them while it loads.
    """
    image = _open_image(data, name)
    _check_pixels(image.size, name)
    with _picture_errors(name), _unwarned(image.size):
        image.load()
        if not getattr(image, "is_animated", False):
            return image
        first = image.copy()
        first.format = image.format
        return first


def image_to_array(data: bytes | memoryview, name: str) -> Array:
    """Pixels: height × width for grey, × 3 for colour, × 4 where there is transparency.

    uint8; grey pictures of more depth are uint16, int32 or float32. Colour of 16 bits comes as 8:
    Pillow has no more.
    """
    with _needs("NumPy", "image", name):
        import numpy as np
    image = decode_image(data, name)
    if image.mode.startswith("I;16") or (image.mode == "I" and image.format == "PPM"):
        return np.asarray(image).astype(np.uint16)
    mode = _plain_mode(image)
    with _picture_errors(name):
        return np.array(image if image.mode == mode else image.convert(mode))


def image_size(data: bytes | memoryview, name: str) -> tuple[int, int]:
    """Width and height, from the header; also of a picture that is too large to decode."""
    return _open_image(data, name).size


def _plain_mode(image: Image.Image) -> str:
    if image.mode in ("I", "F"):
        return image.mode
    if image.has_transparency_data:
        return "RGBA"
    return "L" if image.mode in ("1", "L") else "RGB"


def _open_image(data: bytes | memoryview, name: str) -> ImageFile.ImageFile:
    """Reads the header, as `PIL.Image.open` does, which would warn about sizes that are allowed here."""
    with _needs("Pillow", "image", name):
        from PIL import Image
    Image.init()
    for kind in _IMAGE_FORMATS:
        opener, accepts = Image.OPEN.get(kind, (None, None))
        accepted = accepts is not None and accepts(bytes(data[:16]))
        if isinstance(accepted, str):
            raise UnsupportedFormatError(f"{name}: {accepted}")
        if accepted and opener is not None:
            with _picture_errors(name):
                return opener(io.BytesIO(data), "")
    raise MediaDecodeError(f"{name} is not a picture of a known format: it begins with {bytes(data[:8])!r}")


@contextmanager
def _picture_errors(name: str) -> Iterator[None]:
    """Pillow raises whatever the damage made it stumble over."""
    from PIL import Image

    try:
        yield
    except (WarpError, MemoryError):
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise LimitExceededError(f"{name}: {error}") from error
    except Exception as error:
        raise MediaDecodeError(f"{name} is not a picture that can be decoded: {reason_of(error)}") from error


@contextmanager
def _unwarned(size: tuple[int, int]) -> Iterator[None]:
    """Without Pillow's warning about sizes that our limit allows.

    Filters of warnings belong to the whole process, so only pictures that would warn touch them,
    one at a time.
    """
    from PIL import Image

    if Image.MAX_IMAGE_PIXELS is None or math.prod(size) <= Image.MAX_IMAGE_PIXELS:
        yield
        return
    with _warning_filters, warnings.catch_warnings():
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)
        yield


def _check_pixels(size: tuple[int, int], name: str) -> None:
    if math.prod(size) > MAX_IMAGE_PIXELS:
        raise LimitExceededError(f"{name} has {size[0]} × {size[1]} pixels; at most {MAX_IMAGE_PIXELS} are decoded")


@dataclass(frozen=True, slots=True)
class AudioInfo:
    """What is known of a sound without decoding it. A frame is one sample of each channel."""

    sample_rate: int
    channels: int
    frames: int
    duration_s: float
    format: str


def audio_info(file: BinaryIO, name: str) -> AudioInfo:
    """Decodes no samples. The file stays open."""
    watched = WatchedFile(file, name)
    with watched.decoding(), _open_sound(watched) as (sound, frames):
        return AudioInfo(sound.samplerate, sound.channels, frames, frames / sound.samplerate, sound.format)


def decode_audio(
    file: BinaryIO, name: str, *, start_s: float = 0.0, duration_s: float | None = None
) -> tuple[Array, int]:
    """Samples as float32, frames × channels, and the sample rate.

    Both ends are rounded to the nearest frame, so parts that meet in time meet in frames. A part
    that runs past the end stops there. The file stays open.
    """
    watched = WatchedFile(file, name)
    with watched.decoding(), _open_sound(watched) as (sound, frames):
        rate: int = sound.samplerate
        first, last = _frames_between(start_s, duration_s, rate, frames, name)
        if (last - first) * sound.channels > MAX_AUDIO_SAMPLES:
            raise LimitExceededError(
                f"{name}: {last - first} frames of {sound.channels} channels were asked for; "
                f"at most {MAX_AUDIO_SAMPLES} samples are decoded at once",
                hint="ask for parts, with start_s and duration_s",
            )
        begin = _sure_start(sound, first, frames)
        sound.seek(begin)
        samples: Array = sound.read(last - begin, dtype="float32", always_2d=True)
    if begin + len(samples) != last:
        raise MediaDecodeError(f"{name}: {last} frames were promised, and {begin + len(samples)} are there")
    return samples[first - begin :], rate


def _frames_between(start_s: float, duration_s: float | None, rate: int, frames: int, name: str) -> tuple[int, int]:
    for value in (start_s, duration_s or 0.0):
        if not (math.isfinite(value) and value >= 0):
            raise BadInputError(f"{name}: {value} s is not a time in a sound")
    first = round(start_s * rate)
    if first > frames:
        raise BadInputError(f"{name}: a start at {start_s} s is after the end, which is at {frames / rate} s")
    return first, frames if duration_s is None else min(round((start_s + duration_s) * rate), frames)


def _sure_start(sound: Any, first: int, frames: int) -> int:
    """A place not after `first` from which decoding gives what decoding everything gives."""
    if sound.format == "MP3":
        return max(0, first - _MP3_RUN_UP_FRAMES)
    if sound.subtype == "VORBIS":
        return min(first, max(0, frames - _VORBIS_PAGE_FRAMES))
    return first


@contextmanager
def _open_sound(watched: WatchedFile) -> Iterator[tuple[Any, int]]:
    """The sound, and how many frames it has."""
    with _needs("soundfile", "audio", watched.member):
        import soundfile
    if missing := missing_sample_bytes(watched):
        raise MediaDecodeError(
            f"{watched.member}: {missing[0]} bytes of samples were promised, and {missing[1]} are there"
        )
    watched.seek(0)
    with soundfile.SoundFile(watched) as sound:
        counted: int | None = None
        if sound.format == "MP3":
            position = watched.tell()
            counted = count_mp3_frames(watched, watched.member)
            watched.seek(position)
        frames: int = sound.frames if counted is None else counted
        if frames > min(sound.frames, 2**62):
            raise UnsupportedFormatError(
                f"{watched.member}: this {sound.format} does not say how long it is",
                hint="write it anew with its length, for example with `ffmpeg -i IN -c copy OUT`",
            )
        yield sound, frames


@dataclass(frozen=True, slots=True)
class VideoInfo:
    """What the header of a film says, and `None` where it does not.

    `frame_count` may count frames that are never shown; `len` of a reader is exact. With a varying
    rate `fps` is a mean, or a guess.
    """

    width: int
    height: int
    fps: float | None
    duration_s: float | None
    frame_count: int | None
    codec: str


class VideoReader:
    """Frames of a film, by number or by time, as RGB: height × width × 3, uint8. For one thread at a time.

    Frames are numbered as they are shown. The first access by number or time reads the whole file
    once, without decoding it; after that an access decodes from the key frame before. Rotation tags
    are not applied. Damage inside the stream is patched up by FFmpeg, as players do. The file becomes
    the reader's and is closed with it.
    """

    def __init__(self, file: BinaryIO, name: str) -> None:
        self._name = name
        self._file = file
        self._watched = WatchedFile(file, name)
        self._film = Film(functools.partial(_open_film, self._watched), name)
        with self._decoding():
            self._info = _describe(*self._film.look(), name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __len__(self) -> int:
        """How many frames there are, counted."""
        with self._decoding():
            return self._film.timeline().length

    @property
    def info(self) -> VideoInfo:
        """What the header says."""
        return self._info

    def close(self) -> None:
        """Frees the decoder and closes the file."""
        self._film.forget()
        self._file.close()

    def frame(self, index: int) -> Array:
        """The frame with that number, from 0."""
        with self._decoding():
            self._film.timeline()
            found = self._film.fetch(index)
            if found is not None:
                return found.to_ndarray(format="rgb24")
        raise BadInputError(f"{self._name}: there is no frame {index}; it has {len(self)}, numbered from 0")

    def frame_at(self, seconds: float) -> Array:
        """The frame that a player shows at that time: the last that began by then."""
        if not (math.isfinite(seconds) and seconds >= 0):
            raise BadInputError(f"{self._name}: {seconds} s is not a time in a film")
        with self._decoding():
            index = self._film.timeline().shown_at(seconds)
        if index is None:
            raise UnsupportedFormatError(f"{self._name}: its frames do not say when they are shown")
        if index < 0:
            raise BadInputError(f"{self._name}: no frame is shown yet at {seconds} s")
        return self.frame(index)

    def frames(self, start: int = 0, stop: int | None = None, step: int = 1) -> Iterator[Array]:
        """Frames in order, decoded as they are asked for. Where the film ends before `stop`, they end with it.

        From the beginning and with none left out, this needs no look at the whole file first.
        """
        if start < 0 or step < 1 or (stop is not None and stop < 0):
            raise BadInputError(f"{self._name}: frames from {start} to {stop} by {step} can not be counted from 0")
        return self._walk(count(start, step) if stop is None else range(start, stop, step), start > 0 or step > 1)

    def _walk(self, numbers: Iterable[int], jumps: bool) -> Iterator[Array]:
        for number in numbers:
            with self._decoding():
                if jumps:
                    self._film.timeline()
                found = self._film.fetch(number)
                if found is None:
                    return
                pixels = found.to_ndarray(format="rgb24")
            yield pixels

    @contextmanager
    def _decoding(self) -> Iterator[None]:
        """After a failure nobody knows what the decoder has seen, so the next access begins anew."""
        try:
            with self._watched.decoding():
                yield
        except BaseException:
            self._film.forget()
            raise


def _open_film(watched: WatchedFile) -> tuple[InputContainer, VideoStream]:
    with _needs("PyAV", "video", watched.member):
        import av
    watched.seek(0)
    options = {"format_whitelist": _VIDEO_FORMATS, "protocol_whitelist": ""}
    container = av.open(watched, "r", options=options, metadata_errors="replace")
    for stream in container.streams.video:
        if not stream.disposition & av.stream.Disposition.attached_pic:
            if stream.codec_context is None:
                raise UnsupportedFormatError(f"{watched.member}: this FFmpeg can not decode its video")
            stream.codec_context.options = {"max_pixels": str(MAX_IMAGE_PIXELS)}
            return container, stream
    raise MediaDecodeError(f"{watched.member} has no video in it")


def _describe(container: InputContainer, stream: VideoStream, name: str) -> VideoInfo:
    _check_pixels((stream.width, stream.height), name)
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


@contextmanager
def _needs(library: str, extra: str, name: str) -> Iterator[None]:
    """Around an import."""
    try:
        yield
    except (ImportError, OSError) as error:
        raise MissingExtraError(
            f"decoding {name} needs {library}, which is not installed", hint=f"pip install 'warpdata[{extra}]'"
        ) from error
