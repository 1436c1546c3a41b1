"""The pages of a column chunk: where each begins in the file, and its first row. Pure.

A table comes from the page headers of a chunk that is in memory, or from the page index of the file. Headers state the
size and the values of each page, so a table from headers needs no trust. A page index has no checksum, so a
reader compares it with the header of each page. Implements "Rows by page" of docs/specs/tables.md.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from warpdata.errors import CorruptError
from warpdata.formats.parquet.thrift import Wanted, read_struct
from warpdata.limits import MAX_THRIFT_DEPTH
from warpdata.primitives.ranges import ByteRange

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = [
    "DATA_PAGES",
    "DICTIONARY_PAGE",
    "PageHeader",
    "PageTable",
    "parse_offset_index",
    "read_header",
    "walk_pages",
]

DATA_PAGES = (0, 3)
DICTIONARY_PAGE = 2

_HEADER_BYTES = (256, 64 * 1024)
"""Bytes in which a header is looked for. Statistics of long texts make some of them long."""
_HEADER: Wanted = {**dict.fromkeys((1, 2, 3, 4)), 5: {1: None}, 7: {1: None}, 8: {1: None}}
_NUMBER = rb"([\x80-\xff]{0,4}[\x00-\x7f])"
_PLAIN_HEADER = re.compile(
    rb"\x15\x00\x15%b\x15%b(?:\x15%b\x1c|\x2c)\x15%b\x15[\x00-\x7f]\x15[\x00-\x7f]\x15[\x00-\x7f]\x00\x00"
    % (_NUMBER, _NUMBER, _NUMBER, _NUMBER),
    re.DOTALL,
)
"""The header of a data page without statistics, which most pages are."""
_LOCATION_NUMBERS = 7
"""A page location as varints: for its three fields a header and a number, then the end."""


class PageHeader(NamedTuple):
    page_type: int
    header_bytes: int
    data_bytes: int
    """Bytes after the header."""
    value_count: int
    has_checksum: bool


@dataclass(frozen=True, slots=True)
class PageTable:
    """The data pages of a column chunk, without gaps. All arrays have one more entry: the end of the last page."""

    start: int
    """The first byte of the chunk. A dictionary page is between it and the first data page."""
    offsets: NDArray[np.int64]
    """The position of each page in the file."""
    first_rows: NDArray[np.int64]
    """The first row of each page in the row group."""
    is_from_headers: bool
    """Every header was read, so that none needs to be compared again."""

    @property
    def nbytes(self) -> int:
        return int(self.offsets.nbytes + self.first_rows.nbytes)

    @property
    def dictionary(self) -> ByteRange:
        return ByteRange(self.start, int(self.offsets[0]))

    def holding(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the pages that hold these rows, ascending, each once."""
        import numpy as np

        return np.unique(np.searchsorted(self.first_rows, rows, "right") - 1)

    def size_bytes(self, pages: NDArray[np.int64]) -> int:
        """Return the size of pages, with the dictionary page."""
        return int((self.offsets[pages + 1] - self.offsets[pages]).sum()) + self.dictionary.size_bytes

    def spans(self, pages: NDArray[np.int64]) -> list[tuple[int, int]]:
        """Return the starts and ends of the dictionary page, if there is one, and of pages, with neighbours joined."""
        import numpy as np

        breaks = np.flatnonzero(np.diff(pages) > 1) + 1
        starts = self.offsets[pages[np.concatenate([[0], breaks])]]
        ends = self.offsets[pages[np.concatenate([breaks - 1, [len(pages) - 1]])] + 1]
        first = int(self.offsets[0])
        dictionary = [(self.start, first)] if self.start < first else []
        return [*dictionary, *zip(starts.tolist(), ends.tolist(), strict=True)]


def read_header(data: bytes | memoryview, position: int = 0) -> PageHeader | None:
    """Parse the page header at a position; None if there is none."""
    plain = _PLAIN_HEADER.match(data, position)
    if plain is not None:
        size, count = _decode(plain[2]), _decode(plain[4])
        is_valid = min(size, count) >= 0
        return PageHeader(0, plain.end() - position, size, count, plain[3] is not None) if is_valid else None
    for most in _HEADER_BYTES:
        header = _parse_header(bytes(data[position : position + most]))
        if header is not None:
            return header
    return None


