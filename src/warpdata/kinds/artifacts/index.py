"""Member indexes, read by range: opening costs one small read, a look-up one page for each level.

Every page is verified with the checksum in its parent; the manifest has the checksum of the footer. The number of
cached pages is bounded, so an index of ten million members needs little memory. Implements "Looking up" of
docs/specs/artifacts.md.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from warpdata.errors import BadInputError, CorruptError
from warpdata.kinds.artifacts.index_pages import TRAILER, Inner, Leaf, PageRef, Trailer, parse_chunks
from warpdata.kinds.artifacts.member import Chunk, Member, check_member_path
from warpdata.limits import (
    INDEX_INNER_ENTRIES,
    INDEX_MAX_LEVELS,
    KIB,
    MAX_INDEX_PAGE_BYTES,
    MEMBER_CHUNK_BYTES,
    MIB,
)
from warpdata.primitives.cached_property import cached_property
from warpdata.primitives.hashing import Blob, blob_key
from warpdata.repository.manifest import Footer
from warpdata.storage import REPAIR_HINT, ByteRange, Reader, ReaderWrapper, retry_corrupt

__all__ = ["INDEX_WHOLE_BYTES", "MemberIndex"]

_CHUNK_ENTRY_BYTES = 16
_CACHED_LEAVES = 1024
_CACHED_INNERS = 64
_TAIL_BYTES = 64 * KIB
"""Read when the index is opened: the footer, and often all pages of a small index."""
INDEX_WHOLE_BYTES = 4 * MIB
"""Indexes up to this size are read at once for a batch of look-ups."""
_BATCH_PATHS = 8
"""Fewer look-ups than this are not worth a larger read."""
_PART_BYTES = 4 * MIB
_CACHED_PARTS = 4
_T = TypeVar("_T")


class MemberIndex:
    """The index of one artifact. Opened on first use; safe to share between threads.

    `counts` are the numbers of members and shards in the manifest, which the index must match.
    """

    def __init__(self, reader: Reader, blob: Blob, footer: Footer, counts: tuple[int, int] | None = None) -> None:
        self._reader = reader
        self._blob = blob
        self._footer = footer
        self._counts = counts
        reader.expect_size(blob_key(blob.hash), blob.byte_size)
        self._tail = (0, b"")
        self._prefetched: dict[int, memoryview] = {}
        self._prepared: set[int] = set()
        self._leaf = functools.lru_cache(maxsize=_CACHED_LEAVES)(self._read_leaf)
        self._inner = functools.lru_cache(maxsize=_CACHED_INNERS)(self._read_inner)

    @cached_property
    def _opened(self) -> tuple[Trailer, Inner]:
        size = self._footer.byte_size
        if size > MAX_INDEX_PAGE_BYTES + TRAILER.size:
            raise self._corrupt(f"its footer has {size} bytes")
        begin, (first, tail) = max(0, self._blob.byte_size - max(size, _TAIL_BYTES)), self._tail
        if not tail or begin < first:  # else `prepare` was first, and has read more
            self._tail = (begin, self._read(ByteRange(begin, self._blob.byte_size)))
        data = self._verified(self._blob.byte_size - size, size, int(self._footer.xxh3, 16))
        trailer = self._parsed(Trailer.parse, data[-TRAILER.size :])
        if trailer.root_bytes != len(data) - TRAILER.size or trailer.levels > INDEX_MAX_LEVELS:
            raise self._corrupt("its footer is inconsistent")
        found = (trailer.member_count, trailer.shard_count)
        if self._counts not in (None, found):
            raise self._corrupt(f"it has (members, shards) {found}, but the manifest states {self._counts}")
        return trailer, self._checked_inner(data[: -TRAILER.size], trailer.member_count)

    @property
    def member_count(self) -> int:
        return self._opened[0].member_count

    def find(self, path: str) -> Member | None:
        """Return the member, or None. Costs no request if its leaf is cached."""
        leaf = self._leaf_of(path)
        return None if leaf is None else self._leaf(leaf).find(path)

    def missing(self, paths: Iterable[str]) -> set[str]:
        """Return the paths that no member has. Looks up many in order, so that neighbours share their leaf."""
        absent: set[str] = set()
        leaf: Leaf | None = None
        end: bytes | None = b""
        for path in sorted(set(paths)):
            name = _encoded(path)
            if name is None:
                absent.add(path)
                continue
            if end is not None and name >= end:
                ref, end = self._leaf_before(name)
                leaf = None if ref is None else self._leaf(ref)
            if leaf is None or leaf.position_of(name) is None:
                absent.add(path)
        return absent

    def prepare(self, paths: Sequence[str]) -> None:
        """Fetch the pages for these look-ups together, instead of one at a time."""
        if len(paths) < _BATCH_PATHS or self._reader.is_local(blob_key(self._blob.hash)):
            return
        if self._blob.byte_size <= INDEX_WHOLE_BYTES:
            if len(self._tail[1]) < self._blob.byte_size:
                self._tail = (0, bytes(self._reader.read_range(blob_key(self._blob.hash), self._whole)))
            return
        leaves = {ref.offset: ref for path in paths if (ref := self._leaf_of(path)) is not None}
        missing = [leaves[offset] for offset in sorted(leaves) if offset not in self._prepared]
        if len(missing) > _CACHED_LEAVES:
            return
        if len(self._prepared) + len(missing) > _CACHED_LEAVES:
            self._prepared.clear()
        self._prepared.update(ref.offset for ref in missing)
        begin, tail = self._tail
        spans = [ByteRange(ref.offset, ref.offset + ref.byte_size) for ref in missing if ref.offset < begin or not tail]
        for span, data in zip(spans, self._reader.read_ranges(blob_key(self._blob.hash), spans), strict=True):
            self._prefetched[span.start] = data

    @property
    def _whole(self) -> ByteRange:
        return ByteRange(0, self._blob.byte_size)

    def _leaf_of(self, path: str) -> PageRef | None:
        """Return the leaf that may contain a member."""
        name = _encoded(path)
        return None if name is None else self._leaf_before(name)[0]

    def _leaf_before(self, name: bytes) -> tuple[PageRef | None, bytes | None]:
        """Return the leaf that may contain a name, and the first name of the leaf after it."""
        trailer, page = self._opened
        end: bytes | None = None
        for _ in range(trailer.levels):
            position = page.position_of(name)
            end = page.first_name(position + 1) or end
            if position < 0:
                return None, end
            page = self._inner(page.child(position))
        position = page.position_of(name)
        return (page.child(position) if position >= 0 else None), page.first_name(position + 1) or end

    def members(self, prefix: str = "", start: str = "") -> Iterator[Member]:
        """Yield members whose paths begin with `prefix`, in order of their UTF-8 bytes. Reads a page at a time.

        With `start`, those before it are left out, and pages that have only such members are not read.
        """
        trailer, root = self._opened
        wanted, first = _encoded(prefix), _encoded(start)
        if wanted is None or first is None:
            return
        for leaf in self._leaves_from(root, trailer.levels, max(wanted, first)):
            for position in range(leaf.position_from(max(wanted, first)), len(leaf)):
                name = leaf.name(position)
                if not name.startswith(wanted):
                    return
                yield self._checked_member(leaf, position, name)

    def scan(self) -> Iterator[tuple[Member, tuple[Chunk, ...]]]:
        """Yield all members in order, each with its chunks. A remote index is read in large parts."""
        index = self
        if not self._reader.is_local(blob_key(self._blob.hash)):
            index = MemberIndex(_PartReader(self._reader, self._blob), self._blob, self._footer, self._counts)
        for member in index.members():
            yield member, tuple(index.chunks(member)) if member.chunk_table else ()

    def chunks(self, member: Member) -> list[Chunk]:
        """Return the chunks of a large member."""
        size = -(-member.size_bytes // MEMBER_CHUNK_BYTES) * _CHUNK_ENTRY_BYTES
        return parse_chunks(self._verified(member.chunk_table, size, member.xxh3))

    def _leaves_from(self, page: Inner, levels: int, name: bytes) -> Iterator[Leaf]:
        """Yield leaves that may contain `name` or later names."""
        for position in range(max(page.position_of(name), 0), len(page)):
            child = page.child(position)
            if levels:
                yield from self._leaves_from(self._inner(child), levels - 1, name)
            else:
                yield self._leaf(child)

    def _checked_member(self, leaf: Leaf, position: int, name: bytes) -> Member:
        """Return a member with a checked path, because callers may use the path to write files."""
        try:
            member = leaf.member(position, name)
            check_member_path(member.path, self._blob.hash)
        except (UnicodeDecodeError, BadInputError) as error:
            raise self._corrupt(f"it lists a member {name!r}, which is not an allowed path") from error
        return member

    def _read_leaf(self, ref: PageRef) -> Leaf:
        leaf = self._parsed(Leaf, self._page(ref))
        if len(leaf) != ref.member_count:
            raise self._corrupt(f"a leaf has {len(leaf)} members, but its parent states {ref.member_count}")
        return leaf

    def _read_inner(self, ref: PageRef) -> Inner:
        return self._checked_inner(self._page(ref), ref.member_count)

    def _checked_inner(self, data: bytes, member_count: int) -> Inner:
        page = self._parsed(Inner, data)
        if len(page) > INDEX_INNER_ENTRIES:
            raise self._corrupt(f"a page lists {len(page)} pages")
        if page.member_count != member_count:
            raise self._corrupt(f"a page has {page.member_count} members below, but its parent states {member_count}")
        return page

    def _parsed(self, parse: Callable[[bytes], _T], data: bytes) -> _T:
        try:
            return parse(data)
        except CorruptError as error:
            raise self._corrupt(error.message) from error

    def _page(self, ref: PageRef) -> bytes:
        if ref.byte_size > MAX_INDEX_PAGE_BYTES:
            raise self._corrupt(f"a page has {ref.byte_size} bytes")
        return self._verified(ref.offset, ref.byte_size, ref.xxh3)

    def _verified(self, offset: int, size: int, xxh3: int) -> bytes:
        import xxhash

        if not 0 <= offset <= offset + size <= self._blob.byte_size:
            raise self._corrupt(f"it refers to bytes {offset}…{offset + size} of {self._blob.byte_size}")
        span = ByteRange(offset, offset + size)

        def read() -> bytes:
            data = self._read(span)
            if xxhash.xxh3_64_intdigest(data) != xxh3:
                raise self._corrupt(f"bytes {span.start}…{span.end} do not match their checksum")
            return data

        return retry_corrupt(read, self._invalidate)

    def _invalidate(self) -> bool:
        self._tail = (0, b"")
        return self._reader.invalidate(blob_key(self._blob.hash))

    def _read(self, span: ByteRange) -> bytes:
        """Read a range from prefetched pages, from the tail that came with the footer, or from the store."""
        prefetched = self._prefetched.pop(span.start, None)
        if prefetched is not None and len(prefetched) == span.size_bytes:
            return bytes(prefetched)
        begin, tail = self._tail
        if begin <= span.start and span.end <= begin + len(tail):
            return tail[span.start - begin : span.end - begin]
        return bytes(self._reader.read_range(blob_key(self._blob.hash), span))

    def _corrupt(self, fact: str) -> CorruptError:
        return CorruptError(
            f"member index {self._blob.hash} in {self._reader.url} is corrupt: {fact}",
            hint=REPAIR_HINT,
        )


class _PartReader(ReaderWrapper):
    """Reads ranges of one blob from aligned parts, and keeps the last few parts."""

    def __init__(self, reader: Reader, blob: Blob) -> None:
        super().__init__(reader)
        self._blob = blob
        self._part = functools.lru_cache(maxsize=_CACHED_PARTS)(self._read_part)

    def read_range(self, key: str, span: ByteRange) -> memoryview:
        first, last = span.start // _PART_BYTES, max(span.start, span.end - 1) // _PART_BYTES
        data = b"".join(self._part(number) for number in range(first, last + 1))
        return memoryview(data)[span.start - first * _PART_BYTES : span.end - first * _PART_BYTES]

    def invalidate(self, key: str) -> bool:
        self._part.cache_clear()
        return self._reader.invalidate(key)

    def _read_part(self, number: int) -> bytes:
        end = min((number + 1) * _PART_BYTES, self._blob.byte_size)
        return bytes(self._reader.read_range(blob_key(self._blob.hash), ByteRange(number * _PART_BYTES, end)))


def _encoded(path: str) -> bytes | None:
    """Encode a path. None for an unpaired surrogate, which no member path has."""
    try:
        return path.encode()
    except UnicodeEncodeError:
        return None
