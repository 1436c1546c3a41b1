"""If these fail, tests that kill and deafen the code under test kill and deafen nothing, and prove nothing."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import pytest

from warpdata.errors import ObjectNotFoundError, StoreUnavailableError, WriteUnknownError
from warpdata.storage import LocalStore, Writer
from warpdata.testing import DropReplies, DropReply, FailReads, FaultyStore, KillAt, Killed, Operation, StoreSuite


class TestFaultyStoreWithoutFault(StoreSuite):
    """A store that has nothing to hide passes the same suite as the one it wraps."""

    @pytest.fixture
    def store(self, tmp_path: Path) -> Writer:
        return FaultyStore(LocalStore(tmp_path / "store"))


@pytest.fixture
def inner(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "store")


def _work(store: Writer) -> None:
    """Six operations, the fourth of which fails."""
    store.create("a", b"1")
    store.read("a")
    store.replace("b", b"2")
    with pytest.raises(ObjectNotFoundError):
        store.stat("absent")
    list(store.list_objects(""))
    store.delete("a")


STATES = [{}, {"a"}, {"a"}, {"a", "b"}, {"a", "b"}, {"a", "b"}, {"b"}]
"""The keys in the store after each number of operations of `_work`."""


def _keys(store: Writer) -> set[str]:
    return {info.key for info in store.list_objects("")}


def test_every_operation_is_logged_in_order(inner: LocalStore) -> None:
    store = FaultyStore(inner)
    _work(store)
    assert store.log == (
        Operation("create", "a"),
        Operation("read", "a"),
        Operation("replace", "b"),
        Operation("stat", "absent"),
        Operation("list_objects", ""),
        Operation("delete", "a"),
    )
    assert store.counts() == {"create": 1, "read": 1, "replace": 1, "stat": 1, "list_objects": 1, "delete": 1}
    store.clear()
    assert store.counts() == {}


@pytest.mark.parametrize("at", range(6))
def test_a_kill_before_prevents_and_a_kill_after_follows(tmp_path: Path, at: int) -> None:
    before, after = LocalStore(tmp_path / "before"), LocalStore(tmp_path / "after")
    for inner, fault, done in ((before, KillAt(at), at), (after, KillAt(at, "after"), at + 1)):
        store = FaultyStore(inner, fault)
        with pytest.raises(Killed):
            _work(store)
        assert len(store.log) == at + 1
        assert _keys(inner) == set(STATES[done])


def test_the_dead_do_nothing(inner: LocalStore) -> None:
    store = FaultyStore(inner, KillAt(0))

    def clean_up_after_failure() -> None:
        try:
            store.create("a", b"1")
        finally:
            store.create("left by the dead", b"1")

    with pytest.raises(Killed):
        clean_up_after_failure()
    for act in (lambda: store.read("a"), lambda: store.replace("a", b""), lambda: list(store.list_objects(""))):
        with pytest.raises(Killed):
            act()
    assert len(store.log) == 1
    assert _keys(inner) == set()


def test_no_handler_for_exceptions_survives_a_kill() -> None:
    assert not issubclass(Killed, Exception)


def test_a_kill_that_is_never_reached_changes_nothing(inner: LocalStore) -> None:
    _work(FaultyStore(inner, KillAt(6)))
    assert _keys(inner) == {"b"}


@pytest.mark.parametrize("at", range(6))
def test_a_dropped_reply_hides_a_write_that_landed(inner: LocalStore, at: int) -> None:
    store = FaultyStore(inner, DropReply(at))
    if at in (0, 2, 5):
        with pytest.raises(WriteUnknownError, match=f"operation {at}"):
            _work(store)
        assert _keys(inner) == set(STATES[at + 1])
    else:
        _work(store)


@pytest.mark.parametrize("at", range(6))
def test_a_refused_read_is_unavailable(inner: LocalStore, at: int) -> None:
    store = FaultyStore(inner, FailReads(at))
    if at in (1, 3, 4):
        with pytest.raises(StoreUnavailableError, match=f"operation {at}"):
            _work(store)
    else:
        _work(store)


def _drop(inner: LocalStore, rate: float, seed: int) -> list[str]:
    """For each of many creates: was it answered, lost on the way there, or on the way back?"""
    store = FaultyStore(inner, DropReplies(rate, Random(seed)))
    fates = []
    for number in range(200):
        key = f"{seed}/{number}"
        try:
            store.create(key, b"")
            fates.append("answered")
        except WriteUnknownError:
            fates.append("landed" if inner.local_path(key) else "lost")
        assert store.list_folders("absent") == [], "reads are always answered"
    return fates


def test_dropped_replies_hide_half_and_half(inner: LocalStore, tmp_path: Path) -> None:
    fates = _drop(inner, 0.5, seed=1)
    assert 70 < fates.count("answered") < 130
    assert 30 < fates.count("landed") < 70
    assert 30 < fates.count("lost") < 70
    assert fates == _drop(LocalStore(tmp_path / "again"), 0.5, seed=1), "the same chance gives the same fate"


def test_the_rate_reaches_from_never_to_always(inner: LocalStore) -> None:
    assert set(_drop(inner, 0.0, seed=2)) == {"answered"}
    assert set(_drop(inner, 1.0, seed=3)) == {"landed", "lost"}


def test_threads_share_one_numbering(inner: LocalStore) -> None:
    inner.create("k", b"x")
    store = FaultyStore(inner, KillAt(50))

    def read(_: int) -> str:
        try:
            store.read("k")
        except Killed:
            return "killed"
        return "read"

    with ThreadPoolExecutor(8) as pool:
        fates = list(pool.map(read, range(100)))
    assert (fates.count("read"), fates.count("killed")) == (50, 50)
    assert len(store.log) == 51


@pytest.mark.parametrize(
    "ask", [lambda store: store.stream("k"), lambda store: store.list_objects("")], ids=["stream", "list_objects"]
)
def test_lazy_operations_count_when_they_begin(inner: LocalStore, ask: Callable[[Writer], object]) -> None:
    inner.create("k", b"x")
    store = FaultyStore(inner)
    items = ask(store)
    assert store.log == ()
    assert list(items)  # type: ignore[call-overload]
    assert len(store.log) == 1
