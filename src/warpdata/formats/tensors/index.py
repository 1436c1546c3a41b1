"""The canonical index: which tensors there are, and where their bytes lie in the canonical ByteSpace.

Pure values. An index that exists is valid: bounds, alignment and overlap are checked when it is made.
Reading and writing its bytes is `index_json`. Implements "Index" of docs/specs/tensors.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from warpdata.errors import BadInputError, InvalidViewError
from warpdata.formats.tensors.dtypes import DType, dtype_named
from warpdata.limits import MAX_TENSOR_DIMS, MAX_TENSOR_NAME_BYTES, MAX_TENSOR_SPACE_BYTES, MAX_TENSORS

__all__ = ["ALIGNMENT_BYTES", "TensorEntry", "TensorIndex", "align", "compact_stride", "index_problems", "pack_index"]

ALIGNMENT_BYTES = 8


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """One tensor: the storage it lies in (bytes `offset` to `offset + size`), and its place in it.

    `stride` and `storage_offset` count elements. Tensors that share a storage repeat `offset` and `size`.
    """

    name: str
    offset: int
    size: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: DType
    storage_offset: int = 0

    @property
    def element_count(self) -> int:
        return math.prod(self.shape)

    @property
    def byte_size(self) -> int:
        """Bytes of the elements alone, which may be fewer than the storage has."""
        return self.element_count * self.dtype.item_bytes

    @property
    def is_compact(self) -> bool:
        """Whether the elements, in row-major order, are exactly the storage."""
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


@dataclass(frozen=True, slots=True)
class TensorIndex:
    """All tensors of an artifact, in name order. `BadInputError` if they can not be one."""

    entries: tuple[TensorEntry, ...]
    total_size: int = field(init=False)
    _by_name: Mapping[str, TensorEntry] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        problems = index_problems(self.entries)
        if problems:
            raise BadInputError(f"the tensors make no index: {'; '.join(problems[:5])}")
        object.__setattr__(self, "total_size", max((e.offset + e.size for e in self.entries), default=0))
        object.__setattr__(self, "_by_name", {entry.name: entry for entry in self.entries})

    def __iter__(self) -> Iterator[TensorEntry]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    def __getitem__(self, name: str) -> TensorEntry:
        entry = self._by_name.get(name)
        if entry is None:
            raise InvalidViewError(f"there is no tensor {name!r}", hint="`names()` lists those there are")
        return entry

    def names(self) -> list[str]:
        return [entry.name for entry in self.entries]


def pack_index(tensors: Mapping[str, tuple[str | DType, Sequence[int]]]) -> TensorIndex:
    """Lay tensors out in name order, each with a storage of its own, aligned, without more gaps than that."""
    entries, cursor = [], 0
    for name in sorted(tensors):
        kind, shape = tensors[name]
        dtype = kind if isinstance(kind, DType) else dtype_named(kind)
        cursor = align(cursor)
        size = math.prod(shape) * dtype.item_bytes
        entries.append(TensorEntry(name, cursor, size, tuple(shape), compact_stride(shape), dtype))
        cursor += size
    return TensorIndex(tuple(entries))


def align(position: int) -> int:
    """The next place where a tensor may start."""
    return -(-position // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


def compact_stride(shape: Sequence[int]) -> tuple[int, ...]:
    """Row-major strides in elements."""
    out, step = [], 1
    for count in reversed(shape):
        out.append(step)
        step *= count
    return tuple(reversed(out))


def index_problems(entries: Iterable[TensorEntry]) -> list[str]:
    """Everything that keeps entries from being an index, each with the tensor's name."""
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
        yield f"{len(entry.shape)} dimensions, and {len(entry.stride)} strides"
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
            yield f"element {last} lies outside its storage of {entry.size} bytes"


def _overlaps(entries: tuple[TensorEntry, ...]) -> list[str]:
    """Storages are the same or apart; an empty one takes no room."""
    problems = []
    ordered = sorted((entry for entry in entries if entry.size), key=lambda e: (e.offset, e.size))
    for before, after in pairwise(ordered):
        same = (before.offset, before.size) == (after.offset, after.size)
        if not same and after.offset < before.offset + before.size:
            problems.append(f"the storages of {before.name!r} and {after.name!r} overlap")
    return problems
