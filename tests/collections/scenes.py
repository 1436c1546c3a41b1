"""Collections for the tests: small images, and a collection with two versions and a training job."""

from __future__ import annotations

import struct
from pathlib import Path

import warpdata as wd
from warpdata.collections import Collection
from warpdata.session import Session
from warpdata.storage import Writer

__all__ = ["BIRD", "CAT", "DOG", "jpeg", "objects", "png", "two_versions"]


def png(number: int, width: int = 8, height: int = 6) -> bytes:
    """Return bytes with the header of a PNG image, different for each number."""
    head = b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + b"IHDR" + struct.pack(">II", width, height)
    return head + b"pixels of %d" % number


CAT, DOG, BIRD = (png(number) for number in range(3))


def two_versions(session: Session, *, packed: bool = False) -> Collection:
    """Make `v1` with a cat and a dog, a training job on it, and `v2` with a bird. HEAD is `v2`."""
    collection = wd.create_collection("a/pets", packed=packed, store=session)
    with collection.changes("first") as change:
        change.add("cat.png", CAT, annotations=[wd.Box("cat", 1, 2, 3, 4), wd.Label("cat")], split="train")
        change.add("dog.png", DOG, annotations=[wd.Label("dog")], split="train")
    collection.create_version("v1")
    collection.start_training("detection", "yolo", job_id="7")
    collection.add("bird.png", BIRD, annotations=[wd.Label("bird")], split="val")
    collection.create_version("v2")
    return collection


def objects(store: Writer) -> dict[str, bytes]:
    """Return every object of a store."""
    return {info.key: store.read(info.key).data for info in store.list_objects("")}


def jpeg(path: Path, number: int) -> Path:
    """Write an image file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(png(number))
    return path
