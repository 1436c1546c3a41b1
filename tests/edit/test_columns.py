"""If this fails, a change of columns mixes up their order, their values or their names, or repeats finished work."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import warpdata as wd
from tests.edit.test_refusals import PETS, opened, publish
from warpdata.session import Session


def column(session: Session, name: str) -> list[Any]:
    found: list[Any] = opened(session).table().to_arrow()[name].to_pylist()
    return found


def test_cast_and_rename_keep_the_order_of_columns() -> None:
    session = publish()
    with opened(session).edit() as edit:
        edit.cast("main", "id", "int32")
        edit.rename_column("main", "label", "name")
        edit.cast("main", "name", "large_string")
    schema = opened(session).table().schema()
    assert schema.names == ["id", "name", "score"]
    assert [field.type for field in schema] == [pa.int32(), pa.large_string(), pa.float64()]
    assert opened(session).table().to_arrow().to_pydict() == {
        **{k: PETS[k] for k in ("id", "score")},
        "name": PETS["label"],
    }


def test_a_name_is_free_after_its_column_was_dropped_or_renamed() -> None:
    session = publish()
    with opened(session).edit() as edit:
        edit.drop_column("main", "label")
        edit.add_column("main", "label", wd.expr("id * 10"))
        edit.rename_column("main", "score", "points")
        edit.add_column("main", "score", lambda batch: [str(n) for n in batch["id"].to_pylist()], columns="id")
    assert opened(session).table().schema().names == ["id", "points", "label", "score"]
    assert column(session, "label") == [10, 20, 30, 40]
    assert column(session, "points") == PETS["score"]
    assert column(session, "score") == ["1", "2", "3", "4"]
    with opened(session).edit() as edit:
        edit.append("main", {"id": [5], "points": [2.5], "label": [50], "score": ["5"]})
        edit.update("main", "id = 1", {"label": 11})
    opened(session).compact()
    assert sorted(column(session, "label")) == [11, 20, 30, 40, 50]
    assert column(session, "score") == ["2", "3", "4", "5", "1"]


def test_add_column_goes_on_where_it_was_interrupted() -> None:
    session = publish()
    for start in (10, 20):
        with opened(session).edit() as edit:
            edit.append("main", {"id": [start], "label": ["x"], "score": [0.0]})
    seen: list[int] = []

    def make(batch: pa.RecordBatch) -> list[int]:
        ids = batch["id"].to_pylist()
        if 20 in ids and 20 not in seen:
            seen.append(20)
            raise RuntimeError("no memory left")
        seen.extend(ids)
        return [n * 2 for n in ids]

    for _ in range(2):
        try:
            with opened(session).edit() as edit:
                edit.add_column("main", "twice", make, columns="id", resume="twice")
        except RuntimeError:
            assert "twice" not in opened(session).table().schema().names
    assert column(session, "twice") == [2, 4, 6, 8, 20, 40]
    assert sorted(seen) == [1, 2, 3, 4, 10, 20, 20]


def test_finished_parts_of_another_function_are_not_used() -> None:
    session = publish()
    with opened(session).edit() as edit:
        edit.append("main", {"id": [7], "label": ["x"], "score": [0.0]})

    def interrupted(batch: pa.RecordBatch) -> list[int]:
        if 7 in batch["id"].to_pylist():
            raise RuntimeError("no memory left")
        return [n * 2 for n in batch["id"].to_pylist()]

    with pytest.raises(RuntimeError), opened(session).edit() as edit:
        edit.add_column("main", "made", interrupted, columns="id", resume="one")
    with opened(session).edit() as edit:
        edit.add_column("main", "made", lambda b: [n * 3 for n in b["id"].to_pylist()], columns="id", resume="one")
    assert column(session, "made") == [3, 6, 9, 12, 21]


def test_finished_parts_are_not_used_for_other_values_and_go_after_the_commit() -> None:
    session = publish()
    with opened(session).edit() as edit:
        edit.append("main", {"id": [7], "label": ["x"], "score": [7.0]})
    is_whole = [False]

    def double(batch: pa.RecordBatch) -> list[float]:
        if not is_whole[0] and 7.0 in batch["score"].to_pylist():
            raise RuntimeError("no memory left")
        return [n * 2 for n in batch["score"].to_pylist()]

    with opened(session).edit() as edit:
        edit.cast("main", "score", "float32")
    with pytest.raises(RuntimeError), opened(session).edit() as edit:
        edit.add_column("main", "made", double, columns="score", resume="two")
    with opened(session).edit() as edit:
        edit.drop_column("main", "score")
        edit.add_column("main", "score", lambda b: [n * 100.0 for n in b["id"].to_pylist()])
    is_whole[0] = True
    with opened(session).edit() as edit:
        edit.add_column("main", "made", double, columns="score", resume="two")
        (finished,) = edit._resume_dirs
        assert len(list(finished.iterdir())) == 3  # the old part, and two new ones
    assert column(session, "made") == [200, 400, 600, 800, 1400]
    assert not finished.exists()


def test_views_of_text_become_text() -> None:
    session = publish()
    with opened(session).edit() as edit:
        edit.add_column("main", "view", lambda batch: pa.array(["x"] * batch.num_rows, pa.string_view()))
    assert opened(session).table().schema().field("view").type == pa.string()
    assert column(session, "view") == ["x"] * 4


def test_deleted_rows_are_not_computed_and_stay_deleted() -> None:
    session = publish()
    seen: list[int] = []

    def make(batch: pa.RecordBatch) -> pa.Array:
        seen.extend(batch["id"].to_pylist())
        return pa.array(batch["score"])

    with opened(session).edit() as edit:
        edit.delete("main", "id IN (1, 3)")
        edit.add_column("main", "copy", make, batch_size=1)
    assert seen == [2, 4]
    assert column(session, "copy") == [1.0, 2.0]
    assert column(session, "id") == [2, 4]


@pytest.mark.parametrize("kind", ["binary", "float16", "date32"])
def test_columns_take_any_type(kind: str) -> None:
    session = publish()
    with opened(session).edit() as edit:
        edit.add_column("main", "n", lambda batch: pa.nulls(len(batch), pa.type_for_alias(kind)))
    assert opened(session).table().schema().field("n").type == pa.type_for_alias(kind)
