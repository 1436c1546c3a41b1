"""Long shard lists as trees of content-addressed pages. Pure: callers load and store the bytes of pages.

Pages are cut by content: a hash ends a page, within a minimum and a maximum. So the same list always has the same
pages, an append rewrites only the right edge of the tree, and a change in the middle rewrites only the pages around
it. Implements "Pages" of docs/specs/manifest.md.
"""

from __future__ import annotations

import functools
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import msgspec

from warpdata.errors import BadInputError, ManifestCorruptedError
from warpdata.limits import (
    INLINE_SHARDS,
    MAX_PAGE_LEVELS,
    MAX_TOP_PAGES,
    PAGE_MAX_ENTRIES,
    PAGE_MIN_ENTRIES,
    PAGE_TARGET_ENTRIES,
)
from warpdata.primitives.hashing import are_digests, sha256_hex
from warpdata.repository.manifest.canonical import Json, canonical_json
from warpdata.repository.manifest.model import Page, Shard, ShardList

if TYPE_CHECKING:
    from _typeshed import SupportsLenAndGetItem

__all__ = [
    "LoadPage",
    "PagedShards",
    "ShardLookup",
    "extend_shards",
    "iter_rows",
    "iter_shards",
    "open_page",
    "page_json",
    "page_shards",
    "shard_json",
]

LoadPage: TypeAlias = Callable[[Page], bytes]
"""Fetches the bytes of a page and verifies their hash."""

OpenEach: TypeAlias = "Callable[[Callable[[Page], _Listed], Sequence[Page]], Iterable[_Listed]]"
"""Like `map`: applies a function to pages, perhaps several at a time."""

_CACHED_PAGES = 64
_Entry = TypeVar("_Entry", Shard, Page)


@dataclass(frozen=True, slots=True)
class PagedShards:
    """A shard list, and those of its page blobs that may not be stored yet."""

    shards: ShardList
    new_pages: dict[str, bytes]


class _PageDocument(msgspec.Struct, forbid_unknown_fields=True):
    format: int
    level: int
    entries: msgspec.Raw


def page_shards(shards: Iterable[Shard], *, inline_limit: int = INLINE_SHARDS) -> PagedShards:
    """Build the list of these shards."""
    listed = tuple(shards)
    if len(listed) <= inline_limit:
        return PagedShards(ShardList(shards=listed), {})
    built: dict[str, bytes] = {}
    return _with_levels(_close_pages(listed, 0, built), 1, built)


def extend_shards(
    old: ShardList, added: Sequence[Shard], load_page: LoadPage, *, inline_limit: int = INLINE_SHARDS
) -> PagedShards:
    """Append shards. The result equals paging the whole list, but only the right edge is loaded and rebuilt."""
    if old.levels == 0 or old.shard_count + len(added) <= inline_limit:
        return page_shards((*iter_shards(old, load_page), *added), inline_limit=inline_limit)
    if not added:
        return PagedShards(old, {})
    built: dict[str, bytes] = {}
    top = _extend_edge(old.pages, old.levels - 1, added, load_page, built)
    return _with_levels(top, old.levels, built)


def iter_shards(shards: ShardList, load_page: LoadPage) -> Iterator[Shard]:
    """Yield every shard in order. Loads one page at a time."""
    for _, shard in iter_rows(shards, load_page, 0, None):
        yield shard


def iter_rows(shards: ShardList, load_page: LoadPage, start: int, stop: int | None) -> Iterator[tuple[int, Shard]]:
    """Yield the shards with any of the rows [start, stop), each with the number of its first row.

    Pages outside the rows are not loaded. With `start` 0 and `stop` None, empty shards are included.
    """
    yield from _walk(shards.pages if shards.levels else shards.shards, shards.levels, load_page, 0, start, stop)


