"""If this fails, a lost reply or a killed process leaves a restore, removal, copy or rename half done for ever."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import suppress

import pytest

import warpdata as wd
from tests.faults.scenes import append, faulty, link, memory, numbers, replace
from warpdata.datasets import execute_removal, open_dataset, plan_removal
from warpdata.errors import NotFoundError
from warpdata.repository.catalog import Catalog, parse_address
from warpdata.session import Session
from warpdata.storage import Writer
from warpdata.testing import DropReply, FaultyStore, KillAt, Killed

_fresh = itertools.count()
OLD, NEW = [0, 1, 2, 3], [0, 1, 2, 3, 100, 101, 102, 103]


def prepare(name: str) -> Writer:
    """Publish two versions, with a label and a branch on the first."""
    store = memory(name)
    replace(link(store), 0)
    first = open_dataset(link(store), parse_address("a/b"))
    first.snapshot("v1")
    first.branch("exp")
    append(link(store, seed=1), 100)
    return store


def restore(session: Session) -> None:
    open_dataset(session, parse_address("a/b")).restore("v1")


def remove(address: str) -> Callable[[Session], None]:
    def act(session: Session) -> None:
        execute_removal(session, plan_removal(session, parse_address(address)))

    return act


def rename(session: Session) -> None:
    wd.rename("a/b", "a/c", store=session)


def check_restored(store: Writer) -> None:
    assert numbers(link(store)) == OLD
    history = open_dataset(link(store), parse_address("a/b")).history()
    assert [entry.operation for entry in history] == ["restore", "append", "replace"]


def check_label_removed(store: Writer) -> None:
    assert Catalog(store).labels("a/b") == []
    assert numbers(link(store)) == NEW


def check_dataset_removed(store: Writer) -> None:
    catalog = Catalog(store)
    assert catalog.datasets() == []
    assert catalog.labels("a/b") == []
    assert catalog.branches("a/b") == []


def check_renamed(store: Writer) -> None:
    catalog = Catalog(store)
    assert catalog.datasets() == ["a/c"]
    assert numbers(link(store), "a/c") == NEW
    assert numbers(link(store), "a/c@v1") == numbers(link(store), "a/c@exp") == OLD
    assert catalog.branches("a/b") == []
    assert catalog.labels("a/b") == []


ACTS: dict[str, tuple[Callable[[Session], None], Callable[[Writer], None]]] = {
    "restore": (restore, check_restored),
    "remove-label": (remove("a/b@v1"), check_label_removed),
    "remove-dataset": (remove("a/b"), check_dataset_removed),
    "rename": (rename, check_renamed),
}


def operations(name: str) -> int:
    counting = FaultyStore(prepare(f"refs-count-{name}-{next(_fresh)}"))
    ACTS[name][0](link(counting, seed=2))
    return len(counting.log)


@pytest.mark.parametrize("name", ACTS)
def test_a_lost_reply_at_any_operation_changes_nothing(name: str) -> None:
    act, check = ACTS[name]
    for at in range(operations(name)):
        store = prepare(f"refs-lost-{name}-{at}")
        act(link(faulty(store, DropReply(at)), seed=2))
        check(store)


@pytest.mark.parametrize("name", ACTS)
def test_a_killed_process_leaves_the_old_state_or_one_that_can_be_finished(name: str) -> None:
    act, check = ACTS[name]
    for at in range(operations(name)):
        store = prepare(f"refs-killed-{name}-{at}")
        with pytest.raises(Killed):
            act(link(faulty(store, KillAt(at, "after" if at % 2 else "before")), seed=2))
        with suppress(NotFoundError):  # it was done
            act(link(store, seed=3))
        check(store)


def test_a_dataset_that_comes_back_is_finished_after_a_kill() -> None:
    store = prepare("back-count")
    remove("a/b")(link(store, 2))
    assert Catalog(store).branches("a/b") == []
    keys = [info.key for info in store.list_objects("datasets/a/b/manifests")]
    version = keys[0].rsplit("/", 1)[-1].removesuffix(".json")

    def bring_back(session: Session) -> None:
        open_dataset(session, parse_address(f"a/b@{version}")).restore()

    counting = FaultyStore(store)
    bring_back(link(counting, 3))
    for at in range(len(counting.log)):
        again = prepare(f"back-{at}")
        remove("a/b")(link(again, 2))
        with pytest.raises(Killed):
            bring_back(link(faulty(again, KillAt(at)), 3))
        bring_back(link(again, 4))
        assert numbers(link(again), "a/b@v1") == numbers(link(again), "a/b@exp") == OLD
        assert len(open_dataset(link(again), parse_address("a/b")).history()) == 3


def test_a_label_whose_reply_was_lost_does_not_return_after_its_removal() -> None:
    """The second request of a create finds that its first one was removed meanwhile."""
    store = prepare("label-lost")

    class RemovedInBetween(FaultyStore):
        """Loses the reply to the create of the label, and another process removes the label at once."""

        def create(self, key: str, data: bytes) -> bool:
            made = super().create(key, data)
            if key.endswith("labels/v2.json") and made:
                remove("a/b@v2")(link(store, 9))
                return False
            return made

    opened = open_dataset(link(RemovedInBetween(store), 5), parse_address("a/b"))
    opened.snapshot("v2")
    assert [label.name for label in Catalog(store).labels("a/b")] == ["v1"]
