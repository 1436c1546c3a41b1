"""The number of worker processes of a loader: `num_workers="auto"`.

Threads decode images in C code that releases the interpreter lock, but each image takes some Python between these
calls. A few cores are therefore busy with threads alone, and workers would only add copies of batches. With more cores
the lock is the limit, and each core gets a worker. Implements "Workers" of docs/specs/streaming.md.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from warpdata.errors import BadInputError
from warpdata.limits import MIB
from warpdata.primitives.concurrency import memory_limit, usable_cores
from warpdata.settings import local_world_size

if TYPE_CHECKING:
    from warpdata.streaming.options import StreamOptions
    from warpdata.streaming.source import SampleSource

__all__ = ["MachineShare", "WorkerCount", "choose_worker_count", "resolve_worker_count"]

_CORES_FOR_THREADS = 3
"""Cores that the threads of one process keep busy while they decode images."""
_CORES_FOR_TRANSFORMS = 2
"""The same with a transform, which is Python and runs in one thread at a time."""
_PROCESS_BYTES = 384 * MIB
"""Private memory of a worker besides its batches: interpreter, torch, Arrow, shuffle buffer."""
_DECODED_PER_STORED = 12
"""Bytes of a decoded image for each stored byte, where the size of the result is not known."""
_RGB_BYTES = 3
_QUEUED_BATCHES = 2
"""Batches of a worker that wait in the queue of torch's loader."""
_MEMORY_SHARE = 0.5
"""Share of the usable memory that workers may take."""
_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - the system's own, and only its size is read
_UNLIMITED_BYTES = 1 << 60


@dataclass(frozen=True, slots=True)
class WorkerCount:
    """A number of worker processes, and the reason for it."""

    count: int
    reason: str


@dataclass(frozen=True, slots=True)
class MachineShare:
    """Cores and memory that the workers of one loader may use."""

    cores: int
    memory_bytes: int
    shared_memory_bytes: int = _UNLIMITED_BYTES


def resolve_worker_count(num_workers: Any, source: SampleSource, options: StreamOptions) -> WorkerCount:
    """Return the number that a caller gave, or a fitting one for "auto". `BadInputError` for other values."""
    if num_workers == "auto" and isinstance(num_workers, str):
        ranks = local_world_size()
        machine = MachineShare(
            max(1, usable_cores() // ranks),
            int(memory_limit().value * _MEMORY_SHARE) // ranks,
            int(_free_shared_memory() * _MEMORY_SHARE) // ranks,
        )
        return choose_worker_count(source.media_bytes, options, machine)
    if isinstance(num_workers, bool) or not isinstance(num_workers, int) or num_workers < 0:
        raise BadInputError(f"num_workers={num_workers!r} is neither 'auto' nor a count")
    return WorkerCount(num_workers, "as given")


def choose_worker_count(media_bytes: float, options: StreamOptions, machine: MachineShare) -> WorkerCount:
    """Choose a number of workers. `media_bytes` is the mean size of a sample's media, as stored. Pure."""
    cores = machine.cores
    if options.image_device is not None:
        return WorkerCount(0, f"{options.image_device} decodes: threads suffice to read")
    if options.transform is None and not (media_bytes and options.wants_media):
        return WorkerCount(0, "nothing to decode: threads suffice")
    reason = f"one for each of {cores} usable cores"
    if cores <= (_CORES_FOR_THREADS if options.transform is None else _CORES_FOR_TRANSFORMS):
        return WorkerCount(0, f"{cores} usable cores: threads keep them busy")
    batch_bytes = _batch_bytes(media_bytes, options)
    worker_bytes = _PROCESS_BYTES + (options.prefetch + 1) * batch_bytes
    for name, usable_bytes, needed_bytes in (
        ("memory", machine.memory_bytes, worker_bytes),
        ("shared memory", machine.shared_memory_bytes, max(1.0, (1 + _QUEUED_BATCHES) * batch_bytes)),
    ):
        if usable_bytes < cores * needed_bytes:
            cores = int(usable_bytes // needed_bytes)
            reason = f"{usable_bytes / 1e9:.1f} GB of {name}, and about {needed_bytes / 1e9:.2f} GB for each worker"
    return WorkerCount(cores if cores > 1 else 0, reason)


def _batch_bytes(media_bytes: float, options: StreamOptions) -> float:
    """Estimate the memory of a batch."""
    sizes = list(options.resize.values()) if isinstance(options.resize, Mapping) else []
    is_known = bool(sizes) and all(isinstance(size, tuple) for size in sizes)
    pixels = sum(prod(size) for size in sizes if isinstance(size, tuple))
    return options.batch_size * (pixels * _RGB_BYTES + media_bytes if is_known else media_bytes * _DECODED_PER_STORED)


def _free_shared_memory() -> int:
    """Return the free bytes of the file system for shared memory. Containers often limit it to 64 MB."""
    return shutil.disk_usage(_SHARED_MEMORY).free if _SHARED_MEMORY.is_dir() else _UNLIMITED_BYTES
