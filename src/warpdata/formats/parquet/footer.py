"""Column chunks and statistics of a Parquet footer, parsed without Arrow. Pure.

Arrow's Python bindings let C++ exceptions of `RowGroupMetaData.column()` and `ColumnChunkMetaData.statistics` pass
through frames that cannot handle them, which ends the process. Damaged footers raise such exceptions: a type that
differs from the schema, a level histogram of another length, a statistic that is too short. So neither is called. This
module reads the footer's Thrift structures itself and checks every count, size and offset. Arrow's reader still
decodes the pages, because it turns exceptions into errors. Implements "Footers" of docs/specs/tables.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from warpdata.errors import CorruptError
from warpdata.limits import MAX_ROW_GROUP_ROWS, MAX_SCHEMA_DEPTH, MAX_THRIFT_DEPTH
from warpdata.primitives.ranges import ByteRange

__all__ = ["ChunkStatistics", "ColumnChunk", "FileFooter", "LeafColumn", "parse_footer"]

_BOOLEANS = (1, 2)
_INTEGERS = (4, 5, 6)
_BINARY, _LIST, _SET, _MAP, _STRUCT = 8, 9, 10, 11, 12
_FIXED_BYTES = {3: 1, 7: 8, 13: 16}  # byte, double, UUID
_INTEGER_STRUCT = re.compile(
    b"(?:[" + b"".join(b"\\x%02x" % (step * 16 + kind) for step in range(1, 16) for kind in (4, 5, 6)) + b"]"
    rb"[\x80-\xff]*[\x00-\x7f])*\x00"
)
"""A struct of integers only, by far the most frequent one that is skipped."""
_LONG_LIST = 15
_REPEATED = 2

_Wanted: TypeAlias = "Mapping[int, _Wanted | None]"
"""The fields to read, by number. Other fields are skipped. A mapping describes a struct, or the structs of a list."""

_STATISTICS: _Wanted = dict.fromkeys((1, 2, 3, 5, 6))
_COLUMN_METADATA: _Wanted = {**dict.fromkeys((1, 5, 6, 7, 9, 11)), 12: _STATISTICS}
_COLUMN_CHUNK: _Wanted = {3: _COLUMN_METADATA, 8: {}}
_LOGICAL_TYPE: _Wanted = {8: {2: {1: {}, 2: {}}}, 10: {}}
_SCHEMA_ELEMENT: _Wanted = {**dict.fromkeys((1, 3, 4, 5, 6)), 10: _LOGICAL_TYPE}
_FILE_METADATA: _Wanted = {2: _SCHEMA_ELEMENT, 3: None, 4: {1: _COLUMN_CHUNK, 3: None}, 7: {1: {}}}


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


@dataclass(frozen=True, slots=True)
class LeafColumn:
    """A column of primitive values. `is_flat`: it is a top-level column that is not repeated."""

    physical_type: int
    is_flat: bool
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
        fields, end = _read_struct(metadata, 0, _FILE_METADATA, MAX_THRIFT_DEPTH)
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

    def walk(depth: int) -> Iterator[LeafColumn]:
        nonlocal position
        if depth > MAX_SCHEMA_DEPTH:
            raise CorruptError(f"its schema has more than {MAX_SCHEMA_DEPTH} levels")
        element = elements[position]
        position += 1
        if element.get(5) or 1 not in element:
            for _ in range(element[5]):
                yield from walk(depth + 1)
        else:
            yield _leaf(element, is_flat=depth == 1 and element.get(3) != _REPEATED)

    for _ in range(elements[0].get(5, 0)):
        yield list(walk(1))
    if position != len(elements):
        raise CorruptError(f"it has {len(elements)} schema elements; its tree has {position}")


def _leaf(element: dict[int, Any], *, is_flat: bool) -> LeafColumn:
    physical_type, converted = element[1], element.get(6)
    logical = element.get(10) or {}
    timestamp = logical.get(8)
    unit = None
    if timestamp is not None:
        unit = next((name for number, name in ((1, "ms"), (2, "us")) if number in (timestamp.get(2) or {})), None)
    elif converted in (9, 10):
        unit = "ms" if converted == 9 else "us"
    may_be_unsigned = converted in (11, 12, 13, 14) or (converted is None and 10 in logical)
    return LeafColumn(physical_type, is_flat, physical_type in (0, 1, 2, 4, 5) and not may_be_unsigned, unit)


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
        yield ColumnChunk(span, start - span.start, fields[6], fields[5], statistics)


def _statistics(fields: dict[int, Any], leaf: LeafColumn, *, ordered: bool) -> ChunkStatistics:
    """Return the bounds whose order is known: by the footer's column order, or because all writers agree on it."""
    minimum, maximum = (fields.get(6), fields.get(5)) if ordered else (None, None)
    if not ordered and leaf.has_signed_order:
        minimum, maximum = fields.get(2), fields.get(1)
    if not isinstance(minimum, bytes) or not isinstance(maximum, bytes):
        minimum = maximum = None
    null_count = fields.get(3)
    return ChunkStatistics(minimum, maximum, null_count if isinstance(null_count, int) else None)


