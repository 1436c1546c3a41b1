"""The layout of a Parquet file, from its footer: row groups, column chunks, statistics, dictionaries. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from warpdata.errors import CorruptError, UnsupportedError
from warpdata.formats.parquet.extension_types import claims_extensions, plain_schema
from warpdata.formats.parquet.nan_stats import columns_without_nan, strip_nan_metadata
from warpdata.limits import KIB, MIB
from warpdata.primitives.cached_property import cached_property
from warpdata.primitives.ranges import ByteRange
from warpdata.query import Bounds

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

__all__ = ["RowGroup", "ShardLayout", "parse_footer_size"]

_TRAILER_BYTES = 8
_MIN_PREFIX_BYTES = 256 * KIB
_MAX_DICTIONARY_BYTES = 64 * KIB
_CODE_BYTES = 2


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


class ShardLayout:
    """Answers from a footer. Columns are top-level columns; each has one or more leaf columns in the file.

    `is_verified`: the manifest has a checksum of the footer. Only then is its NaN metadata trusted.
    """

    def __init__(self, metadata: pq.FileMetaData, *, is_verified: bool) -> None:
        self._metadata = metadata
        self._without_nan = columns_without_nan(metadata.metadata) if is_verified else frozenset()
        self._is_coded: dict[tuple[int, int], bool] = {}

    @cached_property
    def schema(self) -> pa.Schema:
        return plain_schema(self._embedded_schema)

    @cached_property
    def claims_extensions(self) -> bool:
        """True if the file claims an extension type of this library, which decoded rows must not have."""
        return claims_extensions(self._embedded_schema)

    @cached_property
    def row_groups(self) -> list[RowGroup]:
        out, first = [], 0
        for index in range(self._metadata.num_row_groups):
            count = self._metadata.row_group(index).num_rows
            out.append(RowGroup(index, first, count))
            first += count
        return out

    def leaves(self, columns: Sequence[str]) -> list[int]:
        """Return the positions of the columns' leaf columns."""
        return [leaf for name in columns for leaf in self._leaves.get(name, ())]

    def spans(self, group: int, columns: Sequence[str]) -> list[ByteRange]:
        """Return the byte range of every column chunk of the columns."""
        metadata = self._metadata.row_group(group)
        return [_chunk_span(metadata.column(leaf)) for leaf in self.leaves(columns)]

    def prefix_spans(self, group: int, columns: Sequence[str], row_count: int) -> list[ByteRange]:
        """Return byte ranges that probably hold the first rows of the columns: twice their share, at least 256 KiB."""
        metadata = self._metadata.row_group(group)
        share = row_count / max(metadata.num_rows, 1)
        out = []
        for leaf in self.leaves(columns):
            chunk = metadata.column(leaf)
            span = _chunk_span(chunk)
            dictionary_bytes = chunk.data_page_offset - span.start
            size_bytes = dictionary_bytes + max(_MIN_PREFIX_BYTES, int(2 * share * span.size_bytes))
            out.append(ByteRange(span.start, min(span.end, span.start + size_bytes)))
        return out

    def split_columns(self, group: int, columns: Sequence[str], max_bytes: int) -> Iterator[list[str]]:
        """Yield the columns in order, in lists that decode to at most `max_bytes` or have one column."""
        metadata = self._metadata.row_group(group)
        names: list[str] = []
        size_bytes = 0
        for name in columns:
            column_bytes = sum(metadata.column(leaf).total_uncompressed_size for leaf in self.leaves([name]))
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
        groups = [self._metadata.row_group(index) for index in range(self._metadata.num_row_groups)]
        for name in columns:
            fixed = _fixed_bytes(self.schema.field(name).type)
            if fixed is not None:
                total += fixed
                continue
            leaves = self.leaves([name])
            chunks = [_decoded_bytes(group.column(leaf)) for group in groups for leaf in leaves]
            total += sum(chunks) / max(self._metadata.num_rows, 1)
        return total

    def bounds(self, group: int, columns: Sequence[str]) -> dict[str, Bounds]:
        """Return the statistics of the flat columns that have them."""
        metadata = self._metadata.row_group(group)
        out = {}
        for name in columns:
            leaves = self.leaves([name])
            chunk = metadata.column(leaves[0]) if len(leaves) == 1 else None
            if chunk is None or chunk.path_in_schema != name or chunk.statistics is None:
                continue
            statistics = chunk.statistics
            out[name] = Bounds(
                minimum=statistics.min if statistics.has_min_max else None,
                maximum=statistics.max if statistics.has_min_max else None,
                null_count=statistics.null_count if statistics.has_null_count else None,
                row_count=metadata.num_rows,
                may_have_nan=chunk.physical_type in ("FLOAT", "DOUBLE") and name not in self._without_nan,
            )
        return out

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
    def _embedded_schema(self) -> pa.Schema:
        return strip_nan_metadata(self._metadata.schema.to_arrow_schema())

    def _has_small_dictionary(self, group: int, leaf: int) -> bool:
        known = self._is_coded.get((group, leaf))
        if known is None:
            known = self._is_coded[group, leaf] = _is_coded(self._metadata.row_group(group).column(leaf))
        return known

    @cached_property
    def _text_leaves(self) -> dict[str, int]:
        """The leaf column of every column that Arrow can read as a dictionary."""
        import pyarrow as pa

        text_types = (pa.string(), pa.large_string(), pa.binary(), pa.large_binary())
        leaves = {field.name: self.leaves([field.name]) for field in self.schema if field.type in text_types}
        return {name: found[0] for name, found in leaves.items() if len(found) == 1}

    @cached_property
    def _leaves(self) -> dict[str, list[int]]:
        """Count leaf columns by type. Their paths are ambiguous, because a name may have a dot."""
        leaves: dict[str, list[int]] = {}
        first = 0
        for field in self.schema:
            end = first + _leaf_count(field.type)
            leaves[field.name] = list(range(first, end))
            first = end
        return leaves


