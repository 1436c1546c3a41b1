"""Threads that share a list of things to do, and end with the call that needed them.

The first error stops the others and is raised when all have stopped; so does an interrupt from the keyboard.
Nobody is left behind, whatever happens. Nothing here outlives a call.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TypeAlias, TypeVar

from warpdata.limits import VIEW_THREADS
from warpdata.primitives.parallel import usable_cores

__all__ = ["Begin", "for_each", "processors"]

T = TypeVar("T")
Begin: TypeAlias = Callable[[], AbstractContextManager[Callable[[T], None]]]
"""Prepares one thread, and gives what it does with each thing."""


def for_each(things: Sequence[T], threads: int, begin: Begin[T]) -> None:
    """Do every thing once, in about this order. With fewer than two threads: here, and in exactly this order."""
    if threads < 2 or len(things) < 2:
        with begin() as work:
            for thing in things:
                work(thing)
        return
    crew = _Crew(things, begin)
    members = [threading.Thread(target=crew.member, daemon=True) for _ in range(min(threads, len(things)))]
    started = []
    try:
        for member in members:
            member.start()
            started.append(member)
        for member in started:
            member.join()
    except BaseException:
        crew.stop()
        _wait_for(started)
        raise
    if crew.errors:
        raise crew.errors[0]


def processors() -> int:
    """How many threads can work at once here, up to a bound."""
    return min(VIEW_THREADS, usable_cores())


class _Crew:
    def __init__(self, things: Sequence[T], begin: Begin[T]) -> None:
        self._waiting = deque(things)
        self._begin: Begin[T] = begin
        self.errors: list[BaseException] = []

    def member(self) -> None:
        try:
            with self._begin() as work:
                while True:
                    try:
                        thing = self._waiting.popleft()
                    except IndexError:
                        return
                    work(thing)
        except BaseException as error:  # noqa: BLE001 - raised again by the one who waits
            self.errors.append(error)
            self.stop()

    def stop(self) -> None:
        self._waiting.clear()


def _wait_for(members: Sequence[threading.Thread]) -> None:
    """Also through further interrupts: what the threads write to must not be given away under them."""
    for member in members:
        while member.is_alive():
            try:
                member.join()
            except KeyboardInterrupt:
                continue
