"""Fixtures of the collection tests: sessions without delays, stores with a clock to set, and versions to collect."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa

import warpdata as wd
from warpdata.datasets import Dataset, open_dataset
from warpdata.primitives.hashing import Fingerprint, OnBytes, ignore_bytes
from warpdata.publish import Published
from warpdata.repository.catalog import parse_address
from warpdata.repository.gc import GarbageReport
from warpdata.session import Session
from warpdata.settings import load_settings
from warpdata.storage import ObjectInfo, Writer, open_store
from warpdata.testing import FaultyStore, KillAt

_seeds = itertools.count(1000)


def memory(name: str) -> Writer:
    return open_store(f"memory://gc-{name}", load_settings())


def session(store: Writer, seed: int = 0) -> Session:
    return Session(store, store, load_settings(), sleep=lambda _: None, rng=random.Random(seed))


def rows(*numbers: int) -> pa.Table:
    return pa.table({"n": pa.array(numbers, pa.int64())})


def publish(store: Writer | Session, *numbers: int, dataset_id: str = "a/b", seed: int = 1) -> Published:
    """Publish a table with these numbers alone."""
    link = store if isinstance(store, Session) else session(store, seed)
    return wd.DatasetBuilder(dataset_id, link).add_table("main", rows(*numbers)).publish(replace=True)


def append(store: Writer, *numbers: int, dataset_id: str = "a/b", seed: int = 2) -> Published:
    return wd.DatasetBuilder(dataset_id, session(store, seed)).append_table("main", rows(*numbers)).publish()


def collect(store: Writer | Session, keep: str = "all", *, dry_run: bool = False) -> GarbageReport:
    link = store if isinstance(store, Session) else session(store, next(_seeds))
    return wd.gc(link, keep=keep, dry_run=dry_run, wait_s=0).report


def opened(store: Writer, address: str = "a/b") -> Dataset:
    return open_dataset(session(store), parse_address(address))


def numbers(store: Writer, address: str = "a/b") -> list[int]:
    found: list[int] = opened(store, address).table().to_arrow()["n"].to_pylist()
    return found


def check_whole(store: Writer, *addresses: str) -> None:
    """Read and hash every blob of these versions."""
    for address in addresses:
        found = wd.verify(opened(store, address))
        assert not found.problems, (address, found.problems)


def keys(store: Writer, prefix: str) -> list[str]:
    return [info.key for info in store.list_objects(prefix)]


class DyingStore(FaultyStore):
    """Kills the caller before its first operation of this name on a key with this part."""

    def __init__(self, store: Writer, name: str, part: str) -> None:
        super().__init__(store)
        self._name = name
        self._part = part

    def _begin(self, name: str, key: str) -> Callable[[], None]:
        if name == self._name and self._part in key:
            self._fault = KillAt(len(self.log))
        return super()._begin(name, key)


@dataclass
class Clock:
    """A clock that a test sets: as the time of a machine, or of a store."""

    now: datetime = field(default_factory=lambda: datetime(2026, 1, 1, tzinfo=UTC))

    def __call__(self) -> datetime:
        return self.now

    def timer(self) -> float:
        return self.now.timestamp()

    def advance(self, **parts: float) -> None:
        self.now += timedelta(**parts)


class TimedStore(FaultyStore):
    """A store whose objects have times of a clock, or none."""

    def __init__(self, store: Writer, clock: Clock, *, reports_times: bool = True) -> None:
        super().__init__(store)
        self._clock = clock
        self._reports_times = reports_times
        self._written: dict[str, datetime] = {}

    def create(self, key: str, data: bytes) -> bool:
        made = super().create(key, data)
        if made:
            self._written[key] = self._clock()
        return made

    def create_file(self, key: str, path: Path, fingerprint: Fingerprint, on_bytes: OnBytes = ignore_bytes) -> bool:
        made = super().create_file(key, path, fingerprint, on_bytes)
        if made:
            self._written[key] = self._clock()
        return made

    def replace(self, key: str, data: bytes) -> None:
        super().replace(key, data)
        self._written[key] = self._clock()

    def stat(self, key: str) -> ObjectInfo:
        return self._timed(super().stat(key))

    def list_objects(self, prefix: str, *, max_count: int | None = None) -> Iterator[ObjectInfo]:
        return map(self._timed, super().list_objects(prefix, max_count=max_count))

    def _timed(self, info: ObjectInfo) -> ObjectInfo:
        time = self._written.get(info.key, datetime(2025, 1, 1, tzinfo=UTC))
        return replace(info, modified=time if self._reports_times else None)


def timed_session(store: Writer, clock: Clock, seed: int = 0) -> Session:
    """Return a session on a machine whose clocks are that of the test. Sleeping lets time pass."""
    return Session(
        store,
        store,
        load_settings(),
        clock=clock,
        timer=clock.timer,
        sleep=lambda seconds: clock.advance(seconds=seconds),
        rng=random.Random(seed),
    )