class ShardLookup:
    """Finds shards by position or row. Caches decoded pages, so that neighbouring look-ups cost no decoding."""

    def __init__(self, shards: ShardList, load_page: LoadPage) -> None:
        self._shards = shards
        self._top = _Listed.of(shards.pages or shards.shards)
        self._open = functools.lru_cache(maxsize=_CACHED_PAGES)(
            lambda page, level: _Listed.of(open_page(page, load_page(page), level))
        )

    def __len__(self) -> int:
        return self._shards.shard_count

    def at(self, position: int) -> Shard:
        """Return the shard at a position. Raise `BadInputError` if the list is shorter."""
        if not 0 <= position < len(self):
            raise BadInputError(f"there is no shard {position}: the list has {len(self)}")
        listed, level = self._top, self._shards.levels
        while True:
            entries = listed.entries
            for entry in entries if level else entries[position : position + 1]:
                if isinstance(entry, Shard):
                    return entry
                if position < entry.shard_count:
                    level -= 1
                    listed = self._open(entry, level)
                    break
                position -= entry.shard_count

    def holding(self, row: int) -> tuple[int, Shard]:
        """Return the shard with a row, after the number of its first row. Raise `BadInputError` beyond the end."""
        if not 0 <= row < self._shards.row_count:
            raise BadInputError(f"there is no row {row}: the list has {self._shards.row_count}")
        listed, level, first_row = self._top, self._shards.levels, 0
        while True:
            position = listed.holding(row - first_row)
            entry = listed.entries[position]
            first_row += listed.starts[position]
            if isinstance(entry, Shard):
                return first_row, entry
            level -= 1
            listed = self._open(entry, level)

    def prepare(self, rows: SupportsLenAndGetItem[int], each: OpenEach) -> None:
        """Load the pages with any of these ascending rows into the cache, by way of `each`.

        Loads at most as many pages as the cache holds; `holding` loads the others.
        """
        listed = [(0, self._top)]
        for level in range(self._shards.levels - 1, -1, -1):
            touched = [
                (first + start, page)
                for first, inside in listed
                for start, page in inside.between(rows, first)
                if isinstance(page, Page)
            ][:_CACHED_PAGES]
            opened = each(functools.partial(self._open_below, level), [page for _, page in touched])
            listed = [(first, inside) for (first, _), inside in zip(touched, opened, strict=True)]

    def _open_below(self, level: int, page: Page) -> _Listed:
        return self._open(page, level)


@dataclass(frozen=True, slots=True)
class _Listed:
    """The entries of a page, and the first row of each. The last start is the number of rows."""

    entries: Sequence[Shard] | Sequence[Page]
    starts: list[int]

    @staticmethod
    def of(entries: Sequence[Shard] | Sequence[Page]) -> _Listed:
        return _Listed(entries, [*accumulate((entry.row_count or 0 for entry in entries), initial=0)])

    def holding(self, row: int) -> int:
        """Return the position of the entry with a row. Entries without rows are skipped."""
        return bisect_right(self.starts, row) - 1

    def between(self, rows: SupportsLenAndGetItem[int], first_row: int) -> Iterator[tuple[int, Shard | Page]]:
        """Yield the entries with any of these ascending rows, each with its start. The page begins at `first_row`."""
        at, end = bisect_left(rows, first_row), first_row + self.starts[-1]
        while at < len(rows) and rows[at] < end:
            position = self.holding(rows[at] - first_row)
            yield self.starts[position], self.entries[position]
            at = bisect_left(rows, first_row + self.starts[position + 1], at)


def _walk(
    entries: Sequence[Shard] | Sequence[Page],
    level: int,
    load_page: LoadPage,
    first_row: int,
    start: int,
    stop: int | None,
) -> Iterator[tuple[int, Shard]]:
    for entry in entries:
        rows = entry.row_count or 0
        unbounded = start == 0 and stop is None
        if unbounded or (first_row + rows > start and (stop is None or first_row < stop)):
            if isinstance(entry, Page):
                inner = open_page(entry, load_page(entry), level - 1)
                yield from _walk(inner, level - 1, load_page, first_row, start, stop)
            else:
                yield first_row, entry
        first_row += rows


def _extend_edge(
    pages: Sequence[Page], level: int, added: Sequence[Shard], load_page: LoadPage, built: dict[str, bytes]
) -> list[Page]:
    """Rebuild the last page, which may not be full. At `level` 0, pages list shards."""
    *kept, last = pages
    inner = open_page(last, load_page(last), level)
    if level == 0:
        grown = [entry for entry in inner if isinstance(entry, Shard)]
        return [*kept, *_close_pages([*grown, *added], 0, built)]
    below = [entry for entry in inner if isinstance(entry, Page)]
    return [*kept, *_close_pages(_extend_edge(below, level - 1, added, load_page, built), level, built)]


