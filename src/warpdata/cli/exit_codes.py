"""The end of a run: exit codes by error class, error messages, and Ctrl-C.

A failure prints one `error:` line and, if the error has a hint, one `hint:` line. With `--json` it prints the
document of `ERROR_KEYS` instead. A traceback needs `--debug`.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict
from types import FrameType
from typing import TYPE_CHECKING, TextIO

import click

from warpdata.cli.terminal import clear_error_line, escape_json, is_json, mute_warnings, write_error
from warpdata.errors import (
    BadInputError,
    ConflictError,
    CorruptError,
    DeniedError,
    ManifestCorruptedError,
    MergeConflictError,
    NotFoundError,
    StorageError,
    UnsupportedError,
    WarpError,
)

if TYPE_CHECKING:
    from warpdata.edit import MergeConflict

__all__ = [
    "CORRUPT",
    "ERROR_KEYS",
    "EXIT_CODES",
    "INTERRUPTED",
    "NOT_FOUND",
    "OK",
    "STORAGE",
    "UNEXPECTED",
    "USAGE",
    "conflict_lines",
    "end_without_hurry",
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

ERROR_KEYS: Mapping[str, str] = {
    "kind": "the exact reason, as in the errors reference; usage for an invalid command line, unexpected for a bug",
    "type": "class of the exception",
    "message": "what is wrong",
    "hint": "one next step, or null",
    "problems": "list of every finding in a corrupt document, often empty",
    "txn_id": "id of the transaction if the outcome of a publish is unknown, else null",
    "conflicts": "list of {table, sample_id, columns, base, ours, theirs} if a merge found some, else empty",
    "exit_code": "the exit code, as listed above",
}
"""Keys of the object `error`, the only key of the document that a failure prints with `--json`."""

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
_LISTED_CONFLICTS = 20

_INTERRUPT_GRACE_S = 1.0
_interrupt_printed = threading.Lock()


def report_error(error: BaseException, *, debug: bool = False, as_json: bool = False) -> int:
    """Print the error on stderr, for people or as a JSON document, and return the exit code."""
    if isinstance(error, BrokenPipeError):
        _redirect_to_null(sys.stdout, sys.stderr)
        return OK
    if isinstance(error, KeyboardInterrupt | click.Abort):
        _redirect_to_null(sys.stdout)
    try:
        if debug:
            _print_traceback(error)
        if as_json and not isinstance(error, KeyboardInterrupt | click.Abort):
            write_error(_document(error))
        else:
            _print_error_and_hint(error, debug)
    except BrokenPipeError:
        _redirect_to_null(sys.stdout, sys.stderr)
    return _exit_code(error)


def print_error(text: str) -> None:
    """Print an error of a command that also prints a result. With `--json` the result says it."""
    if not is_json():
        write_error(text, "error", "red")


def print_hint(text: str) -> None:
    if not is_json():
        write_error(text, "hint", "cyan")


def exit_on_interrupt() -> None:
    """Let Ctrl-C end the process within about a second. Call it from the main thread.

    Python raises `KeyboardInterrupt` only between bytecode instructions, so a library that waits for the
    network would delay it. A thread receives the signal, waits a moment for the main thread to exit, and then
    ends the process. This is safe at any point: an interrupted publish leaves the previous version as it was.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _mute_and_interrupt)
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    threading.Thread(target=_exit_after_signal, args=(read_end,), name="warp-interrupt", daemon=True).start()


def end_without_hurry() -> None:
    """Undo `exit_on_interrupt`, for a service that ends itself: it answers open requests first."""
    signal.set_wakeup_fd(-1)


def _mute_and_interrupt(number: int, frame: FrameType | None) -> None:
    mute_warnings()
    signal.default_int_handler(number, frame)


def _exit_after_signal(read_end: int) -> None:
    while signal.SIGINT not in os.read(read_end, 64):
        pass
    time.sleep(_INTERRUPT_GRACE_S)
    with suppress(OSError, ValueError):
        clear_error_line()
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


