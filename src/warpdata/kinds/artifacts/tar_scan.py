"""Existing tar files, published as they are: read once, checked strictly, and indexed.

`tarfile` stops silently at the first invalid header, so a corrupt archive looks like a shorter one. This module parses
headers with `tarfile` but walks from one to the next itself. It refuses everything but a valid archive of plain files,
and names the member. `list_tar` reads the headers alone, as ingests do. Implements "Existing tars" of
docs/specs/artifacts.md.
"""

from __future__ import annotations

import hashlib
import os
import tarfile
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path
from typing import NamedTuple

import xxhash

from warpdata.errors import InvalidSourceError
from warpdata.kinds.artifacts.index_pages import PackedMember
from warpdata.kinds.artifacts.member import Chunk, Member, check_member_path
from warpdata.kinds.artifacts.tar_pack import PackedShard
from warpdata.limits import COPY_CHUNK_BYTES, MAX_TAR_EXTENSION_BYTES, MEMBER_CHUNK_BYTES
from warpdata.primitives.hashing import Blob, Fingerprint, OnBytes, ignore_bytes

__all__ = ["TarEntry", "list_tar", "scan_tar"]

_BLOCK = 512
_ZEROS = bytes(_BLOCK)
_MAX_DIGITS = 19
_NAME, _TYPE, _MAGIC = slice(0, 100), slice(156, 157), slice(257, 265)
_PLAIN = (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.CONTTYPE)
_KINDS = {
    tarfile.SYMTYPE: "a symbolic link",
    tarfile.LNKTYPE: "a hard link",
    tarfile.CHRTYPE: "a device node",
    tarfile.BLKTYPE: "a device node",
    tarfile.FIFOTYPE: "a pipe",
    tarfile.GNUTYPE_SPARSE: "a sparse file",
}
_EXTENSIONS = (
    tarfile.XHDTYPE,
    tarfile.SOLARIS_XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
)
_COMPRESSED = ((b"\x1f\x8b", "gzip"), (b"BZh", "bzip2"), (b"\x28\xb5\x2f\xfd", "zstd"), (b"\xfd7zXZ", "xz"))


def scan_tar(path: Path, shard: int, on_bytes: OnBytes = ignore_bytes) -> PackedShard:
    """Return the members in the order of the archive. Raise `InvalidSourceError` with the first problem."""
    try:
        with path.open("rb") as file:
            tape = _HashedTape(path, file, on_bytes)
            members = tuple(_read_content(tape, name, size, shard) for name, size in _entries(tape))
            return PackedShard(tape.fingerprint(), members)
    except OSError as error:
        raise InvalidSourceError(f"{path} cannot be read: {error.strerror or error}") from error


class TarEntry(NamedTuple):
    """A plain file of an archive, and the place of its content."""

    name: str
    offset: int
    size_bytes: int


def list_tar(path: Path) -> Iterator[TarEntry]:
    """Yield the plain files of an archive in order, by the rules of `scan_tar`. Contents are not read."""
    try:
        with path.open("rb") as file:
            tape = _Tape(path, file)
            for name, size in _entries(tape):
                yield TarEntry(name, tape.position, size)
                tape.skip(size + -size % _BLOCK)
    except OSError as error:
        raise InvalidSourceError(f"{path} cannot be read: {error.strerror or error}") from error


class _Tape:
    """Reads a file front to back."""

    def __init__(self, path: Path, file: BufferedReader) -> None:
        first = file.peek(8)
        self._compression = next((name for mark, name in _COMPRESSED if first.startswith(mark)), None)
        self.path = path
        self.position = 0
        self.last = "its beginning"
        self._file = file

    def take(self, size: int) -> bytes:
        """Return exactly `size` bytes."""
        data = self._file.read(size)
        self._count(data)
        if len(data) != size:
            raise self.wrong("the archive is truncated")
        return data

    def rest(self) -> Iterator[bytes]:
        while data := self._file.read(COPY_CHUNK_BYTES):
            self._count(data)
            yield data

    def skip(self, size: int) -> None:
        """Go on after `size` bytes, which must be there."""
        if self.position + size > os.fstat(self._file.fileno()).st_size:
            raise self.wrong("the archive is truncated")
        self._file.seek(size, os.SEEK_CUR)
        self.position += size

    def wrong(self, fact: str) -> InvalidSourceError:
        if self._compression is not None and self.position <= _BLOCK:
            return InvalidSourceError(
                f"{self.path} is compressed with {self._compression}, so its members cannot be read by range",
                hint="Unpack it first; add_artifact(…, compression='zstd') compresses directories member by member.",
            )
        return InvalidSourceError(f"{self.path}: {fact}, at or after {self.last}", hint="Create the archive again.")

    def _count(self, data: bytes) -> None:
        self.position += len(data)


class _HashedTape(_Tape):
    """Reads every byte of a file once, and hashes it."""

    def __init__(self, path: Path, file: BufferedReader, on_bytes: OnBytes) -> None:
        super().__init__(path, file)
        self._on_bytes = on_bytes
        self._strong = hashlib.sha256()
        self._quick = xxhash.xxh3_128()

    def fingerprint(self) -> Fingerprint:
        return Fingerprint(Blob(self._strong.hexdigest(), self.position), self._quick.hexdigest())

    def _count(self, data: bytes) -> None:
        self._strong.update(data)
        self._quick.update(data)
        self._on_bytes(len(data))
        super()._count(data)


