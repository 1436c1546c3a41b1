"""If this fails, some order of edits, branches, merges and compactions leaves other rows than a dictionary has.

Every row has a unique number `n`, by which the model knows it. Sample ids must stay with their rows. Edits begin on
versions that may not be the head any more, so most of them are merged into later ones.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

import warpdata as wd
from tests.faults.scenes import link, memory
from warpdata.datasets import Dataset, open_dataset
from warpdata.errors import ConflictError
from warpdata.repository.catalog import parse_address
from warpdata.session import Session

_stores = itertools.count()
ROWS = st.integers(1, 5)
MODULUS = st.integers(2, 5)
BRANCHES = st.sampled_from(["main", "dev"])


@dataclass
class Model:
    """The rows of a branch by `n`: the other values, and the sample id."""

    rows: dict[int, dict[str, Any]] = field(default_factory=dict)
    ids: dict[int, int] = field(default_factory=dict)

    def copy(self) -> Model:
        return Model({n: dict(row) for n, row in self.rows.items()}, dict(self.ids))


class EditMachine(RuleBasedStateMachine):
    @initialize()
    def create(self) -> None:
        self.session = self.make_session()
        self.next_n = 0
        wd.DatasetBuilder("a/b", self.session).add_table("main", self._new_rows(6)).publish()
        first = Model({n: {"label": "new", "x": n * 0.5} for n in range(6)})
        self.models = {"main": first, "dev": first.copy()}
        self.open("main").branch("dev")
        self.base = first.copy()
        """The rows at the last commit that both branches have."""
        self.is_merged = True

    def make_session(self) -> Session:
        return link(memory(f"edit-machine-{next(_stores)}"))

    def _new_rows(self, count: int) -> pa.Table:
        numbers = list(range(self.next_n, self.next_n + count))
        self.next_n += count
        return pa.table({"n": numbers, "label": ["new"] * count, "x": [n * 0.5 for n in numbers]})

    def open(self, branch: str) -> Dataset:
        return open_dataset(self.session, parse_address(f"a/b@{branch}"))

    @rule(branch=BRANCHES, count=ROWS)
    def append(self, branch: str, count: int) -> None:
        rows = self._new_rows(count)
        with self.open(branch).edit("append") as edit:
            edit.append("main", rows)
        self.models[branch].rows |= {row["n"]: {"label": row["label"], "x": row["x"]} for row in rows.to_pylist()}

    @rule(branch=BRANCHES, modulus=MODULUS)
    def delete(self, branch: str, modulus: int) -> None:
        model = self.models[branch]
        gone = [n for n in model.rows if n % modulus == 1]
        with self.open(branch).edit("delete") as edit:
            assert edit.delete("main", f"n % {modulus} = 1") == len(gone)
        for n in gone:
            del model.rows[n]
            model.ids.pop(n, None)

    @rule(branch=BRANCHES, modulus=MODULUS, label=st.sampled_from(["cat", "dog"]))
    def update(self, branch: str, modulus: int, label: str) -> None:
        model = self.models[branch]
        with self.open(branch).edit("update") as edit:
            edit.update("main", f"n % {modulus} = 0", {"label": label, "x": wd.expr("x + 1")})
        for n, row in model.rows.items():
            if n % modulus == 0:
                row.update(label=label, x=row["x"] + 1)

    @rule(branch=BRANCHES, count=ROWS)
    def upsert(self, branch: str, count: int) -> None:
        model = self.models[branch]
        known = sorted(model.rows)[:count]
        new = self._new_rows(1)
        given = pa.concat_tables([pa.table({"n": known, "label": ["up"] * len(known), "x": [0.0] * len(known)}), new])
        with self.open(branch).edit("upsert") as edit:
            assert edit.upsert("main", given.cast(new.schema), on="n") == (len(known), 1)
        for row in given.to_pylist():
            model.rows[row["n"]] = {"label": row["label"], "x": row["x"]}

    @rule(branch=BRANCHES, first=ROWS, modulus=MODULUS)
    def two_edits_at_once(self, branch: str, first: int, modulus: int) -> None:
        """Both begin on the same version. The second is merged, or refused as a whole."""
        model, rows = self.models[branch], self._new_rows(first)
        one, other = self.open(branch).edit("one"), self.open(branch).edit("other")
        with other:
            other.delete("main", f"n % {modulus} = 2")
            with one:
                one.append("main", rows)
                one.update("main", "label = 'new'", {"label": "old"})
            model.rows |= {row["n"]: {"label": "new", "x": row["x"]} for row in rows.to_pylist()}
            contested = False
            for n, row in model.rows.items():
                if row["label"] == "new":
                    row["label"] = "old"
                    contested |= n % modulus == 2 and n not in rows["n"].to_pylist()
            try:
                other.save()
            except ConflictError:
                assert contested
                other.discard()
                return
        for n in [n for n in model.rows if n % modulus == 2 and n not in rows["n"].to_pylist()]:
            del model.rows[n]
            model.ids.pop(n, None)

    @rule(branch=BRANCHES, max_deleted=st.sampled_from([0.0, 0.5]))
    def compact(self, branch: str, max_deleted: float) -> None:
        self.open(branch).compact(max_deleted=max_deleted)

    @rule(policy=st.sampled_from(["ours", "theirs"]))
    def merge(self, policy: str) -> None:
        """Merge dev into main, then continue dev from there."""
        ours, theirs = self.models["main"], self.models["dev"]
        self.open("main").merge("dev", policy=policy)  # type: ignore[arg-type]
        merged = _merge(self.base.rows, ours.rows, theirs.rows, policy)
        kept = {n: sample for n, sample in ours.ids.items() if n in merged}
        self.models["main"] = Model(merged, kept)
        self.open("dev").merge("main")
        self.models["dev"] = self.models["main"].copy()
        self.base = self.models["main"].copy()

    @invariant()
    def branches_have_their_rows(self) -> None:
        for branch, model in self.models.items():
            table = self.open(branch).table()
            found = {row.pop("n"): row for row in table.to_arrow().to_pylist()}
            assert found == model.rows
            assert table.count() == len(found)
            ids = dict(zip(table.to_arrow()["n"].to_pylist(), table.sample_ids().tolist(), strict=True))
            assert len(set(ids.values())) == len(ids)
            assert {n: ids[n] for n in model.ids} == model.ids
            model.ids = ids
            self.note(branch)

    def note(self, branch: str) -> None:
        """Called when a branch was found to have its rows."""


def _merge(
    base: dict[int, dict[str, Any]], ours: dict[int, dict[str, Any]], theirs: dict[int, dict[str, Any]], policy: str
) -> dict[int, dict[str, Any]]:
    """Merge by row and column, as the specification says."""
    out: dict[int, dict[str, Any]] = {}
    for n in ours.keys() | theirs.keys():
        was, mine, other = base.get(n), ours.get(n), theirs.get(n)
        kept: dict[str, Any] | None
        if other == was or mine == other:
            kept = mine
        elif mine == was:
            kept = other
        elif mine is None or other is None or was is None:
            kept = mine if policy == "ours" else other
        else:
            kept = {}
            for name in mine:
                if other[name] == was[name] or (mine[name] != was[name] and policy == "ours"):
                    kept[name] = mine[name]
                else:
                    kept[name] = other[name]
        if kept is not None:
            out[n] = kept
    return out


TestEditMachine = EditMachine.TestCase
TestEditMachine.settings = settings(max_examples=15, stateful_step_count=12, deadline=None)
TestEditMachine.pytestmark = [pytest.mark.timeout(300)]  # type: ignore[attr-defined]
