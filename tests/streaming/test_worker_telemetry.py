"""If this fails, a loader hides samples that it replaced, or reports no throughput, because workers counted alone."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import warpdata as wd
from warpdata.errors import MediaDecodeError
from warpdata.streaming import StreamStats
from warpdata.testing import S3Endpoint

torch = pytest.importorskip("torch", reason="the extra warpdata[torch] is not installed")
images = pytest.importorskip("PIL.Image", reason="the extra warpdata[image] is not installed")

ROWS, BROKEN = 24, 3


def png(number: int) -> bytes:
    out = io.BytesIO()
    images.fromarray(np.full((4, 4, 3), number, np.uint8)).save(out, "PNG")
    return out.getvalue()


FILES = {f"{n}.png": b"damaged" if n % 8 == 0 else png(n) for n in range(ROWS)}
MEDIA_BYTES = sum(map(len, FILES.values()))


def publish(store: str, settings: Any = None) -> None:
    rows = pa.table({"id": range(ROWS), "image": list(FILES)})
    builder = wd.DatasetBuilder("a/m", store, settings=settings).add_table("main", rows)
    builder.add_artifact("raw", FILES).bind("main", "image", "raw", "image").publish()


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    root = tmp_path_factory.mktemp("telemetry").as_uri()
    publish(root)
    return root


def check(stats: StreamStats, epochs: int) -> None:
    assert stats.samples == epochs * ROWS
    assert stats.substituted == epochs * BROKEN
    assert stats.batches == epochs * 6
    assert stats.bytes >= epochs * MEDIA_BYTES
    assert stats.bytes_per_s > 0


def opened(store: str, workers: int) -> Any:
    return wd.dataset("a/m", store=store).to_torch(batch_size=4, on_error="substitute", num_workers=workers)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_counts_what_its_workers_made(store: str, workers: int) -> None:
    plain = wd.dataset("a/m", store=store).stream(batch_size=4, on_error="substitute")
    loader = opened(store, workers)
    for epoch in range(2):
        list(plain.epoch(epoch))
        list(loader.epoch(epoch))
        check(loader.telemetry.stats, epoch + 1)
    assert loader.telemetry.stats.bytes == plain.telemetry.stats.bytes


def test_a_loader_counts_only_batches_that_it_returned(store: str) -> None:
    loader = opened(store, 2)
    batches = loader.epoch(0)
    next(batches)
    batches.close()
    stats = loader.telemetry.stats
    assert (stats.batches, stats.samples, stats.substituted) == (1, 4, 1)


@pytest.mark.parametrize(("method", "persistent"), [("fork", False), ("fork", True), ("spawn", True)])
def test_a_data_loader_of_the_caller_is_counted(store: str, method: str, *, persistent: bool) -> None:
    dataset = opened(store, 0).dataset
    loader = torch.utils.data.DataLoader(
        dataset, batch_size=None, num_workers=2, persistent_workers=persistent, multiprocessing_context=method
    )
    for epoch in range(2):
        assert sum(len(batch["id"]) for batch in loader) == ROWS
        check(dataset.stats, epoch + 1)
    dataset.set_epoch(0)
    assert dataset.stats.samples == 2 * ROWS, "the totals stay"


def test_a_data_loader_without_workers_is_counted(store: str) -> None:
    dataset = opened(store, 0).dataset
    list(torch.utils.data.DataLoader(dataset, batch_size=None))
    check(dataset.stats, 1)


def test_requests_of_workers_reach_the_loader(s3_url: str, s3_server: S3Endpoint, tmp_path: Path) -> None:
    publish(s3_url, s3_server.settings(cache_dir=tmp_path))
    settings = s3_server.settings(cache_dir=tmp_path / "cache")
    dataset = wd.dataset("a/m", store=s3_url, settings=settings)
    loader = dataset.to_torch(batch_size=4, on_error="substitute", num_workers=2)
    before = loader.telemetry.stats.io
    list(loader.epoch(0))
    check(loader.telemetry.stats, 1)
    assert loader.telemetry.stats.io.bytes_fetched - before.bytes_fetched >= MEDIA_BYTES


@pytest.mark.parametrize("workers", [0, 1])
def test_a_decode_error_mentions_on_error(store: str, workers: int) -> None:
    loader = wd.dataset("a/m", store=store).to_torch(batch_size=4, num_workers=workers)
    with pytest.raises(MediaDecodeError, match=r"0\.png(.|\n)*on_error=") as caught:
        list(loader.epoch(0))
    assert "substitute" in str(caught.value)
