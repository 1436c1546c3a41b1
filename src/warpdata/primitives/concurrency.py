"""The cores, the memory and the open files that this process may use.

Cores and memory are those of the machine, or of the container and the control groups around the process if they allow
fewer. `WARP_THREADS` replaces the number of cores.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from warpdata.limits import MIB

if sys.platform != "win32":
    import resource

__all__ = [
    "MachineLimit",
    "core_limit",
    "default_read_memory",
    "descriptor_share",
    "memory_limit",
    "set_threads",
    "usable_cores",
]

_QUOTA_AGE_S = 5.0
_CGROUP = Path("/sys/fs/cgroup")
_OWN_CGROUP = Path("/proc/self/cgroup")
_MEMORY_FRACTION = 16
_MIN_READ_BYTES, _MAX_READ_BYTES = 256 * MIB, 4096 * MIB


@dataclass(frozen=True, slots=True)
class MachineLimit:
    """A number, and what it comes from, in words."""

    value: int
    reason: str


def usable_cores() -> int:
    """Return the number of cores this process may use. It can change while a container runs."""
    if _settings.threads is not None:
        return _settings.threads
    return max(1, min(_affinity(), _quota.cores()))


def core_limit() -> MachineLimit:
    """Return the number of threads for computing, and the reason for it."""
    if _settings.threads is not None:
        return MachineLimit(_settings.threads, "set by WARP_THREADS")
    affinity, quota = _affinity(), _quota.cores()
    if quota < affinity:
        return MachineLimit(max(1, quota), f"the CPU quota of the container; the process may run on {affinity} cores")
    machine = os.cpu_count() or affinity
    if affinity < machine:
        return MachineLimit(affinity, f"the CPU affinity of the process; the machine has {machine} cores")
    return MachineLimit(affinity, "all cores of the machine")


def memory_limit() -> MachineLimit:
    """Return the bytes of memory of the machine or of the container, and which of them it is."""
    return _find_memory(_cgroup_directories("memory", _CGROUP, _OWN_CGROUP))


@functools.cache
def default_read_memory() -> int:
    """Return the bytes that all readers together may hold: a small part of the usable memory."""
    return min(max(memory_limit().value // _MEMORY_FRACTION, _MIN_READ_BYTES), _MAX_READ_BYTES)


def set_threads(threads: int | None) -> None:
    """Replace the number of cores; None for those of the machine."""
    _settings.threads = threads


def descriptor_share(fraction: float, most: int) -> int:
    """Return a fraction of the soft limit of open files, at least 8 and at most `most`. One system call."""
    if sys.platform == "win32":
        return most
    else:
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return most if soft == resource.RLIM_INFINITY else max(8, min(most, int(soft * fraction)))


class _Settings:
    threads: int | None = None


_settings = _Settings()


def _affinity() -> int:
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


class _Quota:
    """The cores that the CPU quota allows, read again every few seconds."""

    def __init__(self) -> None:
        self._cores = 0
        self._read_at = -_QUOTA_AGE_S

    def cores(self) -> int:
        now = time.monotonic()
        if now - self._read_at >= _QUOTA_AGE_S:
            self._cores = min(map(_read_quota, _cgroup_directories("cpu", _CGROUP, _OWN_CGROUP)), default=_UNLIMITED)
            self._read_at = now
        return self._cores


_UNLIMITED = 1 << 20
_quota = _Quota()


def _cgroup_directories(controller: str, root: Path, own: Path) -> Iterator[Path]:
    """Yield the directories of the control groups that bound this process, the innermost first, for both versions.

    In a container the root is its own group. Elsewhere a group may be several levels below, and each level counts.
    """
    paths = {"": "/", controller: "/"}
    with contextlib.suppress(OSError, ValueError):
        for line in own.read_text().splitlines():
            _, names, path = line.split(":", 2)
            if not names:
                paths[""] = path
            elif controller in names.split(","):
                paths[controller] = path
    for base, path in ((root, paths[""]), (root / controller, paths[controller])):
        inner = base / path.strip("/")
        while inner.is_relative_to(base):
            yield inner
            if inner == base:
                break
            inner = inner.parent


def _find_memory(directories: Iterator[Path]) -> MachineLimit:
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 0
    found = [MachineLimit(machine, "of the machine")] if machine > 0 else []
    for directory in directories:
        for name in ("memory.max", "memory.high", "memory.limit_in_bytes"):
            with contextlib.suppress(OSError, ValueError):  # "max"
                found.append(MachineLimit(int((directory / name).read_text()), "of the container"))
    return min(
        found, key=lambda limit: limit.value, default=MachineLimit(_MIN_READ_BYTES * _MEMORY_FRACTION, "assumed")
    )


def _read_quota(directory: Path) -> int:
    """Return the whole cores of the quota, rounded up. Reads the files of both versions of cgroups."""
    try:
        limit, period = (directory / "cpu.max").read_text().split()
    except (OSError, ValueError):
        try:
            limit = (directory / "cpu.cfs_quota_us").read_text().strip()
            period = (directory / "cpu.cfs_period_us").read_text().strip()
        except OSError:
            return _UNLIMITED
    try:
        return -(-int(limit) // int(period)) if int(limit) > 0 else _UNLIMITED
    except (ValueError, ZeroDivisionError):
        return _UNLIMITED  # "max"
