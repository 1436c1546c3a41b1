"""If this fails, a new column and rows that others write at the same time lose each other, or a value is made up."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import warpdata as wd
from tests.edit.test_rebase import rows
from tests.edit.test_refusals import opened, publish
from warpdata.errors import ConflictError, ErrorKind
from warpdata.settings import Settings

NEW: dict[str, list[Any]] = {"id": [9], "label": ["new"], "score": [0.5]}


def triple(batch: pa.RecordBatch) -> list[int]:
    return [number * 3 for number in batch["id"].to_pylist()]


def test_a_new_column_is_computed_for_rows_that_came_meanwhile() -> None:
    session = publish()
    with opened(session).edit() as late:
        late.add_column("main", "triple", triple, columns="id")
        late.add_column("main", "six", wd.expr("triple * 2"))
        with opened(session).edit() as edit:
            edit.append("main", NEW)
            edit.update("main", "id = 2", {"label": "two"})
            edit.delete("main", "id = 1")
    listed = rows(session)
    assert [(row["id"], row["triple"], row["six"]) for row in listed] == [
        (2, 6, 12),
        (3, 9, 18),
        (4, 12, 24),
        (9, 27, 54),
    ]
    assert listed[0]["label"] == "two"
    ids = opened(session).table().sample_ids().tolist()
    assert sorted(ids) == [1, 2, 3, 4]


def test_a_new_column_is_computed_for_compacted_rows_and_keeps_what_the_edit_set() -> None:
    session = publish()
    with opened(session).edit() as edit:
        edit.append("main", NEW)
    with opened(session).edit() as late:
        late.add_column("main", "triple", wd.expr("id * 3"))
        late.update("main", "id = 9", {"triple": 0})
        late.append("main", {**NEW, "id": [10], "triple": [1]})
        opened(session).compact(max_deleted=0)
    assert [(row["id"], row["triple"]) for row in rows(session)] == [(1, 3), (2, 6), (3, 9), (4, 12), (9, 0), (10, 1)]


def test_changed_rows_keep_the_values_of_a_column_that_came_meanwhile() -> None:
    session = publish()
    with opened(session).edit() as late:
        late.update("main", "id = 2", {"label": "two"})
        late.delete("main", "id = 3")
        with opened(session).edit() as edit:
            edit.add_column("main", "triple", wd.expr("id * 3"))
    assert [(row["id"], row["triple"]) for row in rows(session)] == [(1, 3), (2, 6), (4, 12)]
    assert rows(session)[1]["label"] == "two"


def test_appended_rows_without_a_column_that_came_meanwhile_are_refused() -> None:
    session = publish()
    late = opened(session).edit()
    late.append("main", NEW)
    with opened(session).edit() as edit:
        edit.add_column("main", "triple", wd.expr("id * 3"))
    before = opened(session).version
    with pytest.raises(ConflictError, match="'triple' was added to table 'main' meanwhile, and 1 new rows") as caught:
        late.save()
    assert caught.value.kind is ErrorKind.NEW_COLUMN
    late.discard()
    assert opened(session).version == before


def test_appended_rows_have_null_in_a_column_that_came_meanwhile_on_request() -> None:
    session = publish()
    with opened(session).edit(new_columns="null") as late:
        late.append(
            "main",
            {
                **NEW,
                "id": [
                    9,
                ],
                "label": ["new"],
            },
        )
        late.append("main", {**NEW, "id": [10]})
        late.delete("main", "id = 9")
        late.update("main", "id = 2", {"label": "two"})
        with opened(session).edit() as edit:
            edit.add_column("main", "triple", wd.expr("id * 3"))
            edit.add_column("main", "name", lambda batch: [str(n) for n in batch["id"].to_pylist()])
    listed = [(row["id"], row["triple"], row["name"]) for row in rows(session)]
    assert listed == [(1, 3, "1"), (2, 6, "2"), (3, 9, "3"), (4, 12, "4"), (10, None, None)]
    opened(session).compact(max_deleted=0)
    assert [(row["id"], row["triple"], row["name"]) for row in rows(session)] == listed


def test_a_column_is_refused_beside_rows_if_it_was_changed_again_in_the_edit() -> None:
    session = publish()
    late = opened(session).edit()
    late.add_column("main", "triple", wd.expr("id * 3"))
    late.rename_column("main", "triple", "thrice")
    with opened(session).edit() as edit:
        edit.append("main", NEW)
    with pytest.raises(ConflictError, match="cannot be computed") as caught:
        late.save()
    assert caught.value.kind is ErrorKind.NEW_COLUMN
    late.discard()


def test_a_function_of_files_is_not_called_for_rows_whose_files_came_meanwhile() -> None:
    session = publish(pa.table({"id": [1], "image": ["1.jpg"]}))
    builder = wd.DatasetBuilder("a/b", session)
    builder.add_table("main", pa.table({"id": [1], "image": ["1.jpg"]}))
    builder.add_artifact("raw", {"1.jpg": b"one"}).bind("main", "image", "raw", "file").publish()
    late = opened(session).edit()
    late.add_column("main", "size", lambda batch: [len(ref.read_bytes()) for ref in batch["image"].to_pylist()])
    with opened(session).edit() as edit:
        edit.add_files("raw", {"2.jpg": b"second"})
        edit.append("main", {"id": [2], "image": ["2.jpg"]})
    with pytest.raises(ConflictError, match="Add the column again"):
        late.save()
    late.discard()


def test_appends_of_threads_and_a_new_column_all_arrive(tmp_path: Path) -> None:
    """Appends know no column at first. A refused append begins again, with the column."""
    settings = Settings(store_url=(tmp_path / "store").as_uri(), cache_dir=tmp_path / "cache")
    wd.DatasetBuilder("a/b", settings=settings).add_table("main", pa.table({"n": [0]})).publish()
    wrong: list[BaseException] = []

    def append(first: int) -> None:
        try:
            for number in range(first, first + 4):
                opened_now = wd.dataset("a/b@main", settings=settings)
                row = {"n": [number], "double": [number * 2]}
                try:
                    with opened_now.edit() as edit:
                        edit.append("main", {name: row[name] for name in opened_now.table().schema().names})
                except ConflictError as error:
                    if error.kind is not ErrorKind.NEW_COLUMN:
                        raise
                    append_rest(number, number + 1)
        except BaseException as error:
            wrong.append(error)

    def append_rest(first: int, stop: int) -> None:
        for number in range(first, stop):
            with wd.dataset("a/b@main", settings=settings).edit() as edit:
                edit.append("main", {"n": [number], "double": [number * 2]})

    threads = [threading.Thread(target=append, args=(first,)) for first in (1, 11)]
    for thread in threads:
        thread.start()
    with wd.dataset("a/b@main", settings=settings).edit() as edit:
        edit.add_column("main", "double", wd.expr("n * 2"))
    for thread in threads:
        thread.join()
    assert not wrong
    listed = wd.dataset("a/b", settings=settings).table().to_arrow().to_pylist()
    assert sorted(row["n"] for row in listed) == [0, 1, 2, 3, 4, 11, 12, 13, 14]
    assert all(row["double"] == row["n"] * 2 for row in listed)
