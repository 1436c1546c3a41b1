"""If this fails, a command that edits rows or columns changes something else than it says, or changes unasked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import warpdata as wd
from tests.cli.scenes import ask, parquet, run
from tests.cli.test_app import loaded
from warpdata.cli.parameters import EntryType
from warpdata.edit import Edit

ID = "acme/pets"


def pets() -> pa.Table:
    return pa.table({"id": [1, 2, 3, 4], "label": ["cat", "dog", "cta", "dog"], "score": [0.5, 1.0, 1.5, 2.0]})


@pytest.fixture
def version() -> str:
    return wd.DatasetBuilder(ID).add_table("main", pets()).publish("first", label="v1").version


def rows(address: str = ID) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = wd.dataset(address).table().to_arrow().to_pylist()
    return sorted(found, key=lambda row: row["id"])


def head() -> tuple[str, int]:
    """The version of the branch, and the number of its commits."""
    opened = wd.dataset(ID)
    return opened.version, len(opened.history())


def source(directory: Path, name: str, *lines: str) -> str:
    path = directory / name
    path.write_text("\n".join(["id,label,score", *lines]) + "\n")
    return str(path)


def commands(directory: Path) -> dict[str, list[str]]:
    """One command line of each kind that changes the dataset."""
    more = source(directory, "more.csv", "5,bird,1", "6,cat,2")
    return {
        "append": ["append", ID, f"main={more}"],
        "delete": ["delete", ID, "--where", "id = 2", "--yes"],
        "update": ["update", ID, "--where", "label = 'cta'", "--set", "label=cat"],
        "upsert": ["upsert", ID, f"main={more}", "--on", "id"],
        "add-column": ["add-column", ID, "twice", "--expr", "score * 2"],
        "drop-column": ["drop-column", ID, "score", "--yes"],
        "rename-column": ["rename-column", ID, "score", "points"],
        "cast": ["cast", ID, "score", "float32"],
    }


NAMES = ["append", "delete", "update", "upsert", "add-column", "drop-column", "rename-column", "cast"]


@pytest.mark.parametrize("name", NAMES)
def test_a_dry_run_changes_nothing_and_the_run_is_one_commit(name: str, version: str, tmp_path: Path) -> None:
    words = commands(tmp_path)[name]
    before = head()
    planned = ask(*words, "--dry-run")
    assert set(planned) == set(loaded(name).json_keys)
    assert (planned["committed"], planned["version"], planned["commit"], planned["base"]) == (
        False,
        None,
        None,
        version,
    )
    assert "would edit" in run(*words, "--dry-run").stdout
    assert head() == before
    done = ask(*words, "--author", "ada")
    counts = ("appended", "updated", "deleted", "columns")
    assert {key: done[key] for key in counts} == {key: planned[key] for key in counts}
    assert head() == (done["version"], 2)
    last = wd.dataset(ID).history()[0]
    assert (last.operation, last.author, last.commit) == ("edit", "ada", done["commit"])
    assert last.message


def test_append_reads_text_with_the_types_of_the_table(version: str, tmp_path: Path) -> None:
    done = ask("append", ID, f"main={source(tmp_path, 'a.csv', '5,7,1')}", "-m", "more")
    assert done["appended"] == {"main": 1}
    assert rows()[-1] == {"id": 5, "label": "7", "score": 1.0}
    extra = parquet(tmp_path, "other.parquet", pa.table({"x": [1]}))
    assert ask("append", ID, f"other={extra}")["appended"] == {"other": 1}
    refused = run("append", ID, f"main={source(tmp_path, 'b.csv', 'x,cat,1')}")
    assert (refused.exit_code, "'id'" in refused.stderr) == (5, True)
    assert run("append", ID, f"main={tmp_path / 'missing.csv'}").exit_code == 5
    assert run("append", ID, "main").exit_code == 2


def test_delete_shows_rows_and_asks(version: str) -> None:
    refused = run("delete", ID, "--where", "label = 'dog'")
    assert refused.exit_code == 2
    assert "--yes" in refused.stderr
    assert head() == (version, 1)
    shown = run("delete", ID, "--where", "label = 'dog'", "--dry-run").stdout
    assert "dog" in shown
    assert "deleted 2 in main" in shown
    assert ask("delete", ID, "--where", "id > 99", "--yes")["committed"] is False
    assert ask("delete", ID, "--where", "label = 'dog'", "--yes")["deleted"] == {"main": 2}
    assert [row["id"] for row in rows()] == [1, 3]
    assert run("delete", ID, "--where", "nope = 1", "--yes").exit_code in (3, 5)
    assert run("delete", ID, "--yes").exit_code == 2
    assert run("delete", ID, "--table", "nope", "--where", "id = 1", "--yes").exit_code == 3


def test_an_address_may_name_the_branch(version: str) -> None:
    wd.dataset(ID).branch("dev")
    done = ask("delete", f"{ID}@dev", "--where", "id = 2", "--yes")
    assert (done["dataset_id"], done["branch"]) == (ID, "dev")
    assert [row["id"] for row in rows(f"{ID}@dev")] == [1, 3, 4]
    assert head() == (version, 1)
    label = run("delete", f"{ID}@v1", "--where", "id = 2", "--yes")
    assert (label.exit_code, "no branch 'v1'" in label.stderr) == (3, True)
    assert run("delete", f"{ID}@dev", "--branch", "other", "--where", "id = 3", "--yes").exit_code == 2


def test_update_tells_constants_from_expressions(version: str) -> None:
    done = ask("update", ID, "--where", "id = 1", "--set", "label=score*2", "--set-expr", "score=score * 2 + id")
    assert done["updated"] == {"main": 1}
    assert rows()[0] == {"id": 1, "label": "score*2", "score": 2.0}
    ask("update", ID, "--all", "--set", "score=3", "--set-expr", "label=NULL")
    assert {(row["label"], row["score"]) for row in rows()} == {(None, 3.0)}
    ask("update", ID, "--where", "id = 2", "--set", "label=")
    assert rows()[1]["label"] == ""
    before = head()
    for words in (
        ["--set", "label=x"],
        ["--all", "--where", "id = 1", "--set", "label=x"],
        ["--all"],
        ["--all", "--set", "label=x", "--set-expr", "label=NULL"],
    ):
        assert run("update", ID, *words).exit_code == 2
    wrong = run("update", ID, "--all", "--set", "score=much")
    assert (wrong.exit_code, "'much'" in wrong.stderr, "--set-expr" in wrong.stderr) == (5, True, True)
    assert run("update", ID, "--all", "--set", "nope=1").exit_code in (3, 5)
    assert run("update", ID, "--all", "--set-expr", "score=sum(score)").exit_code == 5
    assert head() == before


def test_columns(version: str) -> None:
    ask("add-column", ID, "twice", "--expr", "score * 2", "--type", "float32")
    ask("rename-column", ID, "twice", "double")
    ask("cast", ID, "id", "int32")
    schema = wd.dataset(ID).table().schema()
    assert (schema.names, schema.field("double").type) == (["id", "label", "score", "double"], pa.float32())
    assert schema.field("id").type == pa.int32()
    assert run("drop-column", ID, "double").exit_code == 2
    ask("drop-column", ID, "double", "--yes")
    assert rows() == sorted(pets().to_pylist(), key=lambda row: row["id"])
    assert run("cast", ID, "label", "int64").exit_code == 5
    assert run("cast", ID, "label", "nonsense").exit_code == 5


@pytest.fixture
def diverged(version: str) -> None:
    assert run("branch", ID, "relabel").exit_code == 0
    ask("update", ID, "--branch", "relabel", "--where", "id = 3", "--set", "label=kitten")
    ask("update", ID, "--branch", "relabel", "--where", "id = 1", "--set", "score=9")


def test_merge_without_conflict(diverged: None) -> None:
    ask("update", ID, "--where", "id = 3", "--set", "score=7")
    before = head()
    planned = ask("merge", ID, "relabel", "--dry-run")
    assert set(planned) == set(loaded("merge").json_keys)
    assert (planned["merged"], planned["version"], planned["conflicts"]) == (False, None, [])
    assert [change["name"] for change in planned["changes"]] == ["main"]
    assert head() == before
    done = ask("merge", ID, "relabel")
    assert (done["merged"], done["version"]) == (True, head()[0])
    assert rows()[0]["score"] == 9.0
    assert rows()[2] == {"id": 3, "label": "kitten", "score": 7.0}
    assert "already has all changes" in run("merge", ID, "relabel").stdout
    assert run("merge", ID, "nope").exit_code == 3


def test_merge_lists_conflicts_with_both_values(diverged: None) -> None:
    ask("update", ID, "--where", "id = 3", "--set", "label=cat")
    before = head()
    failed = run("merge", ID, "relabel")
    assert failed.exit_code == 4
    assert "label: ours cat, theirs kitten, before cta" in failed.stderr
    assert "--policy theirs" in failed.stderr
    listed = json.loads(run("merge", ID, "relabel", "--json").stderr)["error"]["conflicts"]
    assert [(one["sample_id"], one["columns"]) for one in listed] == [(2, ["label"])]
    assert (listed[0]["ours"]["label"], listed[0]["theirs"]["label"]) == ("cat", "kitten")
    asked = run("merge", ID, "relabel", "--policy", "theirs")
    assert asked.exit_code == 2
    assert "ours cat, theirs kitten" in asked.stdout
    assert head() == before
    assert ask("merge", ID, "relabel", "--policy", "theirs", "--yes")["conflicts"] == listed
    assert rows()[2]["label"] == "kitten"


def test_diff_by_sample(version: str) -> None:
    ask("update", ID, "--where", "id = 3", "--set", "label=cat")
    ask("delete", ID, "--where", "id = 2", "--yes")
    shown = run("diff", f"{ID}@v1", ID, "--by", "sample")
    assert shown.exit_code == 0
    assert "label: cta → cat" in shown.stdout
    assert "0 samples added, 1 removed, 1 changed" in shown.stdout
    lines = run("diff", f"{ID}@v1", ID, "--by", "sample", "--json").stdout.splitlines()
    found = [json.loads(line) for line in lines]
    assert [(one["change"], one["sample_id"], one["columns"]) for one in found] == [
        ("removed", 1, []),
        ("changed", 2, ["label"]),
    ]
    assert set(found[0]) < set(loaded("diff").json_keys)
    assert (found[1]["old"]["label"], found[1]["new"]["label"], found[0]["new"]) == ("cta", "cat", None)
    assert len(run("diff", f"{ID}@v1", ID, "--by", "sample", "--json", "-n", "1").stdout.splitlines()) == 1
    assert "more samples differ" in run("diff", f"{ID}@v1", ID, "--by", "sample", "-n", "1").stdout
    assert "no difference" in run("diff", ID, ID, "--by", "sample").stdout
    assert "1 removed" in run("diff", ID, "--by", "sample").stdout
    assert run("diff", ID, "--limit", "3").exit_code == 2


def test_compact(version: str, tmp_path: Path) -> None:
    more = source(tmp_path, "a.csv", "5,bird,1")
    ask("append", ID, f"main={more}")
    before = head()
    planned = ask("compact", ID, "--dry-run")
    assert set(planned) == set(loaded("compact").json_keys)
    assert (planned["changed"], planned["shards"], planned["version"]) == (False, {"main": 2}, before[0])
    assert head() == before
    expected = rows()
    done = ask("compact", ID)
    assert (done["changed"], done["shards"]) == (True, {"main": 2})
    assert rows() == expected
    assert "no file is worth" in run("compact", ID).stdout
    assert run("compact", ID, "--tables", "nope").exit_code == 3


@pytest.mark.parametrize("error", [KeyboardInterrupt(), RuntimeError("broken")], ids=["interrupt", "error"])
def test_an_end_in_the_middle_leaves_the_head(
    version: str, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The step is done and the commit has begun when the program ends."""

    def fail(_edit: Edit) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(Edit, "save", fail)
        failed = run("update", ID, "--all", "--set", "label=x")
    assert failed.exit_code == (130 if isinstance(error, KeyboardInterrupt) else 1)
    assert head() == (version, 1)
    staging = Path(wd.load_settings().cache_dir)
    assert not [path for path in staging.rglob("new-*") if path.is_dir()]


def test_names_of_columns_are_completed(version: str) -> None:
    command = loaded("drop-column")
    context = command.make_context("drop-column", [ID, ""], resilient_parsing=True)
    parameter = next(found for found in command.params if found.name == "column")
    assert isinstance(parameter.type, EntryType)
    found = parameter.type.shell_complete(context, parameter, "l")
    assert [item.value for item in found] == ["label"]
