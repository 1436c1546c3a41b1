"""What one run of `warp` was asked: the options every command shares, and how to reach the store."""

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
    """Filled in by the option parser, before the command runs."""

    store: str | None = None
    mode: str | None = None
    quiet: bool = False
    debug: bool = False
    as_json: bool = False

    def connect(self) -> Session:
        """The store asked for, or the one that the settings name. Makes no request."""
        return warpdata.connect(self.store, mode=self.mode)

    def open(self, address: str) -> Dataset:
        return warpdata.dataset(address, store=self.store, mode=self.mode)

    def progress(self, title: str, *, writes_data: bool = False) -> ProgressLine:
        """Progress on stderr, if a person is looking at it, and not at data written at the same time."""
        is_seen = sys.stderr.isatty() and not (writes_data and sys.stdout.isatty())
        return ProgressLine(title, is_visible=is_seen and not self.quiet)
