"""If this fails, `warp --help` is slow, or the documentation of a command is missing or wrong."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import click
import pytest

from tests.cli.scenes import run
from warpdata.cli import app
from warpdata.cli.app import ALIASES, SECTIONS, warp
from warpdata.cli.exit_codes import EXIT_CODES
from warpdata.cli.options import WarpCommand, WarpGroup
from warpdata.cli.reference import render_reference

REFERENCE = Path(__file__).parents[2] / "docs" / "reference" / "cli.md"
SUMMARIES = {name: summary for section in SECTIONS.values() for name, summary in section.items()}
HEAVY = ("pyarrow", "duckdb", "obstore", "rich", "numpy", "msgspec", "sklearn", "warpdata.datasets", "warpdata.publish")


def find(name: str) -> click.Command:
    """Return a command by its full name, such as `cache stats`."""
    command: click.Command | None = warp
    for word in name.split():
        assert isinstance(command, click.Group)
        command = command.get_command(click.Context(command), word)
    assert command is not None, name
    return command


def loaded(name: str) -> WarpCommand:
    command = find(name)
    assert isinstance(command, WarpCommand)
    return command


def leaves(names: Iterable[str] = SUMMARIES) -> Iterator[str]:
    """Yield every command that is not a group."""
    for name in names:
        command = find(name)
        if isinstance(command, WarpGroup):
            yield from leaves(f"{name} {below}" for below in command.commands)
        else:
            yield name


COMMANDS = list(leaves())


def test_help_imports_no_heavy_module() -> None:
    script = (
        "import sys\n"
        "from warpdata.cli import warp\n"
        "try: warp.main(['--help'], prog_name='warp')\n"
        "except SystemExit: pass\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=30, check=True)
    assert done.stderr.strip() == "[]"
    assert "Usage: warp" in done.stdout


def test_help_is_fast() -> None:
    """Measure the CPU time of the installed script, which does not depend on the load of the machine."""
    script = Path(sys.executable).with_name("warp")
    command = [str(script)] if script.exists() else [sys.executable, "-m", "warpdata.cli"]
    times_s = []
    for _ in range(5):
        before = os.times()
        subprocess.run([*command, "--help"], capture_output=True, timeout=30, check=True)
        after = os.times()
        times_s.append(after.children_user + after.children_system - before.children_user - before.children_system)
    assert min(times_s) < 0.3, times_s


def test_help_lists_every_command_and_exit_code() -> None:
    text = run("--help").stdout
    for name in SUMMARIES:
        assert re.search(rf"^  {name}[ ,]", text, re.MULTILINE)
    for code, meaning in EXIT_CODES.items():
        assert str(code) in text
        assert meaning in text
    assert run().stdout == text


@pytest.mark.parametrize("name", SUMMARIES)
def test_summary_is_first_line_of_help(name: str) -> None:
    assert " ".join((find(name).help or "").split("\n\n")[0].split()) == SUMMARIES[name]


@pytest.mark.parametrize("name", [name for name in SUMMARIES if name not in COMMANDS])
def test_group_lists_its_commands_and_suggests_similar_ones(name: str) -> None:
    shown = run(name)
    assert (shown.exit_code, shown.stderr) == (0, "")
    assert shown.stdout == run(name, "--help").stdout
    listed = [line.split()[0] for line in shown.stdout.split("Commands:\n")[1].splitlines()]
    below = [each.split()[1] for each in COMMANDS if each.startswith(f"{name} ")]
    assert listed == list(dict.fromkeys(below))
    assert "..." not in shown.stdout.split("Commands:\n")[1]
    wrong = run(name, listed[0][:-1])
    assert wrong.exit_code == 2
    assert f"Did you mean {listed[0]}?" in wrong.stderr


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_takes_shared_options(name: str) -> None:
    """`completion`, `cache`, `server backup`, `episodes recover` and `episodes convert` use no store."""
    options = {spelling for parameter in loaded(name).params for spelling in parameter.opts}
    assert {"--quiet", "--debug"} <= options
    needs_store = name.split()[0] not in ("completion", "cache") and name not in (
        "episodes recover",
        "episodes convert",
        "server backup",
    )
    assert ("--store" in options) is needs_store
    reads = {"info", "schema", "head", "inspect", "stream", "members", "cat", "sql", "export", "search"}
    reads |= {"serve", "simulate", "worker", "gateway", "labels quality"}
    reads |= {"episodes ls", "episodes show", "index ls"}
    reads |= {f"tensors {below}" for below in ("ls", "show", "view", "export", "serve")}
    assert ("--mode" in options) is (name in reads)


@pytest.mark.parametrize("name", sorted(set(COMMANDS) - {"demo", "init", "completion", "stream", "cat", "worker"}))
def test_every_listing_takes_json_and_documents_keys(name: str) -> None:
    assert loaded(name).json_keys
    text = run(*name.split(), "--help").stdout
    assert "--json" in text
    assert "JSON keys" in text


def test_every_option_has_help() -> None:
    for name in COMMANDS:
        for parameter in loaded(name).params:
            assert not isinstance(parameter, click.Option) or parameter.help, (name, parameter.name)


def test_committed_reference_is_current() -> None:
    assert REFERENCE.read_text(encoding="utf-8") == render_reference(), (
        "run `python -m warpdata.cli.reference > docs/reference/cli.md`"
    )


def test_reference_module_prints_page() -> None:
    command = [sys.executable, "-m", "warpdata.cli.reference"]
    done = subprocess.run(command, capture_output=True, timeout=30, check=True)
    assert done.stdout.decode() == render_reference()


def test_alias_is_shown_completed_and_run() -> None:
    assert "list-remote, ls, list" in run("--help").stdout
    for alias, name in ALIASES.items():
        assert find(alias) is find(name)
        assert "no datasets" in run(alias).stderr


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("delete", "`warp rm`"),
        ("rollback", "`warp restore`"),
        ("pull", "`warp warm`"),
        ("push", "`warp publish`"),
        ("history", "`warp log`"),
        ("Tag", "`warp label`"),
        ("hed", "Did you mean head?"),
    ],
)
def test_unknown_command_gets_next_step_by_meaning(word: str, expected: str) -> None:
    result = run(word, "acme/trips")
    assert result.exit_code == 2
    assert expected in result.stderr
    assert "warm?" not in result.stderr


def test_meanings_name_existing_commands_only() -> None:
    for word, hint in app.NEXT_STEPS.items():
        assert word not in SUMMARIES, word
        for command in re.findall(r"`warp ([a-z][a-z -]*)", hint):
            words = command.split(" -")[0].split()
            assert " ".join(words) in COMMANDS or words[0] in {**SUMMARIES, **ALIASES}, (word, command)


def test_version() -> None:
    assert run("--version").stdout.startswith("warp 0.")
