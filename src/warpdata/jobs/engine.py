"""Engines: threads of this process, other processes of this machine, and Ray. They run functions and know no datasets.

An engine calls one function for many items, anywhere and perhaps more than once, and yields results as they come. The
function returns errors of this library as values, so what an engine raises is a failure of the engine itself.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, runtime_checkable

from warpdata.errors import BadInputError

__all__ = ["Engine", "OnTaskProgress", "ReportProgress", "TaskFunction", "WorkerBudget", "divide_budget"]

ReportProgress: TypeAlias = Callable[[int], None]
"""Called by a task with everything that it has done so far. It may raise to end a task that was cancelled."""

TaskFunction: TypeAlias = Callable[[Any, ReportProgress], Any]
"""Runs one item. Can be pickled."""

OnTaskProgress: TypeAlias = Callable[[int, int], None]
"""Called in the driver with the number of a task and everything that it has done so far."""

_MIN_READ_MEMORY_BYTES = 64 * 2**20


@dataclass(frozen=True, slots=True)
class WorkerBudget:
    """What one worker process may use: threads, requests in flight, and bytes of memory for reads."""

    threads: int
    requests: int
    read_memory_bytes: int


@runtime_checkable
class Engine(Protocol):
    """Runs a function for many items."""

    @property
    def name(self) -> str:
        """The name for messages."""
        ...

    def start(self) -> None:
        """Connect, or raise the error that says why not. Idempotent."""
        ...

    def budget(self, requests: int, read_memory_bytes: int) -> WorkerBudget | None:
        """Return the share of one worker process; None for threads of this process.

        `requests` are those of all workers together. `read_memory_bytes` is the memory of one machine.
        """
        ...

    def run(
        self, function: TaskFunction, items: Sequence[Any], on_progress: OnTaskProgress
    ) -> Generator[tuple[int, Any], None, None]:
        """Yield the number and the result of each item, in the order in which they end.

        Closing the iterator cancels what has not ended. An item whose worker was lost runs again.
        """
        ...


def divide_budget(
    *, requests: int, read_memory_bytes: int, workers: int, workers_per_machine: int, threads: int
) -> WorkerBudget:
    """Divide the requests of the whole cluster and the memory of one machine among workers. Pure."""
    if workers < 1 or workers_per_machine < 1:
        raise BadInputError(f"workers={workers!r} is not a count")
    memory = max(_MIN_READ_MEMORY_BYTES, read_memory_bytes // workers_per_machine)
    return WorkerBudget(max(1, threads), max(1, requests // workers), memory)
