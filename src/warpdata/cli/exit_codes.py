"""How a run ends: exit codes from the error tree, and the few lines a person reads.

A failure is one `error:` line and, where there is one, a `hint:` line with a next step. A traceback
appears only with `--debug`.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import TextIO

import click

from warpdata.errors import (
    BadInputError,
    ConflictError,
    CorruptError,
    DeniedError,
    ManifestCorruptedError,
    NotFoundError,
    StorageError,
    UnsupportedError,
    WarpError,
)

__all__ = [
    "CORRUPT",
    "EXIT_CODES",
    "INTERRUPTED",
    "NOT_FOUND",
    "OK",
    "STORAGE",
    "UNEXPECTED",
    "USAGE",
    "exit_on_interrupt",
    "print_error",
    "print_hint",
    "print_interrupted",
    "report_error",
]

OK, UNEXPECTED, USAGE, NOT_FOUND, STORAGE, CORRUPT = 0, 1, 2, 3, 7, 8
INTERRUPTED = 130

EXIT_CODES: Mapping[int, str] = {
    OK: "all is well, also when the reader of a pipe had enough",
    UNEXPECTED: "unexpected: a defect, or the machine failed",
    USAGE: "the command line is wrong",
    NOT_FOUND: "not found: dataset, version, table, column, artifact, file or object",
    4: "conflict: somebody was first, or the outcome is unknown",
    5: "bad input: a name, file, filter or value cannot work",
    6: "denied: credentials, access, or a read-only store",
    STORAGE: "the store failed, or `doctor` found a problem",
    CORRUPT: "corrupt: bytes are not what was promised, also `verify`",
    9: "unsupported here, or a package is missing",
    INTERRUPTED: "interrupted",
}

_FAMILIES: tuple[tuple[type[WarpError], int], ...] = (
    (NotFoundError, NOT_FOUND),
    (ConflictError, 4),
    (BadInputError, 5),
    (DeniedError, 6),
    (StorageError, STORAGE),
    (CorruptError, CORRUPT),
    (UnsupportedError, 9),
)
_LISTED_PROBLEMS = 10


def report_error(error: BaseException, *, debug: bool = False) -> int:
    """Say what went wrong on stderr, and give the exit code."""
    if isinstance(error, BrokenPipeError):
        _abandon(sys.stdout, sys.stderr)
        return OK
    if isinstance(error, KeyboardInterrupt | click.Abort):
        _abandon(sys.stdout)
    try:
        _explain(error, debug)
    except BrokenPipeError:
        _abandon(sys.stdout, sys.stderr)
    return _code(error)


def _code(error: BaseException) -> int:
    if isinstance(error, KeyboardInterrupt | click.Abort):
        return INTERRUPTED
    if isinstance(error, click.ClickException):
        return error.exit_code
    return next((code for family, code in _FAMILIES if isinstance(error, family)), UNEXPECTED)


def _explain(error: BaseException, debug: bool) -> None:
    if debug:
        import traceback

        click.echo("".join(traceback.format_exception(error)), err=True, nl=False)
    if isinstance(error, KeyboardInterrupt | click.Abort):
        print_interrupted()
    elif isinstance(error, click.ClickException):
        _explain_usage(error)
    elif isinstance(error, WarpError):
        _explain_typed(error)
    else:
        print_error(f"unexpected {type(error).__name__}: {error}")
        if not debug:
            print_hint("Run it again with --debug to see where, and please report it.")


def print_error(text: str) -> None:
    click.echo(click.style("error: ", fg="red", bold=True) + text, err=True)


def print_hint(text: str) -> None:
    click.echo(click.style("hint: ", fg="cyan", bold=True) + text, err=True)


def _explain_typed(error: WarpError) -> None:
    print_error("\n".join(error.message.strip().splitlines()[:_LISTED_PROBLEMS]))
    if isinstance(error, ManifestCorruptedError):
        for problem in error.problems[:_LISTED_PROBLEMS]:
            click.echo(f"  {problem}", err=True)
        if len(error.problems) > _LISTED_PROBLEMS:
            click.echo(f"  and {len(error.problems) - _LISTED_PROBLEMS} more", err=True)
    if error.hint:
        print_hint(error.hint)


def _explain_usage(error: click.ClickException) -> None:
    print_error(error.format_message())
    context = getattr(error, "ctx", None)
    if context is not None:
        print_hint(f"`{context.command_path} --help` shows how it is used.")


def _abandon(*streams: TextIO) -> None:
    """Send what is still buffered into nothing: nobody reads it, and the end must neither wait nor print_error."""
    with suppress(OSError, ValueError):
        nothing = os.open(os.devnull, os.O_WRONLY)
        for stream in streams:
            with suppress(OSError, ValueError):
                os.dup2(nothing, stream.fileno())
        os.close(nothing)


_GRACE_S = 1.0
_CLEAR_LINE_AND_SHOW_CURSOR = "\r\x1b[2K\x1b[?25h"
_announced = threading.Lock()


def exit_on_interrupt() -> None:
    """For the main thread of a program of its own; a test that runs commands in-process leaves it out."""
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    threading.Thread(target=_watch, args=(read_end,), name="warp-interrupt", daemon=True).start()


def print_interrupted() -> None:
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
        print_interrupted()
        sys.stderr.flush()
    atexit._run_exitfuncs()  # noqa: SLF001 - removes staging folders, and does not wait for threads
    os._exit(INTERRUPTED)
