"""Pieces of shards → their content: fetched together, verified one by one, decompressed.

A piece that does not verify is asked for once more where a nearer copy was to blame; otherwise it is
an error, never a result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import xxhash

from warpdata.errors import BlobCorruptedError
from warpdata.limits import MAX_REQUESTS_AT_ONCE, MEMBER_GAP_BYTES, MEMBER_REQUEST_BYTES
from warpdata.primitives.hashing import Blob, blob_key
from warpdata.storage import ByteRange, Reader, coalesce

__all__ = ["MemberRange", "begin_pieces", "fetch_piece", "fetch_pieces"]


class MemberRange(NamedTuple):
    """Bytes of a shard that stand for `size_bytes` of content. Without `xxh3` they can not be verified."""

    blob: Blob
    offset: int
    stored_bytes: int
    size_bytes: int
    xxh3: int | None
    name: str
    """The member, or what else it is, for messages."""


def fetch_pieces(reader: Reader, pieces: Sequence[MemberRange], compression: str | None) -> list[bytes]:
    """The content of each, in the order given.

    What is on this machine is read piece by piece. For the rest, neighbours share a request, and requests
    run side by side, whichever shards they are for.
    """
    near, far = _divided(reader, pieces, compression)
    out = [b""] * len(pieces)
    for position in near:
        out[position] = fetch_piece(reader, pieces[position], compression)

    def fetch(request: _Request) -> None:
        for position, content in _fetch(reader, pieces, request, compression).items():
            out[position] = content

    if len(far) == 1:
        fetch(far[0])
    elif far:
        with ThreadPoolExecutor(min(len(far), MAX_REQUESTS_AT_ONCE), thread_name_prefix="warp-media") as pool:
            for done in [pool.submit(fetch, request) for request in far]:
                done.result()
    return out


def begin_pieces(
    reader: Reader, pieces: Sequence[MemberRange], compression: str | None, pool: ThreadPoolExecutor
) -> list[Callable[[], bytes]]:
    """For each piece what waits for its content. Requests are made by the pool, in the order of need: the first
    piece is needed first. What is on this machine is read when it is asked for."""
    near, far = _divided(reader, pieces, compression)
    out: list[Callable[[], bytes]] = [bytes] * len(pieces)
    for position in near:
        out[position] = partial(fetch_piece, reader, pieces[position], compression)
    for request in sorted(far, key=lambda request: min(request.serves)):
        coming = pool.submit(_fetch, reader, pieces, request, compression)
        for position in request.serves:
            out[position] = partial(_waited_for, coming, position)
    return out


def _waited_for(coming: Future[dict[int, bytes]], position: int) -> bytes:
    return coming.result()[position]


def _divided(
    reader: Reader, pieces: Sequence[MemberRange], compression: str | None
) -> tuple[list[int], list[_Request]]:
    """Pieces on this machine, by position, and requests for the others. Empty pieces are checked and need neither."""
    for piece in pieces:
        if not _span(piece).size_bytes and _content(piece, memoryview(b""), compression) is None:
            raise _damage(reader, piece)
    near: list[int] = []
    far: list[_Request] = []
    for key, positions in _by_shard(pieces).items():
        if reader.is_local(key):
            near += positions
        else:
            spans = [_span(pieces[position]) for position in positions]
            far += [
                _Request(key, request.span, tuple(positions[index] for index in request.serves))
                for request in coalesce(spans, MEMBER_GAP_BYTES, most_bytes=MEMBER_REQUEST_BYTES)
            ]
    return near, far


def _fetch(
    reader: Reader, pieces: Sequence[MemberRange], request: _Request, compression: str | None
) -> dict[int, bytes]:
    """What a request serves, by position."""
    reply, out = reader.read_range(request.key, request.span), {}
    for position in request.serves:
        piece = pieces[position]
        start = piece.offset - request.span.start
        content = _content(piece, reply[start : start + piece.stored_bytes], compression)
        out[position] = fetch_piece(reader, piece, compression) if content is None else content
    return out


@dataclass(frozen=True, slots=True)
class _Request:
    """Bytes of one shard, and the pieces they serve, by position."""

    key: str
    span: ByteRange
    serves: tuple[int, ...]


def _by_shard(pieces: Sequence[MemberRange]) -> dict[str, list[int]]:
    """The positions of the pieces of each shard, by its key; empty ones need no bytes."""
    shards: dict[str, list[int]] = {}
    for position, piece in enumerate(pieces):
        if piece.stored_bytes:
            shards.setdefault(piece.blob.hash, []).append(position)
    return {blob_key(digest): positions for digest, positions in shards.items()}


def fetch_piece(reader: Reader, piece: MemberRange, compression: str | None) -> bytes:
    """The content of one, in one read."""
    key, span = blob_key(piece.blob.hash), _span(piece)
    content = _content(piece, reader.read_range(key, span), compression)
    if content is None and reader.invalidate(key):
        content = _content(piece, reader.read_range(key, span), compression)
    if content is None:
        raise _damage(reader, piece)
    return content


def _damage(reader: Reader, piece: MemberRange) -> BlobCorruptedError:
    return BlobCorruptedError(
        f"{piece.name!r} is damaged: bytes {piece.offset}…{piece.offset + piece.stored_bytes} of shard "
        f"{piece.blob.hash} in {reader.url} do not have their checksum",
        hint="`warp verify` finds all damage; publish again with --repair to mend it.",
    )


def _span(piece: MemberRange) -> ByteRange:
    end = piece.offset + piece.stored_bytes
    if end > piece.blob.byte_size:
        raise BlobCorruptedError(
            f"{piece.name!r} would end at byte {end}, but shard {piece.blob.hash} has {piece.blob.byte_size}"
        )
    return ByteRange(piece.offset, end)


def _content(piece: MemberRange, stored: memoryview, compression: str | None) -> bytes | None:
    """None if the bytes are not those that were published."""
    content = _as_bytes(stored) if compression is None else _decompressed(stored, piece.size_bytes)
    if content is None or len(content) != piece.size_bytes:
        return None
    if piece.xxh3 is not None and xxhash.xxh3_64_intdigest(content) != piece.xxh3:
        return None
    return content


def _as_bytes(stored: memoryview) -> bytes:
    """Without a copy where a whole object of bytes is behind the view."""
    whole = stored.obj
    return whole if isinstance(whole, bytes) and len(whole) == len(stored) else bytes(stored)


def _decompressed(stored: memoryview, size_bytes: int) -> bytes | None:
    import pyarrow as pa

    if size_bytes == 0:
        return b""
    try:
        return bytes(pa.decompress(stored, decompressed_size=size_bytes, codec="zstd", asbytes=True))
    except (OSError, pa.ArrowException):
        return None
