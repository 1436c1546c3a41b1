"""If this fails, a false segment of vectors or words is believed.

Each segment has correct checksums, so that a rule rejects it and not a checksum. There is one for each rule of
"Vectors" and "Postings" in docs/specs/search.md.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xxhash

from tests.faults.scenes import link, memory
from warpdata.errors import CorruptError
from warpdata.formats.indexes import Segment, Source
from warpdata.formats.parquet import ShardOpener, describe_parquet
from warpdata.formats.search import BlockCache, TextSegment, TopScores, VectorQuery, VectorSegment
from warpdata.primitives.hashing import blob_key, fingerprint_file, sha256_hex
from warpdata.repository.manifest import Footer, Shard

HUGE = 2**32 - 1


@dataclass(frozen=True)
class FirstVectors:
    """A segment of the first format.

    Two lists have vectors of two numbers: (1, 0) in row 0, and (0, 1) and (0, 2) in rows 1 and 3.
    """

    magic: bytes = b"WARPIVF1"
    numbers: tuple[int, ...] = (1, 2, 2, 4, 1, 1, 2, 1_000_000)
    row_count: int = 4
    vector_count: int = 3
    centroids: tuple[float, ...] = (1, 0, 0, 1.5)
    minimum: tuple[float, ...] = (0, 0)
    step: tuple[float, ...] = (1 / 256, 2 / 256)
    counts: tuple[int, ...] = (1, 2)
    rows: tuple[int, ...] = (0, 1, 3)
    vectors: tuple[float, ...] = (1, 0, 0, 1, 0, 2)
    length: int | None = None
    more: bytes = b""

    def segment(self, name: str) -> VectorSegment:
        codes = bytes([255, 0, 0, 128, 0, 255])
        vectors = np.array(self.vectors, "<f4").tobytes()
        sums = [xxhash.xxh3_64_intdigest(part) for part in (codes[:2], codes[2:], vectors[:8], vectors[8:])]
        floats = np.array([*self.centroids, *self.minimum, *self.step], "<f4").tobytes()
        head = struct.pack("<8s8I2Q", self.magic, *self.numbers, self.row_count, self.vector_count) + floats
        head += struct.pack("<2I4Q", *self.counts, *sums) + np.array(self.rows, "<u4").tobytes()
        head += struct.pack("<Q", len(head) + 8 if self.length is None else self.length)
        data = self.more + codes + vectors + head
        shard = Shard(sha256_hex(data), len(data), footer=Footer(len(head), xxhash.xxh3_64_hexdigest(head)))
        store = memory(name)
        store.create(blob_key(shard.hash), data)
        return VectorSegment(store, shard, BlockCache(0))


IVF = (2, 2, 2, 4, 1, 1, 2, 2, 40, 1_000_000)
"""Size, lists, bytes of a code and of an element, probes, candidates and recall."""
IMI = (2, 1, 2, 4, 1, 1, 1, 1, 40, 1_000_000)
LSH = (2, 2, 1, 4, 1, 1, 2, 2, 40, 1_000_000)


@dataclass(frozen=True)
class Vectors:
    """The same segment in the second format."""

    magic: bytes = b"WARPVEC2"
    kind: int | None = None
    metric: int = 1
    numbers: tuple[int, ...] = IVF
    lists: int = 2
    row_count: int = 4
    vector_count: int = 3
    floats: tuple[float, ...] = (1, 0, 0, 1.5, 0, 0, 1 / 256, 2 / 256)
    counts: tuple[int, ...] = (1, 2)
    codes: bytes = bytes([255, 0, 0, 128, 0, 255])
    rows: tuple[int, ...] = (0, 1, 3)
    vectors: tuple[float, ...] = (1, 0, 0, 1, 0, 2)
    length: int | None = None
    more: bytes = b""

    def segment(self, name: str) -> VectorSegment:
        kind = [IVF, IMI, LSH].index(self.numbers) if self.kind is None and self.numbers in (IVF, IMI, LSH) else 0
        parts = [self.codes, np.array(self.vectors, "<f4").tobytes(), np.array(self.rows, "<u4").tobytes()]
        kind = kind if self.kind is None else self.kind
        head = (
            struct.pack("<8s12I2Q", self.magic, kind, self.metric, *self.numbers, self.row_count, self.vector_count)
            + np.array(self.floats, "<f4").tobytes()
        )
        head += np.array(self.counts, "<u4").tobytes()
        head += b"".join(struct.pack("<Q", xxhash.xxh3_64_intdigest(part)) for part in parts)
        head += struct.pack("<Q", len(head) + 8 if self.length is None else self.length)
        data = self.more + b"".join(parts) + head
        shard = Shard(sha256_hex(data), len(data), footer=Footer(len(head), xxhash.xxh3_64_hexdigest(head)))
        store = memory(name)
        store.create(blob_key(shard.hash), data)
        return VectorSegment(store, shard, BlockCache(0))


def second(at: int, value: int, **changed: Any) -> Vectors:
    """Return the segment in the second format with another number."""
    return replace(Vectors(), numbers=(*IVF[:at], value, *IVF[at + 1 :]), **changed)


def number(at: int, value: int) -> FirstVectors:
    """Return the segment with another of the numbers that follow the magic."""
    return replace(FirstVectors(), numbers=(*FirstVectors().numbers[:at], value, *FirstVectors().numbers[at + 1 :]))


@pytest.mark.parametrize(
    "made",
    [
        FirstVectors(),
        Vectors(),
        Vectors(numbers=IMI, lists=1, counts=(3,), floats=(1, 0, 0, 0, 1, 1)),
        Vectors(numbers=LSH, counts=(1, 2), floats=(1, 0) * 8, codes=bytes([255, 0, 0]), metric=0),
    ],
)
def test_the_segment_that_the_others_change_is_right(made: FirstVectors | Vectors) -> None:
    best = TopScores(3)
    segment = made.segment(f"right {made}")
    segment.search(VectorQuery(np.array([0.0, 1.0]), "l2"), None, best)
    assert sorted(best.result()[0].tolist()) == [0, 1, 3]
    segment.subset(np.arange(4))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (FirstVectors(magic=b"WARPIVF2"), "does not end in the head"),
        (number(0, 3), "unknown metric"),
        (number(1, 0), "vectors of 0"),
        (number(1, HUGE), f"vectors of {HUGE}"),
        (number(2, 0), "has 0 lists"),
        (number(2, HUGE), f"has {HUGE} lists"),
        (number(2, 3), "does not fit its counts"),
        (number(3, 2), "has 2 lists"),
        (number(4, 0), "has probes"),
        (number(6, 3), "has probes"),
        (number(7, 1_000_001), "has probes"),
        (FirstVectors(row_count=2), "do not have 3 vectors"),
        (FirstVectors(row_count=2**63), "has 2 lists"),
        (FirstVectors(vector_count=2), "does not fit its counts"),
        (FirstVectors(vector_count=2**62), "does not fit its counts"),
        (FirstVectors(counts=(1, 1)), "do not have 3 vectors"),
        (FirstVectors(counts=(4, HUGE)), "do not have 3 vectors"),
        (FirstVectors(length=8), "does not fit its counts"),
        (FirstVectors(more=b"x"), "do not have 3 vectors"),
        (FirstVectors(centroids=(1, 0, np.nan, 1)), "not finite"),
        (FirstVectors(minimum=(0, np.inf)), "not finite"),
        (FirstVectors(step=(np.nan, 1)), "not finite"),
        (FirstVectors(rows=(0, 1, 4)), "has row 4 of 4"),
        (FirstVectors(vectors=(1, 0, 0, np.nan, 0, 2)), "vector that cannot be compared"),
        (Vectors(magic=b"WARPVEC3"), "does not end in the head"),
        (Vectors(kind=3), "unknown metric"),
        (Vectors(metric=3), "unknown metric"),
        (second(0, 0), "vectors of 0"),
        (second(0, HUGE), f"vectors of {HUGE}"),
        (second(1, 0), "has 0 lists"),
        (second(1, HUGE), f"has {HUGE} lists"),
        (second(1, 3), "does not fit its counts"),
        (second(2, 3), "codes of 3 bytes"),
        (second(2, 0, kind=2), "codes of 0 bytes"),
        (second(2, HUGE, kind=2), f"codes of {HUGE} bytes"),
        (second(1, 3, kind=1), "has 3 lists and codes of 2 bytes"),
        (second(1, 3, kind=2), "has 3 lists and codes of 2 bytes"),
        (second(3, 2), "unknown metric"),
        (second(4, 0), "has probes"),
        (second(7, 3), "has probes"),
        (second(8, 0), "unknown metric"),
        (second(9, 1_000_001), "has probes"),
        (Vectors(row_count=2), "has 2 lists"),
        (Vectors(row_count=2**63), "has 2 lists"),
        (Vectors(vector_count=2), "do not fit 2 vectors"),
        (Vectors(vector_count=2**62, row_count=2**62), "has 2 lists"),
        (Vectors(vector_count=2**31, row_count=2**31), "do not fit 2147483648 vectors"),
        (Vectors(counts=(1, 1)), "have 2 vectors, not 3"),
        (Vectors(counts=(4, HUGE)), "vectors, not 3"),
        (Vectors(length=8), "does not fit its counts"),
        (Vectors(more=b"x"), "do not fit 3 vectors"),
        (Vectors(floats=(1, 0, np.nan, 1, 0, 0, 1, 1)), "not finite"),
        (Vectors(rows=(0, 1, 4)), "has row 4 of 4"),
        (Vectors(vectors=(1, 0, 0, np.nan, 0, 2)), "vector that cannot be compared"),
    ],
)
def test_one_rejected_segment_of_vectors_for_each_rule(
    changed: FirstVectors | Vectors, message: str, request: pytest.FixtureRequest
) -> None:
    with pytest.raises(CorruptError, match=message):
        changed.segment(request.node.name).search(VectorQuery(np.array([0.0, 1.0]), "l2"), None, TopScores(3))


def text_file(path: Path, metadata: dict[str, str] | None = None, **changed: Any) -> None:
    columns = {
        "word": pa.array(["", "", "car"]),
        "row": pa.array([0, 1, 1], pa.uint32()),
        "count": pa.array([0, 0, 2], pa.uint32()),
        "length": pa.array([0, 2, 2], pa.uint32()),
    }
    table = pa.table({**columns, **changed})
    counts = {"warpdata.texts": "2", "warpdata.words": "2"} if metadata is None else metadata
    pq.write_table(table.replace_schema_metadata(counts), path)


def read_text(path: Path, entries: int = 3) -> list[int]:
    session = link(memory(str(path)))
    fingerprint, described = fingerprint_file(path), describe_parquet(path)
    session.writer.create_file(blob_key(fingerprint.blob.hash), path, fingerprint)
    shard = Shard(fingerprint.blob.hash, fingerprint.blob.byte_size, entries, described.footer)
    segment = Segment(shard.hash, (Source("0" * 64, "x", 3),), entries)
    found = TextSegment(ShardOpener(session.reader).open(shard), segment).postings(["", "car"])
    return [*found["car"].rows.tolist(), *found[""].rows.tolist()]


def test_the_text_segment_that_the_others_change_is_right(tmp_path: Path) -> None:
    text_file(tmp_path / "x")
    assert read_text(tmp_path / "x") == [1, 0, 1]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: text_file(path, more=[1, 2, 3]), "has the columns"),
        (lambda path: text_file(path, metadata={}), "does not count"),
        (lambda path: text_file(path, metadata={"warpdata.texts": "2"}), "does not count"),
        (lambda path: text_file(path, metadata={"warpdata.texts": "-2", "warpdata.words": "2"}), "does not count"),
        (lambda path: text_file(path, metadata={"warpdata.texts": "4", "warpdata.words": "2"}), "4 texts in 3 rows"),
        (lambda path: text_file(path, row=pa.array([0, 1, 7], pa.uint32())), "has row 7 of 3"),
    ],
)
def test_one_rejected_segment_of_words_for_each_rule(
    make: Callable[[Path], None], message: str, tmp_path: Path
) -> None:
    make(tmp_path / "x")
    with pytest.raises(CorruptError, match=message):
        read_text(tmp_path / "x")


def test_a_text_segment_has_as_many_rows_as_entries(tmp_path: Path) -> None:
    text_file(tmp_path / "x")
    with pytest.raises(CorruptError, match="has 3 rows; the manifest has 4"):
        read_text(tmp_path / "x", entries=4)


@pytest.mark.parametrize("column", ["word", "row", "count", "length"])
def test_columns_of_a_text_segment_have_their_types(column: str, tmp_path: Path) -> None:
    other = pa.array(["a", "b", "c"], pa.binary() if column == "word" else pa.string())
    text_file(tmp_path / "x", **{column: other})
    with pytest.raises(CorruptError, match=f"has the columns .*{column} "):
        read_text(tmp_path / "x")


@pytest.mark.parametrize("column", ["row", "count", "length"])
def test_a_text_segment_has_no_nulls(column: str, tmp_path: Path) -> None:
    text_file(tmp_path / "x", **{column: pa.array([0, 0, None], pa.uint32())})
    with pytest.raises(CorruptError, match="has a null for the word 'car'"):
        read_text(tmp_path / "x")
