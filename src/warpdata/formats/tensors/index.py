"""The canonical index: the tensors of an artifact, their positions in the canonical ByteSpace, and the JSON form.

An index is valid by construction: bounds, alignment and overlap are checked when it is made. Its JSON has one
spelling, because the bytes are hashed; any other spelling is rejected, so that an artifact has one id. Implements
"Index" and "Index bytes" of docs/specs/tensors.md.
"""

from __future__ import annotations

import json
import math
import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from warpdata.errors import (
    BadInputError,
    CorruptError,
    UnsupportedError,
)
from warpdata.formats.tensors.dtypes import TensorDType, dtype_named
from warpdata.limits import (
    MAX_TENSOR_DIMS,
    MAX_TENSOR_INDEX_BYTES,
    MAX_TENSOR_NAME_BYTES,
    MAX_TENSOR_SPACE_BYTES,
    MAX_TENSORS,
)
from warpdata.primitives.arguments import check_arguments
from warpdata.primitives.strict_json import decode_json

__all__ = [
    "ALIGNMENT_BYTES",
    "TensorEntry",
    "TensorIndex",
    "align",
    "compact_stride",
    "decode_object",
    "encode_index",
    "pack_index",
    "parse_index",
]

ALIGNMENT_BYTES = 8
_FIELDS = ("offset", "size", "shape", "stride", "dtype", "storage_offset")
_MAX_REPORTED = 20


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """One tensor: its storage (bytes `offset` to `offset + size`), and the position of its elements in the storage.

    `stride` and `storage_offset` count elements. Tensors that share a storage repeat `offset` and `size`.
    """

    name: str
    offset: int
    size: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: TensorDType
    storage_offset: int = 0

    @property
    def element_count(self) -> int:
        return math.prod(self.shape)

    @property
    def byte_size(self) -> int:
        """Bytes of the elements alone. The storage may have more."""
        return self.element_count * self.dtype.item_bytes

    @property
    def is_compact(self) -> bool:
        """The elements, in row-major order, are exactly the storage."""
        return (
            self.storage_offset == 0
            and self.byte_size == self.size
            and (
                self.size == 0
                or all(
                    count == 1 or have == want
                    for count, have, want in zip(self.shape, self.stride, compact_stride(self.shape), strict=True)
                )
            )
        )


@dataclass(frozen=True, slots=True, repr=False)
class TensorIndex:
    """All tensors of an artifact, in name order. `BadInputError` if the entries break a rule of the index."""

    entries: tuple[TensorEntry, ...]
    total_size: int = field(init=False)
    _by_name: Mapping[str, TensorEntry] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        problems = _index_problems(self.entries)
        if problems:
            raise BadInputError(f"the tensor index is not valid: {'; '.join(problems[:5])}")
        object.__setattr__(self, "total_size", max((e.offset + e.size for e in self.entries), default=0))
        object.__setattr__(self, "_by_name", {entry.name: entry for entry in self.entries})

    def __repr__(self) -> str:
        return f"TensorIndex({len(self.entries):,} tensors, {self.total_size:,} bytes)"

    def __iter__(self) -> Iterator[TensorEntry]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    def __getitem__(self, name: str) -> TensorEntry:
        entry = self._by_name.get(name)
        if entry is None:
            raise BadInputError(f"there is no tensor {name!r}", hint="`names()` lists all tensors.")
        return entry

    def names(self) -> list[str]:
        return [entry.name for entry in self.entries]


@check_arguments
def pack_index(tensors: Mapping[str, tuple[str | TensorDType, Sequence[int]]]) -> TensorIndex:
    """Place tensors in name order, each in its own aligned storage, without other gaps."""
    entries, cursor = [], 0
    for name, given in sorted(tensors.items()):
        if not isinstance(given, tuple | list) or len(given) != 2:
            raise BadInputError(f"{name!r}: {given!r} is not a pair of a type and a shape")
        kind, shape = given[0], _counts(name, given[1])
        dtype = kind if isinstance(kind, TensorDType) else dtype_named(kind)
        cursor = align(cursor)
        size = math.prod(shape) * dtype.item_bytes
        entries.append(TensorEntry(name, cursor, size, shape, compact_stride(shape), dtype))
        cursor += size
    return TensorIndex(tuple(entries))


def _counts(name: str, shape: Sequence[int]) -> tuple[int, ...]:
    try:
        return tuple(map(operator.index, shape))
    except TypeError as error:
        raise BadInputError(f"{name!r}: the shape {shape!r} is not a list of integers") from error


