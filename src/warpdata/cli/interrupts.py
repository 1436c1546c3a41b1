"""Ctrl-C ends the program soon, also while a library waits for the network and does not listen.

Python turns a signal into `KeyboardInterrupt` only between its own instructions. A thread here hears
of it at once, gives the main thread a moment to end by itself, and then ends the process. That is
safe at any point: a publish that is cut off leaves the previous version as it was.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
import time
from contextlib import suppress

import click

__all__ = ["INTERRUPTED", "announce_interrupt", "end_soon_on_interrupt"]

INTERRUPTED = 130
_GRACE_S = 1.0
_CLEAR_LINE_AND_SHOW_CURSOR = "\r\x1b[2K\x1b[?25h"
_announced = threading.Lock()


def end_soon_on_interrupt() -> None:
    """For the main thread of a program of its own; a test that runs commands in-process leaves it out."""
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    threading.Thread(target=_watch, args=(read_end,), name="warp-interrupt", daemon=True).start()


def announce_interrupt() -> None:
    """Say it once, whoever comes first."""
    if _announced.acquire(blocking=False):
        click.echo(click.style("interrupted", fg="yellow", bold=True), err=True)


def _watch(read_end: int) -> None:
    while signal.SIGINT not in os.read(read_end, 64):
        pass
    time.sleep(_GRACE_S)
    with suppress(OSError, ValueError):
        if sys.stderr.isatty():
            sys.stderr.write(_CLEAR_LINE_AND_SHOW_CURSOR)
        announce_interrupt()
        sys.stderr.flush()
    atexit._run_exitfuncs()  # noqa: SLF001 - removes staging folders, and does not wait for threads
    os._exit(INTERRUPTED)
