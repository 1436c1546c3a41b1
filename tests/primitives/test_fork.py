"""If these fail, a forked process hangs on a lock of its parent, or keeps objects alive for ever."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import warnings
import weakref
from collections.abc import Callable

from warpdata.primitives.fork import register_after_fork


def run_in_fork(check: Callable[[], object], timeout_s: int = 20) -> None:
    """Assert that `check()` is true in a forked child, which is killed when it takes too long."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # forking with threads is what these tests are about
        child = os.fork()
    if child == 0:
        code = 1
        try:
            signal.alarm(timeout_s)
            code = 0 if check() else 2
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0


class Owner:
    def __init__(self, log: list[str], name: str) -> None:
        self.log = log
        self.name = name
        register_after_fork(self.reset)

    def reset(self) -> None:
        self.log.append(self.name)


def test_callbacks_run_in_the_child_in_order_of_registration() -> None:
    log: list[str] = []
    first, second = Owner(log, "first"), Owner(log, "second")
    run_in_fork(lambda: log == ["first", "second"])
    assert log == []
    assert first.log is second.log


def test_a_bound_method_does_not_keep_its_object() -> None:
    log: list[str] = []
    owner = Owner(log, "gone")
    gone = weakref.ref(owner)
    del owner
    gc.collect()
    assert gone() is None
    run_in_fork(lambda: log == [])


def test_owners_that_live_until_exit_end_in_silence() -> None:
    script = "from warpdata.primitives.byte_lru import ByteLRU; caches = [ByteLRU(1) for _ in range(9)]"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stderr == ""


def test_a_failing_callback_does_not_stop_the_others() -> None:
    class Failing(Owner):
        def reset(self) -> None:
            raise ValueError("on purpose")

    log: list[str] = []
    failing, fine = Failing(log, ""), Owner(log, "fine")
    run_in_fork(lambda: log == ["fine"])
    assert failing.log is fine.log
