"""Thread pools that any number of callers share, and executors over them.

Threads start when tasks wait for them and end when idle, so a call costs no pool of its own. Every call bounds its
share of a pool by `limit`, and the pool serves all callers in turn; calls inside of a task are part of the caller that
the task belongs to. A thread that waits for a task which has not started runs the task itself, so tasks may submit
tasks and wait for them: even a full pool cannot deadlock. Threads are daemons, and the interpreter waits only briefly
for them when it exits.
"""

# ruff: noqa: SLF001 - the classes of this module share one lock for each pool

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future, InvalidStateError
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial
from types import TracebackType
from typing import Any, Generic, ParamSpec, TypeVar, cast
from weakref import WeakSet

from warpdata.primitives.fork import register_after_fork

__all__ = ["BoundedExecutor", "WorkerPool"]

_IDLE_S = 2.0

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R")


class WorkerPool:
    """Up to `size()` daemon threads, shared by any number of executors. Safe to share between threads."""

    def __init__(self, name: str, size: Callable[[], int], *, is_elastic: bool = False) -> None:
        """`is_elastic`: the size changes often and is cheap to ask for, so that running calls follow it."""
        self._name = name
        self._is_elastic = is_elastic
        self._default_size = size
        self._fixed_size: int | None = None
        self._numbers = itertools.count()
        self._executors: WeakSet[BoundedExecutor] = WeakSet()
        self._is_exiting = False
        self._reset()
        register_after_fork(self._reset_after_fork)

    @property
    def size(self) -> int:
        """The most threads of the pool, now. Threads that are lent count."""
        return max(1, self._default_size() if self._fixed_size is None else self._fixed_size)

    @property
    def has_backlog(self) -> bool:
        """True if tasks wait because all threads are busy."""
        return bool(self._ready) and not self._idle and len(self._threads) + self._lent >= self.size

    def resize(self, size: int | None) -> None:
        """Set the number of threads; None for the default. Threads above the number end after their task."""
        self._fixed_size = size

    @contextmanager
    def lend(self, most: int) -> Iterator[int]:
        """Take threads out of the pool, for a library that has its own. Yield their number, at most half of the free.

        The pool has that many fewer threads until the block ends.
        """
        with self.lock:
            busy = len(self._threads) - self._idle
            lent = max(0, min(most, (self.size - self._lent - busy) // 2))
            self._lent += lent
        try:
            yield lent
        finally:
            with self.lock:
                self._lent -= lent
                if self._ready:
                    self._wake()

    def executor(self, limit: int | None = None) -> BoundedExecutor:
        """Return an executor that uses at most `limit` threads of the pool. It costs nothing and may be dropped."""
        return BoundedExecutor(self, limit)

    def map_ordered(
        self, fn: Callable[[T], R], items: Iterable[T], *, limit: int | None = None, ahead: int | None = None
    ) -> Iterator[R]:
        """Yield `fn(item)` in the order of the items. At most `limit` run at a time, and `ahead` wait to be yielded.

        Items are taken as needed. An error, or closing the iterator, cancels what has not started and waits for
        what has.
        """
        most = limit or self.size
        ahead = 2 * most if ahead is None else ahead
        with _closing(self.executor(most)) as executor:
            pending: deque[Future[R]] = deque()
            for item in items:
                pending.append(executor.submit(fn, item))
                if len(pending) > ahead:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()

    def map_all(self, fn: Callable[[T], R], items: Iterable[T], *, limit: int | None = None) -> list[R]:
        """Return `fn(item)` of all items, in order. Cheaper than `map_ordered` for many small items.

        The first failure stops what has not started. When all have ended, the error of the earliest item is raised.
        """
        listed = list(items)
        out: list[R | None] = [None] * len(listed)

        def run(index: int) -> None:
            out[index] = fn(listed[index])

        self.for_each(range(len(listed)), lambda: nullcontext(run), limit=limit)
        return cast("list[R]", out)

    def run_all(self, tasks: Iterable[Callable[[], R]], *, limit: int | None = None) -> list[R]:
        """Call all tasks and return their results, in order. Errors are those of `map_all`."""
        return self.map_all(lambda task: task(), tasks, limit=limit)

    def for_each(
        self,
        items: Sequence[T],
        begin: Callable[[], AbstractContextManager[Callable[[T], object]]],
        *,
        limit: int | None = None,
    ) -> None:
        """Process every item once. Each thread, the caller included, enters `begin()` and applies its value to items.

        Errors are those of `map_all`. No thread works on an item any more when this returns or raises, also after
        a KeyboardInterrupt. With a limit of 1, items are processed in the calling thread, in order.
        """
        most = len(items) if limit is None else min(limit, len(items))
        if most == 1:  # costs no executor
            with begin() as process_alone:
                for item in items:
                    process_alone(item)
            return
        work = _SharedWork(self, items, begin, most)
        with _closing(work.helpers, work.waiting.clear):
            work.call_helpers()
            if most:
                work.run(is_helper=False)
        try:
            if work.failures:
                raise min(work.failures, key=lambda failure: failure[0])[1]
        finally:
            work.failures.clear()  # else the error and its traceback would refer to each other

    # Below: called with the lock held, unless said otherwise.

    def _reset(self) -> None:
        # Reentrant, because the garbage collector may close an executor while this thread holds the lock.
        self.lock = threading.RLock()
        self.finished = threading.Condition(self.lock)
        self._submitted = threading.Condition(self.lock)
        self._ready: deque[object] = deque()
        """The callers that have a task to run, in turn."""
        self._offered: dict[object, deque[BoundedExecutor]] = {}
        """For each of them, the executors that have one, in turn."""
        self._lent = 0
        self._threads: set[threading.Thread] = set()
        self._idle = 0

    def _reset_after_fork(self) -> None:
        self._reset()
        for executor in list(self._executors):
            executor._reset_after_fork()

    def _register(self, executor: BoundedExecutor) -> None:
        self._executors.add(executor)

    def _offer(self, executor: BoundedExecutor) -> None:
        """Have a thread take a task of this executor."""
        offered = self._offered.setdefault(executor._caller, deque())
        offered.append(executor)
        if len(offered) == 1:
            self._ready.append(executor._caller)
        self._wake()

    def _take_ready(self) -> BoundedExecutor:
        """Return the next executor of the next caller."""
        caller = self._ready.popleft()
        offered = self._offered[caller]
        executor = offered.popleft()
        if offered:
            self._ready.append(caller)
        else:
            del self._offered[caller]
        return executor

    def _wake(self) -> None:
        if self._idle:
            self._submitted.notify()
        elif not self._is_exiting and len(self._threads) + self._lent < self.size:
            name = f"warpdata-{self._name}-{next(self._numbers)}"
            thread = threading.Thread(target=self._work, name=name, daemon=True)
            # Without a thread, at interpreter exit or where the system has no more, tasks run where they are awaited.
            with suppress(RuntimeError):
                thread.start()
                self._threads.add(thread)

    def _work(self) -> None:
        """Run tasks until there are none for a while. Called without the lock."""
        while (task := self._next_task()) is not None:
            task.run()
            del task  # an idle thread must not keep its last result alive

    def _next_task(self) -> _Task | None:
        """Return the next task, or None when the thread is to end. Called without the lock."""
        with self.lock:
            is_awake = True
            while len(self._threads) + self._lent <= self.size or len(self._threads) == 1:
                while self._ready:
                    task = self._take_ready()._take()
                    if task is not None:
                        if self._ready:
                            self._wake()
                        return task
                if not is_awake:
                    break
                self._idle += 1
                is_awake = self._submitted.wait(_IDLE_S)
                self._idle -= 1
            self._threads.discard(threading.current_thread())
            if self._ready:
                self._wake()
            return None

    def shut_down(self, timeout_s: float) -> None:
        """Cancel what has not started and wait a little for the rest. Called without the lock, at exit.

        The interpreter stops daemon threads at any point, perhaps with the lock held. So from here on the
        threads that are left count no more, and new tasks run where they are awaited.
        """
        for executor in list(self._executors):
            executor.shutdown(wait=False, cancel_futures=True)
        with self.lock:
            self.finished.wait_for(lambda: not any(one._running for one in self._executors), timeout_s)
        self._is_exiting = True
        self._reset()


class _SharedWork(Generic[T]):
    """The items of one `for_each`, and the threads that process them: as many as the pool and the limit allow."""

    def __init__(
        self,
        pool: WorkerPool,
        items: Sequence[T],
        begin: Callable[[], AbstractContextManager[Callable[[T], object]]],
        most: int,
    ) -> None:
        self.waiting = deque(enumerate(items))
        self.failures: list[tuple[int, BaseException]] = []
        self.helpers = pool.executor(max(1, most - 1))
        self._pool, self._begin, self._most = pool, begin, most
        self._size = min(most, pool.size)
        self._count = 1

    def run(self, *, is_helper: bool = True) -> None:
        """Process items until there are none. A helper leaves earlier if the pool has become smaller."""
        index = -1
        try:
            with self._begin() as process:
                while self.waiting and not (is_helper and self._leaves()):
                    try:
                        index, item = self.waiting.popleft()
                    except IndexError:  # another thread took the last one
                        return
                    if self._pool._is_elastic:
                        self._size = min(self._most, self._pool.size)
                        self.call_helpers()
                    process(item)
        except BaseException as error:  # noqa: BLE001 - raised by the caller
            self.waiting.clear()
            self.failures.append((index, error))

    def call_helpers(self) -> None:
        """Start as many threads as the pool has room for."""
        while self._count < self._size and self.waiting:
            with self._pool.lock:
                self._count += 1
            with suppress(RuntimeError):  # closed, because the last item was taken meanwhile
                self.helpers.submit(self.run)

    def _leaves(self) -> bool:
        if self._count <= self._size:
            return False
        with self._pool.lock:
            may_leave = self._count > self._size
            self._count -= may_leave
            return may_leave


class BoundedExecutor(Executor):
    """An executor over some threads of a `WorkerPool`. Use it as a `ThreadPoolExecutor` whose threads cost nothing.

    At most `limit` tasks run at a time. One exception prevents deadlocks: a task that waits for another task of the
    executor, with `result()` or `exception()`, runs it in its own thread if it has not started. Do not wait by other
    means, such as `concurrent.futures.wait`, inside of a task.
    """

    def __init__(self, pool: WorkerPool, limit: int | None) -> None:
        assert limit is None or limit > 0, limit
        self._pool = pool
        self._limit = limit
        self._caller: object = _stack.tasks[-1]._executor._caller if _stack.tasks else object()
        """The pool serves callers in turn, however many executors one has."""
        self._waiting: deque[_Task] = deque()
        self._running: set[_Task] = set()
        self._is_offered = False
        self._is_closed = False
        pool._register(self)

    def submit(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        task = _Task(self, partial(fn, *args, **kwargs))
        with self._pool.lock:
            if self._is_closed:
                raise RuntimeError("this executor is shut down")
            self._waiting.append(task)
            self._offer()
        return task

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Accept no more tasks. Cancel those that have not started, or run them; wait for those that have."""
        with self._pool.lock:
            self._is_closed = True
            cancelled = list(self._waiting) if cancel_futures else []
            if cancel_futures:
                self._waiting.clear()
        for task in cancelled:
            task.cancel()
        while wait and (unstarted := self._take_waiting()):
            unstarted.run()
        with self._pool.lock:
            own = set(_stack.tasks)  # a task, or a finalizer that interrupts it, may close its own executor
            while wait and (self._waiting or self._running - own) and not self._pool._is_exiting:
                self._pool.finished.wait()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Wait for all tasks; after an error, cancel those that have not started."""
        self.shutdown(cancel_futures=error is not None)

    def _offer(self) -> None:
        if self._waiting and self._has_capacity() and not self._is_offered:
            self._is_offered = True
            self._pool._offer(self)

    def _take(self) -> _Task | None:
        """Return a task to run now. Called with the lock held, by the pool."""
        self._is_offered = False
        if not self._waiting or not self._has_capacity():
            return None
        task = self._waiting.popleft()
        self._running.add(task)
        self._offer()
        return task

    def _take_waiting(self) -> _Task | None:
        """Return any task to run in this thread, which waits for all of them."""
        with self._pool.lock:
            task = self._waiting[0] if self._waiting else None
            return task if task is not None and self._take_for_waiter(task) else None

    def _take_for_waiter(self, task: _Task) -> bool:
        """Take this task, to run it in the thread that waits for it. False: it has started, or has to wait."""
        with self._pool.lock:
            if task not in self._waiting or not (_stack.tasks or self._has_capacity()):
                return False
            self._waiting.remove(task)
            self._running.add(task)
            return True

    def _end(self, task: _Task) -> None:
        """Forget a task that has run or was cancelled."""
        if self._pool._is_exiting:
            return
        with self._pool.lock:
            self._running.discard(task)
            if task.cancelled():
                with suppress(ValueError):
                    self._waiting.remove(task)
            self._offer()
            if self._is_closed:
                self._pool.finished.notify_all()

    def _has_capacity(self) -> bool:
        return self._limit is None or len(self._running) < self._limit

    def _reset_after_fork(self) -> None:
        """Fail tasks whose threads the child does not have, so that no thread waits for them."""
        lost = self._running - set(_stack.tasks)
        self._running -= lost
        self._is_offered = False
        for task in self._waiting:
            task.renew_lock()
        for task in lost:
            task.lose()


class _Stack(threading.local):
    """The tasks that run in a thread: one, and those that it waits for and therefore runs itself."""

    def __init__(self) -> None:
        self.tasks: list[_Task] = []


_stack = _Stack()


class _Task(Future[Any]):
    """A future that the thread waiting for it may run."""

    def __init__(self, executor: BoundedExecutor, call: Callable[[], Any]) -> None:
        super().__init__()
        self._executor = executor
        self._call = call

    def run(self) -> None:
        """Run a task that its executor has taken."""
        _stack.tasks.append(self)
        try:
            if self.set_running_or_notify_cancel():
                self.set_result(self._call())
        except BaseException as error:  # noqa: BLE001 - raised where the result is needed
            with suppress(InvalidStateError):
                self.set_exception(error)
        finally:
            del self._call  # frees its arguments
            _stack.tasks.pop()
            self._executor._end(self)

    def result(self, timeout: float | None = None) -> Any:
        self._help(timeout)
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        self._help(timeout)
        return super().exception(timeout)

    def cancel(self) -> bool:
        is_cancelled = super().cancel()
        if is_cancelled:
            self._executor._end(self)
        return is_cancelled

    def renew_lock(self) -> None:
        """Replace the lock, after a fork: a thread of the parent may have held it."""
        self._condition = threading.Condition()

    def lose(self) -> None:
        """Fail: the thread that ran this task stayed in the parent process."""
        self.renew_lock()
        with suppress(InvalidStateError):
            self.set_exception(BrokenExecutor("the process was forked while this task ran in another thread"))

    def _help(self, timeout: float | None) -> None:
        if timeout is None and not self.done() and self._executor._take_for_waiter(self):
            self.run()


@contextmanager
def _closing(executor: BoundedExecutor, stop: Callable[[], object] = lambda: None) -> Iterator[BoundedExecutor]:
    """End with no task running, whatever happens: callers own the memory that tasks write to."""
    try:
        yield executor
        executor.shutdown(cancel_futures=True)
    finally:
        stop()
        _shut_down_patiently(executor)


def _shut_down_patiently(executor: BoundedExecutor) -> None:
    """Wait for running tasks also through interrupts, and raise the last interrupt afterwards."""
    try:
        executor.shutdown(cancel_futures=True)
    except KeyboardInterrupt:
        _shut_down_patiently(executor)
        raise
