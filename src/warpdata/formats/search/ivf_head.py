"""The head of an `ivf` segment: centroids, the quantizer, and the place and checksum of every list. Pure.

Implements "Vectors" of docs/specs/search.md.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from warpdata.errors import CorruptError
from warpdata.formats.search.similarity import METRICS, Metric
from warpdata.limits import MAX_IVF_LISTS, MAX_SEGMENT_ROWS, MAX_VECTOR_SIZE
from warpdata.primitives.cached_property import cached_property
from warpdata.primitives.ranges import ByteRange
from warpdata.repository.manifest import Footer

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["IvfHead", "describe_ivf", "encode_head", "parse_head"]

_MAGIC = b"WARPIVF1"
_FIXED = struct.Struct("<8s8I2Q")
_LENGTH = struct.Struct("<Q")
_DTYPES = {4: "<f4", 8: "<f8"}


@dataclass(frozen=True, eq=False)
class IvfHead:
    """A segment without its lists. The members of list *n* are those from `starts[n]` to before `starts[n + 1]`."""

    metric: Metric
    element_bytes: int
    row_count: int
    """Rows of the segment, also those without a vector that can be compared."""
    probes: tuple[int, ...]
    """Lists to search if all rows are allowed, a tenth and a hundredth of them. Found by samples, at the build."""
    recall: float
    """The part of the best rows of the samples that these lists have."""
    centroids: NDArray[np.float32]
    minimum: NDArray[np.float32]
    """The number that code 0 begins at, by position of the vector."""
    step: NDArray[np.float32]
    """The width of a code."""
    counts: NDArray[np.uint32]
    code_sums: NDArray[np.uint64]
    vector_sums: NDArray[np.uint64]
    """Checksums of the codes and the vectors of each list."""
    rows: NDArray[np.uint32]
    """The rows of the segment that have a vector, list by list."""

    @property
    def size(self) -> int:
        """The size of a vector."""
        return int(self.centroids.shape[1])

    def probes_at(self, selectivity: float) -> int:
        """Return the number of lists to search if a filter allows this part of the rows."""
        tenths = -math.log10(selectivity)
        at = min(int(tenths), len(self.probes) - 2)
        low, high = self.probes[at : at + 2]
        return math.ceil(low * math.pow(high / low, tenths - at))

    @property
    def list_count(self) -> int:
        return len(self.counts)

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(_DTYPES[self.element_bytes])

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        return np.concatenate([[0], np.cumsum(self.counts, dtype=np.int64)])

    @property
    def vector_count(self) -> int:
        return int(self.starts[-1])

    def codes_range(self, number: int) -> ByteRange:
        """Return the bytes of the codes of a list."""
        return ByteRange(int(self.starts[number]) * self.size, int(self.starts[number + 1]) * self.size)

    def vectors_range(self, number: int) -> ByteRange:
        """Return the bytes of the vectors of a list."""
        begin, width = self.vector_count * self.size, self.size * self.element_bytes
        return ByteRange(begin + int(self.starts[number]) * width, begin + int(self.starts[number + 1]) * width)


def encode_head(head: IvfHead) -> bytes:
    """Return the bytes of the head, as they end the file."""
    numbers = (METRICS.index(head.metric), head.size, head.list_count, head.element_bytes)
    fixed = _FIXED.pack(_MAGIC, *numbers, *head.probes, round(head.recall * 1e6), head.row_count, head.vector_count)
    arrays = (head.centroids, head.minimum, head.step)
    floats = b"".join(np.ascontiguousarray(array, "<f4").tobytes() for array in arrays)
    sums = head.code_sums.astype("<u8").tobytes() + head.vector_sums.astype("<u8").tobytes()
    data = fixed + floats + head.counts.astype("<u4").tobytes() + sums + head.rows.astype("<u4").tobytes()
    return data + _LENGTH.pack(len(data) + _LENGTH.size)


def describe_ivf(path: Path) -> Footer:
    """Return the size and the checksum of the head of a local file that this program wrote."""
    import xxhash

    with path.open("rb") as file:
        file.seek(-_LENGTH.size, 2)
        size_bytes: int = _LENGTH.unpack(file.read())[0]
        file.seek(-size_bytes, 2)
        return Footer(size_bytes, xxhash.xxh3_64_hexdigest(file.read()))


def parse_head(data: memoryview, file_bytes: int, place: str) -> IvfHead:
    """Parse the head of a file of this size. Raise `CorruptError` if it does not fit the file."""
    if len(data) < _FIXED.size or bytes(data[:8]) != _MAGIC:
        raise CorruptError(f"{place} does not end in the head of an index of vectors")
    _, metric, size, lists, element_bytes, *probes, recall, row_count, vector_count = _FIXED.unpack_from(data)
    is_known = metric < len(METRICS) and element_bytes in _DTYPES and recall <= 1e6
    is_bounded = 0 < size <= MAX_VECTOR_SIZE and 0 < lists <= MAX_IVF_LISTS and row_count <= MAX_SEGMENT_ROWS
    if not is_known or not is_bounded or not 0 < min(probes) <= max(probes) <= lists:
        raise CorruptError(f"the head of {place} has {lists} lists of vectors of {size}, or an unknown metric")
    wanted = _FIXED.size + 4 * size * (lists + 2) + 20 * lists + 4 * vector_count + _LENGTH.size
    if len(data) != wanted or _LENGTH.unpack(data[-_LENGTH.size :])[0] != wanted:
        raise CorruptError(f"the head of {place} has {len(data)} bytes, which does not fit {lists} lists")
    at = _FIXED.size
    parts = []
    for dtype, count in (
        ("<f4", lists * size),
        ("<f4", size),
        ("<f4", size),
        ("<u4", lists),
        ("<u8", lists),
        ("<u8", lists),
        ("<u4", vector_count),
    ):
        parts.append(np.frombuffer(data, dtype, count, at))
        at += count * np.dtype(dtype).itemsize
    centroids, minimum, step, counts, code_sums, vector_sums, rows = parts
    if not (np.isfinite(centroids).all() and np.isfinite(minimum).all() and np.isfinite(step).all()):
        raise CorruptError(f"the head of {place} has a number that is not finite")
    head = IvfHead(
        METRICS[metric],
        element_bytes,
        row_count,
        tuple(probes),
        recall / 1e6,
        centroids.reshape(lists, size),
        minimum,
        step,
        counts,
        code_sums,
        vector_sums,
        rows,
    )
    is_complete = sum(counts.tolist()) == vector_count <= row_count
    if not is_complete or vector_count * size * (1 + element_bytes) + len(data) != file_bytes:
        raise CorruptError(f"the lists of {place} do not have {vector_count} vectors in {file_bytes} bytes")
    if vector_count and int(rows.max()) >= row_count:
        raise CorruptError(f"{place} has row {rows.max()} of {row_count}")
    return head
