"""If these fail, a collector takes a living writer for dead, a dead writer for ever for living, or both write at once.

Stores here have a clock that the test sets, so no test waits.
"""

from __future__ import annotations

import contextlib
import threading
from datetime import timedelta

import pytest

import warpdata as wd
from tests.repository.gc.scenes import (
    Clock,
    DyingStore,
    TimedStore,
    check_whole,
    collect,
    keys,
    memory,
    numbers,
    opened,
    publish,
    rows,
    timed_session,
)
from warpdata.datasets import Dataset, open_dataset
from warpdata.errors import CommitUnknownError, ConflictError, CorruptError, UnsupportedError, WriteUnknownError
from warpdata.repository.catalog import parse_address, read_marker
from warpdata.repository.gc import lease as lease_module
from warpdata.session import Session
from warpdata.storage import Writer
from warpdata.testing import Killed

HOUR = 3600


def begin(name: str, *, reports_times: bool = True) -> tuple[TimedStore, Clock, Session]:
    clock = Clock()
    store = TimedStore(memory(f"leases-{name}"), clock, reports_times=reports_times)
    return store, clock, timed_session(store, clock, seed=5)


def kill_publish(store: Writer, clock: Clock, *numbers: int) -> None:
    with pytest.raises(Killed):
        publish(timed_session(DyingStore(store, "create", "/heads/"), clock, seed=6), *numbers)


def test_the_lease_of_a_killed_writer_keeps_its_uploads_for_an_hour() -> None:
    store, clock, link = begin("killed")
    publish(link, 1)
    kill_publish(store, clock, 2)
    blobs = keys(store, "blobs")
    clock.advance(seconds=HOUR - 1)
    assert collect(link).count == 0
    assert keys(store, "blobs") == blobs
    clock.advance(seconds=2)
    assert collect(link).deleted_count == 3
    assert keys(store, "leases") == []
    check_whole(store, "a/b")


def test_a_collection_waits_and_says_for_whom() -> None:
    store, clock, link = begin("waits")
    publish(link, 1)
    kill_publish(store, clock, 2)
    clock.advance(minutes=59, seconds=50)
    publish(link, 3)  # garbage that is old enough is condemned, so there is something to wait for
    store._written.update({key: clock() - timedelta(days=1) for key in keys(store, "blobs")})
    with pytest.raises(ConflictError, match=r"publish a/b by .* is still at work"):
        collect(link, "last 1")
    check_whole(store, "a/b")
    assert wd.gc(link, keep="last 1", dry_run=False).report.deleted_count > 0
    check_whole(store, "a/b")


def test_a_writer_that_stalled_makes_nothing_reachable() -> None:
    store, clock, link = begin("stalled")
    publish(link, 1)

    class Stalling(TimedStore):
        def create(self, key: str, data: bytes) -> bool:
            if "/commits/" in key:
                clock.advance(seconds=601)
            return store.create(key, data)

    stalling = Stalling(store, clock)
    with pytest.raises(ConflictError, match="was not renewed for 601 s"):
        publish(timed_session(stalling, clock, seed=6), 2)
    assert numbers(store) == [1]
    assert keys(store, "leases") == []


@pytest.mark.parametrize("stopped", ["timer", "clock"])
def test_a_clock_that_stops_during_suspension_does_not_help(stopped: str) -> None:
    clock, still = Clock(), Clock()
    both = lease_module.LeaseClock(
        still if stopped == "clock" else clock, still.timer if stopped == "timer" else clock.timer
    )
    elapsed = both.start()
    clock.advance(hours=2)
    assert elapsed() == 7200


def test_a_lease_is_renewed_while_its_writer_works(monkeypatch: pytest.MonkeyPatch) -> None:
    store, clock, _ = begin("renewed")
    monkeypatch.setattr(lease_module, "RENEWAL_S", 0.001)
    renewed = threading.Event()

    class Watching(TimedStore):
        def replace(self, key: str, data: bytes) -> None:
            super().replace(key, data)
            renewed.set()

    watching = Watching(store, clock)
    with timed_session(watching, clock).lease("test") as lease:
        clock.advance(seconds=500)
        renewed.clear()
        assert renewed.wait(60)
        renewed.clear()
        assert renewed.wait(60), "the second renewal began after the first was confirmed"
        clock.advance(seconds=500)
        lease.check()


def test_a_lease_that_may_have_lapsed_does_not_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    _, clock, link = begin("lapsed")
    with link.lease("test") as lease:
        clock.advance(seconds=601)
        monkeypatch.setattr(lease_module, "RENEWAL_S", 0.001)
        lease._renew()  # returns
        with pytest.raises(ConflictError):
            lease.check()


@pytest.mark.parametrize("skew_s", [-600, -300, 0, 300, 600])
def test_without_times_of_the_store_clocks_may_differ_by_ten_minutes(skew_s: int) -> None:
    """The collector's clock is ahead of the writer's by `skew_s`, or behind it."""
    store, clock, link = begin(f"skew-{skew_s}", reports_times=False)
    publish(link, 1)
    kill_publish(store, clock, 2)
    other = Clock(clock.now + timedelta(seconds=skew_s))
    collector = timed_session(store, other, seed=7)
    other.advance(seconds=HOUR - 1)
    with pytest.raises(ConflictError, match="still at work"):
        collect(collector)
    other.advance(seconds=1 + 2 * 600 + 1)
    assert collect(collector).deleted_count == 3
    check_whole(store, "a/b")


