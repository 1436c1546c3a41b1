"""A shuffled epoch of local JPEGs, decoded and resized to 224 × 224, as batches of 64 tensors.

Peers decode and resize with Pillow: files with torch's DataLoader, WebDataset with one worker process for each core,
and bare threads. warpdata runs with Pillow for both, and with the fastest libraries installed; with threads, and with
as many workers as the peers. Where there is a GPU, nvJPEG decodes on it. The promises are judged by the one that
`num_workers="auto"` chooses.
"""

from __future__ import annotations

import io
import random
import tarfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest import mock

import warpdata as wd
from benchmarks.harness.data import make_once, scratch
from benchmarks.harness.machine import is_installed, skip_lines
from benchmarks.harness.timing import Arm, RunOptions, ScenarioUnavailableError, Timings, format_bytes, interleave
from benchmarks.results import Measurement, Outcome
from benchmarks.streams.images import ImageFiles, make_images
from warpdata.formats.media import JpegDecoder, choose_jpeg_decoder
from warpdata.primitives.parallel import usable_cores

__all__ = ["run"]

_BATCH = 64
_SIDE = 224
_DATASET = "bench/decode"
_TARS_PER_CORE = 4
_IMAGES_PER_CORE = 1_000
"""Enough on any number of cores that starting the workers does not decide."""
_PILLOW, _FASTEST, _NVJPEG = "Pillow", "fastest libraries", "nvJPEG"
_PROMISES = {_PILLOW: "decode-same", _FASTEST: "decode-fastest"}


def run(options: RunOptions) -> Outcome:
    if not is_installed("torch"):
        raise ScenarioUnavailableError("torch is not installed")
    images = make_images(128 if options.is_smoke else _IMAGES_PER_CORE * usable_cores())
    workers = usable_cores()
    dataset = _publish(images)
    peers: dict[str, Arm] = {
        "files and DataLoader": lambda: partial(_read_files, images.paths, workers),
        "bare Pillow threads": lambda: partial(_read_with_threads, images.paths, workers),
    }
    if is_installed("webdataset"):
        tars = _write_tars(images, workers * _TARS_PER_CORE)
        peers["WebDataset"] = lambda: partial(_read_tars, tars, workers)
    ours: dict[str, Arm] = {}
    for libraries in (_PILLOW, _FASTEST):
        for name, count in (("threads", 0), (f"{workers} workers", workers)):
            ours[f"{libraries}, {name}"] = _our_arm(dataset, libraries, count)
    if is_installed("torchvision") and import_module("torch").cuda.is_available():
        ours[f"{_NVJPEG}, threads"] = _our_arm(dataset, _NVJPEG, 0, image_device="cuda")
    chosen = dataset.to_torch(_BATCH, resize=(_SIDE, _SIDE), num_workers="auto")
    timings = interleave({**ours, **peers}, options.rounds)
    decoder = choose_jpeg_decoder()
    return Outcome(
        title="Images decoded and resized",
        method=f"{images.count:,} local JPEGs of 296 × 296 pixels, {format_bytes(images.size_bytes)}, to "
        f"{_SIDE} × {_SIDE}; batches of {_BATCH}, shuffled; {workers} usable cores.",
        measurements=list(_measure(timings, list(ours), list(peers), images.count, chosen.num_workers)),
        notes=[
            f"Fastest libraries: {decoder.name} {decoder.version} decodes, torch resizes.",
            f'`num_workers="auto"` chooses {chosen.num_workers or "threads"}: {chosen.num_workers_reason}.',
            "Starting the worker processes is part of the time.",
        ],
        skipped=skip_lines(["webdataset"]),
    )


def _measure(
    timings: Timings, ours: Sequence[str], peers: Sequence[str], count: int, auto_workers: int
) -> Iterator[Measurement]:
    best = min(peers, key=timings.median_s)
    for arm in ours:
        libraries, _, how = arm.partition(", ")
        is_chosen = (how == "threads") == (auto_workers == 0)
        for peer in peers:
            rates = [count / timings.median_s(each) for each in (arm, peer)]
            yield timings.compare(
                arm,
                arm,
                peer,
                unit="s",
                promise=_PROMISES.get(libraries, "") if is_chosen and peer == best else "",
                detail=f"{rates[0]:,.0f} images/s against {rates[1]:,.0f}",
            )


