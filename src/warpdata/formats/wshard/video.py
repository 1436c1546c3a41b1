"""Frames of encoded blocks: indexing films and pictures as they are, and decoding those that are asked for.

Encoded bytes go in and come out bit for bit; nothing here encodes. Needs PyAV for films (`warpdata[video]`)
and Pillow for pictures (`warpdata[image]`). Implements "Reading frames" of docs/specs/wshard.md.
"""

from __future__ import annotations

import importlib
import io
import mmap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any

from warpdata.errors import (
    BadInputError,
    EpisodeCorruptedError,
    LimitExceededError,
    MediaDecodeError,
    MissingExtraError,
    NotFoundError,
    UnsupportedFormatError,
    WarpError,
)
from warpdata.formats.wshard.byte_source import PathLike, translate
from warpdata.formats.wshard.codecs import Codec
from warpdata.formats.wshard.dtypes import Array, DType
from warpdata.formats.wshard.frames import FRAME_ENTRY, HIDDEN, KEY, PICTURES, FrameIndex, frames_block, parse_frames
from warpdata.formats.wshard.libraries import crc32c, np
from warpdata.formats.wshard.model import Block, Channel
from warpdata.formats.wshard.reader import WShardFile
from warpdata.formats.wshard.row_source import RowSource
from warpdata.limits import MAX_IMAGE_PIXELS, MAX_VIDEO_FRAMES, WSHARD_MAX_FRAME_BYTES

__all__ = ["FrameReader", "index_film", "index_pictures"]

_FORMATS = "mov,matroska"
"""Containers in which a frame lies in one piece."""
_CODECS = frozenset({"av1", "ffv1", "h264", "hevc", "mjpeg", "png", "prores", "vp9"})
"""Codecs in which a packet is a frame."""
_DECODERS = {"av1": ("libdav1d", "libaom-av1")}
_SEARCHED_BYTES = 4096
_SIGNATURES = {b"\xff\xd8\xff": "jpeg", b"\x89PNG\r\n\x1a\n": "png"}


def index_pictures(pictures: Sequence[bytes], times_ns: Sequence[int], channel_id: str) -> tuple[Channel, Block]:
    """A channel of JPEG or PNG files, one after another as they are, and the block `frames/…` for it.

    Put the channel among the observations, and the block into `extra` under `frames_block("signal/" + id)`.
    """
    if len(pictures) != len(times_ns) or not pictures:
        raise BadInputError(f"{len(pictures)} pictures have {len(times_ns)} times")
    kinds = {next((kind for mark, kind in _SIGNATURES.items() if data.startswith(mark)), "") for data in pictures}
    if len(kinds) != 1 or "" in kinds:
        raise BadInputError(f"the pictures of {channel_id!r} are not all JPEG, or all PNG")
    (kind,) = kinds
    entries = np.zeros(len(pictures), FRAME_ENTRY)
    sizes = np.array([len(data) for data in pictures], np.uint64)
    entries["offset"][1:] = np.cumsum(sizes)[:-1]
    entries["size"], entries["time_ns"], entries["flags"] = sizes, times_ns, KEY
    entries["checksum"] = [crc32c(data) for data in pictures]
    index = FrameIndex(kind, b"", entries)
    _check_made(index, int(sizes.sum()), channel_id)
    data = np.frombuffer(b"".join(pictures), np.uint8)
    channel = Channel(channel_id, data, DType.U8, {"encoding": kind, "frame_count": len(pictures)})
    return channel, Block(index.encode())


def index_film(path: PathLike, channel_id: str, *, is_verified: bool = True) -> tuple[RowSource, Block]:
    """A channel of a film as it is, for `compose_wshard`, and the block `frames/…` for it.

    The film is read once. With `is_verified` all of it is decoded, too, and refused where its packets do not
    become the frames that the index tells. Of several streams the first video is indexed; all bytes are kept.
    """
    place = Path(path)
    try:
        size = place.stat().st_size
    except OSError as error:
        raise translate(error, place) from error
    index, told = _read_packets(place)
    _check_made(index, size, str(place))
    rows = RowSource(DType.U8, (), size, lambda start, stop: _read_file(place, start, stop), told, channel_id)
    if is_verified:
        with place.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            found = sum(1 for _ in _Decoder(index, lambda a, b: memoryview(data[a:b])).frames(0, len(index)))
        if found != len(index):
            raise UnsupportedFormatError(f"{place}: {len(index)} frames were told, and {found} are decoded")
    return rows, Block(index.encode())


