"""If this fails, a version that has lost files has no complete successor, or a repair stops half-way for good."""

from __future__ import annotations

import itertools

import pytest

import warpdata as wd
from tests.collections.scenes import BIRD, CAT, DOG, objects, two_versions
from tests.faults.scenes import faulty, link, memory
from warpdata.collections import Collection
from warpdata.primitives.hashing import blob_key
from warpdata.storage import Writer
from warpdata.testing import KillAt, Killed
from warpdata.testing.fault_store import WRITES

_fresh = itertools.count()
STATES = {
    "v1": "repaired_by:v1-r1",
    "training-job-7": "repaired_by:v1-r1",
    "v2": "repaired_by:v2-r1",
    "v1-r1": "valid",
    "v2-r1": "valid",
}


def opened(store: Writer, seed: int = 1) -> Collection:
    return wd.collection("a/pets", store=link(store, seed))


def damaged(*, packed: bool = False) -> Writer:
    """Make a collection of which the file of the cat is lost: its own blob, or the shard that also has the dog."""
    store = memory(f"repair-{next(_fresh)}")
    two_versions(link(store), packed=packed)
    store.delete(blob_key(opened(store).head.artifact("images").shard_of("cat.png").hash))
    assert not opened(store, 2).check_integrity().is_valid
    return store


def assert_repaired(store: Writer, *, packed: bool = False) -> None:
    collection = opened(store, 9)
    assert {one.name: str(one.state) for one in collection.versions()} == STATES
    kept = {"bird.png": BIRD} if packed else {"bird.png": BIRD, "dog.png": DOG}
    artifact = collection.head.artifact("images")
    assert {member.path: artifact.read(member.path) for member in artifact.members()} == kept
    older = collection.dataset("v1-r1").artifact("images")
    assert [member.path for member in older.members()] == ([] if packed else ["dog.png"])
    assert collection.check_integrity(["HEAD", "v1-r1", "v2-r1"], deep=True).is_valid
    assert collection.repair().successors == {}


@pytest.mark.parametrize("packed", [False, True])
def test_broken_versions_get_successors(packed: bool) -> None:
    store = damaged(packed=packed)
    report = opened(store).repair(author="ana")
    assert report.successors == {"training-job-7": "v1-r1", "v1": "v1-r1", "v2": "v2-r1"}
    assert report.head == opened(store).head.version
    assert_repaired(store, packed=packed)


def test_a_whole_collection_needs_no_repair() -> None:
    store = memory(f"repair-{next(_fresh)}")
    collection = two_versions(link(store))
    before = objects(store)
    report = collection.repair()
    assert (dict(report.successors), report.head) == ({}, None)
    assert objects(store) == before


def test_bytes_that_come_back_after_the_repair_do_no_harm() -> None:
    store = damaged()
    opened(store).repair()
    wd.DatasetBuilder("a/other", link(store, 3)).add_artifact("files", {"cat.png": CAT}, "files").publish()
    assert_repaired(store)


def test_a_kill_after_every_write_is_finished_by_a_second_call() -> None:
    prepared = objects(damaged())

    def clone() -> Writer:
        store = memory(f"repair-{next(_fresh)}")
        for key, data in prepared.items():
            store.create(key, data)
        return store

    counting = faulty(clone())
    opened(counting).repair()
    writes = [at for at, operation in enumerate(counting.log) if operation.name in WRITES]
    assert len(writes) > 10
    for at in writes:
        store = clone()
        with pytest.raises(Killed):
            opened(faulty(store, KillAt(at, "after"))).repair()
        opened(store, 2).repair()
        assert_repaired(store)
