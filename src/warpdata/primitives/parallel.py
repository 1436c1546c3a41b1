"""The budgets of the whole process: a thread pool for I/O, one for the CPU, requests in flight, and memory for reads.

Pools, requests and memory follow the machine and the network, unless settings fix them. All readers share them.
"""

from __future__ import annotations

import atexit

from warpdata.errors import BadInputError
from warpdata.primitives.adaptive_limit import AdaptiveLimit
from warpdata.primitives.concurrency import default_read_memory, set_threads, usable_cores
from warpdata.primitives.read_memory import ReadMemory
from warpdata.primitives.worker_pool import BoundedExecutor, WorkerPool

__all__ = [
    "CPU_POOL",
    "IO_POOL",
    "MAX_CONCURRENCY",
    "MAX_READ_MEMORY_BYTES",
    "MIN_READ_MEMORY_BYTES",
    "READ_MEMORY",
    "REQUEST_LIMIT",
    "BoundedExecutor",
    "WorkerPool",
    "configure",
    "disk_threads",
    "request_slots",
    "usable_cores",
]

_EXIT_S = 1.0
_FIRST_REQUESTS, _MAX_REQUESTS = 32, 256
_MIN_IO_THREADS = 8
"""Not every task sends requests, and some wait for other tasks."""
_DISK_WAITERS = 2
MAX_CONCURRENCY = 1024
"""The largest number of threads or requests that a process may be set to."""
MIN_READ_MEMORY_BYTES, MAX_READ_MEMORY_BYTES = 1_000_000, 1_000_000_000_000

REQUEST_LIMIT = AdaptiveLimit(_FIRST_REQUESTS, _MAX_REQUESTS)
"""The requests that the process has in flight. Stores send every range request in one of its slots."""

IO_POOL = WorkerPool("io", lambda: max(REQUEST_LIMIT.value, _MIN_IO_THREADS), is_elastic=True)
"""For tasks that mostly wait for disks and networks. Its size follows the throughput of the network."""

CPU_POOL = WorkerPool("cpu", usable_cores)
"""For tasks that compute in code that releases the interpreter lock."""

READ_MEMORY = ReadMemory(default_read_memory)
"""The memory of requests and of bytes that are read ahead."""


def disk_threads() -> int:
    """Return the threads that read and hash local files: one for each core, and two that wait for the disk."""
    return usable_cores() + _DISK_WAITERS


def request_slots(size_bytes: int) -> int:
    """Return the most requests of this size to have in flight: what a network may need and the memory allows."""
    most = REQUEST_LIMIT.value if REQUEST_LIMIT.is_fixed else REQUEST_LIMIT.highest
    return max(1, min(most, READ_MEMORY.ahead_bytes // max(1, size_bytes)))


def configure(
    *, io_concurrency: int | None = None, threads: int | None = None, read_memory_bytes: int | None = None
) -> None:
    """Set the budgets of this process. None leaves a budget as it is, by default derived from the machine."""
    _check("io_concurrency", io_concurrency, 1, MAX_CONCURRENCY)
    _check("threads", threads, 1, MAX_CONCURRENCY)
    _check("read_memory_bytes", read_memory_bytes, MIN_READ_MEMORY_BYTES, MAX_READ_MEMORY_BYTES)
    if io_concurrency is not None:
        REQUEST_LIMIT.fix(io_concurrency)
    if threads is not None:
        set_threads(threads)
    if read_memory_bytes is not None:
        READ_MEMORY.resize(read_memory_bytes)


def _check(name: str, value: int | None, least: int, most: int) -> None:
    if value is not None and not least <= value <= most:
        raise BadInputError(f"{name}={value!r} is not within {least:,} … {most:,}")


def _exit() -> None:
    for pool in (IO_POOL, CPU_POOL):
        pool.shut_down(_EXIT_S)


atexit.register(_exit)
