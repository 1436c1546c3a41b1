"""The layout of a Parquet file, from its footer: row groups, column chunks, statistics, dictionaries. Pure.

Arrow parses the schema. Column chunks come from `footer`, because Arrow's access to them is not safe for damaged files.
"""

from __future__ import annotations

import functools
import math
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from warpdata.errors import CorruptError, UnsupportedError
from warpdata.formats.parquet.extension_types import claims_extensions, plain_schema
from warpdata.formats.parquet.footer import (
    ChunkStatistics,
    ColumnChunk,
    FileFooter,
    LeafColumn,
    parse_footer,
    split_schema,
)
from warpdata.formats.parquet.nan_stats import columns_without_nan, strip_nan_metadata
from warpdata.limits import KIB, MIB
from warpdata.primitives.cached_property import cached_property
from warpdata.primitives.ranges import ByteRange
from warpdata.query import Bounds
from warpdata.storage import REPAIR_HINT

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

__all__ = ["RowGroup", "ShardLayout", "has_text", "open_layout", "parse_footer_size"]

_TRAILER_BYTES = 8
_MIN_PREFIX_BYTES = 256 * KIB
_MAX_DICTIONARY_BYTES = 64 * KIB
_CODE_BYTES = 2
_BOOLEAN, _INT32, _INT64, _FLOAT, _DOUBLE, _BYTE_ARRAY = 0, 1, 2, 4, 5, 6
_STATISTIC_BYTES = {_BOOLEAN: 1, _INT32: 4, _INT64: 8, _FLOAT: 4, _DOUBLE: 8}
_PARSE_ERRORS = (OSError, UnicodeDecodeError, OverflowError)
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - timestamps without a zone


def parse_footer_size(tail: memoryview | bytes) -> int:
    """Return the size of the footer, trailer included, from the last bytes of a file."""
    trailer = bytes(tail[-_TRAILER_BYTES:])
    if trailer[4:] == b"PARE":
        raise UnsupportedError("the file is an encrypted Parquet file, which is not supported")
    if len(trailer) < _TRAILER_BYTES or trailer[4:] != b"PAR1":
        raise CorruptError("the file does not end like a Parquet file; it may be truncated")
    return int.from_bytes(trailer[:4], "little") + _TRAILER_BYTES


@dataclass(frozen=True, slots=True)
class RowGroup:
    """A row group by its position in the file. `first_row` counts from the start of the file."""

    index: int
    first_row: int
    row_count: int


