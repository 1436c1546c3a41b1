"""If this fails, a reference returns bytes that were never published."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

import warpdata as wd
from tests.faults.scenes import link
from tests.web_server import WebServer, serving
from warpdata.errors import CorruptError, StorageError, WarpError
from warpdata.primitives.hashing import blob_key
from warpdata.settings import Settings, load_settings
from warpdata.storage import open_store
from warpdata.testing import FaultyStore, KillAt, Killed

CONTENT = {f"{n:03d}.bin": Random(n).randbytes(2000) for n in range(120)}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "origin"
    rows = pa.table({"file": list(CONTENT)})
    builder = wd.DatasetBuilder("a/b", folder.as_uri()).add_table("main", rows)
    builder.add_artifact("raw", CONTENT, shard_bytes=120_000).bind("main", "file", "raw").publish()
    return folder


@pytest.fixture
def server(root: Path) -> Iterator[WebServer]:
    with serving(root) as server:
        yield server


@pytest.fixture
def settings(server: WebServer, tmp_path: Path) -> Settings:
    return replace(load_settings(), store_url=server.url, cache_dir=tmp_path / "cache", timeout_s=5, max_retries=1)


def outcomes(dataset: wd.Dataset) -> dict[str, bytes | None]:
    """Every member once; None where reading it was refused as damaged."""
    found: dict[str, bytes | None] = {}
    for path in CONTENT:
        try:
            found[path] = dataset.artifact().read(path)
        except CorruptError as error:
            found[path] = None if path in error.message else b"another member was named"
    return found


@pytest.mark.parametrize("mode", ["remote", "auto", "hybrid"])
def test_a_shard_damaged_in_the_store_is_never_served(server: WebServer, settings: Settings, mode: str) -> None:
    dataset = wd.dataset("a/b", mode=mode, settings=settings)
    dataset.table().to_arrow()
    dataset.artifact().members()
    server.fault = "damaged"
    found = outcomes(dataset)
    shards = dataset.info().artifacts[0].shards
    refused = [path for path, data in found.items() if data is None]
    assert len(refused) == shards, "one byte near the end of each"
    assert all(data == CONTENT[path] for path, data in found.items() if data is not None)
    with pytest.raises(CorruptError):
        wd.read_many(dataset.table().to_arrow()["file"])
    server.fault = ""
    assert outcomes(dataset) == CONTENT, "nothing of it was kept"
    if mode != "remote":
        assert wd.dataset("a/b", settings=settings).warm().blobs
        assert outcomes(wd.dataset("a/b", mode="local", settings=settings)) == CONTENT


@pytest.mark.parametrize("mode", ["auto", "hybrid"])
def test_a_shard_damaged_in_the_cache_heals(server: WebServer, settings: Settings, mode: str) -> None:
    wd.dataset("a/b", settings=settings).warm()
    damaged = 0
    for entry in settings.cache_dir.rglob("*"):
        if entry.is_file() and len(entry.name) == 64 and entry.stat().st_size > 100_000:
            data = bytearray(entry.read_bytes())
            data[5000] ^= 1
            entry.write_bytes(data)
            damaged += 1
    assert damaged
    dataset = wd.dataset("a/b", mode=mode, settings=settings)
    assert outcomes(dataset) == CONTENT
    assert dataset.io_stats.healed == damaged


def test_a_table_damaged_in_the_cache_heals(server: WebServer, settings: Settings) -> None:
    warmed = wd.dataset("a/b", settings=settings)
    warmed.warm()
    (shard,) = warmed.table().entry.shards.shards
    whole = warmed.table().raw().to_arrow()
    for at in (100, shard.byte_size - 20):
        wd.dataset("a/b", settings=settings).warm()
        (entry,) = settings.cache_dir.rglob(shard.hash)
        data = bytearray(entry.read_bytes())
        data[at] ^= 1
        entry.write_bytes(data)
        dataset = wd.dataset("a/b", settings=settings)
        assert dataset.table().raw().to_arrow().equals(whole)
        assert dataset.io_stats.healed == 1


def test_a_damaged_index_in_the_cache_heals(server: WebServer, settings: Settings) -> None:
    dataset = wd.dataset("a/b", settings=settings)
    dataset.warm()
    (entry,) = [
        path for path in settings.cache_dir.rglob(dataset.artifact().entry.index.hash) if path.stat().st_size > 100
    ]
    entry.write_bytes(bytes(byte ^ 0xFF for byte in entry.read_bytes()))
    again = wd.dataset("a/b", settings=settings)
    assert outcomes(again) == CONTENT
    assert again.io_stats.healed == 1


def test_offline_there_is_nothing_to_heal_from(server: WebServer, settings: Settings) -> None:
    wd.dataset("a/b", settings=settings).warm()
    for entry in settings.cache_dir.rglob("*"):
        if entry.is_file() and len(entry.name) == 64 and entry.stat().st_size > 100_000:
            data = bytearray(entry.read_bytes())
            data[5000] ^= 1
            entry.write_bytes(data)
    offline = wd.dataset("a/b", mode="local", settings=settings)
    with pytest.raises(WarpError, match=r"not on this machine|corrupt"):
        offline.artifact().read_many(list(CONTENT))


@pytest.mark.parametrize("mode", ["remote", "auto", "hybrid"])
@pytest.mark.parametrize("fault", ["short", "no ranges", "cut", "down"])
def test_a_server_that_misbehaves_gives_an_error_and_no_bytes(
    server: WebServer, settings: Settings, mode: str, fault: str
) -> None:
    dataset = wd.dataset("a/b", mode=mode, settings=replace(settings, timeout_s=1, retry_timeout_s=1))
    dataset.artifact().read("000.bin")
    server.fault = fault
    with pytest.raises((CorruptError, StorageError, NotImplementedError)):
        dataset.artifact().read("111.bin")
    server.fault = ""
    assert outcomes(dataset) == CONTENT


def test_a_server_that_crawls_is_waited_for(server: WebServer, settings: Settings) -> None:
    server.fault = "slow"
    dataset = wd.dataset("a/b", mode="auto", settings=settings)
    began = time.monotonic()
    assert dataset.artifact().read("000.bin") == CONTENT["000.bin"]
    assert time.monotonic() - began < 5
    assert outcomes(dataset) == CONTENT


def test_a_publish_of_media_killed_anywhere_can_be_run_again(tmp_path: Path) -> None:
    """Old or new, never a mixture; and nothing that is there already is sent twice."""
    source = {path: CONTENT[path] for path in list(CONTENT)[:6]}

    def publish(store: FaultyStore) -> None:
        builder = wd.DatasetBuilder("a/b", link(store)).add_table("main", pa.table({"file": list(source)}))
        builder.add_artifact("raw", source, shard_bytes=4000).bind("main", "file", "raw").publish()

    plain = open_store("memory://media-killed", load_settings())
    for step in range(1, 200):
        store = FaultyStore(plain, KillAt(step))
        try:
            publish(store)
            break
        except Killed:
            continue
    else:
        pytest.fail("it never ended")
    assert step > 5, "there were places to be killed at"
    dataset = wd.dataset("a/b", store="memory://media-killed")
    assert wd.read_many(dataset.table().to_arrow()["file"]) == list(source.values())
    assert wd.verify(dataset).problems == ()


def test_a_shard_that_is_gone_is_named(root: Path) -> None:
    dataset = wd.dataset("a/b", store=root.as_uri())
    blob = dataset.artifact().shard_of("000.bin")
    (root / blob_key(blob.hash)).unlink()
    with pytest.raises(FileNotFoundError, match=blob.hash):
        wd.dataset("a/b", store=root.as_uri()).artifact().read("000.bin")
