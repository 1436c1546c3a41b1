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
    Corpus,
    IvfOptions,
    IvfSegment,
    ListCache,
    Metric,
    TextQuery,
    TextSegment,
    TopScores,
    VectorQuery,
    describe_ivf,
    ivf_build,
    write_ivf,
    write_text,
)
from warpdata.primitives.hashing import blob_key, fingerprint_file, sha256_hex
from warpdata.repository.manifest import Shard

FOLDER = Path(__file__).parents[2] / "golden" / "search"
VECTORS = np.array([[1, 0], [0, 0], [3, 4], [np.nan, 1], [-2, 1], [0.5, 0.25], [0, -1], [4, 3]])
LISTS = [1, 0, 1, 1, 2, 1]
"""The lists of the vectors that cosine can compare. List 3 is empty."""
CENTROIDS = np.array([[-1, 0], [1, 0], [0, -1], [0, 1]], np.float32)
GOLDEN: dict[str, tuple[Metric, str]] = {"cosine": ("cosine", "f4"), "l2": ("l2", "f8")}
ROWS = {"cosine": [[12], [10, 14, 15, 17], [16], []], "l2": [[11, 12], [10, 14, 15, 17], [16], []]}
TEXTS = ["A red car", None, "Red, red wine!", "", "ＣＡＲ № 7 Straße", "--", "naïve_car"]


def write_golden(name: str, path: Path) -> None:
    metric, dtype = GOLDEN[name]
    lists = LISTS if metric == "cosine" else [1, 0, *LISTS[1:]]  # the zero vector, too
    trained = ivf_build._Trained(CENTROIDS, np.array(lists), (1, 2, 3), 0.975)
    rows = np.arange(10, 18)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ivf_build, "_train", lambda *_: trained)
        write_ivf(
            [(rows[:3], VECTORS[:3].astype(dtype)), (rows[3:], VECTORS[3:].astype(dtype))], 20, path, options(name)
        )


def options(name: str) -> IvfOptions:
    return IvfOptions(GOLDEN[name][0], len(CENTROIDS))


def open_vectors(path: Path) -> IvfSegment:
    data, store = path.read_bytes(), memory(str(path))
    shard = Shard(sha256_hex(data), len(data), footer=describe_ivf(path))
    store.create(blob_key(shard.hash), data)
    return IvfSegment(store, shard, ListCache(1 << 20))


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


@pytest.mark.parametrize("name", GOLDEN)
def test_the_same_lists_give_the_bytes_of_the_first_release(name: str, tmp_path: Path) -> None:
    write_golden(name, tmp_path / "x")
    assert (tmp_path / "x").read_bytes() == (FOLDER / f"{name}.ivf").read_bytes()


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_vectors_are_read_by_two_readers(name: str) -> None:
    path = FOLDER / f"{name}.ivf"
    segment, read = open_vectors(path), reference.read_vectors(path.read_bytes())
    head = segment.head
    metric = GOLDEN[name][0]
    assert read.rows == ROWS[name]
    assert (read.metric, read.probes, read.recall, read.row_count) == (metric, (1, 2, 3), 0.975, 20)
    assert (head.metric, head.probes, head.recall, head.row_count) == (metric, (1, 2, 3), 0.975, 20)
    assert np.array_equal(head.centroids, read.centroids)
    assert head.rows.tolist() == [row for rows in read.rows for row in rows]
    for rows, vectors, decoded in zip(read.rows, read.vectors, read.decoded, strict=True):
        exact = VECTORS[[row - 10 for row in rows]]
        assert vectors == [tuple(vector) for vector in exact.tolist()]
        lengths = np.linalg.norm(exact, axis=1, keepdims=True) if metric == "cosine" else 1
        if rows:
            assert np.abs(exact / lengths - decoded).max() <= head.step.max() * 0.51
    for query in ([1.0, 2.0], [-1.0, -1.0]):
        best = TopScores(4)
        segment.search(VectorQuery(np.array(query), metric), np.arange(20) != 15, best)
        assert ranked(best) == read.search(query, 4, set(range(20)) - {15})


@pytest.mark.parametrize("metric", METRICS)
def test_a_second_reader_finds_the_same_rows_by_lists(metric: Metric, tmp_path: Path) -> None:
    pytest.importorskip("faiss")
    random = np.random.default_rng(7)
    vectors = random.standard_normal((400, 6)).astype("f4")
    vectors[::9] = np.nan
    write_ivf([(np.arange(400), vectors)], 400, tmp_path / "x", IvfOptions(metric, 20))
    segment, read = open_vectors(tmp_path / "x"), reference.read_vectors((tmp_path / "x").read_bytes())
    for selectivity in (1.0, 0.5, 0.1):
        allowed = random.random(400) < selectivity
        for k in (1, 5, 12):
            query = random.standard_normal(6)
            best = TopScores(k)
            work = segment.search(VectorQuery(query, metric), allowed, best)
            assert not work.is_exact
            assert ranked(best) == read.search(query.tolist(), k, set(np.flatnonzero(allowed).tolist()))


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
    for each in GOLDEN:
        if not (FOLDER / f"{each}.ivf").exists():
            write_golden(each, FOLDER / f"{each}.ivf")
    if not (FOLDER / "words.parquet").exists():
        write_text([pa.array(TEXTS, pa.string())], FOLDER / "words.parquet")
