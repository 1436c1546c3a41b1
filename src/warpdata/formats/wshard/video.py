"""Frames of encoded blocks: indexing of video and images without re-encoding, and decoding of single frames.

Encoded bytes are stored unchanged; nothing here encodes. Decoding is in `formats.media` (extras `video`
and `image`). Implements "Reading frames" of docs/specs/wshard.md.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from warpdata.errors import (
    BadInputError,
    CorruptError,
    LimitExceededError,
    MediaDecodeError,
    NotFoundError,
    UnsupportedError,
)
from warpdata.formats.media import VideoPacket, decode_packets, decode_rgb, open_packets
from warpdata.formats.wshard.codecs import Codec, crc32c
from warpdata.formats.wshard.dtypes import Array, DType, np
from warpdata.formats.wshard.frame_index import (
    FRAME_ENTRY,
    HIDDEN,
    IMAGE_CODECS,
    KEY,
    FrameIndex,
    frames_block,
    parse_frames,
)
from warpdata.formats.wshard.model import Block, Channel
from warpdata.formats.wshard.reader import WShardFile
from warpdata.formats.wshard.save import RowSource
from warpdata.formats.wshard.source import PathLike
from warpdata.limits import MAX_VIDEO_FRAMES, WSHARD_MAX_FRAME_BYTES
from warpdata.storage import explain_os_error

__all__ = ["FrameReader", "index_images", "index_video"]

_SEARCH_BYTES = 4096
"""A container may store a packet this many bytes after the offset that FFmpeg reports."""
_SIGNATURES = {b"\xff\xd8\xff": "jpeg", b"\x89PNG\r\n\x1a\n": "png"}
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
            found = sum(1 for _ in _decode_frames(index, lambda a, b: memoryview(data[a:b]), 0, len(index)))
        if found != len(index):
            raise UnsupportedError(f"{file_path} has {len(index)} packets, but decodes to {found} frames")
    return rows, Block(index.encode())


class FrameReader:
    """Frames of one encoded block, by number. Decoding starts at the required key frame, and reads no more.

    The block must have an index, in the block `frames/` plus its name. Each frame has its own checksum. For one
    thread at a time.
    """

    def __init__(self, file: WShardFile, block: str) -> None:
        if frames_block(block) not in file:
            raise NotFoundError(f"the block {block!r} has no frame index")
        self._reader, self._block = file[block], block
        self._whole: memoryview | None = None
        self.index = parse_frames(file[frames_block(block)].raw(), self._reader.entry.size_bytes)

    def __len__(self) -> int:
        return len(self.index)

    def encoded(self, frame: int) -> bytes:
        """Return the stored bytes of a frame: an image, or a packet of a video."""
        return bytes(_read_entry(self.index, self.index.entry_of(frame), self._read))

    def frame(self, number: int) -> Array:
        """Return one frame as RGB: height × width × 3, uint8; grey images too."""
        return next(self.frames(number, number + 1))

    def frames(self, start: int, stop: int) -> Iterator[Array]:
        """Yield frames `start` up to, not including, `stop`."""
        if not 0 <= start <= stop <= len(self.index):
            raise BadInputError(f"frames {start}…{stop} are not within the {len(self.index)} of {self._block!r}")
        return _decode_frames(self.index, self._read, start, stop)

    def _read(self, start: int, stop: int) -> memoryview:
        entry = self._reader.entry
        if entry.codec is Codec.NONE or entry.is_chunked:
            # The rows of an encoded block are bytes.
            return self._reader.window(start, stop).data
        # The block is compressed again as a whole, so it is decompressed once for all frames.
        if self._whole is None:
            self._whole = self._reader.raw()
        return self._whole[start:stop]


def _decode_frames(index: FrameIndex, read: _ReadBytes, start: int, stop: int) -> Iterator[Array]:
    if start == stop:
        return
    if index.codec in IMAGE_CODECS:
        for frame in range(start, stop):
            yield _decode_image(_read_entry(index, index.entry_of(frame), read))
        return
    # Packets carry their position in the order of time as pts, so that each decoded frame identifies its entry.
    order = index.by_time
    numbers = {index.entry_of(frame): frame for frame in range(start, stop)}
    decoded: dict[int, Array] = {}
    wanted = start
    packets = _packets(index, read, index.start_of(start, stop - 1))
    for position, pixels in decode_packets(index.codec, index.extradata, packets):
        # A decoder may invent frames, without a valid position.
        is_known = position is not None and 0 <= position < len(order)
        number = numbers.get(int(order[position])) if is_known else None
        if number is not None:
            decoded[number] = pixels()
        while wanted in decoded:
            yield decoded.pop(wanted)
            wanted += 1
        if wanted == stop:
            return
    raise CorruptError(f"the decoder does not return frame {wanted}")


def _packets(index: FrameIndex, read: _ReadBytes, first: int) -> Iterator[tuple[int, bool, bytes]]:
    places = index.places
    for number in range(first, len(index.entries)):
        is_key = bool(index.entries["flags"][number] & KEY)
        yield int(places[number]), is_key, bytes(_read_entry(index, number, read))


def _decode_image(data: memoryview) -> Array:
    try:
        return decode_rgb(data, "an image", ("JPEG", "PNG"))
    except UnsupportedError as error:
        raise MediaDecodeError(error.message) from error


def _read_entry(index: FrameIndex, number: int, read: _ReadBytes) -> memoryview:
    entry = index.entries[number]
    start, size = int(entry["offset"]), int(entry["size"])
    if size > WSHARD_MAX_FRAME_BYTES:
        raise LimitExceededError(f"a frame has {size} bytes; the most is {WSHARD_MAX_FRAME_BYTES}")
    data = read(start, start + size)
    if crc32c(data) != int(entry["checksum"]):
        raise CorruptError(f"the bytes {start}…{start + size} of an encoded block fail their checksum")
    return data


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
