"""If this fails, a lost reply makes a commit happen twice, or not at all although it was reported."""

from __future__ import annotations

import random

import pytest

import warpdata as wd
from tests.faults.scenes import append, faulty, link, memory, numbers, replace
from warpdata.datasets import open_dataset
from warpdata.errors import (
    AccessDeniedError,
    CommitUnknownError,
    ConflictError,
    ObjectNotFoundError,
    SchemaMismatchError,
    StorageError,
    WriteUnknownError,
)
from warpdata.repository.catalog import Catalog, Transaction, commit, find_transaction, parse_address
from warpdata.repository.manifest import Manifest
from warpdata.session import Session
from warpdata.storage import GetResult, Writer
from warpdata.testing import DropReplies, DropReply, FaultyStore


def history(connection: Session) -> list[str]:
    return [entry.txn_id for entry in open_dataset(connection, parse_address("a/b")).history()]


def test_one_lost_reply_anywhere_changes_nothing() -> None:
    counting = faulty(memory("lost-count"))
    replace(link(counting), 0)
    append(link(counting, seed=1), 100)
    for at in range(len(counting.log)):
        store = memory(f"lost-{at}")
        dropping = faulty(store, DropReply(at))
        replace(link(dropping), 0)
        append(link(dropping, seed=1), 100)
        assert numbers(link(store)) == [0, 1, 2, 3, 100, 101, 102, 103]
        assert len(history(link(store))) == 2


def test_many_lost_replies_each_append_exactly_once() -> None:
    for seed in range(25):
        store = memory(f"lossy-{seed}")
        dropping = FaultyStore(store, DropReplies(0.3, random.Random(seed)))
        replace(link(store), 0)
        landed = []
        for step in range(6):
            try:
                append(link(dropping, seed=1000 + step), 100 * (step + 1))
                landed.append(step)
            except (CommitUnknownError, WriteUnknownError):
                seen = numbers(link(store))
                if 100 * (step + 1) in seen:
                    landed.append(step)
        expected = [0, 1, 2, 3] + [100 * (step + 1) + n for step in landed for n in range(4)]
        assert numbers(link(store)) == expected
        assert len(set(history(link(store)))) == len(landed) + 1


class _SilentAboutHeads(FaultyStore):
    """Log entries land, but every word about them is lost, also when they are read back."""

    def create(self, key: str, data: bytes) -> bool:
        made = super().create(key, data)
        if "/heads/" in key:
            raise WriteUnknownError("the reply was lost")
        return made

    def read(self, key: str) -> GetResult:
        if "/heads/" in key and self.counts()["create"] > 3:
            raise StorageError("the line is dead")
        return super().read(key)


def test_an_unknown_outcome_says_so_and_can_be_resolved() -> None:
    store = memory("unknown")
    with pytest.raises(CommitUnknownError) as raised:
        replace(link(_SilentAboutHeads(store)), 0)
    found = find_transaction(store, "a/b", "main", raised.value.txn_id)
    assert found is not None
    assert found.commit.txn_id == raised.value.txn_id
    assert find_transaction(store, "a/b", "main", "another writer") is None
    assert raised.value.hint is not None
    assert raised.value.txn_id in raised.value.hint
    assert numbers(link(store)) == [0, 1, 2, 3]


class _HeardThenRefused(FaultyStore):
    """The first log entry is taken without a word and not shown yet; then every further request is refused."""

    taken = False

    def create(self, key: str, data: bytes) -> bool:
        if "/heads/" not in key:
            return super().create(key, data)
        if self.taken:
            raise AccessDeniedError("the right to write has just ended")
        self.taken = super().create(key, data)
        raise WriteUnknownError("the reply was lost")

    def read(self, key: str) -> GetResult:
        if "/heads/" in key:
            raise ObjectNotFoundError("not visible yet")
        return super().read(key)


