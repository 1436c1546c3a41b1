"""Index ↔ bytes: compact JSON with one spelling, because the bytes are hashed.

Whatever is not that one spelling is refused, even where its meaning is plain: an artifact has one name.
Implements "Index bytes" of docs/specs/tensors.md.
"""

from __future__ import annotations

import json
from typing import Any

from warpdata.errors import CorruptError, TensorsCorruptedError, UnsupportedFormatError
from warpdata.formats.tensors.dtypes import dtype_named
from warpdata.formats.tensors.index import TensorEntry, TensorIndex, index_problems
from warpdata.limits import MAX_TENSOR_INDEX_BYTES
from warpdata.primitives.strict_json import decode_json

__all__ = ["decode_object", "encode_index", "parse_index"]

_FIELDS = ("offset", "size", "shape", "stride", "dtype", "storage_offset")
_MAX_REPORTED = 20


def encode_index(index: TensorIndex) -> bytes:
    """The canonical bytes."""
    rows = {
        entry.name: [entry.offset, entry.size, entry.shape, entry.stride, entry.dtype.name, entry.storage_offset]
        for entry in index
    }
    return json.dumps(rows, ensure_ascii=False, separators=(",", ":")).encode()


def parse_index(data: bytes, what: str = "the tensor index") -> TensorIndex:
    """Strictly: `TensorsCorruptedError` with every problem, or an index whose bytes are exactly `data`."""
    if len(data) > MAX_TENSOR_INDEX_BYTES:
        raise TensorsCorruptedError(f"{what} has {len(data)} bytes; {MAX_TENSOR_INDEX_BYTES} are allowed")
    rows = decode_object(data, what)
    problems: list[str] = []
    entries = [entry for name, row in rows.items() if (entry := _entry(name, row, problems)) is not None]
    problems = problems or index_problems(entries)
    if problems:
        shown = tuple(problems[:_MAX_REPORTED])
        raise TensorsCorruptedError(f"{what} has {len(problems)} problems; the first: {shown[0]}", problems=shown)
    index = TensorIndex(tuple(entries))
    if encode_index(index) != data:
        raise TensorsCorruptedError(f"{what} is not in its canonical spelling")
    return index


def decode_object(data: bytes, what: str) -> dict[str, Any]:
    """One JSON object. Fractions have no place in an index or a header; each field's own check refuses them."""
    try:
        value = decode_json(data, what)
    except CorruptError as error:
        raise TensorsCorruptedError(error.message) from error
    if not isinstance(value, dict):
        raise TensorsCorruptedError(f"{what} is not a JSON object")
    return value


def _entry(name: str, row: Any, problems: list[str]) -> TensorEntry | None:
    if not isinstance(row, list) or len(row) != len(_FIELDS):
        problems.append(f"{name!r}: not a list of {', '.join(_FIELDS)}")
        return None
    offset, size, shape, stride, kind, storage_offset = row
    whole = all(_is_count(value) for value in (offset, size, storage_offset))
    lists = all(isinstance(values, list) and all(_is_count(value) for value in values) for values in (shape, stride))
    if not whole or not lists or not isinstance(kind, str):
        problems.append(f"{name!r}: a field has the wrong type")
        return None
    try:
        dtype = dtype_named(kind)
    except UnsupportedFormatError as error:
        problems.append(f"{name!r}: {error.message}")
        return None
    return TensorEntry(name, offset, size, tuple(shape), tuple(stride), dtype, storage_offset)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
