"""If this fails, commands that read a dataset show wrong data."""

from __future__ import annotations

import json
import re

import pyarrow as pa
import pytest

import warpdata as wd
from tests.cli.scenes import ask, publish, run, trips
from tests.cli.test_app import loaded


def publish_two() -> tuple[str, str]:
    """Publish two versions: the first labelled, the second with more rows."""
    old = publish(label="v1")
    new = wd.DatasetBuilder("acme/trips").append_table("main", trips(10, 5)).publish("more", author="bob").version
    return old, new


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("info", ["acme/trips"]),
        ("schema", ["acme/trips"]),
        ("head", ["acme/trips"]),
        ("inspect", ["acme/trips"]),
        ("log", ["acme/trips"]),
        ("diff", ["acme/trips@v1", "acme/trips"]),
        ("label", ["acme/trips", "--list"]),
        ("branch", ["acme/trips", "--list"]),
        ("list-remote", ["acme/"]),
        ("verify", ["acme/trips"]),
        ("doctor", []),
    ],
)
def test_json_has_exactly_the_documented_keys(name: str, args: list[str]) -> None:
    publish_two()
    documented = [key for key, text in loaded(name).json_keys.items() if not text.startswith("with --by sample")]
    assert list(ask(name, *args)) == documented
    human = run(name, *args)
    assert human.exit_code == 0
    assert human.stdout.strip()


def test_info() -> None:
    old, new = publish_two()
    shown = ask("info", "acme/trips")
    assert (shown["version"], shown["branch"], shown["label"]) == (new, "main", None)
    assert shown["rows"] == 15
    assert shown["tables"][0]["shards"] == 2
    assert shown["commit"]["author"] == "bob"
    pinned = ask("info", f"acme/trips@{old}")
    assert pinned["version"] == old
    assert pinned["commit"] is None
    text = run("info", "acme/trips@v1").stdout
    assert old in text
    assert "label v1" in text
    assert "first load" in text


def test_schema_of_all_tables_or_one() -> None:
    builder = wd.DatasetBuilder("acme/two").add_table("main", trips())
    builder.add_table("other", pa.table({"x": pa.array([[1, 2]], pa.list_(pa.uint8(), 2))})).publish()
    assert [table["name"] for table in ask("schema", "acme/two")["tables"]] == ["main", "other"]
    kind = "fixed_size_list<element: uint8>[2]"
    one = ask("schema", "acme/two", "--table", "other")["tables"]
    assert one == [{"name": "other", "columns": [{"name": "x", "type": kind, "nullable": True, "refers_to": None}]}]
    text = run("schema", "acme/two").stdout
    assert "uint8[2]" in text
    assert "main: 3 columns" in text


def test_head() -> None:
    publish()
    shown = ask("head", "acme/trips", "-n", "2", "--columns", "fare,id", "--filter", "id > 4")
    assert shown["rows"] == [{"fare": 7.5, "id": 5}, {"fare": 9.0, "id": 6}]
    assert [column["name"] for column in shown["columns"]] == ["fare", "id"]
    text = run("head", "acme/trips", "-n", "3").stdout
    assert "note 0" in text
    assert "null" in text
    assert len(text.splitlines()) == 6
    nothing = run("head", "acme/trips", "--filter", "id > 100")
    assert nothing.exit_code == 0
    assert "no row matches the filter" in nothing.stderr


def test_head_names_columns_that_do_not_fit() -> None:
    publish("acme/wide", pa.table({f"column_{n:03d}": [n] for n in range(100)}))
    lines = run("head", "acme/wide").stdout.splitlines()
    assert max(map(len, lines[:4])) <= 120
    assert "more columns: " in lines[-1]


def test_control_characters_in_data_are_escaped() -> None:
    publish("acme/evil", pa.table({"text": ["\x1b]0;owned\x07 \x1b[31mred\r\n"]}))
    for command in (["head", "acme/evil"], ["head", "acme/evil", "--json"], ["stream", "acme/evil"]):
        result = run(*command)
        assert result.exit_code == 0
        assert "\x1b" not in result.stdout
        assert "\x07" not in result.stdout


def test_inspect_lists_shards() -> None:
    _, new = publish_two()
    shown = ask("inspect", "acme/trips", "--shards", "1")
    (entry,) = shown["entries"]
    assert (shown["version"], entry["section"], entry["name"], entry["kind"]) == (new, "tables", "main", "parquet")
    assert (entry["rows"], entry["shard_count"], len(entry["shards"])) == (15, 2, 1)
    assert entry["shards"][0]["row_count"] == 10
    assert "… and 1 more" in run("inspect", "acme/trips", "--shards", "1").stdout


