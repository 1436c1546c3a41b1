"""If this fails, a killed publish corrupts the previous version, or cannot be run again.

A loop over n kills the publish before and after every store operation.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pyarrow.parquet as pq
import pytest

import warpdata as wd
from tests.faults.scenes import append, faulty, link, memory, numbers, replace, rows
from warpdata.datasets import open_dataset
from warpdata.repository.catalog import parse_address
from warpdata.testing import FaultyStore, KillAt, Killed

OLD, NEW = [0, 1, 2, 3], [100, 101, 102, 103]


def operations_of(kind: str, name: str) -> int:
    store = memory(name)
    replace(link(store), 0)
    counting = faulty(store)
    _publish(kind, counting)
    return len(counting.log)


def _publish(kind: str, store: object) -> None:
    connection = link(store, seed=1)  # type: ignore[arg-type]
    if kind == "replace":
        replace(connection, 100)
    else:
        append(connection, 100)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("kind", ["replace", "append"])
def test_killed_at_every_operation_then_run_again(kind: str, when: Literal["before", "after"]) -> None:
    count = operations_of(kind, f"count-{kind}-{when}")
    assert count > 8
    for at in range(count):
        store = memory(f"killed-{kind}-{when}-{at}")
        replace(link(store), 0)
        with pytest.raises(Killed):
            _publish(kind, faulty(store, KillAt(at, when)))
        after_kill = numbers(link(store))
        whole = NEW if kind == "replace" else OLD + NEW
        assert after_kill in (OLD, whole), f"killed {when} operation {at}"
        if kind == "append" and after_kill == whole:
            continue
        _publish(kind, store)
        assert numbers(link(store)) == whole
        history = open_dataset(link(store), parse_address("a/b")).history()
        assert [entry.operation for entry in history] == [kind, "replace"]


def test_first_publish_killed_leaves_nothing_that_opens() -> None:
    store = memory("first-counted")
    counting = faulty(store)
    replace(link(counting), 0)
    for at in range(len(counting.log)):
        fresh = memory(f"first-{at}")
        with pytest.raises(Killed):
            replace(link(faulty(fresh, KillAt(at, "after"))), 0)
        replace(link(fresh, seed=2), 0)
        assert numbers(link(fresh)) == OLD
        assert len(open_dataset(link(fresh), parse_address("a/b")).history()) == 1


def test_blobs_already_there_are_not_sent_again() -> None:
    store = memory("resumed")
    counting = faulty(store)
    replace(link(counting), 0)
    assert _sent_blobs(counting) == 2
    at = next(n for n, operation in enumerate(counting.log) if "/manifests/" in operation.key)
    fresh = memory("resumed-fresh")
    with pytest.raises(Killed):
        replace(link(faulty(fresh, KillAt(at, "before"))), 0)
    again = faulty(fresh)
    replace(link(again, seed=3), 0)
    assert _sent_blobs(again) == 0


def _sent_blobs(counting: FaultyStore) -> int:
    creates = [operation for operation in counting.log if operation.name in ("create", "create_file")]
    return sum(operation.key.startswith("blobs/") for operation in creates)


def test_a_publish_of_many_small_files_resumes_where_it_died(tmp_path: Path) -> None:
    """Not every small blob is asked for; the first ones tell whether the rest is worth a question."""
    for number in range(200):
        pq.write_table(rows(number), tmp_path / f"{number:03d}.parquet")
    fresh = memory("many-small")
    counting = faulty(memory("many-small-counted"))
    wd.DatasetBuilder("a/b", link(counting)).add_table("main", tmp_path).publish()
    assert counting.counts()["create_file"] == 200
    assert counting.counts()["stat"] <= 40
    at = [n for n, operation in enumerate(counting.log) if operation.name == "create_file"][120]
    with pytest.raises(Killed):
        wd.DatasetBuilder("a/b", link(faulty(fresh, KillAt(at, "after")))).add_table("main", tmp_path).publish()
    there = sum(info.key.startswith("blobs/") for info in fresh.list_objects(""))
    again = faulty(fresh)
    wd.DatasetBuilder("a/b", link(again, seed=3)).add_table("main", tmp_path).publish()
    assert there > 100
    assert again.counts()["create_file"] == 200 - there