def test_a_list_that_cannot_be_read_stops_writers() -> None:
    store, clock, link = begin("corrupt-list")
    publish(link, 1)
    store.create("gc/condemned/20260101T000000Z-00000000/00000", b'{"format":1}\nblobs/x 1\n')
    with pytest.raises(CorruptError, match="condemned list"):
        publish(link, 2)
    with pytest.raises(CorruptError, match="condemned list"):
        opened_with(link).snapshot("v1")
    store.replace("gc/condemned/20260101T000000Z-00000000/00000", b'{"format":2}\n')
    with pytest.raises(UnsupportedError):
        publish(link, 2)
    clock.advance(hours=49)
    publish(link, 2)
    assert numbers(store) == [2]
    assert keys(store, "leases") == []


def opened_with(link: Session, address: str = "a/b") -> Dataset:
    return open_dataset(link, parse_address(address))


def test_lists_expire() -> None:
    store, clock, link = begin("expire")
    publish(link, 1)
    publish(link, 2)
    collect(link, "last 1")
    assert len(keys(store, "gc/condemned")) == 1
    clock.advance(minutes=59)
    publish(link, 1)
    assert len(opened(store).manifest.generations) == 1
    publish(link, 2)
    clock.advance(minutes=2)
    publish(link, 1)
    assert opened(store).manifest.generations == {}, "the key is used again after an hour"
    collect(link)
    assert keys(store, "gc/condemned") == []
    check_whole(store, "a/b")


def test_a_collector_that_is_a_day_late_deletes_nothing() -> None:
    store, clock, link = begin("late")
    publish(link, 1)
    publish(link, 2)

    class Late(TimedStore):
        def create(self, key: str, data: bytes) -> bool:
            made = store.create(key, data)
            if key.startswith("gc/condemned"):
                clock.advance(hours=25)
            return made

    with pytest.raises(ConflictError, match="25 hours ago"):
        collect(timed_session(Late(store, clock), clock), "last 1")
    check_whole(store, "a/b", f"a/b@{opened(store).history()[-1].version}")


def test_old_writers_are_locked_out_a_day_before_anything_goes() -> None:
    """Programs without leases accept only the marker of format 1."""
    store, clock, link = begin("old-writers")
    store.create("warp-store.json", b'{"format":1}')
    publish(link, 1)
    publish(link, 2)
    assert collect(link, "last 1", dry_run=True).count == 2
    assert store.read("warp-store.json").data == b'{"format":1}'
    report = collect(link, "last 1")
    assert report.ready_at == clock() + timedelta(hours=24)
    assert report.deleted_count == 0
    assert store.read("warp-store.json").data == b'{"format":2,"upgraded":true}'
    clock.advance(hours=23)
    assert collect(link, "last 1").deleted_count == 0
    clock.advance(hours=2)
    assert collect(link, "last 1").deleted_count == 2
    publish(link, 3)
    check_whole(store, "a/b")


class Unheard(TimedStore):
    """A store whose replies to some creates never come. The requests arrive later, or never."""

    def __init__(self, store: Writer, clock: Clock, part: str) -> None:
        super().__init__(store, clock)
        self._inner = store
        self._part = part
        self.late: list[tuple[str, bytes]] = []

    def create(self, key: str, data: bytes) -> bool:
        if self._part in key:
            self.late.append((key, data))
            raise WriteUnknownError(f"no reply for {key}")
        return self._inner.create(key, data)


@pytest.mark.parametrize("part", ["/heads/", "/labels/"])
def test_a_request_without_a_reply_finds_its_blobs_when_it_arrives(part: str) -> None:
    store, clock, link = begin(f"unheard-{part.strip('/')}")
    publish(link, 1)
    unheard = Unheard(store, clock, part)
    builder = wd.DatasetBuilder("a/b", timed_session(unheard, clock, seed=8)).add_table("main", rows(2))
    with pytest.raises((CommitUnknownError, WriteUnknownError)):
        builder.publish(replace=True, label="v1")
    assert len(keys(store, "leases")) == 1, "the lease must outlive the request"
    if part == "/labels/":
        publish(link, 3)  # so that only the label would keep the version
    clock.advance(minutes=50)
    with contextlib.suppress(ConflictError):
        collect(link, "last 1")
    key, data = unheard.late[0]
    store.create(key, data)
    check_whole(store, "a/b", *(["a/b@v1"] if part == "/labels/" else []))
    clock.advance(hours=2)
    collect(link, "last 1")
    assert keys(store, "leases") == []
    check_whole(store, "a/b")


def test_a_refused_publish_leaves_no_lease() -> None:
    store, _, link = begin("refused")
    publish(link, 1)
    with pytest.raises(ConflictError):
        wd.DatasetBuilder("a/b", link).add_table("main", rows(2)).publish(expected_version="0" * 64, replace=True)
    with pytest.raises(wd.errors.BadInputError):
        wd.DatasetBuilder("a/b", link).add_table("other", rows(2)).publish()
    assert keys(store, "leases") == []


def test_a_newer_store_is_refused() -> None:
    store, _, link = begin("newer")
    store.create("warp-store.json", b'{"format":3}')
    for act in (lambda: publish(link, 1), lambda: collect(link), lambda: read_marker(store)):
        with pytest.raises(UnsupportedError, match="unsupported format"):
            act()
    assert keys(store, "") == ["warp-store.json"]


def test_a_version_that_is_being_collected_gets_no_new_name() -> None:
    store, clock, link = begin("no-name")
    old = publish(link, 1).version
    publish(link, 2)
    with pytest.raises(Killed):
        collect(timed_session(DyingStore(store, "delete", "/manifests/"), clock), "last 1")
    version = opened_with(link, f"a/b@{old}")
    with pytest.raises(ConflictError, match="is being collected"):
        version.snapshot("v1")
    with pytest.raises(ConflictError, match="is being collected"):
        version.branch("old")
    assert keys(store, "datasets/a/b/labels") == []
