"""Files of an export that the workers of an engine write, each to its place in the directory.

The driver decides all names, so the result is that of an export without an engine. A task that runs twice writes the
same files again. The directory must be one that every worker sees.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from warpdata.datasets import Dataset
from warpdata.errors import BadInputError, StorageError
from warpdata.jobs import EngineChoice, Job, JobOptions, Plan, Task, TaskContext, group_by_bytes, open_job, task_key
from warpdata.kinds.artifacts import FileRef, read_many
from warpdata.limits import MIB
from warpdata.primitives.progress import ProgressCounter
from warpdata.repository.manifest import Json
from warpdata.session import Session

__all__ = ["FileCopies"]

_TASK_FILES, _TASK_BYTES = 256, 128 * MIB
_ROUND_FILES = 50_000
_HELD_BYTES = 16 * MIB
_PIECE_BYTES = 4 * MIB

FileCopy: TypeAlias = tuple[str, FileRef]
"""The name of a file below the directory, and its content."""


class FileCopies:
    """Collects the files of an export, and lets workers write them."""

    def __init__(self, dataset: Dataset, engine: EngineChoice, stack: ExitStack) -> None:
        """Start the engine. `stack` ends the job."""
        job = open_job(dataset.session, JobOptions(engine), dataset.id, "export", stack, records=False)
        assert job is not None, "the caller has an engine"
        self._job: Job = job
        self._names: set[str] = set()
        self._pending: list[FileCopy] = []

    @property
    def is_full(self) -> bool:
        """True if enough files wait to write them now."""
        return len(self._pending) >= _ROUND_FILES

    def add(self, name: str, ref: FileRef) -> None:
        """Write this file later. `BadInputError` if the name is taken."""
        if name in self._names:
            raise BadInputError(f"the export has two files with the name {name!r}", hint="Filter one out.")
        self._names.add(name)
        self._pending.append((name, ref))

    def write(self, directory: Path, counter: ProgressCounter) -> None:
        """Write the files that wait."""
        tasks = [_task(directory, group) for group in self._groups()]
        if tasks:
            self._job.run(Plan(_CopyWork(str(directory)), tasks), counter)
            counter.finish_files(len(self._pending) - len(tasks))
        self._pending = []

    def _groups(self) -> Iterator[tuple[FileCopy, ...]]:
        return group_by_bytes(self._pending, lambda copy: copy[1].size, max_bytes=_TASK_BYTES, max_items=_TASK_FILES)


@dataclass(frozen=True, slots=True)
class _CopyWork:
    directory: str

    def open(self, session: Session) -> Callable[[Sequence[FileCopy], TaskContext], Json]:
        directory = Path(self.directory)
        if not directory.is_dir():
            raise BadInputError(
                f"the directory of the export is not on {platform.node()}",
                hint="Export to a directory that all workers share, or without an engine.",
            )

        def run(copies: Sequence[FileCopy], context: TaskContext) -> Json:
            small = read_many([ref if ref.size <= _HELD_BYTES else None for _, ref in copies])
            for (name, ref), data in zip(copies, small, strict=True):
                _write(directory / name, session.new_id(), ref if data is None else data)
                context.count(ref.size)
            return len(copies)

        return run


def _write(path: Path, token: str, content: bytes | FileRef) -> None:
    """Write a file under a name of its own first, so that another run of the task does no harm."""
    path.parent.mkdir(parents=True, exist_ok=True)
    staged = path.with_name(f".{token}.tmp")
    try:
        with staged.open("xb") as file:
            if isinstance(content, bytes):
                file.write(content)
            else:
                with content.open() as source:
                    while piece := source.read(_PIECE_BYTES):
                        file.write(piece)
        staged.replace(path)
    except OSError as error:
        staged.unlink(missing_ok=True)
        raise StorageError(f"the export: {path} cannot be written: {error.strerror or error}") from error


def _task(directory: Path, group: tuple[FileCopy, ...]) -> Task[tuple[FileCopy, ...]]:
    key = task_key("export", str(directory), [name for name, _ in group])
    return Task(key, group, sum(ref.size for _, ref in group))
