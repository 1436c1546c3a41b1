"""If this fails, an edit loses episodes of a set, invents some, reads the files of others, or mixes up their files."""

from __future__ import annotations

import secrets
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import warpdata as wd
from warpdata.edit import MergePolicy
from warpdata.errors import AlreadyExistsError, EpisodeNotFoundError, InvalidSourceError, MergeConflictError
from warpdata.wshard import Channel, ChunkPlace, Episode, Timebase

Content = tuple[int, int]
"""Length and value of an episode."""
Model = dict[str, Content]
Changes = list[tuple[str, Content | None]]

ids = st.sampled_from(["e0", "e1", "e2", "e3", "é"])
changes = st.lists(st.tuples(ids, st.none() | st.tuples(st.integers(1, 3), st.integers(0, 2))), max_size=4)
models = st.dictionaries(ids, st.tuples(st.integers(1, 3), st.integers(0, 2)), min_size=1)


def episode(name: str, content: Content) -> Episode:
    """Make an episode whose metadata have another type for each value."""
    length, value = content
    metadata: dict[str, Any] = (
        {"value": [1, 2.5, "text"][value], "flag": True} if value else {"value": 1, "Other": value}
    )
    data = np.full((length, 2), value, np.float32)
    return Episode(name, length, "Env", Timebase("ticks", 10.0), {"x": Channel("x", data)}, metadata=metadata)


def publish(model: Model) -> wd.Dataset:
    store = f"memory://{secrets.token_hex(8)}"
    builder = wd.DatasetBuilder("acme/robots", store)
    builder.add_episodes("runs", [episode(name, content) for name, content in model.items()]).publish()
    return reopen(store)


def reopen(store: str, address: str = "acme/robots") -> wd.Dataset:
    return wd.dataset(address, store=store)


def store_of(dataset: wd.Dataset) -> str:
    return dataset.session.reader.url


def read_all(dataset: wd.Dataset) -> Model:
    """Read every episode, and compare the entry with the files."""
    episodes = dataset.episodes("runs")
    found: Model = {}
    for stored in episodes:
        data = stored.read(["x"])["x"]
        assert (data == data[0]).all()
        found[stored.id] = (len(data), int(data[0, 0]))
    assert len(found) == len(episodes) == episodes.table().count()
    assert episodes.entry.step_count == sum(length for length, _ in found.values())
    assert episodes.entry.shards.shard_count == len(found)
    assert wd.verify("acme/robots", store=store_of(dataset)).problems == ()
    return found


def apply(edit: wd.Edit, model: Model, steps: Changes) -> Model:
    model = dict(model)
    for name, content in steps:
        if content is None and name in model:
            assert edit.remove_episodes("runs", [name]) == 1
            del model[name]
        elif content is None:
            with pytest.raises(EpisodeNotFoundError, match=name):
                edit.remove_episodes("runs", [name])
        elif name in model:
            with pytest.raises(AlreadyExistsError, match=name):
                edit.add_episodes("runs", episode(name, content))
        else:
            assert edit.add_episodes("runs", episode(name, content)) == 1
            model[name] = content
    return model


@settings(max_examples=8)
@given(models, st.lists(changes, max_size=3))
def test_edits_equal_a_dictionary(model: Model, edits: list[Changes]) -> None:
    dataset = publish(model)
    for steps in edits:
        with dataset.edit("change episodes") as edit:
            model = apply(edit, model, steps)
        dataset = reopen(store_of(dataset))
        assert list(read_all(dataset).items()) == list(model.items())


@settings(max_examples=8)
@given(models, changes, changes, st.sampled_from(["fail", "ours", "theirs"]))
def test_merges_equal_dictionaries(base: Model, ours: Changes, theirs: Changes, policy: MergePolicy) -> None:
    dataset = publish(base)
    other = dataset.branch("other")
    with dataset.edit("ours") as edit:
        mine = apply(edit, base, ours)
    with other.edit("theirs", branch="other") as edit:
        its = apply(edit, base, theirs)
    expected: Model = {}
    has_conflict = False
    for name in base | mine | its:
        before, here, there = base.get(name), mine.get(name), its.get(name)
        is_contested = here != before and there not in (before, here)
        has_conflict |= is_contested
        kept = (there if policy == "theirs" else here) if is_contested else there if here == before else here
        if kept is not None:
            expected[name] = kept
    head = reopen(store_of(dataset))
    if has_conflict and policy == "fail":
        with pytest.raises(MergeConflictError, match="episode '"):
            head.merge("other", policy=policy)
        expected = mine
    else:
        head.merge("other", policy=policy)
    assert read_all(reopen(store_of(dataset))) == expected


def test_metadata_of_several_types_become_one_column() -> None:
    dataset = publish({"e0": (1, 0)})
    types, values = [], []
    for number, value in enumerate([0, 1, 2], 1):
        with dataset.edit("more") as edit:
            edit.add_episodes("runs", [episode(f"e{number}", (2, value))])
        dataset = reopen(store_of(dataset))
        rows = dataset.episodes("runs").table().to_arrow()
        types.append(rows.schema.field("metadata").type.field("value").type)
        values.append([row["value"] for row in rows["metadata"].to_pylist()])
    assert types == [pa.int64(), pa.float64(), pa.string()]
    assert values == [[1, 1], [1.0, 1.0, 2.5], ["1.0", "1.0", "2.5", "text"]]
    assert len(dataset.episodes("runs").filter("metadata.flag")) == 2


def test_chunked_episodes_come_and_go() -> None:
    dataset = publish({"e0": (2, 1)})
    store = store_of(dataset)
    chunks = [
        replace(episode("long", (3, value)), chunk=ChunkPlace(number, 2, 3 * number), metadata={})
        for number, value in enumerate((1, 2))
    ]
    with dataset.edit("a long one") as edit:
        assert edit.add_episodes("runs", chunks) == 1
    with reopen(store).edit("another") as edit:
        edit.add_episodes("runs", [episode("e2", (1, 2))])
        edit.remove_episodes("runs", ["e0"])
    episodes = reopen(store).episodes("runs")
    assert [stored.id for stored in episodes] == ["long", "e2"]
    assert episodes["long"].read(["x"])["x"][:, 0].tolist() == [1, 1, 1, 2, 2, 2]
    assert (episodes.entry.file_count, episodes.entry.step_count) == (3, 7)
    with reopen(store).edit("only short ones") as edit:
        edit.remove_episodes("runs", ["long"])
    assert read_all(reopen(store)) == {"e2": (1, 2)}
    assert reopen(store).episodes("runs").entry.file_count is None


def test_invalid_episodes_leave_the_set_as_it_was(tmp_path: Path) -> None:
    dataset = publish({"e0": (2, 1)})
    (tmp_path / "bad.wshard").write_bytes(b"not an episode")
    for source in (tmp_path / "bad.wshard", [], 3, [episode("x", (1, 1)), episode("x", (1, 2))]):
        with pytest.raises(InvalidSourceError), dataset.edit("refused") as edit:
            edit.add_episodes("runs", source)
    with pytest.raises(EpisodeNotFoundError, match="no episodes 'rums'"), dataset.edit("refused") as edit:
        edit.remove_episodes("rums", ["e0"])
    assert reopen(store_of(dataset)).version == dataset.version
    with dataset.edit("a new set") as edit:
        edit.add_episodes("tests", episode("t", (1, 1)))
    assert [stored.id for stored in reopen(store_of(dataset)).episodes("tests")] == ["t"]
