"""If this fails, a filter value means another thing in a table, a stream, an edit or an export than SQL text does."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import warpdata as wd
from warpdata.datasets.streaming import StreamRequest, open_stream, reopen_later
from warpdata.errors import BadInputError, ColumnNotFoundError, SchemaMismatchError, UnsupportedError
from warpdata.streaming import RowKeywords

COL = wd.col
COUNT = 600
LABELS = ["cat", "dog", "fox"]


def rows() -> pa.Table:
    rng = np.random.default_rng(5)
    vectors = rng.integers(-2, 3, (COUNT, 3)).astype(np.float32)  # with ties, and vectors of zeros
    vectors[7] = np.nan
    emb = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), 3, mask=pa.array(np.arange(COUNT) % 50 == 9))
    return pa.table(
        {
            "n": np.arange(COUNT),
            "label": [LABELS[number % 3] for number in range(COUNT)],
            "tags": [["night"] if number % 4 == 0 else [] if number % 4 == 1 else None for number in range(COUNT)],
            "emb": emb,
        }
    )


@pytest.fixture
def ds(tmp_path: Path) -> wd.Dataset:
    pq.write_table(rows(), tmp_path / "rows.parquet", row_group_size=64)
    wd.DatasetBuilder("a/b").add_table("main", tmp_path / "rows.parquet").publish()
    return wd.dataset("a/b")


def nearest(kept: list[int], query: list[float], k: int, metric: str) -> list[int]:
    """The numbers of the nearest rows, computed row by row."""
    scored = []
    for number in kept:
        vector = rows()["emb"][number].as_py()
        if vector is None or np.isnan(vector).any() or (metric == "cosine" and not np.any(vector)):
            continue
        one, two = np.array(vector), np.array(query)
        dot = float(one @ two)
        lengths = float(np.sqrt(one @ one) * np.sqrt(two @ two))
        score = {"dot": dot, "l2": -float(np.sqrt(((one - two) ** 2).sum()))}.get(metric)
        scored.append((-(dot / lengths if score is None else score), number))
    return sorted(number for _, number in sorted(scored)[:k])


def test_text_and_values_select_the_same_rows(ds: wd.Dataset) -> None:
    made = COL("label").isin(["cat", "dog"]) & ~(COL("n") < 100) & COL("tags").contains("night")
    text = "label IN ('cat', 'dog') AND NOT n < 100 AND list_contains(tags, 'night')"
    table = ds.table()
    assert table.filter(made).to_arrow() == table.filter(text).to_arrow()
    assert 0 < table.filter(made).count() < COUNT
    assert table.filter(made).filter("n % 2 = 0").count() == table.filter(made & "n % 2 = 0").count()
    assert table.filter(made).duckdb().fetchall() == table.filter(text).duckdb().fetchall()


def test_long_lists_prune_and_combine(ds: wd.Dataset) -> None:
    wanted = [*range(5, 10), *range(10_000, 110_000)]
    table = ds.table().filter(COL("n").isin(wanted))
    assert table.row_numbers().tolist() == [5, 6, 7, 8, 9]
    either = COL("n").isin(wanted) | wd.Filter.sql("upper(label) = 'FOX' AND n > 590")
    assert ds.table().filter(either).row_numbers().tolist() == [5, 6, 7, 8, 9, 593, 596, 599]
    batch = next(iter(ds.stream(table, batch_size=9)))
    assert batch["n"].tolist() == [5, 6, 7, 8, 9]


@pytest.mark.parametrize("metric", ["cosine", "l2", "dot"])
@pytest.mark.parametrize("k", [1, 20, 1000])
def test_near_keeps_the_nearest_of_the_rows_that_the_rest_keeps(ds: wd.Dataset, metric: Any, k: int) -> None:
    query = [1.0, 0.5, -1.0]
    made = (COL("label") == "cat") & COL("emb").near(query, k, metric)
    cats = [number for number in range(COUNT) if number % 3 == 0]
    assert ds.table().filter(made).row_numbers().tolist() == nearest(cats, query, k, metric)


def test_clauses_apply_in_their_order(ds: wd.Dataset) -> None:
    near, kept = COL("emb").near([1, 2, 3], 100, "l2"), COL("label") != "fox"
    table = ds.table()
    sampled = table.filter(COL.sample(10, by="label", seed=4) & near & kept)
    expected = table.filter(kept).filter(near).sample(10, by="label", seed=4)
    assert sampled.row_numbers().tolist() == expected.row_numbers().tolist()
    assert sampled.count() == 10
    assert table.filter(COL.sample(10, seed=4)).row_numbers().tolist() == ds.sample(10, seed=4).row_numbers().tolist()


@pytest.mark.parametrize(
    ("made", "error", "problem"),
    [
        (COL("emb").near([1.0], 3), BadInputError, "1 numbers; column 'emb' has vectors of 3"),
        (COL("emb").near([0, 0, 0], 3), BadInputError, "zero, which has no cosine"),
        (COL("n").near([1.0], 3), SchemaMismatchError, "column 'n' is int64"),
        (COL("nope").near([1.0], 3), ColumnNotFoundError, "'nope'"),
        (COL.sample(3, by="nope"), ColumnNotFoundError, "'nope'"),
        (COL("label").contains(3), BadInputError, "does not fit the table"),
    ],
)
def test_clauses_that_do_not_fit_are_refused(ds: wd.Dataset, made: wd.Filter, error: Any, problem: str) -> None:
    with pytest.raises(error, match=problem):
        ds.table().filter(made)


@pytest.mark.parametrize(
    "made",
    [
        COL("label") == "cat",
        COL("n").isin(range(0, 10_000, 7)),
        (COL("label") == "cat") & COL.sample(70, seed=1),
        COL("emb").near([1, 2, 3], 70, "dot"),
    ],
    ids=["scalar", "long list", "sample", "near"],
)
def test_streams_over_filters_keep_order_ranks_and_resume(ds: wd.Dataset, made: wd.Filter) -> None:
    expected = ds.table().filter(made).to_arrow()["n"].to_pylist()

    def numbers(stream: Any) -> list[int]:
        return [int(number) for batch in stream for number in batch["n"]]

    whole = numbers(ds.stream(filter=made, batch_size=8, shuffle=True, seed=3))
    assert sorted(whole) == expected
    ranks = [numbers(ds.stream(filter=made, batch_size=4, shuffle=True, seed=3, shard=(rank, 2))) for rank in range(2)]
    assert sorted(ranks[0] + ranks[1]) == expected
    stream = ds.stream(filter=made, batch_size=8, shuffle=True, seed=3)
    begun = iter(stream)
    first = [int(number) for _ in range(2) for number in next(begun)["n"]]
    resumed = ds.stream(filter=made, batch_size=8, shuffle=True, seed=3)
    resumed.load_state_dict(stream.state_dict())
    assert first + numbers(resumed) == whole
    assert numbers(ds.stream(ds.table().filter(made), batch_size=8, shuffle=True, seed=3)) == whole
    keywords: RowKeywords = {"filter": made, "batch_size": 8, "shuffle": True, "seed": 3}
    request = StreamRequest.parse(ds, None, keywords, collate="numpy")
    reopened = pickle.loads(pickle.dumps(reopen_later(ds, request)))  # noqa: S301
    assert numbers(open_stream(ds, request)) == numbers(reopened()) == whole


def test_a_stream_over_a_sample_stays_with_its_version(ds: wd.Dataset) -> None:
    stream = ds.stream(filter=COL.sample(50, seed=1), batch_size=8)
    next(iter(stream))
    with ds.edit("one less") as edit:
        edit.delete("main", COL("n") == 3)
    with pytest.raises(UnsupportedError, match="over a sample"):
        stream.rebase(wd.dataset("a/b").version)


def test_edits_and_exports_take_filters(ds: wd.Dataset, tmp_path: Path) -> None:
    with ds.edit("with values") as edit:
        assert edit.delete("main", COL("n").isin(range(0, 100_000, 100))) == 6
        assert edit.update("main", COL("label") == "fox", {"label": "vulpes"}) == COUNT // 3 - 2
    assert wd.dataset("a/b").table().count() == COUNT - 6
    wd.export("a/b", tmp_path / "out", format="parquet", filter=COL("label").startswith("vul"))
    assert pq.read_table(tmp_path / "out")["label"].unique().to_pylist() == ["vulpes"]


def test_iter_yields_batches_as_seed_code_expects_them(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    for number in range(10):
        (tmp_path / "images" / f"{number}.jpg").write_bytes(b"not decoded %d" % number)
    emb = pa.FixedSizeListArray.from_arrays(pa.array(np.arange(20, dtype=np.float32)), 2)
    images = [f"{number}.jpg" for number in range(10)]
    table = pa.table({"image": images, "label": ["cat", "dog"] * 5, "embedding": emb})
    builder = wd.DatasetBuilder("a/photos").add_table("main", table).add_artifact("images", tmp_path / "images")
    builder.bind("main", "image", "images", "image").publish()
    ds = wd.dataset("a/photos")
    batches = list(ds.iter(wd.Filter.Where("label", "==", "cat"), batch_size=4, shuffle=True, seed=42))
    assert [len(batch["label"]) for batch in batches] == [4, 1]
    assert {label for batch in batches for label in batch["label"]} == {"cat"}
    assert sorted(image for batch in batches for image in batch["image"]) == [
        b"not decoded %d" % n for n in range(0, 10, 2)
    ]
    assert isinstance(batches[0]["image"], list)
    assert batches[0]["embedding"].shape == (4, 2)
    assert batches[0]["embedding"].dtype == np.float32
    assert [len(batch["label"]) for batch in ds.iter()] == [10]
    f = wd.Filter
    near = f.Vector("embedding", np.array([1, 0], np.float32), top_k=1000)
    both = f.And([f.Where("label", "==", "cat"), f.Where("label", "Neq", "x"), near])
    batches = list(ds.iter(filter=both, batch_size=64, shuffle=True, seed=42))
    assert [len(batch["image"]) for batch in batches] == [5]
