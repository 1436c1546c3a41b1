"""If this fails, some order of publishes, labels, pins, kills and collections breaks a version that the rule keeps."""

from __future__ import annotations

import itertools
from contextlib import suppress

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

import warpdata as wd
from tests.repository.gc.scenes import Clock, DyingStore, TimedStore, memory, rows, timed_session
from warpdata.datasets import open_dataset
from warpdata.errors import ConflictError, ErrorKind, NotFoundError
from warpdata.repository.catalog import create_pin, parse_address, pin_key
from warpdata.session import Session
from warpdata.testing import Killed

_fresh = itertools.count()
DATASETS = st.sampled_from(["a/one", "a/two"])
CONTENTS = st.lists(st.integers(0, 3), min_size=1, max_size=2)
KEEP = st.sampled_from(["all", "labels, pins", "last 1", "last 2", "1 hour", "last 2, 3 hours"])
Content = tuple[int, ...]


class Collections(RuleBasedStateMachine):
    """The model: each branch is a list of contents with times; labels and pins are contents."""

    @initialize()
    def begin(self) -> None:
        self.clock = Clock()
        self.store = TimedStore(memory(f"machine-{next(_fresh)}"), self.clock)
        self.logs: dict[str, list[tuple[Content, str]]] = {"a/one": [], "a/two": []}
        self.named: dict[str, tuple[str, Content]] = {}

    def session(self) -> Session:
        return timed_session(self.store, self.clock, seed=next(_fresh))

    @rule(dataset_id=DATASETS, content=CONTENTS)
    def replace(self, dataset_id: str, content: list[int]) -> None:
        builder = wd.DatasetBuilder(dataset_id, self.session()).add_table("main", rows(*content))
        self._record(dataset_id, tuple(content), builder.publish(replace=True).version)

    @rule(dataset_id=DATASETS, content=CONTENTS)
    def append(self, dataset_id: str, content: list[int]) -> None:
        before: Content = self.logs[dataset_id][-1][0] if self.logs[dataset_id] else ()
        builder = wd.DatasetBuilder(dataset_id, self.session()).append_table("main", rows(*content))
        self._record(dataset_id, (*before, *content), builder.publish().version)

    @rule(dataset_id=DATASETS, content=CONTENTS, part=st.sampled_from(["/manifests/", "/commits/", "/heads/"]))
    def kill_publish(self, dataset_id: str, content: list[int], part: str) -> None:
        dying = timed_session(DyingStore(self.store, "create", part), self.clock, seed=next(_fresh))
        with suppress(Killed):  # nothing is created if the content is that of the head
            wd.DatasetBuilder(dataset_id, dying).add_table("main", rows(*content)).publish(replace=True)

    @rule(dataset_id=DATASETS, back=st.integers(0, 3), is_pin=st.booleans())
    def name(self, dataset_id: str, back: int, is_pin: bool) -> None:
        log = self.logs[dataset_id]
        if back >= len(log):
            return
        content, version = log[-1 - back]
        session, name = self.session(), f"n{next(_fresh)}"
        try:
            opened = open_dataset(session, parse_address(f"{dataset_id}@{version}"))
            if is_pin:
                create_pin(session.writer, opened.version_ref, name, session.timestamp(), session.pause)
            else:
                opened.snapshot(name)
        except NotFoundError as error:
            if error.kind is not ErrorKind.VERSION_COLLECTED:
                raise
        except ConflictError as error:
            if "is being collected" not in error.message:
                raise
        else:
            self.named[f"pin {name}" if is_pin else f"{dataset_id}@{name}"] = (f"{dataset_id}@{version}", content)

    @rule()
    def unpin(self) -> None:
        for name in [name for name in self.named if name.startswith("pin ")][:1]:
            self.store.delete(pin_key(name.removeprefix("pin ")))
            del self.named[name]

    @rule(hours=st.sampled_from([0.1, 0.9, 1.1, 30]))
    def wait(self, hours: float) -> None:
        self.clock.advance(hours=hours)

    @rule(keep=KEEP)
    def collect(self, keep: str) -> None:
        session = self.session()
        last = 1000 if keep == "all" else 2 if "last 2" in keep else 1
        kept = {f"{name}@{version}": content for name, log in self.logs.items() for content, version in log[-last:]}
        kept = {address: content for address, content in kept.items() if self._is_there(address)}
        expected = wd.gc(session, keep=keep).report
        try:
            done = wd.gc(session, keep=keep, dry_run=False, wait_s=0).report
        except ConflictError:
            return  # a killed publish has a lease for an hour
        assert (done.deleted_count, done.deleted_bytes) == (expected.count, expected.size_bytes)
        assert wd.gc(session, keep=keep).report.count == 0
        for address, content in kept.items():
            assert self._read(address) == content

    @rule(keep=KEEP, part=st.sampled_from(["/manifests/", "blobs/", "gc/condemned"]))
    def kill_collection(self, keep: str, part: str) -> None:
        name = "create" if part == "gc/condemned" else "delete"
        dying = timed_session(DyingStore(self.store, name, part), self.clock, seed=next(_fresh))
        with suppress(Killed, ConflictError):
            wd.gc(dying, keep=keep, dry_run=False, wait_s=0)

    @invariant()
    def heads_and_names_are_whole(self) -> None:
        if not hasattr(self, "logs"):
            return
        for dataset_id, log in self.logs.items():
            if log:
                assert self._read(dataset_id) == log[-1][0]
        for address, content in self.named.values():
            assert self._read(address) == content

    def _record(self, dataset_id: str, content: Content, version: str) -> None:
        if not self.logs[dataset_id] or self.logs[dataset_id][-1] != (content, version):
            self.logs[dataset_id].append((content, version))

    def _is_there(self, address: str) -> bool:
        """Return whether no earlier collection has removed a version."""
        try:
            open_dataset(self.session(), parse_address(address))
        except NotFoundError as error:
            if error.kind is not ErrorKind.VERSION_COLLECTED:
                raise
            return False
        return True

    def _read(self, address: str) -> Content:
        """Return the rows of a version, after every blob was read and hashed."""
        opened = open_dataset(self.session(), parse_address(address))
        assert not wd.verify(opened).problems
        return tuple(opened.table().to_arrow()["n"].to_pylist())


TestCollections = pytest.mark.timeout(300)(Collections.TestCase)
TestCollections.settings = settings(max_examples=8, stateful_step_count=20)


class ManyCollections(Collections):
    """The same machine, for longer."""


TestManyCollections = pytest.mark.soak(pytest.mark.timeout(3600)(ManyCollections.TestCase))
TestManyCollections.settings = settings(max_examples=300, stateful_step_count=40)