def _parse_header(data: bytes) -> PageHeader | None:
    try:
        fields, end = read_struct(data, 0, _HEADER, MAX_THRIFT_DEPTH)
        page_type, size = fields[1], fields[3]
        count = (fields.get(5) or fields.get(8) or fields.get(7) or {})[1]
    except (IndexError, KeyError, TypeError, CorruptError):
        return None
    if end > len(data) or not all(isinstance(number, int) and number >= 0 for number in (page_type, size, count)):
        return None
    return PageHeader(page_type, end, size, count, 4 in fields)


def walk_pages(chunk: bytes | memoryview, start: int, row_count: int) -> PageTable | None:
    """Return the pages of a column without repeated values, from their headers; None if they do not fit the rows.

    `chunk` has all bytes of the column chunk, which begins at `start` in its file.
    """
    import numpy as np

    position, rows = 0, 0
    offsets, first_rows = [], []
    while position < len(chunk):
        header = read_header(chunk, position)
        if header is None:
            return None
        if header.page_type in DATA_PAGES:
            offsets.append(start + position)
            first_rows.append(rows)
            rows += header.value_count
        elif header.page_type != DICTIONARY_PAGE or offsets:
            return None
        position += header.header_bytes + header.data_bytes
    if position != len(chunk) or rows != row_count or not offsets:
        return None
    return PageTable(start, np.array([*offsets, start + position]), np.array([*first_rows, rows]), True)


def parse_offset_index(data: bytes, span: ByteRange, row_count: int) -> PageTable | None:
    """Return the pages of a column chunk from its part of the page index; None if they do not fill the chunk.

    `span` is the chunk, whose row group has `row_count` rows.
    """
    import numpy as np

    count_bytes = _list_header(data)
    numbers = None if count_bytes is None else _numbers(data[count_bytes[1] :], count_bytes[0] * _LOCATION_NUMBERS)
    if numbers is None:
        return None
    rows = numbers.reshape(-1, _LOCATION_NUMBERS)
    if not len(rows) or bool(np.any(rows[:, (0, 2, 4, 6)] != (0x16, 0x15, 0x16, 0))):
        return None
    offsets, sizes, first_rows = (rows[:, at] >> 1 for at in (1, 3, 5))
    offsets = np.append(offsets, offsets[-1] + sizes[-1])
    first_rows = np.append(first_rows, row_count)
    has_gap = bool(np.any(offsets[:-1] + sizes != offsets[1:])) or int(offsets[-1]) != span.end
    is_ordered = bool(np.all(first_rows[1:] >= first_rows[:-1])) and int(first_rows[0]) == 0
    if has_gap or not is_ordered or not span.start <= int(offsets[0]):
        return None
    return PageTable(span.start, offsets, first_rows, False)


def _list_header(data: bytes) -> tuple[int, int] | None:
    """Return the number of page locations and the position of the first."""
    if len(data) < 2 or data[0] != 0x19 or data[1] & 15 != 12:
        return None
    if data[1] >> 4 < 15:
        return data[1] >> 4, 2
    found = re.compile(_NUMBER, re.DOTALL).match(data, 2)
    return None if found is None else (_unsigned(found[1]), found.end())


def _numbers(data: bytes, count: int) -> NDArray[np.int64] | None:
    """Decode this many varints at once; None if there are fewer. The bytes of field headers are varints, too."""
    import numpy as np

    coded = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(coded < 128)[:count]
    if len(ends) < count or not count:
        return None
    starts = np.concatenate([[0], ends[:-1] + 1])
    lengths = ends - starts
    if int(lengths.max()) > 8:
        return None
    out: NDArray[np.int64] = (coded[starts] & 127).astype(np.int64)
    for step in range(1, int(lengths.max()) + 1):
        has_more = lengths >= step
        out[has_more] |= (coded[starts[has_more] + step] & 127).astype(np.int64) << 7 * step
    return out


def _unsigned(coded: bytes) -> int:
    return sum((byte & 127) << 7 * step for step, byte in enumerate(coded))


def _decode(coded: bytes) -> int:
    value = _unsigned(coded)
    return (value >> 1) ^ -(value & 1)
