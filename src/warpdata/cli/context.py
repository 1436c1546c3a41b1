"""The object that click passes to every command: the shared options, and access to the store."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import warpdata
from warpdata.cli.progress import ProgressLine

if TYPE_CHECKING:
    from warpdata.datasets import Dataset
    from warpdata.session import Session

__all__ = ["CliContext"]


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

    def open(self, address: str) -> Dataset:
        return warpdata.dataset(address, store=self.store, mode=self.mode)

    def progress(self, title: str, *, writes_data: bool = False) -> ProgressLine:
        """Return a progress line for stderr.

        The line is hidden if stderr is not a terminal. With `writes_data` it is also hidden if stdout is a
        terminal, where it would mix with the data.
        """
        is_visible = sys.stderr.isatty() and not (writes_data and sys.stdout.isatty())
        return ProgressLine(title, is_visible=is_visible and not self.quiet)