def open_layout(tail: memoryview | bytes, file_bytes: int, name: str, *, is_verified: bool) -> ShardLayout:
    """Parse the footer of a file of `file_bytes`. `tail` is the footer as stored, or the whole file.

    `name` begins the message of every error. `is_verified`: the manifest has a checksum of the footer. Only then is
    its NaN metadata trusted.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    tail = tail[-parse_footer_size(tail) :]
    try:
        metadata = pq.read_metadata(pa.BufferReader(pa.py_buffer(tail)))
    except (*_PARSE_ERRORS, pa.ArrowException) as error:
        raise CorruptError(f"{name} has a damaged Parquet footer: {error}", hint=REPAIR_HINT) from error
    return ShardLayout(metadata, bytes(tail[:-_TRAILER_BYTES]), file_bytes, name, is_verified=is_verified)


class ShardLayout:
    """Answers from a footer. Columns are top-level columns; each has one or more leaf columns in the file.

    `encoded` are the bytes of `metadata`.
    """

    def __init__(
        self, metadata: pq.FileMetaData, encoded: bytes, file_bytes: int, name: str, *, is_verified: bool
    ) -> None:
        self.metadata = metadata
        """For Arrow's reader. Do not access row groups: a damaged one ends the process."""
        self._encoded = encoded
        self._file_bytes = file_bytes
        self._name = name
        self._without_nan = columns_without_nan(metadata.metadata) if is_verified else frozenset()
        self._is_coded: dict[tuple[int, int], bool] = {}

    @cached_property
    def schema(self) -> pa.Schema:
        """The Arrow schema, without extension types of this library. `CorruptError` if the footer has no valid one."""
        return plain_schema(self._embedded_schema)

    @cached_property
    def claims_extensions(self) -> bool:
        """True if the file claims an extension type of this library, which decoded rows must not have."""
        return claims_extensions(self._embedded_schema)

    @cached_property
    def footer(self) -> FileFooter:
        """The column chunks. The first access parses the footer, in about 10 µs for each column chunk."""
        try:
            footer = parse_footer(self._encoded, self._file_bytes)
            if len(footer.column_leaves) != len(self.schema):
                raise CorruptError(f"it has {len(footer.column_leaves)} columns for a schema of {len(self.schema)}")
        except CorruptError as error:
            raise CorruptError(
                f"{self._name} has a damaged Parquet footer: {error.message}", hint=REPAIR_HINT
            ) from error
        return footer

    @cached_property
    def row_groups(self) -> list[RowGroup]:
        out, first = [], 0
        for index, count in enumerate(self.footer.group_rows):
            out.append(RowGroup(index, first, count))
            first += count
        return out

    def leaves(self, columns: Sequence[str]) -> list[int]:
        """Return the positions of the columns' leaf columns."""
        return [leaf for name in columns for leaf in self._leaves.get(name, ())]

    def file_type(self, name: str) -> pa.DataType:
        """Return the type in which Arrow decodes a column, before own extension types and text views are converted."""
        return self._embedded_schema.field(name).type

    def column_schema(self, name: str) -> tuple[Sequence[bytes], pa.Field | None]:
        """Return a column's encoded Parquet schema; and its field, if the file embeds an Arrow schema."""
        has_arrow_schema = b"ARROW:schema" in (self.metadata.metadata or {})
        position = self.schema.names.index(name)
        return self._column_elements[position], self._embedded_schema.field(position) if has_arrow_schema else None

    @cached_property
    def _column_elements(self) -> list[list[bytes]]:
        return split_schema(self._encoded)

    def spans(self, group: int, columns: Sequence[str]) -> list[ByteRange]:
        """Return the byte range of every column chunk of the columns."""
        chunks = self.footer.chunks[group]
        return [chunks[leaf].span for leaf in self.leaves(columns)]

    def prefix_spans(self, group: int, columns: Sequence[str], row_count: int) -> list[ByteRange]:
        """Return byte ranges that probably hold the first rows of the columns: twice their share, at least 256 KiB."""
        chunks = self.footer.chunks[group]
        share = row_count / max(self.footer.group_rows[group], 1)
        out = []
        for leaf in self.leaves(columns):
            span = chunks[leaf].span
            size_bytes = chunks[leaf].dictionary_bytes + max(_MIN_PREFIX_BYTES, int(2 * share * span.size_bytes))
            out.append(ByteRange(span.start, min(span.end, span.start + size_bytes)))
        return out

    def split_columns(self, group: int, columns: Sequence[str], max_bytes: int) -> Iterator[list[str]]:
        """Yield the columns in order, in lists that decode to at most `max_bytes` or have one column."""
        chunks = self.footer.chunks[group]
        names: list[str] = []
        size_bytes = 0
        for name in columns:
            column_bytes = sum(chunks[leaf].decoded_bytes for leaf in self.leaves([name]))
            if names and size_bytes + column_bytes > max_bytes:
                yield names
                names, size_bytes = [], 0
            names.append(name)
            size_bytes += column_bytes
        if names:
            yield names

    def row_bytes(self, columns: Sequence[str]) -> float:
        """Estimate the mean size of a decoded row, from below where values have various sizes."""
        total = 0.0
        footer = self.footer
        for name in columns:
            fixed = _fixed_bytes(self.schema.field(name).type)
            if fixed is not None:
                total += fixed
                continue
            leaves = self.leaves([name])
            sizes = [_decoded_bytes(chunks[leaf], footer.leaves[leaf]) for chunks in footer.chunks for leaf in leaves]
            total += sum(sizes) / max(sum(footer.group_rows), 1)
        return total

    def bounds(self, group: int, columns: Sequence[str]) -> dict[str, Bounds]:
        """Return the statistics of the flat columns that have them."""
        chunks, row_count = self.footer.chunks[group], self.footer.group_rows[group]
        out = {}
        for name in columns:
            leaves = self._leaves.get(name, range(0))
            leaf = self.footer.leaves[leaves[0]] if len(leaves) == 1 else None
            statistics = chunks[leaves[0]].statistics if leaf is not None and leaf.is_flat else None
            if leaf is None or statistics is None:
                continue
            out[name] = self.decode_bounds(name, leaf, statistics, row_count)
        return out

    def decode_bounds(self, name: str, leaf: LeafColumn, statistics: ChunkStatistics, row_count: int) -> Bounds:
        """Return statistics of a flat column as filters compare them."""
        decode = self._decoder(name, leaf)
        minimum, maximum = decode(statistics.minimum), decode(statistics.maximum)
        is_known = minimum is not None and maximum is not None
        return Bounds(
            minimum=minimum if is_known else None,
            maximum=maximum if is_known else None,
            null_count=statistics.null_count,
            row_count=row_count,
            may_have_nan=leaf.physical_type in (_FLOAT, _DOUBLE) and name not in self._without_nan,
        )

    def flat_leaf(self, name: str) -> int | None:
        """Return the leaf column of a flat column; None for another, or for one that the file does not have."""
        leaves = self._leaves.get(name, range(0))
        return leaves[0] if len(leaves) == 1 and self.footer.leaves[leaves[0]].is_flat else None

    def small_dictionaries(self, group: int, columns: Sequence[str]) -> list[str]:
        """Return the text columns with few distinct values, which are cheaper to read and filter as dictionaries."""
        leaves = ((name, self._text_leaves.get(name)) for name in columns)
        return [name for name, leaf in leaves if leaf is not None and self._has_small_dictionary(group, leaf)]

    @cached_property
    def view_columns(self) -> frozenset[str]:
        """The text columns that are views, of which Arrow cannot take rows."""
        import pyarrow as pa

        return frozenset(field.name for field in self.schema if field.type in (pa.string_view(), pa.binary_view()))

    @cached_property
    def text_columns(self) -> frozenset[str]:
        """The columns that have text, alone or inside lists and structs."""
        return frozenset(field.name for field in self.schema if has_text(field.type))

    @cached_property
    def _embedded_schema(self) -> pa.Schema:
        import pyarrow as pa

        try:
            schema = strip_nan_metadata(self.metadata.schema.to_arrow_schema())
            schema.names  # noqa: B018 - fails for names that are not UTF-8
        except (*_PARSE_ERRORS, pa.ArrowException) as error:
            raise CorruptError(f"{self._name} has a damaged Parquet schema: {error}", hint=REPAIR_HINT) from error
        return schema

    def _decoder(self, name: str, leaf: LeafColumn) -> Callable[[bytes | None], Any]:
        return functools.partial(_decode_statistic, arrow_type=self.schema.field(name).type, leaf=leaf)

    def _has_small_dictionary(self, group: int, leaf: int) -> bool:
        known = self._is_coded.get((group, leaf))
        if known is None:
            known = self._is_coded[group, leaf] = _is_coded(self.footer.chunks[group][leaf])
        return known

    @cached_property
    def _text_leaves(self) -> dict[str, int]:
        """The leaf column of every column that Arrow can read as a dictionary."""
        import pyarrow as pa

        text_types = (pa.string(), pa.large_string(), pa.binary(), pa.large_binary())
        leaves = {field.name: self.leaves([field.name]) for field in self.schema if field.type in text_types}
        return {name: found[0] for name, found in leaves.items() if len(found) == 1}

    @cached_property
    def _leaves(self) -> dict[str, range]:
        """Leaf columns by position. Their paths are ambiguous, because a name may have a dot."""
        leaves = dict(zip(self.schema.names, self.footer.column_leaves, strict=True))
        if len(leaves) != len(self.schema):
            raise CorruptError(f"{self._name} has two columns of the same name", hint=REPAIR_HINT)
        return leaves


