"""If this fails, the Tab key breaks the user's shell, is slow, or prints errors."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

import warpdata as wd
from tests.cli.scenes import publish, run
from warpdata.cli import warp
from warpdata.cli.commands.completion import SHELLS, completion_script

BASH = shutil.which("bash")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    return tmp_path


def complete(*words: str) -> list[str]:
    """Return the completions of the last word."""
    completer = ShellComplete(warp, {}, "warp", "_WARP_COMPLETE")
    return [item.value for item in completer.get_completions(list(words[:-1]), words[-1])]


def test_complete_commands_and_options() -> None:
    assert complete("in") == ["init", "info", "inspect", "ingest", "index"]
    assert complete("l") == ["list-remote", "label", "labels", "login", "logout", "log", "ls", "list"]
    assert complete("info", "--st") == ["--store"]
    assert complete("stream", "--format", "") == ["jsonl", "arrow", "csv"]
    assert complete("head", "--mode", "") == ["auto", "remote", "hybrid", "local"]
    assert complete("cache", "") == ["stats", "gc", "verify", "clear"]
    assert complete("cache", "gc", "--l") == ["--limit"]
    assert complete("ingest", "image") == ["imagefolder"]


def test_complete_dataset_names() -> None:
    publish("acme/trips", label="v1")
    publish("acme/stops")
    publish("other/trips")
    wd.dataset("acme/trips").branch("experiment")
    assert complete("info", "") == ["acme/stops", "acme/trips", "other/trips"]
    assert complete("info", "acme/t") == ["acme/trips"]
    assert complete("head", "oth") == ["other/trips"]
    assert complete("info", "acme/trips@") == ["acme/trips@experiment", "acme/trips@main", "acme/trips@v1"]
    assert complete("diff", "acme/trips", "acme/trips@v") == ["acme/trips@v1"]
    assert complete("publish", "acme/trips@") == []
    assert complete("cat", "acme/t") == complete("ingest", "csv", "acme/t") == ["acme/trips"]


def test_complete_tables_and_columns() -> None:
    builder = wd.DatasetBuilder("acme/city").add_table("main", {"id": [1], "fare": [2.0], "fare zone": [3], "x,y": [4]})
    builder.add_table("zones", {"zone": [1], "name": ["a"]}).add_artifact("raw", {"a.png": b"x"}).publish()
    publish("acme/trips")
    assert complete("head", "acme/city", "--table", "") == ["main", "zones"]
    assert complete("head", "acme/city", "--columns", "") == ["id", "fare"], "the shell cannot quote other names"
    assert complete("head", "acme/city", "--table", "zones", "--columns", "") == ["zone", "name"]
    assert complete("stream", "acme/city", "--columns", "id,f") == ["id,fare"]
    assert complete("stream", "acme/trips", "--columns", "id,") == ["id,fare", "id,note"]
    assert complete("cat", "acme/city", "--artifact", "") == ["raw"]
    assert complete("warm", "acme/city", "--tables", "main,") == ["main,zones"]
    assert complete("schema", "acme/city", "--table", "z") == ["zones"]
    assert complete("head", "--columns", "") == complete("head", "acme/nothing", "--table", "") == []


HEAVY = ("pyarrow", "duckdb", "obstore", "rich", "numpy", "warpdata.datasets", "warpdata.publish", "warpdata.kinds")


@pytest.mark.parametrize(
    "words",
    [
        "warp info acme/",
        "warp head acme/trips --table ",
        "warp head acme/trips --columns ",
        "warp diff acme/trips@",
        "warp publish acme/",
        "warp ingest imagefolder acme/",
        "warp log acme/",
        "warp stream acme/trips --columns id,",
    ],
)
def test_tab_loads_no_heavy_module(words: str) -> None:
    """A TAB that loads Arrow or the publisher takes most of a second."""
    publish("acme/trips", label="v1")
    script = (
        "import sys\n"
        "from warpdata.cli import warp\n"
        "try: warp.main(prog_name='warp')\n"
        "except SystemExit: pass\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)\n"
    )
    environment = {
        **os.environ,
        "_WARP_COMPLETE": "bash_complete",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split(" ")) - 1),
    }
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True, env=environment
    )
    assert done.stdout.startswith("plain,"), done.stderr
    assert done.stderr.strip() == "[]"


def test_complete_from_store_option(tmp_path: Path) -> None:
    publish("acme/here")
    store = str(tmp_path / "store")
    wd.DatasetBuilder("acme/there", store=store).add_table("main", {"x": [1]}).publish()
    assert complete("info", "--store", store, "a") == ["acme/there"]


@pytest.mark.parametrize("store", ["ftp://nonsense", "s3://bucket/no-credentials", "/no/such/folder"])
def test_failing_store_gives_no_completions_and_no_output(store: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert complete("info", "--store", store, "a") == []
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("shell", SHELLS)
def test_install_is_idempotent(shell: str, home: Path) -> None:
    startup = {"bash": home / ".bashrc", "zsh": home / ".zshrc"}.get(shell)
    if startup is not None:
        startup.write_text("# mine\nalias ll='ls -l'")
    first = run("completion", "install", "--shell", shell)
    assert first.exit_code == 0, first.stderr
    assert first.stdout.startswith("wrote ")
    files = {path: path.read_bytes() for path in home.rglob("*") if path.is_file()}
    again = run("completion", "install", "--shell", shell)
    assert again.stdout.startswith("already installed")
    assert {path: path.read_bytes() for path in home.rglob("*") if path.is_file()} == files
    assert completion_script(shell).encode() in files.values()
    if startup is not None:
        assert startup.read_text().startswith("# mine\nalias ll='ls -l'\nsource ")
        assert startup.read_text().count("warp completion install") == 1


def test_show_prints_only_the_script() -> None:
    for shell in SHELLS:
        result = run("completion", "show", "--shell", shell)
        assert (result.stdout, result.stderr) == (completion_script(shell), "")
    assert run("completion", "show").exit_code == 0


@pytest.mark.skipif(BASH is None, reason="needs bash")
def test_bash_completes_names_with_at_sign(home: Path) -> None:
    publish("acme/trips", label="v1")
    run("completion", "install", "--shell", "bash")
    programs = home / "programs"
    programs.mkdir()
    script = programs / "warp"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m warpdata.cli "$@"\n')
    script.chmod(0o755)
    lines = (
        f"source {home}/.bashrc",
        "COMP_WORDS=(warp info acme/trips@v) COMP_CWORD=2 COMPREPLY=()",
        "_warp_completion warp",
        'echo "${COMPREPLY[@]}"',
        'echo "$COMP_WORDBREAKS" | grep -c @',
        "complete -p warp",
    )
    environment = {**os.environ, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        [str(BASH), "--norc", "-c", "\n".join(lines)],
        capture_output=True,
        text=True,
        env=environment,
        timeout=60,
        check=True,
    )
    assert done.stdout.splitlines()[:2] == ["acme/trips@v1", "0"]
    assert "_warp_completion" in done.stdout.splitlines()[2]
    assert done.stderr == ""
