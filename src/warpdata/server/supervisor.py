"""Several processes that answer on one port: the parent binds it, forks, and replaces a process that dies.

Children share the store and the database, and nothing else. The parent opens neither.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from types import FrameType

from warpdata.errors import BadInputError

__all__ = ["bind", "run_processes"]

_QUICK_S = 5.0
_MAX_QUICK_DEATHS = 5
"""A process that dies at once, so many times in turn, has a reason that a new one does not cure."""


def bind(host: str, port: int) -> socket.socket:
    """Return a listening socket. Children inherit it, and the system shares connections among them."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host.strip("[]"), port))
    except OSError as error:
        bound.close()
        reason = error.strerror or str(error)
        raise BadInputError(f"cannot listen on {host}:{port}: {reason}", hint="Choose another --port.") from error
    bound.listen(2048)
    bound.set_inheritable(True)
    return bound


def run_processes(count: int, run: Callable[[int], None], timer: Callable[[], float]) -> int:
    """Run a function in so many processes, with their numbers, until SIGINT or SIGTERM. Return an exit code.

    Call it before the program has threads. A process that dies is replaced.
    """
    children: dict[int, int] = {}
    ending = False

    def end(_number: int, _frame: FrameType | None) -> None:
        nonlocal ending
        ending = True
        for child in children:
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGTERM)

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    for number in range(count):
        children[_fork(number, run)] = number
    quick, started = 0, timer()
    while children:
        try:
            child, _ = os.wait()
        except ChildProcessError:
            break
        number = children.pop(child, -1)
        if ending or number < 0:
            continue
        quick = quick + 1 if timer() - started < _QUICK_S else 0
        if quick >= _MAX_QUICK_DEATHS:
            end(signal.SIGTERM, None)
            continue
        started = timer()
        children[_fork(number, run)] = number
    return 1 if quick >= _MAX_QUICK_DEATHS else 0


def _fork(number: int, run: Callable[[int], None]) -> int:
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child:
        return child
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent passes it on
    code = 1
    try:
        run(number)
        code = 0
    except BaseException:  # noqa: BLE001 - the parent replaces the process
        traceback.print_exc()
    finally:
        with suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)
