"""If these fail, a bound over all objects of a process breaks while threads make or drop objects."""

from __future__ import annotations

import gc
import threading

from warpdata.primitives.live_objects import LiveObjects


class Thing:
    """An object that can be referred to weakly."""


def test_objects_leave_when_they_are_collected() -> None:
    live: LiveObjects[Thing] = LiveObjects()
    first, second = Thing(), Thing()
    live.add(first)
    live.add(second)
    assert list(live) == [first, second]
    del first
    gc.collect()
    assert list(live) == [second]


def test_threads_add_while_another_iterates() -> None:
    live: LiveObjects[Thing] = LiveObjects()
    done = threading.Event()

    def add() -> None:
        kept: list[Thing] = []
        while not done.is_set():
            thing = Thing()
            live.add(thing)
            kept = [*kept[-50:], thing]

    threads = [threading.Thread(target=add) for _ in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(300):
        assert all(isinstance(thing, Thing) for thing in live)
    done.set()
    for thread in threads:
        thread.join()
