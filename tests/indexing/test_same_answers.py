"""If this fails, an index changes an answer: a filtered read, a count or a sample differs from the one without it."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import warpdata as wd
from tests.indexing.scenes import INDEXED, History, connect, head, random_filter, random_rows, without_indexes
from warpdata.errors import SchemaMismatchError
from warpdata.kinds.indexes import OpenedIndex
from warpdata.repository.manifest import Shard


@pytest.fixture(autouse=True)
def always_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use indexes on small tables too, where a scan is faster."""
    monkeypatch.setattr("warpdata.query.planner._MAX_SCAN_SHARE", 1e9)
    monkeypatch.setattr("warpdata.kinds.tables.row_indexes._SELECTIVE_SHARE", 1.0)


@pytest.mark.parametrize("seed", range(4))
def test_filters_with_indexes_keep_the_same_rows_through_edits(seed: int) -> None:
    history = History(random.Random(seed))
    history.begin()
    history.check(20)
    for _ in range(5):
        history.step()
        history.check(8)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_ten_thousand_filters_against_brute_force() -> None:
    """DuckDB evaluates each filter on all rows in memory, without row groups, pruning or kernels."""
    import duckdb

    asked = 0
    for seed in range(1000, 1100):
        history = History(random.Random(seed))
        history.begin()
        for _ in range(5):
            history.step()
            table = head(history.session).table()
            rows = table.to_arrow()
            memory = duckdb.connect()  # a filter on Arrow data itself would be pushed into Arrow, which has other NaN
            memory.execute("CREATE TABLE copied AS SELECT * FROM rows")
            for _ in range(20):
                text = random_filter(history.rng, history.names)
                kept = memory.execute(f"SELECT n FROM copied WHERE {text}").fetchall()
                found = table.filter(text).select("n").to_arrow()["n"].to_pylist()
                assert found == [n for (n,) in kept], (seed, text)
                asked += rows.num_rows > 0
    assert asked >= 10_000


def test_the_planner_is_used_and_not_only_right() -> None:
    """Otherwise the tests above compare a scan with itself."""
    session = connect()
    rng = random.Random(5)
    wd.DatasetBuilder("a/b", session).add_table("main", random_rows(rng, 0, 500)).publish()
    for column in INDEXED:
        head(session).create_index("main", column)
    table = head(session).table()
    for text in ("i = 3", "s IN ('a', 'b')", "ok", "day < '2024-01-04' AND NOT (s = 'a')", "d IS NULL"):
        plan = table.filter(text).explain()
        assert plan.undecided_rows == 0, text
        assert plan.certain_rows == without_indexes(table).filter(text).count(), text
        assert all(leaf.index for leaf in plan.leaves), text
    plan = table.filter("i = 3 AND length(s) > 1").explain()
    assert 0 < plan.undecided_rows < 100
    assert plan.certain_rows == 0
    assert "[main.i]" in str(plan)
    assert len(str(table.filter(f"i IN ({', '.join(map(str, range(2000)))})").explain())) < 1000


@pytest.mark.parametrize("by", ["s", "i", "ok", "ts", "d", "f"])
@pytest.mark.parametrize("text", [None, "i > 3", "i > 3 AND length(s) > 0"])
def test_a_stratified_sample_is_the_same_with_an_index(by: str, text: str | None) -> None:
    session = connect()
    wd.DatasetBuilder("a/b", session).add_table("main", random_rows(random.Random(1), 0, 300)).publish()
    wd.DatasetBuilder("a/b", session).append_table("main", random_rows(random.Random(2), 300, 100)).publish()
    with head(session).edit() as edit:
        edit.delete("main", "n % 7 = 0")
    head(session).create_index("main", by, kind="bitmap")
    head(session).create_index("main", "i", name="second")
    table = head(session).table()
    fast, slow = table, without_indexes(table)
    if text is not None:
        fast, slow = fast.filter(text), slow.filter(text)
    for count in (0, 1, 17, 100, 10_000):
        assert fast.sample(count, by=by, seed=count).rows == slow.sample(count, by=by, seed=count).rows


