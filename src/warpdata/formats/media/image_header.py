"""The size of a JPEG or PNG image from its first bytes, without Pillow, so that publishing images needs no decoder."""

from __future__ import annotations

import struct

__all__ = ["read_image_size"]

_PNG = b"\x89PNG\r\n\x1a\n"
_JPEG = b"\xff\xd8"
_START_OF_FRAME = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_WITHOUT_LENGTH = frozenset({0x01, *range(0xD0, 0xD9)})


def read_image_size(data: bytes | memoryview) -> tuple[int, int] | None:
    """Return height and width; None if the header is damaged, or of another format."""
    if bytes(data[:8]) == _PNG:
        if len(data) < 24 or bytes(data[12:16]) != b"IHDR":
            return None
        width, height = struct.unpack_from(">II", data, 16)
        return height, width
    return _read_jpeg_size(data) if bytes(data[:2]) == _JPEG else None


def _read_jpeg_size(data: bytes | memoryview) -> tuple[int, int] | None:
    """Walk over the segments to the first frame header."""
    at = 2
    while at + 9 <= len(data) and data[at] == 0xFF:
        marker = data[at + 1]
        if marker in _START_OF_FRAME:
            height, width = struct.unpack_from(">HH", data, at + 5)
            return height, width
        if marker == 0xFF:  # padding before a marker
            at += 1
        elif marker in _WITHOUT_LENGTH:
            at += 2
        else:
            at += 2 + int(struct.unpack_from(">H", data, at + 2)[0])
    return None
