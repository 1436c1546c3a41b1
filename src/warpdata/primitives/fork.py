"""Callbacks that run in a forked child, before any other code of the child.

The child has only the thread that called `fork()`. A lock that another thread held stays locked for ever, and
connections, threads and file locks belong to the parent. Owners of such state register a callback that resets it.
"""

from __future__ import annotations

import itertools
import os
import threading
import weakref
from collections.abc import Callable
from functools import partial
from types import MethodType

from warpdata.primitives.live_objects import LiveObjects

__all__ = ["ForkSafeLock", "register_after_fork"]

_callbacks: dict[int, Callable[[], object]] = {}
_keys = itertools.count()


class ForkSafeLock:
    """A lock that is free in a forked child, even if another thread of the parent held it.

    For state that is valid at every moment, such as one dict. An owner whose updates take several steps registers a
    callback that resets the state too.
    """

    __slots__ = ("__weakref__", "_lock")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        _locks.add(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def renew(self) -> None:
        self._lock = threading.Lock()


_locks: LiveObjects[ForkSafeLock] = LiveObjects()


def _renew_locks() -> None:
    for lock in _locks:
        lock.renew()


def register_after_fork(callback: Callable[[], object]) -> None:
    """Call `callback` in every forked child, in order of registration.

    A bound method is held weakly: the registration ends with its object. A function is held for ever.
    """
    key = next(_keys)
    if isinstance(callback, MethodType):
        # Not a WeakMethod, whose own callback fails while the interpreter exits.
        function, owner = callback.__func__, weakref.ref(callback.__self__, partial(_forget, _callbacks, key))
        _callbacks[key] = partial(_call_alive, function, owner)
    else:
        _callbacks[key] = callback


def _forget(callbacks: dict[int, Callable[[], object]], key: int, _: object) -> None:
    callbacks.pop(key, None)


def _call_alive(function: Callable[[object], object], owner: Callable[[], object]) -> None:
    found = owner()
    if found is not None:
        function(found)


def _run_callbacks() -> None:
    """Run all callbacks, then report every failure. The interpreter prints the report and goes on."""
    errors: list[Exception] = []
    for callback in list(_callbacks.values()):
        try:
            callback()
        except Exception as error:  # noqa: BLE001 - the other owners still have to be reset
            errors.append(error)
    if errors:
        raise ExceptionGroup("callbacks failed in a forked process", errors)


register_after_fork(_renew_locks)

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_run_callbacks)
