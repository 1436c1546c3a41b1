"""If this fails, a mode breaks its promise: it writes to disk, opens a socket, waits, or repeats requests."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

import warpdata as wd
from tests.web_server import WebServer, serving
from warpdata.errors import BadInputError, NotCachedError
from warpdata.session import open_cache
from warpdata.settings import Settings, load_settings

MEMBERS = 300
CONTENT = {f"m/{n:04d}.bin": Random(n).randbytes(Random(n).randrange(500, 4000)) for n in range(MEMBERS)}
DATA_BYTES = sum(map(len, CONTENT.values()))


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("origin")
    rows = pa.table({"id": range(MEMBERS), "file": list(CONTENT), "text": [f"row {n} " * 50 for n in range(MEMBERS)]})
    builder = wd.DatasetBuilder(
        "acme/files", directory.as_uri(), settings=Settings(directory.as_uri(), directory / "cache")
    )
    builder.add_table("main", rows).add_artifact("raw", CONTENT, shard_bytes=200_000).bind("main", "file", "raw")
    builder.publish(label="v1")
    return directory


@pytest.fixture
def server(root: Path) -> Iterator[WebServer]:
    with serving(root) as server:
        yield server


@pytest.fixture
def settings(server: WebServer, tmp_path: Path) -> Settings:
    return replace(load_settings(), store_url=server.url, cache_dir=tmp_path / "cache", timeout_s=5, max_retries=1)


def read_all(dataset: wd.Dataset, seed: int = 0) -> None:
    """Read every member once, in random order, one by one."""
    refs = [ref for columns in dataset.table().batch_dicts(100) for ref in columns["file"]]
    Random(seed).shuffle(refs)
    for ref in refs:
        assert ref.read_bytes() == CONTENT[ref.path]


def test_remote_writes_nothing_to_disk(settings: Settings, server: WebServer) -> None:
    dataset = wd.dataset("acme/files", mode="remote", settings=settings)
    read_all(dataset)
    assert not settings.cache_dir.exists()
    counts = dataset.io_stats
    assert counts.requests >= MEMBERS, "each member takes a request"
    assert counts.requests == len(server.requests)
    assert (counts.hits, counts.fills) == (0, 0)
    with pytest.raises(BadInputError, match="mode 'remote' has no cache to warm"):
        dataset.warm()


def test_many_references_share_requests(settings: Settings, server: WebServer) -> None:
    dataset = wd.dataset("acme/files", mode="remote", settings=settings)
    refs = dataset.table().to_arrow()["file"]
    before = len(server.requests)
    assert wd.read_many(refs) == list(CONTENT.values())
    shards = dataset.info().artifacts[0].shards
    assert len(server.requests) - before <= shards + 5, "neighbours share a request, and index pages are read once"


def test_the_first_reference_costs_few_small_requests(settings: Settings, server: WebServer) -> None:
    dataset = wd.dataset("acme/files", settings=settings)
    requests, sent = len(server.requests), server.sent_bytes
    assert dataset.artifact().read("m/0123.bin") == CONTENT["m/0123.bin"]
    assert len(server.requests) - requests == 2, "the small index and the member"
    assert server.sent_bytes - sent < 70_000 + len(CONTENT["m/0123.bin"])


def test_auto_fetches_each_byte_once(settings: Settings, server: WebServer) -> None:
    dataset = wd.dataset("acme/files", mode="auto", settings=settings)
    read_all(dataset)
    shard_bytes = dataset.info().artifacts[0].size_bytes
    assert server.sent_bytes <= 1.1 * shard_bytes + 60_000, "each shard once, plus the index and the table"
    dataset.warm()
    asked = len(server.requests)
    read_all(dataset, seed=1)
    again = wd.dataset("acme/files", mode="auto", settings=settings)
    opened = len(server.requests)
    assert opened - asked <= 2, "the hint and the next commit; the manifest is cached"
    read_all(again, seed=2)
    assert len(server.requests) == opened
    assert again.io_stats.hits >= MEMBERS
    assert again.io_stats.bytes_fetched < 2000


def test_two_versions_share_cached_blobs(settings: Settings, server: WebServer, root: Path) -> None:
    wd.dataset("acme/files", settings=settings).warm()
    rows = pa.table({"file": list(CONTENT)})
    builder = wd.DatasetBuilder("acme/copy", root.as_uri()).add_table("main", rows)
    builder.add_artifact("raw", CONTENT, shard_bytes=200_000).bind("main", "file", "raw").publish()
    copy = wd.dataset("acme/copy", settings=settings)
    sent = server.sent_bytes
    read_all(copy)
    assert server.sent_bytes - sent < 20_000, "only the new table"


def test_auto_does_not_wait_for_the_cache(settings: Settings, server: WebServer) -> None:
    """The store serves the first reads directly. No shard is fetched whole before it is read often."""
    dataset = wd.dataset("acme/files", mode="auto", settings=settings)
    first = next(dataset.table().batch_dicts(4))["file"]
    for ref in first:
        ref.read_bytes()
    counts = dataset.io_stats
    assert (counts.fills, counts.waits) == (0, 0)
    assert counts.bytes_fetched < DATA_BYTES / 2


def test_hybrid_reads_ahead(settings: Settings, server: WebServer) -> None:
    dataset = wd.dataset("acme/files", mode="hybrid", settings=settings)
    batches = dataset.table().batch_dicts(30)
    assert next(batches)["file"][0].read_bytes() == CONTENT["m/0000.bin"]
    read_all(dataset)
    for _ in range(500):
        if dataset.io_stats.fills >= dataset.info().artifacts[0].shards:
            break
        time.sleep(0.01)
    else:
        pytest.fail(f"the shards are not here: {dataset.io_stats}")
    assert dataset.io_stats.prefetched > 0
    assert server.sent_bytes <= 1.1 * dataset.info().size_bytes + 60_000


def test_local_opens_no_socket(settings: Settings, server: WebServer, monkeypatch: pytest.MonkeyPatch) -> None:
    for address in ("acme/files", "acme/files@v1"):
        wd.dataset(address, settings=settings).warm()
    version = wd.dataset("acme/files", settings=settings).version
    asked = len(server.requests)

    def refuse(*_: object) -> None:
        raise AssertionError("a socket was opened")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    for address in ("acme/files", "acme/files@v1", f"acme/files@{version}"):
        read_all(wd.dataset(address, mode="local", settings=settings))
    assert len(server.requests) == asked


def test_local_names_the_missing_blob_and_the_command(settings: Settings, server: WebServer) -> None:
    with pytest.raises(NotCachedError, match="acme/files") as unknown:
        wd.dataset("acme/files", mode="local", settings=settings)
    assert "warp warm" in (unknown.value.hint or "")
    online = wd.dataset("acme/files", settings=settings)
    online.warm(tables=["main"])
    asked = len(server.requests)
    offline = wd.dataset("acme/files", mode="local", settings=settings)
    paths = offline.table().raw().to_arrow()["file"].to_pylist()
    assert paths == list(CONTENT)
    with pytest.raises(NotCachedError, match="is not on this machine") as missing:
        offline.artifact().read("m/0000.bin")
    assert "warp warm" in (missing.value.hint or "")
    assert len(server.requests) == asked


def test_warm_fetches_the_selected_blobs(settings: Settings, server: WebServer) -> None:
    dataset = wd.dataset("acme/files", settings=settings)
    table, artifact = dataset.info().tables[0], dataset.info().artifacts[0]
    events: list[tuple[str, int, int]] = []
    warmed = dataset.warm(
        tables=["main"], progress=lambda event: events.append((event.stage, event.done_bytes, event.total_bytes))
    )
    assert (warmed.blobs, warmed.fetched_bytes, warmed.present_bytes) == (1, table.size_bytes, 0)
    assert events[-1] == ("warm", table.size_bytes, table.size_bytes)
    some = dataset.warm(artifacts=["raw"], shards=slice(0, 1))
    assert some.blobs == 2, "the index, and one shard"
    small = dataset.warm(max_bytes="1kB")
    assert (small.blobs, small.fetched_bytes) == (0, 0)
    assert small.skipped_bytes == dataset.info().size_bytes + dataset.artifact().entry.index.byte_size
    rest = dataset.warm()
    assert rest.present_bytes == table.size_bytes + some.fetched_bytes
    assert rest.fetched_bytes + rest.present_bytes == small.skipped_bytes
    assert open_cache(settings).stats().entries == artifact.shards + 2


def test_a_local_store_needs_no_warming(root: Path) -> None:
    dataset = wd.dataset("acme/files", store=root.as_uri(), mode="local")
    warmed = dataset.warm()
    assert (warmed.fetched_bytes, warmed.skipped_bytes) == (0, 0)
    assert warmed.present_bytes > DATA_BYTES
    read_all(dataset)


def test_an_unknown_mode_is_refused(settings: Settings) -> None:
    with pytest.raises(BadInputError, match="'fast' is not a mode"):
        wd.dataset("acme/files", mode="fast", settings=settings)
    with pytest.raises(BadInputError, match="'quick' is not a mode"):
        wd.dataset("acme/files", settings=replace(settings, mode="quick"))
