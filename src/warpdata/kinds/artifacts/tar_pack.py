"""Tar shards, packed deterministically: the same files give the same bytes on any machine.

A shard is a plain tar. In a compressed shard, every header and every piece of content is a separate zstd frame. So a
member is still one range, and the shard is a valid `.tar.zst`. Memory holds one piece at a time. Implements "Packing"
of docs/specs/artifacts.md.
"""

from __future__ import annotations

import hashlib
import tarfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

import xxhash

from warpdata.errors import InvalidSourceError
from warpdata.kinds.artifacts.index_pages import PackedMember
from warpdata.kinds.artifacts.member import Chunk, Member
from warpdata.kinds.artifacts.source_files import MemberSource, read_pieces
from warpdata.limits import MIB
from warpdata.primitives.hashing import Blob, Fingerprint, OnBytes, ignore_bytes

__all__ = [
    "COMPRESSIONS",
    "PackedShard",
    "ShardSpec",
    "cut_by_content",
    "cut_shards",
    "pack_file",
    "pack_shard",
]

COMPRESSIONS = ("zstd",)
ARTIFACT_CUT_BYTES = 32 * MIB
"""The most content of a shard that is cut by content."""
_ZSTD_LEVEL = 3
_BLOCK = 512
_PARTS = 4
_SHORT_NAME_BYTES = 100
_SHORT_SIZE = 8**11
_HEADER_END = b"0" + bytes(100) + b"ustar\x0000" + bytes(64) + bytes(16) + bytes(167)


@dataclass(frozen=True, slots=True)
class PackedShard:
    """The result of one pass over the files of a shard."""

    fingerprint: Fingerprint
    members: tuple[PackedMember, ...]


@dataclass(frozen=True, slots=True)
class ShardSpec:
    """A shard that is packed when it is uploaded, so that a directory of any size needs no second copy on disk."""

    sources: tuple[MemberSource, ...]
    number: int
    compression: str | None
    is_archive: bool = True

    @property
    def size_bytes(self) -> int:
        """The size of the content."""
        return sum(source.size_bytes for source in self.sources)

    def pack(self, path: Path, on_bytes: OnBytes = ignore_bytes) -> PackedShard:
        """Write the shard into a file, and measure it in the same pass."""
        with path.open("wb") as file:
            return self._pack(file, on_bytes)

    def measure(self, on_bytes: OnBytes = ignore_bytes) -> PackedShard:
        """Pack the shard without writing it."""
        return self._pack(None, on_bytes)

    def write(self, path: Path, expected: Fingerprint) -> Fingerprint:
        """Write the shard. Raise `InvalidSourceError` if a file changed since it was measured."""
        packed = self.pack(path)
        if packed.fingerprint != expected:
            first, last = self.sources[0].where, self.sources[-1].where
            raise InvalidSourceError(f"a file changed while it was published: one of {first} … {last}")
        return packed.fingerprint

    def _pack(self, out: BinaryIO | None, on_bytes: OnBytes) -> PackedShard:
        if self.is_archive:
            return pack_shard(self.sources, self.number, self.compression, out, on_bytes)
        return pack_file(self.sources[0], self.number, out, on_bytes)


def cut_shards(sources: Sequence[MemberSource], shard_bytes: int) -> list[list[MemberSource]]:
    """Group neighbours into shards of up to `shard_bytes`. A larger file gets a shard of its own. Pure."""
    shards: list[list[MemberSource]] = []
    shard_size = 0
    for source in sources:
        if not shards or shard_size + source.size_bytes > shard_bytes:
            shards.append([])
            shard_size = 0
        shards[-1].append(source)
        shard_size += source.size_bytes
    return shards


def cut_by_content(sources: Sequence[MemberSource]) -> list[list[MemberSource]]:
    """Group neighbours into shards that end where a hash of the path says so, after a quarter of the limit.

    So an added or removed file changes the shards around it, and not all that follow. Pure.
    """
    limit, shards = ARTIFACT_CUT_BYTES, list[list[MemberSource]]()
    shard_size, is_over = 0, True
    for source in sources:
        if is_over or shard_size + source.size_bytes > limit:
            shards.append([])
            shard_size = 0
        shards[-1].append(source)
        shard_size += source.size_bytes
        key = xxhash.xxh3_64_intdigest(source.path.encode())
        is_over = shard_size * _PARTS >= limit and key * limit < (source.size_bytes * _PARTS) << 64
    return shards


