"""If this fails, an edit accepts input that it cannot keep, refuses it without a typed error, or changes the branch."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import warpdata as wd
from tests.faults.scenes import link, memory
from warpdata.datasets import Dataset, open_dataset
from warpdata.edit import Edit
from warpdata.errors import (
    AlreadyExistsError,
    BadInputError,
    ColumnNotFoundError,
    NotFoundError,
    SchemaMismatchError,
    WarpError,
)
from warpdata.repository.catalog import parse_address
from warpdata.session import Session

_fresh = itertools.count()
PETS = {"id": [1, 2, 3, 4], "label": ["1", "2", "cta", None], "score": [0.5, 1.0, 1.5, 2.0]}


def publish(rows: pa.Table | None = None) -> Session:
    session = link(memory(f"refusals-{next(_fresh)}"))
    wd.DatasetBuilder("a/b", session).add_table("main", pa.table(PETS) if rows is None else rows).publish()
    return session


def opened(session: Session, ref: str = "main") -> Dataset:
    return open_dataset(session, parse_address(f"a/b@{ref}"))


@pytest.fixture
def session() -> Session:
    return publish()


def given(**columns: Any) -> pa.Table:
    return pa.table({"id": [9], "label": ["new"], "score": [0.0], **columns})


REFUSALS: dict[str, tuple[Callable[[Edit], Any], type[WarpError], str]] = {
    "append: other columns": (lambda e: e.append("main", pa.table({"x": [1]})), SchemaMismatchError, "'x'"),
    "append: other type": (lambda e: e.append("main", given(id=["one"])), SchemaMismatchError, "id"),
    "append: no rows at all": (lambda e: e.append("main", []), BadInputError, "main"),
    "append: not a table": (lambda e: e.append("main", 7), BadInputError, "int"),
    "delete: unknown table": (lambda e: e.delete("mian", "id = 1"), NotFoundError, "mian"),
    "delete: unknown column": (lambda e: e.delete("main", "idd = 1"), WarpError, "idd"),
    "delete: not SQL": (lambda e: e.delete("main", "id = = 1"), BadInputError, "id = = 1"),
    "delete: no condition": (lambda e: e.delete("main", "id + 1"), BadInputError, "id + 1"),
    "update: unknown table": (lambda e: e.update("mian", None, {"id": 1}), NotFoundError, "mian"),
    "update: unknown column": (lambda e: e.update("main", None, {"lable": "x"}), ColumnNotFoundError, "lable"),
    "update: nothing to set": (lambda e: e.update("main", None, {}), BadInputError, "column"),
    "update: other type": (lambda e: e.update("main", None, {"id": "x"}), SchemaMismatchError, "'x'"),
    "update: too large": (lambda e: e.update("main", None, {"id": 2**70}), SchemaMismatchError, str(2**70)),
    "update: aggregate": (lambda e: e.update("main", None, {"id": wd.expr("sum(id)")}), BadInputError, "sum(id)"),
    "update: unknown column in SQL": (lambda e: e.update("main", None, {"id": wd.expr("idd")}), WarpError, "idd"),
    "update: failing SQL": (
        lambda e: e.update("main", None, {"id": wd.expr("CAST(label AS INTEGER)")}),
        BadInputError,
        "CAST(label AS INTEGER)",
    ),
    "update: result of other type": (lambda e: e.update("main", None, {"id": wd.expr("label")}), BadInputError, "id"),
    "upsert: unknown table": (lambda e: e.upsert("mian", given(), on="id"), NotFoundError, "mian"),
    "upsert: unknown key": (lambda e: e.upsert("main", given(), on="key"), ColumnNotFoundError, "key"),
    "upsert: null key": (
        lambda e: e.upsert("main", given(label=pa.nulls(1, pa.string())), on="label"),
        BadInputError,
        "label",
    ),
    "upsert: repeated key": (
        lambda e: e.upsert("main", pa.concat_tables([given(), given()]), on="id"),
        BadInputError,
        "{'id': 9}",
    ),
    "upsert: missing column": (lambda e: e.upsert("main", pa.table({"id": [1]}), on="id"), BadInputError, "label"),
    "add_column: exists": (lambda e: e.add_column("main", "Label", wd.expr("id")), AlreadyExistsError, "Label"),
    "add_column: no name": (lambda e: e.add_column("main", "", wd.expr("id")), BadInputError, "''"),
    "add_column: aggregate": (lambda e: e.add_column("main", "n", wd.expr("count(*)")), BadInputError, "count"),
    "add_column: unknown input": (
        lambda e: e.add_column("main", "n", lambda batch: batch["x"], columns=["x"]),
        ColumnNotFoundError,
        "x",
    ),
    "add_column: too few values": (lambda e: e.add_column("main", "n", lambda _: [1]), BadInputError, "1 values for 4"),
    "add_column: no values": (lambda e: e.add_column("main", "n", lambda _: None), BadInputError, "'n'"),
    "add_column: other type": (
        lambda e: e.add_column("main", "n", lambda batch: ["x"] * len(batch), type="int32"),
        SchemaMismatchError,
        "int32",
    ),
    "add_column: unknown type": (
        lambda e: e.add_column("main", "n", wd.expr("id"), type="nonsense"),
        BadInputError,
        "nonsense",
    ),
    "drop_column: unknown": (lambda e: e.drop_column("main", "lable"), ColumnNotFoundError, "lable"),
    "rename_column: unknown": (lambda e: e.rename_column("main", "lable", "x"), ColumnNotFoundError, "lable"),
    "rename_column: exists": (lambda e: e.rename_column("main", "label", "id"), AlreadyExistsError, "id"),
    "cast: unknown": (lambda e: e.cast("main", "lable", "int64"), ColumnNotFoundError, "lable"),
    "cast: value does not fit": (lambda e: e.cast("main", "label", "int64"), SchemaMismatchError, "'cta'"),
    "cast: fraction would be lost": (lambda e: e.cast("main", "score", "int64"), SchemaMismatchError, "0.5"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_bad_input_is_refused_with_its_value(name: str, session: Session) -> None:
    step, expected, named = REFUSALS[name]
    before = {info.key for info in session.writer.list_objects("")}
    with pytest.raises(expected) as caught, opened(session).edit() as edit:
        step(edit)
    assert named in str(caught.value)
    assert {info.key for info in session.writer.list_objects("")} == before


def test_a_key_that_the_table_has_twice_is_refused() -> None:
    session = publish(pa.table({"id": [1, 1], "x": [0, 1]}))
    with pytest.raises(BadInputError, match=r"several rows .* \{'id': 1\}"), opened(session).edit() as edit:
        edit.upsert("main", {"id": [1], "x": [5]}, on="id")


def test_only_columns_of_a_table_stay() -> None:
    session = publish(pa.table({"x": [1]}))
    with pytest.raises(BadInputError, match="only column"), opened(session).edit() as edit:
        edit.drop_column("main", "x")


def test_an_edit_that_ended_takes_no_more_changes(session: Session) -> None:
    with opened(session).edit() as edit:
        edit.delete("main", "id = 1")
    with pytest.raises(BadInputError, match="already committed"):
        edit.delete("main", "id = 2")


def test_a_version_cannot_be_edited_without_a_branch(session: Session) -> None:
    with pytest.raises(BadInputError, match="branch"):
        opened(session, opened(session).version).edit()


def test_an_unknown_policy_is_refused(session: Session) -> None:
    opened(session).branch("dev")
    for ref in ("dev", "main"):
        with opened(session, ref).edit() as edit:
            edit.append("main", given())
    with pytest.raises(BadInputError, match="mine"):
        opened(session).merge("dev", policy="mine")  # type: ignore[arg-type]


def test_a_reference_to_an_unknown_file_is_refused_before_anything_is_written() -> None:
    session = link(memory(f"refusals-{next(_fresh)}"))
    rows = pa.table({"id": [1, 2], "image": ["a.jpg", "b.jpg"]})
    builder = wd.DatasetBuilder("a/b", session).add_table("main", rows)
    builder.add_artifact("raw", {"a.jpg": b"a", "b.jpg": b"b"}).bind("main", "image", "raw").publish()
    before = {info.key for info in session.writer.list_objects("") if not info.key.startswith("leases/")}
    with pytest.raises(BadInputError, match=r"none\.jpg"), opened(session).edit() as edit:
        edit.update("main", "id = 1", {"image": "none.jpg"})
    with pytest.raises(BadInputError, match=r"none\.jpg"), opened(session).edit() as edit:
        edit.append("main", {"id": [3], "image": ["none.jpg"]})
    after = {info.key for info in session.writer.list_objects("")}
    assert not {key for key in after - before if "/blobs/" in key or "/heads/" in key or "/commits/" in key}
    with opened(session).edit() as edit:
        assert edit.update("main", "id = 1", {"image": "b.jpg"}) == 1
        edit.rename_column("main", "image", "photo")
    assert [ref.read_bytes() for ref in opened(session).table().to_arrow()["photo"].to_pylist()] == [b"b", b"b"]
