"""If this fails, a label that was drawn is stored as another one, or a wrong one is accepted."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import warpdata as wd
from tests.collections.scenes import png
from tests.faults.scenes import link, memory
from warpdata.errors import BadInputError
from warpdata.formats.labels import Annotation, annotation_of, geometry_columns
from warpdata.formats.labels.masks import decode_counts

numbers = st.floats(allow_nan=False, allow_infinity=False)
sizes = st.floats(0, 1e300)
names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20)
attributes = st.dictionaries(st.text(max_size=5), st.one_of(st.none(), st.booleans(), st.integers(-9, 9), numbers))
points = st.tuples(numbers, numbers)


@st.composite
def masks(draw: st.DrawFn) -> wd.Mask:
    shape = draw(st.tuples(st.integers(1, 7), st.integers(1, 7)))
    cells = draw(st.lists(st.booleans(), min_size=shape[0] * shape[1], max_size=shape[0] * shape[1]))
    return wd.Mask(draw(names), np.array(cells).reshape(shape), attributes=draw(attributes))


drawn_annotations: st.SearchStrategy[Annotation] = st.one_of(
    st.builds(wd.Box, names, numbers, numbers, sizes, sizes, st.none() | numbers, attributes=attributes),
    st.builds(
        wd.Polygon,
        names,
        st.lists(st.lists(points, min_size=3, max_size=5), min_size=1, max_size=3),
        attributes=attributes,
    ),
    st.builds(
        wd.Keypoints,
        names,
        st.lists(st.tuples(numbers, numbers, st.sampled_from([0, 1, 2])), min_size=1, max_size=5),
        attributes=attributes,
    ),
    st.builds(wd.Label, names, attributes=attributes),
    masks(),
)


@given(drawn_annotations)
def test_a_row_gives_the_same_annotation(annotation: Annotation) -> None:
    assert annotation_of(geometry_columns(annotation)) == annotation


@given(masks())
def test_a_mask_keeps_every_pixel(mask: wd.Mask) -> None:
    again = wd.Mask(mask.class_name, mask.to_array())
    assert again.rle == mask.rle
    assert sum(mask.counts[1::2]) == int(mask.to_array().sum())


def coco_text(counts: list[int]) -> str:
    """Compress counts as the C code of COCO does: an independent writer of what `decode_counts` reads."""
    text = ""
    for index, count in enumerate(counts):
        value = count - counts[index - 2] if index > 2 else count
        more = True
        while more:
            bits = value & 0x1F
            value >>= 5
            more = value != -1 if bits & 0x10 else value != 0
            text += chr((bits | 0x20 if more else bits) + 48)
    return text


@given(st.lists(st.integers(0, 2**31), max_size=30))
def test_compressed_counts_are_read(counts: list[int]) -> None:
    assert decode_counts(coco_text(counts)) == tuple(counts)


@pytest.mark.parametrize(
    "make",
    [
        lambda: wd.Box("", 0, 0, 1, 1),
        lambda: wd.Box("cat", 0, 0, -1, 1),
        lambda: wd.Box("cat", float("nan"), 0, 1, 1),
        lambda: wd.Box("cat", "0", 0, 1, 1),  # type: ignore[arg-type]
        lambda: wd.Polygon("cat", [(0, 0), (1, 1)]),
        lambda: wd.Polygon("cat", []),
        lambda: wd.Mask("cat", {"size": [2, 2], "counts": [1, 2]}),
        lambda: wd.Mask("cat", {"size": [0, 2], "counts": []}),
        lambda: wd.Mask("cat", {"size": [100_000, 100_000], "counts": [10**10]}),
        lambda: wd.Mask("cat", {"size": [2, 2], "counts": "~~~"}),
        lambda: wd.Mask("cat", [1, 0]),
        lambda: wd.Keypoints("cat", []),
        lambda: wd.Keypoints("cat", [(1, 2, 3)]),
        lambda: wd.Label("cat", attributes={"x": float("inf")}),
        lambda: wd.Label("c" * 300),
    ],
)
def test_impossible_annotations_are_refused(make: Any) -> None:
    with pytest.raises(BadInputError):
        make()


def test_annotations_come_back_from_a_store() -> None:
    drawn: list[Annotation] = [
        wd.Box("cat", 0.1, 2**-30, 1e9, 3, rotation=-12.5, attributes={"occluded": True, "n": 0.1}),
        wd.Polygon("cat", [[(0, 0), (9, 0), (9, 9)], [(1, 1), (2, 1), (2, 2)]]),
        wd.Mask("sky", np.eye(3)),
        wd.Keypoints("cat", [(1, 2), (3, 4, 0)]),
        wd.Label("indoor"),
    ]
    collection = wd.collection("a/pets", store=link(memory("annotations")))
    collection.add("1.png", png(1), annotations=drawn)
    assert collection.annotations("1.png") == drawn
    collection.annotate("1.png", drawn[:1])
    assert collection.annotations("1.png") == [*drawn, drawn[0]]
    collection.annotate("1.png", drawn[1:2], replace=True)
    assert collection.annotations("1.png") == drawn[1:2]
    document = json.loads(json.dumps(collection.annotations_document()))
    assert document["annotations"][0]["image_id"] == 0
