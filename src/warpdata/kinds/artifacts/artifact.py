"""An artifact of a version: raw files in shards, read by range, every byte checked.

Handed a manifest entry and a `Reader`; knows nothing of catalogs or of the tables bound to it.
Implements "Reading" of docs/specs/artifacts.md.
"""

from __future__ import annotations

import difflib
import functools
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import BinaryIO, TypeAlias

from warpdata.errors import BadInputError, BlobCorruptedError, MemberNotFoundError, UnsupportedError
from warpdata.kinds.artifacts.entry import ArtifactEntry
from warpdata.kinds.artifacts.index import MemberIndex
from warpdata.kinds.artifacts.member import ByteLocation, Chunk, Locator, Member
from warpdata.kinds.artifacts.member_fetch import MemberRange, begin_pieces, fetch_piece, fetch_pieces
from warpdata.kinds.artifacts.member_file import open_pieces
from warpdata.limits import MEMBER_CHUNK_BYTES
from warpdata.primitives.hashing import Blob, blob_key
from warpdata.repository.manifest import LoadPage, ShardLookup
from warpdata.storage import Reader

__all__ = ["Artifact", "ArtifactBackend", "Coming", "Extract", "Reopen"]

Reopen: TypeAlias = Callable[[], "Artifact"]
"""Opens the artifact again, perhaps in another process; can be pickled."""

Coming: TypeAlias = Callable[[], bytes]
"""Waits for content that is on its way."""

Extract: TypeAlias = Callable[[bytes], Path]
"""Makes a file of a member's content and says where; whoever provides it says for how long it stays."""

_SEARCHED_FOR_NEAR = 2000
_REMEMBERED_SHARDS = 8192


@dataclass(frozen=True, slots=True)
class ArtifactBackend:
    """What an artifact is handed beside its entry: where bytes come from, and what only the root can do."""

    reader: Reader
    load_page: LoadPage
    reopen: Reopen
    extract: Extract


