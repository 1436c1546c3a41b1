"""Rows of a shard by the pages that hold them, without the other pages of their row groups.

A page is read only if everything about it fits: the page index fills the column chunk, each header has the size and
the values that the index says, and the decoded rows are as many. In any doubt the reader returns None, and the caller
decodes whole row groups, which finds damage and raises typed errors. Implements "Rows by page" of docs/specs/tables.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from warpdata.formats.parquet.layout import ShardLayout, has_text
from warpdata.formats.parquet.mmap_cache import MappedFile
from warpdata.formats.parquet.page_file import PageChunk, encode_page_file
from warpdata.formats.parquet.page_table import (
    DATA_PAGES,
    DICTIONARY_PAGE,
    PageTable,
    parse_offset_index,
    read_header,
    walk_pages,
)
from warpdata.limits import KIB, MIB
from warpdata.primitives.arrow_buffers import as_arrow, check_text
from warpdata.primitives.byte_lru import ByteLRU
from warpdata.primitives.hashing import blob_key
from warpdata.primitives.ranges import ByteRange
from warpdata.repository.manifest import Shard
from warpdata.storage import Reader

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

__all__ = ["GroupRows", "PageReader"]

_MAX_SHARE = 0.5
"""Pages with more of a column's bytes than this are read with their row group."""
_MIN_REMOTE_BYTES = 256 * KIB
"""Columns up to this size are fetched whole: the page index would cost another request."""
_MIN_LOCAL_BYTES, _MIN_LOCAL_ROWS = 16 * KIB, 16 * 1024
"""Local columns with fewer bytes and rows are decoded whole. Many rows take time, however few bytes they have."""
_MAX_DECODED_BYTES = 64 * MIB
_TABLE_CACHE_BYTES = 32 * MIB

_tables: ByteLRU[tuple[str, int, int], PageTable] = ByteLRU(_TABLE_CACHE_BYTES)
"""Page tables by the hash of the file, the row group and the leaf column."""


class GroupRows(NamedTuple):
    """Rows of one row group, ascending, each once, counted from its first."""

    group: int
    rows: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class _ChosenPages:
    """The pages of one column in one row group that hold wanted rows."""

    wanted: GroupRows
    table: PageTable
    pages: NDArray[np.int64]
    spans: list[tuple[int, int]]
    """The starts and ends of the dictionary page, if there is one, and of runs of pages."""
    size_bytes: int


