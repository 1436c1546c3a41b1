"""The head of a segment of vectors: its quantizer, and the place and checksum of every block. Pure.

Implements "Vectors" of docs/specs/search.md.
"""

from __future__ import annotations

import itertools
import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from warpdata.errors import CorruptError
from warpdata.formats.search.similarity import METRICS, Metric
from warpdata.formats.search.vector_quantizer import (
    CellQuantizer,
    ListQuantizer,
    Quantizer,
    ScalarCodes,
    SignQuantizer,
)
from warpdata.limits import KIB, MAX_IVF_LISTS, MAX_SEGMENT_ROWS, MAX_SIGN_BITS, MAX_VECTOR_SIZE
from warpdata.primitives.cached_property import cached_property
from warpdata.primitives.ranges import ByteRange
from warpdata.repository.manifest import Footer

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["VECTOR_KINDS", "Section", "VectorHead", "describe_vectors", "encode_head", "make_sections", "parse_head"]

VECTOR_KINDS = ("ivf", "imi", "lsh")
"""The kinds of indexes of vectors, in the order of their numbers in a head."""

_MAGIC, _MAGIC_1 = b"WARPVEC2", b"WARPIVF1"
_FIXED = struct.Struct("<8s12I2Q")
_FIXED_1 = struct.Struct("<8s8I2Q")
_LENGTH = struct.Struct("<Q")
_DTYPES = {4: "<f4", 8: "<f8"}
_ROW_BYTES = 4
_CODE_BLOCK_BYTES, _VECTOR_BLOCK_BYTES, _ROW_BLOCK_BYTES = 64 * KIB, 16 * KIB, 16 * KIB
_MIN_CANDIDATES = 40