@pytest.mark.parametrize("kind", [pa.float64(), pa.float32(), pa.float16()])
def test_strata_of_floats_do_not_depend_on_row_groups_or_indexes(kind: pa.DataType, tmp_path: Path) -> None:
    """The two zeros are one stratum, and so are all NaN, as `isin` has them."""
    rng = random.Random(3)
    values = [rng.choice([math.nan, -math.nan, 0.0, -0.0, 1.5, None]) for _ in range(200)]
    column = pa.array([None if value is None else np.float16(value) for value in values], pa.float16()).cast(kind)
    samples = []
    for group_rows in (200, 7):
        session, path = connect(), tmp_path / f"{group_rows}.parquet"
        pq.write_table(pa.table({"f": column}), path, row_group_size=group_rows)
        wd.DatasetBuilder("a/b", session).add_table("main", path).publish()
        samples.append(head(session).table().sample(40, by="f", seed=1))
        if kind == pa.float16():
            with pytest.raises(SchemaMismatchError, match="column 'f' is halffloat"):
                head(session).create_index("main", "f", kind="bitmap")
            continue
        head(session).create_index("main", "f", kind="bitmap")
        samples.append(head(session).table().sample(40, by="f", seed=1))
    assert len({tuple(sample.row_numbers().tolist()) for sample in samples}) == 1
    keys = [None if value is None else "nan" if math.isnan(value) else value for value in values]
    chosen = Counter(keys[row] for row in samples[0].row_numbers())
    for key, count in Counter(keys).items():
        assert abs(chosen[key] - count / 5) < 1


def test_limits_ranks_streams_and_restricted_tables_agree() -> None:
    session = connect()
    wd.DatasetBuilder("a/b", session).add_table("main", random_rows(random.Random(1), 0, 200)).publish()
    wd.DatasetBuilder("a/b", session).append_table("main", random_rows(random.Random(2), 200, 200)).publish()
    head(session).create_index("main", "i")
    dataset = head(session)
    fast = dataset.table().select(["n", "s", "tags"]).filter("i = 3 OR i = 4")
    slow = without_indexes(fast)
    for limit in (0, 1, 5, 1000):
        assert fast.to_arrow(limit).equals(slow.to_arrow(limit))
    for rank in range(3):
        parts = [list(table.batches(10, shard=(rank, 3), limit=7)) for table in (fast, slow)]
        assert pa.Table.from_batches(parts[0], fast.schema()).equals(pa.Table.from_batches(parts[1], fast.schema()))
    sampled = [table._with(filters=()).sample(150, seed=2).filter("i = 3 OR i = 4") for table in (fast, slow)]
    assert np.array_equal(sampled[0].row_numbers(), sampled[1].row_numbers())
    assert sampled[0].to_arrow().equals(sampled[1].to_arrow())
    streamed = [n for batch in dataset.stream(filter="i = 3", batch_size=8, columns=["n"]) for n in batch["n"].tolist()]
    assert streamed == slow._with(filters=()).filter("i = 3").select("n").to_arrow()["n"].to_pylist()
    assert fast[0] == slow[0]
    assert len(fast) == slow.count()


def test_an_index_is_opened_with_one_round_trip(monkeypatch: pytest.MonkeyPatch) -> None:
    """All requests but those for rows of the index are in flight together."""
    session = connect()
    wd.DatasetBuilder("a/b", session).add_table("main", random_rows(random.Random(5), 0, 500)).publish()
    head(session).create_index("main", "i", kind="btree")
    opened: list[object] = []
    load = OpenedIndex.load

    def record(self: OpenedIndex, open_segment: Callable[[Shard], object]) -> None:
        load(self, lambda shard: opened.append(open_segment(shard)))

    monkeypatch.setattr(OpenedIndex, "load", record)
    assert head(session).table().filter("i = 3").explain().undecided_rows == 0
    assert len(opened) == 1, "the footer was read with the directory"
