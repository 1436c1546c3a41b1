"""The end of a run: exit codes by error class, error messages, and Ctrl-C.

A failure prints one `error:` line and, if the error has a hint, one `hint:` line. A traceback needs `--debug`.
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
    "report_error",
]

OK, UNEXPECTED, USAGE, NOT_FOUND, STORAGE, CORRUPT = 0, 1, 2, 3, 7, 8
INTERRUPTED = 130

EXIT_CODES: Mapping[int, str] = {
    OK: "success, also if the reader of a pipe closed it early",
    UNEXPECTED: "unexpected error: a bug, or a failure of the machine",
    USAGE: "invalid command line",
    NOT_FOUND: "not found: dataset, version, table, column, artifact, file or object",
    4: "conflict: another writer was first, or the outcome is unknown",
    5: "bad input: invalid name, file, filter or value",
    6: "denied: credentials, access, or a read-only store",
    STORAGE: "the store failed, or `doctor` found a problem",
    CORRUPT: "corrupt data, also found by `verify`",
    9: "unsupported, or an optional package is missing",
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

_INTERRUPT_GRACE_S = 1.0
_CLEAR_LINE_AND_SHOW_CURSOR = "\r\x1b[2K\x1b[?25h"
_interrupt_printed = threading.Lock()


def report_error(error: BaseException, *, debug: bool = False) -> int:
    """Print the error on stderr and return the exit code."""
    if isinstance(error, BrokenPipeError):
        _redirect_to_null(sys.stdout, sys.stderr)
        return OK
    if isinstance(error, KeyboardInterrupt | click.Abort):
        _redirect_to_null(sys.stdout)
    try:
        _print_error_and_hint(error, debug)
    except BrokenPipeError:
        _redirect_to_null(sys.stdout, sys.stderr)
    return _exit_code(error)


def print_error(text: str) -> None:
    click.echo(click.style("error: ", fg="red", bold=True) + text, err=True)


def print_hint(text: str) -> None:
    click.echo(click.style("hint: ", fg="cyan", bold=True) + text, err=True)


def exit_on_interrupt() -> None:
    """Let Ctrl-C end the process within about a second. Call it from the main thread.

    Python raises `KeyboardInterrupt` only between bytecode instructions, so a library that waits for the
    network would delay it. A thread receives the signal, waits a moment for the main thread to exit, and then
    ends the process. This is safe at any point: an interrupted publish leaves the previous version as it was.
    """
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    threading.Thread(target=_exit_after_signal, args=(read_end,), name="warp-interrupt", daemon=True).start()


def _exit_after_signal(read_end: int) -> None:
    while signal.SIGINT not in os.read(read_end, 64):
        pass
    time.sleep(_INTERRUPT_GRACE_S)
    with suppress(OSError, ValueError):
        if sys.stderr.isatty():
            sys.stderr.write(_CLEAR_LINE_AND_SHOW_CURSOR)
        _print_interrupted()
        sys.stderr.flush()
    atexit._run_exitfuncs()  # noqa: SLF001 - removes staging directories without joining threads
    os._exit(INTERRUPTED)


def _exit_code(error: BaseException) -> int:
    if isinstance(error, KeyboardInterrupt | click.Abort):
        return INTERRUPTED
    if isinstance(error, click.ClickException):
        return error.exit_code
    return next((code for family, code in _FAMILIES if isinstance(error, family)), UNEXPECTED)


def _print_error_and_hint(error: BaseException, debug: bool) -> None:
    if debug:
        import traceback

        click.echo("".join(traceback.format_exception(error)), err=True, nl=False)
    if isinstance(error, KeyboardInterrupt | click.Abort):
        _print_interrupted()
    elif isinstance(error, click.ClickException):
        _print_usage_error(error)
    elif isinstance(error, WarpError):
        _print_warp_error(error)
    else:
        print_error(f"unexpected {type(error).__name__}: {error}")
        if not debug:
            print_hint("Run the command again with --debug for a traceback, and please report it.")


def _print_warp_error(error: WarpError) -> None:
    print_error("\n".join(error.message.strip().splitlines()[:_LISTED_PROBLEMS]))
    if isinstance(error, ManifestCorruptedError):
        for problem in error.problems[:_LISTED_PROBLEMS]:
            click.echo(f"  {problem}", err=True)
        if len(error.problems) > _LISTED_PROBLEMS:
            click.echo(f"  and {len(error.problems) - _LISTED_PROBLEMS} more", err=True)
    if error.hint:
        print_hint(error.hint)


def _print_usage_error(error: click.ClickException) -> None:
    print_error(error.format_message())
    context = getattr(error, "ctx", None)
    if context is not None:
        print_hint(f"Run `{context.command_path} --help` for usage.")


def _print_interrupted() -> None:
    """Print "interrupted", once per process."""
    if _interrupt_printed.acquire(blocking=False):
        click.echo(click.style("interrupted", fg="yellow", bold=True), err=True)


def _redirect_to_null(*streams: TextIO) -> None:
    """Discard buffered output, so that the flush at exit neither blocks nor fails on a closed pipe."""
    with suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        for stream in streams:
            with suppress(OSError, ValueError):
                os.dup2(null, stream.fileno())
        os.close(null)
