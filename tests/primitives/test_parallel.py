"""If these fail, a read hangs for ever, one scan starves all others, or threads write to memory that was given away."""

from __future__ import annotations

import gc
import mmap
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, CancelledError, Future
from contextlib import contextmanager

import pytest

from tests.primitives.test_fork import run_in_fork
from warpdata.errors import BadInputError
from warpdata.primitives import parallel, worker_pool
from warpdata.primitives.parallel import BoundedExecutor, WorkerPool, usable_cores

WAIT_S = 10.0


class Gauge:
    """Counts tasks that run at the same time. A task stays for a moment, so that others can join it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running = 0
        self.most = 0
        self.calls = 0

    def __call__(self, item: int = 0) -> int:
        with self._lock:
            self._running += 1
            self.calls += 1
            self.most = max(self.most, self._running)
        try:
            time.sleep(0.005)
        finally:
            with self._lock:
                self._running -= 1
        return item


@pytest.fixture
def pool() -> WorkerPool:
    return WorkerPool("test", lambda: 4)


def threads_of_tests() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("warpdata-test")]


def await_true(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


# Results


@pytest.mark.parametrize("limit", [None, 1, 2, 9])
@pytest.mark.parametrize("count", [0, 1, 2, 40])
def test_results_come_in_order(pool: WorkerPool, limit: int | None, count: int) -> None:
    def square(n: int) -> int:
        time.sleep(0.002 * (n % 3))
        return n * n

    expected = [n * n for n in range(count)]
    assert list(pool.map_ordered(square, range(count), limit=limit)) == expected
    assert pool.map_all(square, range(count), limit=limit) == expected
    assert pool.run_all([lambda n=n: square(n) for n in range(count)], limit=limit) == expected  # type: ignore[misc]


def test_an_executor_is_a_drop_in_for_that_of_the_library(pool: WorkerPool) -> None:
    with pool.executor(2) as executor:
        future: Future[int] = executor.submit(int, "ff", base=16)
        assert list(executor.map(abs, [-1, -2])) == [1, 2]
    assert future.result() == 255
    with pytest.raises(RuntimeError, match="shut down"):
        executor.submit(int)


# Bounds


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_no_call_runs_more_than_its_limit(pool: WorkerPool, limit: int) -> None:
    gauges = Gauge(), Gauge()
    assert list(pool.map_ordered(gauges[0], range(30), limit=limit)) == list(range(30))
    assert pool.map_all(gauges[1], range(30), limit=limit) == list(range(30))
    for gauge in gauges:
        assert gauge.most == limit
        assert gauge.calls == 30


def test_all_calls_together_run_no_more_than_the_pool_has_threads(pool: WorkerPool) -> None:
    gauge = Gauge()
    executors = [pool.executor(3) for _ in range(4)]
    for _ in range(20):
        for executor in executors:
            executor.submit(gauge)
    await_true(lambda: gauge.calls == 80)
    assert gauge.most == 4
    for executor in executors:
        executor.shutdown()


def test_executors_take_turns(pool: WorkerPool) -> None:
    pool.resize(1)
    order: list[str] = []
    gate = threading.Event()
    first, second = pool.executor(), pool.executor()
    blocked = pool.executor().submit(gate.wait, WAIT_S)
    await_true(blocked.running)
    for _ in range(3):
        first.submit(order.append, "first")
    for _ in range(3):
        second.submit(order.append, "second")
    gate.set()
    await_true(lambda: len(order) == 6)
    assert order == ["first", "second"] * 3


def test_look_ahead_is_bounded(pool: WorkerPool) -> None:
    taken: list[int] = []

    def items() -> Iterator[int]:
        for n in range(100):
            taken.append(n)
            yield n

    results = pool.map_ordered(abs, items(), limit=2, ahead=3)
    assert taken == []
    assert next(results) == 0
    assert len(taken) == 4
    assert next(results) == 1
    assert len(taken) == 5
    results.close()  # type: ignore[attr-defined]
    assert len(taken) == 5


def test_threads_start_when_needed_and_end_when_idle(pool: WorkerPool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_pool, "_IDLE_S", 0.05)
    await_true(lambda: not threads_of_tests())
    meeting = threading.Barrier(4, timeout=WAIT_S)
    pool.run_all([meeting.wait] * 4)
    assert 3 <= len(threads_of_tests()) <= 4
    await_true(lambda: not threads_of_tests())
    meeting.reset()
    pool.run_all([meeting.wait] * 4)


def test_the_budget_can_be_changed(pool: WorkerPool) -> None:
    pool.resize(6)
    meeting = threading.Barrier(6, timeout=WAIT_S)
    assert len(pool.run_all([meeting.wait] * 6)) == 6
    pool.resize(2)
    gauge = Gauge()
    executor = pool.executor()
    for _ in range(20):
        executor.submit(gauge)
    await_true(lambda: gauge.calls == 20)
    assert gauge.most == 2


def test_the_process_sets_its_budgets() -> None:
    parallel.configure(io_concurrency=30)
    assert (parallel.IO_POOL.size, parallel.CPU_POOL.size) == (30, usable_cores())
    parallel.configure(io_concurrency=3)
    assert (parallel.REQUEST_LIMIT.value, parallel.IO_POOL.size) == (3, 8), "other tasks have threads"
    parallel.configure(threads=2)
    assert (parallel.CPU_POOL.size, parallel.disk_threads()) == (2, 4)
    parallel.configure(read_memory_bytes=1 << 20)
    assert parallel.READ_MEMORY.limit_bytes == 1 << 20
    assert parallel.request_slots(1 << 18) == 2
    assert parallel.request_slots(1 << 30) == 1
    assert parallel.request_slots(1) == 3


@pytest.mark.parametrize("name", ["io_concurrency", "threads", "read_memory_bytes"])
@pytest.mark.parametrize("value", [0, -1, 1 << 60])
def test_a_budget_out_of_range_changes_nothing(name: str, value: int) -> None:
    before = parallel.IO_POOL.size, parallel.CPU_POOL.size, parallel.READ_MEMORY.limit_bytes
    with pytest.raises(BadInputError, match=name):
        parallel.configure(**{name: value})
    assert (parallel.IO_POOL.size, parallel.CPU_POOL.size, parallel.READ_MEMORY.limit_bytes) == before


def test_a_call_keeps_nothing_alive() -> None:
    """Callers close mappings as soon as a call has ended, without a garbage collection."""
    for is_elastic in (False, True):
        pool = WorkerPool("tests", lambda: 3, is_elastic=is_elastic)
        gc.disable()
        try:
            with mmap.mmap(-1, 4096) as mapped:
                pool.map_all(memoryview(mapped).__getitem__, range(40))
        finally:
            gc.enable()


def test_a_call_follows_the_size_of_an_elastic_pool() -> None:
    """The size changes while a long call runs, as it does for reads over a network."""
    pool = WorkerPool("tests", lambda: 2, is_elastic=True)
    running, seen = [0], dict[str, int]()
    lock = threading.Lock()

    def work(item: int) -> None:
        if item in (100, 200):
            pool.resize(8 if item == 100 else 3)
        with lock:
            running[0] += 1
            phase = "small" if item < 100 else "large" if 120 <= item < 200 else "medium" if item >= 240 else ""
            seen[phase] = max(seen.get(phase, 0), running[0])
        time.sleep(0.002)
        with lock:
            running[0] -= 1

    pool.map_all(work, range(400))
    assert (seen["small"], seen["large"], seen["medium"]) == (2, 8, 3)


def test_lent_threads_are_missing_in_the_pool(pool: WorkerPool) -> None:
    pool.resize(8)
    gauge = Gauge()
    with pool.lend(100) as lent, pool.lend(100) as lent_again:
        assert (lent, lent_again) == (4, 2), "half of the free threads each"
        executor = pool.executor()
        for _ in range(20):
            executor.submit(gauge)
        await_true(lambda: gauge.calls == 20)
    assert gauge.most == 2
    meeting = threading.Barrier(8, timeout=WAIT_S)
    assert len(pool.run_all([meeting.wait] * 8)) == 8


def test_a_pool_that_lent_everything_still_works(pool: WorkerPool) -> None:
    pool.resize(1)
    with pool.lend(5) as lent:
        assert lent == 0
        assert pool.map_all(abs, range(9)) == list(range(9))


def test_a_caller_with_many_calls_gets_no_more_turns(pool: WorkerPool) -> None:
    """A reader that splits its work into many nested calls shares the pool equally with a reader that does not."""
    pool.resize(2)
    order: list[str] = []
    gate, begun = threading.Event(), threading.Event()

    def many() -> None:
        nested = [pool.executor() for _ in range(10)]
        for executor in nested:
            executor.submit(order.append, "many")
        begun.set()
        gate.wait(WAIT_S)

    blocked = pool.executor().submit(gate.wait, WAIT_S)
    await_true(blocked.running)
    parent = pool.executor()
    parent.submit(many)
    assert begun.wait(WAIT_S)
    other = pool.executor()
    for _ in range(5):
        other.submit(order.append, "other")
    pool.resize(1)
    gate.set()
    await_true(lambda: len(order) == 15)
    assert order[:8].count("other") == 4, order


def test_cores_are_those_the_process_may_use() -> None:
    if hasattr(os, "sched_getaffinity"):
        assert usable_cores() == len(os.sched_getaffinity(0))
    assert parallel.CPU_POOL.size == usable_cores()
    assert parallel.IO_POOL.size >= parallel.CPU_POOL.size


# Nesting


@pytest.mark.parametrize("size", [1, 2, 4])
def test_tasks_may_wait_for_tasks_of_a_full_pool(pool: WorkerPool, size: int) -> None:
    pool.resize(size)

    def tree(depth: int) -> int:
        if depth == 0:
            return 1
        if depth % 3 == 0:
            return sum(pool.map_ordered(tree, [depth - 1] * 3))
        if depth % 3 == 1:
            return sum(pool.map_all(tree, [depth - 1] * 3))
        with pool.executor(2) as executor:
            return sum(future.result() for future in [executor.submit(tree, depth - 1) for _ in range(3)])

    assert tree(5) == 3**5


@pytest.mark.parametrize("limit", [1, 2])
def test_a_task_may_wait_for_a_task_of_its_own_executor(pool: WorkerPool, limit: int) -> None:
    executor = pool.executor(limit)

    def nested(depth: int) -> int:
        return 1 + executor.submit(nested, depth - 1).result() if depth else 0

    assert executor.submit(nested, 20).result() == 20
    assert executor.submit(lambda: executor.submit(nested, 3).exception()).result() is None
    executor.shutdown()


def test_two_pools_may_wait_for_each_other() -> None:
    one, other = WorkerPool("test-a", lambda: 1), WorkerPool("test-b", lambda: 1)

    def bounce(depth: int) -> int:
        pools = (one, other)
        return 1 + pools[depth % 2].executor(1).submit(bounce, depth - 1).result() if depth else 0

    assert one.run_all([lambda: bounce(10)] * 4) == [10] * 4


def test_tasks_run_where_no_thread_can_be_started(pool: WorkerPool, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert list(pool.map_ordered(abs, range(5))) == [0, 1, 2, 3, 4]
    assert pool.map_all(abs, range(5)) == [0, 1, 2, 3, 4]
    with pool.executor(2) as executor:
        future = executor.submit(abs, -1)
    assert future.done()


def test_a_task_may_close_its_own_executor(pool: WorkerPool) -> None:
    executor = pool.executor(2)
    executor.submit(executor.shutdown).result(WAIT_S)


# Errors


def fail_at(bad: int, seen: list[int]) -> Callable[[int], int]:
    def run(n: int) -> int:
        seen.append(n)
        if n == bad:
            raise ValueError(f"item {n}")
        time.sleep(0.001)
        return n

    return run


def test_an_error_stops_what_has_not_started(pool: WorkerPool) -> None:
    seen: list[int] = []
    results = pool.map_ordered(fail_at(3, seen), range(1000), limit=2, ahead=4)
    assert [next(results) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(ValueError, match="item 3"):
        next(results)
    assert len(seen) < 20
    seen.clear()
    with pytest.raises(ValueError, match="item 3"):
        pool.map_all(fail_at(3, seen), range(1000), limit=2)
    assert len(seen) < 20


def test_the_error_of_the_earliest_item_is_raised_when_all_have_ended(pool: WorkerPool) -> None:
    meeting = threading.Barrier(2, timeout=WAIT_S)
    ended = threading.Event()

    def first() -> None:
        meeting.wait()
        time.sleep(0.05)
        ended.set()
        raise ValueError("first")

    def second() -> None:
        meeting.wait()
        raise KeyError("second")

    with pytest.raises(ValueError, match="first"):
        pool.run_all([first, second])
    assert ended.is_set()


def test_errors_keep_the_traceback_of_the_thread(pool: WorkerPool) -> None:
    def culprit(_: int) -> None:
        raise ValueError("on purpose")

    runs: list[Callable[[], object]] = [
        lambda: list(pool.map_ordered(culprit, range(3))),
        lambda: pool.map_all(culprit, range(3)),
        lambda: pool.executor().submit(culprit, 1).result(),
    ]
    for run in runs:
        with pytest.raises(ValueError, match="on purpose") as caught:
            run()
        assert "culprit" in [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]


def test_closing_an_iterator_cancels_and_waits(pool: WorkerPool) -> None:
    gauge = Gauge()
    results = pool.map_ordered(gauge, range(1000), limit=3)
    next(results)
    del results
    gc.collect()
    calls, running = gauge.calls, gauge._running
    assert running == 0
    time.sleep(0.05)
    assert gauge.calls == calls < 20


def test_shutdown_cancels_on_request(pool: WorkerPool) -> None:
    gate, started = threading.Event(), threading.Event()
    executor = pool.executor(1)

    def block() -> None:
        started.set()
        gate.wait(WAIT_S)

    running = executor.submit(block)
    waiting = executor.submit(abs, 1)
    started.wait(WAIT_S)
    executor.shutdown(wait=False, cancel_futures=True)
    with pytest.raises(CancelledError):
        waiting.result()
    gate.set()
    executor.shutdown()
    assert running.done()


def test_a_cancelled_task_does_not_run(pool: WorkerPool) -> None:
    gate, ran = threading.Event(), threading.Event()
    with pool.executor(1) as executor:
        blocked = executor.submit(gate.wait, WAIT_S)
        await_true(blocked.running)
        assert executor.submit(ran.set).cancel()
        after = executor.submit(abs, -1)
        gate.set()
    assert after.result() == 1
    assert not ran.is_set()


def test_each_thread_begins_and_ends_once(pool: WorkerPool) -> None:
    begun: list[int] = []
    ended: list[int] = []
    done: list[int] = []
    meeting = threading.Barrier(3, timeout=WAIT_S)

    @contextmanager
    def begin() -> Iterator[Callable[[int], object]]:
        begun.append(threading.get_ident())
        meeting.wait()
        yield done.append
        ended.append(threading.get_ident())

    pool.for_each(range(50), begin, limit=3)
    assert sorted(done) == list(range(50))
    assert sorted(begun) == sorted(ended)
    assert len(set(begun)) == 3
    meeting.abort()
    with pytest.raises(threading.BrokenBarrierError):
        pool.for_each(range(50), begin, limit=3)


def test_an_interrupt_leaves_no_thread_at_work(pool: WorkerPool) -> None:
    gauge = Gauge()

    def work(n: int) -> None:
        if n in (5, 7):
            os.kill(os.getpid(), signal.SIGINT)  # which the main thread receives
        gauge(n)

    runs: list[Callable[[], object]] = [
        lambda: pool.map_all(work, range(2000)),
        lambda: list(pool.map_ordered(work, range(2000))),
    ]
    for run in runs:
        with pytest.raises(KeyboardInterrupt):
            run()
        calls = gauge.calls
        time.sleep(0.05)
        assert gauge.calls == calls
        assert gauge._running == 0


def test_results_are_not_kept_by_idle_threads(pool: WorkerPool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_pool, "_IDLE_S", 2 * WAIT_S)

    class Large:
        pass

    executor = pool.executor(1)
    future: Future[Large] | None = executor.submit(Large)
    assert future is not None
    result = weakref.ref(future.result())
    future = None
    await_true(lambda: result() is None)


# Processes


def test_a_forked_child_has_fresh_pools(pool: WorkerPool) -> None:
    gate = threading.Event()
    executor: BoundedExecutor = pool.executor(2)
    running = [executor.submit(gate.wait, WAIT_S) for _ in range(2)]
    waiting = executor.submit(abs, -1)
    await_true(lambda: all(future.running() for future in running))

    def check() -> bool:
        assert pool.map_all(abs, range(20)) == list(range(20))
        assert list(pool.map_ordered(abs, range(20), limit=2)) == list(range(20))
        assert all(isinstance(future.exception(), BrokenExecutor) for future in running)
        assert waiting.result() == 1
        assert executor.submit(abs, -2).result() == 2
        executor.shutdown()
        return True

    locked, done = threading.Event(), threading.Event()

    def hold_lock() -> None:
        with pool.lock:
            locked.set()
            done.wait(WAIT_S)

    holder = threading.Thread(target=hold_lock)
    holder.start()
    locked.wait(WAIT_S)
    run_in_fork(check)
    done.set()
    holder.join()
    gate.set()
    assert waiting.result() == 1
    executor.shutdown()


def run_script(script: str) -> float:
    began = time.monotonic()
    subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=True, timeout=30)
    return time.monotonic() - began


def test_a_process_does_not_wait_for_a_task_that_hangs() -> None:
    took_s = run_script(
        """
        import time
        from warpdata.primitives.parallel import CPU_POOL, IO_POOL
        IO_POOL.executor(1).submit(time.sleep, 60)
        CPU_POOL.executor(1).submit(time.sleep, 60)
        results = IO_POOL.map_ordered(time.sleep, [0, 60, 60, 60], ahead=3)
        next(results)
        """
    )
    assert took_s < 15


def test_pools_still_work_while_a_process_exits() -> None:
    run_script(
        """
        import atexit, os
        def work():
            from warpdata.primitives.parallel import IO_POOL
            good = IO_POOL.map_all(abs, range(9)) == list(IO_POOL.map_ordered(abs, range(9))) == list(range(9))
            os._exit(0 if good else 1)
        atexit.register(work)
        from warpdata.primitives.parallel import IO_POOL
        IO_POOL.map_all(abs, range(9))
        """
    )


@pytest.mark.parametrize("_", range(3))
def test_a_process_with_an_abandoned_iterator_ends(_: int) -> None:
    run_script(
        """
        from warpdata.primitives.parallel import IO_POOL
        results = IO_POOL.map_ordered(abs, range(10**9), limit=4)
        assert next(results) == 0
        """
    )
