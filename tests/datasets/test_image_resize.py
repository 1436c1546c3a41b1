"""If this fails, `resize=` trains on distorted, misplaced or missing images, or workers change what is trained on."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import warpdata as wd
from warpdata.errors import BadInputError, LimitExceededError, MediaDecodeError
from warpdata.formats.media import image_to_rgb
from warpdata.settings import load_settings
from warpdata.streaming import torch as torch_loading
from warpdata.streaming.media_memory import prefetched_bytes

images = pytest.importorskip("PIL.Image", reason="the extra image is not installed")
torch = pytest.importorskip("torch", reason="the extra torch is not installed")

COUNT = 24


def encode(number: int) -> bytes:
    """Return images of several sizes, formats and colour modes."""
    height, width = 30 + 7 * (number % 5), 40 + 3 * (number % 7)
    pixels = np.random.default_rng(number).integers(0, 256, (height, width, 3), dtype=np.uint8)
    image, out = images.fromarray(pixels), io.BytesIO()
    mode = ("RGB", "L", "RGBA", "P")[number % 4]
    image.convert(mode).save(out, "JPEG" if mode in ("RGB", "L") else "PNG")
    return out.getvalue()


FILES = {f"{number:02d}": encode(number) for number in range(COUNT)}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    root = tmp_path_factory.mktemp("resize").as_uri()
    names = list(FILES)
    rows = pa.table({"id": range(COUNT), "front": names, "back": [None, *names[:-1]], "note": names})
    builder = wd.DatasetBuilder("a/r", root).add_table("main", rows).add_artifact("raw", FILES)
    builder.bind("main", "front", "raw", "image").bind("main", "back", "raw", "image").bind("main", "note", "raw")
    builder.publish()
    return root


def opened(store: str, **settings: Any) -> wd.Dataset:
    return wd.dataset("a/r", store=store, settings=replace(load_settings(), **settings))


def test_batches_of_mixed_images_stack(store: str) -> None:
    for collate, exact in (("numpy", True), ("torch", False)):
        stream = opened(store).stream(columns=["id", "front"], batch_size=10, resize=(20, 26), collate=collate)  # type: ignore[arg-type]
        for batch in stream.epoch(0):
            pixels = np.asarray(batch["front"])
            assert pixels.shape == (len(batch["id"]), 20, 26, 3)
            assert pixels.dtype == np.uint8
            for number, found in zip(batch["id"].tolist(), pixels, strict=True):
                wanted = image_to_rgb(FILES[f"{number:02d}"], "x", (20, 26)).astype(int)
                assert np.abs(found - wanted).max() <= (0 if exact else 1)


def test_a_size_applies_to_all_image_columns_or_to_the_named_ones(store: str) -> None:
    dataset = opened(store)
    batch = next(iter(dataset.stream(columns=["front", "back", "note"], batch_size=4, resize=(9, 8)).epoch(0)))
    assert batch["front"].shape == (4, 9, 8, 3)
    assert batch["back"][0] is None
    assert [image.shape for image in batch["back"][1:]] == [(9, 8, 3)] * 3
    assert isinstance(batch["note"][0], bytes)
    named = next(iter(dataset.stream(columns=["front", "back"], batch_size=4, resize={"back": 12}).epoch(0)))
    assert [image.shape[:2] for image in named["back"][1:]] == [
        (12, 12 * max(shape) // min(shape)) if shape[0] <= shape[1] else (12 * max(shape) // min(shape), 12)
        for shape in (np.asarray(image).shape[:2] for image in named["front"][:3])
    ]
    transformed = dataset.stream(
        columns=["front"], batch_size=4, resize=(6, 6), transform=lambda sample: {"mean": sample["front"].mean()}
    )
    assert next(iter(transformed.epoch(0)))["mean"].shape == (4,)


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"resize": (0, 5)}, "not a size"),
        ({"resize": {"front": "small"}}, "not a size"),
        ({"resize": {"side": (4, 4)}}, "'side', which is not an image column"),
        ({"resize": {"note": (4, 4)}}, "'note', which is not an image column"),
        ({"resize": (4, 4), "columns": ["id", "note"]}, "no column to apply to"),
        ({"resize": {"back": (4, 4)}, "columns": ["front"]}, "'back', which is not an image column"),
        ({"resize": (4, 4), "decode": False}, "returns references"),
        ({"resize": (4, 4), "collate": "arrow"}, "returns references"),
        ({"resize": "224"}, "resize"),
    ],
)
def test_wrong_sizes_are_refused_before_anything_is_read(store: str, keywords: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInputError, match=message):
        opened(store).stream(**keywords)


def test_references_resize_like_streams(store: str) -> None:
    ref = opened(store).table().head(1)["front"][0].as_py()
    assert ref.as_numpy(resize=(5, 6)).shape == (5, 6, 3)
    assert np.array_equal(ref.as_numpy(resize=20), image_to_rgb(FILES["00"], "x", 20))
    with pytest.raises(BadInputError, match="not a size"):
        ref.as_numpy(resize=(5, 0))


@pytest.mark.parametrize("resize", [(16, 16), 20])
def test_workers_return_the_same_batches_and_resume(store: str, resize: Any) -> None:
    def loader(workers: int) -> Any:
        return opened(store).to_torch(
            4, columns=["id", "front", "back"], shuffle=True, seed=3, resize=resize, num_workers=workers
        )

    def listed(batches: Any) -> list[Any]:
        """Copy, because a worker's memory is shared."""
        return [{name: [_listed(value) for value in values] for name, values in batch.items()} for batch in batches]

    whole = listed(loader(0).epoch(0))
    running = loader(2)
    batches = running.epoch(0)
    before = listed(next(batches) for _ in range(3))
    token = json.loads(json.dumps(running.state_dict()))
    del batches
    resumed = loader(2)
    resumed.load_state_dict(token)
    assert before + listed(resumed) == whole


