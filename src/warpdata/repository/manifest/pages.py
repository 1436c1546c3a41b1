"""Long shard lists as trees of content-addressed pages. Pure: callers load and store the bytes of pages.

Pages are cut by content: a hash ends a page, within a minimum and a maximum. So the same list always has the same
pages, an append rewrites only the right edge of the tree, and a change in the middle rewrites only the pages around
it. Implements "Pages" of docs/specs/manifest.md.
"""

from __future__ import annotations

import functools
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
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
from warpdata.repository.manifest.codec import check_shard, page_json, shard_json
from warpdata.repository.manifest.model import Ids, Page, Shard, ShardList

if TYPE_CHECKING:
    from _typeshed import SupportsLenAndGetItem

__all__ = [
    "LoadPage",
    "LocatedShard",
    "PagedShards",
    "RowsKey",
    "ShardLookup",
    "edit_shards",
    "extend_shards",
    "iter_located",
    "iter_rows",
    "iter_shards",
    "iter_tail",
    "lowest_pages",
    "open_page",
    "page_shards",
]

LoadPage: TypeAlias = Callable[[Page], bytes]
"""Fetches the bytes of a page and verifies their hash."""

OpenEach: TypeAlias = "Callable[[Callable[[Page], _Listed], Sequence[Page]], Iterable[_Listed]]"
"""Like `map`: applies a function to pages, perhaps several at a time."""

RowsKey: TypeAlias = "tuple[str, Ids | int]"
"""The stored rows of a shard and their sample ids: the hash, and the ids or the number of stored rows before it."""

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


def edit_shards(
    old: ShardList,
    changes: Mapping[int, Shard | None],
    added: Sequence[Shard],
    load_page: LoadPage,
    *,
    inline_limit: int = INLINE_SHARDS,
) -> PagedShards:
    """Replace shards by position, remove those that change to None, and append others.

    The result equals paging the whole new list. Loads only pages with changes, those after them up to the next
    boundary by hash, and all pages above the lowest level.
    """
    removed = sum(shard is None for shard in changes.values())
    if old.levels == 0 or old.shard_count - removed + len(added) <= inline_limit:
        kept = (changes.get(at, shard) for at, shard in enumerate(iter_shards(old, load_page)))
        return page_shards((*(shard for shard in kept if shard is not None), *added), inline_limit=inline_limit)
    built: dict[str, bytes] = {}
    lowest = lowest_pages(old, load_page)
    paged = _with_levels(_edit_pages(lowest, changes, added, load_page, built), 1, built)
    known = {page.hash for page in lowest}
    return PagedShards(paged.shards, {digest: data for digest, data in built.items() if digest not in known})


def lowest_pages(shards: ShardList, load_page: LoadPage) -> list[Page]:
    """Return the pages that list shards, in order. Loads only the pages above them."""
    pages = list(shards.pages)
    for level in range(shards.levels - 1, 0, -1):
        pages = [
            below for page in pages for below in open_page(page, load_page(page), level) if isinstance(below, Page)
        ]
    return pages


def _edit_pages(
    pages: Sequence[Page],
    changes: Mapping[int, Shard | None],
    added: Sequence[Shard],
    load_page: LoadPage,
    built: dict[str, bytes],
) -> list[Page]:
    """Return the pages of the changed list. Pages stay as they are while the cuts before them do."""
    wanted = sorted(changes)
    out: list[Page] = []
    pending: list[Shard] = []
    start = 0
    for number, page in enumerate(pages):
        is_touched = bisect_left(wanted, start) < bisect_left(wanted, start + page.shard_count)
        is_open = number == len(pages) - 1 and bool(added)
        if pending or is_touched or is_open:
            listed = enumerate(open_page(page, load_page(page), 0), start)
            kept = (changes.get(at, shard) for at, shard in listed)
            pending += (shard for shard in kept if isinstance(shard, Shard))
            closed, pending = _split_closed(pending)
            out += _close_pages(closed, 0, built)
        else:
            out.append(page)
        start += page.shard_count
    return [*out, *_close_pages([*pending, *added], 0, built)]


