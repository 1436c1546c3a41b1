"""If this fails, a user who follows the README or a guide to the letter ends with a traceback.

The blocks of one page share their names and run in order, in an empty directory, against an empty store.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.docs.pages import ROOT, blocks

PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/guides/*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_python_block_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WARP_STORE", str(tmp_path / "store"))
    monkeypatch.setenv("WARP_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    found = blocks(page, "python")
    assert found, f"{page.name} shows no Python"
    names: dict[str, Any] = {"__name__": "__main__"}
    for block in found:
        # Line numbers of a traceback are those of the page.
        code = compile("\n" * (block.line - 1) + block.text, str(page), "exec", dont_inherit=True)
        exec(code, names)  # noqa: S102 - that is the point
    assert (tmp_path / "store" / "warp-store.json").exists(), f"{page.name} published nothing"


def test_the_readme_names_the_two_commands() -> None:
    shown = "\n".join(block.text for block in blocks(ROOT / "README.md", "sh"))
    targets = (ROOT / "Makefile").read_text(encoding="utf-8")
    for command in ("demo", "test"):
        assert f"make {command}" in shown
        assert f"\n{command}:" in targets


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_that_are_shown_exist(page: Path) -> None:
    """Check names and options. Other tests check the behaviour."""
    import shlex

    import click

    from warpdata.cli import warp

    context = click.Context(warp)
    for block in blocks(page, "sh"):
        for line in block.text.splitlines():
            words = shlex.split(line.split(" | ")[0], comments=True)
            if not words or words[0] != "warp":
                continue
            command = warp.get_command(context, words[1])
            rest = words[2:]
            if isinstance(command, click.Group) and rest:
                command, rest = command.get_command(context, rest[0]), rest[1:]
            assert command is not None, line
            options = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
            assert {word for word in rest if word.startswith("-")} <= options, line
