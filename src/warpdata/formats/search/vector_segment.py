"""Search of a segment of vectors: a few lists are compared by their codes, and the best members exactly.

NumPy does the arithmetic, so a reader needs no further library. What is read does not depend on where the segment is,
so every machine gives the same answer. Implements "Vectors" of docs/specs/search.md.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from warpdata.errors import CorruptError
from warpdata.formats.search.similarity import TopScores, VectorQuery, find_usable, squared_lengths
from warpdata.formats.search.vector_head import Section, VectorHead, parse_head
from warpdata.formats.search.vector_quantizer import (
    CellQuantizer,
    CodeWeights,
    ListQuantizer,
    SignQuantizer,
)
from warpdata.limits import KIB
from warpdata.primitives.byte_lru import ByteLRU
from warpdata.primitives.hashing import blob_key
from warpdata.primitives.ranges import ByteRange
from warpdata.repository.manifest import Shard
from warpdata.storage import Reader, retry_corrupt

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["BlockCache", "ProbeCount", "Subset", "VectorSegment"]


class BlockCache(ByteLRU[Hashable, Any]):
    """What searches keep in memory: heads, slabs of verified blocks, and the members that filters select."""


T = TypeVar("T")

_GAP_BYTES = 32 * KIB
_EXACT_MEMBERS = 256
"""At most so many allowed members are all compared exactly."""
_CODE_ROWS = 512
"""Codes that are compared at once, so that their numbers fit into the processor's caches."""
_MAX_ROW_TABLE = 1 << 26
_HEAD_COPIES = 3
"""Memory of a head, as a multiple of its bytes: centroids are kept as float64, too."""
_SLAB_BLOCKS = 64
_ENTRY_BYTES = 1000
"""Memory of an entry of the cache beside its bytes."""
_NO_MEMBER = np.uint32(2**32 - 1)
_REPAIR = "Rebuild the index. Rows are searched without it."


@dataclass(frozen=True, slots=True)
class ProbeCount:
    """The work of a search: lists read, and vectors compared exactly."""

    lists: int
    compared: int
    recall: float = 1.0
    """Estimate of the part of the best rows that was found; 1.0 if all were compared."""


@dataclass(frozen=True, eq=False)
class Subset:
    """The members of a segment that a filter allows, ascending, and the first of each list among them."""

    members: NDArray[np.uint32]
    starts: NDArray[np.int64]

    @property
    def size_bytes(self) -> int:
        return int(self.members.nbytes + self.starts.nbytes)