def _split_closed(entries: list[Shard]) -> tuple[list[Shard], list[Shard]]:
    """Split a list after the last entry that ends a page."""
    ends = [*_page_ends(entries)]
    at = ends[-1] if ends else 0
    return entries[:at], entries[at:]


def iter_shards(shards: ShardList, load_page: LoadPage) -> Iterator[Shard]:
    """Yield every shard in order. Loads one page at a time."""
    for _, shard in iter_rows(shards, load_page, 0, None):
        yield shard


def iter_tail(shards: ShardList, load_page: LoadPage) -> Iterator[Shard]:
    """Yield every shard, the last one first. Loads one page at a time."""
    yield from reversed(shards.shards)
    for page in reversed(lowest_pages(shards, load_page)) if shards.levels else ():
        yield from (entry for entry in reversed(open_page(page, load_page(page), 0)) if isinstance(entry, Shard))


def iter_rows(shards: ShardList, load_page: LoadPage, start: int, stop: int | None) -> Iterator[tuple[int, Shard]]:
    """Yield the shards with any of the rows [start, stop), each with the number of its first row.

    Pages outside the rows are not loaded. With `start` 0 and `stop` None, empty shards are included.
    """
    yield from _walk(shards.pages if shards.levels else shards.shards, shards.levels, load_page, 0, start, stop)


@dataclass(frozen=True, slots=True)
class LocatedShard:
    """A shard with its position in the list, and the rows and stored rows before it."""

    index: int
    first_row: int
    first_stored_row: int
    shard: Shard

    @property
    def rows_key(self) -> RowsKey:
        """Shards with equal keys have the same stored rows, with the same sample ids."""
        return self.shard.hash, self.first_stored_row if self.shard.ids is None else self.shard.ids


def iter_located(
    shards: ShardList, load_page: LoadPage, rows: SupportsLenAndGetItem[int] | None = None
) -> Iterator[LocatedShard]:
    """Yield the shards with any of these ascending rows; without rows, every shard. Other pages are not loaded."""
    top = shards.pages if shards.levels else shards.shards
    yield from _walk_located(top, shards.levels, load_page, (0, 0, 0), rows)


def _walk_located(
    entries: Sequence[Shard] | Sequence[Page],
    level: int,
    load_page: LoadPage,
    start: tuple[int, int, int],
    rows: SupportsLenAndGetItem[int] | None,
) -> Iterator[LocatedShard]:
    index, first_row, first_stored_row = start
    for entry in entries:
        count = entry.row_count or 0
        at = bisect_left(rows, first_row) if rows is not None and count else 0
        if rows is None or (count and at < len(rows) and rows[at] < first_row + count):
            if isinstance(entry, Page):
                inner = open_page(entry, load_page(entry), level - 1)
                before = (index, first_row, first_stored_row)
                yield from _walk_located(inner, level - 1, load_page, before, rows)
            else:
                yield LocatedShard(index, first_row, first_stored_row, entry)
        index += entry.shard_count if isinstance(entry, Page) else 1
        first_row, first_stored_row = first_row + count, first_stored_row + entry.stored_count


