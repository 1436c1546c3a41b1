"""A job: the distributed work of one change, from its first task to its commit.

The driver makes plans, and an engine runs their tasks. Workers store outputs and record finished tasks, so a driver
that starts again with the same id repeats nothing. A lease keeps the outputs from collections until the commit.
Implements docs/specs/jobs.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self, TypeAlias

from warpdata.errors import BadInputError
from warpdata.jobs.engine import Engine
from warpdata.jobs.local_engines import ProcessEngine, ThreadEngine
from warpdata.jobs.plan import Plan, Task, TaskBlob, TaskResult
from warpdata.jobs.ray_engine import RayEngine
from warpdata.jobs.records import TaskRecords
from warpdata.jobs.task_run import StoredTask, TaskFailure
from warpdata.primitives.hashing import Blob, Fingerprint
from warpdata.primitives.parallel import IO_POOL, READ_MEMORY, REQUEST_LIMIT
from warpdata.primitives.progress import ProgressCounter
from warpdata.repository.catalog import check_ref_name, mark_store, read_marker
from warpdata.repository.gc import Lease
from warpdata.session import Session, StoreAddress, keyed_id
from warpdata.storage import BlobCopy, GenerationReader

__all__ = ["EngineChoice", "Job", "JobOptions", "choose_engine", "open_job", "run_here", "stored_copy"]

EngineChoice: TypeAlias = str | Engine | None
"""None for this process as it works without an engine, "threads", "processes", "ray", "ray://HOST:PORT", or an
engine with options."""

_PROCESS_ONLY = "memory://"
_ENGINES = 'Use "threads", "processes", "ray" or "ray://HOST:PORT".'


@dataclass(frozen=True, slots=True)
class JobOptions:
    """The engine of a job and its id. Without an id, one that follows from the work."""

    engine: EngineChoice = None
    job: str | None = None

    def __post_init__(self) -> None:
        if self.job is not None:
            check_ref_name(self.job, "job")


def choose_engine(choice: EngineChoice) -> Engine | None:
    """Return the engine that was asked for; None for none."""
    if choice is None or isinstance(choice, Engine):
        return choice
    if not isinstance(choice, str):
        raise BadInputError(f"engine={choice!r} is not an engine", hint=_ENGINES)
    if choice == "threads":
        return ThreadEngine()
    if choice == "processes":
        return ProcessEngine()
    if choice == "ray":
        return RayEngine()
    if choice.startswith("ray://"):
        return RayEngine(choice)
    raise BadInputError(f"engine={choice!r} is not known", hint=_ENGINES)


class Job:
    """Runs plans on an engine under one lease. Leave it after the commit, or on an error with its records kept."""

    def __init__(self, session: Session, engine: Engine, job_id: str | None, purpose: str) -> None:
        """`job_id` None records nothing, for work that is not worth continuing."""
        self._session = session
        self._engine = engine
        self._job_id = None if job_id is None else check_ref_name(job_id, "job")
        self._purpose = purpose
        self._stack = ExitStack()
        self._lease: Lease | None = None
        self._chosen = session.new_generation()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @property
    def session(self) -> Session:
        return self._session

    def run(
        self, plan: Plan[Any], counter: ProgressCounter, generations: Mapping[str, str] | None = None
    ) -> list[TaskResult]:
        """Run the tasks that no earlier run has finished, and return all results in order.

        `generations` are those of the blobs that the tasks read.
        """
        lease = self._begin()
        tasks = {task.key: task for task in plan.tasks}
        results = {} if self._job_id is None else self._records.load(tasks, lease.condemned)
        for key in results:
            counter.add_bytes(tasks[key].size)
            counter.finish_file()
        function = self._function(plan, lease, dict(generations or {}))
        for task, result in self._results(function, [tasks[key] for key in tasks if key not in results], counter):
            results[task.key] = result
        return [results[task.key] for task in plan.tasks]

    def generation_of(self, digest: str) -> str | None:
        """Return the generation under which this job stores a blob that a task reads."""
        return self._chosen if digest in self._begin().condemned else None

    def finish(self) -> None:
        """Remove the records, after the commit."""
        if self._job_id is not None:
            self._records.remove()

    def close(self) -> None:
        """Give up the lease. The records stay for another run."""
        self._stack.close()
        self._lease = None

    @property
    def _records(self) -> TaskRecords:
        assert self._job_id is not None, "the caller records tasks"
        return TaskRecords(self._session.writer, self._job_id, self._session.pause)

    def _begin(self) -> Lease:
        """Start the engine and take the lease, once."""
        if self._lease is None:
            session = self._session
            if session.writer.url.startswith(_PROCESS_ONLY) and not isinstance(self._engine, ThreadEngine):
                raise BadInputError(
                    f"store {session.writer.url!r} is in the memory of this process, which workers cannot reach",
                    hint="Use another store, or engine='threads'.",
                )
            self._engine.start()
            if read_marker(session.writer) is None:
                mark_store(session.writer, session.pause)
            self._lease = self._stack.enter_context(session.lease(self._purpose))
        return self._lease

    def _function(self, plan: Plan[Any], lease: Lease, generations: dict[str, str]) -> StoredTask:
        session = self._session
        fixed = session.settings.io_concurrency
        requests = REQUEST_LIMIT.highest if fixed is None else fixed
        return StoredTask(
            work=plan.work,
            address=StoreAddress.of(session),
            job_id=self._job_id,
            condemned=lease.condemned,
            generation=self._chosen,
            generations=generations,
            budget=self._engine.budget(requests, READ_MEMORY.limit_bytes),
            token=session.new_id(),
        )

    def _results(
        self, function: StoredTask, tasks: list[Task[Any]], counter: ProgressCounter
    ) -> Iterator[tuple[Task[Any], TaskResult]]:
        """Yield results as they come, and count the progress of all workers together."""
        if not tasks:
            return
        counted = [0] * len(tasks)

        def on_progress(number: int, done: int) -> None:
            more = min(done, tasks[number].size) - counted[number]
            if more > 0:
                counted[number] += more
                counter.add_bytes(more)

        with closing(self._engine.run(function, tasks, on_progress)) as running:
            for number, result in running:
                if isinstance(result, TaskFailure):
                    raise result.error
                on_progress(number, tasks[number].size)
                counter.finish_file()
                yield tasks[number], result


def open_job(
    session: Session, options: JobOptions, dataset_id: str, purpose: str, stack: ExitStack, *, records: bool = True
) -> Job | None:
    """Return a job that ends with the stack; None without an engine.

    Without an id it is named after its dataset and purpose, so repeating a call continues it. With `records` False,
    only a job with an id records its tasks.
    """
    engine = choose_engine(options.engine)
    if engine is None:
        if options.job is not None:
            raise BadInputError(
                f"job={options.job!r} needs an engine", hint="Pass engine='processes' or engine='ray' (--engine)."
            )
        return None
    job_id = options.job or (keyed_id(f"{dataset_id}\n{purpose}") if records else None)
    return stack.enter_context(Job(session, engine, job_id, f"{purpose.splitlines()[0]} {dataset_id}"))


class Staging(Protocol):
    """Files of this machine that become blobs when the change is committed."""

    def new_directory(self) -> Path: ...

    def add_file(self, path: Path, fingerprint: Fingerprint | None = None) -> Blob: ...


def run_here(plan: Plan[Any], session: Session, staging: Staging | None, counter: ProgressCounter) -> list[TaskResult]:
    """Run the tasks in threads of this process, with outputs that stay on this machine until the commit.

    Without `staging`, tasks make no files.
    """
    run = plan.work.open(session)

    def call(task: Task[Any]) -> TaskResult:
        context = _StagingContext(staging, counter)
        result = TaskResult(run(task.item, context), tuple(context.blobs))
        counter.finish_file()
        return result

    return list(IO_POOL.map_ordered(call, plan.tasks, limit=plan.limit))


@dataclass(frozen=True, slots=True)
class _StagingContext:
    staging: Staging | None
    counter: ProgressCounter
    blobs: list[TaskBlob] = field(default_factory=list)

    def new_directory(self) -> Path:
        assert self.staging is not None, "the plan makes no files"
        return self.staging.new_directory()

    def add_file(self, path: Path, fingerprint: Fingerprint | None = None) -> Blob:
        assert self.staging is not None, "the plan makes no files"
        blob = self.staging.add_file(path, fingerprint)
        self.blobs.append(TaskBlob(blob.hash, blob.byte_size))
        return blob

    def count(self, amount: int) -> None:
        self.counter.add_bytes(amount)


def stored_copy(session: Session, digest: str, byte_size: int, generation: str | None) -> BlobCopy:
    """Return the content of a blob that a task has stored, for a commit that needs it at another key."""
    reader = session.writer if generation is None else GenerationReader(session.writer, {digest: generation})
    return BlobCopy(reader, Blob(digest, byte_size))