class PageReader:
    """Reads pages of one shard."""

    def __init__(self, reader: Reader, shard: Shard, layout: ShardLayout) -> None:
        self._reader = reader
        self._shard = shard
        self._layout = layout

    def take(
        self, wanted: Sequence[GroupRows], columns: Sequence[str], mapped: MappedFile | None
    ) -> dict[str, pa.ChunkedArray]:
        """Return the rows of those columns that can be read by page. Others are missing from the result.

        `mapped` is the local file; None if it is remote.
        """
        leaves = {name: leaf for name in columns if (leaf := self._leaf(name)) is not None}
        if not leaves or not self._saves_bytes(wanted, list(leaves.values()), mapped is not None):
            return {}
        tables = self._find_tables(wanted, leaves, mapped)
        chosen = {name: found for name, leaf in leaves.items() if (found := self._choose(wanted, leaf, tables))}
        spans = [span for parts in chosen.values() for part in parts for span in part.spans]
        if mapped is None:
            ranges = [ByteRange(start, end) for start, end in spans]
            replies = iter(self._reader.read_ranges(blob_key(self._shard.hash), ranges) if spans else ())
        else:
            replies = iter([mapped.data[start:end] for start, end in spans])
        out = {}
        for name, parts in chosen.items():
            pieces = [[next(replies) for _ in part.spans] for part in parts]
            values = self._read_column(name, leaves[name], parts, pieces, mapped)
            if values is not None:
                out[name] = values
        return out

    def _leaf(self, name: str) -> int | None:
        """Return the only leaf of a column; None if it has more, or its rows cannot be counted by page."""
        found = self._layout.leaves([name])
        if len(found) != 1:
            return None
        leaf = self._layout.footer.leaves[found[0]]
        return found[0] if not leaf.is_repeated or _is_flat_list(self._layout.schema.field(name).type) else None

    def _saves_bytes(self, wanted: Sequence[GroupRows], leaves: Sequence[int], is_local: bool) -> bool:
        """Return whether reading by page can save something, before any page is known."""
        footer = self._layout.footer
        row_count = sum(footer.group_rows[part.group] for part in wanted)
        if 2 * sum(len(part.rows) for part in wanted) > row_count:
            return False
        size_bytes = sum(footer.chunks[part.group][leaf].span.size_bytes for part in wanted for leaf in leaves)
        if is_local:
            return size_bytes > _MIN_LOCAL_BYTES or row_count > _MIN_LOCAL_ROWS
        return size_bytes > _MIN_REMOTE_BYTES

    def _find_tables(
        self, wanted: Sequence[GroupRows], leaves: dict[str, int], mapped: MappedFile | None
    ) -> dict[tuple[int, int], PageTable]:
        """Return the page tables of column chunks, by row group and leaf."""
        out, missing = {}, []
        for key in ((part.group, leaf) for part in wanted for leaf in leaves.values()):
            known = _tables.get((self._shard.hash, *key))
            if known is None:
                missing.append(key)
            else:
                out[key] = known
        for key, table in self._load_tables(missing, mapped):
            if table is not None:
                _tables.put((self._shard.hash, *key), table, table.nbytes)
                out[key] = table
        return out

    def _load_tables(
        self, keys: Sequence[tuple[int, int]], mapped: MappedFile | None
    ) -> Iterator[tuple[tuple[int, int], PageTable | None]]:
        """Read page headers of local columns without repeated values, and the page index of others."""
        footer, indexed = self._layout.footer, []
        for group, leaf in keys:
            span = footer.chunks[group][leaf].span
            if mapped is not None and not footer.leaves[leaf].is_repeated:
                chunk = mapped.data[span.start : span.end]
                yield (group, leaf), walk_pages(chunk, span.start, footer.group_rows[group])
            elif (index := footer.chunks[group][leaf].offset_index) is not None:
                indexed.append((group, leaf, index))
        spans = [index for _, _, index in indexed]
        if mapped is None:
            replies = self._reader.read_ranges(blob_key(self._shard.hash), spans) if spans else []
        else:
            replies = [mapped.data[span.start : span.end] for span in spans]
        for (group, leaf, _), data in zip(indexed, replies, strict=True):
            span, row_count = footer.chunks[group][leaf].span, footer.group_rows[group]
            yield (group, leaf), parse_offset_index(bytes(data), span, row_count)

    def _choose(
        self, wanted: Sequence[GroupRows], leaf: int, tables: dict[tuple[int, int], PageTable]
    ) -> list[_ChosenPages] | None:
        """Return the pages of a column to read; None if a page table is missing, or they have most of its bytes."""
        out, whole_bytes = [], 0
        for part in wanted:
            table = tables.get((part.group, leaf))
            if table is None or int(part.rows[-1]) >= int(table.first_rows[-1]):
                return None
            pages = table.holding(part.rows)
            out.append(_ChosenPages(part, table, pages, table.spans(pages), table.size_bytes(pages)))
            whole_bytes += self._layout.footer.chunks[part.group][leaf].span.size_bytes
        return out if sum(part.size_bytes for part in out) <= _MAX_SHARE * whole_bytes else None

    def _read_column(
        self,
        name: str,
        leaf: int,
        chosen: Sequence[_ChosenPages],
        pieces: Sequence[Sequence[bytes | memoryview]],
        mapped: MappedFile | None,
    ) -> pa.ChunkedArray | None:
        """Decode the pages of a column and take the wanted rows; None if anything does not fit."""
        import pyarrow as pa

        out: list[pa.Array] = []
        for parts in self._batches(leaf, chosen):
            found = [_check_pages(chosen[at], pieces[at], self._layout.footer.leaves[leaf].is_repeated) for at in parts]
            counts = [each for each in found if each is not None]
            if len(counts) != len(found):
                return None
            batch = [chosen[at] for at in parts]
            chunks = [self._chunk(leaf, chosen[at], pieces[at], each) for at, each in zip(parts, counts, strict=True)]
            is_verified = mapped is not None and all((part.wanted.group, leaf) in mapped.verified for part in batch)
            values = self._decode(name, leaf, chunks, batch, verify=not is_verified)
            if values is None or not _has_counts(values, batch, counts):
                return None
            taken = values.take(as_arrow(_positions(batch)))
            if has_text(taken.type) and not _is_text(taken):
                return None
            out += taken.chunks
        declared = self._layout.file_type(name)
        return pa.chunked_array(out, declared) if all(part.type == declared for part in out) else None

    def _batches(self, leaf: int, chosen: Sequence[_ChosenPages]) -> Iterator[list[int]]:
        """Yield the positions of row groups whose pages are decoded together."""
        batch: list[int] = []
        size_bytes = 0
        for at, part in enumerate(chosen):
            decoded = self._decoded_bytes(leaf, part)
            if batch and size_bytes + decoded > _MAX_DECODED_BYTES:
                yield batch
                batch, size_bytes = [], 0
            batch.append(at)
            size_bytes += decoded
        if batch:
            yield batch

    def _decoded_bytes(self, leaf: int, part: _ChosenPages) -> int:
        chunk = self._layout.footer.chunks[part.wanted.group][leaf]
        return chunk.decoded_bytes * part.size_bytes // max(chunk.span.size_bytes, 1)

    def _chunk(
        self, leaf: int, part: _ChosenPages, pieces: Sequence[bytes | memoryview], counts: NDArray[np.int64]
    ) -> PageChunk:
        rows = int((part.table.first_rows[part.pages + 1] - part.table.first_rows[part.pages]).sum())
        dictionary_bytes = part.table.dictionary.size_bytes
        return PageChunk(pieces, dictionary_bytes, rows, int(counts.sum()), self._decoded_bytes(leaf, part))

    def _decode(
        self, name: str, leaf: int, chunks: Sequence[PageChunk], batch: Sequence[_ChosenPages], *, verify: bool
    ) -> pa.ChunkedArray | None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        footer = self._layout.footer
        codecs = {footer.chunks[part.wanted.group][leaf].codec for part in batch}
        if len(codecs) > 1:
            return None
        elements, field = self._layout.column_schema(name)
        data = encode_page_file(elements, field, footer.leaves[leaf].physical_type, codecs.pop(), chunks)
        try:
            file = pq.ParquetFile(
                pa.BufferReader(data),
                pre_buffer=False,
                page_checksum_verification=verify,
                arrow_extensions_enabled=True,
            )
            return file.read(use_threads=False).column(0)
        except (pa.ArrowException, OSError):
            return None  # decoding the whole row group finds the damage, and names it


