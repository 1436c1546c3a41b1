"""If this fails, a name opens the wrong dataset, or the error for a wrong name is no help."""

from __future__ import annotations

import pickle

import pyarrow as pa
import pytest

import warpdata as wd
from warpdata.errors import (
    AlreadyExistsError,
    CommitUnknownError,
    DatasetNotFoundError,
    ManifestCorruptedError,
    NotFoundError,
    WarpError,
)
from warpdata.repository.manifest import JsonObject


def publish(name: str, *numbers: int, label: str | None = None) -> str:
    table = pa.table({"n": pa.array(numbers, pa.int64())})
    return wd.DatasetBuilder(name).add_table("main", table).publish(label=label).version


def test_names_labels_branches_and_versions_open() -> None:
    old, new = publish("a/b", 1, label="v1.2"), publish("a/b", 2)
    assert wd.dataset("a/b").version == new
    for ref in (old, old[:8], "v1.2"):
        assert wd.dataset(f"a/b@{ref}").version == old
    branch = wd.dataset("a/b@v1.2").branch("experiment")
    assert branch.version == wd.dataset("a/b@experiment").version == old
    table = pa.table({"n": pa.array([3], pa.int64())})
    wd.DatasetBuilder("a/b").append_table("main", table).publish(branch="experiment")
    assert wd.dataset("a/b@experiment").table().to_arrow()["n"].to_pylist() == [1, 3]
    assert wd.dataset("a/b").version == new
    assert [entry.operation for entry in wd.dataset("a/b@experiment").history()] == ["append", "replace"]
    assert len(wd.dataset(f"a/b@{old}").history()) == 1


def test_wrong_names_come_with_suggestions() -> None:
    publish("acme/trips", 1, label="v1")
    with pytest.raises(DatasetNotFoundError) as missing:
        wd.dataset("acme/tripz")
    assert missing.value.hint == "Did you mean acme/trips?"
    with pytest.raises(DatasetNotFoundError) as other:
        wd.dataset("acne/trips")
    assert other.value.hint == "Did you mean acme/trips?"
    with pytest.raises(NotFoundError) as no_ref:
        wd.dataset("acme/trips@v11")
    assert no_ref.value.hint == "Did you mean v1?"
    with pytest.raises(NotFoundError):
        wd.dataset("acme/trips@" + "0" * 64)
    with pytest.raises(NotFoundError) as no_table:
        wd.dataset("acme/trips").table("mian")
    assert no_table.value.hint == "Did you mean main?"


def test_the_only_table_needs_no_name() -> None:
    wd.DatasetBuilder("a/b").add_table("pets", {"n": [1]}).publish()
    assert wd.dataset("a/b").table().name == "pets"
    wd.DatasetBuilder("a/b").add_table("pets", {"n": [1]}).add_table("main", {"n": [2]}).publish()
    assert wd.dataset("a/b").table().name == "main"
    assert wd.dataset("a/b").tables == ("main", "pets")


def test_info_needs_no_data() -> None:
    publish("a/b", 1, 2, 3, label="v1")
    info = wd.dataset("a/b@v1").info()
    assert (info.label, info.branch, info.rows) == ("v1", None, 3)
    assert [(table.name, table.rows, table.shards) for table in info.tables] == [("main", 3, 1)]


def test_labels_and_branches_share_a_namespace() -> None:
    publish("a/b", 1)
    dataset = wd.dataset("a/b")
    dataset.snapshot("v1")
    assert dataset.snapshot("v1").version == dataset.version
    with pytest.raises(AlreadyExistsError):
        dataset.branch("v1")
    dataset.branch("dev")
    with pytest.raises(AlreadyExistsError):
        dataset.snapshot("dev")
    with pytest.raises(AlreadyExistsError):
        dataset.branch("dev")
    with pytest.raises(AlreadyExistsError):
        dataset.snapshot("main")


