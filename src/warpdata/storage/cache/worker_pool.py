"""A few threads that do what there is to do, and end when there has been nothing for a while.

They are daemons: a process that ends does not wait for a store that hangs.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

__all__ = ["Crew"]

_LOG = logging.getLogger("warpdata.storage.cache")
_IDLE_S = 2.0

Job = Callable[[], None]


class Crew:
    """Up to `size` threads, started when needed. `next_job` is called with `lock` held."""

    def __init__(self, lock: threading.Lock, next_job: Callable[[], Job | None], size: int) -> None:
        self._lock = lock
        self._next_job = next_job
        self._size = size
        self._work = threading.Condition(lock)
        self._threads: set[threading.Thread] = set()
        self._idle = 0
        self._is_dismissed = False

    def wake(self) -> None:
        """There may be something to do. Called with the lock held."""
        if self._idle:
            self._work.notify()
        elif not self._is_dismissed and len(self._threads) < self._size:
            thread = threading.Thread(target=self._run, name="warpdata-cache", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # the interpreter ends, or the system has no more threads
                _LOG.debug("no thread could be started to fill the cache")
            else:
                self._threads.add(thread)

    def dismiss(self) -> None:
        """Have all end as soon as there is nothing more to do. Called with the lock held."""
        self._is_dismissed = True
        self._work.notify_all()

    def join(self, patience_s: float) -> None:
        """Wait for those that are still at something, together for at most about so long."""
        with self._lock:
            threads = [thread for thread in self._threads if thread is not threading.current_thread()]
        for thread in threads:
            thread.join(patience_s / len(threads))

    def _run(self) -> None:
        while (job := self._take()) is not None:
            job()

    def _take(self) -> Job | None:
        """The next job, or None when this thread is to end. It is off the list before anybody can count on it."""
        with self._lock:
            is_told = True
            while True:
                job = self._next_job()
                if job is not None:
                    self.wake()
                    return job
                if self._is_dismissed or not is_told:
                    break
                self._idle += 1
                is_told = self._work.wait(_IDLE_S)
                self._idle -= 1
            self._threads.discard(threading.current_thread())
            return None
