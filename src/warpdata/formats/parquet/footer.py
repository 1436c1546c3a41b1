"""Column chunks and statistics of a Parquet footer, parsed without Arrow. Pure.

Arrow's Python bindings let C++ exceptions of `RowGroupMetaData.column()` and `ColumnChunkMetaData.statistics` pass
through frames that cannot handle them, which ends the process. Damaged footers raise such exceptions: a type that
differs from the schema, a level histogram of another length, a statistic that is too short. So neither is called. This
module reads the footer's Thrift structures itself and checks every count, size and offset. Arrow's reader still
decodes the pages, because it turns exceptions into errors. Implements "Footers" of docs/specs/tables.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from warpdata.errors import CorruptError
from warpdata.formats.parquet.thrift import Wanted, iter_list, read_struct
from warpdata.limits import MAX_ROW_GROUP_ROWS, MAX_SCHEMA_DEPTH, MAX_THRIFT_DEPTH
from warpdata.primitives.ranges import ByteRange

__all__ = ["ChunkStatistics", "ColumnChunk", "FileFooter", "LeafColumn", "parse_footer", "split_schema"]

_REPEATED = 2

_STATISTICS: Wanted = dict.fromkeys((1, 2, 3, 5, 6))
_COLUMN_METADATA: Wanted = {**dict.fromkeys((1, 4, 5, 6, 7, 9, 11, 14, 15)), 12: _STATISTICS}
_COLUMN_CHUNK: Wanted = {3: _COLUMN_METADATA, **dict.fromkeys((4, 5, 6, 7)), 8: {}}
_LOGICAL_TYPE: Wanted = {8: {2: {1: {}, 2: {}}}, 10: {}}
_SCHEMA_ELEMENT: Wanted = {**dict.fromkeys((1, 3, 4, 5, 6)), 10: _LOGICAL_TYPE}
_FILE_METADATA: Wanted = {2: _SCHEMA_ELEMENT, 3: None, 4: {1: _COLUMN_CHUNK, 3: None}, 7: {1: {}}}


class ChunkStatistics(NamedTuple):
    """Statistics as stored: little-endian numbers, or bytes. `minimum` and `maximum` are set together."""

    minimum: bytes | None
    maximum: bytes | None
    null_count: int | None


class ColumnChunk(NamedTuple):
    """The pages of one leaf column in one row group."""

    span: ByteRange
    dictionary_bytes: int
    """Bytes before the first data page."""
    decoded_bytes: int
    value_count: int
    statistics: ChunkStatistics | None
    codec: int
    offset_index: ByteRange | None
    """The bytes that locate the pages; None without them, or if they are not inside the file."""
    column_index: ByteRange | None
    """The bytes with the statistics of the pages."""
    bloom_filter: ByteRange | None


@dataclass(frozen=True, slots=True)
class LeafColumn:
    """A column of primitive values. `is_flat`: it is a top-level column that is not repeated."""

    physical_type: int
    is_flat: bool
    is_repeated: bool
    """The column, or a list or map above it, has any number of values in a row."""
    has_signed_order: bool
    """Deprecated statistics are signed, so they are valid for this column."""
    time_unit: str | None
    """"ms" or "us" for a timestamp in these units."""


@dataclass(frozen=True, slots=True)
class FileFooter:
    """The parts of a footer that readers need. All positions are inside the file."""

    leaves: tuple[LeafColumn, ...]
    column_leaves: tuple[range, ...]
    """For each top-level column, the positions of its leaf columns."""
    group_rows: tuple[int, ...]
    chunks: tuple[tuple[ColumnChunk, ...], ...]
    """For each row group, one chunk for each leaf column."""


def parse_footer(metadata: bytes, file_bytes: int) -> FileFooter:
    """Parse the metadata of a file of `file_bytes`. `CorruptError` if a count, size or offset cannot be right."""
    try:
        fields, end = read_struct(metadata, 0, _FILE_METADATA, MAX_THRIFT_DEPTH)
        if end > len(metadata):
            raise CorruptError("it ends within a field")
        columns = list(_walk_schema(fields.get(2) or []))
        orders = fields.get(7)
        leaves = tuple(leaf for column in columns for leaf in column)
        if orders is not None and len(orders) != len(leaves):
            raise CorruptError(f"it has {len(orders)} column orders for {len(leaves)} columns")
        has_order = [1 in order for order in orders] if orders is not None else [False] * len(leaves)
        groups = fields.get(4) or []
        group_rows = tuple(_checked_rows(group.get(3)) for group in groups)
        chunks = tuple(tuple(_chunks(group.get(1) or [], leaves, has_order, file_bytes)) for group in groups)
    except (IndexError, KeyError, TypeError, AttributeError) as error:
        raise CorruptError("it is not valid Thrift, or a required field is missing") from error
    if sum(group_rows) != fields.get(3):
        raise CorruptError(f"its row groups have {sum(group_rows)} rows, not {fields.get(3)}")
    return FileFooter(leaves, _positions(columns), group_rows, chunks)


def split_schema(metadata: bytes) -> list[list[bytes]]:
    """Return the encoded elements of each top-level column, of metadata that `parse_footer` accepts."""
    elements = list(iter_list(metadata, 2))
    child_counts = [read_struct(element, 0, {5: None}, MAX_THRIFT_DEPTH)[0].get(5, 0) for element in elements]
    out, position = [], 1
    while position < len(elements):
        start, left = position, 1
        while left:
            left += child_counts[position] - 1
            position += 1
        out.append(elements[start:position])
    return out


def _checked_rows(count: Any) -> int:
    if not isinstance(count, int) or not 0 <= count <= MAX_ROW_GROUP_ROWS:
        raise CorruptError(f"a row group has {count} rows; the limit is {MAX_ROW_GROUP_ROWS:,}")
    return count


def _positions(columns: Sequence[Sequence[LeafColumn]]) -> tuple[range, ...]:
    out, first = [], 0
    for column in columns:
        out.append(range(first, first + len(column)))
        first += len(column)
    return tuple(out)


def _walk_schema(elements: Sequence[dict[int, Any]]) -> Iterator[list[LeafColumn]]:
    """Yield the leaf columns of each top-level column. Elements are listed parents first."""
    position = 1

    def walk(depth: int, is_repeated: bool) -> Iterator[LeafColumn]:
        nonlocal position
        if depth > MAX_SCHEMA_DEPTH:
            raise CorruptError(f"its schema has more than {MAX_SCHEMA_DEPTH} levels")
        element = elements[position]
        position += 1
        is_repeated = is_repeated or element.get(3) == _REPEATED
        if element.get(5) or 1 not in element:
            for _ in range(element[5]):
                yield from walk(depth + 1, is_repeated)
        else:
            yield _leaf(element, is_flat=depth == 1 and not is_repeated, is_repeated=is_repeated)

    for _ in range(elements[0].get(5, 0)):
        yield list(walk(1, False))
    if position != len(elements):
        raise CorruptError(f"it has {len(elements)} schema elements; its tree has {position}")


def _leaf(element: dict[int, Any], *, is_flat: bool, is_repeated: bool) -> LeafColumn:
    physical_type, converted = element[1], element.get(6)
    logical = element.get(10) or {}
    timestamp = logical.get(8)
    unit = None
    if timestamp is not None:
        unit = next((name for number, name in ((1, "ms"), (2, "us")) if number in (timestamp.get(2) or {})), None)
    elif converted in (9, 10):
        unit = "ms" if converted == 9 else "us"
    may_be_unsigned = converted in (11, 12, 13, 14) or (converted is None and 10 in logical)
    has_signed_order = physical_type in (0, 1, 2, 4, 5) and not may_be_unsigned
    return LeafColumn(physical_type, is_flat, is_repeated, has_signed_order, unit)


def _chunks(
    listed: Sequence[dict[int, Any]], leaves: Sequence[LeafColumn], has_order: Sequence[bool], file_bytes: int
) -> Iterator[ColumnChunk]:
    if len(listed) != len(leaves):
        raise CorruptError(f"a row group has {len(listed)} column chunks for {len(leaves)} columns")
    for leaf, ordered, chunk in zip(leaves, has_order, listed, strict=True):
        if 8 in chunk:
            raise CorruptError("it has an encrypted column chunk")
        fields = chunk[3]
        start, size_bytes = fields[9], fields[7]
        first = fields.get(11) or start
        span = ByteRange(min(first, start), min(first, start) + size_bytes)
        if fields[1] != leaf.physical_type:
            raise CorruptError(f"a column chunk has type {fields[1]}, not {leaf.physical_type}")
        if span.start < 0 or not span.start <= span.end <= file_bytes or fields[6] < 0 or fields[5] < 0:
            raise CorruptError(f"a column chunk is in bytes {span.start} to {span.end} of {file_bytes}")
        statistics = _statistics(fields[12], leaf, ordered=ordered) if 12 in fields else None
        places = ((chunk.get(4), chunk.get(5)), (chunk.get(6), chunk.get(7)), (fields.get(14), fields.get(15)))
        parts = [_part_of_file(*place, file_bytes) for place in places]
        dictionary_bytes, decoded_bytes, count, codec = start - span.start, fields[6], fields[5], fields[4]
        yield ColumnChunk(span, dictionary_bytes, decoded_bytes, count, statistics, codec, *parts)


def _part_of_file(start: object, size_bytes: object, file_bytes: int) -> ByteRange | None:
    """Return a range of the file that readers may do without; None if it is not inside the file."""
    if not isinstance(start, int) or not isinstance(size_bytes, int):
        return None
    return ByteRange(start, start + size_bytes) if 0 <= start <= start + size_bytes <= file_bytes else None


def _statistics(fields: dict[int, Any], leaf: LeafColumn, *, ordered: bool) -> ChunkStatistics:
    """Return the bounds whose order is known: by the footer's column order, or because all writers agree on it."""
    minimum, maximum = (fields.get(6), fields.get(5)) if ordered else (None, None)
    if not ordered and leaf.has_signed_order:
        minimum, maximum = fields.get(2), fields.get(1)
    if not isinstance(minimum, bytes) or not isinstance(maximum, bytes):
        minimum = maximum = None
    null_count = fields.get(3)
    return ChunkStatistics(minimum, maximum, null_count if isinstance(null_count, int) else None)
