"""Import and export of COCO boxes, beside the time in which pycocotools loads the file.

The images are in the collection already, so that neither side reads image files. The import parses the document,
checks it, and commits rows; pycocotools parses the document and indexes it.
"""

from __future__ import annotations

import hashlib
import json
import random
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

import warpdata as wd
from benchmarks.harness.data import make_once, scratch
from benchmarks.harness.machine import is_installed, skip_lines
from benchmarks.harness.timing import RunOptions, ScenarioUnavailableError, interleave
from benchmarks.results import Measurement, Outcome
from warpdata import Collection, Settings

__all__ = ["run"]

_DATASET = "bench/labels"
_HEAD = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + (640).to_bytes(4, "big") + (480).to_bytes(4, "big")


def run(options: RunOptions) -> Outcome:
    if not is_installed("pycocotools"):
        raise ScenarioUnavailableError(skip_lines(["pycocotools"])[0])
    images, boxes = (120, 900) if options.is_smoke else (118_000, 860_000)
    document = _document(images, boxes)
    opened: list[Collection] = []
    arms = {"ours": lambda: _import(images, document, opened), "pycocotools": lambda: _load(document)}
    timings = interleave(arms, options.rounds, clock=time.process_time)
    return Outcome(
        title=f"{boxes:,} boxes of {images:,} images, as COCO",
        method="CPU time of the import. A local store with the images in packed shards, which neither side reads.",
        measurements=[
            timings.compare("import, against loading alone", "ours", "pycocotools", promise="coco-import"),
            Measurement(
                case="export of all labels",
                unit="s",
                ours=_export_s(opened[-1]),
                quantity="time",
                promise="coco-export",
            ),
        ],
    )


def _document(images: int, boxes: int) -> Path:
    def make(directory: Path) -> None:
        draw = random.Random(1)
        listed = [{"id": n, "file_name": f"{n:012d}.png", "width": 640, "height": 480} for n in range(images)]
        objects: list[dict[str, Any]] = []
        for number in range(boxes):
            box = [round(draw.uniform(0, 300), 2) for _ in range(4)]
            about = {"id": number, "image_id": draw.randrange(images), "category_id": draw.randint(1, 90)}
            objects.append({**about, "bbox": box, "area": box[2] * box[3], "iscrowd": 0, "segmentation": []})
        classes = [{"id": number, "name": f"class {number}"} for number in range(1, 91)]
        body = {"images": listed, "annotations": objects, "categories": classes}
        (directory / "instances_train.json").write_text(json.dumps(body))

    return make_once(f"coco-{images}-{boxes}", make) / "instances_train.json"


def _images(count: int) -> Path:
    """Return a store with a collection of small images."""

    def make(directory: Path) -> None:
        settings = Settings(store_url=(directory / "store").as_uri(), cache_dir=scratch("labels-cache"))
        wd.create_collection(_DATASET, packed=True, settings=settings)
        files = {f"{number:012d}.png": _HEAD + str(number).encode() for number in range(count)}
        sizes = {"width": 640, "height": 480, "media_type": "image/png"}
        rows = [
            {"path": path, "hash": hashlib.sha256(data).hexdigest(), "size_bytes": len(data), **sizes}
            for path, data in files.items()
        ]
        head = wd.collection(_DATASET, settings=settings).head
        with head.edit("images") as edit:
            edit.add_files("images", files)
            edit.append("images", pa.Table.from_pylist(rows, head.table("images").raw().schema()))

    return make_once(f"labels-images-{count}", make) / "store"


def _import(images: int, document: Path, opened: list[Collection]) -> Callable[[], int]:
    work = scratch("labels-store")
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(_images(images), work)
    settings = Settings(store_url=work.as_uri(), cache_dir=scratch("labels-cache"))
    collection = wd.collection(_DATASET, settings=settings)
    opened.append(collection)
    return lambda: collection.import_labels(document, "coco", images=False).added_annotations


def _export_s(collection: Collection) -> float:
    target = scratch("labels-export")
    shutil.rmtree(target, ignore_errors=True)
    began = time.perf_counter()
    collection.export_labels(target, "coco", images=False)
    return time.perf_counter() - began


def _load(document: Path) -> Callable[[], int]:
    from pycocotools.coco import COCO

    return lambda: len(COCO(str(document)).anns)
