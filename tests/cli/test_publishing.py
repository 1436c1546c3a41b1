"""If this fails, `warp publish`, `label`, `branch` or `verify` does not do what its options say."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import warpdata as wd
from tests.cli.scenes import ask, parquet, publish, run, run_program, trips
from tests.cli.test_app import loaded
from warpdata.primitives.hashing import blob_key


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return parquet(tmp_path)


def stored_blob(version: str) -> Path:
    """Return the stored file of the only shard of a version of acme/trips."""
    opened = wd.dataset(f"acme/trips@{version}")
    (blob,) = opened.blobs()
    path = wd.connect().reader.local_path(blob_key(blob.hash))
    assert path is not None
    return path


def test_publish_is_idempotent(source: Path) -> None:
    args = ("publish", "acme/trips", "--table", f"main={source}", "--label", "v1", "-m", "first", "--author", "ada")
    first = ask(*args)
    again = ask(*args)
    absent = {"tables", "artifacts", "episodes", "tensors", "files"}
    assert set(first) == set(loaded("publish").json_keys) - absent
    assert (first["changed"], again["changed"]) == (True, False)
    assert first["version"] == again["version"] == wd.dataset("acme/trips@v1").version
    assert (first["uploaded_files"], again["uploaded_files"]) == (1, 0)
    (entry,) = wd.dataset("acme/trips").history()
    assert (entry.message, entry.author) == ("first", "ada")
    assert "unchanged" in run(*args).stdout


def test_dry_run_writes_nothing(source: Path) -> None:
    shown = ask("publish", "acme/trips", "--table", f"main={source}", "--dry-run")
    assert set(shown) <= set(loaded("publish").json_keys)
    assert shown["tables"] == {"main": 10}
    assert shown["files"][0]["is_present"] is False
    assert wd.list_datasets() == []
    assert "to upload" in run("publish", "acme/trips", "--table", f"main={source}", "--dry-run").stdout
    assert ask("publish", "acme/trips", "--table", f"main={source}")["version"] == shown["version"]
    stored = run("publish", "acme/trips", "--table", f"main={source}", "--dry-run")
    assert "already stored" in stored.stdout
    assert ask("publish", "acme/trips", "--table", f"main={source}", "--append", "--dry-run")["version"] is None


def test_globs_directories_and_repeated_tables(tmp_path: Path) -> None:
    for n in range(3):
        parquet(tmp_path, f"part-{n}.parquet", trips(n * 10))
    shown = ask(
        "publish",
        "acme/trips",
        "--table",
        f"main={tmp_path}/part-[01].parquet",
        "--table",
        f"main={tmp_path}/part-2.parquet",
        "--table",
        f"all={tmp_path}",
    )
    assert shown["uploaded_files"] == 3
    opened = wd.dataset("acme/trips")
    assert opened.table("main").to_arrow()["id"].to_pylist() == list(range(30))
    assert opened.table("all").count() == 30


def test_append_rewrite_branch_and_metadata(source: Path, tmp_path: Path) -> None:
    publish()
    assert run("branch", "acme/trips", "experiment").exit_code == 0
    more = parquet(tmp_path, "more.parquet", trips(10, 2))
    args = ["--append", "--rewrite", "--branch", "experiment", "--metadata", "why=late", "--metadata", "who=ada=x"]
    assert run("publish", "acme/trips", "--table", f"main={more}", *args).exit_code == 0
    opened = wd.dataset("acme/trips@experiment")
    assert opened.table().count() == 12
    assert opened.manifest.metadata == {"why": "late", "who": "ada=x"}
    assert wd.dataset("acme/trips").table().count() == 10
    listed = ask("branch", "acme/trips")["branches"]
    assert [branch["name"] for branch in listed] == ["experiment", "main"]


def test_expect_fails_if_branch_moved(source: Path, tmp_path: Path) -> None:
    old = publish(label="v1")
    more = parquet(tmp_path, "more.parquet", trips(10, 2))
    assert ask("publish", "acme/trips", "--table", f"main={more}", "--expect", "v1")["changed"]
    for expected in (old, "v1", old[:12]):
        refused = run("publish", "acme/trips", "--table", f"main={source}", "--expect", expected)
        assert refused.exit_code == 4
        assert old in refused.stderr


@pytest.mark.parametrize("content", [b"", b"PAR1 is not enough PAR1"])
def test_invalid_parquet_is_bad_input(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "broken.parquet"
    path.write_bytes(content)
    result = run("publish", "acme/trips", "--table", f"main={path}")
    assert result.exit_code == 5
    assert "broken.parquet" in result.stderr
    assert wd.list_datasets() == []


def test_glob_without_match_is_bad_input(tmp_path: Path) -> None:
    result = run("publish", "acme/trips", "--table", f"main={tmp_path}/*.parquet")
    assert result.exit_code == 5
    assert "no file matches" in result.stderr


def test_labels_never_move(source: Path) -> None:
    old = publish()
    made = ask("label", "acme/trips", "v1")
    assert made["labels"][0]["version"] == old
    assert run("label", "acme/trips", "v1").exit_code == 0
    publish(table=trips(5))
    moved = run("label", "acme/trips", "v1")
    assert moved.exit_code == 4
    assert "never move" in moved.stderr
    assert run("label", f"acme/trips@{old}", "before").stdout == f"acme/trips@before is version {old[:12]}\n"
    assert [label["name"] for label in ask("label", "acme/trips")["labels"]] == ["before", "v1"]
    assert run("branch", "acme/trips", "v1").exit_code == 4


def test_dataset_without_labels() -> None:
    publish()
    result = run("label", "acme/trips", "--list")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "no labels" in result.stderr
    for command in ("label", "branch"):
        assert run(command, "acme/nothing", "--list").exit_code == 3


def test_verify_finds_corruption_and_repair_fixes_it(source: Path) -> None:
    version = ask("publish", "acme/trips", "--table", f"main={source}")["version"]
    valid = run("verify", "acme/trips")
    assert valid.exit_code == 0
    assert "is valid: 1 file" in valid.stdout
    blob = stored_blob(version)
    blob.chmod(0o644)
    data = bytearray(blob.read_bytes())
    data[len(data) // 2] ^= 1
    blob.write_bytes(data)
    corrupt = run("verify", "acme/trips")
    assert corrupt.exit_code == 8
    assert blob.name in corrupt.stdout
    assert "--repair" in corrupt.stderr
    result = run_program("verify", "acme/trips", "--json")
    assert result.returncode == 8
    assert '"ok": false' in result.stdout
    assert run("publish", "acme/trips", "--table", f"main={source}", "--repair").exit_code == 0
    assert run("verify", "acme/trips").exit_code == 0
    blob.unlink()
    assert run("verify", "acme/trips").exit_code == 8


def test_verify_repairs_from_another_store(source: Path, tmp_path: Path) -> None:
    version = ask("publish", "acme/trips", "--table", f"main={source}")["version"]
    assert run("copy", "acme/trips", f"{tmp_path}/mirror").exit_code == 0
    stored_blob(version).unlink()
    assert "--source STORE" in run("verify", "acme/trips").stderr
    assert run("verify", "acme/trips", "--repair").exit_code == 8
    repaired = run("verify", "acme/trips", "--repair", "--source", f"{tmp_path}/mirror")
    assert (repaired.exit_code, "1 file restored" in repaired.stdout) == (0, True)
    assert run("verify", "acme/trips").exit_code == 0


def test_find_commit() -> None:
    publish()
    (entry,) = wd.dataset("acme/trips").history()
    landed = ask("find-commit", "acme/trips", entry.txn_id)
    assert landed["landed"] is True
    assert list(landed) == list(loaded("find-commit").json_keys)
    assert landed["commit"]["version"] == entry.version
    assert entry.version in run("find-commit", "acme/trips", entry.txn_id).stdout
    absent = run("find-commit", "acme/trips", "0000", "--json")
    assert absent.exit_code == 3
    assert '"landed": false' in absent.stdout


def test_control_characters_in_message_are_escaped(source: Path) -> None:
    message = "\x1b[31mred\nand \x1b[32mgreen"
    assert run("publish", "acme/trips", "--table", f"main={source}", "-m", message).exit_code == 0
    for command in ("log", "info"):
        assert "\x1b" not in run(command, "acme/trips").stdout
    assert ask("log", "acme/trips")["commits"][0]["message"] == message


def test_table_without_rows(tmp_path: Path) -> None:
    empty = parquet(tmp_path, "empty.parquet", pa.table({"x": pa.array([], pa.int8())}))
    assert run("publish", "acme/trips", "--table", f"main={empty}").exit_code == 0
    assert "no rows" in run("head", "acme/trips").stderr


def test_a_publish_that_would_remove_something_needs_keep_or_replace(source: Path, tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.txt").write_text("hello")
    assert run("publish", "acme/trips", "--table", f"main={source}").exit_code == 0
    other = ("publish", "acme/trips", "--table", f"other={source}", "--artifact", f"notes={tmp_path / 'notes'}")
    for args in (other, (*other, "--dry-run")):
        refused = run(*args)
        assert refused.exit_code == 5
        assert "would remove from acme/trips: table 'main'" in refused.stderr
        assert "--keep" in refused.stderr
        assert "--replace" in refused.stderr
    assert ask(*other, "--keep", "--dry-run")["version"] is None
    assert ask(*other, "--keep")["changed"]
    dataset = wd.dataset("acme/trips")
    assert (dataset.tables, dataset.artifacts) == (("main", "other"), ("notes",))
    assert not ask(*other, "--keep")["changed"]
    assert ask(*other, "--replace")["changed"]
    assert wd.dataset("acme/trips").tables == ("other",)


def test_append_and_artifacts_in_one_publish(source: Path, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("hello")
    paths = parquet(tmp_path, "paths.parquet", pa.table({"note": ["a.txt"]}))
    assert run("publish", "acme/trips", "--table", f"main={source}").exit_code == 0
    args = ("--table", f"paths={paths}", "--artifact", f"notes={tmp_path / 'a.txt'}", "--bind", "paths.note=notes")
    assert run("publish", "acme/trips", *args, "--append").exit_code == 0
    dataset = wd.dataset("acme/trips")
    assert dataset.tables == ("main", "paths")
    assert dataset.table("paths").to_arrow()["note"][0].as_py().read_bytes() == b"hello"


@pytest.mark.parametrize("flags", [("--replace", "--keep"), ("--replace", "--append")])
def test_flags_that_contradict_are_refused(source: Path, flags: tuple[str, ...]) -> None:
    refused = run("publish", "acme/trips", "--table", f"main={source}", *flags)
    assert refused.exit_code == 2
    assert "does not mix" in refused.stderr
    assert run("publish", "acme/trips", "--artifact", f"raw={source}", "--append").exit_code == 2
