"""Plans of work that can be divided: tasks whose results follow from their inputs. Values and protocols, no I/O.

A plan is made once, by the process that will commit. Threads, other processes and the workers of a cluster run the
same tasks with the same function, so the engine does not change the result. Implements "Plans" of docs/specs/jobs.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from warpdata.primitives.hashing import Blob, Fingerprint, sha256_hex
from warpdata.repository.manifest import Json, canonical_json
from warpdata.session import Session

__all__ = ["Plan", "Task", "TaskBlob", "TaskContext", "TaskResult", "Work", "group_by_bytes", "task_key"]

ItemT = TypeVar("ItemT")
ItemT_contra = TypeVar("ItemT_contra", contravariant=True)


@dataclass(frozen=True, slots=True)
class TaskBlob:
    """A blob that a task has made, and the generation of its key if it is stored under a later one."""

    hash: str
    byte_size: int
    generation: str | None = None

    @property
    def blob(self) -> Blob:
        return Blob(self.hash, self.byte_size)


@dataclass(frozen=True, slots=True)
class TaskResult:
    """The value that a task returned, and the blobs that it made, in order."""

    value: Json
    blobs: tuple[TaskBlob, ...] = ()


class TaskContext(Protocol):
    """The surroundings of a running task."""

    def new_directory(self) -> Path:
        """Return an empty directory for files on their way to `add_file`."""
        ...

    def add_file(self, path: Path, fingerprint: Fingerprint | None = None) -> Blob:
        """Keep a file as a blob of the result. The file moves or is removed."""
        ...

    def count(self, amount: int) -> None:
        """Count progress, in the unit of the sizes of the tasks."""
        ...


class Work(Protocol[ItemT_contra]):
    """The function of a plan with everything that all of its tasks share. Can be pickled."""

    def open(self, session: Session) -> Callable[[ItemT_contra, TaskContext], Json]:
        """Return the function that runs one task. Called once in every process, so it can open what tasks share."""
        ...


@dataclass(frozen=True, slots=True)
class Task(Generic[ItemT]):
    """One part of a plan. `key` follows from everything that the result depends on; `size` weighs its progress."""

    key: str
    item: ItemT
    size: int


@dataclass(frozen=True, slots=True)
class Plan(Generic[ItemT]):
    """Tasks of one kind. `limit` bounds the threads that run them in this process without an engine."""

    work: Work[ItemT]
    tasks: Sequence[Task[ItemT]]
    limit: int | None = None


def group_by_bytes(
    items: Sequence[ItemT], size_of: Callable[[ItemT], int], *, max_bytes: int, max_items: int
) -> Iterator[tuple[ItemT, ...]]:
    """Yield neighbours that one task takes: few results for the driver, and enough tasks for the workers."""
    group: list[ItemT] = []
    size_bytes = 0
    for item in items:
        size = size_of(item)
        if group and (size_bytes + size > max_bytes or len(group) == max_items):
            yield tuple(group)
            group, size_bytes = [], 0
        group.append(item)
        size_bytes += size
    if group:
        yield tuple(group)


def task_key(*parts: Json) -> str:
    """Return the name of a task: a hash of what its result depends on."""
    return sha256_hex(canonical_json(list(parts)))
