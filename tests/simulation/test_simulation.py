"""If this fails, `warp simulate` predicts other requests, bytes or times than a stream has."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from benchmarks.harness.proxy import S3Proxy

import warpdata as wd
from warpdata.errors import BadInputError
from warpdata.simulation import ClusterModel, StoreModel, simulate
from warpdata.streaming import Shuffle
from warpdata.testing import S3Endpoint

STREAMS: dict[str, tuple[str, dict[str, Any]]] = {
    "media": ("a/media", {"shuffle": Shuffle(64, 8, 2), "batch_size": 32}),
    "vectors": ("a/vectors", {"shuffle": Shuffle(512, 16, 2), "batch_size": 128}),
    "media in order": ("a/media", {"batch_size": 32}),
    "vectors in order": ("a/vectors", {"batch_size": 128}),
}


def publish(name: str, url: str, settings: wd.Settings) -> None:
    rng = np.random.default_rng(0)
    if name == "a/media":
        files = {f"{number:05d}.bin": rng.bytes(4000) for number in range(3000)}
        rows = pa.table({"n": np.arange(3000), "file": list(files)})
        builder = wd.DatasetBuilder(name, url, settings=settings).add_artifact("raw", files, shard_bytes=2_000_000)
        builder.add_table("main", [rows.slice(at, 300) for at in range(0, 3000, 300)])
        builder.bind("main", "file", "raw", "file").publish()
        return
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(rng.random(40_000 * 64)), 64)
    rows = pa.table({"n": np.arange(40_000), "v": vectors})
    for at in range(0, 40_000, 5000):
        wd.DatasetBuilder(name, url, settings=settings).append_table("main", rows.slice(at, 5000)).publish()


def compare(case: str, s3: S3Endpoint, url: str, tmp_path: Path, delay_s: float, bytes_per_s: float) -> dict[str, Any]:
    """Return the measured and the simulated value of each quantity."""
    name, options = STREAMS[case]
    publish(name, url, s3.settings(cache_dir=tmp_path / "publish"))
    with S3Proxy(s3.endpoint_url, delay_s=delay_s, bytes_per_s=bytes_per_s) as proxy:
        settings = replace(s3, endpoint_url=proxy.endpoint_url).settings(cache_dir=tmp_path / "read")
        model = StoreModel(max(delay_s, 1e-3), bytes_per_s)
        opened = [wd.dataset(name, store=url, settings=settings, mode="remote") for _ in range(2)]
        found = simulate(opened[0], cluster=ClusterModel(1), store=model, **options)
        proxy.take()
        began = time.perf_counter()
        batches = opened[1].stream(**options).epoch(0)
        next(batches)
        first_s = time.perf_counter() - began
        samples = sum(len(batch["n"]) for batch in batches)
        epoch_s = time.perf_counter() - began
        seen = proxy.take()
    assert samples + options["batch_size"] == found.samples
    return {
        "requests": (len(seen), found.requests),
        "bytes": (sum(each.body_bytes for each in seen), found.uncached_node_bytes),
        "first_s": (first_s, found.first_batch_s - 3 * model.latency_s),  # the dataset was open
        "epoch_s": (epoch_s, found.epoch_s),
    }


@pytest.mark.s3
@pytest.mark.parametrize("case", STREAMS)
def test_requests_and_bytes_are_those_of_the_stream(
    case: str, s3_server: S3Endpoint, s3_url: str, tmp_path: Path
) -> None:
    found = compare(case, s3_server, s3_url, tmp_path, 0.0, 1e9)
    for quantity in ("requests", "bytes"):
        measured, simulated = found[quantity]
        assert simulated == pytest.approx(measured, rel=0.2), quantity


@pytest.mark.s3
@pytest.mark.soak
@pytest.mark.parametrize("case", STREAMS)
def test_times_are_those_of_a_slow_store(case: str, s3_server: S3Endpoint, s3_url: str, tmp_path: Path) -> None:
    """The store is slow enough for the time of this machine not to matter."""
    found = compare(case, s3_server, s3_url, tmp_path, 1.5, 1e6)
    for quantity, (measured, simulated) in found.items():
        assert simulated == pytest.approx(measured, rel=0.2), quantity


def test_more_ranks_share_the_bytes_and_the_cache() -> None:
    rows = pa.table({"n": np.arange(100_000), "x": np.random.default_rng(1).random(100_000)})
    for at in range(0, 100_000, 5000):
        wd.DatasetBuilder("a/b").append_table("main", rows.slice(at, 5000)).publish()
    dataset = wd.dataset("a/b")
    found = {
        (ranks, nodes): simulate(dataset, cluster=ClusterModel(ranks, nodes), shuffle=True, batch_size=16)
        for ranks, nodes in ((1, 1), (8, 1), (8, 8), (64, 8))
    }
    assert found[8, 1].node_bytes == found[1, 1].node_bytes, "ranks of one node fetch every part once"
    assert found[8, 1].uncached_node_bytes > 4 * found[8, 1].node_bytes
    assert found[8, 8].requests > found[8, 1].requests
    assert found[64, 8].hottest_prefix_requests_per_s >= found[8, 1].hottest_prefix_requests_per_s
    assert found[64, 8].steps * 64 * 16 >= 100_000
    slow = simulate(dataset, cluster=ClusterModel(8, 1, samples_per_s=100.0), shuffle=True, batch_size=16)
    assert slow.epoch_s >= 100_000 / 8 / 100
    assert slow.waits_s < found[8, 1].epoch_s
    limited = simulate(dataset, cluster=ClusterModel(64, 8), store=StoreModel(prefix_requests_per_s=0.1), shuffle=True)
    assert limited.notes
    assert limited.epoch_s > found[64, 8].epoch_s


def test_clusters_that_cannot_be_are_refused() -> None:
    with pytest.raises(BadInputError, match="cannot be divided"):
        ClusterModel(10, 3)
    wd.DatasetBuilder("a/b").add_table("main", {"n": [1, 2, 3]}).publish()
    with pytest.raises(BadInputError, match="follows from the ranks"):
        simulate(wd.dataset("a/b"), cluster=ClusterModel(2), shard=(0, 2))
    assert simulate(wd.dataset("a/b"), cluster=ClusterModel(2)).samples == 3
