"""If this fails, a small edit of a large table uploads much more than what changed, or leaves many small files."""

from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa

import warpdata as wd
from tests.faults.scenes import link, memory
from warpdata.datasets import Dataset, open_dataset
from warpdata.repository.catalog import parse_address
from warpdata.session import Session

_fresh = itertools.count()


def publish(row_count: int) -> Session:
    session = link(memory(f"costs-{next(_fresh)}"))
    numbers = np.arange(row_count)
    rows = pa.table({"n": numbers, "text": pa.array(numbers).cast(pa.string())})
    wd.DatasetBuilder("a/b", session).add_table("main", rows).publish()
    return session


def opened(session: Session) -> Dataset:
    return open_dataset(session, parse_address("a/b"))


def sizes(session: Session) -> dict[str, int]:
    return {info.key: info.size_bytes for info in session.writer.list_objects("")}


def test_deleting_scattered_rows_uploads_little() -> None:
    session = publish(100_000)
    before = sizes(session)
    with opened(session).edit() as edit:
        assert edit.delete("main", "n % 250 = 17") == 400
    added = {key: size for key, size in sizes(session).items() if before.get(key) != size}
    assert sum(added.values()) < 10_000, added
    assert opened(session).table().count() == 99_600


def test_a_new_column_uploads_only_its_own_bytes() -> None:
    session = publish(20_000)
    before = sizes(session)
    values = np.random.default_rng(0).random(20_000).astype(np.float32)
    with opened(session).edit() as edit:
        edit.add_column("main", "x", lambda batch: values[batch["n"].to_numpy()], columns="n")
    blobs = [size for key, size in sizes(session).items() if key not in before and "blobs/" in key]
    assert len(blobs) == 1
    assert values.nbytes <= sum(blobs) < 1.5 * values.nbytes  # Parquet also writes a dictionary of the values
    assert np.array_equal(opened(session).table().to_arrow()["x"].to_numpy(), values)


def test_many_appends_leave_few_files() -> None:
    session = publish(1)
    for number in range(1, 101):
        with opened(session).edit() as edit:
            edit.append("main", {"n": [number], "text": [str(number)]})
    table = opened(session).table()
    assert table.entry.shards.shard_count <= 20
    assert table.to_arrow()["n"].to_pylist() == list(range(101))
    assert list(table.sample_ids()) == list(range(101))
