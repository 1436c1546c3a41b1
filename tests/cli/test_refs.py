"""If this fails, `warp restore`, `copy`, `rename`, `rm` or `sql` does not do what it says, or removes unasked."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import warpdata as wd
from tests.cli.scenes import ask, run
from tests.cli.test_app import loaded


@pytest.fixture
def versions() -> list[str]:
    made = []
    for step in range(3):
        rows = pa.table({"n": [step, step + 1]})
        made.append(
            wd.DatasetBuilder("acme/trips").add_table("main", rows).publish(f"load {step}", label=f"v{step}").version
        )
    return made


def test_restore(versions: list[str]) -> None:
    planned = ask("restore", "acme/trips", "v0", "--dry-run")
    assert (planned["version"], planned["changed"]) == (versions[0], False)
    assert wd.dataset("acme/trips").version == versions[2]
    done = ask("restore", "acme/trips", "main~1", "-m", "undo")
    assert set(done) == set(loaded("restore").json_keys)
    assert (done["version"], done["previous"], done["changed"]) == (versions[1], versions[2], True)
    assert wd.dataset("acme/trips").history()[0].message == "undo"
    assert run("restore", "acme/trips", "v0", "--expect", "v0").exit_code == 4
    assert "already is" in run("restore", "acme/trips", "v1").stdout


def test_rm_asks_shows_and_can_be_undone(versions: list[str]) -> None:
    assert run("rm", "acme/trips@v0").exit_code == 2
    assert ask("rm", "acme/trips@v0", "--dry-run")["removed"] is False
    assert wd.dataset("acme/trips@v0").version == versions[0]
    done = ask("rm", "acme/trips@v0", "--yes")
    assert set(done) == set(loaded("rm").json_keys)
    assert (done["kind"], done["name"], done["removed"]) == ("label", "v0", True)
    missing = run("info", "acme/trips@v0")
    assert missing.exit_code == 3
    assert f"warp label acme/trips@{versions[0]} v0" in missing.stderr
    assert run("label", f"acme/trips@{versions[0]}", "v0").exit_code == 0
    assert ask("rm", "acme/trips", "--yes")["labels"] == ["v0", "v1", "v2"]
    assert ask("ls")["datasets"] == []
    assert run("info", "acme/trips").exit_code == 3
    assert run("restore", "acme/trips", versions[2]).exit_code == 0
    assert [label["name"] for label in ask("label", "acme/trips")["labels"]] == ["v0", "v1", "v2"]
    assert run("rm", "acme/trips@main", "--yes").exit_code == 5
    assert run("rm", f"acme/trips@{versions[0]}", "--yes").exit_code == 5


def test_copy_and_rename(versions: list[str], tmp_path: Path) -> None:
    there = str(tmp_path / "there")
    assert ask("copy", "acme/trips@v1", there, "--dry-run")["copied_files"] == 1
    done = ask("copy", "acme/trips", there, "--history")
    assert set(done) == set(loaded("copy").json_keys)
    assert (done["version"], done["commits"], done["labels"]) == (versions[2], 3, ["v0", "v1", "v2"])
    assert "already had this version" in run("copy", "acme/trips", there, "--history").stderr
    assert run("copy", "acme/trips").exit_code == 2
    assert ask("rename", "acme/trips", "acme/taxi", "--dry-run")["renamed"] is False
    assert run("rename", "acme/trips", "acme/taxi").exit_code == 2
    renamed = ask("rename", "acme/trips", "acme/taxi", "--yes")
    assert set(renamed) == set(loaded("rename").json_keys)
    assert renamed["versions"][versions[2]] == wd.dataset("acme/taxi").version
    gone = run("info", "acme/trips")
    assert (gone.exit_code, "acme/taxi" in gone.stderr) == (3, True)


def test_sql(versions: list[str]) -> None:
    found = ask("sql", "SELECT max(n) AS s FROM 'acme/trips@v1' WHERE n > $low", "-p", "low=1")
    assert set(found) == set(loaded("sql").json_keys)
    assert (found["rows"], found["truncated"]) == ([{"s": 2}], False)
    assert ask("sql", "FROM 'acme/trips'", "-n", "1")["truncated"] is True
    bad = run("sql", "SELECT nope FROM 'acme/trips'")
    assert bad.exit_code == 5
    assert "line 1, column 8" in bad.stderr
    assert run("sql", "SELECT * FROM read_text('/etc/hostname')").exit_code == 5
