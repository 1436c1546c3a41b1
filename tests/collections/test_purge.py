"""If this fails, a purge leaves bytes behind, takes bytes that others need, or stops half-way for good.

A loop over n kills a purge at each moment; a second process then finishes it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Literal

import pytest

import warpdata as wd
from tests.collections.scenes import BIRD, CAT, DOG, objects, two_versions
from tests.faults.scenes import faulty, link, memory
from warpdata.collections import Collection, ErasureReceipt
from warpdata.collections.reverse_index import ReverseIndex
from warpdata.errors import BadInputError, ConflictError, ErrorKind, ObjectNotFoundError
from warpdata.primitives.hashing import sha256_hex
from warpdata.session import Session, open_cache
from warpdata.storage import Writer
from warpdata.testing import KillAt, Killed, S3Endpoint
from warpdata.testing.fault_store import WRITES

_fresh = itertools.count()


def prepare(*, packed: bool = False) -> Writer:
    store = memory(f"purge-{next(_fresh)}")
    two_versions(link(store), packed=packed)
    return store


def opened(store: Writer, seed: int = 1) -> Collection:
    return wd.collection("a/pets", store=link(store, seed))


def purge(collection: Collection, action: str = "auto_repair") -> ErasureReceipt:
    token = collection.impact("cat.png").token
    receipt = collection.purge("cat.png", action, token=token, reason="request 12", wait_s=0)
    assert receipt is not None
    return receipt


def states(collection: Collection) -> dict[str, str]:
    return {version.name: str(version.state) for version in collection.versions()}


def assert_erased(store: Writer, content: bytes = CAT) -> None:
    """No object of the store has the bytes, in whatever form."""
    assert [key for key, data in objects(store).items() if content in data] == []


@pytest.mark.parametrize("action", ["auto_repair", "mark_broken"])
def test_a_version_without_its_files_is_no_head_again(action: str) -> None:
    """The functions of datasets refuse it too: a collection is a dataset."""
    store = prepare()
    collection = opened(store)
    head = collection.head.version
    purge(collection, action)
    wanted = "'v1-r1'" if action == "auto_repair" else "another version"
    dataset = opened(store).head
    changes: list[Callable[[], object]] = [
        lambda: dataset.restore("v1"),
        lambda: dataset.restore(head),
        lambda: dataset.merge("v1"),
    ]
    for change in changes:
        with pytest.raises(ConflictError, match="has lost files") as caught:
            change()
        assert caught.value.kind is ErrorKind.VERSION_BROKEN
        if change is not changes[1]:
            assert wanted in str(caught.value.hint)
    if action == "auto_repair":
        dataset.restore("v1-r1")


REPAIRED = {
    "v1": "repaired_by:v1-r1",
    "training-job-7": "repaired_by:v1-r1",
    "v2": "repaired_by:v2-r1",
    "v1-r1": "valid",
    "v2-r1": "valid",
}
BROKEN = {"v1": "broken", "training-job-7": "broken", "v2": "broken"}


def contents(collection: Collection, ref: str) -> Mapping[str, bytes]:
    artifact = collection.dataset(ref).artifact()
    return {member.path: artifact.read(member.path) for member in artifact.members()}


def assert_done(store: Writer, action: str = "auto_repair", *, packed: bool = False) -> None:
    collection = opened(store, seed=9)
    assert_erased(store)
    assert contents(collection, "HEAD") == {"bird.png": BIRD, "dog.png": DOG}
    assert [row.class_name for path in ("dog.png", "bird.png") for row in collection.annotations(path)] == [
        "dog",
        "bird",
    ]
    expected = REPAIRED if action == "auto_repair" or packed else BROKEN
    named = {name: state for name, state in states(collection).items() if name in REPAIRED}
    assert named == expected
    if "v1-r1" in expected:
        assert contents(collection, "v1-r1") == {"dog.png": DOG}
        assert contents(collection, "v2-r1") == {"bird.png": BIRD, "dog.png": DOG}
    assert collection.state("v1").missing_images == ("cat.png",)
    (receipt,) = collection.receipts()
    assert receipt.is_clean
    assert receipt.remaining_keys == ()
    assert receipt.hashes == (sha256_hex(CAT),)
    assert receipt.jobs == ("7",)
    assert collection.resume_purges() == []


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("action", ["mark_broken", "auto_repair"])
def test_a_purge_erases_the_bytes_and_marks_versions(action: str, packed: bool) -> None:
    store = prepare(packed=packed)
    collection = opened(store)
    before = {ref: collection.dataset(ref).version for ref in ("v1", "v2", "training-job-7")}
    receipt = purge(collection, action)
    assert_done(store, action, packed=packed)
    assert (receipt.author, receipt.reason, receipt.action) == (
        collection.session.settings.author,
        "request 12",
        action,
    )
    assert receipt.erased_bytes >= len(CAT)
    assert receipt.broken_count == len(set(receipt.broken_versions)) >= 2
    assert {ref: collection.dataset(ref).version for ref in before} == before, "a version changed"
    if not packed:
        with pytest.raises(ObjectNotFoundError):
            collection.read("cat.png", "v1")
        assert collection.read("dog.png", "v1") == DOG


def clone(prepared: Mapping[str, bytes]) -> Writer:
    store = memory(f"purge-{next(_fresh)}")
    for key, data in prepared.items():
        store.create(key, data)
    return store


def purge_killed(prepared: Mapping[str, bytes], fault: KillAt, *, packed: bool) -> None:
    """Kill a purge, finish it by a second process, and check the end."""
    store = clone(prepared)
    with pytest.raises(Killed):
        purge(wd.collection("a/pets", store=link(faulty(store, fault), 1)))
    second = opened(store, seed=2)
    if not second.resume_purges(wait_s=0) and not second.receipts():
        purge(second)  # killed before the decision was recorded
    assert_done(store, packed=packed)


def operations(prepared: Mapping[str, bytes]) -> list[str]:
    counting = faulty(clone(prepared))
    purge(wd.collection("a/pets", store=link(counting, 1)))
    return [operation.name for operation in counting.log]


@pytest.mark.parametrize("packed", [False, True])
def test_a_kill_after_every_write_is_finished_by_a_second_call(packed: bool) -> None:
    """Operations between two writes leave the same store. The long test tries every operation."""
    prepared = objects(prepare(packed=packed))
    names = operations(prepared)
    writes = [at for at, name in enumerate(names) if name in WRITES]
    assert len(writes) > 20
    for at in writes[::3]:
        purge_killed(prepared, KillAt(at, "after"), packed=packed)


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_kill_at_every_operation_is_finished_by_a_second_call(packed: bool, when: Literal["before", "after"]) -> None:
    prepared = objects(prepare(packed=packed))
    for at in range(len(operations(prepared))):
        purge_killed(prepared, KillAt(at, when), packed=packed)


def test_a_repeated_call_returns_the_receipt_that_is_stored() -> None:
    store = prepare()
    token = opened(store).impact("cat.png").token
    first = opened(store).purge("cat.png", "auto_repair", token=token)
    again = opened(store, 3).purge("cat.png", "auto_repair", token=token)
    assert first == again


def test_a_stale_token_is_a_conflict_and_nothing_is_written() -> None:
    store = prepare()
    collection = opened(store)
    token = collection.impact("cat.png").token
    collection.create_version("v3")
    before = objects(store)
    with pytest.raises(ConflictError) as caught:
        collection.purge("cat.png", "mark_broken", token=token)
    assert caught.value.kind is ErrorKind.IMPACT_CHANGED
    assert objects(store) == before


def test_cancel_and_unknown_actions_change_nothing() -> None:
    store = prepare()
    collection = opened(store)
    token, before = collection.impact("cat.png").token, objects(store)
    assert collection.purge("cat.png", "cancel", token=token) is None
    with pytest.raises(BadInputError, match="'delete' is not known"):
        collection.purge("cat.png", "delete", token=token)
    assert objects(store) == before


def test_bytes_of_another_dataset_are_not_erased() -> None:
    store = prepare()
    wd.DatasetBuilder("a/other", link(store, 4)).add_artifact("files", {"same.png": CAT}, "files").publish()
    collection = opened(store)
    with pytest.raises(ConflictError, match="a/other"):
        purge(collection)
    assert collection.read("cat.png", "v1") == CAT
    assert states(collection)["v1"] == "valid"


def test_all_paths_with_the_same_content_go() -> None:
    store = prepare()
    collection = opened(store)
    collection.add("copy/of/cat.png", CAT)
    impact = collection.impact("cat.png")
    assert impact.paths == ("cat.png", "copy/of/cat.png")
    collection.purge("cat.png", "mark_broken", token=impact.token)
    assert_erased(store)
    assert "copy/of/cat.png" not in collection.head.artifact()


def test_a_file_that_head_has_lost_can_be_purged_from_versions() -> None:
    store = prepare()
    collection = opened(store)
    collection.remove("cat.png")
    impact = collection.impact("cat.png")
    assert not impact.in_head
    assert impact.affected_jobs == ("7",)
    collection.purge("cat.png", "auto_repair", token=impact.token)
    assert_done(store)


def test_a_branch_loses_the_file_too() -> None:
    store = prepare()
    collection = opened(store)
    collection.head.branch("relabel")
    purge(collection)
    assert_done(store)
    assert "cat.png" not in wd.collection("a/pets", store=link(store, 5)).dataset("relabel").artifact()


def test_a_second_purge_adds_to_the_missing_files_and_numbers_go_on() -> None:
    store = prepare()
    collection = opened(store)
    purge(collection)
    collection.purge("dog.png", "auto_repair", token=collection.impact("dog.png").token)
    assert collection.state("v1").missing_images == ("cat.png", "dog.png")
    assert str(collection.state("v1")) == "repaired_by:v1-r2"
    assert str(collection.state("v2-r1")).startswith("repaired_by:v2-r")
    assert contents(collection, "v1-r2") == {}


def test_the_same_content_can_be_added_again_after_a_purge() -> None:
    store = prepare()
    collection = opened(store)
    purge(collection)
    collection.add("cat.png", CAT)
    assert collection.read("cat.png") == CAT


def test_gc_verify_copy_and_rename_know_broken_versions() -> None:
    store = prepare()
    session = link(store, 1)
    purge(wd.collection("a/pets", store=session))
    collected = wd.gc(session, dry_run=False).report
    assert collected.kept_versions >= 5
    assert states(opened(store)) == REPAIRED
    open_cache(session.settings).put(CAT)  # of a machine that read the file before the purge
    found = wd.verify(opened(store).dataset("v1"), repair=True)
    assert any(sha256_hex(CAT) in problem for problem in found.problems)
    assert found.repaired == ()
    copy = memory(f"purge-{next(_fresh)}")
    with pytest.raises(ConflictError, match="has lost files in a purge"):
        wd.copy("a/pets@v1", link(copy), store=session)
    wd.copy("a/pets", link(copy), history=True, store=session)
    assert states(opened(copy))["v1"] == "broken", "labels beside the branch are not part of its history"
    wd.rename("a/pets", "a/animals", store=session)
    renamed = wd.collection("a/animals", store=link(store, 6))
    assert states(renamed) == REPAIRED
    assert renamed.job("7").version == renamed.dataset("training-job-7").version
    assert [receipt.path for receipt in renamed.receipts()] == ["cat.png"]


def test_the_cache_of_this_machine_drops_the_bytes() -> None:
    collection = opened(prepare())
    cache = open_cache(collection.session.settings)
    cache.put(CAT)
    receipt = purge(collection)
    assert not cache.contains(sha256_hex(CAT))
    assert receipt.cache_entries_removed == 1


def test_the_same_content_added_while_a_purge_deletes_survives_under_another_key() -> None:
    """The purge is stopped after it has published what it will delete. The writer must not rely on that key."""
    prepared = objects(prepare())
    names = operations(prepared)
    store = clone(prepared)
    deletes = [at for at, name in enumerate(names) if name == "delete"]
    last = next(at for at in reversed(deletes) if names[at - 1] != "delete")
    with pytest.raises(Killed):
        purge(wd.collection("a/pets", store=link(faulty(store, KillAt(last, "before")), 1)))
    assert any(info.key.startswith("gc/condemned/") for info in store.list_objects("gc"))
    wd.DatasetBuilder("a/other", link(store, 4)).add_artifact("files", {"same.png": CAT}, "files").publish()
    collection = opened(store, seed=5)
    with pytest.raises(ConflictError, match="a/other"):
        collection.resume_purges(wait_s=0)
    assert wd.dataset("a/other", store=store.url).artifact().read("same.png") == CAT


def test_a_writer_at_work_is_waited_for() -> None:
    store = prepare()
    session = link(store, 1)
    collection = wd.collection("a/pets", store=session)
    with link(store, 7).lease("a slow publish"), pytest.raises(ConflictError, match="a slow publish"):
        purge(collection)
    assert opened(store).read("cat.png", "v1") == CAT, "bytes went although a writer may need them"
    assert len(opened(store, 8).resume_purges(wait_s=0)) == 1
    assert_done(store)


def test_the_index_may_be_lost_or_damaged_at_any_time() -> None:
    store = prepare()
    session: Session = link(store, 1)
    collection = wd.collection("a/pets", store=session)
    first = collection.impact("cat.png")
    index = ReverseIndex(session, "a/pets")
    index.path.write_bytes(b"no database at all, but longer than a header of one" * 40)
    for suffix in ("-wal", "-shm"):
        index.path.with_name(index.path.name + suffix).unlink(missing_ok=True)
    assert collection.impact("cat.png") == first
    index.remove()
    assert collection.impact("cat.png") == first


@pytest.mark.s3
@pytest.mark.parametrize("packed", [False, True])
def test_a_purge_of_a_bucket(s3_server: S3Endpoint, s3_url: str, monkeypatch: pytest.MonkeyPatch, packed: bool) -> None:
    for name, value in s3_server.environ().items():
        monkeypatch.setenv(name, value)
    session = wd.connect(s3_url)
    collection = two_versions(session, packed=packed)
    assert collection.read("cat.png", "v1") == CAT
    receipt = collection.purge("cat.png", "auto_repair", token=collection.impact("cat.png").token)
    assert receipt is not None
    assert receipt.is_clean
    assert_erased(session.writer)
    assert states(wd.collection("a/pets", store=s3_url)) == REPAIRED
    assert collection.job("7").environment["BUCKET_NAME"] == s3_url.removeprefix("s3://").partition("/")[0]
