"""Random labelled images for the tests of label formats."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

import warpdata as wd
from warpdata.formats.labels import (
    Annotation,
    LabeledImage,
    LabelFile,
    OutputFile,
)

__all__ = ["drawn_annotations", "image_bytes", "labeled_images", "names", "written"]

names = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), min_size=1, max_size=12).filter(
    lambda name: name.strip() == name
)
_attribute_names = st.sampled_from(["score", "iscrowd", "area", "bbox", "rotation", "occluded", "id", "é", "note"])
_values = st.one_of(
    st.none(), st.booleans(), st.integers(-9, 9), st.floats(-1e6, 1e6), st.text("ab", max_size=3), st.just([1, 2.5])
)
_attributes = st.dictionaries(_attribute_names, _values, max_size=3)
_numbers = st.one_of(
    st.integers(-50, 2000).map(float),
    st.floats(-100, 5000, allow_subnormal=False).map(lambda x: round(x, 6)),
    st.floats(0, 4000).filter(lambda x: x == 0 or x > 1e-6),
)
_sides = st.one_of(st.integers(0, 2000).map(float), st.floats(0, 4000).filter(lambda x: x == 0 or x > 1e-6))
_points = st.tuples(_numbers, _numbers)
_visible = st.tuples(_numbers, _numbers, st.sampled_from([0, 1, 2]))


@st.composite
def drawn_annotations(draw: st.DrawFn, size: tuple[int, int], classes: st.SearchStrategy[str]) -> Annotation:
    """Draw an annotation of any kind, for an image of this width and height."""
    name, extra = draw(classes), draw(_attributes)
    kind = draw(st.integers(0, 5))
    if kind == 0:
        rotation = draw(st.none() | st.floats(-360, 360) | st.sampled_from([0.0, 90.0]))
        x, y, width, height = (draw(one) for one in (_numbers, _numbers, _sides, _sides))
        return wd.Box(name, x, y, width, height, rotation, attributes=extra)
    if kind == 1:
        rings = draw(st.lists(st.lists(_points, min_size=3, max_size=6), min_size=1, max_size=3))
        return wd.Polygon(name, rings, attributes=extra)
    if kind == 2:
        cells = draw(st.binary(min_size=size[0] * size[1], max_size=size[0] * size[1]))
        return wd.Mask(name, (np.frombuffer(cells, np.uint8) % 3 == 0).reshape(size[1], size[0]), attributes=extra)
    if kind == 3:
        return wd.Keypoints(name, draw(st.lists(_visible, min_size=1, max_size=4)), attributes=extra)
    if kind == 4:
        lines = draw(st.lists(st.lists(_points, min_size=2, max_size=4), min_size=1, max_size=2))
        return wd.Polyline(name, lines, attributes=extra)
    return wd.Label(name, attributes=extra)


_paths = st.lists(
    st.sampled_from(["a.jpg", "b.jpg", "a.png", "cats/1.jpg", "cats/2.PNG", "train/a.jpg", "no suffix", "ä ö/ü.jpg"]),
    min_size=1,
    max_size=4,
    unique=True,
)


@st.composite
def labeled_images(draw: st.DrawFn, max_annotations: int = 4) -> list[LabeledImage]:
    """Draw images with annotations, splits and tags."""
    images: list[LabeledImage] = []
    splits = st.none() | st.sampled_from(["train", "val", "my split"])
    classes = st.sampled_from(draw(st.lists(names, min_size=1, max_size=3, unique=True)))
    for path in draw(_paths):
        size = draw(st.sampled_from([(1, 1), (7, 5), (3, 8), (6, 6)]))
        drawn = draw(st.lists(drawn_annotations(size, classes), max_size=max_annotations))
        tags = tuple(draw(st.lists(names, max_size=2, unique=True)))
        images.append(LabeledImage(path, drawn, *size, draw(splits), tags))
    return images


def image_bytes(image: LabeledImage) -> bytes:
    """Return the header of a PNG image of this size."""
    from struct import pack

    assert image.size is not None
    return b"\x89PNG\r\n\x1a\n" + pack(">I", 13) + b"IHDR" + pack(">II", *image.size) + image.path.encode()


def written(outputs: list[OutputFile], images: list[LabeledImage]) -> dict[str, bytes]:
    """Return the bytes of all files that a writer made, with images in their places."""
    by_path = {image.path: image for image in images}
    files: dict[str, bytes] = {}
    for output in outputs:
        data = output.read() if isinstance(output, LabelFile) else image_bytes(by_path[output.path])
        assert output.name not in files
        files[output.name] = data
    return files