def _check_pages(
    part: _ChosenPages, pieces: Sequence[bytes | memoryview], is_repeated: bool
) -> NDArray[np.int64] | None:
    """Compare the headers of the pages with their table. Return the number of values of each, or None."""
    import numpy as np

    table, pages = part.table, part.pages
    if table.is_from_headers:
        return table.first_rows[pages + 1] - table.first_rows[pages]
    pieces = list(pieces)
    if table.dictionary.size_bytes:
        first = read_header(pieces.pop(0))
        if first is None or first.page_type != DICTIONARY_PAGE:
            return None
        if first.header_bytes + first.data_bytes != table.dictionary.size_bytes:
            return None
    sizes = (table.offsets[pages + 1] - table.offsets[pages]).tolist()
    counts, run, position = [], iter(pieces), 0
    data: bytes | memoryview = b""
    for size_bytes in sizes:
        if position >= len(data):
            data, position = next(run), 0
        header = read_header(data, position)
        if (
            header is None
            or header.page_type not in DATA_PAGES
            or header.header_bytes + header.data_bytes != size_bytes
        ):
            return None
        counts.append(header.value_count)
        position += size_bytes
    found = np.array(counts, np.int64)
    is_valid = is_repeated or np.array_equal(found, table.first_rows[pages + 1] - table.first_rows[pages])
    return found if is_valid else None


def _positions(batch: Sequence[_ChosenPages]) -> NDArray[np.int64]:
    """Return the positions of the wanted rows among the rows of the pages that were read."""
    import numpy as np

    out, before = [], 0
    for part in batch:
        first_rows, pages, rows = part.table.first_rows, part.pages, part.wanted.rows
        starts = np.concatenate([[0], np.cumsum(first_rows[pages + 1] - first_rows[pages])])
        at = np.searchsorted(first_rows[pages], rows, "right") - 1
        out.append(before + starts[at] + rows - first_rows[pages[at]])
        before += int(starts[-1])
    return np.concatenate(out)


def _has_counts(values: pa.ChunkedArray, batch: Sequence[_ChosenPages], counts: Sequence[NDArray[np.int64]]) -> bool:
    """Return whether the decoded pages have the rows of their tables; lists also the values of each page."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    rows = np.concatenate([part.table.first_rows[part.pages + 1] - part.table.first_rows[part.pages] for part in batch])
    if len(values) != int(rows.sum()):
        return False
    if not _is_flat_list(values.type):
        return True
    lengths = pc.list_value_length(values).fill_null(0).combine_chunks().cast(pa.int64()).to_numpy()
    totals = np.concatenate([[0], np.cumsum(np.maximum(lengths, 1))])  # an empty list is stored as one value
    ends = np.cumsum(rows)
    return np.array_equal(totals[ends] - totals[ends - rows], np.concatenate(counts))


def _is_flat_list(arrow_type: pa.DataType) -> bool:
    """Return whether values are lists of values that are no lists."""
    import pyarrow as pa

    types = pa.types
    is_list = types.is_list(arrow_type) or types.is_large_list(arrow_type) or types.is_fixed_size_list(arrow_type)
    return bool(is_list and not types.is_nested(arrow_type.value_type))


def _is_text(values: pa.ChunkedArray) -> bool:
    import pyarrow as pa

    try:
        check_text(values)
    except pa.ArrowInvalid:
        return False
    return True
