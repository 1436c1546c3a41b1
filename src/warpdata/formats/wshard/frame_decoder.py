"""Decoding of single frames of an encoded block, from the packets that they need and no others.

The caller reads and verifies the packets. Implements "Reading frames" of docs/specs/wshard.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from warpdata.errors import CorruptError, LimitExceededError, MediaDecodeError, UnsupportedError
from warpdata.formats.media import DecoderSettings, check_pixels, decode_packets, decode_rgb
from warpdata.formats.wshard.codecs import crc32c
from warpdata.formats.wshard.dtypes import Array, np
from warpdata.formats.wshard.frame_index import IMAGE_CODECS, KEY, FrameIndex
from warpdata.limits import MAX_IMAGE_PIXELS, WSHARD_MAX_FRAME_BYTES

__all__ = ["FrameFormat", "ReadPackets", "decode_frames", "entry_extent", "verify_packet"]

ReadPackets: TypeAlias = Callable[[int, int], Iterator[memoryview]]
"""Yields the verified bytes of the entries from the first number up to, not including, the second."""


@dataclass(frozen=True, slots=True)
class FrameFormat:
    """The size of decoded frames. Sizes are (height, width).

    `size` is the declared one, which some decoders of video need. `resize` scales frames.
    """

    size: tuple[int, int] | None = None
    resize: tuple[int, int] | None = None
    max_pixels: int = MAX_IMAGE_PIXELS


def decode_frames(
    index: FrameIndex, read: ReadPackets, frames: Sequence[int], frame_format: FrameFormat
) -> Iterator[tuple[int, Array]]:
    """Yield these frames, which must ascend, as RGB: height × width × 3, uint8.

    Decoding begins at the first key frame that they need, and ends with the last packet that they need.
    """
    if not len(frames):
        return
    if index.codec in IMAGE_CODECS:
        yield from _decode_images(index, read, frames, frame_format)
        return
    first, last = index.entry_span(np.asarray(frames))
    # Packets carry their position in the order of time as pts, so that each decoded frame identifies its entry.
    order = index.by_time
    numbers = {index.entry_of(frame): frame for frame in frames}
    decoded: dict[int, Array] = {}
    wanted = iter(frames)
    current = next(wanted, None)
    settings = DecoderSettings(index.codec, index.extradata, frame_format.size, frame_format.max_pixels)
    for found in decode_packets(settings, _packets(index, read, first, last)):
        # A decoder may invent frames, without a valid position.
        is_known = found.pts is not None and 0 <= found.pts < len(order)
        number = numbers.get(int(order[found.pts])) if is_known else None
        if number is not None:
            check_pixels((found.size[1], found.size[0]), f"frame {number}", frame_format.max_pixels)
            decoded[number] = found.rgb(frame_format.resize)
        while current is not None and current in decoded:
            yield current, decoded.pop(current)
            current = next(wanted, None)
        if current is None:
            return
    raise MediaDecodeError(f"the decoder does not return frame {current}")


def entry_extent(index: FrameIndex, number: int) -> tuple[int, int]:
    """Return the byte range of an entry within the block; `LimitExceededError` if it is too large to be read."""
    entry = index.entries[number]
    start, size = int(entry["offset"]), int(entry["size"])
    if size > WSHARD_MAX_FRAME_BYTES:
        raise LimitExceededError(f"a frame has {size} bytes; the most is {WSHARD_MAX_FRAME_BYTES}")
    return start, start + size


def verify_packet(index: FrameIndex, number: int, data: memoryview) -> memoryview:
    """Return the bytes of an entry if they match its checksum."""
    if crc32c(data) != int(index.entries["checksum"][number]):
        start, end = entry_extent(index, number)
        raise CorruptError(f"the bytes {start}…{end} of an encoded block fail their checksum")
    return data


def _decode_images(
    index: FrameIndex, read: ReadPackets, frames: Sequence[int], frame_format: FrameFormat
) -> Iterator[tuple[int, Array]]:
    for frame in frames:
        entry = index.entry_of(frame)
        (data,) = read(entry, entry + 1)
        try:
            pixels = decode_rgb(
                data,
                f"frame {frame}",
                ("JPEG", "PNG"),
                resize=frame_format.resize,
                max_pixels=frame_format.max_pixels,
            )
        except UnsupportedError as error:
            raise MediaDecodeError(error.message) from error
        yield frame, pixels


def _packets(index: FrameIndex, read: ReadPackets, first: int, last: int) -> Iterator[tuple[int, bool, bytes]]:
    places, flags = index.places, index.entries["flags"]
    for number, data in enumerate(read(first, last), first):
        yield int(places[number]), bool(flags[number] & KEY), bytes(data)
