"""The object that click passes to every command, and the commands that start this program again."""

from __future__ import annotations

import shlex
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

import warpdata
from warpdata.cli.progress import ProgressLine
from warpdata.cli.terminal import escape

if TYPE_CHECKING:
    from warpdata.datasets import Dataset
    from warpdata.session import Session

__all__ = ["CliContext", "python_command", "warp_command"]


@dataclass
class CliContext:
    """Options of one run. The option parser sets the fields before the command runs."""

    store: str | None = None
    mode: str | None = None
    quiet: bool = False
    debug: bool = False
    as_json: bool = False
    json_errors: bool = False
    """Print errors as JSON: the command line contains `--json`, even if it cannot be parsed."""

    def connect(self) -> Session:
        """Connect to `--store`, or to the store in the settings. Makes no request."""
        return warpdata.connect(self.store, mode=self.mode)

    @property
    def direct_mode(self) -> str:
        """The mode for commands that check the store and not the cache: `remote`, unless the network is forbidden."""
        return "local" if (self.mode or warpdata.load_settings().mode) == "local" else "remote"

    def open(self, address: str) -> Dataset:
        return warpdata.dataset(address, store=self.store, mode=self.mode)

    def progress(self, title: str, *, writes_data: bool = False) -> ProgressLine:
        """Return a progress line for stderr.

        The line is hidden if stderr is not a terminal. With `writes_data` it is also hidden if stdout is a
        terminal, where it would mix with the data.
        """
        is_visible = sys.stderr.isatty() and not (writes_data and sys.stdout.isatty())
        return ProgressLine(title, is_visible=is_visible and not self.quiet)

    def confirm(self, question: str, *, yes: bool) -> bool:
        """Ask on the terminal, unless `--yes` was given. Without a terminal, `--yes` is required."""
        if yes:
            return True
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise click.UsageError("no terminal to ask for confirmation; add --yes")
        return click.confirm(escape(question), err=True)


def warp_command() -> str:
    """Return the words that run this `warp` from the current directory in the user's shell."""
    script = Path(sys.executable).with_name("warp")
    return _command(script) if script.exists() else f"{python_command()} -m warpdata.cli"


def python_command() -> str:
    """Return the word that runs this Python from the current directory in the user's shell."""
    return _command(Path(sys.executable))


def _command(program: Path) -> str:
    """Return the name of a program if the shell finds it, or else its path."""
    found = shutil.which(program.name)
    if found is not None and Path(found).absolute() == program.absolute():
        return program.name
    here = Path.cwd()
    path = program.relative_to(here) if program.is_relative_to(here) else program
    return shlex.quote(str(path))
