"""If this fails, segments of vectors or words have other bytes than the specification says, or are read as others.

`tests/golden/search` has segments as they were first written. The centroids and lists of the vectors are given here, so
that the bytes do not depend on a library that clusters. Parquet files depend on the version of theirs, so the bytes of
words are read back and not compared. `python -m tests.formats.search.test_golden_segments` adds absent ones.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.faults.scenes import link, memory
from tests.reference import search_reader as reference
from warpdata.formats.indexes import Segment, Source
from warpdata.formats.parquet import ShardOpener, describe_parquet
from warpdata.formats.search import (
    METRICS,
    BlockCache,
    Corpus,
    Metric,
    TextQuery,
    TextSegment,
    TopScores,
    VectorOptions,
    VectorQuery,
    VectorSegment,
    describe_vectors,
    vector_build,
    write_text,
    write_vectors,
)
from warpdata.formats.search.vector_quantizer import CellQuantizer, ListQuantizer, ScalarCodes, SignQuantizer
from warpdata.formats.search.vector_training import Trained
from warpdata.primitives.hashing import blob_key, fingerprint_file, sha256_hex
from warpdata.repository.manifest import Shard

FOLDER = Path(__file__).parents[2] / "golden" / "search"
VECTORS = np.array([[1, 0], [0, 0], [3, 4], [np.nan, 1], [-2, 1], [0.5, 0.25], [0, -1], [4, 3]])
LISTS = [1, 0, 1, 1, 2, 1]
"""The lists of the vectors that cosine can compare. List 3 is empty."""
CENTROIDS = np.array([[-1, 0], [1, 0], [0, -1], [0, 1]], np.float32)
FIRST: dict[str, tuple[Metric, str]] = {"cosine": ("cosine", "f4"), "l2": ("l2", "f8")}
"""Segments of the first format, which is not written any more."""
SECOND: dict[str, tuple[str, Metric, str]] = {
    "ivf-cosine": ("ivf", "cosine", "f4"),
    "ivf-l2": ("ivf", "l2", "f8"),
    "imi": ("imi", "cosine", "f4"),
    "lsh": ("lsh", "cosine", "f4"),
}
PLANES = np.array([[1, 0], [0, 1], [1, 1], [1, -1], [2, 1], [1, 2], [-1, 0], [0, -1]], np.float32)
ROWS = {"cosine": [[12], [10, 14, 15, 17], [16], []], "l2": [[11, 12], [10, 14, 15, 17], [16], []]}
TEXTS = ["A red car", None, "Red, red wine!", "", "ＣＡＲ № 7 Straße", "--", "naïve_car"]


def write_golden(name: str, path: Path) -> None:
    kind, metric, dtype = SECOND[name]
    lists = LISTS if metric == "cosine" else [1, 0, *LISTS[1:]]  # the zero vector, too
    usable = VECTORS[[0, 2, 4, 5, 6, 7]] if metric == "cosine" else VECTORS[[0, 1, 2, 4, 5, 6, 7]]
    compared = usable / np.linalg.norm(usable, axis=1, keepdims=True) if metric == "cosine" else usable
    low, high = compared.min(axis=0).astype("f4"), compared.max(axis=0).astype("f4")
    codes = ScalarCodes(low, ((high - low) / 256).astype("f4"))
    quantizer: Any = ListQuantizer(CENTROIDS, codes)
    if kind == "imi":
        quantizer = CellQuantizer(CENTROIDS[:2], codes)
    elif kind == "lsh":
        quantizer = SignQuantizer(PLANES, 2)
    trained = Trained(quantizer, np.array(lists), (1, 2, 3, 4), 40, 0.975)
    rows = np.arange(10, 18)
    parts = [(rows[:3], VECTORS[:3].astype(dtype)), (rows[3:], VECTORS[3:].astype(dtype))]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vector_build, "train", lambda *_: trained)
        write_vectors(parts, 20, path, VectorOptions(metric, len(CENTROIDS), kind))


def open_vectors(path: Path) -> VectorSegment:
    data, store = path.read_bytes(), memory(str(path))
    shard = Shard(sha256_hex(data), len(data), footer=describe_vectors(path))
    store.create(blob_key(shard.hash), data)
    return VectorSegment(store, shard, BlockCache(1 << 20))


def ranked(best: TopScores) -> list[int]:
    rows, scores = best.result()
    order = np.lexsort((rows, -scores))[: best.k]
    return [int(row) for row in rows[order]]


def open_text(path: Path, rows: int) -> TextSegment:
    session = link(memory(str(path)))
    fingerprint, described = fingerprint_file(path), describe_parquet(path)
    session.writer.create_file(blob_key(fingerprint.blob.hash), path, fingerprint)
    shard = Shard(fingerprint.blob.hash, fingerprint.blob.byte_size, described.row_count, described.footer)
    segment = Segment(shard.hash, (Source("0" * 64, "x", rows),), described.row_count)
    return TextSegment(ShardOpener(session.reader).open(shard), segment)


@pytest.mark.parametrize("name", SECOND)
def test_the_same_lists_give_the_bytes_of_the_first_release(name: str, tmp_path: Path) -> None:
    write_golden(name, tmp_path / "x")
    assert (tmp_path / "x").read_bytes() == (FOLDER / f"{name}.vectors").read_bytes()


@pytest.mark.parametrize("path", [*(f"{name}.ivf" for name in FIRST), *(f"{name}.vectors" for name in SECOND)])
def test_golden_vectors_are_read_by_two_readers(path: str) -> None:
    name = path.split(".")[0]
    segment, read = open_vectors(FOLDER / path), reference.read_vectors((FOLDER / path).read_bytes())
    head = segment.head
    metric = FIRST[name][0] if path.endswith("ivf") else SECOND[name][1]
    probes = (1, 2, 3) if path.endswith("ivf") else (1, 2, 3, 4)
    assert read.rows == ROWS[metric]
    assert (read.metric, read.probes, read.recall, read.row_count) == (metric, probes, 0.975, 20)
    assert (head.metric, head.probes, head.recall, head.row_count) == (metric, probes, 0.975, 20)
    assert head.candidates == read.candidates == 40
    for rows, vectors, decoded in zip(read.rows, read.vectors, read.decoded, strict=True):
        exact = VECTORS[[row - 10 for row in rows]]
        assert vectors == [tuple(vector) for vector in exact.tolist()]
        lengths = np.linalg.norm(exact, axis=1, keepdims=True) if metric == "cosine" else 1
        if rows and isinstance(head.quantizer, ListQuantizer | CellQuantizer):
            assert np.abs(exact / lengths - decoded).max() <= head.quantizer.codes.step.max() * 0.51
        elif rows:
            assert np.array_equal(decoded, np.where(exact @ PLANES.T > 0, 1, -1))
    for query in ([1.0, 2.0], [-1.0, -1.0]):
        best = TopScores(4)
        segment.search(VectorQuery(np.array(query), metric), segment.subset(np.delete(np.arange(20), 15)), best)
        exact_rows = np.array(sorted({row for rows in read.rows for row in rows} - {15}))
        scores = VectorQuery(np.array(query), metric).scores(VECTORS[exact_rows - 10])
        assert ranked(best) == exact_rows[np.lexsort((exact_rows, -scores))][:4].tolist()


@pytest.mark.parametrize(
    ("kind", "metric"), [*(("ivf", metric) for metric in METRICS), ("imi", "cosine"), ("lsh", "cosine")]
)
def test_a_second_reader_finds_the_same_rows_by_lists(kind: str, metric: Metric, tmp_path: Path) -> None:
    pytest.importorskip("faiss")
    random = np.random.default_rng(7)
    vectors = random.standard_normal((3000, 6)).astype("f4")
    vectors[::9] = np.nan
    options = VectorOptions(metric, 30 if kind == "ivf" else None, kind)
    write_vectors([(np.arange(3000), vectors)], 3000, tmp_path / "x", options)
    segment, read = open_vectors(tmp_path / "x"), reference.read_vectors((tmp_path / "x").read_bytes())
    for selectivity in (1.0, 0.5, 0.2):
        allowed = np.flatnonzero(random.random(3000) < selectivity)
        for k in (1, 5, 12):
            query = random.standard_normal(6)
            best = TopScores(k)
            work = segment.search(VectorQuery(query, metric), segment.subset(allowed), best)
            assert work.recall < 1 or work.lists
            assert ranked(best) == read.search(query.tolist(), k, set(allowed.tolist()))


def check_text(segment: TextSegment, read: reference.TextPostings, query: str) -> None:
    words = TextQuery.parse(query)
    corpus = Corpus(segment.text_count, segment.word_count, segment.postings(words.words))
    rows, scores = words.scores(corpus)
    assert dict(zip(rows.tolist(), scores.tolist(), strict=True)) == pytest.approx(read.scores(query), rel=1e-12)


def test_golden_words_are_read_by_two_readers() -> None:
    path = FOLDER / "words.parquet"
    segment, read = open_text(path, len(TEXTS)), reference.read_text(path.read_bytes())
    assert read.lengths == {0: 3, 2: 3, 3: 0, 4: 4, 5: 0, 6: 2}
    assert read.words == {
        "7": {4: 1},
        "a": {0: 1},
        "car": {0: 1, 4: 1, 6: 1},
        "naïve": {6: 1},
        "no": {4: 1},
        "red": {0: 1, 2: 2},
        "strasse": {4: 1},
        "wine": {2: 1},
    }
    assert (segment.text_count, segment.word_count) == (read.text_count, read.word_count) == (6, 12)
    for query in ("red", "car red car", "STRASSE missing", "№"):
        check_text(segment, read, query)


def test_a_second_reader_ranks_rows_by_words_alike(tmp_path: Path) -> None:
    random = np.random.default_rng(2)
    words = np.array(["a", "é", "Zz", "9", "日本", "ﬁ", "x_y"])
    texts: list[Any] = [" ".join(random.choice(words, random.integers(0, 9))) for _ in range(300)]
    texts[::7] = [None] * len(texts[::7])
    write_text([pa.array(texts[:100], pa.string()), pa.array(texts[100:], pa.string())], tmp_path / "x")
    segment, read = open_text(tmp_path / "x", 300), reference.read_text((tmp_path / "x").read_bytes())
    found = [reference.split_words(text) for text in texts if text is not None]
    assert (segment.text_count, segment.word_count) == (len(found), sum(map(len, found)))
    assert math.fsum(read.lengths.values()) == segment.word_count
    for query in ("a", "é zz", "fi fi 9", "x y 日本"):
        check_text(segment, read, query)


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for each in SECOND:
        if not (FOLDER / f"{each}.vectors").exists():
            write_golden(each, FOLDER / f"{each}.vectors")
    if not (FOLDER / "words.parquet").exists():
        write_text([pa.array(TEXTS, pa.string())], FOLDER / "words.parquet")
