"""Ranges of shards that hold members: fetched together, verified one by one, decompressed.

A range that fails verification is read once more if a cached copy may be corrupt. Otherwise it is an error. Ranges
that are fetched ahead stay compressed until they are used, and are bounded in bytes.
"""

from __future__ import annotations

import io
from bisect import bisect_right
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import BinaryIO, NamedTuple, TypeAlias, cast

import xxhash

from warpdata.errors import CorruptError
from warpdata.limits import GIB, MEMBER_GAP_BYTES, MEMBER_REQUEST_BYTES
from warpdata.primitives.hashing import Blob, blob_key
from warpdata.primitives.parallel import IO_POOL, READ_MEMORY
from warpdata.storage import REPAIR_HINT, ByteRange, Reader, coalesce, read_verified

__all__ = ["FutureBytes", "MemberRange", "fetch_range", "fetch_ranges", "open_ranges", "submit_ranges"]

_MAX_AHEAD_BYTES = 1 * GIB
"""Stored bytes that one call fetches ahead, if the memory for reads allows it. Others are fetched when used."""

_Read: TypeAlias = Callable[[], bytes]


@dataclass(frozen=True, slots=True)
class FutureBytes:
    """Content that is being fetched. A call waits for it and returns it, `size_bytes` long."""

    size_bytes: int
    name: str
    read: _Read

    def __call__(self) -> bytes:
        return self.read()

    @staticmethod
    def join(parts: Sequence[FutureBytes]) -> FutureBytes:
        """Return the content of consecutive parts of one member."""
        if len(parts) == 1:
            return parts[0]
        return FutureBytes(sum(part.size_bytes for part in parts), parts[0].name, partial(_join, parts))


class MemberRange(NamedTuple):
    """A range of a shard that holds `size_bytes` of content. Without `xxh3`, only its length is verified."""

    blob: Blob
    offset: int
    stored_bytes: int
    size_bytes: int
    xxh3: int | None
    name: str
    """The member path, or a description of the range, for messages."""


def fetch_range(reader: Reader, wanted: MemberRange, compression: str | None) -> bytes:
    """Return the content of one range, in one read."""
    check = partial(_decode, reader, wanted, compression=compression)
    return read_verified(reader, blob_key(wanted.blob.hash), _span(wanted), check)


def fetch_ranges(reader: Reader, ranges: Sequence[MemberRange], compression: str | None) -> list[bytes]:
    """Return the content of each range, in order.

    Local ranges are read one by one. Of the others, neighbours share a request, and requests run in parallel.
    """
    local, requests = _plan(reader, ranges, compression)
    out = [b""] * len(ranges)
    for position in local:
        out[position] = fetch_range(reader, ranges[position], compression)
    fetch = partial(_fetch, reader, ranges, compression)
    for contents in IO_POOL.map_all(fetch, requests):
        for position, content in contents.items():
            out[position] = content
    return out


def submit_ranges(
    reader: Reader, ranges: Sequence[MemberRange], compression: str | None, executor: Executor
) -> list[FutureBytes]:
    """Start fetching and return a future for each range. The executor runs requests in the order of the ranges.

    Local ranges, and those beyond the bytes to fetch ahead, are read when their future is called.
    """
    _, requests = _plan(reader, ranges, compression)
    reads: list[_Read] = [partial(fetch_range, reader, wanted, compression) for wanted in ranges]
    ahead_bytes, max_ahead_bytes = 0, min(_MAX_AHEAD_BYTES, READ_MEMORY.limit_bytes)
    for request in sorted(requests, key=lambda request: min(request.positions)):
        ahead_bytes += request.span.size_bytes
        if ahead_bytes > max_ahead_bytes:
            break
        if compression is None:
            future = executor.submit(_fetch, reader, ranges, compression, request)
            for position in request.positions:
                reads[position] = partial(_content_of, future, position)
        else:
            stored = executor.submit(_fetch_stored, reader, ranges, request)
            for position in request.positions:
                reads[position] = partial(_expand, reader, ranges[position], compression, stored, position)
    return [FutureBytes(wanted.size_bytes, wanted.name, read) for wanted, read in zip(ranges, reads, strict=True)]


def open_ranges(ranges: Sequence[MemberRange], fetch: Callable[[MemberRange], bytes]) -> BinaryIO:
    """Return a seekable file over adjacent ranges. One range is read at once; of several, one is held at a time."""
    if len(ranges) == 1:
        return io.BytesIO(fetch(ranges[0]))
    return cast(BinaryIO, io.BufferedReader(_RangesFile(ranges, fetch)))


@dataclass(frozen=True, slots=True)
class _ShardRequest:
    """A range of one shard, and the positions of the member ranges inside."""

    key: str
    span: ByteRange
    positions: tuple[int, ...]


