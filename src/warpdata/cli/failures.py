"""How a run ends: exit codes from the error tree, and the few lines a person reads.

A failure is one `error:` line and, where there is one, a `hint:` line with a next step. A traceback
appears only with `--debug`.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Mapping
from contextlib import suppress

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

__all__ = ["CORRUPT", "EXIT_CODES", "INTERRUPTED", "NOT_FOUND", "OK", "STORAGE", "UNEXPECTED", "USAGE", "report"]

OK, UNEXPECTED, USAGE, NOT_FOUND, STORAGE, CORRUPT, INTERRUPTED = 0, 1, 2, 3, 7, 8, 130

EXIT_CODES: Mapping[int, str] = {
    OK: "all is well, also when the reader of a pipe had enough",
    UNEXPECTED: "unexpected: a defect, or the machine failed",
    USAGE: "the command line is wrong",
    NOT_FOUND: "not found: dataset, version, table, column or object",
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


def report(error: BaseException, *, debug: bool = False) -> int:
    """Say what went wrong on stderr, and give the exit code."""
    if isinstance(error, KeyboardInterrupt | click.Abort):
        _say("interrupted", "yellow", "")
        return INTERRUPTED
    if isinstance(error, OSError) and error.errno == errno.EPIPE:
        _silence_streams()
        return OK
    if debug:
        import traceback

        click.echo("".join(traceback.format_exception(error)), err=True, nl=False)
    if isinstance(error, click.ClickException):
        return _report_usage(error)
    if isinstance(error, WarpError):
        return _report_typed(error)
    _say("error", "red", f"unexpected {type(error).__name__}: {error}")
    if not debug:
        _say("hint", "cyan", "Run it again with --debug to see where, and please report it.")
    return UNEXPECTED


def _report_typed(error: WarpError) -> int:
    _say("error", "red", error.message)
    if isinstance(error, ManifestCorruptedError):
        for problem in error.problems[:_LISTED_PROBLEMS]:
            click.echo(f"  {problem}", err=True)
        if len(error.problems) > _LISTED_PROBLEMS:
            click.echo(f"  and {len(error.problems) - _LISTED_PROBLEMS} more", err=True)
    if error.hint:
        _say("hint", "cyan", error.hint)
    return next((code for family, code in _FAMILIES if isinstance(error, family)), UNEXPECTED)


def _report_usage(error: click.ClickException) -> int:
    _say("error", "red", error.format_message())
    context = getattr(error, "ctx", None)
    if context is not None:
        _say("hint", "cyan", f"`{context.command_path} --help` shows how it is used.")
    return error.exit_code


def _say(what: str, colour: str, text: str) -> None:
    click.echo(click.style(f"{what}: " if text else what, fg=colour, bold=True) + text, err=True)


def _silence_streams() -> None:
    """Let the interpreter flush into nothing, so that it does not complain while it ends."""
    with suppress(OSError, ValueError):
        nothing = os.open(os.devnull, os.O_WRONLY)
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
                continue
            os.dup2(nothing, stream.fileno())