@dataclass(frozen=True, eq=False)
class Section:
    """A part of the file with an item of `width` bytes for each member, in blocks with a checksum each."""

    name: str
    begin: int
    width: int
    starts: NDArray[np.int64]
    """The first member of each block, and the end of the last one."""
    sums: NDArray[np.uint64]
    block_members: int | None = None
    """The members of each block but the last; None if they differ."""

    @property
    def end(self) -> int:
        return self.begin + int(self.starts[-1]) * self.width

    def blocks_of(self, members: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the block of each member."""
        if self.block_members is not None:
            return members // self.block_members
        return np.searchsorted(self.starts, members, side="right") - 1

    @property
    def block_count(self) -> int:
        return len(self.sums)

    def span(self, block: int) -> ByteRange:
        """Return the bytes of a block."""
        first, last = int(self.starts[block]), int(self.starts[block + 1])
        return ByteRange(self.begin + first * self.width, self.begin + last * self.width)


def make_sections(
    count: int, code_width: int, vector_width: int, sums: Sequence[NDArray[np.uint64]] | None = None
) -> tuple[Section, Section, Section]:
    """Return the codes, vectors and rows of so many members, one after the other from the start of the file."""
    sections: list[Section] = []
    for number, (name, width, block_bytes) in enumerate(
        (
            ("codes", code_width, _CODE_BLOCK_BYTES),
            ("vectors", vector_width, _VECTOR_BLOCK_BYTES),
            ("rows", _ROW_BYTES, _ROW_BLOCK_BYTES),
        )
    ):
        members = max(block_bytes // width, 1)
        starts = np.append(np.arange(0, count, members, dtype=np.int64), count)
        begin = sections[-1].end if sections else 0
        known = np.zeros(len(starts) - 1, np.uint64) if sums is None else sums[number]
        sections.append(Section(name, begin, width, starts, known, members))
    return sections[0], sections[1], sections[2]


@dataclass(frozen=True, eq=False)
class VectorHead:
    """A segment without its members. Those of list *n* are numbered from `starts[n]` to before `starts[n + 1]`."""

    kind: str
    metric: Metric
    size: int
    """Numbers of a vector."""
    element_bytes: int
    row_count: int
    """Rows of the segment, also those without a vector that can be compared."""
    probes: tuple[int, ...]
    """Lists to search if all rows are allowed, a tenth, a hundredth and so on. Found by samples, at the build."""
    candidates: int
    """Members to compare exactly for ten hits."""
    recall: float
    """The part of the best rows of the samples that these lists have."""
    quantizer: Quantizer
    counts: NDArray[np.uint32]
    codes: Section
    vectors: Section
    rows: Section

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


def encode_head(head: VectorHead) -> bytes:
    """Return the bytes of the head, as they end the file."""
    quantizer, arrays = head.quantizer, []
    if isinstance(quantizer, SignQuantizer):
        arrays = [quantizer.planes]
    elif isinstance(quantizer, ListQuantizer | CellQuantizer):
        arrays = [quantizer.centroids, quantizer.codes.minimum, quantizer.codes.step]
    fixed = _FIXED.pack(
        _MAGIC,
        VECTOR_KINDS.index(head.kind),
        METRICS.index(head.metric),
        head.size,
        head.list_count,
        head.codes.width,
        head.element_bytes,
        *head.probes,
        head.candidates,
        round(head.recall * 1e6),
        head.row_count,
        head.vector_count,
    )
    floats = b"".join(np.ascontiguousarray(array, "<f4").tobytes() for array in arrays)
    sums = b"".join(section.sums.astype("<u8").tobytes() for section in (head.codes, head.vectors, head.rows))
    data = fixed + floats + head.counts.astype("<u4").tobytes() + sums
    return data + _LENGTH.pack(len(data) + _LENGTH.size)


def describe_vectors(path: Path) -> Footer:
    """Return the size and the checksum of the head of a local file that this program wrote."""
    import xxhash

    with path.open("rb") as file:
        file.seek(-_LENGTH.size, 2)
        size_bytes: int = _LENGTH.unpack(file.read())[0]
        file.seek(-size_bytes, 2)
        return Footer(size_bytes, xxhash.xxh3_64_hexdigest(file.read()))


def parse_head(data: memoryview, file_bytes: int, place: str) -> VectorHead:
    """Parse the head of a file of this size. Raise `CorruptError` if it does not fit the file."""
    magic = bytes(data[:8])
    if magic == _MAGIC_1 and len(data) >= _FIXED_1.size:
        head = _parse_first(data, file_bytes, place)
    elif magic == _MAGIC and len(data) >= _FIXED.size:
        head = _parse(data, file_bytes, place)
    else:
        raise CorruptError(f"{place} does not end in the head of an index of vectors")
    if not 0 < min(head.probes) <= max(head.probes) <= head.list_count or head.recall > 1:
        raise CorruptError(f"the head of {place} has probes {head.probes} of {head.list_count} lists")
    return head


def _parse(data: memoryview, file_bytes: int, place: str) -> VectorHead:
    _, kind, metric, size, lists, width, element_bytes, *rest = _FIXED.unpack_from(data)
    *probes, candidates, recall, row_count, count = rest
    is_known = kind < len(VECTOR_KINDS) and metric < len(METRICS) and element_bytes in _DTYPES
    is_bounded = 0 < size <= MAX_VECTOR_SIZE and 0 < lists <= MAX_IVF_LISTS and count <= row_count <= MAX_SEGMENT_ROWS
    if not is_known or not is_bounded or not candidates:
        raise CorruptError(f"the head of {place} has {lists} lists of vectors of {size}, or an unknown metric")
    shapes = _quantizer_shapes(VECTOR_KINDS[kind], size, lists, width)
    if shapes is None:
        raise CorruptError(f"the head of {place} has {lists} lists and codes of {width} bytes, which do not fit")
    if count * (width + size * element_bytes + _ROW_BYTES) + len(data) != file_bytes:
        raise CorruptError(f"{place} has {file_bytes} bytes, which do not fit {count} vectors")
    sections = make_sections(count, width, size * element_bytes)
    forms = [("<f4", math.prod(shape)) for shape in shapes]
    forms += [("<u4", lists), *(("<u8", section.block_count) for section in sections)]
    arrays = _split(data, _FIXED.size, forms, place)
    floats = [array.reshape(shape) for array, shape in zip(arrays, shapes, strict=False)]
    counts, *sums = arrays[len(shapes) :]
    if not all(bool(np.isfinite(array).all()) for array in floats):
        raise CorruptError(f"the head of {place} has a number that is not finite")
    codes, vectors, rows = make_sections(count, width, size * element_bytes, sums)
    if sum(counts.tolist()) != count:
        raise CorruptError(f"the lists of {place} have {sum(counts.tolist())} vectors, not {count}")
    quantizer = _quantizer(VECTOR_KINDS[kind], floats, lists)
    return VectorHead(
        VECTOR_KINDS[kind], METRICS[metric], size, element_bytes, row_count, tuple(probes), candidates, recall / 1e6,
        quantizer, counts, codes, vectors, rows,
    )  # fmt: skip


def _quantizer_shapes(kind: str, size: int, lists: int, width: int) -> list[tuple[int, ...]] | None:
    """Return the shapes of the arrays of a quantizer; None if the numbers do not fit each other."""
    if kind == "lsh":
        is_fit = lists & (lists - 1) == 0 and 0 < width * 8 <= MAX_SIGN_BITS and lists.bit_length() - 1 <= width * 8
        return [(width * 8, size)] if is_fit else None
    centroids = lists if kind == "ivf" else math.isqrt(lists)
    is_fit = width == size and (kind == "ivf" or (centroids**2 == lists and size % 2 == 0))
    return [(centroids, size), (size,), (size,)] if is_fit else None


def _quantizer(kind: str, arrays: Sequence[NDArray[np.float32]], lists: int) -> Quantizer:
    if kind == "lsh":
        return SignQuantizer(arrays[0], lists.bit_length() - 1)
    codes = ScalarCodes(arrays[1], arrays[2])
    return ListQuantizer(arrays[0], codes) if kind == "ivf" else CellQuantizer(arrays[0], codes)


def _parse_first(data: memoryview, file_bytes: int, place: str) -> VectorHead:
    """Parse the head of the first format: lists are blocks, and the head has the rows."""
    import xxhash

    _, metric, size, lists, element_bytes, *rest = _FIXED_1.unpack_from(data)
    *probes, recall, row_count, count = rest
    is_known = metric < len(METRICS) and element_bytes in _DTYPES
    is_bounded = 0 < size <= MAX_VECTOR_SIZE and 0 < lists <= MAX_IVF_LISTS and row_count <= MAX_SEGMENT_ROWS
    if not is_known or not is_bounded:
        raise CorruptError(f"the head of {place} has {lists} lists of vectors of {size}, or an unknown metric")
    forms = [("<f4", lists * size), ("<f4", size), ("<f4", size), ("<u4", lists), ("<u8", lists), ("<u8", lists)]
    centroids, minimum, step, counts, *sums, numbers = _split(data, _FIXED_1.size, [*forms, ("<u4", count)], place)
    if not all(bool(np.isfinite(array).all()) for array in (centroids, minimum, step)):
        raise CorruptError(f"the head of {place} has a number that is not finite")
    if (
        sum(counts.tolist()) != count
        or count > row_count
        or count * size * (1 + element_bytes) + len(data) != file_bytes
    ):
        raise CorruptError(f"the lists of {place} do not have {count} vectors in {file_bytes} bytes")
    starts = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
    codes = Section("codes", 0, size, starts, sums[0])
    vectors = Section("vectors", codes.end, size * element_bytes, starts, sums[1])
    block_starts = make_sections(count, 1, 1)[2].starts
    blocks = (numbers[start:stop] for start, stop in itertools.pairwise(block_starts.tolist()))
    row_sums = np.array([xxhash.xxh3_64_intdigest(block.tobytes()) for block in blocks], np.uint64)
    begin = file_bytes - _LENGTH.size - count * _ROW_BYTES
    quantizer = ListQuantizer(centroids.reshape(lists, size), ScalarCodes(minimum, step))
    return VectorHead(
        "ivf", METRICS[metric], size, element_bytes, row_count, tuple(probes), _MIN_CANDIDATES, recall / 1e6,
        quantizer, counts, codes, vectors, Section("rows", begin, _ROW_BYTES, block_starts, row_sums),
    )  # fmt: skip


def _split(data: memoryview, at: int, forms: Sequence[tuple[str, int]], place: str) -> list[NDArray[Any]]:
    """Return the arrays that follow each other from `at`. The head must end in its length after them."""
    wanted = at + sum(np.dtype(form).itemsize * count for form, count in forms) + _LENGTH.size
    if len(data) != wanted or _LENGTH.unpack(data[-_LENGTH.size :])[0] != wanted:
        raise CorruptError(f"the head of {place} has {len(data)} bytes, which does not fit its counts")
    arrays = []
    for form, count in forms:
        arrays.append(np.frombuffer(data, form, count, at))
        at += arrays[-1].nbytes
    return arrays
