"""What the bytes of a sound say about its length, where libsndfile is content with less.

It takes a WAV whose end is missing for a shorter one, and guesses how long an MP3 without a length tag
is. Both give a part of the sound without a word. No samples are decoded here.
"""

from __future__ import annotations

import io
from typing import Protocol

from warpdata.errors import LimitExceededError
from warpdata.limits import MAX_SOUND_CHUNKS, MAX_UNTAGGED_MP3_BYTES

__all__ = ["ByteFile", "count_mp3_frames", "missing_sample_bytes"]

_UNSAID_SIZE = 0x7FFF_0000
"""From here on, a chunk size means that whoever wrote it into a pipe did not know it."""

_SAMPLE_CHUNKS = (b"data", b"SSND", b"BODY")
_LENGTH_TAGS = (b"Xing", b"Info", b"VBRI")
_MP3_KBITS = {
    True: (32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320),
    False: (8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
}
"""Bit rates of layer III by their number in the header, from 1: of MPEG 1, and of the lower rates."""
_MP3_RATES = {3: (44100, 48000, 32000), 2: (22050, 24000, 16000), 0: (11025, 12000, 8000)}


class ByteFile(Protocol):
    """The part of a binary file that is needed here."""

    def read(self, size: int = -1, /) -> bytes: ...

    def seek(self, offset: int, whence: int = 0, /) -> int: ...

    def tell(self) -> int: ...


def missing_sample_bytes(file: ByteFile) -> tuple[int, int] | None:
    """Promised and present bytes of samples, where a WAV or AIFF promises more than it has."""
    size = file.seek(0, io.SEEK_END)
    file.seek(0)
    magic = file.read(12)[:4]
    if magic not in (b"RIFF", b"FORM"):
        return None
    at = 12
    for _ in range(MAX_SOUND_CHUNKS):
        file.seek(at)
        head = file.read(8)
        if len(head) < 8:
            break
        promised = int.from_bytes(head[4:], "little" if magic == b"RIFF" else "big")
        if head[:4] in _SAMPLE_CHUNKS:
            present = size - at - 8
            return (promised, present) if present < promised < _UNSAID_SIZE else None
        at += 8 + promised + promised % 2
    return None


def count_mp3_frames(file: ByteFile, name: str) -> int | None:
    """Samples per channel of an MP3 without a length tag, counted over all its packets.

    `None` where a tag says the length, which is then right to the sample.
    """
    file.seek(_skip_id3(file))
    data = file.read(4096)
    if any(tag in data for tag in _LENGTH_TAGS):
        return None
    data += file.read(MAX_UNTAGGED_MP3_BYTES)
    if len(data) > MAX_UNTAGGED_MP3_BYTES:
        raise LimitExceededError(
            f"{name}: an MP3 without a length tag is read whole to count its frames, and this one "
            f"has more than {MAX_UNTAGGED_MP3_BYTES} bytes"
        )
    at = frames = 0
    while at + 4 <= len(data):
        packet = _mp3_packet(data[at : at + 4])
        if packet is None:
            at = data.find(b"\xff", at + 1)
            if at < 0:
                break
            continue
        size, samples = packet
        frames += samples
        at += size
    return frames


def _skip_id3(file: ByteFile) -> int:
    """Where the packets begin: after tags, which say their size in bytes of seven bits."""
    at = 0
    for _ in range(MAX_SOUND_CHUNKS):
        file.seek(at)
        head = file.read(10)
        if head[:3] != b"ID3" or len(head) < 10:
            break
        at += 10 + sum((byte & 0x7F) << shift for byte, shift in zip(head[6:], (21, 14, 7, 0), strict=True))
    return at


def _mp3_packet(head: bytes) -> tuple[int, int] | None:
    """Size in bytes and samples per channel of the packet with this header; `None` if it is none."""
    bits = int.from_bytes(head, "big")
    version, layer, kbits, rate = bits >> 19 & 3, bits >> 17 & 3, bits >> 12 & 15, bits >> 10 & 3
    if bits >> 21 != 0x7FF or version == 1 or layer != 1 or kbits in (0, 15) or rate == 3:
        return None
    full = version == 3
    samples = 1152 if full else 576
    size = samples // 8 * _MP3_KBITS[full][kbits - 1] * 1000 // _MP3_RATES[version][rate] + (bits >> 9 & 1)
    return size, samples
