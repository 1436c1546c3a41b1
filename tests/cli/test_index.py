"""If this fails, `warp index` shows or does something else than it says."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import warpdata as wd
from tests.cli.scenes import ask, run

ID = "acme/photos"


@pytest.fixture(autouse=True)
def published() -> None:
    rows = pa.table({"id": np.arange(2000), "label": np.tile(["cat", "dog"], 1000)})
    wd.DatasetBuilder(ID).add_table("main", rows).publish()


def version() -> str:
    return wd.dataset(ID).version


def test_indexes_are_created_listed_updated_and_dropped() -> None:
    assert "has no indexes" in run("index", "ls", ID).stderr
    made = ask("index", "create", ID, "label")
    assert (made["name"], made["changed"], made["version"]) == ("main.label", True, version())
    assert (made["index"]["kind"], made["index"]["covered_rows"]) == ("bitmap", 2000)
    assert ask("index", "create", ID, "id", "--name", "by_id")["index"]["kind"] == "btree"
    wd.DatasetBuilder(ID).append_table("main", {"id": [2000], "label": ["owl"]}).publish()
    listed = ask("index", "ls", ID)["indexes"]
    assert [(index["name"], index["covered_rows"], index["rows"]) for index in listed] == [
        ("by_id", 2000, 2001),
        ("main.label", 2000, 2001),
    ]
    assert "2,000 of 2,001" in run("index", "ls", ID).stdout
    assert ask("index", "rebuild", ID, "by_id")["index"]["covered_rows"] == 2001
    assert not ask("index", "rebuild", ID, "by_id")["changed"]
    assert ask("index", "rebuild", ID, "by_id", "--all")["index"]["covered_rows"] == 2001
    assert ask("index", "drop", ID, "by_id")["index"] is None
    assert "main.label" in run("info", ID).stdout
    assert [index["name"] for index in ask("info", ID)["indexes"]] == ["main.label"]


@pytest.mark.parametrize(
    "words", [("create", ID, "id"), ("rebuild", ID, "main.label", "--all"), ("drop", ID, "main.label")]
)
def test_a_dry_run_changes_nothing(words: tuple[str, ...]) -> None:
    ask("index", "create", ID, "label")
    before = version()
    planned = ask("index", *words, "--dry-run")
    assert (planned["changed"], planned["version"]) == (False, before)
    assert version() == before


@pytest.mark.parametrize("word", ["rebuild", "drop"])
def test_a_name_that_is_not_known_is_named_with_others(word: str) -> None:
    ask("index", "create", ID, "label")
    failed = run("index", word, ID, "main.lable")
    assert failed.exit_code == 3
    assert "no index 'main.lable'" in failed.stderr
    assert "main.label" in failed.stderr