class Artifact:
    """Opening costs nothing; the first member asked for reads a page or two of the index."""

    def __init__(self, name: str, entry: ArtifactEntry, origin: ArtifactBackend) -> None:
        self.name = name
        self.entry = entry
        self.reopen = origin.reopen
        self._extract = origin.extract
        self._reader = origin.reader
        self._index = MemberIndex(
            origin.reader, entry.index, entry.index_footer, (entry.member_count, entry.shards.shard_count)
        )
        shards = ShardLookup(entry.shards, origin.load_page)
        self._shard = functools.lru_cache(maxsize=_REMEMBERED_SHARDS)(lambda number: shards.at(number).blob)

    def __repr__(self) -> str:
        return f"Artifact({self.name!r}, kind={self.entry.kind!r}, members={len(self)})"

    def __len__(self) -> int:
        return self.entry.member_count

    def __contains__(self, path: object) -> bool:
        return isinstance(path, str) and self._index.find(path) is not None

    def members(self, prefix: str = "") -> Iterator[Member]:
        """In order of their paths, a page of the index at a time."""
        return self._index.members(prefix)

    def member(self, path: str) -> Member:
        """Where a member lies; `MemberNotFoundError` with near matches if it is not there."""
        found = self._index.find(path)
        if found is None:
            raise MemberNotFoundError(f"artifact {self.name!r} has no member {path!r}", hint=self._near(path))
        return found

    def open(self, path: str) -> BinaryIO:
        """A seekable file. A large member is fetched as it is read, a chunk at a time, each verified."""
        return self.open_at(path)

    def read(self, path: str) -> bytes:
        """A whole member, verified."""
        return self.read_one(path)

    def read_many(self, paths: Sequence[str]) -> list[bytes]:
        """Whole members in the order asked for: neighbours share requests, shards are read at once."""
        return self.read_at(paths)

    def open_at(self, locator: Locator) -> BinaryIO:
        """As `open`, also for bytes named directly."""
        return open_pieces(self._pieces(locator), self._fetch)

    def read_one(self, locator: Locator) -> bytes:
        """As `read`, also for bytes named directly."""
        pieces = self._pieces(locator)
        if len(pieces) == 1:
            return fetch_piece(self._reader, pieces[0], self.entry.compression)
        return b"".join(self._fetch(pieces))

    def read_at(self, locators: Sequence[Locator]) -> list[bytes]:
        """As `read_many`, also for bytes named directly."""
        self._index.prepare([locator for locator in locators if isinstance(locator, str)])
        wanted = [self._pieces(locator) for locator in locators]
        fetched = iter(self._fetch([piece for pieces in wanted for piece in pieces]))
        return [next(fetched) if len(pieces) == 1 else b"".join(islice(fetched, len(pieces))) for pieces in wanted]

    def begin(self, locators: Sequence[Locator], pool: ThreadPoolExecutor) -> list[Coming]:
        """Fetch as `read_at` does, but in the background: for each what waits for its content, and returns it.

        The first is fetched first. What is on this machine is read only when it is asked for.
        """
        self._index.prepare([locator for locator in locators if isinstance(locator, str)])
        wanted = [self._pieces(locator) for locator in locators]
        flat = [piece for pieces in wanted for piece in pieces]
        coming = iter(begin_pieces(self._reader, flat, self.entry.compression, pool))
        parts = [list(islice(coming, len(pieces))) for pieces in wanted]
        return [few[0] if len(few) == 1 else functools.partial(_joined, few) for few in parts]

    def size_of(self, locator: Locator) -> int:
        return self.member(locator).size_bytes if isinstance(locator, str) else locator.length

    def shard_of(self, locator: Locator) -> Blob:
        """The blob to have near in order to read this member."""
        return self._shard_under(self.member(locator)) if isinstance(locator, str) else self._shard(locator.shard)

    def signed_url(self, locator: Locator, expires_s: int) -> str:
        """A URL for a browser; only where every file is an object of its own."""
        return self._reader.signed_url(blob_key(self._own_blob(locator).hash), expires_s)

    def local_path(self, locator: Locator) -> Path:
        """A file on this machine with exactly this content: the stored one if it is here, else a copy."""
        if self.entry.kind == "files" and isinstance(locator, str):
            stored = self._reader.local_path(blob_key(self._own_blob(locator).hash))
            if stored is not None:
                return stored
        return self._extract(self.read_one(locator))

    def _own_blob(self, locator: Locator) -> Blob:
        if self.entry.kind != "files" or not isinstance(locator, str):
            raise UnsupportedError(
                f"members of artifact {self.name!r} ({self.entry.kind}) are no objects of their own",
                hint="Publish it with kind='files' where members need a URL.",
            )
        return self._shard_under(self.member(locator))

    def _fetch(self, pieces: Sequence[MemberRange]) -> list[bytes]:
        return fetch_pieces(self._reader, pieces, self.entry.compression)

    def _pieces(self, locator: Locator) -> list[MemberRange]:
        """What to fetch for it: one piece, or the chunks of a large member."""
        if isinstance(locator, ByteLocation):
            return [self._located(locator)]
        member = self.member(locator)
        blob = self._shard_under(member)
        if member.chunk_table:
            return _chunk_pieces(member, self._index.chunks(member), blob)
        if member.size_bytes > MEMBER_CHUNK_BYTES:
            raise BlobCorruptedError(f"{member.path!r} has {member.size_bytes} bytes, but no table of chunks")
        return [MemberRange(blob, member.offset, member.stored_bytes, member.size_bytes, member.xxh3, member.path)]

    def _located(self, at: ByteLocation) -> MemberRange:
        if self.entry.compression is not None:
            raise UnsupportedError(f"artifact {self.name!r} is compressed: its bytes can not be named directly")
        name = f"bytes {at.offset}…{at.offset + at.length} of shard {at.shard}"
        return MemberRange(self._shard(at.shard), at.offset, at.length, at.length, at.xxh3, name)

    def _shard_under(self, member: Member) -> Blob:
        try:
            return self._shard(member.shard)
        except BadInputError as error:
            raise BlobCorruptedError(f"{member.path!r} of artifact {self.name!r}: {error.message}") from error

    def _near(self, path: str) -> str:
        folder = path.rpartition("/")[0]
        listed = (member.path for member in islice(self.members(f"{folder}/" if folder else ""), _SEARCHED_FOR_NEAR))
        near = difflib.get_close_matches(path, list(listed), n=3)
        if near:
            return f"Did you mean {' or '.join(near)}?"
        first = next(self.members(), None)
        return f"It has {len(self):,} members" + (f", such as {first.path}" if first else "")


def _joined(parts: Sequence[Coming]) -> bytes:
    return b"".join(part() for part in parts)


def _chunk_pieces(member: Member, chunks: Sequence[Chunk], blob: Blob) -> list[MemberRange]:
    pieces, offset, left = [], member.offset, member.size_bytes
    for chunk in chunks:
        size = min(left, MEMBER_CHUNK_BYTES)
        pieces.append(MemberRange(blob, offset, chunk.stored_bytes, size, chunk.xxh3, member.path))
        offset += chunk.stored_bytes
        left -= size
    if left or offset != member.offset + member.stored_bytes:
        raise BlobCorruptedError(f"{member.path!r}: its chunks do not add up")
    return pieces
