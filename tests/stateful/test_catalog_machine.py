"""If this fails, some order of commits, branches and labels makes the catalog disagree with a dictionary.

The machine works on the catalog alone: manifests have no blobs, and every write may lose its reply.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule

from tests.faults.scenes import memory
from warpdata.errors import AlreadyExistsError, ConflictError, NotFoundError, WriteUnknownError
from warpdata.repository.catalog import (
    MAIN,
    Address,
    Catalog,
    Head,
    Transaction,
    VersionRef,
    commit,
    create_branch,
    create_label,
    find_transaction,
)
from warpdata.repository.manifest import Manifest, TableEntry, page_shards, version_of
from warpdata.testing import DropReplies, FaultyStore

DATASET = "a/b"
TIME = "2026-01-01T00:00:00.000Z"
NAMES = st.sampled_from(["v1", "v2", "exp", "dev"])
_stores = itertools.count()
T = TypeVar("T")


def manifest(number: int) -> Manifest:
    """Return a manifest that differs for each number."""
    return Manifest(DATASET, tables={f"t{number}": TableEntry(page_shards(()).shards)})


class CatalogMachine(RuleBasedStateMachine):
    """The model: a branch is a list of (txn_id, version), and a label is a version."""

    branches = Bundle("branches")

    @initialize(target=branches)
    def create_store(self) -> str:
        self.store = memory(f"catalog-machine-{next(_stores)}")
        self.writer = FaultyStore(self.store, DropReplies(0.1, random.Random(next(_stores))))
        self.txn_ids = (f"txn-{number}" for number in itertools.count())
        self.logs: dict[str, list[tuple[str, str]]] = {MAIN: []}
        self.labels: dict[str, str] = {}
        self.commit_to(MAIN, 0)
        return MAIN

    @rule(branch=branches, number=st.integers(0, 5))
    def commit_to(self, branch: str, number: int) -> None:
        self._commit(branch, number, rival=None)

    @rule(branch=branches, number=st.integers(0, 5), rival=st.integers(6, 9))
    def commit_against_a_rival(self, branch: str, number: int, rival: int) -> None:
        """Another writer commits after this one has read the head. Both commits must be in the log."""
        self._commit(branch, number, rival)

    @rule(branch=branches, number=st.integers(0, 5))
    def commit_with_a_wrong_expectation(self, branch: str, number: int) -> None:
        def refuse(head: Head | None) -> Manifest | None:
            raise ConflictError("the head moved")

        with pytest.raises(ConflictError):
            commit(self.writer, self._transaction(branch), refuse, _no_pause)

    @rule(branch=branches, name=NAMES)
    def label(self, branch: str, name: str) -> None:
        target = self._resolve(branch)
        if name in self.logs or self.labels.get(name, target.version) != target.version:
            with pytest.raises(AlreadyExistsError):
                create_label(self.writer, target, name, TIME, _no_pause)
        else:
            self._repeat(lambda: create_label(self.writer, target, name, TIME, _no_pause))
            self.labels[name] = target.version

    @rule(target=branches, branch=branches, name=NAMES)
    def fork(self, branch: str, name: str) -> str:
        target, txn_id = self._resolve(branch), next(self.txn_ids)
        if name in self.logs or name in self.labels:
            with pytest.raises(AlreadyExistsError):
                create_branch(self.writer, target, name, txn_id, _no_pause)
            return branch
        self._repeat(lambda: create_branch(self.writer, target, name, txn_id, _no_pause))
        self.logs[name] = [*self.logs[branch]]
        return name

    @invariant()
    def catalog_equals_the_model(self) -> None:
        if not hasattr(self, "logs"):
            return
        catalog = Catalog(self.store)
        assert sorted(catalog.branches(DATASET)) == sorted(self.logs)
        assert {label.name: label.version for label in catalog.labels(DATASET)} == self.labels
        assert catalog.datasets() == [DATASET]
        for branch, log in self.logs.items():
            head = catalog.resolve(Address(DATASET, branch))
            history = [(entry.commit.txn_id, entry.commit.version) for entry in catalog.history(head)]
            assert history == log[::-1]
            assert catalog.open(Address(DATASET, None if branch == MAIN else branch))[0].version == log[-1][1]
        for name, version in self.labels.items():
            assert catalog.resolve(Address(DATASET, name)).version == version
            assert catalog.resolve(Address(DATASET, version[:12])).version == version
        with pytest.raises(NotFoundError):
            catalog.resolve(Address(DATASET, "never"))
        for txn_id, version in self.logs[MAIN]:
            found = find_transaction(self.store, DATASET, MAIN, txn_id)
            assert found is not None
            assert found.commit.version == version
        assert find_transaction(self.store, DATASET, MAIN, "never") is None

    def _commit(self, branch: str, number: int, rival: int | None) -> None:
        rivals = [] if rival is None else [rival]

        def propose(head: Head | None) -> Manifest | None:
            if rivals:
                self._commit(branch, rivals.pop(), None)
            built = manifest(number)
            return None if head is not None and head.version == version_of(built) else built

        txn = self._transaction(branch)
        done = self._repeat(lambda: commit(self.writer, txn, propose, _no_pause))
        log = self.logs[branch]
        if done.changed:
            assert done.sequence > 1 or branch == MAIN
            log.append((txn.txn_id, done.version))
        else:
            assert done.version in [version for _, version in log[-2:]], "unchanged, before or after the rival"

    def _repeat(self, write: Callable[[], T]) -> T:
        """Repeat a write after six lost replies in a row, which committed nothing."""
        try:
            return write()
        except WriteUnknownError:
            return write()

    def _transaction(self, branch: str) -> Transaction:
        return Transaction(DATASET, branch, next(self.txn_ids), "replace", "author", "", TIME)

    def _resolve(self, branch: str) -> VersionRef:
        return Catalog(self.store).resolve(Address(DATASET, branch))


def _no_pause(_attempt: int) -> None:
    """Retry at once."""


TestCatalog = CatalogMachine.TestCase
TestCatalog.settings = settings(max_examples=25, stateful_step_count=15, deadline=None)
