"""If this fails, an upsert misses the row with its key, matches another one, or fails without a typed error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import warpdata as wd
from tests.edit.test_rebase import rows
from tests.edit.test_refusals import opened, publish
from warpdata.datasets import open_dataset
from warpdata.errors import BadInputError, SchemaMismatchError
from warpdata.repository.catalog import parse_address

NAN = float("nan")


@given(
    stored=st.lists(
        st.sampled_from([NAN, 0.0, -0.0, 1.0, None]), max_size=4, unique_by=lambda key: repr(key).lstrip("-")
    ),
    upserted=st.lists(st.sampled_from([NAN, 0.0, -0.0, 1.0, 2.0]), min_size=1, max_size=4),
)
@settings(max_examples=40, deadline=None)
def test_float_keys(stored: list[float | None], upserted: list[float]) -> None:
    """NaN is one key, and so are both zeros. A stored null is no key."""
    session = publish(pa.table({"k": pa.array([*stored, 7.0], pa.float64()), "id": range(len(stored) + 1)}))
    keys = [str(key + 0.0) for key in upserted]
    known = {str(key + 0.0) for key in stored if key is not None}
    with opened(session).edit() as edit:
        new = pa.table({"k": upserted, "id": range(100, 100 + len(keys))})
        if len(set(keys)) < len(keys):
            with pytest.raises(BadInputError, match="more than once"):
                edit.upsert("main", new, on="k")
            return
        assert edit.upsert("main", new, on="k") == (len(known & set(keys)), len(set(keys) - known))
    assert {r["id"] for r in rows(session) if r["k"] is not None and str(r["k"] + 0.0) in keys} == set(
        range(100, 100 + len(keys))
    )


@pytest.mark.parametrize("key", [[1], {"a": 1}], ids=["list", "struct"])
def test_nested_keys_are_refused(key: Any) -> None:
    session = publish(pa.table({"k": [key], "id": [1]}))
    with opened(session).edit() as edit, pytest.raises(BadInputError, match="cannot be a key"):
        edit.upsert("main", {"k": [key], "id": [2]}, on="k")


@pytest.mark.parametrize("key", [b"x", True, "ä", 2**60, pd.Timestamp("2026-01-01").to_pydatetime()], ids=str)
def test_kinds_of_keys(key: Any) -> None:
    session = publish(pa.table({"k": [key, None], "row": [1, 2], "match": [1, 2], "id": [1, 2]}))
    with opened(session).edit() as edit:
        assert edit.upsert("main", {"k": [key], "row": [1], "match": [1], "id": [3]}, on=["k", "row", "match"]) == (
            1,
            0,
        )
    assert [row["id"] for row in rows(session)] == [2, 3]


def test_keys_of_dictionaries() -> None:
    labels = pa.array(["a", "b", None]).dictionary_encode()
    session = publish(pa.table({"k": labels, "id": [1, 2, 3]}))
    with opened(session).edit() as edit:
        assert edit.upsert("main", {"k": ["b", "c"], "id": [5, 6]}, on="k") == (1, 1)
    assert [(row["id"], row["k"]) for row in rows(session)] == [(1, "a"), (3, None), (5, "b"), (6, "c")]


def test_data_frames_are_appended_and_upserted() -> None:
    """The texts of pandas and polars have other layouts, and pandas has one type for all integers."""
    session = publish(pa.table({"id": pa.array([1], pa.int32()), "label": ["a"], "x": pa.array([1.0], pa.float32())}))
    frame = {"id": [3], "label": ["c"], "x": [0.5]}
    with opened(session).edit() as edit:
        edit.append("main", pd.DataFrame({**frame, "id": [2]}))
        edit.append("main", pl.DataFrame(frame, schema={"id": pl.Int32, "label": pl.String, "x": pl.Float32}))
        edit.append("main", pl.DataFrame({**frame, "id": [4]}))  # 64 bits
        edit.upsert("main", pd.DataFrame({**frame, "label": ["d"]}), on="id")
        with pytest.raises(SchemaMismatchError, match="'id' is int32"):
            edit.append("main", pd.DataFrame({**frame, "id": [2**40]}))
        with pytest.raises(SchemaMismatchError, match="'more' is only"):
            edit.append("main", pd.DataFrame({**frame, "more": [1]}))
    assert [(row["id"], row["label"]) for row in rows(session)] == [(1, "a"), (2, "c"), (3, "d"), (4, "c")]


def test_references_of_another_artifact_are_refused(tmp_path: Path) -> None:
    """Without a check, a row would name the file of the same path in another artifact."""
    session = publish()
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "1.txt").write_text(name)
        builder = wd.DatasetBuilder(f"a/{name}", session).add_table("main", pa.table({"id": [1], "file": ["1.txt"]}))
        builder.add_artifact("raw", tmp_path / name).bind("main", "file", "raw").publish()
    one, two = (open_dataset(session, parse_address(f"a/{name}")) for name in ("one", "two"))
    with one.edit() as edit:
        with pytest.raises(BadInputError, match="files of another artifact"):
            edit.upsert("main", two.table(), on="id")
        assert edit.upsert("main", one.table(), on="id") == (1, 0)
