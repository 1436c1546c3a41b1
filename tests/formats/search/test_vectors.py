"""If this fails, an index of vectors misses near rows, returns fewer than there are, or believes damaged bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from warpdata.errors import BadInputError, CorruptError
from warpdata.formats.search import (
    METRICS,
    BlockCache,
    TopScores,
    VectorOptions,
    VectorQuery,
    VectorSegment,
    describe_vectors,
    write_vectors,
)
from warpdata.primitives.hashing import blob_key, sha256_hex
from warpdata.repository.manifest import Footer, Shard
from warpdata.settings import load_settings
from warpdata.storage import Writer, open_store

pytest.importorskip("faiss")

ROWS, SIZE, K = 20_000, 24, 10
KINDS = [*(("ivf", metric) for metric in METRICS), ("imi", "cosine"), ("lsh", "cosine")]
Batches = list[tuple[Any, Any]]


def clustered(rows: int = ROWS, size: int = SIZE) -> Any:
    random = np.random.default_rng(3)
    centers = random.standard_normal((rows // 50 + 1, size))
    return (centers[random.integers(0, len(centers), rows)] + 0.5 * random.standard_normal((rows, size))).astype("f4")


def stored(store: Writer, path: Path, footer: Footer) -> Shard:
    data = path.read_bytes()
    shard = Shard(sha256_hex(data), len(data), footer=footer)
    store.create(blob_key(shard.hash), data)
    return shard


def built(
    path: Path, batches: Batches, rows: int, metric: Any = "cosine", lists: int | None = None, kind: str = "ivf"
) -> VectorSegment:
    write_vectors(batches, rows, path, VectorOptions(metric, lists, kind))
    footer = describe_vectors(path)
    store = open_store("memory://ivf", load_settings())
    return VectorSegment(store, stored(store, path, footer), BlockCache(1 << 28))


def exact(vectors: Any, query: VectorQuery, allowed: Any, k: int) -> set[int]:
    rows = np.flatnonzero(allowed)
    scores = query.scores(vectors[rows])
    return set(rows[np.argsort(-scores, kind="stable")[:k]].tolist())


@pytest.mark.parametrize(("kind", "metric"), KINDS)
def test_recall_holds_under_filters_of_any_selectivity(tmp_path: Path, kind: str, metric: Any) -> None:
    vectors = clustered()
    random = np.random.default_rng(4)
    segment = built(tmp_path / "x", [(np.arange(ROWS), vectors)], ROWS, metric, kind=kind)
    for selectivity in (1.0, 0.1, 0.01, 0.001):
        allowed = random.random(ROWS) < selectivity
        found = wanted = 0
        for vector in vectors[random.integers(0, ROWS, 20)]:
            query = VectorQuery((vector + 0.1 * random.standard_normal(SIZE)).astype(float), metric)
            best = TopScores(K)
            segment.search(query, None if selectivity == 1 else segment.subset(np.flatnonzero(allowed)), best)
            rows = best.result()[0].tolist()
            assert allowed[rows].all() or selectivity == 1
            assert len(rows) == min(K, int(allowed.sum()))
            found += len(exact(vectors, query, allowed, K) & set(rows))
            wanted += len(rows)
        assert found >= 0.95 * wanted, (metric, selectivity, found / wanted)


def test_a_search_reads_few_lists(tmp_path: Path) -> None:
    segment = built(tmp_path / "x", [(np.arange(ROWS), clustered())], ROWS)
    work = segment.search(VectorQuery(clustered()[7].astype(float), "cosine"), None, TopScores(K))
    assert work.recall < 1
    assert work.lists <= segment.head.list_count // 4
    assert work.compared <= 50


@settings(max_examples=40)
@given(st.data())
def test_a_search_is_never_short_and_scores_are_exact(tmp_path_factory: pytest.TempPathFactory, data: Any) -> None:
    random = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    rows = data.draw(st.sampled_from([0, 1, 5, 100, 300, 1500]))
    kind, metric = data.draw(st.sampled_from(KINDS))
    vectors = random.standard_normal((rows, 4)).round(1).astype(data.draw(st.sampled_from(["f4", "f8"])))
    vectors[random.random(rows) < 0.1] = data.draw(st.sampled_from([0.0, np.nan, np.inf]))
    lists = data.draw(st.integers(1, 20))
    batches = [(part, vectors[part]) for part in np.array_split(np.arange(rows), 3) if len(part)]
    path = tmp_path_factory.getbasetemp() / "segment"
    segment = built(path, batches, rows, metric, lists, kind)
    allowed = random.random(rows) < data.draw(st.sampled_from([0.0, 0.02, 0.5, 1.0]))
    k = data.draw(st.integers(0, 20))
    query = VectorQuery(random.standard_normal(4), metric)
    best = TopScores(k)
    segment.search(query, segment.subset(np.flatnonzero(allowed)), best)
    found, scores = best.result()
    usable = np.isfinite(vectors).all(axis=1) & (vectors.any(axis=1) | (metric != "cosine"))
    assert len(found) >= min(k, int((allowed & usable).sum()))
    assert (allowed & usable)[found].all()
    assert np.array_equal(scores, query.scores(vectors[found]))


def test_memory_is_bounded_by_the_cache(tmp_path: Path) -> None:
    vectors = clustered()
    write_vectors([(np.arange(ROWS), vectors)], ROWS, tmp_path / "x", VectorOptions())
    footer = describe_vectors(tmp_path / "x")
    store, cache = open_store("memory://ivf", load_settings()), BlockCache(100_000)
    segment = VectorSegment(store, stored(store, tmp_path / "x", footer), cache)
    for vector in vectors[:20]:
        segment.search(VectorQuery(vector.astype(float), "cosine"), None, TopScores(K))
    assert 0 < cache.size_bytes <= 100_000


@pytest.mark.parametrize("seed", range(30))
def test_no_flipped_bit_is_believed(tmp_path: Path, seed: int) -> None:
    vectors = clustered(200, 3)
    path = tmp_path / "x"
    write_vectors([(np.arange(200), vectors)], 200, path, VectorOptions("l2", 4))
    footer = describe_vectors(path)
    data = bytearray(path.read_bytes())
    position = int(np.random.default_rng(seed).integers(0, len(data)))
    data[position] ^= 1 << seed % 8
    path.write_bytes(data)
    store = open_store(f"memory://ivf-{seed}", load_settings())
    segment = VectorSegment(store, stored(store, path, footer), BlockCache(1 << 20))
    query = VectorQuery(np.ones(3), "l2")

    def read_all() -> None:
        segment.search(query, None, TopScores(200))
        segment._take(segment.head.codes, np.arange(200))  # an exact search reads no codes

    with pytest.raises(CorruptError):
        read_all()


def test_vectors_that_codes_cannot_hold_are_refused(tmp_path: Path) -> None:
    vectors = np.array([[1e20, 0, 0], [1, 0, 0]])
    with pytest.raises(BadInputError, match="row 7 is longer"):
        write_vectors([(np.array([7, 8]), vectors)], 9, tmp_path / "x", VectorOptions("l2"))
    built(tmp_path / "x", [(np.array([7, 8]), vectors)], 9, "cosine")