def _read_struct(data: bytes, position: int, wanted: _Wanted, depth: int) -> tuple[dict[int, Any], int]:
    """Read the wanted fields of a struct in Thrift's compact protocol. `IndexError` beyond the end of the data."""
    found: dict[int, Any] = {}
    number = 0
    while True:
        header = data[position]
        position += 1
        if header == 0:
            return found, position
        if header > 15:
            number += header >> 4
        else:
            number, position = _read_integer(data, position)
        kind = header & 15
        if 4 <= kind <= 6:
            value = data[position]
            position += 1
            if value > 127:
                value, position = _read_varint(data, position - 1)
            if number in wanted:
                found[number] = (value >> 1) ^ -(value & 1)
        elif number in wanted:
            found[number], position = _read_value(data, position, kind, wanted[number] or {}, depth)
        else:
            position = _skip(data, position, kind, depth)


def _read_value(data: bytes, position: int, kind: int, wanted: _Wanted, depth: int) -> tuple[Any, int]:
    """Read bytes, a struct, or a list of structs. Other values are skipped and None."""
    if kind == _BINARY:
        size_bytes, position = _read_varint(data, position)
        return data[position : position + size_bytes], position + size_bytes
    if depth == 0:
        raise CorruptError(f"it is nested more than {MAX_THRIFT_DEPTH} deep")
    if kind == _STRUCT:
        return _read_struct(data, position, wanted, depth - 1)
    if kind == _LIST and data[position] & 15 == _STRUCT:
        count, position = _read_list_size(data, position)
        structs = []
        for _ in range(count):
            struct, position = _read_struct(data, position, wanted, depth - 1)
            structs.append(struct)
        return structs, position
    return None, _skip(data, position, kind, depth)


def _skip(data: bytes, position: int, kind: int, depth: int) -> int:
    """Return the position after a value."""
    if kind in _INTEGERS:
        while data[position] > 127:
            position += 1
        return position + 1
    if kind == _BINARY:
        size_bytes, position = _read_varint(data, position)
        return position + size_bytes
    if kind in _BOOLEANS:  # the header has the value
        return position
    if kind in _FIXED_BYTES:
        return position + _FIXED_BYTES[kind]
    if depth == 0:
        raise CorruptError(f"it is nested more than {MAX_THRIFT_DEPTH} deep")
    if kind == _STRUCT:
        match = _INTEGER_STRUCT.match(data, position)
        return match.end() if match else _read_struct(data, position, {}, depth - 1)[1]
    if kind in (_LIST, _SET):
        item = data[position] & 15
        count, position = _read_list_size(data, position)
        if item in _BOOLEANS or item in _FIXED_BYTES:  # without a loop: the count is not verified
            return position + count * _FIXED_BYTES.get(item, 1)
        for _ in range(count):
            position = _skip(data, position, item, depth - 1)
        return position
    raise CorruptError(f"it has a field of the unknown type {kind}")


def _read_list_size(data: bytes, position: int) -> tuple[int, int]:
    count = data[position] >> 4
    return _read_varint(data, position + 1) if count == _LONG_LIST else (count, position + 1)


def _read_integer(data: bytes, position: int) -> tuple[int, int]:
    value, position = _read_varint(data, position)
    return (value >> 1) ^ -(value & 1), position


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    value = data[position]
    position += 1
    if value < 128:
        return value, position
    value &= 127
    shift = 7
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, position
        shift += 7
        if shift > 63:
            raise CorruptError("it has a number of more than 64 bits")
