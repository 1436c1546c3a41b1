"""Headers of JPEG and PNG images, without Pillow, so that publishing images needs no decoder."""

from __future__ import annotations

import struct
from dataclasses import dataclass

__all__ = ["JpegHeader", "read_image_size", "read_jpeg_header"]

_PNG = b"\x89PNG\r\n\x1a\n"
_JPEG = b"\xff\xd8"
_START_OF_FRAME = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_WITHOUT_LENGTH = frozenset({0x01, *range(0xD0, 0xD9)})


@dataclass(frozen=True, slots=True)
class JpegHeader:
    """The frame header of a JPEG. `process` is its marker: 0xC0 baseline, 0xC1 extended, 0xC2 progressive, …"""

    process: int
    precision_bits: int
    height: int
    width: int
    components: int


def read_image_size(data: bytes | memoryview) -> tuple[int, int] | None:
    """Return height and width; None if the header is damaged, or of another format."""
    if bytes(data[:8]) == _PNG:
        if len(data) < 24 or bytes(data[12:16]) != b"IHDR":
            return None
        width, height = struct.unpack_from(">II", data, 16)
        return height, width
    header = read_jpeg_header(data)
    return None if header is None else (header.height, header.width)


def read_jpeg_header(data: bytes | memoryview) -> JpegHeader | None:
    """Walk over the segments to the first frame header. None if the bytes are damaged, or no JPEG."""
    if bytes(data[:2]) != _JPEG:
        return None
    at = 2
    while at + 10 <= len(data) and data[at] == 0xFF:
        marker = data[at + 1]
        if marker in _START_OF_FRAME:
            precision, height, width, components = struct.unpack_from(">BHHB", data, at + 4)
            return JpegHeader(marker, precision, height, width, components)
        if marker == 0xFF:  # padding before a marker
            at += 1
        elif marker in _WITHOUT_LENGTH:
            at += 2
        else:
            at += 2 + int(struct.unpack_from(">H", data, at + 2)[0])
    return None
