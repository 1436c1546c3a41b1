"""If this fails, small appends leave many files, or a small edit rewrites a large shard."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

import warpdata as wd
from tests.faults.scenes import link, memory
from warpdata.datasets import Dataset, open_dataset
from warpdata.repository.catalog import parse_address


def opened(name: str, rows: pa.Table) -> Dataset:
    session = link(memory(name))
    wd.DatasetBuilder("a/b", session).add_table("main", rows).publish()
    return open_dataset(session, parse_address("a/b"))


def newest(dataset: Dataset) -> Dataset:
    return open_dataset(dataset.session, parse_address("a/b"))


def test_many_edits_leave_few_shards_and_the_large_one_as_it_is() -> None:
    rows = pa.table({"n": range(20_000), "x": np.random.default_rng(0).random(20_000)})
    dataset = opened("tail", rows)
    large = dataset.manifest.tables["main"].shards.shards[0]
    assert large.byte_size > 100_000
    for number in range(40):
        with newest(dataset).edit("update") as edit:
            edit.update("main", f"n = {number * 7}", {"x": -1.0})
    shards = newest(dataset).manifest.tables["main"].shards
    assert shards.shards[0].hash == large.hash
    assert shards.shard_count <= 17
    assert shards.data_bytes < large.byte_size + 20_000
    table = newest(dataset).table()
    assert table.count() == 20_000
    assert table.filter("x = -1.0").count() == 40
