"""If these fail, a collection deletes something that is needed, keeps garbage, or reports other than it does."""

from __future__ import annotations

import itertools
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import warpdata as wd
from tests.repository.gc.scenes import (
    DyingStore,
    append,
    check_whole,
    collect,
    keys,
    memory,
    numbers,
    opened,
    publish,
    rows,
    session,
)
from warpdata.errors import BadInputError, CorruptError, ErrorKind, NotFoundError, UnsupportedError
from warpdata.repository.catalog import manifest_key
from warpdata.storage import LocalStore, Writer
from warpdata.testing import Killed

_fresh = itertools.count()


@pytest.fixture(params=["memory", "local"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Writer:
    return memory(f"collect-{next(_fresh)}") if request.param == "memory" else LocalStore(tmp_path / "store")


def leave_orphans(store: Writer) -> None:
    """Kill a publish right before its head, and let its lease end."""
    with pytest.raises(Killed):
        publish(DyingStore(store, "create", "/heads/"), 90, 91)
    for key in keys(store, "leases"):
        store.delete(key)


def test_a_store_without_garbage_loses_nothing(store: Writer) -> None:
    publish(store, 1)
    append(store, 2)
    opened(store).snapshot("v1")
    before = keys(store, "")
    report = collect(store)
    assert (report.count, report.deleted_count) == (0, 0)
    assert report.kept_versions == 2
    assert report.live_blobs == 2
    assert set(keys(store, "")) == {*before, "gc/clock"}


def test_orphans_of_a_killed_publish_go(store: Writer) -> None:
    publish(store, 1)
    before = set(keys(store, ""))
    leave_orphans(store)
    orphans = set(keys(store, "")) - before
    found = collect(store, dry_run=True)
    assert set(keys(store, "")) == before | orphans, "a dry run writes nothing"
    assert {(one.dataset_id, one.reason, one.kind, one.count) for one in found.garbage} == {
        ("a/b", "orphan", "blob", 1),
        ("a/b", "orphan", "commit", 1),
        ("a/b", "orphan", "version", 1),
    }
    done = collect(store)
    assert (done.deleted_count, done.deleted_bytes) == (found.count, found.size_bytes)
    assert not orphans & set(keys(store, ""))
    check_whole(store, "a/b")


def test_versions_that_the_rule_drops_go_and_say_so(store: Writer) -> None:
    versions = [publish(store, number).version for number in range(6)]
    opened(store, f"a/b@{versions[1]}").snapshot("v1")
    report = collect(store, "labels, last 2")
    assert report.kept_versions == 3
    for version in (versions[1], versions[4], versions[5]):
        check_whole(store, f"a/b@{version}")
    for version in (versions[0], versions[2], versions[3]):
        for address in (f"a/b@{version}", f"a/b@{version[:12]}"):
            with pytest.raises(NotFoundError, match="was collected") as caught:
                opened(store, address)
            assert caught.value.kind is ErrorKind.VERSION_COLLECTED
            assert "labels, last 2" in caught.value.message
    assert [entry.version for entry in opened(store).history()] == versions[::-1]
    assert collect(store, "labels, last 2").count == 0
    assert collect(store).count == 0, "a version that was collected before does not stop a later collection"


def test_collected_content_can_be_published_again(store: Writer) -> None:
    publish(store, 1)
    publish(store, 2)
    collect(store, "last 1")
    publish(store, 1)
    assert numbers(store) == [1]
    check_whole(store, "a/b")
    assert collect(store).count == 0
    check_whole(store, "a/b")


@pytest.mark.parametrize("back", [1, 2])
def test_the_address_of_a_collected_version_says_so(back: int) -> None:
    store = memory(f"collected {back}")
    for number in (1, 2, 3):
        publish(store, number)
    collect(store, "last 1")
    with pytest.raises(NotFoundError, match="was collected") as caught:
        opened(store, f"a/b@main~{back}")
    assert caught.value.kind is ErrorKind.VERSION_COLLECTED


def test_edits_keep_the_generations_that_they_need_and_no_others() -> None:
    store = memory("edited generations")
    publish(store, 1)
    publish(store, 2)
    collect(store, "last 1")
    publish(store, 1)
    generations = opened(store).manifest.generations
    assert len(generations) == 1
    with opened(store).edit() as late:
        late.append("main", {"n": [5]})
        with opened(store).edit() as edit:
            edit.append("main", {"n": [5]})
    assert opened(store).manifest.generations == generations
    assert sorted(numbers(store)) == [1, 5, 5]
    check_whole(store, "a/b")
    opened(store).compact(max_deleted=0)
    assert opened(store).manifest.generations == {}
    check_whole(store, "a/b")


def test_condemned_content_gets_a_new_generation_until_the_list_expires() -> None:
    store = memory("generations")  # the list of a remote store stays in force for an hour
    first = publish(store, 1)
    publish(store, 2)
    collect(store, "last 1")
    again = publish(store, 1)
    generations = opened(store).manifest.generations
    assert again.version != first.version
    assert len(generations) == 1
    assert numbers(store) == [1]
    assert publish(store, 1).version == again.version, "the head has it already"
    appended = append(store, 5)
    assert opened(store).manifest.generations == generations, "the next version still needs it"
    assert numbers(store) == [1, 5]
    check_whole(store, f"a/b@{again.version}", f"a/b@{appended.version}")
    collect(store, "last 1")
    check_whole(store, "a/b")
    publish(store, 7)
    assert opened(store).manifest.generations == {}
    collect(store, "last 1")
    with pytest.raises(NotFoundError):
        opened(store, f"a/b@{again.version}")


def test_a_version_whose_manifest_is_condemned_becomes_another() -> None:
    store = memory("condemned-manifest")
    first = publish(store, 1)
    grown = append(store, 2)
    collect(store, "last 1")  # the blob of the first version is live, its manifest is not
    again = publish(store, 1)
    assert again.version != first.version
    assert numbers(store) == [1]
    check_whole(store, "a/b", f"a/b@{grown.version}")


def test_every_dataset_of_the_store_is_a_root(store: Writer) -> None:
    publish(store, 1, 2, dataset_id="a/b")
    publish(store, 1, 2, dataset_id="other/same-content")
    publish(store, 3, dataset_id="a/b")
    collect(store, "last 1")
    check_whole(store, "a/b", "other/same-content")
    assert numbers(store, "other/same-content") == [1, 2]


def test_a_dataset_that_cannot_be_read_stops_the_collection(store: Writer) -> None:
    broken = publish(store, 1, dataset_id="a/broken")
    publish(store, 1)
    leave_orphans(store)
    key = manifest_key("a/broken", broken.version)
    whole = store.read(key).data
    before = keys(store, "blobs")
    for data, kind in ((b"{}", CorruptError), (whole.replace(b'"format":1', b'"format":9'), UnsupportedError)):
        store.replace(key, data)
        for dry_run in (True, False):
            with pytest.raises(kind, match="a/broken cannot be read, so nothing was collected"):
                collect(store, dry_run=dry_run)
    store.delete(key)
    with pytest.raises(CorruptError, match="a/broken"):
        collect(store)
    assert keys(store, "blobs") == before
    store.create("datasets/A strange name/x/heads/main/1", b"")
    with pytest.raises(UnsupportedError, match="is no dataset"):
        collect(store)
    assert keys(store, "blobs") == before


def test_other_objects_are_never_touched(store: Writer) -> None:
    publish(store, 1)
    strange = ["blobs/notes.txt", "blobs/00/00/short", "datasets/a/b/notes.json", "datasets/a/b/manifests/readme.json"]
    strange += [f"blobs/00/00/{'1' * 64}", f"blobs/11/11/{'1' * 64}.old", f"datasets/a/b/commits/{'z' * 64}.json"]
    for key in strange:
        store.create(key, b"x")
    collect(store, "last 1")
    assert set(strange) <= set(keys(store, ""))


def test_branches_and_their_history_stay(store: Writer) -> None:
    publish(store, 1)
    branch = opened(store).branch("exp")
    publish(store, 2)
    wd.DatasetBuilder("a/b", session(store)).append_table("main", rows(3)).publish(branch="exp")
    collect(store, "last 1")
    assert numbers(store) == [2]
    assert numbers(store, "a/b@exp") == [1, 3]
    with pytest.raises(NotFoundError, match="was collected"):
        opened(store, f"a/b@{branch.version}")


def test_paged_shard_lists_and_media_are_live(store: Writer, tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    for number in range(40):
        pq.write_table(pa.table({"n": [number], "path": [f"{number}.bin"]}), tmp_path / f"{number:02d}.parquet")
    builder = wd.DatasetBuilder("a/b", session(store)).add_table("main", tmp_path)
    builder.add_artifact("raw", {f"{number}.bin": bytes([number]) for number in range(40)})
    builder.bind("main", "path", "raw").publish()
    assert opened(store).manifest.tables["main"].shards.levels == 1
    leave_orphans(store)
    collect(store)
    check_whole(store, "a/b")
    publish(store, 7, dataset_id="a/b")
    assert collect(store, "last 1").deleted_count > 40


@given(last=st.integers(1, 9), hours=st.integers(1, 999), spaces=st.text(" ", max_size=2))
def test_rules_are_read_as_written(last: int, hours: int, spaces: str) -> None:
    from warpdata.repository.gc import parse_retention

    rule = parse_retention(f"labels,{spaces}last {last}{spaces},pins, {hours} hours,1 day")
    assert rule.last == last
    assert rule.younger_than is not None
    assert rule.younger_than.total_seconds() == max(hours, 24) * 3600
    assert not rule.keeps_all


@pytest.mark.parametrize("text", ["", "last", "last 0", "last -1", "3 months", "everything", "all,,", "last 1.5"])
def test_other_rules_are_refused(text: str) -> None:
    with pytest.raises(BadInputError, match="no retention rule"):
        wd.gc("memory://rules", keep=text)


def test_young_commits_stay(store: Writer) -> None:
    old = publish(store, 1).version
    publish(store, 2)
    assert collect(store, "1 hour").count == 0
    check_whole(store, f"a/b@{old}")


def test_pins_keep_a_version_until_they_are_removed(tmp_path: Path) -> None:
    url = (tmp_path / "store").as_uri()
    store = LocalStore(tmp_path / "store")
    old = publish(store, 1).version
    publish(store, 2)
    pinned = wd.pin(f"a/b@{old}", "job-17", store=url)
    assert [(pin.name, pin.version) for pin in wd.pins(store=url)] == [("job-17", old)]
    assert wd.pin(f"a/b@{old}", "job-17", store=url) == pinned
    with pytest.raises(wd.errors.AlreadyExistsError, match="job-17"):
        wd.pin("a/b", "job-17", store=url)
    with pytest.raises(BadInputError):
        wd.pin("a/b", "no/slashes", store=url)
    assert collect(store, "last 1").count == 0
    pinned.remove()
    with pytest.raises(NotFoundError, match="no pin 'job-17'"):
        wd.unpin("job-17", store=url)
    with wd.pin(f"a/b@{old}", "job-18", store=url):
        assert collect(store, "last 1").count == 0
    assert wd.pins(store=url) == []
    assert collect(store, "last 1").deleted_count == 2