def _fixed_bytes(arrow_type: pa.DataType) -> float | None:
    """Return the size of one value in memory, or None if values have various sizes."""
    try:
        return float(arrow_type.bit_width) / 8
    except ValueError:
        return None


def _decoded_bytes(chunk: ColumnChunk, leaf: LeafColumn) -> int:
    """Return a lower bound of the decoded size. A dictionary makes the encoded size much smaller than that.

    The statistics say when all values are equal, the case in which the two differ most.
    """
    statistics = chunk.statistics if leaf.physical_type == _BYTE_ARRAY else None
    if statistics is None or statistics.minimum is None or statistics.minimum != statistics.maximum:
        return chunk.decoded_bytes
    return max(chunk.decoded_bytes, (chunk.value_count - (statistics.null_count or 0)) * len(statistics.minimum))


def has_text(arrow_type: pa.DataType) -> bool:
    """Return whether values of this type are text, or lists or structs with text."""
    import pyarrow as pa

    stored = getattr(arrow_type, "storage_type", arrow_type)
    if pa.types.is_dictionary(stored):
        return has_text(stored.value_type)
    if stored in (pa.string(), pa.large_string(), pa.string_view()):
        return True
    return any(has_text(stored.field(index).type) for index in range(stored.num_fields))


def _is_coded(chunk: ColumnChunk) -> bool:
    """Estimate from sizes whether nearly all values are codes of a small dictionary.

    A writer may abandon a dictionary within the chunk. The other values are then plain, and Arrow would have to
    build a large dictionary of them.
    """
    is_mostly_codes = chunk.decoded_bytes <= _CODE_BYTES * chunk.value_count + MIB
    return 0 < chunk.dictionary_bytes <= _MAX_DICTIONARY_BYTES and is_mostly_codes