def _publish(images: ImageFiles) -> wd.Dataset:
    store = scratch("decode").as_uri()
    rows = {"id": list(range(images.count)), "image": [path.name for path in images.paths]}
    builder = wd.DatasetBuilder(_DATASET, store).add_table("main", rows)
    builder.add_artifact("raw", str(images.directory)).bind("main", "image", "raw", "image").publish()
    return wd.dataset(_DATASET, store=store)


def _our_arm(dataset: wd.Dataset, libraries: str, workers: int, image_device: str | None = None) -> Arm:
    def read() -> int:
        with _pillow_only() if libraries == _PILLOW else ExitStack():
            loader = dataset.to_torch(
                _BATCH,
                columns=["id", "image"],
                shuffle=True,
                seed=1,
                resize=(_SIDE, _SIDE),
                num_workers=workers,
                image_device=image_device,
            )
            count = _count(batch["image"] for batch in loader.epoch(0))
        if image_device is not None:
            import_module("torch").cuda.synchronize()
        return count

    return lambda: read


@contextmanager
def _pillow_only() -> Iterator[None]:
    """Decode and resize with Pillow here, and in workers that are forked now."""
    pillow = JpegDecoder("Pillow", "", "", True, None)
    with (
        mock.patch("warpdata.formats.media.jpeg.choose_jpeg_decoder", return_value=pillow),
        mock.patch("warpdata.streaming.collate.resample_rgb", None),
    ):
        yield


def _count(batches: Iterable[Any]) -> int:
    """Return the number of images, after a look at each batch."""
    count = 0
    for batch in batches:
        assert tuple(batch.shape[1:]) == (_SIDE, _SIDE, 3)
        count += len(batch)
    return count


def _decode(content: bytes) -> Any:
    import numpy as np
    import torch
    from PIL import Image

    image = Image.open(io.BytesIO(content)).convert("RGB").resize((_SIDE, _SIDE), Image.Resampling.BILINEAR)
    return torch.from_numpy(np.array(image))


class _Files:
    """A dataset with the samples of files, for torch's DataLoader."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = paths

    def __len__(self) -> int:
        return len(self._paths)

    def __getitem__(self, number: int) -> Any:
        return _decode(self._paths[number].read_bytes())


def _read_files(paths: Sequence[Path], workers: int) -> int:
    from torch.utils.data import DataLoader

    loader: Any = DataLoader(_Files(paths), _BATCH, shuffle=True, num_workers=workers)  # type: ignore[arg-type]
    return _count(loader)


def _read_with_threads(paths: Sequence[Path], threads: int) -> int:
    import torch

    order = random.Random(1).sample(list(paths), len(paths))
    batches = [order[start : start + _BATCH] for start in range(0, len(order), _BATCH)]

    def make(batch: Sequence[Path]) -> Any:
        return torch.stack([_decode(path.read_bytes()) for path in batch])

    with ThreadPoolExecutor(threads) as pool:
        return _count(pool.map(make, batches))


def _write_tars(images: ImageFiles, tar_count: int) -> list[str]:
    def make(directory: Path) -> None:
        for number in range(tar_count):
            with tarfile.open(directory / f"{number:04d}.tar", "w") as tar:
                for path in images.paths[number::tar_count]:
                    tar.add(path, path.name)

    directory = make_once(f"decode-tars-{images.count}-{tar_count}", make)
    return [str(path) for path in sorted(directory.iterdir())]


def _read_tars(tars: Sequence[str], workers: int) -> int:
    import webdataset
    from torch.utils.data import DataLoader

    decode: Callable[[Any], Any] = _decode_sample
    samples = webdataset.WebDataset(list(tars), shardshuffle=len(tars), seed=1).shuffle(1000).map(decode)
    loader: Any = DataLoader(samples.batched(_BATCH, partial=True), batch_size=None, num_workers=workers)
    return _count(batch[0] for batch in loader)


def _decode_sample(sample: Any) -> tuple[Any]:
    return (_decode(sample["jpg"]),)
