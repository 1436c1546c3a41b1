"""If this fails, a stream over an edited version repeats a sample, misses one, or shows a deleted one."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from itertools import islice

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import warpdata as wd
from tests.kinds.tables.edited import StoredShard, publish_edited
from warpdata.errors import BadInputError, UnsupportedError

_stores = itertools.count()
ROWS = 40


def _rows(ids: list[int]) -> pa.Table:
    return pa.table({"id": ids, "half": [value % 2 for value in ids]})


def _shards(ids: list[int], gone: set[int], size: int = 11) -> list[StoredShard]:
    """Store the ids in shards of `size` rows, with the ids as sample ids; `gone` are deleted."""
    parts = [ids[start : start + size] for start in range(0, len(ids), size)]
    return [
        StoredShard(_rows(part), [at for at, value in enumerate(part) if value in gone], ids=part, group_rows=4)
        for part in parts
    ]


shuffles = st.sampled_from([False, True, wd.Shuffle(3, 4), wd.Shuffle(4, 3, 1)])
deleted = st.sets(st.integers(0, ROWS - 1), max_size=ROWS - 1)


@settings(max_examples=15)
@given(deleted, shuffles, st.integers(1, 4), st.sampled_from([None, "half = 1"]), st.integers(0, 9))
def test_each_live_row_comes_once_at_any_world_size(
    gone: set[int], shuffle: bool | wd.Shuffle, world: int, condition: str | None, stop: int
) -> None:
    dataset = publish_edited(f"memory://live-{next(_stores)}", _shards(list(range(ROWS)), gone))
    expected = [n for n in range(ROWS) if n not in gone and (condition is None or n % 2)]

    def stream(rank: int) -> wd.Stream:
        return dataset.stream(
            batch_size=3, shard=(rank, world), filter=condition, shuffle=shuffle, seed=2, collate="dict"
        )

    seen, token = Counter[int](), {"epoch": 0}
    for rank in range(world):
        begun = stream(rank)
        epoch = begun.epoch(0)
        for batch in islice(epoch, stop):
            seen.update(batch["id"])
        epoch.close()
        token = json.loads(json.dumps(begun.state_dict()))
    for rank in range(world if token["epoch"] == 0 else 0):  # the token of a finished epoch begins the next one
        resumed = stream(rank)
        resumed.load_state_dict(token)
        for batch in resumed.epoch(0):
            seen.update(batch["id"])
    assert seen == Counter(expected)
    whole = dataset.stream(batch_size=5, filter=condition, shuffle=shuffle, seed=2, collate="dict")
    in_order = [value for batch in whole.epoch(0) for value in batch["id"]]
    rows = [row for _, row in whole.source.locate(0, len(expected), 0)]
    live = [n for n in range(ROWS) if n not in gone]
    assert [live[row] for row in rows] == in_order
    for position in range(0, len(rows), 7):
        assert whole.source.position_of((0, rows[position]), 0) == position


@settings(max_examples=20)
@given(deleted, deleted, st.permutations(range(ROWS)), shuffles, st.integers(0, 14), st.booleans())
def test_samples_are_known_after_an_update_and_a_compaction(
    gone: set[int], later: set[int], moved: list[int], shuffle: bool | wd.Shuffle, steps: int, is_filtered: bool
) -> None:
    """Version 2 deletes, updates (rows move to the end with their ids) and appends; version 3 is compacted."""
    store = f"memory://rebase-{next(_stores)}"
    condition = "half = 1" if is_filtered else None
    first = publish_edited(store, [StoredShard(_rows(list(range(ROWS))), group_rows=7)])  # format 1
    updated = [value for value in moved[:9] if value not in gone]
    added = list(range(ROWS, ROWS + 5))
    edited = [*_shards(list(range(ROWS)), gone | set(updated), ROWS), *_shards([*updated, *added], set())]
    second = publish_edited(store, edited, next_id=ROWS + 5)
    alive = [value for value in moved if value not in gone | later] + [v for v in added if v not in later]
    third = publish_edited(store, _shards(alive, set(), 8), next_id=ROWS + 5)

    def opened(version: str) -> wd.Stream:
        dataset = wd.dataset(f"a/b@{version}", store=store)
        return dataset.stream(filter=condition, batch_size=3, shuffle=shuffle, seed=5, collate="dict")

    stream, taken = opened(first.version), Counter[int]()
    for version in (second.version, third.version):
        epoch = stream.epoch(1)
        left = len(stream.schedule(stream.state_dict()["samples_done"], 1))
        for batch in islice(epoch, min(steps, left)):
            taken.update(batch["id"])
        epoch.close()
        token = json.loads(json.dumps(stream.rebase(version).state_dict()))
        stream = opened(version)
        stream.load_state_dict(token)
    taken.update(value for batch in stream.epoch(1) for value in batch["id"])
    wanted = {value for value in alive if not is_filtered or value % 2}
    assert max(taken.values(), default=1) == 1, "no sample comes twice"
    assert wanted <= taken.keys(), "each live sample comes"
    assert set(taken) <= set(range(ROWS + 5))


def test_a_sample_can_be_streamed_and_resumed() -> None:
    dataset = publish_edited(f"memory://sample-{next(_stores)}", _shards(list(range(ROWS)), {3, 17}))
    sample = dataset.sample(12, by="half", seed=4)
    assert Counter(np.array(sample.to_arrow()["half"]).tolist()) == {0: 6, 1: 6}
    stream = dataset.stream(sample, batch_size=5, shuffle=True, collate="dict")
    epoch = stream.epoch(0)
    first = list(next(epoch)["id"])
    epoch.close()
    resumed = dataset.stream(sample, batch_size=5, shuffle=True, collate="dict")
    resumed.load_state_dict(json.loads(json.dumps(stream.state_dict())))
    rest = [value for batch in resumed.epoch(0) for value in batch["id"]]
    assert sorted(first + rest) == sorted(sample.to_arrow()["id"].to_pylist())
    other = dataset.stream(dataset.sample(12, by="half", seed=5), batch_size=5, shuffle=True, collate="dict")
    with pytest.raises(BadInputError, match="rows"):
        other.load_state_dict(stream.state_dict())
    with pytest.raises(UnsupportedError, match="a sample cannot go on"):
        stream.rebase(publish_edited(dataset.session, _shards(list(range(9)), set())).version)
    with pytest.raises(BadInputError, match="not of this version"):
        wd.dataset("a/b", store=dataset.session.writer.url).stream(sample)
