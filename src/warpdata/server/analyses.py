"""What follows from a version and takes long to compute: maps of vectors, places of objects, checks of labels.

A version never changes, so its analyses do not either. They are kept in memory, and those of jobs also in the store,
where every process of the service finds them. Stored analyses have row numbers and coordinates, and nothing of the
files, so that a purge has nothing to remove there.
"""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from warpdata.collections import PlacedObjects, QualityOptions, check_collection, check_quality, place_objects
from warpdata.datasets import Dataset
from warpdata.primitives.hashing import sha256_hex
from warpdata.primitives.progress import Progress, silent
from warpdata.search import Projection
from warpdata.server.service import Service

__all__ = ["Quality", "find_map", "find_quality", "keep_map", "keep_quality", "make_quality", "placed_objects"]

T = TypeVar("T")
_ROOT = "service/analyses"
_KEPT = 64
"""Stored analyses of a dataset. The oldest are removed for new ones, and can be computed again."""
INLINE_NUMBERS = 4_000_000
"""A map of at most this many numbers is computed within a request."""
INLINE_OBJECTS = 50_000
"""The labels of at most this many objects are checked within a request."""
_LOCK = threading.Lock()
_BYTES_EACH = 64


@dataclass(frozen=True, slots=True)
class Quality:
    """Findings of checks: their number, and the rows of `images` that have any.

    `leaks` has the rows and pairs of images for each check and two splits, in order.
    """

    images: int
    objects: int
    unread: int
    counts: dict[str, int]
    rows: dict[str, list[int]]
    leaks: list[tuple[str, str, str, int, list[int]]]


def placed_objects(service: Service, dataset: Dataset) -> PlacedObjects:
    """Return the places of the objects of a collection."""
    check_collection(dataset)
    return _remembered(service, ("places", dataset.version), lambda: place_objects(dataset), lambda one: one.size_bytes)


def find_map(service: Service, dataset: Dataset, table: str, column: str) -> Projection | None:
    """Return the map of a column of vectors. None for a large table until a job has computed it."""
    key = ("map", dataset.version, table, column)
    found = service.analyses.get(key)
    if found is None:
        stored = _load(service, dataset, key)
        found = None if stored is None else _decode_map(column, stored)
    if found is None and _map_numbers(dataset, table, column) <= INLINE_NUMBERS:
        return _remembered(service, key, lambda: dataset.project(table, column), _map_bytes)
    if found is not None:
        service.analyses.put(key, found, _map_bytes(found))
    return found


def keep_map(service: Service, dataset: Dataset, table: str, projection: Projection) -> None:
    """Store a map that a job computed."""
    import numpy as np

    about = {
        "dimensions": projection.dimensions,
        "sampled_rows": projection.sampled_rows,
        "explained": projection.explained,
        "clipped": projection.clipped,
    }
    out = io.BytesIO()
    header = np.frombuffer(json.dumps(about).encode(), np.uint8)
    np.savez(out, header=header, rows=projection.rows.astype(np.uint32), points=projection.points)
    key = ("map", dataset.version, table, projection.column)
    _store(service, dataset, key, out.getvalue())
    service.analyses.put(key, projection, _map_bytes(projection))


def find_quality(service: Service, dataset: Dataset, near_bits: int | None) -> Quality | None:
    """Return the checks of labels. None until a job has made them, for many objects or with images to compare."""
    check_collection(dataset)
    key = ("quality", dataset.version, str(near_bits))
    found = service.analyses.get(key)
    if found is None:
        stored = _load(service, dataset, key)
        found = None if stored is None else _decode_quality(stored)
    if found is None and near_bits is None and dataset.table("annotations").unfiltered_count <= INLINE_OBJECTS:
        return _remembered(service, key, lambda: make_quality(dataset, None), _quality_bytes)
    if found is not None:
        service.analyses.put(key, found, _quality_bytes(found))
    return found


