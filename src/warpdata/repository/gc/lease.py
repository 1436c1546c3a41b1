"""Leases: a writer announces that it is about to make objects reachable, and collectors wait for it.

Implements "Leases" of docs/specs/gc.md.
"""

from __future__ import annotations

import threading
from _thread import start_new_thread
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta

from warpdata.errors import (
    CommitUnknownError,
    ConflictError,
    CorruptError,
    DeniedError,
    ErrorKind,
    ObjectNotFoundError,
    StorageError,
    WarpError,
)
from warpdata.primitives.strict_json import decode_json
from warpdata.repository.catalog import Pause, put_create_only, retry_unknown
from warpdata.repository.gc.condemned import CONDEMNED_PREFIX, CondemnedKeys, read_condemned
from warpdata.repository.manifest import Json, canonical_json
from warpdata.storage import Reader, Writer

__all__ = [
    "Lease",
    "LeaseClock",
    "LeaseInfo",
    "LeaseTerms",
    "acquire_lease",
    "describe_lease",
    "list_leases",
    "remove_lease",
]

LEASES_PREFIX = "leases"
RENEWAL_S = 60.0
VALID_S = 600.0
"""A writer makes nothing reachable later than this after it sent its last confirmed renewal."""
LAPSE = timedelta(seconds=3600)
"""A collector ignores a lease that was not renewed for this long, by the clock of the store."""
MAX_CLOCK_SKEW = timedelta(seconds=600)
"""Added where the store reports no times, and the clocks of two machines are compared."""
_DELETE_ATTEMPTS = 6
_UNCERTAIN = (StorageError, DeniedError, CommitUnknownError)
"""Errors after which an earlier request may still arrive. So may it after an interrupt, which is no `Exception`."""


@dataclass(frozen=True, slots=True)
class LeaseClock:
    """The two clocks of a writer. One may stop while the machine is suspended, the other may be set."""

    clock: Callable[[], datetime]
    timer: Callable[[], float]

    def start(self) -> Callable[[], float]:
        """Return a function for the seconds since now: the larger value of both clocks."""
        began, at = self.timer(), self.clock()
        return lambda: max(self.timer() - began, (self.clock() - at).total_seconds())


@dataclass(frozen=True, slots=True)
class LeaseInfo:
    """A lease in the store, and the time since its last write."""

    key: str
    age: timedelta
    has_store_time: bool = True

    @property
    def txn_id(self) -> str:
        return self.key.rsplit("/", 1)[-1].removesuffix(".json")

    @property
    def is_lapsed(self) -> bool:
        return self.age > (LAPSE if self.has_store_time else LAPSE + MAX_CLOCK_SKEW)


class Lease:
    """A lease that this process holds. A thread renews it until `release`. Safe to share between threads."""

    def __init__(self, writer: Writer, key: str, data: bytes, clock: LeaseClock, since: Callable[[], float]) -> None:
        self._writer = writer
        self._key = key
        self._data = data
        self._clock = clock
        self._since = since
        self._ended = threading.Event()
        # `Thread.start` waits until the thread runs. On a busy machine a small commit would wait longer than it works.
        start_new_thread(self._renew, ())
        self.condemned = CondemnedKeys()

    def check(self) -> None:
        """Raise `ConflictError` if the lease may have lapsed. Called before anything is made reachable."""
        age_s = self._since()
        if age_s > VALID_S:
            raise ConflictError(
                f"the lease {self._key} was not renewed for {age_s:.0f} s, so a collection may have deleted uploads",
                hint="Publish again; blobs that are still stored are not uploaded twice.",
            )

    def release(self, pause: Pause) -> None:
        """Remove the lease, once. A failure is ignored, because the lease lapses."""
        if self._ended.is_set():
            return None
        self._ended.set()
        for attempt in range(_DELETE_ATTEMPTS):
            try:
                return self._writer.delete(self._key)
            except StorageError:
                pause(attempt)
            except WarpError:
                return None
        return None

    def abandon(self) -> None:
        """Stop renewing, and leave the lease to lapse: a request without a reply may still make objects reachable."""
        self._ended.set()

    def _renew(self) -> None:
        while not self._ended.wait(RENEWAL_S):
            if self._since() > VALID_S:
                return  # it may have lapsed, and must not come back
            since = self._clock.start()
            with suppress(WarpError):
                self._writer.replace(self._key, self._data)
                self._since = since


