"""Callbacks that run in a forked child, before any other code of the child.

The child has only the thread that called `fork()`. A lock that another thread held stays locked for ever, and
connections, threads and file locks belong to the parent. Owners of such state register a callback that resets it.
"""

from __future__ import annotations

import itertools
import os
import weakref
from collections.abc import Callable
from types import MethodType

__all__ = ["register_after_fork"]

_Callback = Callable[[], object]
_callbacks: dict[int, Callable[[], _Callback | None]] = {}
_keys = itertools.count()


def register_after_fork(callback: _Callback) -> None:
    """Call `callback` in every forked child, in order of registration.

    A bound method is held weakly: the registration ends with its object. A function is held for ever.
    """
    key = next(_keys)
    if isinstance(callback, MethodType):
        function, callbacks = callback.__func__, _callbacks  # at exit, globals may be gone before the object
        owner = weakref.ref(callback.__self__, lambda _: callbacks.pop(key, None))
        _callbacks[key] = lambda: _bind(function, owner())
    else:
        _callbacks[key] = lambda: callback


def _bind(function: Callable[..., object], owner: object | None) -> _Callback | None:
    return None if owner is None else lambda: function(owner)


def _run_callbacks() -> None:
    """Run all callbacks, then report every failure. The interpreter prints the report and goes on."""
    errors: list[Exception] = []
    for find in list(_callbacks.values()):
        callback = find()
        try:
            if callback is not None:
                callback()
        except Exception as error:  # noqa: BLE001 - the other owners still have to be reset
            errors.append(error)
    if errors:
        raise ExceptionGroup("callbacks failed in a forked process", errors)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_run_callbacks)