def _plan(
    reader: Reader, ranges: Sequence[MemberRange], compression: str | None
) -> tuple[list[int], list[_ShardRequest]]:
    """Return the positions of local ranges, and requests for the others. Empty ranges need neither."""
    shards: dict[str, list[int]] = {}
    for position, wanted in enumerate(ranges):
        if _span(wanted).size_bytes:
            shards.setdefault(wanted.blob.hash, []).append(position)
        else:
            _decode(reader, wanted, memoryview(b""), compression=compression)
    local: list[int] = []
    requests: list[_ShardRequest] = []
    for digest, positions in shards.items():
        key = blob_key(digest)
        if reader.is_local(key):
            local += positions
        else:
            spans = [_span(ranges[position]) for position in positions]
            requests += [
                _ShardRequest(key, request.span, tuple(positions[index] for index in request.serves))
                for request in coalesce(spans, MEMBER_GAP_BYTES, max_bytes=MEMBER_REQUEST_BYTES)
            ]
    return local, requests


def _fetch(
    reader: Reader, ranges: Sequence[MemberRange], compression: str | None, request: _ShardRequest
) -> dict[int, bytes]:
    """Send a request and return content by position. A corrupt range is fetched again on its own."""
    reply, out = reader.read_range(request.key, request.span), {}
    for position in request.positions:
        wanted = ranges[position]
        start = wanted.offset - request.span.start
        try:
            stored = reply[start : start + wanted.stored_bytes]
            out[position] = _decode(reader, wanted, stored, compression=compression)
        except CorruptError:
            out[position] = fetch_range(reader, wanted, compression)
    return out


def _content_of(future: Future[dict[int, bytes]], position: int) -> bytes:
    return future.result()[position]


def _fetch_stored(reader: Reader, ranges: Sequence[MemberRange], request: _ShardRequest) -> dict[int, bytes]:
    """Send a request and return stored bytes by position, not yet verified."""
    reply, start = reader.read_range(request.key, request.span), request.span.start
    return {
        position: bytes(reply[wanted.offset - start : wanted.offset - start + wanted.stored_bytes])
        for position in request.positions
        for wanted in (ranges[position],)
    }


def _expand(
    reader: Reader, wanted: MemberRange, compression: str, stored: Future[dict[int, bytes]], position: int
) -> bytes:
    """Return the content of fetched bytes. Corrupt ones are fetched again."""
    try:
        return _decode(reader, wanted, memoryview(stored.result()[position]), compression=compression)
    except CorruptError:
        return fetch_range(reader, wanted, compression)


def _join(parts: Sequence[FutureBytes]) -> bytes:
    return b"".join(part() for part in parts)


def _span(wanted: MemberRange) -> ByteRange:
    end = wanted.offset + wanted.stored_bytes
    if end > wanted.blob.byte_size:
        raise CorruptError(
            f"{wanted.name!r} would end at byte {end}, but shard {wanted.blob.hash} has {wanted.blob.byte_size} bytes"
        )
    return ByteRange(wanted.offset, end)


def _decode(reader: Reader, wanted: MemberRange, stored: memoryview, *, compression: str | None) -> bytes:
    """Return the content. Raise `CorruptError` if it is not what was published."""
    content = _as_bytes(stored) if compression is None else _decompress(stored, wanted.size_bytes)
    if (
        content is None
        or len(content) != wanted.size_bytes
        or (wanted.xxh3 is not None and xxhash.xxh3_64_intdigest(content) != wanted.xxh3)
    ):
        raise CorruptError(
            f"{wanted.name!r} is corrupt: bytes {wanted.offset}…{wanted.offset + wanted.stored_bytes} of shard "
            f"{wanted.blob.hash} in {reader.url} do not match their checksum",
            hint=REPAIR_HINT,
        )
    return content


def _as_bytes(stored: memoryview) -> bytes:
    """Convert to bytes. A view of a whole `bytes` object is not copied."""
    whole = stored.obj
    return whole if isinstance(whole, bytes) and len(whole) == len(stored) else bytes(stored)


def _decompress(stored: memoryview, size_bytes: int) -> bytes | None:
    import pyarrow as pa

    if size_bytes == 0:
        return b""
    try:
        return bytes(pa.decompress(stored, decompressed_size=size_bytes, codec="zstd", asbytes=True))
    except (OSError, pa.ArrowException):
        return None


class _RangesFile(io.RawIOBase):
    def __init__(self, ranges: Sequence[MemberRange], fetch: Callable[[MemberRange], bytes]) -> None:
        super().__init__()
        self._ranges = ranges
        self._fetch = fetch
        self._starts = [0, *accumulate(wanted.size_bytes for wanted in ranges)]
        self._position = 0
        self._held = -1
        self._content = b""

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._starts[-1]}[whence]
        if base + offset < 0:
            raise ValueError(f"cannot seek to {base + offset}")
        self._position = base + offset
        return self._position

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        if self._position >= self._starts[-1] or not len(buffer):
            return 0
        number = bisect_right(self._starts, self._position) - 1
        if number != self._held:
            self._content, self._held = self._fetch(self._ranges[number]), number
        start = self._position - self._starts[number]
        data = self._content[start : start + len(buffer)]
        buffer[: len(data)] = data
        self._position += len(data)
        return len(data)
