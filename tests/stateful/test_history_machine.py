"""If this fails, some order of publishes, appends, labels and branches leads to other content than a dictionary."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule

import warpdata as wd
from tests.faults.scenes import link, memory
from warpdata.datasets import Dataset, open_dataset
from warpdata.errors import AlreadyExistsError, NotFoundError, WriteUnknownError
from warpdata.repository.catalog import parse_address
from warpdata.storage import Writer
from warpdata.testing import DropReplies, FaultyStore

_fresh = itertools.count()
VALUES = st.lists(st.integers(0, 99), min_size=1, max_size=5)
NAMES = st.sampled_from(["v1", "v2", "exp", "dev"])


class History(RuleBasedStateMachine):
    """The model: branches are lists of contents, labels are contents, versions never change theirs."""

    branches = Bundle("branches")

    @initialize(target=branches)
    def begin(self) -> str:
        self.store: Writer = memory(f"machine-{next(_fresh)}")
        self.lossy = FaultyStore(self.store, DropReplies(0.1, random.Random(next(_fresh))))
        self.seed = 0
        self.logs: dict[str, list[tuple[int, ...]]] = {"main": []}
        self.labels: dict[str, tuple[int, ...]] = {}
        self.versions: dict[str, tuple[int, ...]] = {}
        self._publish("main", [0])
        return "main"

    @rule(branch=branches, values=VALUES)
    def replace(self, branch: str, values: list[int]) -> None:
        self._publish(branch, values)

    @rule(branch=branches, values=VALUES)
    def append(self, branch: str, values: list[int]) -> None:
        builder = self._builder().append_table("main", _rows(values))
        done = self._surely(lambda: builder.publish(branch=branch))
        self._record(branch, (*self.logs[branch][-1], *values), done.version)

    @rule(branch=branches, name=NAMES)
    def label(self, branch: str, name: str) -> None:
        content = self.logs[branch][-1]
        taken = name in self.logs or self.labels.get(name, content) != content
        dataset = self._open(f"a/b@{branch}")
        if taken:
            with pytest.raises(AlreadyExistsError):
                dataset.snapshot(name)
        else:
            dataset.snapshot(name)
            self.labels[name] = content

    @rule(target=branches, branch=branches, name=NAMES)
    def fork(self, branch: str, name: str) -> str:
        dataset = self._open(f"a/b@{branch}")
        if name in self.logs or name in self.labels:
            with pytest.raises(AlreadyExistsError):
                dataset.branch(name)
            return branch
        dataset.branch(name)
        self.logs[name] = list(self.logs[branch])
        return name

    @invariant()
    def the_store_agrees_with_the_model(self) -> None:
        if not hasattr(self, "logs"):
            return
        for branch, log in self.logs.items():
            dataset = self._open(f"a/b@{branch}")
            assert _content(dataset) == log[-1]
            assert len(dataset.history()) == len(log)
            assert [self.versions[entry.version] for entry in dataset.history()] == log[::-1]
        for name, content in self.labels.items():
            assert _content(self._open(f"a/b@{name}")) == content
        for version, content in self.versions.items():
            assert _content(self._open(f"a/b@{version}")) == content
        with pytest.raises(NotFoundError):
            self._open("a/b@never")

    def _publish(self, branch: str, values: list[int]) -> None:
        done = self._surely(lambda: self._builder().add_table("main", _rows(values)).publish(branch=branch))
        log = self.logs[branch]
        assert done.changed == (not log or log[-1] != tuple(values))
        if done.changed:
            self._record(branch, tuple(values), done.version)

    def _surely(self, publish: Any) -> Any:
        """Losing six replies in a row is possible; it must be said, and must have committed nothing."""
        try:
            return publish()
        except WriteUnknownError:
            return publish()

    def _record(self, branch: str, content: tuple[int, ...], version: str) -> None:
        self.logs[branch].append(content)
        self.versions[version] = content

    def _builder(self) -> wd.DatasetBuilder:
        self.seed += 1
        return wd.DatasetBuilder("a/b", link(self.lossy, self.seed))

    def _open(self, address: str) -> Dataset:
        self.seed += 1
        return open_dataset(link(self.store, self.seed), parse_address(address))


def _rows(values: list[int]) -> pa.Table:
    return pa.table({"n": pa.array(values, pa.int64())})


def _content(dataset: Dataset) -> tuple[int, ...]:
    return tuple(dataset.table("main").to_arrow()["n"].to_pylist())


TestHistory = History.TestCase
TestHistory.settings = settings(max_examples=15, stateful_step_count=12, deadline=None)
