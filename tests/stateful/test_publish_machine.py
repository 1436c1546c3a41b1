"""If this fails, some order of publishes, rivals, lost replies and kills leaves other content than a dictionary has.

Every publish replaces, updates or appends. Replacements have entries of all four kinds. A publish that would remove an
entry is refused, unless it says so. A rival writer may commit first, replies may be lost, and a publish may be killed
at any store operation.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

import warpdata as wd
from tests.faults.scenes import link, memory
from warpdata.datasets import Dataset, open_dataset
from warpdata.errors import BadInputError, WriteUnknownError
from warpdata.publish import Published
from warpdata.repository.catalog import parse_address
from warpdata.storage import Writer
from warpdata.testing import DropReplies, FaultyStore, KillAt, Killed
from warpdata.wshard import Channel, Episode, Timebase

_stores = itertools.count()
SECTIONS = ("tables", "artifacts", "episodes", "tensors")
CONTENTS = st.fixed_dictionaries(
    {"tables": st.integers(1, 3)}, optional={section: st.integers(0, 3) for section in SECTIONS[1:]}
)
"""The entry of each section, as a small number that its content is made from."""


@dataclass(frozen=True)
class Content:
    """The model of a version: the rows of a table, and the number of each other entry."""

    rows: tuple[int, ...]
    others: tuple[tuple[str, int], ...] = ()


class PublishMachine(RuleBasedStateMachine):
    @initialize()
    def create_store(self) -> None:
        self.store: Writer = memory(f"publish-machine-{next(_stores)}")
        self.random = random.Random(0)
        self.versions: dict[str, Content] = {}
        self.history: list[Content] = []
        self.replace({"tables": 1, "artifacts": 0, "episodes": 0, "tensors": 0})

    @rule(content=CONTENTS)
    def replace(self, content: dict[str, int]) -> None:
        self._publish(lambda store: _replacement(store, content), lambda _: _model(content), replace=True)

    @rule(content=CONTENTS)
    def replace_only_if_nothing_goes(self, content: dict[str, int]) -> None:
        """Without `replace`, a publish that lacks an entry of the head is refused and changes nothing."""
        missing = dict(self.history[-1].others).keys() - content.keys()
        if not missing:
            self._publish(lambda store: _replacement(store, content), lambda _: _model(content))
            return
        before = sorted(item.key for item in self.store.list_objects(""))
        with pytest.raises(BadInputError, match="would remove") as raised:
            _replacement(self.store, content).publish()
        assert raised.value.kind == "would_remove"
        assert sorted(item.key for item in self.store.list_objects("")) == before

    @rule(content=CONTENTS)
    def update(self, content: dict[str, int]) -> None:
        """With `keep`, entries that the publish does not name stay."""
        self._publish(lambda store: _replacement(store, content), lambda base: _after_update(base, content), keep=True)

    @rule(content=CONTENTS, rival=CONTENTS)
    def update_after_a_rival(self, content: dict[str, int], rival: dict[str, int]) -> None:
        overtaken = _Overtaken(self.store, lambda: self.replace(rival))
        self._publish(lambda _: _replacement(overtaken, content), lambda base: _after_update(base, content), keep=True)

    @rule(rows=st.integers(1, 3))
    def append(self, rows: int) -> None:
        self._publish(lambda store: _appended(store, rows), lambda base: _after_append(base, rows))

    @rule(rows=st.integers(1, 3), rival=CONTENTS)
    def append_after_a_rival(self, rows: int, rival: dict[str, int]) -> None:
        """Another writer replaces the version during the publish, and the append must be merged into that."""
        overtaken = _Overtaken(self.store, lambda: self.replace(rival))
        self._publish(lambda _: _appended(overtaken, rows), lambda base: _after_append(base, rows))

    @rule(content=CONTENTS, rival=st.integers(1, 3))
    def replace_after_a_rival(self, content: dict[str, int], rival: int) -> None:
        overtaken = _Overtaken(self.store, lambda: self.append(rival))
        self._publish(lambda _: _replacement(overtaken, content), lambda _: _model(content), replace=True)

    @rule(content=CONTENTS, at=st.integers(0, 60), when=st.sampled_from(["before", "after"]))
    def replace_and_die(self, content: dict[str, int], at: int, when: Literal["before", "after"]) -> None:
        """A killed publish leaves the old or the new content, and succeeds when it is run again."""
        try:
            done = _replacement(FaultyStore(self.store, KillAt(at, when)), content).publish(replace=True)
        except Killed:
            before = self.history[-1]
            opened = self._open()
            if _read(opened) != before:
                assert _read(opened) == _model(content)
                self._record(_model(content), opened.version)
            self.replace(content)
        else:
            self._record_if(done, _model(content))

    @invariant()
    def store_equals_the_model(self) -> None:
        if not hasattr(self, "history"):
            return
        opened = self._open()
        assert _read(opened) == self.history[-1]
        assert [self.versions[entry.version] for entry in opened.history()] == self.history[::-1]

    def teardown(self) -> None:
        if not hasattr(self, "versions"):
            return
        for version, content in self.versions.items():
            opened = self._open(f"a/b@{version}")
            assert _read(opened) == content
            assert not wd.verify(opened).problems

    def _publish(
        self, build: Callable[[Writer], wd.DatasetBuilder], expected: Callable[[Content], Content], **options: Any
    ) -> None:
        lossy = FaultyStore(self.store, DropReplies(0.05, self.random))
        try:
            done = build(lossy).publish(**options)
        except WriteUnknownError:  # six lost replies in a row: nothing was committed
            done = build(self.store).publish(**options)
        self._record_if(done, expected(self.history[-1] if self.history else Content(())))

    def _record_if(self, done: Published, content: Content) -> None:
        if done.changed:
            self._record(content, done.version)
        else:
            assert self.versions[done.version] == content

    def _record(self, content: Content, version: str) -> None:
        self.history.append(content)
        assert self.versions.setdefault(version, content) == content

    def _open(self, address: str = "a/b") -> Dataset:
        return open_dataset(link(self.store), parse_address(address))


class _Overtaken(FaultyStore):
    """Lets a rival commit just before the first log entry is created."""

    def __init__(self, store: Writer, rival: Callable[[], None]) -> None:
        super().__init__(store)
        self._rivals = [rival]

    def create(self, key: str, data: bytes) -> bool:
        if "/heads/" in key and self._rivals:
            self._rivals.pop()()
        return super().create(key, data)


_seeds = itertools.count()


def _replacement(store: Writer, content: dict[str, int]) -> wd.DatasetBuilder:
    builder = wd.DatasetBuilder("a/b", link(store, next(_seeds)))
    builder.add_table("main", _rows(content["tables"]))
    if "artifacts" in content:
        builder.add_artifact("raw", _files(content["artifacts"]))
    if "episodes" in content:
        builder.add_episodes("demos", [_episode(content["episodes"])])
    if "tensors" in content:
        builder.add_tensors("weights", {"w": _tensor(content["tensors"])})
    return builder


def _appended(store: Writer, rows: int) -> wd.DatasetBuilder:
    return wd.DatasetBuilder("a/b", link(store, next(_seeds))).append_table("main", _rows(rows))


def _model(content: dict[str, int]) -> Content:
    others = tuple((section, content[section]) for section in SECTIONS[1:] if section in content)
    return Content(tuple(range(content["tables"])), others)


def _after_update(base: Content, content: dict[str, int]) -> Content:
    merged = dict(base.others) | dict(_model(content).others)
    others = tuple((section, merged[section]) for section in SECTIONS[1:] if section in merged)
    return Content(tuple(range(content["tables"])), others)


def _after_append(base: Content, rows: int) -> Content:
    return Content((*base.rows, *range(rows)), base.others)


def _read(dataset: Dataset) -> Content:
    others: dict[str, int] = {}
    if dataset.artifacts:
        others["artifacts"] = len(dataset.artifact().read("name")) - 1
        assert dataset.artifact().read("name") == _files(others["artifacts"])["name"]
    if dataset.manifest.episodes:
        others["episodes"] = dataset.episodes()[0].load().length - 1
    if dataset.manifest.tensors:
        others["tensors"] = int(dataset.tensors()["w"].numpy(verify=True)[0])
    return Content(tuple(dataset.table("main").to_arrow()["n"].to_pylist()), tuple(others.items()))


def _rows(count: int) -> pa.Table:
    return pa.table({"n": pa.array(range(count), pa.int64())})


def _files(number: int) -> dict[str, bytes]:
    return {"name": bytes(number + 1), "other": b"the same in all versions"}


def _episode(number: int) -> Episode:
    steps = np.arange(number + 1, dtype=np.float32).reshape(-1, 1)
    return Episode("ep", number + 1, "env", Timebase("ticks", 30.0), observations={"x": Channel("x", steps)})


def _tensor(number: int) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    return np.full(4, number, np.float32)


TestPublish = PublishMachine.TestCase
TestPublish.settings = settings(max_examples=8, stateful_step_count=8, deadline=None)


@pytest.mark.parametrize("when", ["before", "after"])
def test_killed_at_every_operation(when: Literal["before", "after"]) -> None:
    """Kill a replacement of all four kinds at every store operation. The next publish must succeed."""
    content = dict.fromkeys(SECTIONS, 2)
    counting = FaultyStore(memory(f"count-{when}"))
    _replacement(counting, content).publish()
    for at in range(len(counting.log)):
        store = memory(f"all-kinds-{when}-{at}")
        with pytest.raises(Killed):
            _replacement(FaultyStore(store, KillAt(at, when)), content).publish()
        _replacement(store, content).publish()
        assert _read(open_dataset(link(store), parse_address("a/b"))) == _model(content)
