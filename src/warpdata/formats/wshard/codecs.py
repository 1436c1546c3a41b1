"""Compression of blocks: none, zstd (one frame, or many for time chunks) and lz4 (one raw block).

Decoding never believes a size: the output is bounded before anything is allocated, and must come out
exactly as long as promised. Implements "Compression" of docs/specs/wshard.md.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, TypeAlias

from warpdata.errors import BadInputError, EpisodeCorruptedError, LimitExceededError, UnsupportedFormatError
from warpdata.formats.wshard.libraries import lz4_block, zstd
from warpdata.limits import KIB, WSHARD_MAX_DECODED_BYTES

__all__ = [
    "Codec",
    "Compression",
    "check_distances",
    "check_expansion",
    "compress",
    "decompress",
    "parse_compression",
]

_ZSTD_BLOCK_BYTES = 128 * KIB
_LZ4_MOST_PER_BYTE = 255
_LZ4_LONG, _LZ4_FULL = 15, 255
_ZSTD_LEVELS = (-50, 22)
_LZ4_LEVELS = (0, 16)


class Codec(IntEnum):
    """How a block is compressed, as the header's default numbers it."""

    NONE = 0
    ZSTD = 1
    LZ4 = 2


@dataclass(frozen=True, slots=True)
class Compression:
    """A codec and its level; `None` is the codec's own default."""

    codec: Codec
    level: int | None = None


CompressionName: TypeAlias = "str | tuple[str, int | None] | Compression"


def parse_compression(value: CompressionName) -> Compression:
    """`"zstd"`, `("zstd", 19)`, `"lz4"`, `"none"`."""
    if isinstance(value, Compression):
        return value
    name, level = (value, None) if isinstance(value, str) else value
    try:
        codec = Codec[name.upper()]
    except (KeyError, AttributeError):
        raise BadInputError(f"the compression {name!r} is unknown", hint="Use none, zstd or lz4.") from None
    low, high = {Codec.NONE: (0, 0), Codec.ZSTD: _ZSTD_LEVELS, Codec.LZ4: _LZ4_LEVELS}[codec]
    if level is not None and (not isinstance(level, int) or isinstance(level, bool) or not low <= level <= high):
        raise BadInputError(f"the level {level} is not one of {name}: {low} to {high}")
    return Compression(codec, level)


def compress(data: memoryview, how: Compression) -> bytes:
    """The whole of a block's stored bytes, compressed at once."""
    if how.codec is Codec.ZSTD:
        return bytes(zstd_compressor(how.level).compress(data))
    if how.codec is Codec.LZ4:
        mode: dict[str, Any] = {"mode": "default"}
        if how.level:
            mode = {"mode": "high_compression", "compression": how.level}
        return bytes(lz4_block().compress(data, store_size=False, **mode))
    return bytes(data)


def zstd_compressor(level: int | None) -> Any:
    return zstd().ZstdCompressor(level=3 if level is None else level, write_content_size=True, write_checksum=False)


def check_expansion(codec: Codec, stored_bytes: int, decoded_bytes: int, what: str) -> None:
    """Refuse a promise that no honest stream can keep, before it is believed with an allocation."""
    if decoded_bytes > WSHARD_MAX_DECODED_BYTES:
        raise LimitExceededError(
            f"{what} would take {decoded_bytes} bytes decoded; the most is {WSHARD_MAX_DECODED_BYTES}",
            hint="Store it uncompressed or in time chunks, or split the episode into chunks.",
        )
    # A zstd block yields at most 128 KiB and takes at least four bytes; a byte of lz4 yields at most 255.
    most = _ZSTD_BLOCK_BYTES * (stored_bytes // 4 + 1) if codec is Codec.ZSTD else _LZ4_MOST_PER_BYTE * stored_bytes
    if decoded_bytes > most:
        raise EpisodeCorruptedError(f"{what}: {stored_bytes} bytes cannot hold the {decoded_bytes} that are promised")


def decompress(data: memoryview, codec: Codec, decoded_bytes: int, what: str) -> bytes:
    """Exactly `decoded_bytes` bytes, or an error."""
    check_expansion(codec, data.nbytes, decoded_bytes, what)
    out = _unzstd(data, decoded_bytes, what) if codec is Codec.ZSTD else _unlz4(data, decoded_bytes, what)
    if len(out) != decoded_bytes:
        raise EpisodeCorruptedError(f"{what} decodes to {len(out)} bytes instead of {decoded_bytes}")
    return out


def _unzstd(data: memoryview, decoded_bytes: int, what: str) -> bytes:
    library = zstd()
    try:
        told = library.frame_content_size(data)
        if told not in (-1, decoded_bytes):
            raise EpisodeCorruptedError(f"{what}: its zstd frame promises {told} bytes, its entry {decoded_bytes}")
        if library.get_frame_parameters(data).dict_id:
            raise UnsupportedFormatError(f"{what} needs a zstd dictionary, which episode files do not have")
        return _one_frame(library, data, decoded_bytes)
    except (library.ZstdError, ValueError, MemoryError) as error:
        if isinstance(error, EpisodeCorruptedError):
            raise
        raise EpisodeCorruptedError(f"{what} is not one zstd frame: {error}") from error


class _Decoder(threading.local):
    """One for each thread: to set one up takes longer than to decode a small chunk."""

    zstd: Any = None


_DECODER = _Decoder()


def _one_frame(library: Any, data: memoryview, decoded_bytes: int) -> bytes:
    decoder = _DECODER.zstd
    if decoder is None:
        decoder = _DECODER.zstd = library.ZstdDecompressor()
    # With an unknown content size and no bound, the library would refuse; one byte is a bound too.
    return bytes(decoder.decompress(data, max_output_size=max(1, decoded_bytes), allow_extra_data=False))


def _unlz4(data: memoryview, decoded_bytes: int, what: str) -> bytes:
    library = lz4_block()
    try:
        return bytes(library.decompress(data, uncompressed_size=decoded_bytes))
    except (library.LZ4BlockError, ValueError, MemoryError) as error:
        raise EpisodeCorruptedError(f"{what} is not a raw lz4 block: {error}") from error


def check_distances(data: memoryview, what: str) -> None:
    """Refuse an lz4 block with a match that copies from itself, which the library lets pass.

    Part of what it then gives is whatever lay in memory before. A checksum would notice; this is for blocks
    that have none, as it goes through the block step by step. The block must have been decoded already.
    """
    raw = bytes(data)
    at = 0 if b"\0\0" in raw else len(raw)
    while at < len(raw):
        token = raw[at]
        at += 1
        literals = token >> 4
        if literals == _LZ4_LONG:
            more, at = _length(raw, at)
            literals += more
        at += literals
        if at >= len(raw):
            return
        if raw[at] == raw[at + 1] == 0:
            raise EpisodeCorruptedError(f"{what} is not a raw lz4 block: a match 0 bytes back at byte {at}")
        at += 2
        if token & _LZ4_LONG == _LZ4_LONG:
            _, at = _length(raw, at)


def _length(raw: bytes, at: int) -> tuple[int, int]:
    """A long length, and where it ends: bytes of 255 go on, any other is the last."""
    start = at
    while raw[at] == _LZ4_FULL:
        at += 1
    return _LZ4_FULL * (at - start) + raw[at], at + 1