def test_publishing_does_not_create_branches() -> None:
    publish("a/b", 1, label="v1")
    builder = wd.DatasetBuilder("a/b").append_table("main", pa.table({"n": pa.array([2], pa.int64())}))
    for name in ("dev", "v1"):
        with pytest.raises(NotFoundError, match="no branch") as raised:
            builder.publish(branch=name)
        assert raised.value.hint is not None
        assert f"warp branch a/b {name}" in raised.value.hint
    wd.dataset("a/b").branch("dev")
    builder.publish(branch="dev")
    assert wd.dataset("a/b@dev").table().to_arrow()["n"].to_pylist() == [1, 2]


def test_message_and_author_do_not_change_a_version() -> None:
    table = pa.table({"n": pa.array([1], pa.int64())})
    plain = wd.DatasetBuilder("a/b").add_table("main", table).publish()
    wordy: JsonObject = {"note": "x" * 60_000, "accuracy": 0.93}
    other = wd.DatasetBuilder("a/b", "memory://wordy").add_table("main", table).publish(metadata=wordy)
    assert other.version == plain.version
    assert wd.dataset("a/b", store="memory://wordy").manifest.metadata == wordy
    with pytest.raises(wd.errors.LimitExceededError, match="the metadata"):
        wd.DatasetBuilder("a/b", "memory://wordier").add_table("main", table).publish(metadata={"x": "y" * 70_000})
    assert wd.list_datasets(store="memory://wordier") == []


def test_a_dataset_is_listed_once_it_can_be_opened(tmp_path_factory: pytest.TempPathFactory) -> None:
    directory = tmp_path_factory.mktemp("listed")
    wd.DatasetBuilder("a/b", directory.as_uri()).add_table("main", {"n": [1]}).publish()
    (directory / "datasets" / "a" / "killed" / "manifests").mkdir(parents=True)
    assert wd.list_datasets("a", store=directory.as_uri()) == ["a/b"]


def test_an_open_version_never_changes() -> None:
    publish("a/b", 1)
    opened = wd.dataset("a/b")
    publish("a/b", 2)
    assert opened.table().to_arrow()["n"].to_pylist() == [1]
    assert wd.dataset("a/b").table().to_arrow()["n"].to_pylist() == [2]


def test_going_back_adds_a_commit() -> None:
    first = publish("a/b", 1)
    publish("a/b", 2)
    assert publish("a/b", 1) == first
    assert [entry.version == first for entry in wd.dataset("a/b").history()] == [True, False, True]
    assert len(wd.dataset("a/b").history(limit=2)) == 2


def test_moving_a_store_keeps_its_versions(tmp_path_factory: pytest.TempPathFactory) -> None:
    import shutil

    old, new = tmp_path_factory.mktemp("x") / "old", tmp_path_factory.mktemp("y") / "new"
    table = {"n": [1, 2]}
    version = wd.DatasetBuilder("a/b", old.as_uri()).add_table("main", table).publish().version
    shutil.copytree(old, new)
    assert wd.dataset("a/b", store=new.as_uri()).version == version
    assert wd.dataset("a/b", store=str(new)).table().count() == 2


def test_find_commit_finds_a_transaction() -> None:
    publish("a/b", 1)
    txn = wd.dataset("a/b").history()[0].txn_id
    found = wd.find_commit("a/b", txn)
    assert found is not None
    assert found.txn_id == txn
    assert wd.find_commit("a/b", "unknown") is None


@pytest.mark.parametrize(
    "error",
    [
        WarpError("fact", hint="step"),
        CommitUnknownError("fact", txn_id="t", hint="step"),
        ManifestCorruptedError("fact", problems=("p",)),
        DatasetNotFoundError("fact"),
    ],
)
def test_errors_can_be_pickled(error: WarpError) -> None:
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301
    assert type(copy) is type(error)
    assert copy.__dict__ == error.__dict__
    assert str(copy) == str(error)
