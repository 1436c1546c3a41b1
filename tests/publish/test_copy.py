"""If this fails, a copy sends too much, arrives changed, or overwrites what is there."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import warpdata as wd
from tests.faults.scenes import append, faulty, link, memory, numbers, replace, rows
from warpdata.datasets import open_dataset
from warpdata.errors import (
    AlreadyExistsError,
    BadInputError,
    ConflictError,
    CorruptError,
    DatasetNotFoundError,
    ErrorKind,
)
from warpdata.primitives.hashing import blob_key
from warpdata.primitives.progress import ProgressEvent
from warpdata.repository.catalog import Catalog, parse_address
from warpdata.storage import Writer
from warpdata.testing import DropReplies, FaultyStore, KillAt, Killed, S3Endpoint


def source(name: str) -> Writer:
    store = memory(name)
    replace(link(store), 0)
    open_dataset(link(store), parse_address("a/b")).snapshot("v1")
    append(link(store, 1), 100)
    append(link(store, 2), 200)
    return store


def blobs(store: Writer) -> set[str]:
    return {info.key for info in store.list_objects("blobs")}


def test_a_version_has_the_same_hash_in_another_store() -> None:
    store, target = source("copy-a"), memory("copy-b")
    done = wd.copy("a/b@v1", link(target, 5), store=link(store, 4))
    assert done.version == done.source_version == Catalog(store).resolve(parse_address("a/b@v1")).version
    assert numbers(link(target)) == numbers(link(store), "a/b@v1")
    assert (done.copied_files, done.total_files, done.changed) == (2, 2, True)
    assert wd.verify(open_dataset(link(target), parse_address("a/b"))).problems == ()
    again = wd.copy("a/b@v1", link(target, 6), store=link(store, 4))
    assert (again.copied_files, again.changed, again.commit) == (0, False, done.commit)


def test_an_older_version_does_not_move_the_target_back() -> None:
    store, target = source("copy-back-a"), memory("copy-back-b")
    wd.copy("a/b@v1", link(target, 5), store=link(store, 4))
    newest = wd.copy("a/b", link(target, 6), store=link(store, 4))
    assert newest.changed
    assert not wd.copy("a/b@v1", link(target, 7), store=link(store, 4)).changed
    assert Catalog(target).resolve(parse_address("a/b")).version == newest.version


def test_a_history_arrives_with_its_commits_and_labels_and_grows() -> None:
    store, target = source("history-a"), memory("history-b")
    first = wd.copy("a/b", link(target, 5), history=True, store=link(store, 4))
    assert (first.commits, first.labels) == (3, ("v1",))
    there, here = (open_dataset(link(each), parse_address("a/b")).history() for each in (target, store))
    assert there == here
    assert numbers(link(target), "a/b@v1") == [0, 1, 2, 3]
    append(link(store, 3), 300)
    more = wd.copy("a/b", link(target, 6), history=True, store=link(store, 4))
    assert (more.commits, more.copied_files, more.changed) == (4, 1, True)
    assert not wd.copy("a/b", link(target, 7), history=True, store=link(store, 4)).changed
    append(link(target, 8), 900)
    with pytest.raises(ConflictError, match="not part of the history"):
        wd.copy("a/b", link(target, 9), history=True, store=link(store, 4))


def test_within_one_store_nothing_travels_and_both_versions_are_stated() -> None:
    store = source("copy-name")
    counting = FaultyStore(store)
    before = blobs(store)
    done = wd.copy("a/b", name="a/c", history=True, store=link(counting, 4))
    assert done.version != done.source_version
    assert done.total_files == 0
    assert blobs(store) == before
    assert not [
        operation for operation in counting.log if operation.key.startswith("blobs/") and operation.name == "stream"
    ]
    assert numbers(link(store), "a/c") == numbers(link(store))
    with pytest.raises(BadInputError, match="already in"):
        wd.copy("a/b", store=link(store, 5))


def test_entries_of_the_target_are_not_removed_by_accident() -> None:
    store, target = source("copy-remove-a"), memory("copy-remove-b")
    wd.DatasetBuilder("a/b", link(target)).add_table("third", rows(0)).publish()
    with pytest.raises(BadInputError) as caught:
        wd.copy("a/b", link(target, 5), store=link(store, 4))
    assert caught.value.kind is ErrorKind.WOULD_REMOVE
    assert wd.copy("a/b", link(target, 5), replace=True, store=link(store, 4)).changed


def test_a_dry_run_writes_nothing() -> None:
    store, target = source("copy-dry-a"), memory("copy-dry-b")
    plan = wd.copy("a/b", link(target, 5), history=True, dry_run=True, store=link(store, 4))
    assert plan.copied_files == 4
    assert list(target.list_objects("datasets")) == []
    assert blobs(target) == set()


def test_a_label_of_another_version_is_refused_before_anything_is_sent() -> None:
    store, target = source("copy-label-a"), memory("copy-label-b")
    wd.copy("a/b@v1", link(target, 5), name="a/b", store=link(store, 4))
    wd.DatasetBuilder("a/c", link(target, 6)).add_table("main", rows(7)).publish(label="v1")
    with pytest.raises(AlreadyExistsError):
        wd.copy("a/b", link(target, 7), name="a/c", history=True, store=link(store, 4))


def test_corrupt_bytes_do_not_arrive() -> None:
    store, target = source("copy-corrupt-a"), memory("copy-corrupt-b")
    blob = next(iter(open_dataset(link(store), parse_address("a/b")).blobs()))
    data = bytearray(store.read(blob_key(blob.hash)).data)
    data[len(data) // 2] ^= 1
    store.replace(blob_key(blob.hash), bytes(data))
    with pytest.raises(CorruptError):
        wd.copy("a/b", link(target, 5), store=link(store, 4))
    assert Catalog(target).datasets() == []
    assert blob_key(blob.hash) not in blobs(target)


def test_a_copy_that_is_killed_anywhere_continues() -> None:
    store = source("copy-killed")
    counting = FaultyStore(memory("copy-killed-count"))
    wd.copy("a/b", link(counting, 5), history=True, store=link(store, 4))
    for at in range(len(counting.log)):
        target = memory(f"copy-killed-{at}")
        with pytest.raises(Killed):
            wd.copy("a/b", link(faulty(target, KillAt(at)), 5), history=True, store=link(store, 4))
        arrived = blobs(target)
        done = wd.copy("a/b", link(target, 6), history=True, store=link(store, 4))
        assert done.copied_files == 4 - len(arrived)
        assert numbers(link(target)) == numbers(link(store))
        assert [label.name for label in Catalog(target).labels("a/b")] == ["v1"]


def test_lost_replies_do_not_matter() -> None:
    store = source("copy-lost")
    for seed in range(8):
        target = memory(f"copy-lost-{seed}")
        lossy = FaultyStore(target, DropReplies(0.2, random.Random(seed)))
        wd.copy("a/b", link(lossy, seed), history=True, store=link(store, 4))
        assert (
            open_dataset(link(target), parse_address("a/b")).history()
            == open_dataset(link(store), parse_address("a/b")).history()
        )


def test_a_rename_onto_another_dataset_is_refused() -> None:
    store = source("rename-taken")
    wd.DatasetBuilder("a/c", link(store, 5)).add_table("main", rows(7)).publish()
    with pytest.raises(ConflictError):
        wd.rename("a/b", "a/c", store=link(store, 6))
    assert numbers(link(store))[:4] == [0, 1, 2, 3]


def test_a_rename_states_the_new_versions_and_the_old_name_points_there() -> None:
    store = source("rename")
    old = Catalog(store).resolve(parse_address("a/b")).version
    done = wd.rename("a/b", "a/c", store=link(store, 6))
    assert done.versions[old] == Catalog(store).resolve(parse_address("a/c")).version
    with pytest.raises(DatasetNotFoundError, match="renamed to a/c"):
        open_dataset(link(store), parse_address("a/b"))
    assert numbers(link(store), f"a/b@{old}") == numbers(link(store), "a/c")


@pytest.mark.s3
def test_between_a_directory_and_a_real_object_store(
    s3_server: S3Endpoint, s3_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in s3_server.environ().items():
        monkeypatch.setenv(name, value)
    here, back = str(tmp_path / "here"), str(tmp_path / "back")
    files = {f"{n}.bin": np.random.default_rng(n).bytes(20_000) for n in range(30)}
    table = pa.table({"n": range(30), "file": list(files)})
    builder = wd.DatasetBuilder("a/b", here).add_table("main", table).add_artifact("raw", files, shard_bytes=100_000)
    builder.bind("main", "file", "raw").publish("load", label="v1")
    wd.DatasetBuilder("a/b", here).append_table("main", pa.table({"n": [30], "file": ["0.bin"]})).publish("more")
    events: list[ProgressEvent] = []
    sent = wd.copy("a/b", s3_url, history=True, store=here, progress=events.append)
    assert sent.version == wd.dataset("a/b", store=here).version
    assert sent.copied_files == sent.total_files > 5
    assert events[-1].done_bytes == events[-1].total_bytes == sent.total_bytes
    assert wd.copy("a/b", s3_url, history=True, store=here).copied_files == 0
    received = wd.copy("a/b@v1", back, store=s3_url)
    assert received.version == wd.dataset("a/b@v1", store=here).version
    assert wd.dataset("a/b", store=back).table()[3]["file"].read_bytes() == files["3.bin"]
    assert wd.verify("a/b", store=s3_url).problems == wd.verify("a/b", store=back).problems == ()
    renamed = wd.rename("a/b", "a/c", store=s3_url)
    assert wd.dataset("a/c@v1", store=s3_url).table().count() == 30
    assert renamed.labels == ("v1",)
    assert wd.list_datasets(store=s3_url) == ["a/c"]
    wd.remove("a/c", store=s3_url)
    assert wd.list_datasets(store=s3_url) == []


def test_a_merge_after_a_rename_does_not_repeat_what_was_merged_before() -> None:
    session = link(source("renamed after a merge"))
    opened = open_dataset(session, parse_address("a/b"))
    opened.branch("dev")
    for number in (100, 200):
        dev = open_dataset(session, parse_address("a/b@dev" if number == 100 else "a/c@dev"))
        with dev.edit() as edit:
            edit.append("main", {"n": [number * 10]})
        open_dataset(session, parse_address("a/b" if number == 100 else "a/c")).merge("dev")
        if number == 100:
            with open_dataset(session, parse_address("a/b")).edit() as edit:
                edit.append("main", {"n": [1500]})
            wd.rename("a/b", "a/c", store=session)
    found = open_dataset(session, parse_address("a/c")).table().to_arrow()["n"].to_pylist()
    assert sorted(found) == sorted([*numbers(session, "a/c@v1"), *range(100, 104), *range(200, 204), 1000, 1500, 2000])


def test_a_dataset_with_collected_versions_is_renamed_and_copied() -> None:
    store = memory("collected, then renamed")
    session = link(store)
    for number in range(4):
        append(session, number * 4)
    wd.gc(session, keep="last 1", dry_run=False)
    target = memory("collected, then copied")
    wd.copy("a/b", link(target), history=True, store=session)
    wd.rename("a/b", "a/c", store=session)
    for where, name in ((session, "a/c"), (link(target), "a/b")):
        opened = open_dataset(where, parse_address(name))
        assert len(opened.history()) == 1
        assert len(opened.table()) == 16