class FrameReader:
    """Frames of one encoded block, by number. Decoding begins at the key frame that is needed, and reads no more.

    `block` has an index, `frames/` and its name. Bytes are checked frame by frame. For one thread at a time.
    """

    def __init__(self, file: WShardFile, block: str) -> None:
        if frames_block(block) not in file:
            raise NotFoundError(f"the block {block!r} has no frame index")
        self._reader, self._block = file[block], block
        self._whole: memoryview | None = None
        self.index = parse_frames(file[frames_block(block)].raw(), self._reader.entry.size_bytes)

    def __len__(self) -> int:
        """How many frames there are."""
        return len(self.index)

    def encoded(self, frame: int) -> bytes:
        """The bytes of a frame as they are stored: a picture, or a packet of a film."""
        return bytes(_checked(self.index, self.index.entry_of(frame), self._read))

    def frame(self, number: int) -> Array:
        """One frame as RGB: height × width × 3, uint8. Grey pictures too."""
        return next(self.frames(number, number + 1))

    def frames(self, start: int, stop: int) -> Iterator[Array]:
        """Frames `start` up to, not including, `stop`, one after another."""
        if not 0 <= start <= stop <= len(self.index):
            raise BadInputError(f"frames {start}…{stop} are not within the {len(self.index)} of {self._block!r}")
        return _Decoder(self.index, self._read).frames(start, stop)

    def _read(self, start: int, stop: int) -> memoryview:
        entry = self._reader.entry
        if entry.codec is Codec.NONE or entry.is_chunked:
            # An encoded block is bytes, one to a row.
            return self._reader.window(start, stop).data
        # Compressed once more, as one piece: it is decoded once, not for each frame.
        if self._whole is None:
            self._whole = self._reader.raw()
        return self._whole[start:stop]


class _Decoder:
    """Turns entries into pictures. `read` gives bytes of the block."""

    def __init__(self, index: FrameIndex, read: Any) -> None:
        self._index, self._read = index, read

    def frames(self, start: int, stop: int) -> Iterator[Array]:
        if start == stop:
            return
        if self._index.codec in PICTURES:
            for frame in range(start, stop):
                yield _decode_picture(_checked(self._index, self._index.entry_of(frame), self._read))
            return
        yield from self._film_frames(start, stop)

    def _film_frames(self, start: int, stop: int) -> Iterator[Array]:
        """Decodes from the key entry on, as far as is needed."""
        index = self._index
        numbers = {index.entry_of(frame): frame for frame in range(start, stop)}
        waiting: dict[int, Array] = {}
        wanted = start
        with _film_errors():
            for pts, pixels in self._decoded(index.start_of(start, stop - 1)):
                if pts in numbers:
                    waiting[numbers[pts]] = pixels()
                while wanted in waiting:
                    yield waiting.pop(wanted)
                    wanted += 1
                if wanted == stop:
                    return
        raise EpisodeCorruptedError(f"frame {wanted} does not come out of the decoder")

    def _decoded(self, first: int) -> Iterator[tuple[int, Any]]:
        """The number of an entry, and a way to its pixels, in the order in which they are shown."""
        av = _load("av", "video")
        index = self._index
        context = _decoder_of(av, index.codec)
        if index.extradata:
            context.extradata = index.extradata
        context.options = {"max_pixels": str(MAX_IMAGE_PIXELS)}
        # With threads a decoder reads further ahead, and dav1d can hang when it is freed in the middle of a film.
        context.thread_count = 1
        # Packets carry their places in the order of time, so that each frame tells which it is.
        order, places = index.by_time, index.places
        for number in range(first, len(index.entries)):
            packet = av.Packet(bytes(_checked(index, number, self._read)))
            packet.pts = int(places[number])
            packet.is_keyframe = bool(index.entries["flags"][number] & KEY)
            for frame in context.decode(packet):
                yield _entry_at(order, frame.pts), lambda frame=frame: frame.to_ndarray(format="rgb24")
        for frame in context.decode(None):
            yield _entry_at(order, frame.pts), lambda frame=frame: frame.to_ndarray(format="rgb24")


def _entry_at(order: Array, place: int | None) -> int:
    """The entry of a decoded frame; −1 for one that the decoder made up."""
    return int(order[place]) if place is not None and 0 <= place < len(order) else -1


def _decoder_of(av: Any, codec: str) -> Any:
    """A decoder that runs everywhere: FFmpeg's own for AV1 needs a graphics card."""
    # The name comes from a file, and FFmpeg has decoders for all sorts of things.
    for name in _DECODERS.get(codec, (codec,)) if codec in _CODECS else ():
        try:
            return av.CodecContext.create(name, "r")
        except (ValueError, av.FFmpegError):
            continue
    raise UnsupportedFormatError(f"this FFmpeg cannot decode {codec!r}")


