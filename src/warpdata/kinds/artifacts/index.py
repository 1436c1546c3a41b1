"""Member → place, read by range: opening costs one small read, a member one page per level.

Every page is checked against the checksum its parent promised, up to the footer, which the manifest
vouches for. How many pages are remembered is bounded, so that ten million members cost the memory of
a few thousand. Implements "Looking up" of docs/specs/artifacts.md.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from warpdata.errors import BlobCorruptedError, InvalidNameError
from warpdata.kinds.artifacts.index_pages import TRAILER, Inner, Leaf, PageRef, Trailer, parse_chunks
from warpdata.kinds.artifacts.member import Chunk, Member
from warpdata.kinds.artifacts.names import check_member_path
from warpdata.limits import (
    INDEX_INNER_ENTRIES,
    INDEX_MAX_LEVELS,
    INDEX_REMEMBERED_INNERS,
    INDEX_REMEMBERED_LEAVES,
    INDEX_TAIL_BYTES,
    INDEX_WHOLE_BYTES,
    MAX_INDEX_PAGE_BYTES,
    MEMBER_CHUNK_BYTES,
)
from warpdata.primitives.cached_property import cached_property
from warpdata.primitives.hashing import Blob, blob_key
from warpdata.repository.manifest import Footer
from warpdata.storage import ByteRange, Reader

__all__ = ["MemberIndex"]

_CHUNK_ENTRY_BYTES = 16
_TRIES = 2
"""Once more where a nearer copy was to blame, and not for ever where the store is."""
_MANY = 8
_T = TypeVar("_T")


class MemberIndex:
    """The index of one artifact. Opened on first use; safe to share between threads.

    `counts` are the members and shards that the manifest promises; without them, the index is believed.
    """

    def __init__(self, reader: Reader, blob: Blob, footer: Footer, counts: tuple[int, int] | None = None) -> None:
        self._reader = reader
        self._blob = blob
        self._footer = footer
        self._counts = counts
        self._tail = (0, b"")
        self._staged: dict[int, memoryview] = {}
        self._brought: set[int] = set()
        self._leaf = functools.lru_cache(maxsize=INDEX_REMEMBERED_LEAVES)(self._read_leaf)
        self._inner = functools.lru_cache(maxsize=INDEX_REMEMBERED_INNERS)(self._read_inner)

    @cached_property
    def _opened(self) -> tuple[Trailer, Inner]:
        size = self._footer.byte_size
        if size > MAX_INDEX_PAGE_BYTES + TRAILER.size:
            raise self._damaged(f"its footer has {size} bytes")
        begin = max(0, self._blob.byte_size - max(size, INDEX_TAIL_BYTES))
        self._tail = (begin, self._read(ByteRange(begin, self._blob.byte_size)))
        data = self._verified(self._blob.byte_size - size, size, int(self._footer.xxh3, 16))
        trailer = self._parsed(Trailer.parse, data[-TRAILER.size :])
        if trailer.root_bytes != len(data) - TRAILER.size or trailer.levels > INDEX_MAX_LEVELS:
            raise self._damaged("its footer contradicts itself")
        found = (trailer.member_count, trailer.shard_count)
        if self._counts not in (None, found):
            raise self._damaged(f"it has (members, shards) {found}, and the manifest says {self._counts}")
        return trailer, self._checked_inner(data[: -TRAILER.size], trailer.member_count)

    @property
    def member_count(self) -> int:
        return self._opened[0].member_count

    def find(self, path: str) -> Member | None:
        """Where the member lies, or None. Costs no request once its leaf is remembered."""
        leaf = self._leaf_of(path)
        return None if leaf is None else self._leaf(leaf).find(path)

    def prepare(self, paths: Sequence[str]) -> None:
        """Have what looking these up takes brought at once, instead of a page at a time."""
        if len(paths) < _MANY or self._reader.is_local(blob_key(self._blob.hash)):
            return
        if self._blob.byte_size <= INDEX_WHOLE_BYTES:
            if len(self._tail[1]) < self._blob.byte_size:
                self._tail = (0, bytes(self._reader.read_range(blob_key(self._blob.hash), self._whole)))
            return
        leaves = {ref.offset: ref for path in paths if (ref := self._leaf_of(path)) is not None}
        missing = [leaves[offset] for offset in sorted(leaves) if offset not in self._brought]
        if len(missing) > INDEX_REMEMBERED_LEAVES:
            return
        if len(self._brought) + len(missing) > INDEX_REMEMBERED_LEAVES:
            self._brought.clear()
        self._brought.update(ref.offset for ref in missing)
        begin, tail = self._tail
        spans = [ByteRange(ref.offset, ref.offset + ref.byte_size) for ref in missing if ref.offset < begin or not tail]
        for span, data in zip(spans, self._reader.read_ranges(blob_key(self._blob.hash), spans), strict=True):
            self._staged[span.start] = data

    @property
    def _whole(self) -> ByteRange:
        return ByteRange(0, self._blob.byte_size)

    def _leaf_of(self, path: str) -> PageRef | None:
        """The leaf that would hold a member."""
        trailer, page = self._opened
        name = _encoded(path)
        if name is None:
            return None
        for _ in range(trailer.levels):
            position = page.position_of(name)
            if position < 0:
                return None
            page = self._inner(page.child(position))
        position = page.position_of(name)
        return page.child(position) if position >= 0 else None

    def members(self, prefix: str = "") -> Iterator[Member]:
        """Members whose paths begin with `prefix`, in order of their paths' bytes, a page at a time."""
        trailer, root = self._opened
        wanted = _encoded(prefix)
        if wanted is None:
            return
        for leaf in self._leaves_from(root, trailer.levels, wanted):
            for position in range(len(leaf)):
                name = leaf.name(position)
                if name.startswith(wanted):
                    yield self._checked_member(leaf, position)
                elif name > wanted:
                    return

    def chunks(self, member: Member) -> list[Chunk]:
        """The chunks of a large member."""
        size = -(-member.size_bytes // MEMBER_CHUNK_BYTES) * _CHUNK_ENTRY_BYTES
        return parse_chunks(self._verified(member.chunk_table, size, member.xxh3))

    def _leaves_from(self, page: Inner, levels: int, name: bytes) -> Iterator[Leaf]:
        """Leaves that may hold `name` or what stands after it."""
        for position in range(max(page.position_of(name), 0), len(page)):
            child = page.child(position)
            if levels:
                yield from self._leaves_from(self._inner(child), levels - 1, name)
            else:
                yield self._leaf(child)

    def _checked_member(self, leaf: Leaf, position: int) -> Member:
        """Names are handed to people who may make files of them, so the writer is not simply believed."""
        try:
            member = leaf.member(position)
            check_member_path(member.path, self._blob.hash)
        except (UnicodeDecodeError, InvalidNameError) as error:
            raise self._damaged(f"it lists a member {leaf.name(position)!r}, which is no allowed name") from error
        return member

    def _read_leaf(self, ref: PageRef) -> Leaf:
        leaf = self._parsed(Leaf, self._page(ref))
        if len(leaf) != ref.member_count:
            raise self._damaged(f"a leaf has {len(leaf)} members where {ref.member_count} are promised")
        return leaf

    def _read_inner(self, ref: PageRef) -> Inner:
        return self._checked_inner(self._page(ref), ref.member_count)

    def _checked_inner(self, data: bytes, member_count: int) -> Inner:
        page = self._parsed(Inner, data)
        if len(page) > INDEX_INNER_ENTRIES:
            raise self._damaged(f"a page lists {len(page)} others")
        if page.member_count != member_count:
            raise self._damaged(f"a page does not have the {member_count} members below it that are promised")
        return page

    def _parsed(self, parse: Callable[[bytes], _T], data: bytes) -> _T:
        try:
            return parse(data)
        except BlobCorruptedError as error:
            raise self._damaged(error.message) from error

    def _page(self, ref: PageRef) -> bytes:
        if ref.byte_size > MAX_INDEX_PAGE_BYTES:
            raise self._damaged(f"a page has {ref.byte_size} bytes")
        return self._verified(ref.offset, ref.byte_size, ref.xxh3)

    def _verified(self, offset: int, size: int, xxh3: int) -> bytes:
        import xxhash

        if not 0 <= offset <= offset + size <= self._blob.byte_size:
            raise self._damaged(f"it points at bytes {offset}…{offset + size} of {self._blob.byte_size}")
        span = ByteRange(offset, offset + size)
        key = blob_key(self._blob.hash)
        for _ in range(_TRIES):
            data = self._read(span)
            if xxhash.xxh3_64_intdigest(data) == xxh3:
                return data
            self._tail = (0, b"")
            if not self._reader.invalidate(key):
                break
        raise self._damaged(f"bytes {span.start}…{span.end} do not have their checksum")

    def _read(self, span: ByteRange) -> bytes:
        """From the end of the index, which came with the footer, from what was brought for it, or from the store."""
        staged = self._staged.pop(span.start, None)
        if staged is not None and len(staged) == span.size_bytes:
            return bytes(staged)
        begin, tail = self._tail
        if begin <= span.start and span.end <= begin + len(tail):
            return tail[span.start - begin : span.end - begin]
        return bytes(self._reader.read_range(blob_key(self._blob.hash), span))

    def _damaged(self, fact: str) -> BlobCorruptedError:
        return BlobCorruptedError(
            f"member index {self._blob.hash} in {self._reader.url} is damaged: {fact}",
            hint="Publish it again, or restore the store.",
        )


def _encoded(path: str) -> bytes | None:
    """None for half a surrogate pair: it has no UTF-8, so that no member is called so."""
    try:
        return path.encode()
    except UnicodeEncodeError:
        return None