class _Slab:
    """Neighbouring blocks of a section in memory. A block that is present stays so until the whole slab is dropped."""

    __slots__ = ("_starts", "first", "items", "number", "present", "squares")

    def __init__(
        self, number: int, starts: NDArray[np.int64], shape: tuple[int, ...], dtype: np.dtype[Any], *, has_squares: bool
    ) -> None:
        self.number = number
        self._starts = starts
        self.first = int(starts[0])
        """The first member."""
        count = int(starts[-1]) - self.first
        self.items = np.empty((count, *shape), dtype)  # takes no memory until blocks are written
        self.squares = np.empty(count) if has_squares else None
        """For distances, the squared length of what each code means."""
        self.present = np.zeros(len(starts) - 1, bool)

    @property
    def size_bytes(self) -> int:
        """The memory of the blocks that are present."""
        count = int(np.diff(self._starts)[self.present].sum())
        return _ENTRY_BYTES + count * (self.items.nbytes // max(len(self.items), 1) + 8 * (self.squares is not None))


class VectorSegment:
    """A segment of a store. Safe to share between threads; `cache` bounds what stays in memory."""

    def __init__(self, reader: Reader, shard: Shard, cache: BlockCache) -> None:
        self._reader = reader
        self._shard = shard
        self._cache = cache
        self._place = f"segment {shard.hash}"

    @property
    def head(self) -> VectorHead:
        """The head, read with one request."""
        footer = self._shard.footer
        size_bytes = 0 if footer is None else _HEAD_COPIES * footer.byte_size
        found: VectorHead = self._cache.get_or_create((self._shard.hash, "head"), self._read_head, lambda _: size_bytes)
        return found

    def _read_head(self) -> VectorHead:
        import xxhash

        footer, end = self._shard.footer, self._shard.byte_size
        if footer is None or footer.byte_size > end:
            raise CorruptError(f"{self._place} has no head, or one larger than the file", hint=_REPAIR)
        self._reader.expect_size(self._key, end)

        def check(parts: list[memoryview]) -> VectorHead:
            if xxhash.xxh3_64_hexdigest(parts[0]) != footer.xxh3:
                raise CorruptError(f"the head of {self._place} does not match its checksum", hint=_REPAIR)
            return parse_head(parts[0], end, self._place)

        return self._read([ByteRange(end - footer.byte_size, end)], check)

    def subset(self, rows: NDArray[np.int64]) -> Subset:
        """Return the members with these ascending rows of the segment. Reads the rows of all members."""
        head = self.head
        members = np.sort(_look_up(self.load_members(), rows, head.row_count))
        return Subset(members, np.searchsorted(members, head.starts))

    def load_members(self) -> NDArray[np.uint32]:
        """Read what `subset` needs, and keep it in memory."""
        head = self.head
        found: NDArray[np.uint32] = self._cache.get_or_create(
            (self._shard.hash, "members"), lambda: self._members_by_row(head), lambda found: int(found.nbytes)
        )
        return found

    def _members_by_row(self, head: VectorHead) -> NDArray[np.uint32]:
        """Return the member of each row, or rows and their members if most rows have none."""
        numbers = self._take(head.rows, np.arange(head.vector_count))
        if len(numbers) and int(numbers.max()) >= head.row_count:
            raise CorruptError(f"{self._place} has row {numbers.max()} of {head.row_count}", hint=_REPAIR)
        if head.row_count > _MAX_ROW_TABLE:
            order = np.argsort(numbers, kind="stable").astype(np.uint32)
            return np.stack([numbers[order], order])
        table = np.full(head.row_count, _NO_MEMBER)
        table[numbers] = np.arange(head.vector_count, dtype=np.uint32)
        return table

    def search(self, query: VectorQuery, subset: Subset | None, best: TopScores) -> ProbeCount:
        """Add the best of the members, or of a subset of them, with exact scores.

        At least `best.k` rows are added, or all. Fewer only if `best` already has better ones.
        """
        head = self.head
        starts = head.starts if subset is None else subset.starts
        total = int(starts[-1])
        if not total or not best.k:
            return ProbeCount(0, 0)
        sizes = np.diff(starts)
        if total <= max(best.k, _EXACT_MEMBERS):
            members = np.arange(total) if subset is None else subset.members.astype(np.int64)
            return ProbeCount(int((sizes > 0).sum()), self._compare(query, members, best))
        lists = self._choose_lists(query, sizes, head.probes_at(total / head.vector_count), best.k)
        members = _joined_ranges(starts[lists], sizes[lists])
        members = members if subset is None else subset.members[members].astype(np.int64)
        candidates = self._best_by_code(query, members, max(head.candidates, head.candidates * best.k // 10))
        return ProbeCount(len(lists), self._compare(query, candidates, best), head.recall)

    @property
    def _key(self) -> str:
        return blob_key(self._shard.hash)

    def _choose_lists(self, query: VectorQuery, sizes: NDArray[np.int64], probes: int, k: int) -> NDArray[np.int64]:
        """Return the most promising lists with members, ascending: so many, and more until they have `k` members."""
        keys = self.head.quantizer.keys(_direction(query), is_distance=query.metric == "l2")
        used = np.flatnonzero(sizes)
        ranked = used[np.argsort(-keys[used], kind="stable")]
        reached = np.cumsum(sizes[ranked])
        while probes < len(ranked) and reached[probes - 1] < k:
            probes *= 2
        return np.sort(ranked[:probes])

    def _best_by_code(self, query: VectorQuery, members: NDArray[np.int64], count: int) -> NDArray[np.int64]:
        """Return the best `count` of these ascending members by their codes. Ties go to the first members."""
        if len(members) <= count:
            return members
        weights = self.head.quantizer.weigh(_direction(query))
        keys = self._estimate(weights, members)
        worst = np.partition(keys, len(keys) - count)[len(keys) - count]
        chosen = np.flatnonzero(keys > worst)
        ties = np.flatnonzero(keys == worst)[: count - len(chosen)]
        best: NDArray[np.int64] = members[np.sort(np.concatenate([chosen, ties]))]
        return best

    def _estimate(self, query: CodeWeights, members: NDArray[np.int64]) -> NDArray[Any]:
        """Return a key of each member, in the order of the scores that the codes mean."""
        head = self.head
        is_bits, is_distance = head.kind == "lsh", head.metric == "l2" and head.kind != "lsh"
        keys = np.empty(len(members), query.weights.dtype)
        squares = np.empty(len(members) if is_distance else 0)
        numbers = np.empty((_CODE_ROWS, len(query.weights)), query.weights.dtype)
        for slab, start, stop in self._load([(head.codes, members)])[0]:
            places = members[start:stop] - slab.first
            if slab.squares is not None:
                squares[start:stop] = slab.squares[places]
            for at in range(0, len(places), _CODE_ROWS):
                codes = slab.items[_as_slice(places[at : at + _CODE_ROWS])]
                part = numbers[: len(codes)]
                part[:] = np.unpackbits(codes, axis=1) if is_bits else codes
                np.dot(part, query.weights, out=keys[start + at : start + at + len(codes)])
        return 2 * (keys.astype(np.float64) / query.scale + query.constant) - squares if is_distance else keys

    def _compare(self, query: VectorQuery, members: NDArray[np.int64], best: TopScores) -> int:
        """Compare the vectors of these ascending members exactly."""
        head = self.head
        rows, vectors = self._take_all([head.rows, head.vectors], members)
        if not find_usable(squared_lengths(vectors), query.metric).all():
            raise CorruptError(f"{self._place} has a vector that cannot be compared", hint=_REPAIR)
        if len(rows) and int(rows.max()) >= head.row_count:
            raise CorruptError(f"{self._place} has row {rows.max()} of {head.row_count}", hint=_REPAIR)
        if len(members) <= _EXACT_MEMBERS:
            best.add(rows.astype(np.int64), query.scores(vectors))
        else:
            query.search(rows.astype(np.int64), vectors, best)
        return len(members)

    def _take(self, section: Section, members: NDArray[np.int64]) -> NDArray[Any]:
        return self._take_all([section], members)[0]

    def _take_all(self, sections: Sequence[Section], members: NDArray[np.int64]) -> list[NDArray[Any]]:
        """Return the items of ascending members in some sections. All blocks are read together."""
        out = []
        for section, parts in zip(sections, self._load([(each, members) for each in sections]), strict=True):
            shape, dtype = self._form(section)
            found = np.empty((len(members), *shape), dtype)
            for slab, start, stop in parts:
                found[start:stop] = slab.items[_as_slice(members[start:stop] - slab.first)]
            out.append(found)
        return out

    def _form(self, section: Section) -> tuple[tuple[int, ...], np.dtype[Any]]:
        """Return the shape and the type of an item of a section."""
        if section.name == "rows":
            return (), np.dtype("<u4")
        return ((section.width,), np.dtype("u1")) if section.name == "codes" else ((self.head.size,), self.head.dtype)

    def _load(self, wanted: Sequence[tuple[Section, NDArray[np.int64]]]) -> list[list[tuple[_Slab, int, int]]]:
        """Return the slabs with the ascending members of sections, and which of the members each of them has.

        Blocks that are not in memory are read together and verified.
        """
        out: list[list[tuple[_Slab, int, int]]] = []
        missing: list[tuple[Section, _Slab, int]] = []
        for section, members in wanted:
            if not len(members):
                out.append([])
                continue
            owners = section.blocks_of(members)
            firsts = np.flatnonzero(np.diff(owners, prepend=-1))
            blocks = owners[firsts]
            numbers = blocks // _SLAB_BLOCKS
            cuts = np.flatnonzero(np.diff(numbers, prepend=-1)).tolist()
            slabs = [self._slab(section, int(numbers[cut])) for cut in cuts]
            ends = [*cuts[1:], len(blocks)]
            for slab, start, stop in zip(slabs, cuts, ends, strict=True):
                absent = ~slab.present[blocks[start:stop] % _SLAB_BLOCKS]
                missing += [(section, slab, block) for block in blocks[start:stop][absent].tolist()]
            limits = [*firsts[cuts].tolist(), len(members)]
            out.append(list(zip(slabs, limits[:-1], limits[1:], strict=True)))
        if missing:
            self._fill(missing)
        return out

    def _slab(self, section: Section, number: int) -> _Slab:
        """Return a slab, from memory or empty."""
        found = self._cache.get((self._shard.hash, section.name, number))
        if found is not None:
            slab: _Slab = found
            return slab
        starts = section.starts[number * _SLAB_BLOCKS : (number + 1) * _SLAB_BLOCKS + 1]
        shape, dtype = self._form(section)
        quantizer = self.head.quantizer
        has_squares = section.name == "codes" and self.head.metric == "l2" and not isinstance(quantizer, SignQuantizer)
        return _Slab(number, starts, shape, dtype, has_squares=has_squares)

    def _fill(self, missing: list[tuple[Section, _Slab, int]]) -> None:
        """Read blocks, verify them, and add them to their slabs."""
        import xxhash

        def check(parts: list[memoryview]) -> list[memoryview]:
            for data, (section, _, block) in zip(parts, missing, strict=True):
                if xxhash.xxh3_64_intdigest(data) != int(section.sums[block]):
                    raise CorruptError(
                        f"block {block} of the {section.name} of {self._place} does not match its checksum",
                        hint=_REPAIR,
                    )
            return parts

        filled: dict[tuple[str, int], _Slab] = {}
        data = self._read([section.span(block) for section, _, block in missing], check)
        for part, (section, slab, block) in zip(data, missing, strict=True):
            start, stop = (section.starts[block : block + 2] - slab.first).tolist()
            items = slab.items[start:stop]
            items[...] = np.frombuffer(part, items.dtype).reshape(items.shape)
            if slab.squares is not None:
                quantizer = self.head.quantizer
                assert isinstance(quantizer, ListQuantizer | CellQuantizer)
                slab.squares[start:stop] = quantizer.codes.squares(items)
            slab.present[block % _SLAB_BLOCKS] = True  # after the items, because other threads look without a lock
            filled[section.name, slab.number] = slab
        for (name, number), slab in filled.items():
            self._cache.put((self._shard.hash, name, number), slab, slab.size_bytes)

    def _read(self, spans: Sequence[ByteRange], check: Callable[[list[memoryview]], T]) -> T:
        """Read ranges and check them; once more, if a cached copy could be dropped."""

        def read() -> T:
            return check(self._reader.read_ranges(self._key, spans, gap_bytes=_GAP_BYTES))

        return retry_corrupt(read, functools.partial(self._reader.invalidate, self._key))


def _direction(query: VectorQuery) -> NDArray[np.float64]:
    """Return the query as codes and lists compare it: for cosine of length 1."""
    return query.vector / query.length if query.metric == "cosine" else query.vector


def _look_up(table: NDArray[np.uint32], rows: NDArray[np.int64], row_count: int) -> NDArray[np.uint32]:
    """Return the members of rows, without those of rows that have none."""
    found: NDArray[np.uint32]
    if row_count <= _MAX_ROW_TABLE:
        found = table[rows]
        found = found[found != _NO_MEMBER]
        return found
    known, members = table
    if not len(known):
        return np.empty(0, np.uint32)
    at = np.minimum(np.searchsorted(known, rows), len(known) - 1)
    found = members[at[known[at] == rows]]
    return found


def _joined_ranges(starts: NDArray[np.int64], sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the numbers of ranges, one range after the other."""
    before = np.cumsum(sizes) - sizes
    return np.repeat(starts - before, sizes) + np.arange(int(sizes.sum()))


def _as_slice(places: NDArray[np.int64]) -> NDArray[np.int64] | slice:
    """Return ascending places as a slice if they are neighbours."""
    low, high = int(places[0]), int(places[-1])
    return slice(low, high + 1) if high - low == len(places) - 1 else places