@dataclass(frozen=True, slots=True)
class LeaseTerms:
    """The identity and purpose of a lease, for people who wait for it."""

    txn_id: str
    author: str
    purpose: str


@contextmanager
def acquire_lease(writer: Writer, terms: LeaseTerms, clock: LeaseClock, pause: Pause) -> Iterator[Lease]:
    """Hold a lease. `condemned` of the lease has the keys that this writer must not use.

    The lists are read after the store has confirmed the lease: a collection that this writer does not see will see the
    lease, and wait.
    """
    key = f"{LEASES_PREFIX}/{terms.txn_id}.json"
    time = clock.clock().isoformat()
    data = canonical_json(
        {"format": 1, "txn_id": terms.txn_id, "time": time, "author": terms.author, "purpose": terms.purpose}
    )
    since = clock.start()
    put_create_only(writer, key, data, pause)
    lease = Lease(writer, key, data, clock, since)
    may_be_reachable = False
    try:
        listed = list(writer.list_objects(CONDEMNED_PREFIX))
        if listed:
            lease.condemned = read_condemned(writer, listed, writer.stat(key).modified)
        may_be_reachable = True
        yield lease
        may_be_reachable = False
    except Exception as error:
        may_be_reachable = may_be_reachable and isinstance(error, _UNCERTAIN) and not _is_certain(error)
        raise
    finally:
        if may_be_reachable:
            lease.abandon()
        else:
            lease.release(pause)


def _is_certain(error: Exception) -> bool:
    """A full store refused the write. Its owner can collect garbage at once to make room."""
    return isinstance(error, WarpError) and error.kind is ErrorKind.STORE_FULL


def list_leases(reader: Reader, store_now: datetime, own_now: datetime) -> list[LeaseInfo]:
    """Return all leases, with their age by the clock of the store, or else by their own time."""
    found = []
    for info in reader.list_objects(LEASES_PREFIX):
        if info.modified is not None:
            found.append(LeaseInfo(info.key, store_now - info.modified))
            continue
        members = _members(reader, info.key)
        if members is not None:
            found.append(LeaseInfo(info.key, _own_age(members, own_now), has_store_time=False))
    return found


def remove_lease(writer: Writer, txn_id: str, pause: Pause) -> None:
    """Remove the lease of a transaction that has ended, such as one whose process was killed after its commit."""
    retry_unknown(lambda: writer.delete(f"{LEASES_PREFIX}/{txn_id}.json"), pause)


def describe_lease(reader: Reader, lease: LeaseInfo) -> str:
    """Return the purpose and author of a lease, for people who wait for it."""
    members = _members(reader, lease.key) or {}
    return f"{members.get('purpose') or 'a write'} by {members.get('author') or 'unknown'}"


def _own_age(members: dict[str, Json], now: datetime) -> timedelta:
    """Return the age by the time in a lease. A lease without a valid time is as good as new."""
    try:
        return now - datetime.fromisoformat(str(members.get("time")))
    except (ValueError, TypeError):
        return timedelta(0)


def _members(reader: Reader, key: str) -> dict[str, Json] | None:
    """Read a lease; None if it was removed. A lease that cannot be read is one all the same."""
    try:
        document = decode_json(reader.read(key).data, key)
    except ObjectNotFoundError:
        return None
    except CorruptError:
        return {}
    return document if isinstance(document, dict) else {}
