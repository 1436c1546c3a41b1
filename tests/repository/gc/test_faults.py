"""If these fail, a collector that is killed or misses replies, or a publish in between, costs data.

Loops over n stop the collector at every operation, and run a whole publish between any two of its operations.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable
from datetime import timedelta
from typing import Literal

import pytest

import warpdata as wd
from tests.repository.gc.scenes import (
    append,
    check_whole,
    collect,
    keys,
    memory,
    numbers,
    opened,
    publish,
    session,
)
from warpdata.errors import ConflictError, StorageError, WriteUnknownError
from warpdata.repository.gc import collector
from warpdata.storage import Writer
from warpdata.testing import DropReplies, FaultyStore, KillAt, Killed

KEEP = "last 1"


def fill(name: str) -> Writer:
    """Return a store with two versions to collect, two to keep, and a dataset that shares content with them."""
    store = memory(f"faults-{name}")
    for number in (0, 1, 3):
        publish(store, number)
    publish(store, 3, dataset_id="a/other")
    return store


@functools.cache
def operation_count() -> int:
    counting = FaultyStore(fill("counted"))
    collect(session(counting), KEEP)
    return len(counting.log)


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_collector_may_die_at_every_operation(when: Literal["before", "after"]) -> None:
    for at in range(operation_count()):
        store = fill(f"killed-{when}-{at}")
        with pytest.raises(Killed):
            collect(session(FaultyStore(store, KillAt(at, when))), KEEP)
        check_whole(store, "a/b", "a/other")
        publish(store, 0)  # content that is condemned, or deleted already
        assert numbers(store) == [0]
        check_whole(store, "a/b")
        collect(store, KEEP)
        check_whole(store, "a/b", "a/other")
        assert numbers(store) == [0]


class InterruptedStore(FaultyStore):
    """Calls a function before operation `at`, once."""

    def __init__(self, store: Writer, at: int, interrupt: Callable[[], None]) -> None:
        super().__init__(store)
        self._at = at
        self._interrupt = interrupt
        self.was_interrupted = False

    def _begin(self, name: str, key: str) -> Callable[[], None]:
        if len(self.log) >= self._at and not self.was_interrupted:
            self.was_interrupted = True
            self._interrupt()
        return super()._begin(name, key)


def republish(store: Writer) -> None:
    publish(store, 0, seed=7)


def extend(store: Writer) -> None:
    append(store, 1, seed=7)


def label_old(store: Writer) -> None:
    """Label the oldest version that is still there, if no collection is about to delete it."""
    version = opened(store).history()[-1].version
    try:
        opened(store, f"a/b@{version}").snapshot("old")
    except (ConflictError, wd.errors.NotFoundError):
        return


@pytest.mark.parametrize("change", [republish, extend, label_old])
def test_a_change_between_any_two_operations_of_a_collection(change: Callable[[Writer], None]) -> None:
    for at in range(operation_count()):
        store = fill(f"between-{change.__name__}-{at}")
        interrupted = InterruptedStore(store, at, lambda store=store: change(store))  # type: ignore[misc]
        collect(session(interrupted), KEEP)
        check_whole(store, "a/b", "a/other", *(f"a/b@{label.name}" for label in session(store).catalog.labels("a/b")))
        if change is republish:
            assert numbers(store) == [0]
        elif change is extend:
            assert numbers(store) == [3, 1]
        collect(store, KEEP)
        check_whole(store, "a/b", "a/other")


def test_two_collections_at_once() -> None:
    """The second one is faster, and removes versions that the first one was about to keep."""
    for at in range(operation_count()):
        store = fill(f"two-{at}")
        interrupted = InterruptedStore(store, at, lambda store=store: _collect_and_publish(store))  # type: ignore[misc]
        collect(session(interrupted), KEEP)
        check_whole(store, "a/b", "a/other")
        assert numbers(store) == [1]


def _collect_and_publish(store: Writer) -> None:
    publish(store, 5, seed=8)
    collect(store, KEEP)
    publish(store, 1, seed=9)


def test_a_collection_waits_for_a_publish_that_has_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    """A collection starts at every moment of a publish, and must not delete what the publish will refer to."""
    monkeypatch.setattr(collector, "LAPSE", timedelta(0))  # condemn young objects too, although writers are at work
    counting = FaultyStore(fill("publish-counted"))
    publish(session(counting, 9), 0)
    for at in range(len(counting.log)):
        store = fill(f"waits-{at}")
        blobs = keys(store, "blobs")
        deleted: list[int] = []

        def try_to_collect(store: Writer = store, deleted: list[int] = deleted) -> None:
            try:
                deleted.append(collect(store, KEEP).deleted_count)
            except ConflictError:
                deleted.append(0)

        publish(session(InterruptedStore(store, at, try_to_collect), 9), 0)
        assert numbers(store) == [0]
        check_whole(store, "a/b", "a/other")
        assert deleted[0] or set(blobs) <= set(keys(store, "blobs"))


@pytest.mark.parametrize("seed", range(20))
def test_lost_replies(seed: int) -> None:
    store = fill(f"lost-{seed}")
    lossy = FaultyStore(store, DropReplies(0.2, random.Random(seed)))
    for round_number in range(3):
        try:
            collect(session(lossy, 100 * seed + round_number), KEEP)
        except (WriteUnknownError, ConflictError):
            continue
        finally:
            check_whole(store, "a/b", "a/other")
        publish(session(lossy, 100 * seed + 50 + round_number), round_number)
        assert numbers(store) == [round_number]
        check_whole(store, "a/b", "a/other")


def test_a_store_that_fails_stops_the_collection() -> None:
    from warpdata.testing import FailReads

    for at in range(0, operation_count(), 3):
        store = fill(f"unavailable-{at}")
        try:
            collect(session(FaultyStore(store, FailReads(at))), KEEP)
        except StorageError:
            check_whole(store, "a/b", "a/other")
