"""If this fails, a few kilobytes of hostile or unlucky media fill the memory of the machine."""

from __future__ import annotations

import io
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import warpdata as wd
from tests.web_server import serving
from warpdata.errors import LimitExceededError
from warpdata.settings import Settings, load_settings
from warpdata.streaming.media_memory import BatchDeferred, BatchMemory, prefetched_bytes

images = pytest.importorskip("PIL.Image", reason="the extra warpdata[image] is not installed")

MB = 1_000_000


def png(width: int, height: int) -> bytes:
    out = io.BytesIO()
    images.new("RGB", (width, height)).save(out, "PNG")
    return out.getvalue()


def publish(root: Path, files: dict[str, bytes], kind: str, **options: Any) -> str:
    rows = pa.table({"id": range(len(files)), "media": list(files)})
    builder = wd.DatasetBuilder("a/m", root.as_uri()).add_table("main", rows)
    builder.add_artifact("raw", files, **options).bind("main", "media", "raw", kind).publish()
    return root.as_uri()


def opened(store: str, memory_bytes: int) -> wd.Dataset:
    return wd.dataset("a/m", store=store, settings=replace(load_settings(), media_memory_bytes=memory_bytes))


@pytest.fixture(scope="module")
def large_images(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Eight images of 3 MB each, a few kilobytes as stored."""
    return publish(tmp_path_factory.mktemp("images"), {f"{n}.png": png(1000, 1000) for n in range(8)}, "image")


@pytest.fixture(scope="module")
def zeros(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A hundred members of 1 MB that compress to almost nothing, and a chunked one of 12 MB."""
    files = {f"{n:02d}": bytes(MB) for n in range(100)} | {"large": bytes(12 * MB)}
    return publish(tmp_path_factory.mktemp("zeros"), files, "file", compression="zstd")


def test_a_batch_of_large_images_is_refused_with_the_setting(large_images: str) -> None:
    dataset = opened(large_images, 20 * MB)
    with pytest.raises(LimitExceededError, match=r"\d\.png(.|\n)*20,000,000 bytes(.|\n)*WARP_MEDIA_MEMORY_GB"):
        next(iter(dataset.stream(batch_size=8)))
    assert prefetched_bytes() == 0
    assert sum(len(batch["media"]) for batch in dataset.stream(batch_size=4)) == 8


def test_prefetched_batches_share_a_bound(large_images: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With room for two and a half images, batches of one image are prefetched two at a time, and all arrive."""
    most: list[int] = []
    reserve = BatchMemory.reserve

    def recorded(self: BatchMemory, size_bytes: int) -> None:
        reserve(self, size_bytes)
        most.append(prefetched_bytes())

    monkeypatch.setattr(BatchMemory, "reserve", recorded)
    stream = opened(large_images, 8 * MB).stream(batch_size=1, prefetch=6)
    taken = [batch["id"].tolist() for batch in stream.epoch(0)]
    assert taken == [[n] for n in range(8)]
    assert 0 < max(most) <= 8 * MB
    assert prefetched_bytes() == 0


def test_an_abandoned_stream_returns_its_memory(large_images: str) -> None:
    batches = opened(large_images, 100 * MB).stream(batch_size=1, prefetch=6).epoch(0)
    next(batches)
    batches.close()
    assert prefetched_bytes() == 0


def test_one_stream_does_not_block_another(large_images: str) -> None:
    """The batches that the first stream has prefetched fill the bound, and nothing takes them."""
    dataset = opened(large_images, 12 * MB)
    first = dataset.stream(batch_size=2, prefetch=6).epoch(0)
    next(first)
    assert sum(len(batch["id"]) for batch in dataset.stream(batch_size=1, prefetch=6)) == 8
    assert sum(len(batch["id"]) for batch in first) == 6


def test_an_image_that_is_too_large_can_be_substituted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("warpdata.formats.media.image.MAX_IMAGE_PIXELS", 2_000)
    store = publish(tmp_path, {"0": png(10, 10), "1": png(100, 100), "2": png(10, 10)}, "image")
    with pytest.raises(LimitExceededError):
        list(opened(store, MB).stream(batch_size=3))
    stream = opened(store, MB).stream(batch_size=3, on_error="substitute")
    assert [batch["id"].tolist() for batch in stream] == [[0, 2, 2]]
    assert stream.telemetry.stats.substituted == 1


def test_a_member_that_expands_is_refused_before_it_is_decompressed(zeros: str) -> None:
    dataset = opened(zeros, 10 * MB)
    with pytest.raises(LimitExceededError, match=r"'large'(.|\n)*10,000,000(.|\n)*WARP_MEDIA_MEMORY_GB"):
        list(dataset.stream(batch_size=1, filter="media = 'large'"))
    with pytest.raises(LimitExceededError, match=r"'large'(.|\n)*10,000,000(.|\n)*open\(\)"):
        dataset.artifact().read("large")
    with pytest.raises(LimitExceededError, match=r"'\d\d'(.|\n)*10,000,000"):
        dataset.artifact().read_many([f"{n:02d}" for n in range(20)])
    with dataset.artifact().open("large") as file:
        assert file.read(100) == bytes(100)
    assert len(opened(zeros, 13 * MB).artifact().read("large")) == 12 * MB


def test_compressed_members_are_prefetched_as_stored(zeros: str) -> None:
    """A stream of one row at a time must not hold a whole window decompressed: that was 16.5 GB of 337 kB."""
    root = Path(zeros.removeprefix("file://"))
    with serving(root) as server:
        script = textwrap.dedent(
            f"""
            import resource, sys
            from dataclasses import replace
            import warpdata as wd
            dataset = wd.dataset("a/m", store={server.url!r}, mode="remote")
            def peak():
                return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
            list(dataset.stream(batch_size=1, filter="id < 2"))
            count, before = 0, peak()
            for batch in dataset.stream(batch_size=1, filter="media <> 'large'", prefetch=1):
                assert batch["media"] == [bytes(1_000_000)]
                count += 1
            print(count, peak() - before)
            """
        )
        ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    count, growth = map(int, ran.stdout.split())
    assert count == 100
    assert growth < 40 * MB


def test_a_window_is_fetched_ahead_up_to_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Members above the average size must not be held all at once. The rest is read when its batch is made."""
    monkeypatch.setattr("warpdata.kinds.artifacts.member_fetch._MAX_AHEAD_BYTES", 3 * MB)
    publish(tmp_path, {str(n): bytes([n]) * MB for n in range(9)}, "file")
    with serving(tmp_path) as server:
        settings = Settings(server.url, tmp_path / "cache")
        dataset = wd.dataset("a/m", mode="remote", settings=settings)
        batches = dataset.stream(batch_size=1, collate="dict", prefetch=0).epoch(0)
        first = next(batches)
        assert server.sent_bytes < 6 * MB
        contents = [content for batch in [first, *batches] for content in batch["media"]]
    assert contents == [bytes([n]) * MB for n in range(9)]


def test_a_batch_keeps_its_bound_and_the_account_its_balance() -> None:
    ahead = BatchMemory(6400, is_ahead=True)
    ahead.begin("a", 3000)
    ahead.reserve(900)
    assert 3900 <= prefetched_bytes() < 4000
    ahead.end(10)
    ahead.begin("b", 3000)
    assert (ahead.used_bytes, prefetched_bytes()) == (3010, 3900)
    other = BatchMemory(6400, is_ahead=True)
    with pytest.raises(BatchDeferred):
        other.begin("c", 2600)
    head = other.for_consumer()
    head.begin("d", 6400)
    with pytest.raises(LimitExceededError, match="'d' needs 6,401 bytes"):
        head.reserve(1)
    for memory in (ahead, other, head):
        memory.release()
    assert prefetched_bytes() == 0


def test_arrays_are_stacked_without_a_second_copy_of_all() -> None:
    from warpdata.streaming.collate import stack_arrays

    values: list[Any] = [np.full((3, 2), n) for n in range(5)]
    stacked = stack_arrays(values)
    assert isinstance(stacked, np.ndarray)
    assert stacked[:, 0, 0].tolist() == [0, 1, 2, 3, 4]
    assert not values, "each array is freed when it has been copied"
