"""If this fails, a script cannot tell errors of `warp` apart, or finds error messages in its data."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

import pytest

from tests.cli.scenes import parquet, publish, run, run_program
from warpdata import errors
from warpdata.cli.exit_codes import ERROR_KEYS, report_error


def store_path() -> Path:
    return Path(url2pathname(urlsplit(os.environ["WARP_STORE"]).path))


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.DatasetNotFoundError("x"), 3),
        (errors.ColumnNotFoundError("x"), 3),
        (errors.AlreadyExistsError("x"), 4),
        (errors.CommitUnknownError("x", txn_id="t"), 4),
        (errors.BadInputError("x"), 5),
        (errors.SchemaMismatchError("x"), 5),
        (errors.AuthenticationError("x"), 6),
        (errors.DeniedError("x"), 6),
        (errors.StorageError("x"), 7),
        (errors.WriteUnknownError("x"), 7),
        (errors.CorruptError("x"), 8),
        (errors.MissingExtraError("x"), 9),
        (errors.WarpError("x"), 1),
        (ZeroDivisionError("x"), 1),
        (BrokenPipeError(), 0),
    ],
)
def test_error_class_has_exit_code(error: BaseException, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert report_error(error) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: ") or isinstance(error, BrokenPipeError)


def test_every_error_except_root_has_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    needed: dict[str, dict[str, Any]] = {
        "CommitUnknownError": {"txn_id": "t"},
        "PartialCoverageError": {"detail": None},
    }
    for name in (name for name in errors.__all__ if name.endswith("Error")):
        error_class = getattr(errors, name)
        made = error_class("x", **needed.get(name, {}))
        assert (report_error(made) == 1) is (error_class is errors.WarpError), name


@pytest.mark.parametrize(
    ("args", "code", "text"),
    [
        (["info", "acme/trips@v9"], 3, "v9"),
        (["info", "acme/trip"], 3, "acme/trips"),
        (["head", "acme/trips", "--columns", "fair"], 3, "fare"),
        (["head", "acme/trips", "--table", "mian"], 3, "main"),
        (["info", "No/Name"], 5, "lower-case"),
        (["head", "acme/trips", "--filter", "fare >"], 5, "filter"),
        (["list-remote", "--store", "ftp://x"], 5, "ftp://x"),
        (["info"], 2, "--help"),
        (["info", "acme/trips", "--bogus"], 2, "--bogus"),
        (["hed", "acme/trips"], 2, "head"),
        (["head", "acme/trips", "-n", "many"], 2, "many"),
        (["stream", "acme/trips", "--shard", "4/4"], 2, "RANK/WORLD"),
        (["publish", "acme/trips", "--table", "main"], 2, "NAME=GLOB"),
        (["publish", "acme/trips"], 2, "--table"),
        (["publish", "acme/trips", "--artifact", "raw"], 2, "NAME[:KIND]=PATH"),
        (["publish", "acme/trips", "--artifact", "raw:=x"], 2, "NAME[:KIND]=PATH"),
        (["publish", "acme/trips", "--artifact", "raw:zip=x"], 5, "tar_shards"),
        (["publish", "acme/trips", "--artifact", "raw=/no/such/directory"], 5, "/no/such/directory"),
        (["publish", "acme/trips", "--table", "main=x", "--bind", "main=raw"], 2, "TABLE.COLUMN=ARTIFACT"),
        (["publish", "acme/trips", "--artifact", "raw=x", "--append"], 2, "--append"),
        (["publish", "acme/trips", "--table", "main=x", "--compression", "zstd"], 2, "--compression"),
        (["publish", "acme/trips", "--artifact", "raw=x", "--shard-size", "128M"], 2, "'128M' is not a size"),
        (["ingest", "csv", "acme/trips", "x.csv", "--media", "photo"], 2, "COLUMN=DIRECTORY"),
        (["ingest", "imagefolder", "acme/trips", "/no/such/directory"], 5, "/no/such/directory"),
        (["cat", "acme/trips"], 2, "--ref"),
        (["cat", "acme/trips", "--ref", "x"], 3, "artifact"),
        (["members", "acme/trips", "--artifact", "raw"], 3, "has no artifact 'raw'"),
        (["warm", "acme/trips", "--tables", "mian"], 3, "main"),
        (["warm", "acme/trips", "--shards", "a:b"], 2, "0:50"),
        (["warm", "acme/trips", "--max-bytes", "lots"], 2, "'lots' is not a size"),
        (["head", "acme/trips", "--mode", "fast"], 2, "hybrid"),
        (["cache", "clear"], 2, "--yes"),
        (["cache", "gc", "--limit", "-1"], 2, "-1"),
        (["label", "acme/trips", "v1", "--list"], 2, "--list"),
    ],
)
def test_failure_prints_error_and_hint(args: list[str], code: int, text: str) -> None:
    publish()
    result = run(*args)
    assert result.exit_code == code, result.stderr
    assert result.stdout == ""
    assert result.stderr.startswith("error: ")
    assert text in result.stderr
    assert "Traceback" not in result.stderr


def test_data_and_messages_use_separate_streams(tmp_path: Path) -> None:
    source = parquet(tmp_path)
    done = run_program("publish", "acme/trips", "--table", f"main={source}", "--json")
    assert done.returncode == 0
    assert done.stderr == ""
    assert json.loads(done.stdout)["changed"] is True
    missing = run_program("info", "acme/nothing", "--json")
    assert (missing.returncode, missing.stdout) == (3, "")
    document = json.loads(missing.stderr)["error"]
    assert document["message"].startswith("acme/nothing is not published")
    assert (document["kind"], document["exit_code"]) == ("dataset_not_found", 3)
    empty = run_program("list-remote", "other/")
    assert (empty.returncode, empty.stdout) == (0, "")
    assert "no datasets" in empty.stderr


@pytest.mark.parametrize(
    ("args", "kind", "kind_of_error", "code"),
    [
        (["info", "acme/nothing", "--json"], "dataset_not_found", "DatasetNotFoundError", 3),
        (["head", "acme/trips", "--json", "--filter", "fare >"], "invalid_filter", "BadInputError", 5),
        (["info", "--json"], "usage", "MissingParameter", 2),
        (["info", "acme/trips", "--json", "--bogus"], "usage", "NoSuchOption", 2),
        (["--json", "info", "acme/trips"], "usage", "NoSuchOption", 2),
        (["nothing", "--json"], "usage", "UsageError", 2),
        (["cache", "nothing", "--json"], "usage", "UsageError", 2),
    ],
)
def test_json_error_is_one_document(args: list[str], kind: str, kind_of_error: str, code: int) -> None:
    publish()
    result = run(*args)
    assert (result.exit_code, result.stdout) == (code, "")
    assert len(result.stderr.splitlines()) == 1
    document = json.loads(result.stderr)
    assert list(document) == ["error"]
    assert list(document["error"]) == list(ERROR_KEYS)
    assert (document["error"]["kind"], document["error"]["exit_code"]) == (kind, code)
    assert document["error"]["type"] == kind_of_error
    assert document["error"]["message"]
    assert document["error"]["hint"] or kind != "usage"


def test_json_error_has_problems_and_transaction(capsys: pytest.CaptureFixture[str]) -> None:
    assert report_error(errors.ManifestCorruptedError("x", problems=("a", "b")), as_json=True) == 8
    assert json.loads(capsys.readouterr().err)["error"]["problems"] == ["a", "b"]
    assert report_error(errors.CommitUnknownError("x", txn_id="t1"), as_json=True) == 4
    assert json.loads(capsys.readouterr().err)["error"]["txn_id"] == "t1"
    assert report_error(ZeroDivisionError("by zero"), as_json=True) == 1
    assert json.loads(capsys.readouterr().err)["error"]["kind"] == "unexpected"


def test_result_with_problems_leaves_stderr_empty(tmp_path: Path) -> None:
    """`verify --json` prints its own document, so stderr has no second one."""
    publish()
    (blob,) = [path for path in store_path().rglob("*") if path.is_file() and path.read_bytes()[:4] == b"PAR1"]
    blob.write_bytes(b"")
    result = run("verify", "acme/trips", "--json")
    assert (result.exit_code, result.stderr) == (8, "")
    assert json.loads(result.stdout)["ok"] is False
    assert "error: " in run("verify", "acme/trips").stderr


def test_only_debug_prints_traceback() -> None:
    plain, debug = run("info", "acme/nothing"), run("info", "acme/nothing", "--debug")
    assert "Traceback" not in plain.stderr
    assert "Traceback" in debug.stderr
    assert "error: acme/nothing" in debug.stderr
    assert plain.exit_code == debug.exit_code == 3


def test_unexpected_error_prints_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    def explode(_: object) -> None:
        raise ZeroDivisionError("by zero")

    monkeypatch.setattr("warpdata.cli.context.CliContext.connect", explode)
    result = run("list-remote")
    assert result.exit_code == 1
    assert result.stderr.splitlines() == [
        "error: unexpected ZeroDivisionError: by zero",
        "hint: Run the command again with --debug for a traceback, and please report it.",
    ]


def test_problems_of_corrupt_manifest_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    problems = tuple(f"tables.t{n}: wrong" for n in range(12))
    assert report_error(errors.ManifestCorruptedError("the manifest is corrupt", problems=problems)) == 8
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "error: the manifest is corrupt"
    assert lines[1] == "  tables.t0: wrong"
    assert lines[-1] == "  and 2 more"


def test_invalid_settings_are_bad_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WARP_TIMEOUT_S", "soon")
    result = run("list-remote")
    assert result.exit_code == 5
    assert "WARP_TIMEOUT_S" in result.stderr
