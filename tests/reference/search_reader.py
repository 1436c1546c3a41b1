"""A second opinion on segments of vectors and words, written from docs/specs/search.md and nothing else.

`struct`, loops over Python numbers and pyarrow, slow and literal on purpose, with no import from the project. It reads
whole files and trusts that they are well formed.
"""

from __future__ import annotations

import io
import math
import struct
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow.parquet as pq
import xxhash

__all__ = ["TextPostings", "VectorLists", "read_text", "read_vectors", "score", "split_words"]

Vector = tuple[float, ...]
METRICS = ("cosine", "l2", "dot")


@dataclass(frozen=True)
class VectorLists:
    """A segment of vectors. Rows, codes as the numbers that they mean, and vectors have an element for each list.

    `centroids` has what lists are compared by: one vector for each list. With `lsh`, these and the numbers of codes are
    1 and -1 for the sides of planes, and a query is compared by its products with `planes`.
    """

    kind: str
    metric: str
    probes: tuple[int, ...]
    candidates: int
    recall: float
    row_count: int
    centroids: list[Vector]
    planes: list[Vector]
    rows: list[list[int]]
    decoded: list[list[Vector]]
    vectors: list[list[Vector]]

    def search(self, query: Sequence[float], k: int, allowed: set[int]) -> list[int]:
        """Return the rows of a search by lists, best first."""
        sizes = [len(allowed.intersection(rows)) for rows in self.rows]
        total = sum(sizes)
        if not total or not k:
            return []
        unit = _unit(query) if self.metric == "cosine" else tuple(query)
        if self.planes:
            unit = tuple(score("dot", plane, unit) for plane in self.planes)
        by_codes = "l2" if self.metric == "l2" else "dot"
        by_lists = "l2" if self.kind == "imi" else by_codes
        short = unit[: len(self.centroids[0])]
        ranked = sorted(range(len(sizes)), key=lambda each: -score(by_lists, self.centroids[each], short))
        ranked = [each for each in ranked if sizes[each]]
        count = self._probes_at(total / sum(map(len, self.rows)))
        while count < len(ranked) and sum(sizes[each] for each in ranked[:count]) < k:
            count *= 2
        members = [
            (score(by_codes, decoded, unit), row, vector)
            for each in ranked[:count]
            for row, decoded, vector in zip(self.rows[each], self.decoded[each], self.vectors[each], strict=True)
            if row in allowed
        ]
        candidates = sorted(members, key=lambda each: -each[0])[: max(self.candidates, self.candidates * k // 10)]
        best = sorted((-score(self.metric, vector, query), row) for _, row, vector in candidates)
        return [row for _, row in best[:k]]

    def _probes_at(self, selectivity: float) -> int:
        tenths = -math.log10(selectivity)
        at = min(int(tenths), len(self.probes) - 2)
        low, high = math.log(self.probes[at]), math.log(self.probes[at + 1])
        return math.ceil(round(math.exp(low + (high - low) * (tenths - at)), 9))


def score(metric: str, vector: Sequence[float], query: Sequence[float]) -> float:
    if metric == "l2":
        return -math.dist(vector, query)
    product = math.fsum(left * right for left, right in zip(vector, query, strict=True))
    return product if metric == "dot" else product / (math.hypot(*vector) * math.hypot(*query))


def _unit(vector: Sequence[float]) -> Vector:
    return tuple(number / math.hypot(*vector) for number in vector)


KINDS = ("ivf", "imi", "lsh")


def read_vectors(data: bytes) -> VectorLists:
    """Read a segment, and check the sum of every block."""
    (length,) = struct.unpack("<Q", data[-8:])
    head = io.BytesIO(data[-length:])

    def take(form: str, count: int = 1) -> tuple[int, ...]:
        return struct.unpack(f"<{count}{form}", head.read(count * struct.calcsize(form)))

    def floats(count: int) -> Vector:
        return struct.unpack(f"<{count}f", head.read(4 * count))

    if head.read(8) == b"WARPIVF1":
        return _read_first(data)
    kind_number, metric, size, list_count, width, element_bytes, *probes, candidates, recall = take("I", 12)
    kind = KINDS[kind_number]
    row_count, count = take("Q", 2)
    planes: list[Vector] = []
    if kind == "lsh":
        planes = [floats(size) for _ in range(8 * width)]
        bits = list_count.bit_length() - 1
        centroids = [_signs(number << (-bits % 8), bits) for number in range(list_count)]
    else:
        side = list_count if kind == "ivf" else math.isqrt(list_count)
        centroids = [floats(size) for _ in range(side)]
        if kind == "imi":
            half = size // 2
            centroids = [one[:half] + two[half:] for one in centroids for two in centroids]
        minimum, step = floats(size), floats(size)
    counts = take("I", list_count)
    sections = []
    at = 0
    for item_bytes, block_bytes in ((width, 65_536), (size * element_bytes, 16_384), (4, 16_384)):
        members = max(block_bytes // item_bytes, 1)
        blocks = range(0, count, members)
        for first, digest in zip(blocks, take("Q", len(blocks)), strict=True):
            end = min(first + members, count)
            assert xxhash.xxh3_64_intdigest(data[at + first * item_bytes : at + end * item_bytes]) == digest
        sections.append(data[at : at + count * item_bytes])
        at += count * item_bytes
    assert at + length == len(data)
    assert head.tell() == length - 8
    codes, exact, numbers = sections
    vectors = _cut(struct.unpack(f"<{count * size}{'f' if element_bytes == 4 else 'd'}", exact), size)
    if kind == "lsh":
        decoded = [_signs(int.from_bytes(part, "big"), 8 * width) for part in _pieces(codes, width)]
    else:
        decoded = _cut([minimum[n % size] + step[n % size] * (code + 0.5) for n, code in enumerate(codes)], size)
    rows = list(struct.unpack(f"<{count}I", numbers))
    ends = [sum(counts[: number + 1]) for number in range(list_count)]
    spans = list(zip([0, *ends], ends, strict=False))
    assert all(rows[start:stop] == sorted(rows[start:stop]) for start, stop in spans)
    return VectorLists(
        kind, METRICS[metric], tuple(probes), candidates, recall / 1e6, row_count, centroids, planes,
        [rows[start:stop] for start, stop in spans],
        [decoded[start:stop] for start, stop in spans],
        [vectors[start:stop] for start, stop in spans],
    )  # fmt: skip


def _pieces(data: bytes, width: int) -> list[bytes]:
    return [data[at : at + width] for at in range(0, len(data), width)]


def _signs(number: int, bits: int) -> Vector:
    """Return 1 for each bit that is set, and -1 for the others, from the highest bit of whole bytes on."""
    whole = bits + -bits % 8
    return tuple(1.0 if number >> (whole - 1 - at) & 1 else -1.0 for at in range(bits))


def _read_first(data: bytes) -> VectorLists:
    """Read a segment of the first format, and check the sum of every list."""
    (length,) = struct.unpack("<Q", data[-8:])
    head = io.BytesIO(data[-length:])

    def take(form: str, count: int = 1) -> tuple[int, ...]:
        return struct.unpack(f"<{count}{form}", head.read(count * struct.calcsize(form)))

    def floats(count: int) -> Vector:
        return struct.unpack(f"<{count}f", head.read(4 * count))

    assert head.read(8) == b"WARPIVF1"
    metric, size, list_count, element_bytes, *probes, recall = take("I", 8)
    row_count, vector_count = take("Q", 2)
    centroids = [floats(size) for _ in range(list_count)]
    minimum, step = floats(size), floats(size)
    counts = take("I", list_count)
    code_sums, vector_sums = take("Q", list_count), take("Q", list_count)
    all_rows = take("I", vector_count)
    assert head.tell() == length - 8
    assert len(data) == vector_count * size * (1 + element_bytes) + length

    rows: list[list[int]] = []
    decoded: list[list[Vector]] = []
    vectors: list[list[Vector]] = []
    form = "f" if element_bytes == 4 else "d"
    for number, count in enumerate(counts):
        first = sum(counts[:number])
        codes = data[first * size : (first + count) * size]
        begin = vector_count * size + first * size * element_bytes
        exact = data[begin : begin + count * size * element_bytes]
        assert xxhash.xxh3_64_intdigest(codes) == code_sums[number]
        assert xxhash.xxh3_64_intdigest(exact) == vector_sums[number]
        rows.append(list(all_rows[first : first + count]))
        assert rows[-1] == sorted(rows[-1])
        numbers = [minimum[at % size] + step[at % size] * (code + 0.5) for at, code in enumerate(codes)]
        decoded.append(_cut(numbers, size))
        vectors.append(_cut(struct.unpack(f"<{count * size}{form}", exact), size))
    return VectorLists(
        "ivf", METRICS[metric], tuple(probes), 40, recall / 1e6, row_count, centroids, [], rows, decoded, vectors
    )


def _cut(numbers: Sequence[float], size: int) -> list[Vector]:
    return [tuple(numbers[at : at + size]) for at in range(0, len(numbers), size)]


def split_words(text: str) -> list[str]:
    """Return the words of a text, character by character."""
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    letters = "".join(each if each.isalnum() else " " for each in folded)
    return [word for word in letters.split(" ") if word]


@dataclass(frozen=True)
class TextPostings:
    """A segment of words: for each word, the rows that have it with its count and the words of the row."""

    text_count: int
    word_count: int
    lengths: dict[int, int]
    """The words of each text, by row."""
    words: dict[str, dict[int, int]]
    """The count of a word in each row that has it."""

    def scores(self, query: str) -> dict[int, float]:
        """Return the BM25 scores of the rows, where the segment is the whole table."""
        out: dict[int, float] = {}
        mean = self.word_count / max(self.text_count, 1)
        for word, weight in sorted(Counter(split_words(query)).items()):
            found = self.words.get(word, {})
            rarity = math.log(1 + (self.text_count - len(found) + 0.5) / (len(found) + 0.5))
            for row, count in found.items():
                norm = 1.2 * (1 - 0.75 + 0.75 * self.lengths[row] / mean)
                out[row] = out.get(row, 0.0) + weight * rarity * count * 2.2 / (count + norm)
        return out


def read_text(data: bytes) -> TextPostings:
    table = pq.read_table(io.BytesIO(data))
    assert table.column_names == ["word", "row", "count", "length"]
    entries = table.to_pylist()
    keys = [(entry["word"].encode(), entry["row"]) for entry in entries]
    assert keys == sorted(set(keys))
    words: dict[str, dict[int, int]] = {}
    for entry in entries:
        words.setdefault(entry["word"], {})[entry["row"]] = entry["count"]
    texts = words.pop("", {})
    assert not any(texts.values())
    lengths = {entry["row"]: entry["length"] for entry in entries if not entry["word"]}
    assert all(entry["length"] == lengths[entry["row"]] for entry in entries)
    metadata = table.schema.metadata
    return TextPostings(int(metadata[b"warpdata.texts"]), int(metadata[b"warpdata.words"]), lengths, words)