def make_quality(dataset: Dataset, near_bits: int | None, progress: Progress = silent) -> Quality:
    """Check the labels of a version, and find the rows of the images that have findings."""
    made = check_quality(dataset, QualityOptions(near_bits=near_bits), progress=progress)
    listed = dataset.table("images").raw().select(["path", "split"]).to_arrow(allow_large=True)
    rows = {path: at for at, path in enumerate(listed["path"].to_pylist())}
    splits = [split or "" for split in listed["split"].to_pylist()]
    leaks: dict[tuple[str, str, str], tuple[int, set[int]]] = {}
    pairs = zip(*(made.findings[name].to_pylist() for name in ("check", "image", "other_image")), strict=True)
    for check, image, other in pairs:
        if other is not None:
            one, two = rows[image], rows[other]
            key = (check, *sorted((splits[one], splits[two])))
            count, found = leaks.get(key, (0, set()))
            leaks[key] = (count + 1, found | {one, two} if len(found) < 2 else _added(found, one, two))
    return Quality(
        images=made.images,
        objects=made.objects,
        unread=made.unread,
        counts=dict(made.counts),
        rows={check: sorted(rows[path] for path in made.paths(check)) for check in made.counts},
        leaks=[(*key, count, sorted(found)) for key, (count, found) in sorted(leaks.items())],
    )


def keep_quality(service: Service, dataset: Dataset, near_bits: int | None, made: Quality) -> None:
    """Store the checks that a job made."""
    about = {name: getattr(made, name) for name in Quality.__slots__}
    key = ("quality", dataset.version, str(near_bits))
    _store(service, dataset, key, json.dumps(about, separators=(",", ":")).encode())
    service.analyses.put(key, made, _quality_bytes(made))


def _added(found: set[int], one: int, two: int) -> set[int]:
    found.add(one)
    found.add(two)
    return found


def _remembered(service: Service, key: tuple[str, ...], make: Callable[[], T], size: Callable[[T], int]) -> T:
    """Return what is in memory, or make it once, however many requests ask."""
    found: Any = service.analyses.get(key)
    if found is None:
        with _LOCK:
            found = service.analyses.get(key)
            if found is None:
                found = make()
                service.analyses.put(key, found, size(found))
    return found  # type: ignore[no-any-return] # a key has one type


def _map_numbers(dataset: Dataset, table: str, column: str) -> int:
    opened = dataset.table(table)
    kind = opened.raw().select([column]).schema().field(column).type
    return opened.unfiltered_count * int(getattr(kind, "list_size", 1))


def _map_bytes(projection: Projection) -> int:
    return int(projection.rows.nbytes + projection.points.nbytes)


def _decode_map(column: str, stored: bytes) -> Projection:
    import numpy as np

    with np.load(io.BytesIO(stored), allow_pickle=False) as held:
        about = json.loads(held["header"].tobytes())
        rows, points = held["rows"].astype(np.int64), held["points"]
    one, two = about["explained"]
    return Projection(column, about["dimensions"], about["sampled_rows"], (one, two), about["clipped"], rows, points)


def _quality_bytes(made: Quality) -> int:
    return _BYTES_EACH * (sum(map(len, made.rows.values())) + sum(len(leak[4]) for leak in made.leaks) + 1)


def _decode_quality(stored: bytes) -> Quality:
    about = json.loads(stored)
    leaks = [(check, one, two, count, rows) for check, one, two, count, rows in about.pop("leaks")]
    return Quality(**about, leaks=leaks)


def _load(service: Service, dataset: Dataset, key: tuple[str, ...]) -> bytes | None:
    """Return a stored analysis. One whose checksum differs counts as absent, and is computed again."""
    try:
        found = b"".join(service.session.writer.stream(_place(dataset, key)))
    except FileNotFoundError:
        return None
    digest, _, data = found.partition(b"\n")
    if digest.decode("latin-1") != sha256_hex(data):
        return None
    return data


def _store(service: Service, dataset: Dataset, key: tuple[str, ...], data: bytes) -> None:
    writer = service.session.writer
    folder = f"{_ROOT}/{dataset.id}"
    listed = sorted(writer.list_objects(folder), key=lambda info: str(info.modified))
    writer.delete_many([info.key for info in listed[: max(len(listed) - _KEPT + 1, 0)]])
    writer.replace(_place(dataset, key), sha256_hex(data).encode() + b"\n" + data)


def _place(dataset: Dataset, key: tuple[str, ...]) -> str:
    return f"{_ROOT}/{dataset.id}/{sha256_hex(json.dumps(key).encode())}"