def pack_shard(
    sources: Iterable[MemberSource],
    shard: int,
    compression: str | None,
    out: BinaryIO | None,
    on_bytes: OnBytes = ignore_bytes,
) -> PackedShard:
    """Pack files into `out`. With None, only compute the fingerprint and the offsets."""
    sink = _Sink(out)
    encode = _zstd() if compression else _plain
    members, padding = [], b""
    for source in sources:
        sink.write(encode(padding + _header(source)))
        members.append(_add_content(source, shard, sink, encode, on_bytes))
        padding = bytes(-source.size_bytes % _BLOCK)
    sink.write(encode(padding + bytes(2 * _BLOCK)))
    return PackedShard(sink.fingerprint(), tuple(members))


def pack_file(source: MemberSource, shard: int, out: BinaryIO | None, on_bytes: OnBytes = ignore_bytes) -> PackedShard:
    """Pack a file that is a shard of its own, as it is."""
    sink = _Sink(out)
    member = _add_content(source, shard, sink, _plain, on_bytes)
    return PackedShard(sink.fingerprint(), (member,))


def _add_content(
    source: MemberSource, shard: int, sink: _Sink, encode: Callable[[bytes], bytes], on_bytes: OnBytes
) -> PackedMember:
    start, chunks = sink.size_bytes, []
    for piece in read_pieces(source):
        stored = encode(piece)
        sink.write(stored)
        chunks.append(Chunk(len(stored), xxhash.xxh3_64_intdigest(piece)))
        on_bytes(len(piece))
    xxh3 = chunks[0].xxh3 if chunks else xxhash.xxh3_64_intdigest(b"")
    member = Member(source.path, shard, start, sink.size_bytes - start, source.size_bytes, xxh3)
    return PackedMember(member, tuple(chunks) if len(chunks) > 1 else (), source.where)


def _header(source: MemberSource) -> bytes:
    """Return a header with name and size only: times, owners and modes differ between machines."""
    name = source.path.encode()
    if name.isascii() and len(name) <= _SHORT_NAME_BYTES and source.size_bytes < _SHORT_SIZE:
        return _short_header(name, source.size_bytes)
    info = tarfile.TarInfo(source.path)
    info.size = source.size_bytes
    return info.tobuf(tarfile.PAX_FORMAT, "utf-8", "strict")


def _short_header(name: bytes, size_bytes: int) -> bytes:
    """Return what `tarfile` returns for the usual case, in a twentieth of the time."""
    begin = name.ljust(_SHORT_NAME_BYTES, b"\0") + b"0000644\0" + b"0000000\0" * 2 + b"%011o\0" % size_bytes
    begin += b"00000000000\0"
    total = sum(begin) + sum(_HEADER_END) + 8 * ord(" ")
    return begin + b"%06o\0 " % total + _HEADER_END


def _plain(data: bytes) -> bytes:
    return data


def _zstd() -> Callable[[bytes], bytes]:
    import pyarrow as pa

    codec = pa.Codec("zstd", compression_level=_ZSTD_LEVEL)

    def encode(data: bytes) -> bytes:
        return bytes(codec.compress(data, asbytes=True))

    return encode


class _Hash(Protocol):
    def update(self, data: bytes, /) -> None: ...
    def hexdigest(self) -> str: ...


class _Sink:
    """Counts and hashes the bytes that it writes to `out`."""

    def __init__(self, out: BinaryIO | None) -> None:
        self._out = out
        self._strong = hashlib.sha256()
        self._quick: _Hash = xxhash.xxh3_128()
        self.size_bytes = 0

    def write(self, data: bytes) -> None:
        self._strong.update(data)
        self._quick.update(data)
        self.size_bytes += len(data)
        if self._out is not None:
            self._out.write(data)

    def fingerprint(self) -> Fingerprint:
        return Fingerprint(Blob(self._strong.hexdigest(), self.size_bytes), self._quick.hexdigest())
