"""Split-block bloom filters of Parquet: whether a column chunk may have a value. Pure.

A filter without the value proves that no row has it. Only values that a filter of SQL compares bit by bit are looked
up. Implements "Bloom filters" of docs/specs/tables.md.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from warpdata.errors import CorruptError
from warpdata.formats.parquet.thrift import Wanted, read_struct
from warpdata.limits import MAX_THRIFT_DEPTH

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["BloomFilter", "encode_value", "parse_bloom_filter"]

_HEADER: Wanted = {1: None, 2: {1: {}}, 3: {1: {}}, 4: {1: {}}}
_SALTS = (0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D, 0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31)
_BLOCK = struct.Struct("<8I")
_INT32, _INT64, _FLOAT, _DOUBLE, _BYTE_ARRAY = 1, 2, 4, 5, 6


@dataclass(frozen=True, slots=True)
class BloomFilter:
    """The blocks of a filter."""

    data: bytes

    def may_have(self, encoded: bytes) -> bool:
        """Return False only if no value is encoded like this."""
        import xxhash

        digest = xxhash.xxh64_intdigest(encoded)
        block = ((digest >> 32) * (len(self.data) // _BLOCK.size)) >> 32
        words, key = _BLOCK.unpack_from(self.data, block * _BLOCK.size), digest & 0xFFFFFFFF
        return all(word >> ((key * salt & 0xFFFFFFFF) >> 27) & 1 for word, salt in zip(words, _SALTS, strict=True))


def parse_bloom_filter(data: bytes) -> BloomFilter | None:
    """Return the filter that these bytes are; None if it is of another kind, or has another size."""
    try:
        fields, end = read_struct(data, 0, _HEADER, MAX_THRIFT_DEPTH)
        is_known = all(1 in fields[number] for number in (2, 3, 4))  # split blocks, XXH64, and not compressed
        size_bytes = fields[1]
    except (IndexError, KeyError, TypeError, CorruptError):
        return None
    is_whole = isinstance(size_bytes, int) and size_bytes == len(data) - end
    return BloomFilter(data[end:]) if is_known and is_whole and size_bytes and not size_bytes % _BLOCK.size else None


def encode_value(value: Any, arrow_type: pa.DataType, physical_type: int) -> list[bytes] | None:
    """Return the encodings of all values that equal this one; None if they are not known."""
    import pyarrow as pa

    if isinstance(value, bool):
        return None
    try:
        if isinstance(value, int) and pa.types.is_integer(arrow_type) and physical_type in (_INT32, _INT64):
            return [value.to_bytes(4 * physical_type, "little", signed=pa.types.is_signed_integer(arrow_type))]
        if isinstance(value, int | float) and physical_type in (_FLOAT, _DOUBLE):
            form = "<f" if physical_type == _FLOAT else "<d"
            return [struct.pack(form, each) for each in ([value] if value else [0.0, -0.0])]
    except OverflowError:
        return []
    is_text = arrow_type in (pa.string(), pa.large_string()) and physical_type == _BYTE_ARRAY
    return [value.encode()] if is_text and isinstance(value, str) else None