def _with_levels(top: list[Page], levels: int, built: dict[str, bytes]) -> PagedShards:
    while len(top) > MAX_TOP_PAGES:
        if levels == MAX_PAGE_LEVELS:
            raise BadInputError(f"a shard list needs more than {MAX_PAGE_LEVELS} levels of pages")
        top = _close_pages(top, levels, built)
        levels += 1
    return PagedShards(ShardList(pages=tuple(top), levels=levels), built)


def _close_pages(entries: Sequence[_Entry], level: int, built: dict[str, bytes]) -> list[Page]:
    """Cut entries into pages and add the bytes of each page to `built`."""
    pages: list[Page] = []
    start = 0
    for position, entry in enumerate(entries):
        count = position + 1 - start
        ends = count >= PAGE_MIN_ENTRIES and int(entry.hash[:8], 16) % PAGE_TARGET_ENTRIES == 0
        if ends or count == PAGE_MAX_ENTRIES:
            pages.append(_make_page(entries[start : position + 1], level, built))
            start = position + 1
    if start < len(entries):
        pages.append(_make_page(entries[start:], level, built))
    return pages


def _make_page(entries: Sequence[_Entry], level: int, built: dict[str, bytes]) -> Page:
    listed: list[Json] = [page_json(entry) if isinstance(entry, Page) else shard_json(entry) for entry in entries]
    data = canonical_json({"format": 1, "level": level, "entries": listed})
    digest = sha256_hex(data)
    page = Page(
        hash=digest,
        byte_size=len(data),
        shard_count=sum(entry.shard_count if isinstance(entry, Page) else 1 for entry in entries),
        row_count=sum(entry.row_count or 0 for entry in entries),
        data_bytes=sum(entry.data_bytes if isinstance(entry, Page) else entry.byte_size for entry in entries),
    )
    try:
        open_page(page, data, level)  # never store what no reader could parse
    except ManifestCorruptedError as error:
        raise BadInputError(f"a shard list cannot be stored: {error.message}") from error
    built[digest] = data
    return page


def shard_json(shard: Shard) -> dict[str, Json]:
    """Encode a shard, for manifests and pages."""
    out: dict[str, Json] = {"hash": shard.hash, "byte_size": shard.byte_size}
    if shard.row_count is not None:
        out["row_count"] = shard.row_count
    if shard.footer is not None:
        out["footer"] = {"byte_size": shard.footer.byte_size, "xxh3": shard.footer.xxh3}
    return out


def page_json(page: Page) -> dict[str, Json]:
    """Encode a page reference, for manifests and pages."""
    return {
        "hash": page.hash,
        "byte_size": page.byte_size,
        "shard_count": page.shard_count,
        "row_count": page.row_count,
        "data_bytes": page.data_bytes,
    }


def open_page(page: Page, data: bytes, level: int) -> list[Shard] | list[Page]:
    """Return the entries of a page, checked against the sums of its reference."""
    entries: list[Shard] | list[Page]
    try:
        document = msgspec.json.decode(data, type=_PageDocument)
        if document.level == 0:
            entries = shards = msgspec.json.decode(document.entries, type=list[Shard])
            sums = ShardList(shards=tuple(shards))
        else:
            entries = pages = msgspec.json.decode(document.entries, type=list[Page])
            sums = ShardList(pages=tuple(pages))
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ManifestCorruptedError(f"page {page.hash} cannot be decoded: {error}") from error
    found = (document.format, document.level, sums.shard_count, sums.row_count, sums.data_bytes)
    promised = (1, level, page.shard_count, page.row_count, page.data_bytes)
    sizes = [number for e in entries for number in (e.byte_size, e.row_count or 0)]
    if found != promised or min(sizes, default=0) < 0 or not are_digests([e.hash for e in entries]):
        raise ManifestCorruptedError(f"page {page.hash} does not match its reference")
    return entries
