"""If this fails, `warp gc` deletes without being asked, or shows other than what it deletes."""

from __future__ import annotations

import json
import os
import pty
import subprocess

import pyarrow as pa
import pytest

import warpdata as wd
from tests.cli.scenes import PROGRAM, ask, run
from tests.cli.test_app import loaded


@pytest.fixture(autouse=True)
def versions() -> list[str]:
    """Publish three versions of one dataset."""
    made = []
    for number in range(3):
        builder = wd.DatasetBuilder("a/b").add_table("main", pa.table({"n": [number]}))
        made.append(builder.publish(replace=True).version)
    return made


def test_nothing_is_deleted_without_yes(versions: list[str]) -> None:
    for extra in ((), ("--dry-run",)):
        shown = run("gc", "--keep", "last 1", *extra)
        assert shown.exit_code == 0
        assert "4 objects" in shown.stdout
        assert ("Add --yes" in shown.stderr) is (not extra)
    document = ask("gc", "--keep", "last 1")
    assert list(document) == list(loaded("gc").json_keys)
    assert (document["objects"], document["deleted_count"], document["dry_run"]) == (4, 0, True)
    assert {(one["kind"], one["reason"], one["count"]) for one in document["garbage"]} == {
        ("blob", "expired", 2),
        ("version", "expired", 2),
    }
    assert wd.dataset(f"a/b@{versions[0]}").table().to_arrow().num_rows == 1


def test_yes_deletes_what_was_shown(versions: list[str]) -> None:
    done = run("gc", "--keep", "last 1", "--yes")
    assert "4 objects deleted" in done.stdout
    assert run("head", f"a/b@{versions[0]}").exit_code == 3
    assert "was collected" in run("head", f"a/b@{versions[0][:12]}").stderr
    assert ask("gc", "--yes")["deleted_count"] == 0
    assert run("verify", "a/b").exit_code == 0


def test_a_terminal_is_asked(versions: list[str]) -> None:
    for answer, left in ((b"n\n", 4), (b"y\n", 0)):
        main, terminal = pty.openpty()
        program = subprocess.Popen(
            [*PROGRAM, "gc", "--keep", "last 1"], stdin=terminal, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        os.close(terminal)
        os.write(main, answer)
        out, err = program.communicate(timeout=60)
        os.close(main)
        assert b"Delete 4 objects" in err, err
        assert program.returncode == 0
        assert (b"4 objects deleted" in out) is (left == 0)
        assert ask("gc", "--keep", "last 1")["objects"] == left


def test_pins(versions: list[str]) -> None:
    assert ask("pin", "add", f"a/b@{versions[0]}", "job")["version"] == versions[0]
    assert [one["name"] for one in ask("pin", "ls")["pins"]] == ["job"]
    assert "job" in run("pin", "ls").stdout
    assert ask("gc", "--keep", "last 1")["objects"] == 2
    assert run("pin", "add", "a/b", "job").exit_code == 4
    assert "was removed" in run("pin", "rm", "job").stdout
    assert run("pin", "rm", "job").exit_code == 3
    assert "no pins" in run("pin", "ls").stderr


def test_wrong_arguments_are_refused() -> None:
    assert run("gc", "--keep", "everything").exit_code == 5
    assert run("gc", "--yes", "--dry-run").exit_code == 2
    failed = run("gc", "--keep", "everything", "--json")
    assert json.loads(failed.stderr)["error"]["kind"] == "bad_input"
