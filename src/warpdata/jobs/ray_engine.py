"""Ray as an engine: tasks run on the nodes of a cluster, and run again if a node is lost.

Ray is imported when the engine starts. Workers need this library in the same version, and reach the store themselves.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from warpdata.errors import BadInputError, WarpError
from warpdata.jobs.engine import OnTaskProgress, TaskFunction, WorkerBudget, divide_budget
from warpdata.primitives.extras import require
from warpdata.primitives.sizes import parse_size

__all__ = ["RayEngine"]

_POLL_S = 0.25
_MAX_LOSSES = 10
"""Times that a task runs again because its worker or its node was lost."""
_AHEAD = 2
"""Tasks in flight for each one that can run, so that no worker waits for the driver."""


@dataclass(frozen=True, slots=True)
class RayEngine:
    """Runs tasks on Ray: on the cluster of this process, that of RAY_ADDRESS, or a new one on this machine.

    `address` names another cluster, such as "ray://head:10001". `workers` bounds the tasks that run at a time. Each
    task takes `cpus` of a node, and with `memory`, such as "2GB", also that much of its memory.
    """

    address: str | None = None
    workers: int | None = None
    cpus: float = 1.0
    memory: int | str | None = None
    name: str = "ray"

    def start(self) -> None:
        """Connect to the cluster, unless this process is connected."""
        if self.workers is not None and self.workers < 1:
            raise BadInputError(f"workers={self.workers!r} is not a count")
        ray = _ray()
        if ray.is_initialized():
            return
        try:
            ray.init(self.address, logging_level="warning", include_dashboard=None if self.address else False)
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise BadInputError(
                f"engine={self.address or 'ray'!r} cannot be reached: {error}",
                hint="Start a cluster with `ray start --head`, and pass its address.",
            ) from error

    def budget(self, requests: int, read_memory_bytes: int) -> WorkerBudget:
        """Return the share of one worker. The largest node decides how many there are on one machine."""
        nodes = [node for node in _ray().nodes() if node["Alive"]]
        on_one = max((self._slots(node["Resources"]) for node in nodes), default=1)
        if self.memory is not None:
            read_memory_bytes = min(read_memory_bytes, parse_size(self.memory) * max(1, on_one) // 2)
        return divide_budget(
            requests=requests,
            read_memory_bytes=read_memory_bytes,
            workers=max(1, self._count()),
            workers_per_machine=max(1, on_one),
            threads=max(1, int(self.cpus)),
        )

    def run(
        self, function: TaskFunction, items: Sequence[Any], on_progress: OnTaskProgress
    ) -> Generator[tuple[int, Any], None, None]:
        ray = _ray()
        shared = ray.put(function)
        board = ray.remote(num_cpus=0, max_restarts=-1)(_ProgressBoard).remote()
        options: dict[str, Any] = {"num_cpus": self.cpus, "max_retries": _MAX_LOSSES}
        if self.memory is not None:
            options["memory"] = parse_size(self.memory)
        call = ray.remote(**options)(_call)
        waiting = iter(range(len(items)))
        running: dict[Any, int] = {}
        try:
            while True:
                while len(running) < self._count() * _AHEAD and (number := next(waiting, None)) is not None:
                    running[call.remote(shared, board, number, items[number])] = number
                if not running:
                    return
                ended, _ = ray.wait(list(running), timeout=_POLL_S)
                if ended:
                    ended, _ = ray.wait(list(running), num_returns=len(running), timeout=0)
                else:
                    self._show(board, on_progress)
                for reference in ended:
                    number = running[reference]
                    result = _result(reference)
                    del running[reference]
                    yield number, result
        finally:
            for reference in running:
                with suppress(Exception):  # the cluster may be gone
                    ray.cancel(reference, force=True)
            with suppress(Exception):
                ray.kill(board)

    def _show(self, board: Any, on_progress: OnTaskProgress) -> None:
        """Read the progress of all workers. If its node was lost, progress shows with finished tasks only."""
        ray = _ray()
        with suppress(ray.exceptions.RayError):
            for number, done in ray.get(board.take.remote(), timeout=_POLL_S).items():
                on_progress(number, done)

    def _count(self) -> int:
        """Return the number of tasks that the cluster can run at a time, now."""
        count = max(1, self._slots(_ray().cluster_resources()))
        return count if self.workers is None else min(count, self.workers)

    def _slots(self, resources: dict[str, float]) -> int:
        slots = resources.get("CPU", 0.0) / self.cpus if self.cpus else _MAX_LOSSES
        if self.memory is not None:
            slots = min(slots, resources.get("memory", 0.0) / max(1, parse_size(self.memory)))
        return int(slots)


def _result(reference: Any) -> Any:
    """Return the result of a task. Errors of its function are raised as they are."""
    ray = _ray()
    try:
        return ray.get(reference)
    except ray.exceptions.RayTaskError:
        raise
    except ray.exceptions.RayError as error:
        raise WarpError(
            f"Ray lost a task {_MAX_LOSSES} times: {error}",
            hint="Start the same job again: finished tasks are not repeated.",
        ) from error


class _ProgressBoard:
    """An actor that holds the latest progress of tasks."""

    def __init__(self) -> None:
        self._done: dict[int, int] = {}

    def put(self, number: int, done: int) -> None:
        self._done[number] = done

    def take(self) -> dict[int, int]:
        taken, self._done = self._done, {}
        return taken


class _Worker:
    """The function of the last job of this process, with what it has opened."""

    known: tuple[str, TaskFunction] | None = None


def _call(shared: Any, board: Any, number: int, item: Any) -> Any:
    function: TaskFunction = shared

    def report(done: int) -> None:
        board.put.remote(number, done)

    return _kept(function)(item, report)


def _kept(function: TaskFunction) -> TaskFunction:
    """Return the instance of a job's function that this process has used before, if there is one."""
    token: str | None = getattr(function, "token", None)
    if token is None:
        return function
    if _Worker.known is None or _Worker.known[0] != token:
        _Worker.known = token, function
    return _Worker.known[1]


def _ray() -> Any:
    return require("ray", purpose="engine='ray'", extra="ray")
