"""Compression of blocks and checksums: none, zstd (one frame, or many for time chunks) and lz4 (one raw block).

Decoding never trusts a size: the output is bounded before allocation and must have exactly the promised length.
Codecs and hash libraries are imported on first use, so that uncompressed files need no codec. Implements
"Compression" of docs/specs/wshard.md.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, TypeAlias

from warpdata.errors import BadInputError, CorruptError, LimitExceededError, UnsupportedError
from warpdata.limits import KIB, WSHARD_MAX_DECODED_BYTES
from warpdata.primitives.extras import require

__all__ = [
    "Codec",
    "Compression",
    "CompressionName",
    "check_expansion",
    "check_match_offsets",
    "compress",
    "crc32c",
    "decompress",
    "make_zstd_compressor",
    "parse_compression",
    "xxh64",
]

_ZSTD_BLOCK_BYTES = 128 * KIB
_LZ4_MAX_EXPANSION = 255
_LZ4_LONG, _LZ4_FULL = 15, 255
_ZSTD_LEVELS = (-50, 22)
_LZ4_LEVELS = (0, 16)
_PURPOSE = "the WShard format"


class Codec(IntEnum):
    """The compression of a block, numbered like the default in the header."""

    NONE = 0
    ZSTD = 1
    LZ4 = 2


@dataclass(frozen=True, slots=True)
class Compression:
    """A codec and its level; None is the codec's own default."""

    codec: Codec
    level: int | None = None


CompressionName: TypeAlias = "str | tuple[str, int | None] | Compression"


def parse_compression(value: CompressionName) -> Compression:
    """Parse `"zstd"`, `("zstd", 19)`, `"lz4"` or `"none"`."""
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


def compress(data: memoryview, compression: Compression) -> bytes:
    """Compress the stored bytes of a whole block at once."""
    if compression.codec is Codec.ZSTD:
        return bytes(make_zstd_compressor(compression.level).compress(data))
    if compression.codec is Codec.LZ4:
        mode: dict[str, Any] = {"mode": "default"}
        if compression.level:
            mode = {"mode": "high_compression", "compression": compression.level}
        return bytes(_lz4().compress(data, store_size=False, **mode))
    return bytes(data)


def make_zstd_compressor(level: int | None) -> Any:
    return _zstd().ZstdCompressor(level=3 if level is None else level, write_content_size=True, write_checksum=False)


def check_expansion(codec: Codec, stored_bytes: int, decoded_bytes: int, what: str) -> None:
    """Reject a decoded size that no valid stream can reach, before it is allocated."""
    if decoded_bytes > WSHARD_MAX_DECODED_BYTES:
        raise LimitExceededError(
            f"{what} has {decoded_bytes} bytes decoded; the most is {WSHARD_MAX_DECODED_BYTES}",
            hint="Store it uncompressed or in time chunks, or split the episode into chunks.",
        )
    # A zstd block yields at most 128 KiB from at least four bytes; a byte of lz4 yields at most 255.
    most = _ZSTD_BLOCK_BYTES * (stored_bytes // 4 + 1) if codec is Codec.ZSTD else _LZ4_MAX_EXPANSION * stored_bytes
    if decoded_bytes > most:
        raise CorruptError(f"{what}: {stored_bytes} bytes cannot hold the promised {decoded_bytes}")


def decompress(data: memoryview, codec: Codec, decoded_bytes: int, what: str) -> bytes:
    """Return exactly `decoded_bytes` bytes, or raise `CorruptError`."""
    check_expansion(codec, data.nbytes, decoded_bytes, what)
    decode = _decompress_zstd if codec is Codec.ZSTD else _decompress_lz4
    out = decode(data, decoded_bytes, what)
    if len(out) != decoded_bytes:
        raise CorruptError(f"{what} decodes to {len(out)} bytes instead of {decoded_bytes}")
    return out


def _decompress_zstd(data: memoryview, decoded_bytes: int, what: str) -> bytes:
    library = _zstd()
    try:
        content_bytes = library.frame_content_size(data)
        if content_bytes not in (-1, decoded_bytes):
            raise CorruptError(f"{what}: its zstd frame promises {content_bytes} bytes, its entry {decoded_bytes}")
        if library.get_frame_parameters(data).dict_id:
            raise UnsupportedError(f"{what} needs a zstd dictionary, and episode files have none")
        return _decompress_frame(library, data, decoded_bytes)
    except (library.ZstdError, ValueError, MemoryError) as error:
        if isinstance(error, CorruptError):
            raise
        raise CorruptError(f"{what} is not one zstd frame: {error}") from error


class _Decoder(threading.local):
    """A decoder for each thread: creating one takes longer than decoding a small chunk."""

    zstd: Any = None


_DECODER = _Decoder()


def _decompress_frame(library: Any, data: memoryview, decoded_bytes: int) -> bytes:
    decoder = _DECODER.zstd
    if decoder is None:
        decoder = _DECODER.zstd = library.ZstdDecompressor()
    # The library rejects an unknown content size without a bound, and 0 means no bound.
    return bytes(decoder.decompress(data, max_output_size=max(1, decoded_bytes), allow_extra_data=False))


def _decompress_lz4(data: memoryview, decoded_bytes: int, what: str) -> bytes:
    library = _lz4()
    try:
        return bytes(library.decompress(data, uncompressed_size=decoded_bytes))
    except (library.LZ4BlockError, ValueError, MemoryError) as error:
        raise CorruptError(f"{what} is not a raw lz4 block: {error}") from error


def check_match_offsets(data: memoryview, what: str) -> None:
    """Reject an lz4 block with a match of offset 0, which the library accepts.

    The library then returns uninitialized memory. A checksum detects it, so this walk through the sequences is only
    for blocks without one. The block must have been decoded already.
    """
    raw = bytes(data)
    at = 0 if b"\0\0" in raw else len(raw)
    while at < len(raw):
        token = raw[at]
        at += 1
        literals = token >> 4
        if literals == _LZ4_LONG:
            more, at = _read_length(raw, at)
            literals += more
        at += literals
        if at >= len(raw):
            return
        if raw[at] == raw[at + 1] == 0:
            raise CorruptError(f"{what} is not a raw lz4 block: a match 0 bytes back at byte {at}")
        at += 2
        if token & _LZ4_LONG == _LZ4_LONG:
            _, at = _read_length(raw, at)


def _read_length(raw: bytes, at: int) -> tuple[int, int]:
    """Return a long length and the position after it: a byte of 255 continues, any other is the last."""
    start = at
    while raw[at] == _LZ4_FULL:
        at += 1
    return _LZ4_FULL * (at - start) + raw[at], at + 1


def crc32c(data: Any, before: int = 0) -> int:
    """Return the CRC-32C of the data, continuing from `before`."""
    return int(require("crc32c", purpose=_PURPOSE, extra="wshard").crc32c(data, before))


def xxh64(data: bytes) -> int:
    """Return the xxHash64 with seed 0."""
    return int(require("xxhash", purpose=_PURPOSE, extra="wshard").xxh64_intdigest(data))


def _zstd() -> Any:
    return require("zstandard", purpose=_PURPOSE, extra="wshard")


def _lz4() -> Any:
    return require("lz4.block", purpose=_PURPOSE, extra="wshard")