def _checked(index: FrameIndex, number: int, read: Any) -> memoryview:
    entry = index.entries[number]
    start, size = int(entry["offset"]), int(entry["size"])
    if size > WSHARD_MAX_FRAME_BYTES:
        raise LimitExceededError(f"a frame has {size} bytes; at most {WSHARD_MAX_FRAME_BYTES} are read")
    data: memoryview = read(start, start + size)
    if crc32c(data) != int(entry["checksum"]):
        raise EpisodeCorruptedError(f"the bytes {start}…{start + size} of an encoded block are not what was indexed")
    return data


def _read_packets(place: Path) -> tuple[FrameIndex, dict[str, Any]]:
    av = _load("av", "video")
    rows: list[tuple[int, int, int, int, int, int]] = []
    with _film_errors(str(place)), place.open("rb") as file:
        options = {"format_whitelist": _FORMATS, "protocol_whitelist": ""}
        with (
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
            av.open(file, "r", options=options, metadata_errors="replace") as container,
        ):
            stream = next((found for found in container.streams.video), None)
            context = stream.codec_context if stream is not None else None
            if stream is None or context is None or context.codec.canonical_name not in _CODECS:
                raise UnsupportedFormatError(f"{place} has no video of which each packet is a frame")
            for packet in container.demux(stream):
                if packet.pts is not None and packet.size:
                    rows.append(_entry(packet, data, str(place)))
                if len(rows) > MAX_VIDEO_FRAMES:
                    raise LimitExceededError(f"{place} has more than {MAX_VIDEO_FRAMES} frames")
            told = {
                "encoding": context.codec.canonical_name,
                "container": container.format.name.partition(",")[0],
                "frame_shape": [stream.height, stream.width, 3],
                "frame_count": sum(1 for row in rows if not row[4] & HIDDEN),
            }
            extradata = bytes(context.extradata or b"")
    return FrameIndex(told["encoding"], extradata, np.array(rows, FRAME_ENTRY)), told


def _entry(packet: Any, data: mmap.mmap, name: str) -> tuple[int, int, int, int, int, int]:
    """One line of the index. The bytes of the packet must lie in the file as they are."""
    content, near = bytes(packet), packet.pos or 0
    at = data.find(content, near, near + len(content) + _SEARCHED_BYTES)
    if at < 0:
        hint = "Write it anew without encoding, such as with `ffmpeg -i IN -c copy OUT.mp4`."
        raise UnsupportedFormatError(f"{name}: a frame does not lie in the file in one piece", hint=hint)
    time_ns = round(packet.pts * Fraction(packet.time_base) * 10**9)
    flags = (KEY if packet.is_keyframe else 0) | (HIDDEN if packet.is_discard else 0)
    return at, len(content), crc32c(content), time_ns, flags, 0


def _check_made(index: FrameIndex, size_bytes: int, name: str) -> None:
    try:
        index.check(size_bytes)
    except EpisodeCorruptedError as error:
        raise BadInputError(f"{name} cannot be indexed: {error.message}") from error


def _decode_picture(data: memoryview) -> Array:
    images = _load("PIL.Image", "image")
    try:
        with images.open(io.BytesIO(data), formats=("JPEG", "PNG")) as image:
            if image.width * image.height > MAX_IMAGE_PIXELS:
                raise LimitExceededError(f"a picture has {image.width} × {image.height} pixels")
            return np.asarray(image.convert("RGB"))
    except WarpError:
        raise
    except Exception as error:
        raise MediaDecodeError(f"a picture cannot be decoded: {error}") from error


@contextmanager
def _film_errors(name: str = "the film") -> Iterator[None]:
    """FFmpeg's errors as ours."""
    av = _load("av", "video")
    try:
        yield
    except (WarpError, GeneratorExit):
        raise
    except (av.FFmpegError, ValueError, OSError) as error:
        raise MediaDecodeError(f"{name} cannot be decoded: {error}") from error


def _read_file(path: Path, start: int, stop: int) -> Array:
    with path.open("rb") as file:
        file.seek(start)
        return np.frombuffer(file.read(stop - start), np.uint8)


def _load(module: str, extra: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        library = module.partition(".")[0]
        raise MissingExtraError(
            f"the library {library!r} is not installed, and these frames need it",
            hint=f"pip install 'warpdata[{extra}]'",
        ) from error