def test_log_is_newest_first_with_labels() -> None:
    old, new = publish_two()
    commits = ask("log", "acme/trips")["commits"]
    assert [commit["version"] for commit in commits] == [new, old]
    assert [commit["labels"] for commit in commits] == [[], ["v1"]]
    assert [commit["operation"] for commit in commits] == ["append", "replace"]
    assert [commit["version"] for commit in ask("log", "acme/trips@v1")["commits"]] == [old]
    short = run("log", "acme/trips", "-n", "1")
    assert new[:12] in short.stdout
    assert old[:12] not in short.stdout
    assert "use -n" in short.stderr


def test_diff() -> None:
    old, new = publish_two()
    shown = ask("diff", "acme/trips@v1", "acme/trips")
    assert (shown["older"]["version"], shown["newer"]["version"]) == (old, new)
    (change,) = shown["changes"]
    assert (change["change"], change["rows_added"], change["rows_removed"], change["shards_added"]) == (
        "changed",
        5,
        0,
        1,
    )
    text = run("diff", "acme/trips", "acme/trips@v1").stdout
    assert "−5" in text
    same = run("diff", "acme/trips", "acme/trips")
    assert same.exit_code == 0
    assert "no difference" in same.stdout


def test_diff_of_one_version_shows_what_it_changed() -> None:
    old, new = publish_two()
    both = ask("diff", "acme/trips@v1", "acme/trips")
    assert ask("diff", "acme/trips") == both
    assert ask("diff", f"acme/trips@{new}") == both
    first = ask("diff", "acme/trips@v1")
    assert (first["older"], first["newer"]["version"]) == (None, old)
    assert [(change["change"], change["rows_added"]) for change in first["changes"]] == [("added", 10)]
    assert "no parent → acme/trips" in run("diff", f"acme/trips@{old[:12]}").stdout


def test_head_and_schema_agree_on_types() -> None:
    rows = {"n": [1], "photo": ["a.png"], "note": ["x"], "tags": [["a"]]}
    builder = wd.DatasetBuilder("acme/pets").add_table("main", rows).add_artifact("raw", {"a.png": b"x"})
    builder.bind("main", "photo", "raw", "image").publish()
    shown, listed = run("head", "acme/pets").stdout, run("schema", "acme/pets").stdout
    assert shown.splitlines()[1].split() == ["int64", "ref<image>", "string", "string[]"]
    assert re.search(r"photo +ref<image> → raw", listed)
    for column in ("n", "note", "tags"):
        kind = shown.splitlines()[1].split()[["n", "photo", "note", "tags"].index(column)]
        assert re.search(rf"^{column} +{re.escape(kind)}", listed, re.MULTILINE)
    head_columns, (table,) = ask("head", "acme/pets")["columns"], ask("schema", "acme/pets")["tables"]
    expected = [{key: column[key] for key in ("name", "type", "refers_to")} for column in table["columns"]]
    assert head_columns == expected
    assert head_columns[1]["refers_to"] == {"artifact": "raw", "ref_type": "image"}
    assert "ref<image>" in run("head", "acme/pets", "--columns", "photo").stdout


def test_list_remote_prints_one_name_per_line() -> None:
    publish("acme/a")
    publish("acme/b")
    publish("other/c")
    assert run("list-remote").stdout.splitlines() == ["acme/a", "acme/b", "other/c"]
    assert run("list-remote", "acme/").stdout.splitlines() == ["acme/a", "acme/b"]
    assert ask("list-remote", "acme")["datasets"] == ["acme/a", "acme/b"]
    assert run("ls", "acme/").stdout == run("list-remote", "acme/").stdout


def test_metadata_is_shown(tmp_path: object) -> None:
    builder = wd.DatasetBuilder("acme/m").add_table("main", trips())
    builder.publish(metadata={"source": "meters"})
    assert ask("info", "acme/m")["metadata"] == {"source": "meters"}
    assert "meters" in run("inspect", "acme/m").stdout


def test_store_option(tmp_path_factory: pytest.TempPathFactory) -> None:
    other = tmp_path_factory.mktemp("other")
    wd.DatasetBuilder("acme/there", store=str(other)).add_table("main", trips()).publish()
    assert run("list-remote").stdout == ""
    assert run("list-remote", "--store", str(other)).stdout == "acme/there\n"
    assert json.loads(run("info", "acme/there", "--store", other.as_uri(), "--json").stdout)["rows"] == 10


@pytest.mark.s3
def test_reading_from_s3(s3_url: str, s3_environment: None) -> None:
    wd.DatasetBuilder("acme/there", store=s3_url).add_table("main", trips()).publish()
    assert run("list-remote", "--store", s3_url).stdout == "acme/there\n"
    assert ask("head", "acme/there", "--store", s3_url, "-n", "1")["rows"][0]["id"] == 0
    assert run("verify", "acme/there", "--store", s3_url).exit_code == 0
