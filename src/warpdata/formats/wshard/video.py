"""Frames of encoded blocks: indexing of video and images without re-encoding, and decoding of single frames.

Encoded bytes are stored unchanged; nothing here encodes. Decoding is in `formats.media` (extras `video`
and `image`). Implements "Reading frames" of docs/specs/wshard.md.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from pathlib import Path
from typing import Any

from warpdata.errors import BadInputError, CorruptError, LimitExceededError, NotFoundError, UnsupportedError
from warpdata.formats.media import VideoPacket, open_packets, read_image_size
from warpdata.formats.wshard.canonical_json import is_count
from warpdata.formats.wshard.codecs import Codec, crc32c
from warpdata.formats.wshard.dtypes import Array, DType, np
from warpdata.formats.wshard.frame_decoder import FrameFormat, decode_frames, entry_extent, verify_packet
from warpdata.formats.wshard.frame_index import (
    FRAME_ENTRY,
    HIDDEN,
    IMAGE_CODECS,
    KEY,
    FrameIndex,
    frames_block,
    parse_frames,
)
from warpdata.formats.wshard.metadata import EpisodeInfo
from warpdata.formats.wshard.model import Block, Channel
from warpdata.formats.wshard.reader import WShardFile
from warpdata.formats.wshard.save import RowSource
from warpdata.formats.wshard.source import PathLike
from warpdata.limits import MAX_IMAGE_PIXELS, MAX_VIDEO_FRAMES
from warpdata.primitives.cached_property import cached_property
from warpdata.primitives.reprs import short_repr
from warpdata.storage import explain_os_error

__all__ = ["FrameReader", "index_images", "index_video"]

_SEARCH_BYTES = 4096
"""A container may store a packet this many bytes after the offset that FFmpeg reports."""
_SIGNATURES = {b"\xff\xd8\xff": "jpeg", b"\x89PNG\r\n\x1a\n": "png"}
_MAX_SIDE = 2**31 - 1
_ReadBytes = Callable[[int, int], memoryview]


def index_images(images: Sequence[bytes], times_ns: Sequence[int], channel_id: str) -> tuple[Channel, Block]:
    """Return a channel of JPEG or PNG files, stored unchanged one after another, and its `frames/…` block.

    Put the channel into the observations, and the block into `extra` under `frames_block("signal/" + id)`.
    """
    if len(images) != len(times_ns) or not images:
        raise BadInputError(f"there are {len(images)} images and {len(times_ns)} times")
    codecs = {next((codec for mark, codec in _SIGNATURES.items() if data.startswith(mark)), "") for data in images}
    if len(codecs) != 1 or "" in codecs:
        raise BadInputError(f"the images of {channel_id!r} are not all JPEG, or all PNG")
    (codec,) = codecs
    entries = np.zeros(len(images), FRAME_ENTRY)
    sizes = np.array([len(data) for data in images], np.uint64)
    entries["offset"][1:] = np.cumsum(sizes)[:-1]
    entries["size"], entries["time_ns"], entries["flags"] = sizes, times_ns, KEY
    entries["checksum"] = [crc32c(data) for data in images]
    index = FrameIndex(codec, b"", entries)
    _check_index(index, int(sizes.sum()), channel_id)
    data = np.frombuffer(b"".join(images), np.uint8)
    channel = Channel(channel_id, data, DType.U8, {"encoding": codec, "frame_count": len(images)})
    return channel, Block(index.encode())


def index_video(path: PathLike, channel_id: str, *, is_verified: bool = True) -> tuple[RowSource, Block]:
    """Return a channel of a video file, stored unchanged, for `compose_wshard`, and its `frames/…` block.

    Reads the file once. With `is_verified`, decodes all of it too, and refuses a video whose packets do not become
    the indexed frames. Of several streams, the first video is indexed; all bytes are stored.
    """
    file_path = Path(path)
    try:
        size = file_path.stat().st_size
    except OSError as error:
        raise explain_os_error(error, file_path) from error
    index, attributes = _read_index(file_path)
    _check_index(index, size, str(file_path))
    rows = RowSource(DType.U8, (), size, lambda start, stop: _read_file(file_path, start, stop), attributes, channel_id)
    if is_verified:
        with file_path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            shape = attributes["frame_shape"]
            found = sum(1 for _ in _decode_all(index, data, FrameFormat((shape[0], shape[1]))))
        if found != len(index):
            raise UnsupportedError(f"{file_path} has {len(index)} packets, but decodes to {found} frames")
    return rows, Block(index.encode())


class FrameReader:
    """Frames of one encoded block, by number. Decoding starts at the required key frame, and reads no more.

    The block must have an index, in the block `frames/` plus its name; a caller that has parsed it passes it. Each
    frame has its own checksum. For one thread at a time.
    """

    def __init__(self, file: WShardFile, block: str, index: FrameIndex | None = None) -> None:
        if frames_block(block) not in file:
            raise NotFoundError(f"the block {block!r} has no frame index")
        self._reader, self._block = file[block], block
        self._whole: memoryview | None = None
        self._read: _ReadBytes = self._read_block
        self.index = index or parse_frames(file[frames_block(block)].raw(), self._reader.entry.size_bytes)
        self._declared_size = _frame_size(file.info, block)

    def __repr__(self) -> str:
        return short_repr("FrameReader", self._block, frames=len(self.index))

    def __len__(self) -> int:
        return len(self.index)

    @cached_property
    def size(self) -> tuple[int, int] | None:
        """Height and width of a frame: as declared, or of the first image. None if neither is known."""
        if self.index.codec in IMAGE_CODECS and len(self):
            return read_image_size(self.encoded(0)) or self._declared_size
        return self._declared_size

    @property
    def fps(self) -> float | None:
        """Mean number of frames per second; None for a single frame."""
        times = self.index.times_ns
        return None if len(times) < 2 else float((len(times) - 1) / ((times[-1] - times[0]) / 1e9))

    def encoded(self, frame: int) -> bytes:
        """Return the stored bytes of a frame: an image, or a packet of a video."""
        entry = self.index.entry_of(frame)
        return bytes(next(self._packets(entry, entry + 1)))

    def frame(self, number: int) -> Array:
        """Return one frame as RGB: height × width × 3, uint8; grey images too."""
        return next(self.frames(number, number + 1))

    def frames(self, start: int, stop: int) -> Iterator[Array]:
        """Yield frames `start` up to, not including, `stop`."""
        if not 0 <= start <= stop <= len(self.index):
            raise BadInputError(f"frames {start}…{stop} are not within the {len(self.index)} of {self._block!r}")
        return (pixels for _, pixels in self.select(range(start, stop)))

    def select(
        self, frames: Sequence[int], *, resize: tuple[int, int] | None = None, max_pixels: int = MAX_IMAGE_PIXELS
    ) -> Iterator[tuple[int, Array]]:
        """Yield frames, given in ascending order, with their numbers. `resize` scales them to (height, width)."""
        frame_format = FrameFormat(self._declared_size, resize, max_pixels)
        return decode_frames(self.index, self._packets, frames, frame_format)

    def extents(self, frames: Sequence[int]) -> list[tuple[int, int]]:
        """Return the byte ranges within the block that `select` reads for these frames, in this order."""
        if not len(frames):
            return []
        if self.index.codec in IMAGE_CODECS:
            return [self.index.extent(frame) for frame in frames]
        return [entry_extent(self.index, number) for number in range(*self.index.entry_span(np.asarray(frames)))]

    def with_bytes(self, read: Callable[[int, int], memoryview]) -> FrameReader:
        """Return the same frames, with the bytes of the block taken from `read(start, stop)`, such as a buffer."""
        made = copy(self)
        made._read = read  # noqa: SLF001 - of the same class
        return made

    def _packets(self, first: int, last: int) -> Iterator[memoryview]:
        for number in range(first, last):
            yield verify_packet(self.index, number, self._read(*entry_extent(self.index, number)))

    def _read_block(self, start: int, stop: int) -> memoryview:
        entry = self._reader.entry
        if entry.codec is Codec.NONE or entry.is_chunked:
            # The rows of an encoded block are bytes.
            return self._reader.window(start, stop).data
        # The block is compressed again as a whole, so it is decompressed once for all frames.
        if self._whole is None:
            self._whole = self._reader.raw()
        return self._whole[start:stop]


def _frame_size(info: EpisodeInfo | None, block: str) -> tuple[int, int] | None:
    """Return the height and width that an encoded channel declares, as `frame_shape` or `shape`; None without one."""
    spec = info.channels.get(block) if info is not None else None
    for shape in (spec.attributes.get("frame_shape"), list(spec.shape)) if spec is not None else ():
        if isinstance(shape, list) and len(shape) == 3 and all(is_count(side, _MAX_SIDE) and side for side in shape):
            return int(shape[0]), int(shape[1])
    return None


def _decode_all(index: FrameIndex, data: mmap.mmap, frame_format: FrameFormat) -> Iterator[tuple[int, Array]]:
    def read(first: int, last: int) -> Iterator[memoryview]:
        for number in range(first, last):
            start, end = entry_extent(index, number)
            yield verify_packet(index, number, memoryview(data[start:end]))

    return decode_frames(index, read, range(len(index)), frame_format)


def _read_index(path: Path) -> tuple[FrameIndex, dict[str, Any]]:
    """Build the index from the packets of a video, and the attributes of its channel."""
    rows: list[tuple[int, int, int, int, int, int]] = []
    with open_packets(path) as video:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            for packet in video.packets():
                rows.append(_make_entry(packet, data, path))
                if len(rows) > MAX_VIDEO_FRAMES:
                    raise LimitExceededError(f"{path} has more than {MAX_VIDEO_FRAMES} frames")
        attributes = {
            "encoding": video.codec,
            "container": video.container,
            "frame_shape": [video.height, video.width, 3],
            "frame_count": sum(1 for row in rows if not row[4] & HIDDEN),
        }
        return FrameIndex(video.codec, video.extradata, np.array(rows, FRAME_ENTRY)), attributes


def _make_entry(packet: VideoPacket, data: mmap.mmap, path: Path) -> tuple[int, int, int, int, int, int]:
    """Return one row of the index. The file must hold the bytes of the packet contiguously."""
    at = data.find(packet.data, packet.offset, packet.offset + len(packet.data) + _SEARCH_BYTES)
    if at < 0:
        hint = "Rewrite it without encoding, for example with `ffmpeg -i IN -c copy OUT.mp4`."
        raise UnsupportedError(f"{path} does not store a frame contiguously", hint=hint)
    flags = (KEY if packet.is_key else 0) | (HIDDEN if packet.is_hidden else 0)
    return at, len(packet.data), crc32c(packet.data), packet.time_ns, flags, 0


def _check_index(index: FrameIndex, size_bytes: int, name: str) -> None:
    try:
        index.check(size_bytes)
    except CorruptError as error:
        raise BadInputError(f"{name} cannot be indexed: {error.message}") from error


def _read_file(path: Path, start: int, stop: int) -> Array:
    with path.open("rb") as file:
        file.seek(start)
        return np.frombuffer(file.read(stop - start), np.uint8)
