"""Fixtures of the fault tests: sessions without delays, and publishes that finish in milliseconds."""

from __future__ import annotations

import random
from datetime import UTC, datetime

import pyarrow as pa

import warpdata as wd
from warpdata.primitives.hashing import sha256_hex
from warpdata.session import Session
from warpdata.settings import load_settings
from warpdata.storage import Writer, open_store
from warpdata.testing import Fault, FaultyStore


def link(store: Writer, seed: int = 0) -> Session:
    """Return a session with a fixed clock and without waits."""
    return Session(
        writer=store,
        reader=store,
        settings=load_settings(),
        clock=lambda: datetime(2026, 1, 1, tzinfo=UTC),
        sleep=lambda _: None,
        rng=random.Random(seed),
    )


def memory(name: str) -> Writer:
    """Return an empty store in memory, one for each name."""
    return open_store(f"memory://{sha256_hex(name.encode())}", load_settings())


def faulty(store: Writer, fault: Fault | None = None) -> FaultyStore:
    return FaultyStore(store, fault)


def rows(start: int, count: int = 4) -> pa.Table:
    return pa.table({"n": pa.array(range(start, start + count), pa.int64())})


def numbers(connection: Session, address: str = "a/b", table: str = "main") -> list[int]:
    from warpdata.datasets import open_dataset
    from warpdata.repository.catalog import parse_address

    found: list[int] = open_dataset(connection, parse_address(address)).table(table).to_arrow()["n"].to_pylist()
    return found


def replace(connection: Session, start: int, expected_version: str | None = None, *, replace: bool = False) -> None:
    builder = wd.DatasetBuilder("a/b", connection)
    builder.add_table("main", rows(start)).add_table("other", rows(start + 1000))
    builder.publish(expected_version=expected_version, replace=replace)


def append(connection: Session, start: int) -> None:
    wd.DatasetBuilder("a/b", connection).append_table("main", rows(start)).publish()
