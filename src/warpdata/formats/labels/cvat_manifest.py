"""`manifest.jsonl` of CVAT: names and sizes of images, so that CVAT need not open them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from warpdata.formats.labels.model import LabeledImage

__all__ = ["cvat_manifest"]

_encode = msgspec.json.encode


def cvat_manifest(images: Iterable[LabeledImage]) -> Iterator[bytes]:
    """Yield the lines of a manifest. Images whose size is not known are left out: CVAT cannot use them."""
    yield b'{"version":"1.1"}\n'
    yield b'{"type":"images"}\n'
    for image in images:
        if image.size is None:
            continue
        stem, dot, suffix = image.path.rpartition(".")
        is_suffix = bool(dot) and "/" not in suffix and stem and not stem.endswith("/")
        name, extension = (stem, f".{suffix}") if is_suffix else (image.path, "")
        line = {"name": name, "extension": extension, "width": image.width, "height": image.height}
        yield _encode(line | {"meta": {"related_images": []}}) + b"\n"
