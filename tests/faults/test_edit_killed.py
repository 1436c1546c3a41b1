"""If this fails, an edit, merge or compaction that dies or loses a reply leaves half a change, or makes it twice.

A loop over n does it at every store operation.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import warpdata as wd
from tests.faults.scenes import faulty, link, memory
from warpdata.datasets import Dataset, open_dataset
from warpdata.repository.catalog import parse_address
from warpdata.session import Session
from warpdata.storage import Writer
from warpdata.testing import DropReply, KillAt, Killed

_fresh = itertools.count()


def opened(session: Session, ref: str = "main") -> Dataset:
    return open_dataset(session, parse_address(f"a/b@{ref}"))


def prepare(name: str) -> Writer:
    """Publish two shards and a branch that has moved on."""
    store = memory(f"edit-{name}-{next(_fresh)}")
    wd.DatasetBuilder("a/b", link(store)).add_table("main", {"n": [0, 1, 2], "x": ["a", "b", "c"]}).publish()
    opened(link(store, 1)).branch("dev")
    with opened(link(store, 2), "dev").edit() as edit:
        edit.update("main", "n = 2", {"x": "dev"})
    with opened(link(store, 3)).edit() as edit:
        edit.append("main", pa.table({"n": [3], "x": ["d"]}))
    return store


def edit_all(session: Session) -> None:
    with opened(session).edit() as edit:
        edit.append("main", {"n": [9], "x": ["new"]})
        edit.delete("main", "n = 0")
        edit.update("main", "n = 1", {"x": "changed"})
        edit.add_column("main", "y", wd.expr("n + 1"))


def merge(session: Session) -> None:
    opened(session).merge("dev")


def compact(session: Session) -> None:
    opened(session).compact()


EDITED = [(1, "changed", 2), (2, "c", 3), (3, "d", 4), (9, "new", 10)]
ACTS: dict[str, tuple[Callable[[Session], None], list[tuple[Any, ...]]]] = {
    "edit": (edit_all, EDITED),
    "merge": (merge, [(0, "a"), (1, "b"), (2, "dev"), (3, "d")]),
    "compact": (compact, [(0, "a"), (1, "b"), (2, "c"), (3, "d")]),
}
OLD = [(0, "a"), (1, "b"), (2, "c"), (3, "d")]


def state(store: Writer) -> tuple[list[tuple[Any, ...]], int]:
    """The rows, and the number of commits, as a new reader sees them."""
    dataset = opened(link(store, 9))
    rows = sorted(tuple(row.values()) for row in dataset.table().to_arrow().to_pylist())
    return rows, len(dataset.history())


def operations(name: str) -> int:
    counting = faulty(prepare(name))
    ACTS[name][0](link(counting, seed=4))
    return len(counting.log)


@pytest.mark.parametrize("name", ACTS)
def test_a_kill_at_every_operation_leaves_the_last_good_state(name: str) -> None:
    act, done = ACTS[name]
    count = operations(name)
    assert count > 8
    for at in range(count):
        store = prepare(name)
        with pytest.raises(Killed):
            act(link(faulty(store, KillAt(at, "after" if at % 2 else "before")), seed=4))
        rows, commits = state(store)
        assert (rows, commits) in ((OLD, 2), (done, 3)), f"killed at operation {at}"
        if commits == 2:
            act(link(store, seed=5))
        assert state(store) == (done, 3), f"repeated after operation {at}"


@pytest.mark.parametrize("name", ACTS)
def test_a_lost_reply_at_every_operation_commits_once(name: str) -> None:
    act, done = ACTS[name]
    for at in range(operations(name)):
        store = prepare(name)
        act(link(faulty(store, DropReply(at)), seed=4))
        assert state(store) == (done, 3), f"lost the reply to operation {at}"


def test_an_edit_with_a_key_commits_once() -> None:
    store = prepare("key")

    def once(seed: int) -> tuple[str, str | None]:
        with opened(link(store, seed)).edit(key="load of June") as edit:
            edit.append("main", {"n": [9], "x": ["new"]})
        return edit.version, edit.commit

    first = once(4)
    with opened(link(store, 5)).edit() as other:
        other.append("main", {"n": [10], "x": ["later"]})
    assert once(6) == first
    assert state(store) == ([*OLD, (9, "new"), (10, "later")], 4)
