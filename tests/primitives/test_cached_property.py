"""If this fails, threads wait for each other without need."""

from __future__ import annotations

import sys
import threading

from warpdata.primitives.cached_property import cached_property


class Slow:
    """Its value takes until `may_end`."""

    def __init__(self) -> None:
        self.began, self.may_end = threading.Event(), threading.Event()

    @cached_property
    def value(self) -> object:
        """The value."""
        self.began.set()
        assert self.may_end.wait(20)
        return object()


def test_a_value_is_computed_once() -> None:
    one = Slow()
    one.may_end.set()
    assert one.value is one.value
    assert Slow.__dict__["value"].__doc__ == "The value."
    assert isinstance(Slow.value, cached_property)


def test_instances_do_not_wait_for_each_other() -> None:
    slow, quick = Slow(), Slow()
    thread = threading.Thread(target=lambda: slow.value)
    thread.start()
    assert slow.began.wait(20)
    quick.may_end.set()
    assert quick.value is quick.value
    slow.may_end.set()
    thread.join()


def test_threads_that_meet_get_the_same() -> None:
    one, found = Slow(), []
    threads = [threading.Thread(target=lambda: found.append(one.value)) for _ in range(4)]
    for thread in threads:
        thread.start()
    assert one.began.wait(20)
    one.may_end.set()
    for thread in threads:
        thread.join()
    if sys.version_info < (3, 12):
        assert len(set(map(id, found))) == 1
    assert one.value in found