def align(position: int) -> int:
    """Round up to a multiple of 8, where a tensor may begin."""
    return -(-position // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


def compact_stride(shape: Sequence[int]) -> tuple[int, ...]:
    """Return row-major strides in elements."""
    out, step = [], 1
    for count in reversed(shape):
        out.append(step)
        step *= count
    return tuple(reversed(out))


def encode_index(index: TensorIndex) -> bytes:
    """Return the canonical JSON."""
    rows = {
        entry.name: [entry.offset, entry.size, entry.shape, entry.stride, entry.dtype.name, entry.storage_offset]
        for entry in index
    }
    # Integers of NumPy become integers of Python.
    return json.dumps(rows, ensure_ascii=False, separators=(",", ":"), default=operator.index).encode()


@check_arguments
def parse_index(data: bytes, label: str = "the tensor index") -> TensorIndex:
    """Return the index whose canonical JSON is `data`, or raise `CorruptError` with every problem."""
    if len(data) > MAX_TENSOR_INDEX_BYTES:
        raise CorruptError(f"{label} has {len(data)} bytes; {MAX_TENSOR_INDEX_BYTES} are allowed")
    rows = decode_object(data, label)
    problems: list[str] = []
    entries = [entry for name, row in rows.items() if (entry := _parse_entry(name, row, problems)) is not None]
    problems = problems or _index_problems(entries)
    if problems:
        shown = tuple(problems[:_MAX_REPORTED])
        raise CorruptError(f"{label} has {len(problems)} problems; the first: {shown[0]}", problems=shown)
    index = TensorIndex(tuple(entries))
    if encode_index(index) != data:
        raise CorruptError(f"{label} is not in its canonical spelling")
    return index


def decode_object(data: bytes, label: str) -> dict[str, Any]:
    """Return one JSON object. The checks of the single fields reject fractions."""
    try:
        value = decode_json(data, label)
    except CorruptError as error:
        raise CorruptError(error.message) from error
    if not isinstance(value, dict):
        raise CorruptError(f"{label} is not a JSON object")
    return value


def _parse_entry(name: str, row: Any, problems: list[str]) -> TensorEntry | None:
    if not isinstance(row, list) or len(row) != len(_FIELDS):
        problems.append(f"{name!r}: not a list of {', '.join(_FIELDS)}")
        return None
    offset, size, shape, stride, kind, storage_offset = row
    numbers = all(_is_int(value) for value in (offset, size, storage_offset))
    lists = all(isinstance(values, list) and all(_is_int(value) for value in values) for values in (shape, stride))
    if not numbers or not lists or not isinstance(kind, str):
        problems.append(f"{name!r}: a field has the wrong type")
        return None
    try:
        dtype = dtype_named(kind)
    except UnsupportedError as error:
        problems.append(f"{name!r}: {error.message}")
        return None
    return TensorEntry(name, offset, size, tuple(shape), tuple(stride), dtype, storage_offset)


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _index_problems(entries: Iterable[TensorEntry]) -> list[str]:
    """Return every broken rule, with the name of the tensor."""
    entries = tuple(entries)
    if len(entries) > MAX_TENSORS:
        return [f"{len(entries)} tensors; {MAX_TENSORS} are allowed"]
    problems = [f"{entry.name!r}: {problem}" for entry in entries for problem in _entry_problems(entry)]
    for before, after in pairwise(entries):
        if before.name >= after.name:
            problems.append(f"{after.name!r} comes after {before.name!r}, out of order")
    return problems or _overlaps(entries)


def _entry_problems(entry: TensorEntry) -> Iterator[str]:
    try:
        name_bytes = len(entry.name.encode())
    except UnicodeEncodeError:
        yield "the name holds half a surrogate pair"
        return
    if not 0 < name_bytes <= MAX_TENSOR_NAME_BYTES:
        yield f"the name has {name_bytes} bytes; 1 to {MAX_TENSOR_NAME_BYTES} are allowed"
    if len(entry.shape) > MAX_TENSOR_DIMS:
        yield f"{len(entry.shape)} dimensions; {MAX_TENSOR_DIMS} are allowed"
        return
    if len(entry.stride) != len(entry.shape):
        yield f"{len(entry.shape)} dimensions, but {len(entry.stride)} strides"
        return
    numbers = (entry.offset, entry.size, entry.storage_offset, *entry.shape, *entry.stride)
    if not all(0 <= number <= MAX_TENSOR_SPACE_BYTES for number in numbers):
        yield f"a number is negative or above {MAX_TENSOR_SPACE_BYTES}"
        return
    if entry.offset % ALIGNMENT_BYTES:
        yield f"offset {entry.offset} is not a multiple of {ALIGNMENT_BYTES}"
    if entry.offset + entry.size > MAX_TENSOR_SPACE_BYTES:
        yield f"ends at {entry.offset + entry.size}, above {MAX_TENSOR_SPACE_BYTES}"
    if entry.byte_size > entry.size:
        yield f"elements of {entry.byte_size} bytes in a storage of {entry.size}"
    elif entry.element_count:
        last = entry.storage_offset + sum((n - 1) * s for n, s in zip(entry.shape, entry.stride, strict=True))
        if (last + 1) * entry.dtype.item_bytes > entry.size:
            yield f"element {last} is outside of its storage of {entry.size} bytes"


def _overlaps(entries: tuple[TensorEntry, ...]) -> list[str]:
    """Return storages that overlap without being equal. Empty storages never overlap."""
    problems = []
    ordered = sorted((entry for entry in entries if entry.size), key=lambda e: (e.offset, e.size))
    for before, after in pairwise(ordered):
        is_same = (before.offset, before.size) == (after.offset, after.size)
        if not is_same and after.offset < before.offset + before.size:
            problems.append(f"the storages of {before.name!r} and {after.name!r} overlap")
    return problems
