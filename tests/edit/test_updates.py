"""If these fail, an update changes other rows than its filter keeps, or loses their order, values or ids."""

from __future__ import annotations

import itertools
import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import warpdata as wd
from tests.faults.scenes import link, memory
from warpdata.datasets import Dataset, open_dataset
from warpdata.repository.catalog import parse_address
from warpdata.session import Session

_stores = itertools.count()
ROWS = 400


def _publish(group_rows: int) -> Session:
    session = link(memory(f"updates-{next(_stores)}"))
    rng = np.random.default_rng(1)
    rows = {"n": np.arange(ROWS), "x": rng.random(ROWS), "label": pa.array([f"label {n % 3}" for n in range(ROWS)])}
    batches = pa.table(rows).to_batches(max_chunksize=group_rows)
    builder = wd.DatasetBuilder("a/b", session).add_table("main", [pa.Table.from_batches([batch]) for batch in batches])
    builder.publish()
    return session


def _open(session: Session) -> Dataset:
    return open_dataset(session, parse_address("a/b"))


def _rows(dataset: Dataset) -> dict[int, dict[str, Any]]:
    """Return the rows by sample id."""
    table = dataset.table()
    return dict(zip(table.sample_ids().tolist(), table.to_arrow().to_pylist(), strict=True))


@given(st.lists(st.tuples(st.integers(2, 60), st.integers(0, 5)), min_size=1, max_size=4), st.sampled_from([50, ROWS]))
def test_updates_equal_a_dictionary(updates: list[tuple[int, int]], group_rows: int) -> None:
    session = _publish(group_rows)
    model = _rows(_open(session))
    for step, (modulus, rest) in enumerate(updates):
        with _open(session).edit() as edit:
            where = f"n % {modulus} = {rest} AND label <> 'label 9'"
            count = edit.update("main", where, {"x": wd.expr("x + n"), "label": f"step {step}"})
        changed = [row for row in model.values() if row["n"] % modulus == rest]
        assert count == len(changed)
        for row in changed:
            row |= {"x": row["x"] + row["n"], "label": f"step {step}"}
        assert _rows(_open(session)) == model


def test_a_scan_with_numbers_equals_numbers_and_rows() -> None:
    session = _publish(64)
    with _open(session).edit() as edit:
        edit.delete("main", "n % 7 = 0")
    table = _open(session).table().filter("x > 0.3 AND n % 2 = 1")
    found = list(table.numbered_rows())
    assert np.concatenate([rows for rows, _ in found]).tolist() == table.row_numbers().tolist()
    assert pa.concat_tables([rows for _, rows in found]).to_pylist() == table.to_arrow().to_pylist()


@pytest.mark.parametrize("where", ["n = -1", "x > 2 AND n % 3 = 0"])
def test_an_update_of_no_rows_changes_nothing(where: str) -> None:
    session = _publish(64)
    before = _open(session)
    with before.edit() as edit:
        assert edit.update("main", where, {"x": 1.0}) == 0
    assert edit.version == before.version


def test_text_with_few_values_is_taken_like_any_other() -> None:
    """Taking rows decodes such text as dictionaries."""
    session = _publish(ROWS)
    table = _open(session).table()
    whole = table.to_arrow()
    for count in (1, 7, ROWS - 1):
        rows = sorted(random.Random(count).sample(range(ROWS), count))
        assert table.take(rows).equals(whole.take(rows))
