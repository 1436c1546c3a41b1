"""Rows of a row group that cannot match a filter, by bloom filters and the page index of the file.

Neither has a checksum. So they are used only for columns whose pages have none either: otherwise damage that reading
the pages would find could hide rows. What does not fit the verified footer is ignored. Implements "Bloom filters" and
"Page index" of docs/specs/tables.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from warpdata.formats.parquet.bloom_filter import BloomFilter, encode_value, parse_bloom_filter
from warpdata.formats.parquet.layout import ShardLayout
from warpdata.formats.parquet.page_index import PageBounds, find_candidates, parse_column_index
from warpdata.formats.parquet.page_table import parse_offset_index, read_header
from warpdata.limits import KIB, MAX_BLOOM_FILTER_BYTES, MIB
from warpdata.primitives.byte_lru import ByteLRU
from warpdata.primitives.ranges import ByteRange
from warpdata.query import Bounds, Predicate, columns_of, required_values

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["GroupPruner", "ReadRanges"]

ReadRanges: TypeAlias = Callable[[Sequence[ByteRange]], "Sequence[bytes | memoryview]"]

_CACHE_BYTES = 32 * MIB
_MAX_VALUES = 256
_MIN_ROWS = 16 * 1024
"""A smaller row group is decoded as fast as it is pruned."""
_MIN_REMOTE_BYTES = MIB
"""A remote filter column of fewer bytes is fetched whole: asking first would cost another request."""
_MAX_INDEX_SHARE = 0.25
_MAX_CANDIDATE_SHARE = 0.25
_BOUNDS_BYTES = 200
_HEAD_BYTES = 1024

_blooms: ByteLRU[tuple[str, int, int], BloomFilter] = ByteLRU(_CACHE_BYTES)
_pages: ByteLRU[tuple[str, int, int], PageBounds] = ByteLRU(_CACHE_BYTES)


class GroupPruner:
    """Prunes row groups of one file. `digest` names the file; `read` returns ranges of it."""

    def __init__(self, digest: str, layout: ShardLayout, read: ReadRanges, *, is_local: bool) -> None:
        self._digest = digest
        self._layout = layout
        self._read = read
        self._is_local = is_local

    def rules_out(self, group: int, predicate: Predicate) -> bool:
        """Return True if bloom filters prove that no row matches."""
        for name, values in required_values(predicate):
            leaf = self._usable_leaf(group, name)
            if (
                leaf is None
                or len(values) > _MAX_VALUES
                or self._layout.footer.chunks[group][leaf].bloom_filter is None
            ):
                continue
            arrow_type, physical = self._layout.schema.field(name).type, self._layout.footer.leaves[leaf].physical_type
            encoded = [encode_value(value, arrow_type, physical) for value in values]
            if any(each is None for each in encoded):
                continue
            bloom = self._bloom(group, leaf)
            if bloom is not None and not any(bloom.may_have(each) for known in encoded for each in known or ()):
                return True
        return False

    def candidates(self, group: int, predicate: Predicate) -> NDArray[np.int64] | None:
        """Return the rows of the pages that may have a match; None if the page index does not help."""
        columns = {}
        for name in sorted(columns_of(predicate)):
            leaf = self._usable_leaf(group, name)
            pages = None if leaf is None else self._page_bounds(group, leaf, name)
            if pages is not None:
                columns[name] = pages
        if not columns:
            return None
        rows = find_candidates(predicate, columns)
        return rows if len(rows) <= _MAX_CANDIDATE_SHARE * self._layout.footer.group_rows[group] else None

    def _usable_leaf(self, group: int, name: str) -> int | None:
        """Return the leaf column of a column of this row group, if pruning can save much."""
        leaf = self._layout.flat_leaf(name)
        if leaf is None or self._layout.footer.group_rows[group] < _MIN_ROWS:
            return None
        size_bytes = self._layout.footer.chunks[group][leaf].span.size_bytes
        return leaf if self._is_local or size_bytes >= _MIN_REMOTE_BYTES else None

    def _bloom(self, group: int, leaf: int) -> BloomFilter | None:
        chunk = self._layout.footer.chunks[group][leaf]
        span, key = chunk.bloom_filter, (self._digest, group, leaf)
        found = _blooms.get(key)
        if found is not None or span is None:
            return found
        if span.size_bytes > min(MAX_BLOOM_FILTER_BYTES, max(_MAX_INDEX_SHARE * chunk.span.size_bytes, KIB)):
            return None
        data, head = self._read([span, self._head(group, leaf)])
        found = parse_bloom_filter(bytes(data)) if _lacks_checksum(head) else None
        if found is not None:
            _blooms.put(key, found, len(found.data))
        return found

    def _head(self, group: int, leaf: int) -> ByteRange:
        """Return the bytes in which the header of the first page is."""
        span = self._layout.footer.chunks[group][leaf].span
        return ByteRange(span.start, min(span.start + _HEAD_BYTES, span.end))

    def _page_bounds(self, group: int, leaf: int, name: str) -> PageBounds | None:
        chunk, row_count = self._layout.footer.chunks[group][leaf], self._layout.footer.group_rows[group]
        key, spans = (self._digest, group, leaf), (chunk.column_index, chunk.offset_index)
        found = _pages.get(key)
        if found is not None:
            return found
        known = [span for span in spans if span is not None]
        size_bytes = sum(span.size_bytes for span in known)
        if len(known) < len(spans) or size_bytes > max(_MAX_INDEX_SHARE * chunk.span.size_bytes, 64 * KIB):
            return None
        statistics, offsets, head = (bytes(part) for part in self._read([*known, self._head(group, leaf)]))
        if not _lacks_checksum(head):
            return None
        stored, table = parse_column_index(statistics), parse_offset_index(offsets, chunk.span, row_count)
        if stored is None or table is None or len(stored) + 1 != len(table.first_rows):
            return None
        counts = (table.first_rows[1:] - table.first_rows[:-1]).tolist()
        column = self._layout.footer.leaves[leaf]
        bounds = tuple(
            self._layout.decode_bounds(name, column, each, rows) for each, rows in zip(stored, counts, strict=True)
        )
        if not _fits(bounds, self._layout.bounds(group, [name]).get(name)):
            return None
        pages = PageBounds(table.first_rows, bounds)
        _pages.put(key, pages, _BOUNDS_BYTES * len(bounds))
        return pages


def _lacks_checksum(head: bytes | memoryview) -> bool:
    """Return whether a column begins with a page that has no checksum."""
    header = read_header(head)
    return header is not None and not header.has_checksum


def _fits(pages: Sequence[Bounds], whole: Bounds | None) -> bool:
    """Return whether statistics of pages reach as far as those of their row group. A long text may be cut outwards."""
    if whole is None or whole.minimum is None or whole.maximum is None:
        return False
    minima = [each.minimum for each in pages if each.minimum is not None]
    maxima = [each.maximum for each in pages if each.maximum is not None]
    if not minima or min(minima) > whole.minimum or max(maxima) < whole.maximum:
        return False
    nulls = [each.null_count for each in pages]
    return None in nulls or whole.null_count is None or sum(each or 0 for each in nulls) == whole.null_count
