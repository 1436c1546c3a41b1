"""If this fails, an exact search misses a nearer row, returns one that cannot be compared, or breaks ties at random."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import warpdata as wd
from tests.search.oracle import nearest, score
from warpdata.errors import BadInputError, ColumnNotFoundError, SchemaMismatchError
from warpdata.formats.search import METRICS, TopScores, VectorQuery, find_usable, squared_lengths
from warpdata.search import Hits

SIZE = 3
STORE = "memory://vector-scan"
COARSE = st.sampled_from([0.0, 1.0, -1.0, 0.5, 2.0])
"""Few values, so that many scores tie."""
COMPONENTS = st.one_of(COARSE, st.floats(width=32), st.none())
VECTORS = st.one_of(st.none(), st.lists(COMPONENTS, min_size=SIZE, max_size=SIZE))
TYPES = {"float16": np.float16, "float32": np.float32, "float64": np.float64}


def published(vectors: Any, name: str = "a/b", kind: str = "float32", **columns: Any) -> wd.Dataset:
    column = pa.array(vectors, pa.list_(getattr(pa, kind)(), SIZE))
    rows = pa.table({"n": pa.array(range(len(vectors)), pa.int64()), "emb": column, **columns})
    wd.DatasetBuilder(name, STORE).add_table("main", rows).publish(replace=True)
    return wd.dataset(name, store=STORE)


def test_the_nearest_rows_come_first_with_their_columns() -> None:
    dataset = published([[1, 0, 0], [0, 1, 0], [1, 1, 0], None, [0, 0, 0]], tag=["a", "b", "c", "d", "e"])
    hits = dataset.search(near=("emb", [1, 0.1, 0]), k=3)
    assert [hit["tag"] for hit in hits] == ["a", "c", "b"]
    assert hits.to_arrow().column_names == ["n", "tag", "_score", "_id"]
    assert hits.scores[0] == pytest.approx(1 / math.hypot(1, 0.1))
    assert len(hits) == 3
    assert hits[-1]["_id"] == hits.ids[2] == 1
    assert hits.row_numbers.tolist() == [0, 2, 1]
    assert pa.table(hits).equals(hits.to_arrow())
    part = hits.explain().parts[0]
    assert (part.compared, part.skipped, part.scanned, part.index) == (3, 2, 5, None)
    assert "3 rows compared exactly" in str(hits.explain())
    assert repr(hits) == "Hits(3, columns=['n', 'tag', '_score', '_id'])"
    assert "<td>c</td>" in hits._repr_html_()


def test_columns_and_filters_choose_what_is_found() -> None:
    dataset = published([[1, 0, 0], [0.9, 0, 0], [0, 1, 0]], tag=["a", "b", "a"])
    hits = dataset.search(near=("emb", [1, 0, 0]), k=2, filter="tag = 'a'", columns=["tag"], metric="l2")
    assert hits.to_arrow().to_pydict() == {"tag": ["a", "a"], "_score": [0.0, -math.sqrt(2)], "_id": [0, 2]}
    assert dataset.search(near=("emb", [1, 0, 0]), columns=[]).to_arrow().column_names == ["_score", "_id"]
    assert dataset.search(near=("emb", [1, 0, 0]), columns="emb")[0]["emb"] == [1, 0, 0]
    none = dataset.search(near=("emb", [1, 0, 0]), filter="tag = 'z'")
    assert len(none) == 0
    assert none.to_arrow().schema == dataset.search(near=("emb", [1, 0, 0])).to_arrow().schema


def test_no_rows_are_wanted_or_there_are_fewer() -> None:
    dataset = published([[1, 0, 0], [0, 1, 0]])
    assert dataset.search(near=("emb", [1, 0, 0]), k=0).ids == []
    assert dataset.search(near=("emb", [1, 0, 0]), k=5).ids == [0, 1]
    assert published([]).search(near=("emb", [1, 0, 0])).ids == []


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"near": ("emb", [1, 2])}, BadInputError, "has 2 numbers; column 'emb' has vectors of 3"),
        ({"near": ("nope", [1, 2, 3])}, ColumnNotFoundError, "no column 'nope'"),
        ({"near": ("n", [1, 2, 3])}, SchemaMismatchError, "column 'n' is int64"),
        ({"near": ("emb", [1, math.nan, 3])}, BadInputError, "nan at position 1"),
        ({"near": ("emb", [1, math.inf, 3])}, BadInputError, "inf at position 1"),
        ({"near": ("emb", [0, 0, 0])}, BadInputError, "is zero"),
        ({"near": ("emb", [1e200, 0, 0])}, BadInputError, "longer than"),
        ({"near": ("emb", ["a", "b", "c"])}, BadInputError, "one list of numbers"),
        ({"near": ("emb", [[1, 2, 3]])}, BadInputError, "one list of numbers"),
        ({"near": ("emb", [1, [2], 3])}, BadInputError, "not a list of numbers"),
        ({"near": ("emb", [True, False, True])}, BadInputError, "one list of numbers"),
        ({"near": "emb"}, BadInputError, "near"),
        ({"near": ("emb", [1, 2, 3]), "metric": "hamming"}, BadInputError, "none of cosine, l2, dot"),
        ({"near": ("emb", [1, 2, 3]), "k": -1}, BadInputError, "k=-1 is negative"),
        ({"near": ("emb", [1, 2, 3]), "columns": ["nope"]}, ColumnNotFoundError, "no column 'nope'"),
        ({"near": ("emb", [1, 2, 3]), "columns": ["_id"]}, BadInputError, "column '_id' of its own"),
        ({}, BadInputError, "something to look for"),
    ],
)
def test_wrong_arguments_are_named(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    dataset = published([[1, 0, 0]], _id=[7])
    with pytest.raises(error, match=message):
        dataset.search(**arguments)


@settings(max_examples=30)
@given(st.lists(VECTORS, max_size=40), st.lists(COARSE, min_size=SIZE, max_size=SIZE), st.data())
def test_the_answer_is_that_of_a_loop_over_the_rows(
    vectors: list[Any], query: list[float], data: st.DataObject
) -> None:
    metric = data.draw(st.sampled_from(METRICS if any(query) else ("l2", "dot")))
    kind = data.draw(st.sampled_from(sorted(TYPES)))
    k = data.draw(st.integers(0, 45))
    if kind == "float16":
        vectors = [v and [None if x is None else float(np.clip(x, -6e4, 6e4)) for x in v] for v in vectors]
    stored = pa.array(vectors, pa.list_(getattr(pa, kind)(), SIZE))
    dataset = published(vectors, kind=kind)
    if data.draw(st.booleans()):
        with dataset.edit("drop") as edit:
            edit.delete("main", where="n % 3 = 1")
        dataset = wd.dataset("a/b", store=STORE)
    ids = dataset.table().sample_ids().tolist()
    hits = dataset.search(near=("emb", query), k=k, metric=metric)
    expected = nearest([(number, stored[number].as_py()) for number in ids], query, metric, k)
    assert_same(hits, expected, stored, query, metric)


def assert_same(
    hits: Hits, expected: list[tuple[int, float]], stored: pa.Array, query: list[float], metric: str
) -> None:
    """The oracle rounds in another order, so rows whose scores differ by a rounding error may change places."""
    assert len(hits) == len(expected)
    assert len(set(hits.ids)) == len(hits.ids)
    for number, found, (_, wanted) in zip(hits.ids, hits.scores, expected, strict=True):
        assert found == pytest.approx(wanted, rel=1e-12, abs=1e-12)
        assert found == pytest.approx(score(stored[number].as_py(), query, metric), rel=1e-12, abs=1e-12)
    pairs = list(zip([-value for value in hits.scores], hits.ids, strict=True))
    assert pairs == sorted(pairs)


@given(st.integers(0, 2**32), st.sampled_from(METRICS), st.sampled_from([np.float32, np.float64]), st.integers(1, 30))
def test_estimates_never_rule_out_one_of_the_best(seed: int, metric: Any, dtype: Any, k: int) -> None:
    """Vectors that are nearly equal, or have extreme lengths, defeat estimates without a bound on their error."""
    random = np.random.default_rng(seed)
    size = int(random.integers(1, 40))
    base = random.standard_normal(size)
    noise = 10.0 ** random.integers(-12, 1)
    vectors = (base + noise * random.standard_normal((300, size))) * 10.0 ** random.integers(-25, 25, (300, 1))
    vectors = np.where(random.random((300, 1)) < 0.9, vectors, 0).astype(dtype)
    query = VectorQuery(base + noise * random.standard_normal(size), metric)
    best = TopScores(k)
    rows = np.arange(300)
    for part in np.array_split(rows, int(random.integers(1, 5))):
        query.search(part, vectors[part], best)
    usable = np.flatnonzero(find_usable(squared_lengths(vectors), metric))
    scores = query.scores(vectors[usable])
    floor = np.sort(scores)[-min(k, len(scores))]
    assert sorted(best.result()[0].tolist()) == usable[scores >= floor].tolist()


def test_ties_go_to_the_lower_sample_id() -> None:
    dataset = published([[1, 0, 0]] * 8)
    with dataset.edit("patch") as edit:
        edit.update("main", where="n = 0", set={"n": wd.expr("n + 100")})
    moved = wd.dataset("a/b", store=STORE)
    assert moved.table().sample_ids().tolist() != list(range(8))
    assert moved.search(near=("emb", [1, 0, 0]), k=3).ids == [0, 1, 2]