def _fixed_bytes(arrow_type: pa.DataType) -> float | None:
    """Return the size of one value in memory, or None if values have various sizes."""
    try:
        return float(arrow_type.bit_width) / 8
    except ValueError:
        return None


def _decoded_bytes(chunk: pq.ColumnChunkMetaData) -> int:
    """Return a lower bound of the decoded size. A dictionary makes the encoded size much smaller than that.

    The statistics say when all values are equal, the case in which the two differ most.
    """
    encoded: int = chunk.total_uncompressed_size
    statistics = chunk.statistics if chunk.physical_type == "BYTE_ARRAY" else None
    if statistics is None or not statistics.has_min_max or statistics.min_raw != statistics.max_raw:
        return encoded
    decoded: int = (chunk.num_values - (statistics.null_count or 0)) * len(statistics.min_raw)
    return max(encoded, decoded)


def _leaf_count(arrow_type: pa.DataType) -> int:
    stored = getattr(arrow_type, "storage_type", arrow_type)
    return sum(_leaf_count(stored.field(index).type) for index in range(stored.num_fields)) or 1


def _is_coded(chunk: pq.ColumnChunkMetaData) -> bool:
    """Estimate from sizes whether nearly all values are codes of a small dictionary.

    A writer may abandon a dictionary within the chunk. The other values are then plain, and Arrow would have to
    build a large dictionary of them.
    """
    dictionary_bytes = chunk.data_page_offset - _chunk_span(chunk).start
    is_mostly_codes: bool = chunk.total_uncompressed_size <= _CODE_BYTES * chunk.num_values + MIB
    return 0 < dictionary_bytes <= _MAX_DICTIONARY_BYTES and is_mostly_codes


def _chunk_span(chunk: pq.ColumnChunkMetaData) -> ByteRange:
    start = chunk.data_page_offset
    dictionary = chunk.dictionary_page_offset if chunk.has_dictionary_page else None
    if dictionary and dictionary < start:
        start = dictionary
    return ByteRange(start, start + chunk.total_compressed_size)