def _listed(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else value


def test_lists_of_arrays_travel_through_one_block_of_memory() -> None:
    from multiprocessing.reduction import ForkingPickler

    rng = np.random.default_rng(0)
    arrays = [rng.integers(0, 9, shape).astype(dtype) for shape, dtype in (((3, 5), "u1"), ((0, 2), "f4"), ((), "i8"))]
    values = [*arrays, None, rng.random((400, 300))]
    sent = torch_loading.share_arrays(values)
    pickled = bytes(ForkingPickler.dumps(sent))
    assert len(pickled) < 2000, "the pixels are in the pickle"
    restored = ForkingPickler.loads(pickled)
    assert type(restored) is list
    for left, right in zip(values, restored, strict=True):
        assert (left is None) == (right is None)
        if left is not None:
            assert left.dtype == right.dtype
            assert np.array_equal(left, right)
            assert right.flags.writeable
    for other in ([1, 2], ["a"], [np.array([object()])], [np.zeros(2), "a"], np.zeros(3), []):
        assert torch_loading.share_arrays(other) is other


def test_the_memory_of_a_batch_counts_what_resize_leaves(tmp_path: Path) -> None:
    out = io.BytesIO()
    images.new("RGB", (1200, 1200)).save(out, "JPEG")
    files = {f"{number}": out.getvalue() for number in range(8)}
    rows = pa.table({"front": list(files)})
    builder = wd.DatasetBuilder("a/r", tmp_path.as_uri()).add_table("main", rows).add_artifact("raw", files)
    builder.bind("main", "front", "raw", "image").publish()
    dataset = opened(tmp_path.as_uri(), media_memory_bytes=20_000_000)
    with pytest.raises(LimitExceededError, match="20,000,000"):
        next(iter(dataset.stream(batch_size=8).epoch(0)))
    small = next(iter(dataset.stream(batch_size=8, resize=(100, 100)).epoch(0)))
    assert small["front"].shape == (8, 100, 100, 3)
    with pytest.raises(LimitExceededError, match="2,000,000"):
        next(iter(opened(tmp_path.as_uri(), media_memory_bytes=2_000_000).stream(batch_size=8, resize=500).epoch(0)))
    assert prefetched_bytes() == 0


def test_a_damaged_image_is_the_same_error_with_a_size(tmp_path: Path) -> None:
    rows = pa.table({"front": ["good", "cut"]})
    files = {"good": FILES["00"], "cut": FILES["00"][:-200]}
    builder = wd.DatasetBuilder("a/r", tmp_path.as_uri()).add_table("main", rows).add_artifact("raw", files)
    builder.bind("main", "front", "raw", "image").publish()
    for workers in (0, 1):
        with pytest.raises(MediaDecodeError, match="cut"):
            list(opened(tmp_path.as_uri()).to_torch(2, resize=(8, 8), num_workers=workers).epoch(0))
    stream = opened(tmp_path.as_uri()).stream(batch_size=2, resize=(8, 8), on_error="substitute")
    assert [len(batch["front"]) for batch in stream.epoch(0)] == [2]
    assert stream.telemetry.stats.substituted == 1
