"""Pieces of shards → their content: fetched together, verified one by one, decompressed.

A piece that does not verify is asked for once more where a nearer copy was to blame; otherwise it is
an error, never a result.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from warpdata.digest import Blob, blob_key
from warpdata.errors import BlobCorruptedError
from warpdata.limits import MEMBER_GAP_BYTES
from warpdata.store import ByteRange, Reader

__all__ = ["Piece", "fetch_pieces"]

_PARALLEL_SHARDS = 16


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes of a shard that stand for `size_bytes` of content. Without `xxh3` they can not be verified."""

    blob: Blob
    offset: int
    stored_bytes: int
    size_bytes: int
    xxh3: int | None
    name: str
    """The member, or what else it is, for messages."""


def fetch_pieces(reader: Reader, pieces: Sequence[Piece], compression: str | None) -> list[bytes]:
    """The content of each, in the order given. Each shard is one call to the reader; shards are read at once."""
    if not pieces:
        return []
    if len(pieces) == 1:
        return [_fetch_one(reader, pieces[0], compression)]
    by_shard: dict[str, list[int]] = {}
    for position, piece in enumerate(pieces):
        by_shard.setdefault(piece.blob.hash, []).append(position)
    out = [b""] * len(pieces)

    def fetch(positions: list[int]) -> None:
        wanted = [pieces[position] for position in positions]
        spans = [_span(piece) for piece in wanted]
        replies = reader.read_ranges(blob_key(wanted[0].blob.hash), spans, gap_bytes=MEMBER_GAP_BYTES)
        for position, piece, reply in zip(positions, wanted, replies, strict=True):
            content = _content(piece, reply, compression)
            out[position] = _fetch_one(reader, piece, compression) if content is None else content

    groups = list(by_shard.values())
    if len(groups) == 1:
        fetch(groups[0])
    else:
        with ThreadPoolExecutor(min(len(groups), _PARALLEL_SHARDS), thread_name_prefix="warp-media") as pool:
            for done in [pool.submit(fetch, group) for group in groups]:
                done.result()
    return out


def _fetch_one(reader: Reader, piece: Piece, compression: str | None) -> bytes:
    key, span = blob_key(piece.blob.hash), _span(piece)
    content = _content(piece, reader.read_range(key, span), compression)
    if content is None and reader.distrust(key):
        content = _content(piece, reader.read_range(key, span), compression)
    if content is None:
        raise BlobCorruptedError(
            f"{piece.name!r} is damaged: bytes {span.start}…{span.end} of shard {piece.blob.hash} "
            f"in {reader.url} do not have their checksum",
            hint="`warp verify` finds all damage; publish again with --repair to mend it.",
        )
    return content


def _span(piece: Piece) -> ByteRange:
    end = piece.offset + piece.stored_bytes
    if end > piece.blob.byte_size:
        raise BlobCorruptedError(
            f"{piece.name!r} would end at byte {end}, but shard {piece.blob.hash} has {piece.blob.byte_size}"
        )
    return ByteRange(piece.offset, end)


def _content(piece: Piece, stored: memoryview, compression: str | None) -> bytes | None:
    """None if the bytes are not those that were published."""
    import xxhash

    content: bytes | None = bytes(stored) if compression is None else _decompressed(stored, piece.size_bytes)
    if content is None or len(content) != piece.size_bytes:
        return None
    if piece.xxh3 is not None and xxhash.xxh3_64_intdigest(content) != piece.xxh3:
        return None
    return content


def _decompressed(stored: memoryview, size_bytes: int) -> bytes | None:
    import pyarrow as pa

    if size_bytes == 0:
        return b""
    try:
        return bytes(pa.decompress(stored, decompressed_size=size_bytes, codec="zstd", asbytes=True))
    except (OSError, pa.ArrowException):
        return None
