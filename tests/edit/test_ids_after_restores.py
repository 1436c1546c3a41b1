"""If these fail, a row that was added after a restore takes the sample id of another one, and a merge mixes both."""

from __future__ import annotations

import itertools

import pytest

import warpdata as wd
from tests.faults.scenes import link, memory
from warpdata.datasets import Dataset, open_dataset
from warpdata.errors import ConflictError
from warpdata.repository.catalog import parse_address
from warpdata.session import Session

_stores = itertools.count()


@pytest.fixture
def session() -> Session:
    return link(memory(f"restored-ids-{next(_stores)}"))


def _open(session: Session, ref: str = "main") -> Dataset:
    return open_dataset(session, parse_address(f"a/b@{ref}"))


def _append(session: Session, table: str, value: int, ref: str = "main") -> None:
    with _open(session, ref).edit() as edit:
        edit.append(table, {"n": [value]})


def _ids(session: Session, table: str, ref: str = "main") -> list[int]:
    ids: list[int] = _open(session, ref).table(table).sample_ids().tolist()
    return ids


def _publish_first(session: Session) -> None:
    wd.DatasetBuilder("a/b", session).add_table("main", {"n": [0, 1]}).publish(label="first")


def test_a_table_that_the_restored_version_lacks_gets_new_ids(session: Session) -> None:
    _publish_first(session)
    _append(session, "later", 10)
    _append(session, "later", 11)
    _open(session).branch("dev")
    _open(session).restore("first")
    _append(session, "main", 2)  # the commit after the restore does not create the table again
    _append(session, "main", 3)
    _append(session, "later", 12)
    assert _ids(session, "later") == [2]
    _append(session, "later", 13)
    assert _ids(session, "later") == [2, 3]
    assert set(_ids(session, "later")).isdisjoint(_ids(session, "later", "dev"))


def test_a_table_that_was_replaced_before_the_restore_gets_new_ids(session: Session) -> None:
    _publish_first(session)
    _append(session, "main", 2)
    _append(session, "main", 3)
    _open(session).branch("dev")
    wd.DatasetBuilder("a/b", session).add_table("main", {"n": [9]}).publish(replace=True)
    _open(session).restore("first")
    _append(session, "main", 4)
    assert _ids(session, "main") == [0, 1, 4]


@pytest.mark.parametrize("publishes", [False, True])
def test_a_merge_after_such_a_restore_takes_no_two_rows_for_one(session: Session, publishes: bool) -> None:
    _publish_first(session)
    _append(session, "later", 10)
    _open(session).branch("dev")
    with _open(session, "dev").edit() as edit:
        edit.update("later", "n = 10", {"n": 100})
    _open(session).restore("first")
    _append(session, "main", 2)
    if publishes:
        wd.DatasetBuilder("a/b", session).append_table("later", {"n": [20]}).publish()
    else:
        _append(session, "later", 20)
    # Sample 0 of `later` was deleted on main and changed on dev. The new row is another sample.
    with pytest.raises(ConflictError):
        _open(session).merge("dev")
    _open(session).merge("dev", policy="ours")
    assert _open(session).table("later").to_arrow()["n"].to_pylist() == [20]
    assert _ids(session, "later") == [1]


def test_restores_of_restores_forget_nothing(session: Session) -> None:
    _publish_first(session)
    for value in range(2, 6):
        _append(session, "main", value)
        _append(session, "later", value)
        _open(session).restore("first")
    _append(session, "main", 9)
    _append(session, "later", 9)
    assert _ids(session, "main") == [0, 1, 6]
    assert _ids(session, "later") == [4]
