"""Search of an `ivf` segment: a few lists are read and compared by their codes, and the best rows exactly.

NumPy does the arithmetic, so a reader needs no further library. Implements "Vectors" of docs/specs/search.md.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from warpdata.errors import CorruptError
from warpdata.formats.search.ivf_head import IvfHead, parse_head
from warpdata.formats.search.similarity import TopScores, VectorQuery, find_usable, squared_lengths
from warpdata.limits import KIB
from warpdata.primitives.byte_lru import ByteLRU
from warpdata.primitives.cached_property import cached_property
from warpdata.primitives.hashing import blob_key
from warpdata.primitives.ranges import ByteRange
from warpdata.repository.manifest import Shard
from warpdata.storage import Reader, retry_corrupt

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["IvfSegment", "ListCache", "ProbeCount"]


class ListCache(ByteLRU[tuple[str, str, int], Any]):
    """Verified lists in memory: by the hash of the segment, the part of the list and its number."""


T = TypeVar("T")

_GAP_BYTES = 64 * KIB
_EXACT_SELECTIVITY = 0.03
"""Below it, the selected rows of a local segment are all compared exactly, which is faster than by codes."""
_MIN_CANDIDATES, _CANDIDATES_PER_HIT = 40, 4
_REPAIR = "Rebuild the index. Rows are searched without it."


@dataclass(frozen=True, slots=True)
class ProbeCount:
    """The work of a search: lists read, and vectors compared exactly."""

    lists: int
    compared: int
    is_exact: bool


class IvfSegment:
    """A segment of a store. Safe to share between threads; `cache` bounds the lists that stay in memory."""

    def __init__(self, reader: Reader, shard: Shard, cache: ListCache) -> None:
        self._reader = reader
        self._shard = shard
        self._cache = cache
        self._place = f"segment {shard.hash}"

    @cached_property
    def head(self) -> IvfHead:
        """The head, read with one request."""
        import xxhash

        footer, end = self._shard.footer, self._shard.byte_size
        if footer is None or footer.byte_size > end:
            raise CorruptError(f"{self._place} has no head, or one larger than the file", hint=_REPAIR)
        self._reader.expect_size(self._key, end)

        def check(parts: list[memoryview]) -> IvfHead:
            if xxhash.xxh3_64_hexdigest(parts[0]) != footer.xxh3:
                raise CorruptError(f"the head of {self._place} does not match its checksum", hint=_REPAIR)
            return parse_head(parts[0], end, self._place)

        return self._read([ByteRange(end - footer.byte_size, end)], check)

    def search(self, query: VectorQuery, allowed: NDArray[np.bool_] | None, best: TopScores) -> ProbeCount:
        """Add the best of the allowed rows, with exact scores.

        `allowed` has an element for each row of the segment; None allows all. At least `best.k` rows are added, or
        all allowed ones. Fewer only if `best` already has better ones.
        """
        head = self.head
        if not head.vector_count or not best.k:
            return ProbeCount(0, 0, is_exact=True)
        members = None if allowed is None else allowed[head.rows]
        sizes = head.counts.astype(np.int64) if members is None else _count_by_list(members, head)
        total = int(sizes.sum())
        if not total:
            return ProbeCount(0, 0, is_exact=True)
        selectivity = total / head.vector_count
        if total <= best.k or (selectivity <= _EXACT_SELECTIVITY and self._reader.is_local(self._key)):
            compared = self._compare(query, _positions(members, head), best)
            return ProbeCount(int((sizes > 0).sum()), compared, is_exact=True)
        ranked = self._rank_lists(query)
        ranked = ranked[sizes[ranked] > 0]
        reached = np.cumsum(sizes[ranked])
        probes = head.probes_at(selectivity)
        while probes < len(ranked) and reached[probes - 1] < best.k:
            probes *= 2
        chosen = np.sort(ranked[:probes])
        candidates = self._scan(query, chosen, members, max(_MIN_CANDIDATES, _CANDIDATES_PER_HIT * best.k))
        compared = self._compare(query, candidates, best)
        return ProbeCount(len(chosen), compared, is_exact=False)

    @property
    def _key(self) -> str:
        return blob_key(self._shard.hash)

    def _rank_lists(self, query: VectorQuery) -> NDArray[np.int64]:
        """Return all lists, the most promising first."""
        keys = self.head.centroids @ _direction(query)
        if query.metric == "l2":
            keys = 2 * keys - self._centroid_squares
        return np.argsort(-keys, kind="stable")

    @cached_property
    def _centroid_squares(self) -> NDArray[np.float32]:
        squares: NDArray[np.float32] = np.einsum("ij,ij->i", self.head.centroids, self.head.centroids)
        return squares

    def _scan(
        self, query: VectorQuery, lists: NDArray[np.int64], members: NDArray[np.bool_] | None, count: int
    ) -> NDArray[np.int64]:
        """Return the positions of the best `count` members of these lists by their codes, ascending."""
        head, vector = self.head, _direction(query)
        weights = head.step * vector
        constant = float((head.minimum + head.step / 2) @ vector)
        keys, positions = [], []
        for number, (codes, squares) in zip(lists.tolist(), self._codes(lists), strict=True):
            start, stop = int(head.starts[number]), int(head.starts[number + 1])
            kept = None if members is None else np.flatnonzero(members[start:stop])
            if kept is not None and len(kept) < stop - start:
                codes, squares = codes[kept], None if squares is None else squares[kept]  # noqa: PLW2901
            found = codes.astype(np.float32) @ weights + constant
            keys.append(found if squares is None else 2 * found - squares)
            positions.append(np.arange(start, stop) if kept is None else start + kept)
        joined, numbers = np.concatenate(keys), np.concatenate(positions)
        if len(joined) > count:
            numbers = numbers[np.argpartition(-joined, count - 1)[:count]]
        return np.sort(numbers)

    def _compare(self, query: VectorQuery, positions: NDArray[np.int64], best: TopScores) -> int:
        """Compare the vectors at these ascending positions exactly."""
        head = self.head
        owners = np.searchsorted(head.starts, positions, side="right") - 1
        lists, firsts = np.unique(owners, return_index=True)
        cuts = [*firsts.tolist(), len(positions)]
        found = np.empty((len(positions), head.size), head.dtype)
        for at, (number, vectors) in enumerate(zip(lists.tolist(), self._vectors(lists), strict=True)):
            part = slice(cuts[at], cuts[at + 1])
            found[part] = vectors[positions[part] - int(head.starts[number])]
        if not find_usable(squared_lengths(found), query.metric).all():
            raise CorruptError(f"{self._place} has a vector that cannot be compared", hint=_REPAIR)
        query.search(head.rows[positions].astype(np.int64), found, best)
        return len(positions)

    def _codes(self, lists: NDArray[np.int64]) -> list[tuple[NDArray[np.uint8], NDArray[np.float32] | None]]:
        """Return the codes of lists, and for distances the squared lengths of the vectors that they stand for."""
        head = self.head

        def decode(data: memoryview, number: int) -> tuple[NDArray[np.uint8], NDArray[np.float32] | None]:
            _verify(data, int(head.code_sums[number]), f"the codes of list {number} of {self._place}")
            codes = np.frombuffer(data, np.uint8).reshape(-1, head.size)
            if head.metric != "l2":
                return codes, None
            vectors = codes * head.step + (head.minimum + head.step / 2)
            squares: NDArray[np.float32] = np.einsum("ij,ij->i", vectors, vectors).astype(np.float32)
            return codes, squares

        return self._lists("codes", lists, head.codes_range, decode)

    def _vectors(self, lists: NDArray[np.int64]) -> list[NDArray[Any]]:
        head = self.head

        def decode(data: memoryview, number: int) -> NDArray[Any]:
            _verify(data, int(head.vector_sums[number]), f"the vectors of list {number} of {self._place}")
            return np.frombuffer(data, head.dtype).reshape(-1, head.size)

        return self._lists("vectors", lists, head.vectors_range, decode)

    def _lists(
        self,
        part: str,
        numbers: NDArray[np.int64],
        span: Callable[[int], ByteRange],
        decode: Callable[[memoryview, int], Any],
    ) -> list[Any]:
        """Return a part of each list, from memory where it is cached. The others are read together."""
        found = {number: self._cache.get((self._shard.hash, part, number)) for number in numbers.tolist()}
        missing = [number for number, value in found.items() if value is None]
        if missing:
            spans = [span(number) for number in missing]
            read = self._read(spans, lambda data: [decode(*pair) for pair in zip(data, missing, strict=True)])
            for number, value, place in zip(missing, read, spans, strict=True):
                self._cache.put((self._shard.hash, part, number), value, place.size_bytes)
                found[number] = value
        return list(found.values())

    def _read(self, spans: Sequence[ByteRange], check: Callable[[list[memoryview]], T]) -> T:
        """Read ranges and check them; once more, if a cached copy could be dropped."""

        def read() -> T:
            return check(self._reader.read_ranges(self._key, spans, gap_bytes=_GAP_BYTES))

        return retry_corrupt(read, functools.partial(self._reader.invalidate, self._key))


def _direction(query: VectorQuery) -> NDArray[np.float32]:
    """Return the query as codes and lists compare it: for cosine of length 1."""
    vector = query.vector / query.length if query.metric == "cosine" else query.vector
    return vector.astype(np.float32)


def _count_by_list(members: NDArray[np.bool_], head: IvfHead) -> NDArray[np.int64]:
    before = np.concatenate([[0], np.cumsum(members, dtype=np.int64)])
    counts: NDArray[np.int64] = np.diff(before[head.starts])
    return counts


def _positions(members: NDArray[np.bool_] | None, head: IvfHead) -> NDArray[np.int64]:
    """Return the positions of all members, ascending."""
    return np.arange(head.vector_count) if members is None else np.flatnonzero(members)


def _verify(data: memoryview, wanted: int, place: str) -> None:
    import xxhash

    if xxhash.xxh3_64_intdigest(data) != wanted:
        raise CorruptError(f"{place} do not match their checksum", hint=_REPAIR)
