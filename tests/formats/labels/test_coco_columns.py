"""If this fails, a large COCO document is read or written otherwise than one annotation at a time would be."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import warpdata as wd
from tests.formats.labels.scenes import labeled_images
from tests.formats.labels.test_round_trip import check_round_trip
from warpdata.errors import CorruptError
from warpdata.formats.labels import (
    Annotation,
    Conservation,
    LabelBlock,
    LabeledImage,
    LabelOptions,
    LabelSet,
    MemoryFiles,
    area_of,
    blocks_of,
    coco_document,
    geometry_columns,
    label_format,
)
from warpdata.formats.labels.coco_reader import coco_annotation
from warpdata.formats.labels.point_arrays import point_bounds, polygon_areas

SQUARE = [0, 0, 4, 0, 4, 4, 0, 4]
_number = st.one_of(
    st.integers(-5, 700),
    st.floats(-100, 700).map(lambda x: round(x, 2)),
    st.floats(allow_nan=False, allow_infinity=False, width=32),
    st.sampled_from([2**53, 2**53 + 1, 10**400, -0.0, 1e300, 1e-300]),
)
_side = st.integers(0, 500) | st.floats(0, 500).map(lambda x: round(x, 2)) | _number
_box = st.lists(_side, min_size=4, max_size=4) | st.lists(_number, max_size=5)
_ring = st.lists(_number, min_size=6, max_size=10) | st.just(SQUARE)
_runs = st.sampled_from([[0, 12], [3, 4, 5], [12], [1, 1, 1, 1, 8], [5, 5], [True, 11], [2.0, 10], "05b", "\x7f", "0<"])
_segmentation: st.SearchStrategy[Any] = st.one_of(
    st.just([]),
    st.none(),
    st.lists(_ring, min_size=1, max_size=3),
    _ring,
    st.fixed_dictionaries({"size": st.just([3, 4]), "counts": _runs}),
)
_optional: dict[str, st.SearchStrategy[Any]] = {
    "id": st.integers() | st.text(max_size=2) | st.none(),
    "bbox": _box,
    "segmentation": _segmentation,
    "area": _number | st.sampled_from([16, 16.0, 12.0, 4, None, "9"]),
    "iscrowd": st.sampled_from([0, 1, 2, None, True, 2**60]),
    "keypoints": st.sampled_from([[], [1, 2, 2], [1, 2], None]),
    "num_keypoints": st.sampled_from([0, 1, None]),
    "attributes": st.sampled_from([{}, {"a": 1}, {"rotation": 0.0}, {"area": 16}]),
    "score": st.floats(0, 1),
    "caption": st.just("a cat"),
}
_objects = st.lists(
    st.fixed_dictionaries(
        {"image_id": st.sampled_from([1, "b", ""]), "category_id": st.sampled_from([1, 2, "c"])}, optional=_optional
    ),
    max_size=8,
)


def document(objects: list[dict[str, Any]], images: tuple[Any, ...] = (1, "b", "")) -> dict[str, Any]:
    return {
        "images": [{"id": key, "file_name": f"{number}.png"} for number, key in enumerate(images)],
        "annotations": objects,
        "categories": [{"id": key, "name": f"class {key}"} for key in (1, 2, "c")],
    }


def read(objects: list[dict[str, Any]]) -> list[LabelBlock]:
    files = MemoryFiles({"a.json": json.dumps(document(objects)).encode()})
    account = Conservation("coco", "import")
    blocks = list(blocks_of(label_format("coco").read(files, account, LabelOptions()).images))
    for block in blocks:
        account.give_block(block)
    account.report()
    return blocks


@given(_objects)
@settings(max_examples=150)
@example([{"image_id": 1, "category_id": 1, "bbox": [1, 2, 3, 4], "area": 12}])
@example([{"image_id": "", "category_id": 2, "segmentation": [SQUARE], "area": 16, "bbox": [0, 0, 4, 4]}])
@example([{"image_id": "b", "category_id": "c", "segmentation": [SQUARE, SQUARE], "area": 15, "bbox": [1, 2, 3, 4.0]}])
@example([{"image_id": 1, "category_id": 1, "segmentation": {"size": [3, 4], "counts": [3, 4, 5]}, "iscrowd": 1}])
def test_columns_are_those_of_each_annotation(objects: list[dict[str, Any]]) -> None:
    plain = json.loads(json.dumps(objects))
    expected: dict[Any, list[str]] = {1: [], "b": [], "": []}
    try:
        for one in plain:
            made = coco_annotation(one, f"class {one['category_id']}", "here")
            expected[one["image_id"]].append(repr(geometry_columns(made)))
    except CorruptError:
        with pytest.raises(CorruptError):
            read(objects)
        return
    (block,) = read(objects)
    rows = [repr(row) for row in block.rows.to_pylist()]
    assert rows == [text for listed in expected.values() for text in listed]
    assert block.counts == [len(listed) for listed in expected.values()]


def test_almost_all_annotations_are_never_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing but an unusual annotation is parsed by itself."""
    parsed: list[Any] = []

    def spy(one: Any, *rest: Any) -> Any:
        parsed.append(one)
        return coco_annotation(one, *rest)

    monkeypatch.setattr("warpdata.formats.labels.coco_reader.coco_annotation", spy)
    about = {"image_id": 1, "category_id": 1, "id": 7}
    usual = [
        {**about, "bbox": [1.5, 2, 3, 4], "area": 12.0, "iscrowd": 0, "segmentation": []},
        {**about, "bbox": [1.5, 2, 3, 4], "area": 11.5, "iscrowd": 0, "segmentation": [SQUARE]},
        {**about, "bbox": [0, 0, 3, 4], "area": 4, "iscrowd": 1, "segmentation": {"size": [3, 4], "counts": [3, 4, 5]}},
    ]
    (block,) = read([*usual, {**about, "bbox": [1, 2, 3, 4], "score": 0.5}])
    assert block.rows["kind"].to_pylist() == ["box", "polygon", "mask", "box"]
    assert [one["score"] for one in parsed] == [0.5]


