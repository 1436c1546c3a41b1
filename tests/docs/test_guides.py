"""If this fails, a user who follows the README or a guide to the letter ends with an error.

A page runs from top to bottom in an empty directory against an empty store: Python blocks in one interpreter, shell
blocks in bash, each with the directory, files and exported variables that the blocks before it left. A `text` block
right after a code block is the output that the reader should see; `…` in it matches anything. The bucket of the pages,
`s3://lake`, becomes a prefix on the server of the tests.
"""

from __future__ import annotations

import io
import os
import re
import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from tests.docs.pages import ROOT, Block, code_blocks
from tests.packaging.oldest import PROJECT
from warpdata.testing import S3Endpoint

PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/guides/*.md"))]
BASH = shutil.which("bash")
HAS_WIDER_TABLES = tuple(map(int, version("rich").split(".")[:2])) < (14, 3)
"""Whether the installed release of rich puts more space between columns than the one that the pages show."""

SHIMS = {
    "warp": f'exec "{sys.executable}" -m warpdata.cli "$@"\n',
    "python": f'exec "{sys.executable}" "$@"\n',
    # The tests run in the environment that these commands would make, so they only check their arguments.
    "make": f'for target in "$@"; do grep -q "^$target:" "{ROOT}/Makefile" || exit 1; done\n'
    "mkdir -p .venv/bin && touch .venv/bin/activate\n",
    "pip": f'exec "{sys.executable}" -m tests.docs.check_install "$@"\n',
}


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, s3_server: S3Endpoint) -> Path:
    """An empty directory, a path with the commands of the guides, and credentials of an S3 server."""
    programs, work = tmp_path / "programs", tmp_path / "work"
    programs.mkdir()
    work.mkdir()
    for name, text in SHIMS.items():
        (programs / name).write_text(f"#!/bin/bash\n{text}")
        (programs / name).chmod(0o755)
    credentials = tmp_path / "credentials"
    credentials.write_text(
        f"[research]\naws_access_key_id = {s3_server.access_key_id}\n"
        f"aws_secret_access_key = {s3_server.secret_access_key}\n"
    )
    for name, value in {
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
        "HOME": str(tmp_path),
        "WARP_STORE": str(tmp_path / "store"),
        "WARP_CACHE_DIR": str(tmp_path / "cache"),
        "AWS_SHARED_CREDENTIALS_FILE": str(credentials),
        "AWS_PROFILE": "research",
        "AWS_ENDPOINT_URL": s3_server.endpoint_url,
        "AWS_ALLOW_HTTP": "true",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(work)
    return work


@pytest.mark.s3
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_page_runs_from_top_to_bottom(
    page: Path, shell: Path, s3_server: S3Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket = s3_server.url(f"guide-{secrets.token_hex(4)}")
    names: dict[str, Any] = {"__name__": "__main__"}
    output = ""
    ran: set[str] = set()
    for block in code_blocks(page):
        where = f"{page.name}:{block.line}"
        if block.info == "python":
            output = run_python(page, block, names)
        elif block.info == "sh":
            output = run_shell(where, block.text.replace("s3://lake", bucket), monkeypatch)
        elif block.info == "text":
            assert matches(output, block.text), f"{where} shows\n{block.text}\nbut the block before prints\n{output}"
        elif block.info == "env":
            check_variables(block.text)
        else:
            pytest.fail(f"{where} is a block that no test runs: {block.info!r}")
        ran.add(block.info)
    assert "python" in ran or page.name == "page.md", "every page but that of the web page has Python to run"


def check_variables(text: str) -> None:
    """Check that the variables of an `env` block are documented."""
    documented = (ROOT / "docs" / "reference" / "settings.md").read_text(encoding="utf-8")
    for line in text.splitlines():
        name, equals, value = line.partition("=")
        assert equals, line
        assert value, line
        assert f"`{name}`" in documented, line


def run_python(page: Path, block: Block, names: dict[str, Any]) -> str:
    # Line numbers of a traceback are those of the page.
    code = compile("\n" * (block.line - 1) + block.text, str(page), "exec", dont_inherit=True)
    with redirect_stdout(io.StringIO()) as printed:
        exec(code, names)  # noqa: S102 - that is the point
    return printed.getvalue()


def run_shell(where: str, text: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run a block in bash. Its directory and exported variables stay for later blocks."""
    left = Path(os.environ["HOME"]) / "left"
    script = f'set -euo pipefail\n{text}\n{{ pwd; env -0; }} > "{left}"\n'
    assert BASH is not None
    done = subprocess.run([BASH, "-c", script], capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, f"{where} failed:\n{text}\n{done.stdout}\n{done.stderr}"
    directory, _, variables = left.read_text().partition("\n")
    monkeypatch.chdir(directory)
    for line in filter(None, variables.split("\0")):
        name, _, value = line.partition("=")
        if name not in ("_", "SHLVL", "PWD", "OLDPWD") and os.environ.get(name) != value:
            monkeypatch.setenv(name, value)
    return done.stdout


def matches(output: str, shown: str) -> bool:
    """Compare line by line, without regard to spaces at the ends. `…` matches any text, also of several lines."""
    pattern = r".*?".join(re.escape(part) for part in tidy(shown).split("…"))
    return re.fullmatch(pattern, tidy(output), re.DOTALL) is not None


def tidy(text: str) -> str:
    if HAS_WIDER_TABLES:
        text = re.sub(r"(?<=\S)  +|^ +|─+", " ", text, flags=re.MULTILINE)
    return "\n".join(line.rstrip() for line in text.strip("\n").splitlines())


@pytest.mark.parametrize(
    ("output", "shown", "same"),
    [("a\nb  \n", "a\nb", True), ("a 123 b", "a … b", True), ("a", "b", False), ("a\nb\nc", "a\n…\nc", True)],
)
def test_shown_output_is_compared(output: str, shown: str, same: bool) -> None:
    assert matches(output, shown) is same


def test_readme_names_the_two_commands() -> None:
    shown = "\n".join(block.text for block in code_blocks(ROOT / "README.md") if block.info == "sh")
    targets = (ROOT / "Makefile").read_text(encoding="utf-8")
    for command in ("demo", "test"):
        assert f"make {command}" in shown
        assert f"\n{command}:" in targets


def inline_commands() -> Iterator[tuple[str, str]]:
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for found in re.finditer(r"`(warp [^`\n]+)`", text):
            yield page.name, found[1]


@pytest.mark.parametrize(("page", "line"), list(inline_commands()))
def test_commands_in_the_text_exist(page: str, line: str) -> None:
    """Blocks run; a command inside a sentence is only checked for its name and options."""
    import shlex

    import click

    from warpdata.cli import warp

    context = click.Context(warp)
    words = shlex.split(line.split(" | ")[0], comments=True)
    command = warp.get_command(context, words[1])
    rest = words[2:]
    while isinstance(command, click.Group) and rest:
        command, rest = command.get_command(context, rest[0]), rest[1:]
    assert command is not None, line
    options = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    given = {word.partition("=")[0] for word in rest if word.startswith("-") and word != "-"}
    assert given <= {*options, "--help"}, line


def test_extras_of_the_tutorials_exist() -> None:
    assert {"wshard", "image", "audio", "video"} <= set(PROJECT["optional-dependencies"])
