"""If this fails, changes that fit together are refused as conflicts, or merged into rows that cannot be read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import warpdata as wd
from tests.edit.test_refusals import opened, publish
from warpdata.datasets.refs import execute_removal, plan_removal
from warpdata.edit.sample_diff import same_value
from warpdata.errors import ConflictError
from warpdata.repository.catalog import parse_address
from warpdata.session import Session

NAN = float("nan")
NEW_ROW: dict[str, list[Any]] = {"id": [5], "label": ["five"], "score": [0.0]}


def rows(session: Session) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = opened(session).table().to_arrow().to_pylist()
    return sorted(listed, key=lambda row: row["id"])


def test_rows_with_nan_that_a_compaction_moved_are_deleted() -> None:
    session = publish(pa.table({"id": [1, 2, 3], "x": [NAN, NAN, 1.0]}))
    with opened(session).edit() as edit:
        edit.append("main", {"id": [4], "x": [NAN]})
    with opened(session).edit() as late:
        late.delete("main", "id = 4")
        opened(session).compact(max_deleted=0)
    assert [row["id"] for row in rows(session)] == [1, 2, 3]


def test_rows_with_nan_in_a_list_that_a_compaction_moved_are_updated() -> None:
    session = publish(pa.table({"id": [1, 2], "x": [[NAN, 1.0], [2.0]], "label": ["a", "b"]}))
    with opened(session).edit() as edit:
        edit.append("main", {"id": [4], "x": [[NAN]], "label": ["a"]})
    with opened(session).edit() as late:
        late.update("main", "id = 4", {"label": "c"})
        opened(session).compact(max_deleted=0)
    assert rows(session)[-1]["label"] == "c"


def test_equality_of_cells() -> None:
    assert same_value({"a": [NAN, (1, NAN)]}, {"a": [float("nan"), (1, float("nan"))]})
    assert not same_value([NAN], [1.0])
    assert not same_value([1.0], [1.0, 2.0])
    assert not same_value({"a": 1}, {"b": 1})
    assert not same_value(None, {"a": 1})


def test_rows_are_appended_and_updated_beside_a_compaction_after_a_rename() -> None:
    session = renamed()
    with opened(session).edit() as late:
        late.append("main", {"id": [9], "name": ["n"], "score": [0.0]})
        late.update("main", "id = 2", {"name": "two"})
        opened(session).compact(max_deleted=0)
    assert named(session) == [(2, "two"), (3, "cta"), (4, None), (9, "n")]


def test_a_branch_that_was_compacted_after_a_rename_is_merged() -> None:
    session = renamed()
    opened(session).branch("dev")
    opened(session, "dev").compact(max_deleted=0)
    for branch, number in (("dev", 8), ("main", 9)):
        with opened(session, branch).edit() as edit:
            edit.append("main", {"id": [number], "name": [branch], "score": [0.0]})
    opened(session).merge("dev")
    assert named(session) == [(2, "2"), (3, "cta"), (4, None), (8, "dev"), (9, "main")]


def test_a_forgotten_list_of_schema_changes_is_a_conflict(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("warpdata.edit.compaction._KEPT_CHANGES", 0)
    session = renamed()
    late = opened(session).edit()
    late.append("main", {"id": [9], "name": ["n"], "score": [0.0]})
    opened(session).compact(max_deleted=0)
    assert not opened(session).table().entry.changes
    with pytest.raises(ConflictError, match="schema changes"):
        late.save()
    late.discard()
    assert named(session) == [(2, "2"), (3, "cta"), (4, None)]


def test_a_column_added_beside_a_delete_finds_its_shard_among_equal_files() -> None:
    session = publish()
    for _ in range(2):
        with opened(session).edit() as edit:
            edit.append("main", {"id": [7, 8], "label": ["x", "y"], "score": [0.0, 0.0]})
    first, second = opened(session).table().entry.shards.shards[1:]
    assert first.hash == second.hash
    opened_rows = opened(session).table()
    last = opened_rows.rows_of(np.array([6]))
    with opened(session).edit() as edit:  # only in the second copy, so its column file has a null there
        edit._draft("main").delete_rows(last)
    with opened(session).edit() as late:
        late.add_column("main", "twice", wd.expr("id * 2"))
        with opened(session).edit() as edit:
            edit.delete("main", "id = 1")
    assert [row["twice"] for row in rows(session)] == [4, 6, 8, 14, 16, 16]


def test_equal_rows_of_two_edits_are_two_rows() -> None:
    session = publish()
    with opened(session).edit() as late:
        late.append("main", {"id": [9], "label": ["same"], "score": [0.0]})
        with opened(session).edit() as edit:
            edit.append("main", {"id": [9], "label": ["same"], "score": [0.0]})
    assert [row["id"] for row in rows(session)] == [1, 2, 3, 4, 9, 9]
    assert sorted(opened(session).table().sample_ids().tolist()) == [*range(6)]
    assert late.version == opened(session).version


def test_two_edits_that_create_a_table_do_not_lose_rows() -> None:
    session = publish()
    late, edit = opened(session).edit(), opened(session).edit()
    for each in (late, edit):
        each.append("log", {"event": ["started"]})
    edit.save()
    with pytest.raises(ConflictError, match="both sides changed 'log'"):
        late.save()
    late.discard()
    edit.discard()


def test_equal_changes_of_two_edits_are_one() -> None:
    session = publish()
    with opened(session).edit() as late:
        late.update("main", "id = 1", {"label": "one"})
        late.delete("main", "id = 2")
        with opened(session).edit() as edit:
            edit.update("main", "id = 1", {"label": "one"})
            edit.delete("main", "id = 2")
    assert [(row["id"], row["label"]) for row in rows(session)] == [(1, "one"), (3, "cta"), (4, None)]


def test_rows_after_a_restore_get_new_ids() -> None:
    """A merge would take a row of the branch for the row that got its id."""
    session = publish()
    first = opened(session).version
    with opened(session).edit() as edit:
        edit.append("main", {"id": [5], "label": ["five"], "score": [0.0]})
    opened(session).branch("dev")
    with opened(session, "dev").edit() as edit:
        edit.update("main", "id = 5", {"label": "changed"})
    opened(session).restore(first)
    opened(session).compact(max_deleted=0)
    with opened(session).edit() as edit:
        edit.append("main", {"id": [9], "label": ["nine"], "score": [0.0]})
    assert opened(session).table().sample_ids().tolist() == [0, 1, 2, 3, 5]
    with pytest.raises(ConflictError, match="sample 4"):
        opened(session).merge("dev")
    opened(session).merge("dev", policy="theirs")
    assert [(row["id"], row["label"]) for row in rows(session)][4:] == [(5, "changed"), (9, "nine")]


def left_behind() -> Session:
    """A branch has a row with sample id 4, and a table with one row, that `main` lost by a restore."""
    session = publish()
    first = opened(session).version
    with opened(session).edit() as edit:
        edit.append("main", NEW_ROW)
        edit.append("log", {"event": ["a"]})
    opened(session).branch("dev")
    opened(session).restore(first)
    return session


def append_published(session: Session, table: str, content: dict[str, list[Any]]) -> None:
    wd.DatasetBuilder("a/b", session).append_table(table, content).publish()


def test_rows_that_are_published_after_a_restore_get_new_ids() -> None:
    session = left_behind()
    append_published(session, "log", {"event": ["b", "c"]})
    append_published(session, "main", {"id": [9], "label": ["nine"], "score": [0.0]})
    append_published(session, "main", {"id": [10], "label": ["ten"], "score": [0.0]})
    assert opened(session).table("main").sample_ids().tolist() == [0, 1, 2, 3, 5, 6]
    assert opened(session).table("log").sample_ids().tolist() == [1, 2]


def test_ids_stay_reserved_after_a_commit_without_new_rows() -> None:
    changes: list[Callable[[Session], object]] = [
        lambda session: append_published(session, "other", {"x": [1]}),
        lambda session: delete(session, "id = 1"),
        lambda session: opened(session).compact(max_deleted=0),
        lambda session: opened(session).merge("feature"),
    ]
    for change in changes:
        session = left_behind()
        opened(session).branch("feature")
        with opened(session, "feature").edit() as edit:
            edit.delete("main", "id = 2")
        change(session)
        append_published(session, "main", {"id": [9], "label": ["nine"], "score": [0.0]})
        assert opened(session).table().sample_ids().tolist()[-1] == 5


def test_an_edit_and_a_publish_that_began_before_a_restore_give_new_ids() -> None:
    for change in ("edit", "publish"):
        session = publish()
        first = opened(session).version
        late = opened(session).edit()
        late.append("main", NEW_ROW)
        builder = wd.DatasetBuilder("a/b", session).append_table("main", NEW_ROW)
        builder.plan()
        append_published(session, "main", NEW_ROW)
        opened(session).restore(first)
        if change == "edit":
            late.save()
        else:
            builder.publish()
            late.discard()
        assert opened(session).table().sample_ids().tolist() == [0, 1, 2, 3, 5]


def test_rows_that_a_merge_adds_after_a_restore_get_new_ids() -> None:
    session = publish()
    opened(session).branch("feature")
    with opened(session, "feature").edit() as edit:
        edit.append("main", {"id": [9], "label": ["nine"], "score": [0.0]})
    first = opened(session).version
    append_published(session, "main", NEW_ROW)
    opened(session).branch("dev")
    opened(session).restore(first)
    opened(session).merge("feature")
    assert opened(session).table().sample_ids().tolist() == [0, 1, 2, 3, 5]
    with opened(session, "dev").edit() as edit:
        edit.update("main", "id = 5", {"label": "changed"})
    opened(session).merge("dev", policy="theirs")
    assert [(row["id"], row["label"]) for row in rows(session)][4:] == [(5, "changed"), (9, "nine")]


def test_a_publish_of_the_present_content_after_a_restore_changes_nothing() -> None:
    session = publish({"x": [1]})
    first = opened(session).version
    append_published(session, "main", {"x": [2]})
    opened(session).restore(first)
    done = wd.DatasetBuilder("a/b", session).add_table("main", {"x": [1]}).publish(keep=True)
    assert not done.changed


def delete(session: Session, where: str) -> None:
    with opened(session).edit() as edit:
        edit.delete("main", where)


def test_an_edit_of_a_branch_that_was_removed_is_a_conflict() -> None:
    session = publish()
    opened(session).branch("dev")
    edit = opened(session, "dev").edit()
    edit.delete("main", "id = 1")
    execute_removal(session, plan_removal(session, parse_address("a/b@dev")))
    with pytest.raises(ConflictError, match="removed"):
        edit.save()
    edit.discard()


def test_values_of_a_column_that_was_made_again_are_in_the_diff() -> None:
    session = publish()
    before = opened(session)
    with opened(session).edit() as edit:
        edit.drop_column("main", "score")
        edit.add_column("main", "score", lambda batch: [n / 2 if n < 4 else n for n in batch["id"].to_pylist()])
    (change,) = opened(session).diff_samples(before).rows()
    assert (change.change, change.sample_id, change.columns) == ("changed", 3, ("score",))
    assert (change.old or {})["score"] == 2.0
    assert (change.new or {})["score"] == 4.0


def renamed() -> Session:
    """Publish rows, rename a column, and delete the first row."""
    session = publish()
    with opened(session).edit() as edit:
        edit.rename_column("main", "label", "name")
        edit.delete("main", "id = 1")
    return session


def named(session: Session) -> list[tuple[int, str | None]]:
    return [(row["id"], row["name"]) for row in rows(session)]
