"""If this fails, some order of restores, removals and renames loses a version, or brings a removed name back."""

from __future__ import annotations

import itertools
import random
import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

import warpdata as wd
from tests.faults.scenes import link, memory
from warpdata.datasets import Dataset, execute_removal, open_dataset, plan_removal
from warpdata.errors import AlreadyExistsError, DatasetNotFoundError, NotFoundError, WriteUnknownError
from warpdata.repository.catalog import Catalog, parse_address
from warpdata.session import Session
from warpdata.settings import load_settings
from warpdata.storage import Writer, open_store
from warpdata.testing import DropReplies, FaultyStore

_fresh = itertools.count()
VALUES = st.lists(st.integers(0, 9), min_size=1, max_size=3)
NAMES = st.sampled_from(["v1", "v2", "exp"])
DATASETS = st.sampled_from(["a/b", "a/c"])
Content = tuple[int, ...]


class Model:
    """A dataset: branches are lists of contents, oldest first; labels are contents."""

    def __init__(self) -> None:
        self.branches: dict[str, list[Content]] = {"main": []}
        self.labels: dict[str, Content] = {}


class Refs(RuleBasedStateMachine):
    """The model: live datasets by name, and those that were removed and can come back."""

    def make_store(self) -> Writer:
        return memory(f"refs-{next(_fresh)}")

    @initialize()
    def begin(self) -> None:
        self.store = self.make_store()
        self.lossy = FaultyStore(self.store, DropReplies(0.1, random.Random(next(_fresh))))
        self.clock = 0
        self.contents: dict[tuple[str, str], Content] = {}
        self.live: dict[str, Model] = {}
        self.gone: dict[str, Model] = {}
        self._publish("a/b", "main", (0,))

    @rule(name=DATASETS, values=VALUES, on_branch=st.booleans())
    def publish(self, name: str, values: list[int], on_branch: bool) -> None:
        model = self.live.get(name)
        branch = "exp" if on_branch and model is not None and "exp" in model.branches else "main"
        self._publish(name, branch, tuple(values))

    @rule(name=DATASETS, label=NAMES)
    def label(self, name: str, label: str) -> None:
        model = self.live.get(name)
        if model is None:
            return
        content = model.branches["main"][-1]
        opened = self._open(name, self.lossy)
        if label in model.branches or model.labels.get(label, content) != content:
            with pytest.raises(AlreadyExistsError):
                opened.snapshot(label)
        else:
            self._surely(lambda: opened.snapshot(label))
            model.labels[label] = content

    @rule(name=DATASETS, branch=NAMES)
    def fork(self, name: str, branch: str) -> None:
        model = self.live.get(name)
        if model is None:
            return
        opened = self._open(name, self.lossy)
        if branch in model.branches or branch in model.labels:
            with pytest.raises(AlreadyExistsError):
                opened.branch(branch)
        else:
            opened.branch(branch)
            model.branches[branch] = list(model.branches["main"])

    @rule(name=DATASETS, back=st.integers(0, 3), branch=st.sampled_from(["main", "exp"]))
    def restore(self, name: str, back: int, branch: str) -> None:
        model = self.live.get(name)
        if model is None or branch not in model.branches or back >= len(model.branches["main"]):
            return
        log, content = model.branches[branch], model.branches["main"][-1 - back]
        done = self._surely(lambda: self._open(f"{name}@{branch}", self.lossy).restore(f"main~{back}"))
        assert done.changed == (log[-1] != content)
        if done.changed:
            log.append(content)

    @rule(name=DATASETS, ref=st.one_of(st.none(), NAMES))
    def remove(self, name: str, ref: str | None) -> None:
        model = self.live.get(name)
        address = name if ref is None else f"{name}@{ref}"
        if model is None or (ref is not None and ref not in model.branches and ref not in model.labels):
            with pytest.raises(NotFoundError):
                self._remove(address)
            return
        self._remove(address)
        if ref is None:
            self.gone[name] = self.live.pop(name)
        elif ref in model.labels:
            del model.labels[ref]
        else:
            del model.branches[ref]

    @rule(name=DATASETS)
    def bring_back(self, name: str) -> None:
        model = self.gone.get(name)
        if model is None:
            return
        last = model.branches["main"][-1]
        version = next(ref for ref, known in self._versions(name).items() if known == last)
        self._surely(lambda: self._open(f"{name}@{version}", self.lossy).restore())
        model.branches["main"].append(last)
        self.live[name] = self.gone.pop(name)

    @rule(name=DATASETS)
    def rename(self, name: str) -> None:
        other = "a/c" if name == "a/b" else "a/b"
        model = self.live.get(name)
        if model is not None and other in self.live:
            return  # see tests/publish/test_copy.py
        if model is None:
            with pytest.raises(DatasetNotFoundError):
                wd.rename(name, other, store=self._session(self.lossy))
            return
        self._surely(lambda: wd.rename(name, other, store=self._session(self.lossy)))
        self.live[other] = self.live.pop(name)
        self.gone[name] = model_copy(model)
        self.gone.pop(other, None)

    @invariant()
    def the_store_agrees_with_the_model(self) -> None:
        if not hasattr(self, "live"):
            return
        catalog = Catalog(self.store)
        assert catalog.datasets() == sorted(self.live)
        for name in ("a/b", "a/c"):
            model = self.live.get(name)
            if model is None:
                with pytest.raises(DatasetNotFoundError):
                    self._open(name)
                assert catalog.branches(name) == []
                assert catalog.labels(name) == []
                continue
            assert catalog.branches(name) == sorted(model.branches)
            assert [label.name for label in catalog.labels(name)] == sorted(model.labels)
            for branch, log in model.branches.items():
                history = self._open(f"{name}@{branch}").history()
                assert [self._known(name, entry.version) for entry in history] == log[::-1]
                assert self._content(f"{name}@{branch}~{len(log) - 1}") == log[0]
            for label, content in model.labels.items():
                assert self._content(f"{name}@{label}") == content

    def _publish(self, name: str, branch: str, values: Content) -> None:
        builder = wd.DatasetBuilder(name, self._session(self.lossy)).add_table("main", _rows(values))
        done = self._surely(lambda: builder.publish(branch=branch))
        if name not in self.live:
            self.live[name] = Model()
            self.gone.pop(name, None)
        log = self.live[name].branches[branch]
        assert done.changed == (not log or log[-1] != values)
        if done.changed:
            log.append(values)

    def _remove(self, address: str) -> None:
        session = self._session(self.lossy)
        found = plan_removal(session, parse_address(address))
        self._surely(lambda: execute_removal(session, found), again=lambda: self._finish(address))

    def _finish(self, address: str) -> None:
        """Repeat a removal whose outcome is unknown. It may have happened."""
        session = self._session(self.store)
        with suppress(NotFoundError):
            execute_removal(session, plan_removal(session, parse_address(address)))

    def _surely(self, act: Callable[[], Any], again: Callable[[], Any] | None = None) -> Any:
        """Losing six replies in a row is possible. It must be said, and then the call can be repeated."""
        try:
            return act()
        except WriteUnknownError:
            return (again or act)()

    def _session(self, store: Writer) -> Session:
        self.clock += 1
        moment = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=self.clock)
        return replace(link(store, self.clock), clock=lambda: moment)

    def _open(self, address: str, store: Writer | None = None) -> Dataset:
        return open_dataset(self._session(store or self.store), parse_address(address))

    def _content(self, address: str) -> Content:
        return tuple(self._open(address).table("main").to_arrow()["n"].to_pylist())

    def _known(self, name: str, version: str) -> Content:
        """Return the content of a version, which never changes."""
        if (name, version) not in self.contents:
            self.contents[name, version] = self._content(f"{name}@{version}")
        return self.contents[name, version]

    def _versions(self, name: str) -> dict[str, Content]:
        prefix = f"datasets/{name}/manifests/"
        keys = [info.key for info in self.store.list_objects(prefix.rstrip("/"))]
        found = [key.removeprefix(prefix).removesuffix(".json") for key in keys]
        return {version: self._known(name, version) for version in found}


class LocalRefs(Refs):
    """The same in a directory."""

    def make_store(self) -> Writer:
        self.directory = Path(tempfile.mkdtemp(prefix="refs-machine"))
        return open_store(str(self.directory), load_settings())

    def teardown(self) -> None:
        shutil.rmtree(getattr(self, "directory", "/nonexistent"), ignore_errors=True)


def model_copy(model: Model) -> Model:
    made = Model()
    made.branches = {name: list(log) for name, log in model.branches.items()}
    made.labels = dict(model.labels)
    return made


def _rows(values: Content) -> pa.Table:
    return pa.table({"n": pa.array(values, pa.int64())})


TestRefs = Refs.TestCase
TestRefs.settings = settings(max_examples=12, stateful_step_count=12, deadline=None)
TestLocalRefs = LocalRefs.TestCase
TestLocalRefs.settings = settings(max_examples=3, stateful_step_count=10, deadline=None)


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_many_more_histories() -> None:
    class Long(Refs):
        pass

    case = Long.TestCase
    case.settings = settings(max_examples=400, stateful_step_count=30, deadline=None)
    case("runTest").runTest()
