"""If this fails, a run that continues with a newer version repeats a sample, or misses an added one."""

from __future__ import annotations

import json
from collections import Counter
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import warpdata as wd
from warpdata.errors import BadInputError, UnsupportedError

unhurried = settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
SHARDS = 9
ROWS = 13


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Parquet files of different lengths. Each version is a list of them."""
    directory, first, paths = tmp_path_factory.mktemp("shards"), 0, []
    for number in range(SHARDS):
        ids = list(range(first, first + ROWS + number))
        first += len(ids)
        paths.append(str(directory / f"{number}.parquet"))
        pq.write_table(pa.table({"id": ids, "half": [i % 2 for i in ids]}), paths[-1], row_group_size=5)
    return paths


def publish(store: str, paths: list[str]) -> str:
    return wd.DatasetBuilder("a/grows", store).add_table("main", paths).publish().version


def ids_in(paths: list[str]) -> Counter[int]:
    return Counter(value for path in paths for value in pq.read_table(path)["id"].to_pylist())


versions = st.lists(st.lists(st.integers(0, SHARDS - 1), min_size=1, max_size=7), min_size=2, max_size=4)
shuffles = st.sampled_from([False, True, wd.Shuffle(3, 4), wd.Shuffle(4, 3, 1)])


@given(versions, shuffles, st.sampled_from([None, "half = 1"]), st.data())
@unhurried
def test_consumed_rows_do_not_repeat_and_added_rows_come(
    tmp_path_factory: pytest.TempPathFactory,
    shards: list[str],
    held: list[list[int]],
    shuffle: bool | wd.Shuffle,
    condition: str | None,
    data: st.DataObject,
) -> None:
    """A run continues over several versions that share shards, drop some, and have some twice."""
    store = tmp_path_factory.mktemp("store").as_uri()
    lists = [[shards[number] for number in numbers] for numbers in held]
    names = [publish(store, paths) for paths in lists]

    def opened(version: str) -> wd.Stream:
        dataset = wd.dataset(f"a/grows@{version}", store=store)
        return dataset.stream(filter=condition, batch_size=4, shuffle=shuffle, seed=5, collate="dict")

    stream, taken = opened(names[0]), Counter[int]()
    for version in names[1:]:
        epoch = stream.epoch(3)
        left = len(stream.schedule(stream.state_dict()["samples_done"], 3))
        for batch in islice(epoch, data.draw(st.integers(0, left))):
            taken.update(batch["id"])
        epoch.close()
        token = json.loads(json.dumps(stream.rebase(version).state_dict()))
        stream = opened(version)
        stream.load_state_dict(token)
        assert stream.rebase(version).state_dict() == stream.state_dict(), "the same version changes nothing"
    rest = Counter(value for batch in stream.epoch(3) for value in batch["id"])

    wanted = Counter({value: count for value, count in ids_in(lists[-1]).items() if not condition or value % 2})
    assert rest == wanted - taken, "the rest has the rows of the last version that were not consumed"
    assert Counter(v for batch in stream.epoch(4) for v in batch["id"]) == wanted, "the next epoch is complete"
    assert stream.state_dict() == {**opened(names[-1]).state_dict(), "epoch": 5}


def test_the_token_of_a_rebased_epoch_is_bound_to_its_version(tmp_path: Path, shards: list[str]) -> None:
    store = tmp_path.as_uri()
    first, second, third = publish(store, shards[:2]), publish(store, shards[:3]), publish(store, shards[:4])
    stream = wd.dataset(f"a/grows@{first}", store=store).stream(batch_size=4)
    next(iter(stream))
    token = stream.rebase(second).state_dict()
    with pytest.raises(BadInputError, match=f"version was '{second}' and is '{third}'"):
        wd.dataset(f"a/grows@{third}", store=store).stream(batch_size=4).load_state_dict(token)


def test_mixtures_refuse_to_rebase(tmp_path: Path, shards: list[str]) -> None:
    store = tmp_path.as_uri()
    publish(store, shards[:2])
    stream = wd.dataset("a/grows", store=store).stream(batch_size=4)
    with pytest.raises(UnsupportedError, match="another version"):
        wd.mix({stream: 1.0}).rebase("main")