def _entries(tape: _Tape) -> Iterator[tuple[str, int]]:
    """Yield the name and size of each plain file. The caller goes to the end of its last block before the next."""
    extended: dict[str, str] = {}
    has_extension = False
    while (block := tape.take(_BLOCK)) != _ZEROS:
        info = _parse_header(tape, block)
        if info.type not in _EXTENSIONS:
            yield from _entry(tape, info, extended)
            extended, has_extension = {}, False
            continue
        fields = _read_extension(tape, info)
        if info.type == tarfile.XGLTYPE:
            if fields:
                raise tape.wrong("a global header renames members")
            continue
        if extended.keys() & fields.keys():
            raise tape.wrong("two extended headers describe one member")
        extended, has_extension = extended | fields, True
    if has_extension:
        raise tape.wrong("an extended header has no member after it")
    if any(data.strip(b"\0") for data in tape.rest()):
        raise tape.wrong("there are bytes after the end of the archive")


def _entry(tape: _Tape, info: tarfile.TarInfo, extended: dict[str, str]) -> Iterator[tuple[str, int]]:
    """Yield the name and size of a header, unless it is a directory. `extended` has the fields of extended headers."""
    name = extended.get("path") or info.name
    if any(key.startswith(_SPARSE) for key in extended):
        name = extended.get(f"{_SPARSE}.name") or name
        raise InvalidSourceError(f"{tape.path}: member {name!r} is a sparse file", hint=_REPACK_HINT)
    if info.type == tarfile.DIRTYPE or (info.type == tarfile.AREGTYPE and name.endswith("/")):
        return
    if info.type not in _PLAIN:
        kind = _KINDS.get(info.type, f"of the unknown type {info.type!r}")
        raise InvalidSourceError(f"{tape.path}: member {name!r} is {kind}", hint="Only plain files are supported.")
    path = check_member_path(name.removeprefix("./"), str(tape.path))
    tape.last = f"member {path!r}"
    yield path, _number(tape, extended["size"]) if "size" in extended else info.size


_SPARSE = "GNU.sparse"
_REPACK_HINT = "Unpack it and publish the directory."


def _read_content(tape: _HashedTape, path: str, size: int, shard: int) -> PackedMember:
    start, left, chunks = tape.position, size, []
    while left:
        piece = tape.take(min(left, MEMBER_CHUNK_BYTES))
        left -= len(piece)
        chunks.append(Chunk(len(piece), xxhash.xxh3_64_intdigest(piece)))
    tape.take(-size % _BLOCK)
    xxh3 = chunks[0].xxh3 if chunks else xxhash.xxh3_64_intdigest(b"")
    member = Member(path, shard, start, size, size, xxh3)
    return PackedMember(member, tuple(chunks) if len(chunks) > 1 else (), str(tape.path))


def _parse_header(tape: _Tape, block: bytes) -> tarfile.TarInfo:
    """Parse a header. Names that are not UTF-8 get surrogates, and are refused later with their member."""
    try:
        info = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
    except tarfile.HeaderError as error:
        raise tape.wrong(f"expected a header, found none ({error})") from error
    if info.size < 0:
        raise tape.wrong("a header has a negative size")
    if block[_MAGIC] == tarfile.GNU_MAGIC:
        # GNU headers have times where others have the first part of the name; `tarfile` reads them as a name.
        info.name = block[_NAME].partition(b"\0")[0].decode("utf-8", "surrogateescape")
    if block[_TYPE] == tarfile.AREGTYPE and info.type == tarfile.DIRTYPE:
        # `tarfile` decides by the last letter of a name that an extended header may replace.
        info.type, info.name = tarfile.AREGTYPE, f"{info.name.rstrip('/')}/"
    return info


def _read_extension(tape: _Tape, info: tarfile.TarInfo) -> dict[str, str]:
    """Return the path, size and sparse fields that an extended header sets for the next member."""
    if info.size > MAX_TAR_EXTENSION_BYTES:
        raise tape.wrong(f"an extended header has {info.size} bytes")
    data = tape.take(info.size)
    tape.take(-info.size % _BLOCK)
    if info.type == tarfile.GNUTYPE_LONGLINK:
        return {}
    if info.type == tarfile.GNUTYPE_LONGNAME:
        return {"path": _text(tape, data.rstrip(b"\0"))}
    return _pax_fields(tape, data)


def _pax_fields(tape: _Tape, data: bytes) -> dict[str, str]:
    """Parse records of the form `length key=value`. The length includes itself."""
    fields: dict[str, str] = {}
    start = 0
    while start < len(data):
        digits = data[start : start + _MAX_DIGITS + 1].partition(b" ")[0]
        end = start + _number(tape, _text(tape, digits))
        key, equals, value = data[start + len(digits) + 1 : end].partition(b"=")
        if not equals or not value.endswith(b"\n") or end > len(data):
            raise tape.wrong("an extended header cannot be read")
        if key in (b"path", b"size") or key.startswith(_SPARSE.encode()):
            fields[_text(tape, key)] = _text(tape, value[:-1])
        start = end
    return fields


def _text(tape: _Tape, data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise tape.wrong(f"the name {data[:80]!r} is not valid UTF-8") from None


def _number(tape: _Tape, text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > _MAX_DIGITS:
        raise tape.wrong(f"{text[:20]!r} is not a size")
    return int(text)