def test_a_refusal_after_a_lost_reply_is_an_unknown_outcome_not_a_failure() -> None:
    store = memory("heard-then-refused")
    with pytest.raises(CommitUnknownError):
        replace(link(_HeardThenRefused(store)), 0)
    assert numbers(link(store)) == [0, 1, 2, 3]


def test_a_refusal_at_the_first_try_is_a_refusal() -> None:
    class Refusing(FaultyStore):
        def create(self, key: str, data: bytes) -> bool:
            if "/heads/" in key:
                raise AccessDeniedError("no right to write")
            return super().create(key, data)

    with pytest.raises(AccessDeniedError):
        replace(link(Refusing(memory("refusing"))), 0)


class _Overtaken(FaultyStore):
    """Lets another writer commit just before this one, once."""

    def __init__(self, store: Writer, rival: object) -> None:
        super().__init__(store)
        self.rival = rival

    def create(self, key: str, data: bytes) -> bool:
        if "/heads/" in key and self.rival is not None:
            rival, self.rival = self.rival, None
            rival()  # type: ignore[operator]
        return super().create(key, data)


def test_a_replacement_that_loses_the_race_is_re_parented() -> None:
    store = memory("race-replace")
    replace(link(store), 0)
    replace(link(_Overtaken(store, lambda: replace(link(store, seed=9), 500)), seed=1), 100)
    assert numbers(link(store)) == [100, 101, 102, 103]
    entries = open_dataset(link(store), parse_address("a/b")).history()
    assert len(entries) == 3
    assert [entry.parents for entry in entries] == [(entries[1].commit,), (entries[2].commit,), ()]


def test_appends_that_race_are_both_kept() -> None:
    store = memory("race-append")
    replace(link(store), 0)
    append(link(_Overtaken(store, lambda: append(link(store, seed=9), 500)), seed=1), 100)
    assert numbers(link(store)) == [0, 1, 2, 3, 500, 501, 502, 503, 100, 101, 102, 103]


def test_an_append_onto_a_table_that_changed_its_type_is_a_conflict() -> None:
    import pyarrow as pa

    store = memory("race-type")
    replace(link(store), 0)

    def retype() -> None:
        wd.DatasetBuilder("a/b", link(store, seed=9)).add_table("main", pa.table({"n": ["text"]})).publish(replace=True)

    with pytest.raises(ConflictError, match="another commit"):
        append(link(_Overtaken(store, retype), seed=1), 100)
    with pytest.raises(SchemaMismatchError, match="is string in table 'main', but int64") as raised:
        append(link(store, seed=2), 100)
    assert raised.value.hint is not None
    assert "rewrite" not in raised.value.hint, "rewriting the new rows would not help"


def test_an_expected_version_guards_against_surprise() -> None:
    store = memory("expected")
    replace(link(store), 0)
    version = open_dataset(link(store), parse_address("a/b")).version
    replace(link(store, seed=1), 100, expected_version=version)
    with pytest.raises(ConflictError, match="is at version"):
        replace(link(store, seed=2), 200, expected_version=version)
    assert numbers(link(store)) == [100, 101, 102, 103]


def test_commit_gives_up_after_endless_rivals() -> None:
    store = memory("starved")
    replace(link(store), 0)

    class AlwaysLate(FaultyStore):
        def create(self, key: str, data: bytes) -> bool:
            if "/heads/" in key:
                append(link(store, seed=len(self.log)), 0)
            return super().create(key, data)

    def once(_: object) -> Manifest:
        return Catalog(store).manifest(Catalog(store).resolve(parse_address("a/b")))

    txn = Transaction("a/b", "main", "me", "append", "x", "", "2026-01-01T00:00:00Z")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("warpdata.repository.catalog.transactions.MAX_COMMIT_ATTEMPTS", 3)
        with pytest.raises(ConflictError, match="were faster"):
            commit(AlwaysLate(store), txn, once, lambda _: None)
