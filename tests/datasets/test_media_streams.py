"""If this fails, a filtered stream fetches members that it does not use, or fetches members repeatedly."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

import warpdata as wd
from tests.web_server import WebServer, serving
from warpdata.datasets.artifacts import for_selection
from warpdata.session import connect
from warpdata.settings import Settings, load_settings
from warpdata.storage.cache import CachedReader, FetchPolicy, Mode

COUNT = 400
MEMBER_BYTES = 20_000
CONTENT = {f"m/{n:04d}.bin": Random(n).randbytes(MEMBER_BYTES) for n in range(COUNT)}
DATA_BYTES = COUNT * MEMBER_BYTES
RANKS = Random(9).sample(range(COUNT), COUNT)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("origin")
    rows = pa.table({"id": range(COUNT), "rank": RANKS, "file": list(CONTENT)})
    builder = wd.DatasetBuilder(
        "acme/files", directory.as_uri(), settings=Settings(directory.as_uri(), directory / "cache")
    )
    builder.add_table("main", rows).add_artifact("raw", CONTENT, shard_bytes=2_000_000).bind("main", "file", "raw")
    builder.publish()
    return directory


@pytest.fixture
def server(root: Path) -> Iterator[WebServer]:
    with serving(root) as server:
        yield server


@pytest.fixture
def settings(server: WebServer, tmp_path: Path) -> Settings:
    return replace(load_settings(), store_url=server.url, cache_dir=tmp_path / "cache", timeout_s=5, max_retries=1)


def read_epochs(settings: Settings, kept: int, epochs: int = 1) -> None:
    """Stream shuffled epochs of `kept` scattered members, and check their content."""
    dataset = wd.dataset("acme/files", mode="auto", settings=settings)
    stream = dataset.stream(filter=f"rank < {kept}", batch_size=16, shuffle=True, seed=3, collate="dict")
    for number in range(epochs):
        seen: dict[int, bytes] = {}
        for batch in stream.epoch(number):
            seen.update(zip(batch["id"], batch["file"], strict=True))
        assert seen == {n: CONTENT[f"m/{n:04d}.bin"] for n in range(COUNT) if RANKS[n] < kept}


def test_a_low_selectivity_fetches_only_the_members(settings: Settings, server: WebServer) -> None:
    """A shard is read more than eight times. A policy that counts reads would fetch all of it."""
    read_epochs(settings, COUNT // 10)
    assert server.sent_bytes <= 0.3 * DATA_BYTES


def test_a_high_selectivity_fetches_each_shard_once(settings: Settings, server: WebServer) -> None:
    read_epochs(settings, COUNT // 2)
    assert server.sent_bytes <= 1.25 * DATA_BYTES


def test_repeated_epochs_do_not_fetch_more(settings: Settings, server: WebServer) -> None:
    """When half of a shard has been read, all of it is fetched."""
    read_epochs(settings, COUNT // 10, epochs=25)
    assert server.sent_bytes <= 1.7 * DATA_BYTES


@pytest.mark.parametrize(
    ("share", "member_bytes", "expected"),
    [
        (0.01, 50_000, FetchPolicy.TABLES),
        (0.1, 50_000, FetchPolicy.TABLES),
        (0.1, 5_000, FetchPolicy.EPOCHS),
        (0.25, 5e6, FetchPolicy.EPOCHS),
        (1.0, 50_000, FetchPolicy.EPOCHS),
        (0.0, 50_000, FetchPolicy.TABLES),
    ],
)
def test_dense_members_are_fetched_as_whole_shards(
    settings: Settings, share: float, member_bytes: float, expected: object
) -> None:
    session = connect(settings.store_url, mode="auto", settings=settings)
    chosen, settle = for_selection(session, DATA_BYTES, member_bytes)
    assert isinstance(chosen.media_reader, CachedReader)
    assert settle is not None
    settle(share)
    assert chosen.media_reader.policy == expected
    assert isinstance(session.media_reader, CachedReader)
    assert session.media_reader.policy == FetchPolicy.MEDIA, "other readers of the store keep their policy"


def test_media_larger_than_the_cache_are_not_fetched_whole(settings: Settings) -> None:
    session = connect(settings.store_url, mode="auto", settings=replace(settings, cache_limit_bytes=DATA_BYTES))
    chosen, settle = for_selection(session, DATA_BYTES, MEMBER_BYTES)
    assert isinstance(chosen.media_reader, CachedReader)
    assert settle is not None
    settle(1.0)
    assert chosen.media_reader.policy == FetchPolicy.MEDIA


def test_other_modes_keep_their_policy(settings: Settings) -> None:
    for mode in (Mode.REMOTE, Mode.HYBRID):
        session = connect(settings.store_url, mode=mode, settings=settings)
        assert for_selection(session, DATA_BYTES, MEMBER_BYTES) == (session, None)