class ShardLookup:
    """Finds shards by position or row. Caches decoded pages, so that neighbouring look-ups cost no decoding."""

    def __init__(self, shards: ShardList, load_page: LoadPage) -> None:
        self._shards = shards
        self._count = shards.shard_count
        self._top = _Listed.of(shards.pages or shards.shards)
        self._open = functools.lru_cache(maxsize=_CACHED_PAGES)(
            lambda page, level: _Listed.of(open_page(page, load_page(page), level))
        )

    def __len__(self) -> int:
        return self._count

    def at(self, position: int) -> Shard:
        """Return the shard at a position. Raise `BadInputError` if the list is shorter."""
        if not 0 <= position < len(self):
            raise BadInputError(f"there is no shard {position}: the list has {len(self)}")
        listed, level = self._top, self._shards.levels
        while True:
            at = bisect_right(listed.firsts, position) - 1 if level else position
            entry = listed.entries[at]
            if isinstance(entry, Shard):
                return entry
            position -= listed.firsts[at]
            level -= 1
            listed = self._open(entry, level)

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
    """The entries of a page, and the first row of each. The last start is the number of rows.

    `firsts` are the positions of the first shard below each page; none for a page of shards.
    """

    entries: Sequence[Shard] | Sequence[Page]
    starts: list[int]
    firsts: list[int]

    @staticmethod
    def of(entries: Sequence[Shard] | Sequence[Page]) -> _Listed:
        starts = [*accumulate((entry.row_count or 0 for entry in entries), initial=0)]
        counts = (entry.shard_count for entry in entries if isinstance(entry, Page))
        return _Listed(entries, starts, [*accumulate(counts, initial=0)][:-1])

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
    ends: list[int] = [*_page_ends(entries)]
    if entries and (not ends or ends[-1] < len(entries)):
        ends.append(len(entries))
    return [_make_page(entries[start:end], level, built) for start, end in pairwise([0, *ends])]


def _page_ends(entries: Sequence[_Entry]) -> Iterator[int]:
    """Yield the position after each entry that ends a page."""
    start = 0
    for position, entry in enumerate(entries):
        count = position + 1 - start
        is_boundary = count >= PAGE_MIN_ENTRIES and int(entry.hash[:8], 16) % PAGE_TARGET_ENTRIES == 0
        if is_boundary or count == PAGE_MAX_ENTRIES:
            yield position + 1
            start = position + 1


def _make_page(entries: Sequence[_Entry], level: int, built: dict[str, bytes]) -> Page:
    listed: list[Json] = [page_json(entry) if isinstance(entry, Page) else shard_json(entry) for entry in entries]
    version = max(entry.format for entry in entries)
    data = canonical_json({"format": version, "level": level, "entries": listed})
    digest = sha256_hex(data)
    page = Page(
        hash=digest,
        byte_size=len(data),
        shard_count=sum(entry.shard_count if isinstance(entry, Page) else 1 for entry in entries),
        row_count=sum(entry.row_count or 0 for entry in entries),
        data_bytes=sum(entry.data_bytes for entry in entries),
        deleted_count=sum(entry.deleted_count for entry in entries),
        format=version,
    )
    try:
        open_page(page, data, level)  # never store what no reader could parse
    except ManifestCorruptedError as error:
        raise BadInputError(f"a shard list cannot be stored: {error.message}") from error
    built[digest] = data
    return page


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
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ManifestCorruptedError(f"page {page.hash} cannot be decoded: {error}") from error
    found = (document.format, document.level, sums.shard_count, sums.row_count, sums.data_bytes, sums.deleted_count)
    promised = (page.format, level, page.shard_count, page.row_count, page.data_bytes, page.deleted_count)
    sizes = [number for e in entries for number in (e.byte_size, e.row_count or 0)]
    if found != promised or min(sizes, default=0) < 0 or not are_digests([e.hash for e in entries]):
        raise ManifestCorruptedError(f"page {page.hash} does not match its reference")
    if document.format != max((e.format for e in entries), default=1):
        raise ManifestCorruptedError(f"page {page.hash} has format {document.format}, which its entries do not need")
    for entry in entries:
        if entry.format != 1:
            _check_entry(page, entry)
    return entries


def _check_entry(page: Page, entry: Shard | Page) -> None:
    if isinstance(entry, Page):
        problems = [] if entry.format == 2 and entry.deleted_count >= 0 else [("format", f"is {entry.format}")]
    else:
        problems = list(check_shard(entry))
    for member, problem in problems:
        raise ManifestCorruptedError(f"page {page.hash}: `{member}` of entry {entry.hash} {problem}")