class Blocks:
    """Images as blocks, as a version of a collection has them."""

    def __init__(self, images: list[LabeledImage]) -> None:
        self._images = images

    def blocks(self, image_count: int = 2) -> Iterator[LabelBlock]:
        return blocks_of(self._images, 2)

    def __iter__(self) -> Iterator[LabeledImage]:
        return iter(self._images)


@given(labeled_images(max_annotations=6))
@settings(max_examples=60)
def test_blocks_are_written_as_their_objects(images: list[LabeledImage]) -> None:
    whole = LabelSet.of(images)
    documents = []
    for held in (images, Blocks(images)):
        account = Conservation("coco", "export")
        data = b"".join(coco_document(LabelSet(whole.classes, held, whole.splits), account))
        documents.append((json.dumps(json.loads(data), sort_keys=True), account.report()))
    assert documents[0] == documents[1]


def test_members_of_coco_return_to_their_places() -> None:
    drawn: list[Annotation] = [
        wd.Polygon("cat", [(0, 0), (4, 0), (4, 4)], attributes={"area": 9, "bbox": [0, 0, 4, 5], "iscrowd": 1}),
        wd.Polygon("cat", [(0, 0), (4, 0), (4, 4)], attributes={"area": 8.0}),
        wd.Box("cat", 0, 0, 2, 2, attributes={"score": 1, "bbox": [0, 0, 1, 1]}),
        wd.Box("cat", 0, 0, 2, 2, attributes={"score": 0.5}),
    ]
    images = [LabeledImage("a.png", drawn, 5, 5)]
    data = b"".join(coco_document(LabelSet(LabelSet.of(images).classes, Blocks(images))))
    objects = json.loads(data)["annotations"]
    assert (objects[0]["area"], objects[0]["bbox"], objects[0]["iscrowd"]) == (9, [0, 0, 4, 5], 1)
    assert [one.get("attributes") for one in objects] == [None, {"area": 8.0}, {"bbox": [0, 0, 1, 1]}, None]
    assert objects[3]["score"] == 0.5


@given(labeled_images())
@settings(max_examples=15)
def test_what_is_written_as_blocks_is_read_or_listed(images: list[LabeledImage]) -> None:
    check_round_trip("coco", None, images, Blocks(images))


@given(st.lists(st.lists(st.tuples(*[st.floats(-1e9, 1e9)] * 2), min_size=3, max_size=9), min_size=1, max_size=5))
def test_arrays_measure_as_each_outline_is_measured(rings: list[list[tuple[float, float]]]) -> None:
    points = np.array([point for ring in rings for point in ring])
    starts = np.cumsum([0, *map(len, rings)])
    singles = [area_of(wd.Polygon("a", ring)) for ring in rings]
    assert polygon_areas(points, starts, np.arange(len(rings) + 1)).tolist() == singles
    assert polygon_areas(points, starts, np.array([0, len(rings)])).tolist() == [area_of(wd.Polygon("a", rings))]
    stated = np.array(singles)
    assert polygon_areas(points, starts, np.arange(len(rings) + 1), stated).tolist() == singles
    far = polygon_areas(points, starts, np.arange(len(rings) + 1), stated + 1e15)
    assert np.isnan(far).all()
    assert point_bounds(points, starts).shape == (len(rings), 4)
