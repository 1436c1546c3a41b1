"""A store that counts operations and fails on purpose.

It wraps any `Writer`. Without a fault it counts, for tests that bound the number of requests. With a fault it kills
the caller, loses replies or refuses reads at a chosen operation, so that a loop over n covers every moment of a
crash. It does not delay or reorder.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from random import Random
from typing import Literal, TypeVar

from warpdata.errors import StoreUnavailableError, WriteUnknownError
from warpdata.limits import COALESCE_GAP_BYTES
from warpdata.primitives.hashing import Fingerprint, OnBytes, ignore_bytes
from warpdata.storage import ByteRange, GetResult, ObjectInfo, ReaderWrapper, Writer

__all__ = ["DropReplies", "DropReply", "FailReads", "Fault", "FaultyStore", "KillAt", "Killed", "Operation"]

WRITES = frozenset({"create", "create_file", "replace", "replace_file", "delete", "remove_abandoned"})

_T = TypeVar("_T")


class Killed(BaseException):
    """The process died here. Not an `Exception`, so that no handler in the tested code catches it."""


@dataclass(frozen=True, slots=True)
class KillAt:
    """Die at operation `at`, `before` it takes effect or `after`."""

    at: int
    when: Literal["before", "after"] = "before"


@dataclass(frozen=True, slots=True)
class DropReply:
    """Operation `at`, if it is a write, takes effect and is reported as unknown."""

    at: int


@dataclass(frozen=True, slots=True)
class DropReplies:
    """Each write is reported as unknown with probability `rate`; half of those took effect."""

    rate: float
    rng: Random


@dataclass(frozen=True, slots=True)
class FailReads:
    """Operation `at`, if it is a read, finds the store unavailable."""

    at: int


Fault = KillAt | DropReply | DropReplies | FailReads


@dataclass(frozen=True, slots=True)
class Operation:
    """One call. Its number is its index in the log."""

    name: str
    key: str


class FaultyStore(ReaderWrapper):
    """Implements `Writer`. Safe to share between threads, which then share one numbering.

    Streams and listings count once, with their first item. `url`, `local_path`, `is_local` and `invalidate` send
    nothing and are not counted. After a kill every operation raises `Killed`, as from a dead process, so clean-up
    code has no effect.
    """

    def __init__(self, store: Writer, fault: Fault | None = None) -> None:
        super().__init__(store)
        self._store = store
        self._fault = fault
        self._lock = threading.Lock()
        self._log: list[Operation] = []
        self._is_dead = False

    @property
    def log(self) -> tuple[Operation, ...]:
        """Every operation so far, including the one that was killed."""
        with self._lock:
            return tuple(self._log)

    def counts(self) -> Counter[str]:
        """Return the number of calls of each operation."""
        return Counter(operation.name for operation in self.log)

    def clear(self) -> None:
        """Clear the log and number from zero again. A killed store stays killed."""
        with self._lock:
            self._log.clear()

    def read(self, key: str) -> GetResult:
        return self._run("read", key, lambda: self._store.read(key))

    def read_if_changed(self, key: str, etag: str) -> GetResult | None:
        return self._run("read_if_changed", key, lambda: self._store.read_if_changed(key, etag))

    def read_range(self, key: str, span: ByteRange) -> memoryview:
        return self._run("read_range", key, lambda: self._store.read_range(key, span))

    def read_ranges(
        self, key: str, spans: Sequence[ByteRange], *, gap_bytes: int = COALESCE_GAP_BYTES
    ) -> list[memoryview]:
        return self._run("read_ranges", key, lambda: self._store.read_ranges(key, spans, gap_bytes=gap_bytes))

    def stream(self, key: str) -> Iterator[memoryview]:
        return self._run_lazily("stream", key, lambda: self._store.stream(key))

    def stat(self, key: str) -> ObjectInfo:
        return self._run("stat", key, lambda: self._store.stat(key))

    def list_objects(self, prefix: str, *, max_count: int | None = None) -> Iterator[ObjectInfo]:
        return self._run_lazily("list_objects", prefix, lambda: self._store.list_objects(prefix, max_count=max_count))

    def list_folders(self, prefix: str) -> list[str]:
        return self._run("list_folders", prefix, lambda: self._store.list_folders(prefix))

    def signed_url(self, key: str, expires_s: int) -> str:
        return self._run("signed_url", key, lambda: self._store.signed_url(key, expires_s))

    def create(self, key: str, data: bytes) -> bool:
        return self._run("create", key, lambda: self._store.create(key, data))

    def create_file(self, key: str, path: Path, fingerprint: Fingerprint, on_bytes: OnBytes = ignore_bytes) -> bool:
        return self._run("create_file", key, lambda: self._store.create_file(key, path, fingerprint, on_bytes))

    def replace(self, key: str, data: bytes) -> None:
        self._run("replace", key, lambda: self._store.replace(key, data))

    def replace_file(self, key: str, path: Path, fingerprint: Fingerprint, on_bytes: OnBytes = ignore_bytes) -> None:
        self._run("replace_file", key, lambda: self._store.replace_file(key, path, fingerprint, on_bytes))

    def delete(self, key: str) -> None:
        self._run("delete", key, lambda: self._store.delete(key))

    def delete_many(self, keys: Sequence[str]) -> None:
        """Remove one key after the other, so that a fault can come between any two."""
        for key in keys:
            self.delete(key)

    def remove_abandoned(self, before: datetime, *, dry_run: bool = False) -> tuple[int, int]:
        return self._run("remove_abandoned", "", lambda: self._store.remove_abandoned(before, dry_run=dry_run))

    def _run(self, name: str, key: str, operation: Callable[[], _T]) -> _T:
        after = self._begin(name, key)
        try:
            result = operation()
        except Exception:
            after()  # a failure is a reply too: it can be lost, and the caller can die while reading it
            raise
        after()
        return result

    def _run_lazily(self, name: str, key: str, operation: Callable[[], Iterator[_T]]) -> Iterator[_T]:
        after = self._begin(name, key)
        try:
            yield from operation()
        except Exception:
            after()
            raise
        after()

    def _begin(self, name: str, key: str) -> Callable[[], None]:
        """Number the operation and fail it if it must not take effect. Return the call that follows its effect."""
        with self._lock:
            if self._is_dead:
                raise Killed(f"{name} of {key!r} by a process that is already dead")
            number = len(self._log)
            self._log.append(Operation(name, key))
            outcome = _decide(self._fault, number, is_write=name in WRITES)
            self._is_dead = outcome == "die before"
        where = f"operation {number}, {name} of {key!r}"
        if outcome == "die before":
            raise Killed(f"before {where}")
        if outcome == "lose request":
            raise WriteUnknownError(f"{where}: the request was lost on purpose")
        if outcome == "refuse":
            raise StoreUnavailableError(f"{where}: refused on purpose")
        return lambda: self._finish(outcome, where)

    def _finish(self, outcome: str, where: str) -> None:
        if outcome == "die after":
            with self._lock:
                self._is_dead = True
            raise Killed(f"after {where}")
        if outcome == "lose reply":
            raise WriteUnknownError(f"{where}: the reply was lost on purpose")


_Outcome = Literal["pass", "die before", "die after", "lose request", "lose reply", "refuse"]


def _decide(fault: Fault | None, number: int, *, is_write: bool) -> _Outcome:
    match fault:
        case KillAt(at, when) if at == number:
            return "die before" if when == "before" else "die after"
        case DropReply(at) if at == number and is_write:
            return "lose reply"
        case DropReplies(rate, rng) if is_write and rng.random() < rate:
            return "lose reply" if rng.random() < 0.5 else "lose request"
        case FailReads(at) if at == number and not is_write:
            return "refuse"
    return "pass"
