"""Thrift's compact protocol, in which Parquet stores its metadata. Pure.

Every read is bounded by the data: beyond its end is an `IndexError`. A reader names the fields that it wants, and all
others are skipped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from warpdata.errors import CorruptError
from warpdata.limits import MAX_THRIFT_DEPTH

__all__ = [
    "Encoded",
    "Wanted",
    "binary",
    "i32",
    "i64",
    "iter_list",
    "list_of",
    "read_integer",
    "read_list_size",
    "read_struct",
    "read_varint",
    "skip",
    "struct",
]

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

Wanted: TypeAlias = "Mapping[int, Wanted | None]"
"""The fields to read, by number. Other fields are skipped. A mapping describes a struct, or the structs of a list."""


def read_struct(data: bytes, position: int, wanted: Wanted, depth: int) -> tuple[dict[int, Any], int]:
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
            number, position = read_integer(data, position)
        kind = header & 15
        if 4 <= kind <= 6:
            value = data[position]
            position += 1
            if value > 127:
                value, position = read_varint(data, position - 1)
            if number in wanted:
                found[number] = (value >> 1) ^ -(value & 1)
        elif number in wanted:
            found[number], position = _read_value(data, position, kind, wanted[number] or {}, depth)
        else:
            position = skip(data, position, kind, depth)


def iter_list(data: bytes, number: int) -> Iterator[bytes]:
    """Yield the structs of a list as they are stored. The list is the field of this number of the outermost struct."""
    position = found = 0
    while found != number:
        header = data[position]
        if header == 0:
            return
        found += header >> 4
        position += 1
        if found != number:
            position = skip(data, position, header & 15, MAX_THRIFT_DEPTH)
    count, position = read_list_size(data, position)
    for _ in range(count):
        start, position = position, skip(data, position, _STRUCT, MAX_THRIFT_DEPTH)
        yield data[start:position]


def _read_value(data: bytes, position: int, kind: int, wanted: Wanted, depth: int) -> tuple[Any, int]:
    """Read bytes, a struct, or a list of structs. Other values are skipped and None."""
    if kind == _BINARY:
        size_bytes, position = read_varint(data, position)
        return data[position : position + size_bytes], position + size_bytes
    if depth == 0:
        raise CorruptError(f"it is nested more than {MAX_THRIFT_DEPTH} deep")
    if kind == _STRUCT:
        return read_struct(data, position, wanted, depth - 1)
    if kind == _LIST and data[position] & 15 == _STRUCT:
        count, position = read_list_size(data, position)
        structs = []
        for _ in range(count):
            struct, position = read_struct(data, position, wanted, depth - 1)
            structs.append(struct)
        return structs, position
    return None, skip(data, position, kind, depth)


def skip(data: bytes, position: int, kind: int, depth: int) -> int:
    """Return the position after a value."""
    if kind in _INTEGERS:
        while data[position] > 127:
            position += 1
        return position + 1
    if kind == _BINARY:
        size_bytes, position = read_varint(data, position)
        return position + size_bytes
    if kind in _BOOLEANS:  # the header has the value
        return position
    if kind in _FIXED_BYTES:
        return position + _FIXED_BYTES[kind]
    if depth == 0:
        raise CorruptError(f"it is nested more than {MAX_THRIFT_DEPTH} deep")
    if kind == _STRUCT:
        match = _INTEGER_STRUCT.match(data, position)
        return match.end() if match else read_struct(data, position, {}, depth - 1)[1]
    if kind in (_LIST, _SET):
        item = data[position] & 15
        count, position = read_list_size(data, position)
        if item in _BOOLEANS or item in _FIXED_BYTES:  # without a loop: the count is not verified
            return position + count * _FIXED_BYTES.get(item, 1)
        for _ in range(count):
            position = skip(data, position, item, depth - 1)
        return position
    raise CorruptError(f"it has a field of the unknown type {kind}")


def read_list_size(data: bytes, position: int) -> tuple[int, int]:
    count = data[position] >> 4
    return read_varint(data, position + 1) if count == _LONG_LIST else (count, position + 1)


def read_integer(data: bytes, position: int) -> tuple[int, int]:
    value, position = read_varint(data, position)
    return (value >> 1) ^ -(value & 1), position


def read_varint(data: bytes, position: int) -> tuple[int, int]:
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


Encoded: TypeAlias = tuple[int, bytes]
"""A value to write: its type and its bytes."""


def i32(number: int) -> Encoded:
    return 5, _varint(number << 1)


def i64(number: int) -> Encoded:
    return 6, _varint(number << 1)


def binary(data: bytes) -> Encoded:
    return _BINARY, _varint(len(data)) + data


def list_of(items: Sequence[Encoded]) -> Encoded:
    """Return a list of items of one type."""
    kind = items[0][0] if items else _STRUCT
    size = bytes([len(items) << 4 | kind]) if len(items) < _LONG_LIST else bytes([0xF0 | kind]) + _varint(len(items))
    return _LIST, size + b"".join(data for _, data in items)


def struct(fields: Mapping[int, Encoded]) -> Encoded:
    """Return a struct with these fields, in ascending order, at most 15 apart. Numbers are not negative."""
    out, last = [], 0
    for number, (kind, data) in fields.items():
        out += [bytes([number - last << 4 | kind]), data]
        last = number
    return _STRUCT, b"".join(out) + b"\0"


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)