def _decode_statistic(stored: bytes | None, arrow_type: pa.DataType, leaf: LeafColumn) -> Any:
    """Return a minimum or maximum as filters compare it; None for other types and for invalid bytes."""
    import pyarrow as pa

    size_bytes = _STATISTIC_BYTES.get(leaf.physical_type)
    if stored is None or (size_bytes is not None and len(stored) != size_bytes):
        return None
    if pa.types.is_integer(arrow_type) and leaf.physical_type in (_INT32, _INT64):
        return int.from_bytes(stored, "little", signed=pa.types.is_signed_integer(arrow_type))
    if arrow_type in (pa.float32(), pa.float64()) and leaf.physical_type in (_FLOAT, _DOUBLE):
        value: float = struct.unpack("<f" if leaf.physical_type == _FLOAT else "<d", stored)[0]
        return None if math.isnan(value) else value
    try:
        if arrow_type in (pa.string(), pa.large_string()) and leaf.physical_type == _BYTE_ARRAY:
            return stored.decode()
        if arrow_type == pa.bool_() and leaf.physical_type == _BOOLEAN:
            return bool(stored[0])
        if arrow_type == pa.date32() and leaf.physical_type == _INT32:
            return _EPOCH.date() + timedelta(days=int.from_bytes(stored, "little", signed=True))
        if pa.types.is_timestamp(arrow_type) and arrow_type.tz is None and leaf.time_unit is not None:
            ticks = int.from_bytes(stored, "little", signed=True)
            return _EPOCH + (timedelta(milliseconds=ticks) if leaf.time_unit == "ms" else timedelta(microseconds=ticks))
    except (UnicodeDecodeError, OverflowError):
        return None
    return None
