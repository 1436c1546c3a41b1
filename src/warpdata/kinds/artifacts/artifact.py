"""Artifacts of a version: raw files in shards, read by range and verified.

An artifact knows a manifest entry and a `Reader`, but no catalog and no bound table. Implements "Reading" of
docs/specs/artifacts.md.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import BinaryIO, TypeAlias

from warpdata.errors import (
    BadInputError,
    CorruptError,
    ErrorKind,
    LimitExceededError,
    ObjectNotFoundError,
    UnsupportedError,
    WarpError,
)
from warpdata.kinds.artifacts.entry import ArtifactEntry
from warpdata.kinds.artifacts.index import MemberIndex
from warpdata.kinds.artifacts.member import ByteLocation, Chunk, Locator, Member
from warpdata.kinds.artifacts.member_fetch import (
    FutureBytes,
    MemberRange,
    fetch_range,
    fetch_ranges,
    open_ranges,
    submit_ranges,
)
from warpdata.limits import MEDIA_MEMORY_BYTES, MEMBER_CHUNK_BYTES
from warpdata.primitives.arguments import check_arguments
from warpdata.primitives.hashing import Blob, blob_key
from warpdata.primitives.reprs import html_table, short_repr
from warpdata.primitives.suggest import suggest
from warpdata.repository.manifest import LoadPage, Shard, ShardLookup, iter_shards
from warpdata.storage import Reader

__all__ = ["Artifact", "ArtifactBackend", "Extract", "Reopen"]

Reopen: TypeAlias = Callable[[], "Artifact"]
"""Opens the artifact again, perhaps in another process. Can be pickled."""

Extract: TypeAlias = Callable[[bytes], Path]
"""Writes the content of a member to a file and returns its path. The provider decides how long the file exists."""

_SEARCHED_PATHS = 2000
_SHOWN_MEMBERS = 5
_CACHED_SHARDS = 8192


@dataclass(frozen=True, slots=True)
class ArtifactBackend:
    """The I/O of an artifact: a reader, the pages of its shard list, reopening and extraction."""

    reader: Reader
    load_page: LoadPage
    reopen: Reopen
    extract: Extract
    max_expanded_bytes: int = MEDIA_MEMORY_BYTES
    """The most bytes that one call decompresses into memory."""


@check_arguments
class Artifact:
    """Raw files by member path. Opening reads nothing; the first look-up reads a page or two of the index."""

    def __init__(self, name: str, entry: ArtifactEntry, backend: ArtifactBackend) -> None:
        self.name = name
        self.entry = entry
        self.reopen = backend.reopen
        self._extract = backend.extract
        self._reader = backend.reader
        self._load_page = backend.load_page
        self._max_expanded_bytes = backend.max_expanded_bytes
        self._index = MemberIndex(
            backend.reader, entry.index, entry.index_footer, (entry.member_count, entry.shards.shard_count)
        )
        shards = ShardLookup(entry.shards, backend.load_page)

        def find_shard(number: int) -> Blob:
            blob = shards.at(number).blob
            backend.reader.expect_size(blob_key(blob.hash), blob.byte_size)
            return blob

        self._shard = functools.lru_cache(maxsize=_CACHED_SHARDS)(find_shard)

    def __repr__(self) -> str:
        return short_repr("Artifact", self.name, kind=self.entry.kind, members=len(self))

    def _repr_html_(self) -> str:
        """Show the first members, which reads a page of the index."""
        size_bytes = self.entry.shards.data_bytes
        title = f"{self.name}: {len(self):,} members in {size_bytes:,} bytes ({self.entry.kind})"
        try:
            rows = [(member.path, member.size_bytes) for member in islice(self.members(), _SHOWN_MEMBERS)]
        except WarpError as error:
            return html_table(title, [], [], notes=[str(error)])
        return html_table(title, ("member", "bytes"), rows)

    def __len__(self) -> int:
        return self.entry.member_count

    def __contains__(self, path: object) -> bool:
        return isinstance(path, str) and self._index.find(path) is not None

    def missing(self, paths: Iterable[str]) -> set[str]:
        """Return the paths that no member has. Cheaper than one look-up for each of many."""
        wanted = [self._checked_path(path) for path in paths]
        return self._index.missing(wanted)

    def members(self, prefix: str = "", start: str = "") -> Iterator[Member]:
        """Yield members in order of their paths, from `start` on. Reads the index a page at a time."""
        return self._index.members(prefix, start)

    def member(self, path: str) -> Member:
        """Return the location of a member. Raise `ObjectNotFoundError` with similar paths if there is none."""
        return self._find(path)

    def _checked_path(self, path: str) -> str:
        if not isinstance(path, str):  # cheap: one for each row
            raise BadInputError(f"a member of artifact {self.name!r} is found by its path, not by {path!r}")
        return path

    def _find(self, path: str) -> Member:
        found = self._index.find(self._checked_path(path))
        if found is None:
            raise ObjectNotFoundError(
                f"artifact {self.name!r} has no member {path!r}",
                hint=self._similar(path),
                kind=ErrorKind.MEMBER_NOT_FOUND,
            )
        return found

    def scan(self) -> Iterator[tuple[Member, tuple[Chunk, ...]]]:
        """Yield all members in order, each with the chunks of a large one. A remote index is read in large parts."""
        return self._index.scan()

    def open(self, path: str) -> BinaryIO:
        """Open a member as a seekable file. A large member is fetched chunk by chunk, as it is read."""
        return self.open_at(path)

    def read(self, path: str) -> bytes:
        """Return the content of a member."""
        return self.read_one(path)

    def read_many(self, paths: Sequence[str]) -> list[bytes]:
        """Return the content of members, in order. Neighbours share a request, and requests run in parallel."""
        return self.read_at(paths)

    def open_at(self, locator: Locator) -> BinaryIO:
        """Like `open`, also for a range of a shard."""
        return open_ranges(self._ranges(locator), self._fetch_one)

    def read_one(self, locator: Locator) -> bytes:
        """Like `read`, also for a range of a shard."""
        ranges = self._ranges(locator)
        return self._fetch_one(ranges[0]) if len(ranges) == 1 else b"".join(self._fetch(ranges))

    def read_at(self, locators: Sequence[Locator]) -> list[bytes]:
        """Like `read_many`, also for ranges of shards."""
        wanted = self._locate(locators)
        fetched = iter(self._fetch([one for ranges in wanted for one in ranges]))
        return [next(fetched) if len(ranges) == 1 else b"".join(islice(fetched, len(ranges))) for ranges in wanted]

    def submit(self, locators: Sequence[Locator], executor: Executor) -> list[FutureBytes]:
        """Start fetching like `read_at`, in order, and return a future for each. Local members are read on demand."""
        wanted = self._locate(locators)
        flat = [one for ranges in wanted for one in ranges]
        futures = iter(submit_ranges(self._reader, flat, self.entry.compression, executor))
        return [FutureBytes.join(list(islice(futures, len(ranges)))) for ranges in wanted]

    def prepare(self, paths: Sequence[str]) -> None:
        """Fetch the index pages for many look-ups together, instead of one at a time."""
        self._index.prepare(paths)

    @property
    def reader(self) -> Reader:
        """The reader of the store that has the blobs. Its bytes are not verified."""
        return self._reader

    def shards(self) -> Iterator[Shard]:
        """Yield the shards in order. Reads the pages of a long list."""
        return iter_shards(self.entry.shards, self._load_page)

    def has_content_of(self, other: Artifact) -> bool:
        """Return whether both artifacts have the same members in the same shards, whatever their names and stores."""
        mine, its = self.entry, other.entry
        if (mine.kind, mine.index, mine.compression) != (its.kind, its.index, its.compression):
            return False
        return mine.shards == its.shards or [*self.shards()] == [*other.shards()]

    def size_of(self, locator: Locator) -> int:
        return self._find(locator).size_bytes if isinstance(locator, str) else locator.length

    def shard_of(self, locator: Locator) -> Blob:
        """Return the blob that contains a member."""
        return self.blob_of(self._find(locator)) if isinstance(locator, str) else self._shard(locator.shard)

    def signed_url(self, locator: Locator, expires_s: int) -> str:
        """Return a URL for a browser. Only artifacts of kind `files` have one object for each member."""
        return self._reader.signed_url(blob_key(self._own_blob(locator).hash), expires_s)

    def local_path(self, locator: Locator) -> Path:
        """Return a local file with this content: the stored file if it is local, else a copy."""
        if self.entry.kind == "files" and isinstance(locator, str):
            stored = self._reader.local_path(blob_key(self._own_blob(locator).hash))
            if stored is not None:
                return stored
        return self._extract(self.read_one(locator))

    def _own_blob(self, locator: Locator) -> Blob:
        if self.entry.kind != "files" or not isinstance(locator, str):
            raise UnsupportedError(
                f"members of artifact {self.name!r} ({self.entry.kind}) are not separate objects",
                hint="Publish it with kind='files' if members need a URL.",
            )
        return self.blob_of(self._find(locator))

    def _fetch(self, ranges: Sequence[MemberRange]) -> list[bytes]:
        self._check_expansion(ranges)
        return fetch_ranges(self._reader, ranges, self.entry.compression)

    def _fetch_one(self, wanted: MemberRange) -> bytes:
        return fetch_range(self._reader, wanted, self.entry.compression)

    def _check_expansion(self, ranges: Sequence[MemberRange]) -> None:
        """Raise `LimitExceededError` if compressed ranges are too large for memory. A few bytes may expand to many."""
        if self.entry.compression is None:
            return
        size_bytes = 0
        for wanted in ranges:
            size_bytes += wanted.size_bytes
            if size_bytes > self._max_expanded_bytes:
                raise LimitExceededError(
                    f"{wanted.name!r} of artifact {self.name!r} makes {size_bytes:,} bytes or more to decompress; "
                    f"the limit of one call is {self._max_expanded_bytes:,} bytes",
                    hint="Read fewer members at once, read parts with open(), or raise WARP_MEDIA_MEMORY_GB.",
                )

    def _locate(self, locators: Sequence[Locator]) -> list[list[MemberRange]]:
        self._index.prepare([locator for locator in locators if isinstance(locator, str)])
        return [self._ranges(locator) for locator in locators]

    def _ranges(self, locator: Locator) -> list[MemberRange]:
        """Return the ranges to fetch: one, or the chunks of a large member."""
        if isinstance(locator, ByteLocation):
            return [self._direct_range(locator)]
        member = self._find(locator)
        blob = self.blob_of(member)
        if member.chunk_table:
            return _chunk_ranges(member, self._index.chunks(member), blob)
        if member.size_bytes > MEMBER_CHUNK_BYTES:
            raise CorruptError(f"{member.path!r} has {member.size_bytes} bytes, but no chunk table")
        return [MemberRange(blob, member.offset, member.stored_bytes, member.size_bytes, member.xxh3, member.path)]

    def _direct_range(self, at: ByteLocation) -> MemberRange:
        if self.entry.compression is not None:
            raise UnsupportedError(f"artifact {self.name!r} is compressed, so ranges of its shards cannot be read")
        name = f"bytes {at.offset}…{at.offset + at.length} of shard {at.shard}"
        return MemberRange(self._shard(at.shard), at.offset, at.length, at.length, at.xxh3, name)

    def blob_of(self, member: Member) -> Blob:
        """Return the blob that contains a member that was found before."""
        try:
            return self._shard(member.shard)
        except BadInputError as error:
            raise CorruptError(f"{member.path!r} of artifact {self.name!r}: {error.message}") from error

    def _similar(self, path: str) -> str:
        directory = path.rpartition("/")[0]
        listed = (member.path for member in islice(self.members(f"{directory}/" if directory else ""), _SEARCHED_PATHS))
        similar = suggest(path, listed)
        if similar:
            return similar
        first = next(self.members(), None)
        return f"It has {len(self):,} members" + (f", such as {first.path}" if first else "")


def _chunk_ranges(member: Member, chunks: Sequence[Chunk], blob: Blob) -> list[MemberRange]:
    ranges, offset, left = [], member.offset, member.size_bytes
    for chunk in chunks:
        size = min(left, MEMBER_CHUNK_BYTES)
        ranges.append(MemberRange(blob, offset, chunk.stored_bytes, size, chunk.xxh3, member.path))
        offset += chunk.stored_bytes
        left -= size
    if left or offset != member.offset + member.stored_bytes:
        raise CorruptError(f"the chunks of {member.path!r} do not add up to its size")
    return ranges
