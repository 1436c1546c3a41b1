"""Engines on this machine: threads of this process, and processes that are started for a job."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Generator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing.context import SpawnContext
from multiprocessing.synchronize import Event
from typing import Any

from warpdata.errors import BadInputError, WarpError
from warpdata.jobs.engine import OnTaskProgress, TaskFunction, WorkerBudget, divide_budget
from warpdata.primitives.concurrency import memory_limit
from warpdata.primitives.parallel import IO_POOL, usable_cores
from warpdata.primitives.sizes import parse_size
from warpdata.primitives.worker_pickle import decode_function, encode_function, without_missing_script

__all__ = ["ProcessEngine", "ThreadEngine"]

_POLL_S = 0.25
_MAX_LOSSES = 3
"""Pools that may break one after the other without a task that ends in between."""


@dataclass(frozen=True, slots=True)
class ThreadEngine:
    """Runs tasks in threads of this process, `workers` at a time."""

    workers: int | None = None
    name: str = "threads"

    def start(self) -> None:
        """Do nothing: threads start when they are needed."""

    def budget(self, requests: int, read_memory_bytes: int) -> WorkerBudget | None:
        """Return None: the budgets of this process apply."""
        return None

    def run(
        self, function: TaskFunction, items: Sequence[Any], on_progress: OnTaskProgress
    ) -> Generator[tuple[int, Any], None, None]:
        def call(numbered: tuple[int, Any]) -> tuple[int, Any]:
            number, item = numbered
            return number, function(item, lambda done: on_progress(number, done))

        yield from IO_POOL.map_ordered(call, enumerate(items), limit=self.workers or usable_cores())


@dataclass(frozen=True, slots=True)
class ProcessEngine:
    """Runs tasks in other processes of this machine, one task at a time in each.

    By default there is one for each core, or fewer if each may use `memory`, such as "2GB".
    """

    workers: int | None = None
    memory: int | str | None = None
    name: str = "processes"

    def start(self) -> None:
        """Check the options. Processes start with the first task."""
        self._count()

    def budget(self, requests: int, read_memory_bytes: int) -> WorkerBudget:
        """Return the share of one process. Cores are shared, because tasks also wait."""
        count = self._count()
        return divide_budget(
            requests=requests,
            read_memory_bytes=read_memory_bytes,
            workers=count,
            workers_per_machine=count,
            threads=max(1, usable_cores() // count),
        )

    def run(
        self, function: TaskFunction, items: Sequence[Any], on_progress: OnTaskProgress
    ) -> Generator[tuple[int, Any], None, None]:
        encoded = encode_function(function)
        context = multiprocessing.get_context("spawn")
        done = context.Array("q", max(1, len(items)), lock=False)
        cancelled = context.Event()
        unfinished = set(range(len(items)))
        losses = 0
        try:
            while unfinished:
                before = len(unfinished)
                try:
                    yield from self._run_pool(_Start(context, encoded, done, cancelled), items, unfinished, on_progress)
                except BrokenProcessPool as error:
                    losses = 1 if len(unfinished) < before else losses + 1
                    if losses >= _MAX_LOSSES:
                        raise WarpError(
                            f"worker processes ended {losses} times without finishing a task",
                            hint="If they ran out of memory, use fewer: --workers 1.",
                        ) from error
        finally:
            cancelled.set()

    def _run_pool(
        self, start: _Start, items: Sequence[Any], unfinished: set[int], on_progress: OnTaskProgress
    ) -> Generator[tuple[int, Any], None, None]:
        count = min(self._count(), len(unfinished))
        pool = ProcessPoolExecutor(count, start.context, _begin, (start.function, start.done, start.cancelled))
        try:
            with without_missing_script():
                pending = {pool.submit(_call, number, items[number]): number for number in sorted(unfinished)}
            while pending:
                ended, _ = wait(pending, timeout=_POLL_S, return_when=FIRST_COMPLETED)
                for number in pending.values():
                    if start.done[number]:
                        on_progress(number, start.done[number])
                for future in ended:
                    number = pending[future]
                    result = future.result()
                    del pending[future]
                    unfinished.discard(number)
                    yield number, result
        except BrokenProcessPool:
            raise
        except BaseException:
            start.cancelled.set()
            raise
        finally:
            pool.shutdown(wait=True, cancel_futures=True)

    def _count(self) -> int:
        if self.workers is not None and self.workers < 1:
            raise BadInputError(f"workers={self.workers!r} is not a count")
        count = self.workers or usable_cores()
        if self.memory is None:
            return count
        return max(1, min(count, memory_limit().value // max(1, parse_size(self.memory))))


@dataclass(frozen=True, slots=True)
class _Start:
    """What every process of a run is started with."""

    context: SpawnContext
    function: bytes
    done: Any
    cancelled: Event


class _Worker:
    function: TaskFunction | None = None
    done: Any = None
    cancelled: Event | None = None


def _begin(function: bytes, done: Any, cancelled: Event) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the driver cancels its workers
    _Worker.function, _Worker.done, _Worker.cancelled = decode_function(function), done, cancelled


def _call(number: int, item: Any) -> Any:
    assert _Worker.function is not None, "the initializer has run"

    def report(amount: int) -> None:
        if _Worker.cancelled is not None and _Worker.cancelled.is_set():
            raise KeyboardInterrupt
        _Worker.done[number] = amount

    report(0)
    return _Worker.function(item, report)
