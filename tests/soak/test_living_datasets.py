"""If this fails, edits, merges, restores, compactions and collections that meet faults lose a row, or repeat one.

The machine runs random histories on every kind of store, against a dictionary. Replies to writes are lost all the
time, and changes are killed at random operations. In the race, processes edit one branch while a collector runs.
"""

from __future__ import annotations

import itertools
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

import warpdata as wd
from tests.faults.scenes import link
from tests.stateful.test_edit_machine import BRANCHES, MODULUS, EditMachine
from warpdata.errors import ConflictError
from warpdata.session import connect
from warpdata.settings import load_settings
from warpdata.storage import Writer, open_store
from warpdata.testing import DropReplies, FaultyStore, KillAt, Killed, S3Endpoint, S3Server

_fresh = itertools.count()


class LivingMachine(EditMachine):
    """The machine of edits with restores, collections, kills and lost replies. Each history has a store of its own."""

    kind: ClassVar[str] = "memory"
    server: ClassVar[S3Endpoint | None] = None

    @initialize()
    def create(self) -> None:
        self.number = next(_fresh)
        self.directory = Path(tempfile.mkdtemp())
        self.store = self._open_store()
        super().create()
        self.log = {branch: [(self.open(branch).version, self.models[branch].copy())] for branch in self.models}

    def _open_store(self) -> Writer:
        if self.kind == "s3":
            assert self.server is not None
            return open_store(self.server.url(f"living-{self.number}"), self.server.settings())
        url = f"memory://living-{self.number}" if self.kind == "memory" else self.directory.as_uri()
        return open_store(url, load_settings())

    def make_session(self) -> Any:
        self.seeds = itertools.count(1)  # the same for each history, so that a failure can be repeated
        return link(FaultyStore(self.store, DropReplies(0.05, random.Random(0))))

    def teardown(self) -> None:
        shutil.rmtree(self.directory, ignore_errors=True)

    @rule(policy=st.sampled_from(["ours", "theirs"]))
    def merge(self, policy: str) -> None:
        """Rows of dev get other ids on main, so the model restores no version from before a merge."""
        super().merge(policy)
        self.log = {branch: [(self.open(branch).version, self.models[branch].copy())] for branch in self.models}

    @rule(branch=BRANCHES, back=st.integers(0, 6))
    def restore(self, branch: str, back: int) -> None:
        version, model = self.log[branch][-1 - back % len(self.log[branch])]
        self.open(branch).restore(version)
        self.models[branch] = model.copy()

    @rule(keep=st.sampled_from(["all", "last 100", "labels, pins, last 1000"]))
    def collect(self, keep: str) -> None:
        """No version that the model may restore goes. Writers that were killed may have a lease."""
        try:
            wd.gc(self.session, keep=keep, dry_run=False, wait_s=0)
        except ConflictError as error:
            if "still at work" not in error.message:
                raise

    @rule(branch=BRANCHES, modulus=MODULUS, at=st.integers(0, 40), when=st.sampled_from(["before", "after"]))
    def kill(self, branch: str, modulus: int, at: int, when: Any) -> None:
        """The change is there as a whole, or not at all."""
        dying = link(FaultyStore(self.store, KillAt(at, when)), next(self.seeds))
        before, after = self.models[branch], self.models[branch].copy()
        for n, row in after.rows.items():
            if n % modulus == 0:
                row["label"] = "killed"
        new = self._new_rows(1)
        after.rows |= {row["n"]: {"label": row["label"], "x": row["x"]} for row in new.to_pylist()}
        try:
            alive, self.session = self.session, dying
            with self.open(branch).edit("kill") as edit:
                edit.append("main", new)
                edit.update("main", f"n % {modulus} = 0", {"label": "killed"})
        except Killed:
            pass
        finally:
            self.session = alive
        found = set(self.open(branch).table().to_arrow()["n"].to_pylist())
        for row in new.to_pylist():
            if row["n"] not in found:
                self.models[branch] = before
                return
        for row in new.to_pylist():
            after.rows[row["n"]]["label"] = "killed" if row["n"] % modulus == 0 else row["label"]
        self.models[branch] = after

    def note(self, branch: str) -> None:
        version = self.open(branch).version
        if self.log[branch][-1][0] != version:
            self.log[branch].append((version, self.models[branch].copy()))


@contextmanager
def running(kind: str) -> Iterator[type[LivingMachine]]:
    """Return the machine for a kind of store."""
    if kind != "s3":
        yield type(f"{kind.title()}Machine", (LivingMachine,), {"kind": kind})
        return
    with S3Server() as server:
        yield type("S3Machine", (LivingMachine,), {"kind": kind, "server": server})


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("kind", "examples"), [("memory", 120), ("local", 80), ("s3", 30)])
def test_random_histories_under_faults(kind: str, examples: int) -> None:
    with running(kind) as machine:
        case = machine.TestCase
        case.settings = settings(max_examples=examples, stateful_step_count=25, deadline=None)
        case("runTest").runTest()


EDITOR = """
import random, sys
import warpdata as wd
from warpdata.errors import ConflictError
from warpdata.session import Session, connect
from warpdata.testing import DropReplies, FaultyStore

url, process, edits = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
plain = connect(url)
lossy = FaultyStore(plain.writer, DropReplies(0.05, random.Random(process)))
session = Session(lossy, lossy, plain.settings)
from warpdata.datasets import open_dataset
from warpdata.repository.catalog import parse_address
for step in range(edits):
    n = process * 1000 + step
    while True:
        try:
            with open_dataset(session, parse_address("a/b")).edit(f"{process}/{step}") as edit:
                edit.append("main", {"n": [n], "label": ["new"], "equal": [0]})
                if step:
                    edit.update("main", f"n = {n - 1}", {"label": "old"})
                if step > 1:
                    edit.delete("main", f"n = {n - 2}")
            break
        except ConflictError as error:
            print(error, file=sys.stderr)
    print(step, flush=True)
"""


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_processes_edit_while_a_collector_runs(tmp_path: Path) -> None:
    url, processes, edits = (tmp_path / "store").as_uri(), 8, 50
    wd.DatasetBuilder("a/b", url).add_table("main", {"n": [-1], "label": ["first"], "equal": [0]}).publish()
    started = [
        subprocess.Popen(
            [sys.executable, "-c", EDITOR, url, str(number), str(edits)],
            env=dict(os.environ),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(processes)
    ]
    collections, deleted = 0, 0
    session = connect(settings=replace(load_settings(), store_url=url))
    while any(each.poll() is None for each in started):
        try:
            report = wd.gc(session, keep="last 3", dry_run=False, wait_s=5).report
            collections, deleted = collections + 1, deleted + report.deleted_count
        except ConflictError as error:
            if "still at work" not in error.message:
                raise
    for each in started:
        output, errors = each.communicate(timeout=60)
        assert each.returncode == 0, errors[-2000:]
        assert len(output.splitlines()) == edits
    dataset = wd.dataset("a/b", store=url)
    messages = [entry.message for entry in dataset.history() if "/" in entry.message]
    assert sorted(messages) == sorted(f"{number}/{step}" for number in range(processes) for step in range(edits))
    rows = {row["n"]: row["label"] for row in dataset.table().to_arrow().to_pylist()}
    last = {number * 1000 + edits - 1: "new" for number in range(processes)}
    assert rows == {-1: "first", **last, **{n - 1: "old" for n in last}}
    assert len(set(dataset.table().sample_ids().tolist())) == dataset.table().count() == len(rows)
    assert not wd.verify(dataset).problems
    assert collections, "no collection ended"
    print(f"{collections} collections deleted {deleted} objects")
