"""If this fails, threads wait for each other without need, or a process that was forked waits for ever."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import warpdata as wd
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


_FORKS = """
import os, sys, threading, time
import warpdata as wd

def count():
    return wd.dataset("a/b", store=sys.argv[1]).table().filter("word = 'w3'").to_arrow().num_rows

assert count() == 4000  # so that nothing is left to be imported
done = False
def go_on():
    while not done:
        assert count() == 4000

threads = [threading.Thread(target=go_on) for _ in range(3)]
for thread in threads:
    thread.start()
for _ in range(12):
    child = os.fork()
    if child == 0:
        os._exit(0 if count() == 4000 else 1)
    ends = time.monotonic() + 20
    while (ended := os.waitpid(child, os.WNOHANG)) == (0, 0):
        if time.monotonic() > ends:
            os.kill(child, 9)
            os._exit(9)
        time.sleep(0.01)
    if ended[1]:
        os._exit(1)
done = True
for thread in threads:
    thread.join()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="a system without fork")
def test_a_process_may_be_forked_while_others_scan(tmp_path: Path) -> None:
    """Forking with threads is unsafe, but loaders of torch do it."""
    path, store = tmp_path / "rows.parquet", (tmp_path / "store").as_uri()
    pq.write_table(pa.table({"word": [f"w{n % 5}" for n in range(20_000)]}), path, row_group_size=1000)
    wd.DatasetBuilder("a/b", store).add_table("main", path).publish()
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _FORKS, store], capture_output=True, text=True, timeout=120, check=False
    )
    assert ran.returncode == 0, ran.stderr