def _print_traceback(error: BaseException) -> None:
    import traceback

    write_error("".join(traceback.format_exception(error)).rstrip())


def _document(error: BaseException) -> str:
    """Return the document of `ERROR_KEYS` on one line."""
    known = error if isinstance(error, WarpError) else None
    is_usage = isinstance(error, click.ClickException)
    message, hint = _message_and_hint(error)
    facts = {
        "kind": str(known.kind) if known else "usage" if is_usage else "unexpected",
        "type": type(error).__name__,
        "message": message,
        "hint": hint,
        "problems": list(getattr(error, "problems", ())),
        "txn_id": getattr(error, "txn_id", None),
        "conflicts": [asdict(conflict) for conflict in getattr(error, "conflicts", ())],
        "exit_code": _exit_code(error),
    }
    return escape_json(json.dumps({"error": facts}, ensure_ascii=False, default=str).encode()).decode()


def _print_error_and_hint(error: BaseException, debug: bool) -> None:
    if isinstance(error, KeyboardInterrupt | click.Abort):
        _print_interrupted()
        return
    message, hint = _message_and_hint(error)
    write_error("\n".join(message.strip().splitlines()[:_LISTED_PROBLEMS]), "error", "red")
    if isinstance(error, ManifestCorruptedError):
        for problem in error.problems[:_LISTED_PROBLEMS]:
            write_error(f"  {problem}")
        if len(error.problems) > _LISTED_PROBLEMS:
            write_error(f"  and {len(error.problems) - _LISTED_PROBLEMS} more")
    if isinstance(error, MergeConflictError):
        _print_conflicts(error)
    if hint and not (debug and _is_unexpected(error)):
        write_error(hint, "hint", "cyan")


def _print_conflicts(error: MergeConflictError) -> None:
    """Print both values of each conflict, and the one that both sides began with."""
    for conflict in error.conflicts[:_LISTED_CONFLICTS]:
        for line in conflict_lines(conflict):
            write_error(f"  {line}")
    if len(error.conflicts) > _LISTED_CONFLICTS:
        write_error(f"  and {len(error.conflicts) - _LISTED_CONFLICTS:,} more; --json lists all")


def conflict_lines(conflict: MergeConflict) -> Iterator[str]:
    """Yield a line for each column of a sample that both sides changed."""
    from warpdata.cli.format import cell_text

    sample = f"table {conflict.table}, sample {conflict.sample_id}"
    if conflict.ours is None or conflict.theirs is None:
        side = "ours" if conflict.ours is None else "theirs"
        yield f"{sample}: deleted by {side}, changed by {'theirs' if side == 'ours' else 'ours'}"
        return
    for name in conflict.columns:
        base, ours, theirs = (
            cell_text((row or {}).get(name)) for row in (conflict.base, conflict.ours, conflict.theirs)
        )
        yield f"{sample}, {name}: ours {ours}, theirs {theirs}, before {base}"


def _message_and_hint(error: BaseException) -> tuple[str, str | None]:
    if isinstance(error, WarpError):
        return error.message, error.hint
    if isinstance(error, click.ClickException):
        context = getattr(error, "ctx", None)
        hint = getattr(error, "hint", None)
        return error.format_message(), hint or (context and f"Run `{context.command_path} --help` for usage.")
    return (
        f"unexpected {type(error).__name__}: {error}",
        "Run the command again with --debug for a traceback, and please report it.",
    )


def _is_unexpected(error: BaseException) -> bool:
    return not isinstance(error, WarpError | click.ClickException)


def _print_interrupted() -> None:
    """Print "interrupted", once per process."""
    if _interrupt_printed.acquire(blocking=False):
        write_error("interrupted", colour="yellow")


def _redirect_to_null(*streams: TextIO) -> None:
    """Discard buffered output, so that the flush at exit neither blocks nor fails on a closed pipe."""
    with suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        for stream in streams:
            with suppress(OSError, ValueError):
                os.dup2(null, stream.fileno())
        os.close(null)
