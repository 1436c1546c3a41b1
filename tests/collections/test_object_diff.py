"""If this fails, a review of two versions shows changes that did not happen, or hides some that did."""

from __future__ import annotations

from collections import Counter
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import warpdata as wd
from warpdata.collections import Collection, ObjectDiff, diff_objects

_NUMBERS = count()
IMAGE = "a.jpg"


def diff(collection: Collection, older: str = "old") -> ObjectDiff:
    return diff_objects(collection.dataset(older), collection.dataset())


def labelled(tmp_path: Path, annotations: list[Any]) -> Collection:
    collection = wd.connect(str(tmp_path / f"store{next(_NUMBERS)}")).collection("acme/pets")
    collection.add(IMAGE, b"image", annotations=annotations)
    collection.create_version("old")
    return collection


def changes(found: ObjectDiff) -> list[tuple[Any, Any, Any]]:
    return sorted(
        (one.change, one.before["class_name"] if one.before else None, one.after["class_name"] if one.after else None)
        for image in found.images
        for one in image.objects
    )


def test_each_kind_of_change_is_named(tmp_path: Path) -> None:
    collection = labelled(
        tmp_path,
        [
            wd.Box("cat", 0, 0, 10, 10),
            wd.Box("dog", 100, 0, 10, 10),
            wd.Box("cow", 200, 0, 10, 10),
            wd.Box("hen", 300, 0, 10, 10),
            wd.Polyline("kerb", [(0, 0), (50, 5), (100, 0)]),
            wd.Label("day"),
        ],
    )
    collection.annotate(
        IMAGE,
        [
            wd.Box("cat", 0, 0, 10, 10),  # as before, with another id
            wd.Box("dog", 101, 0, 10, 10),  # moved
            wd.Box("ox", 200, 1, 10, 10),  # of another class
            wd.Box("pig", 400, 0, 10, 10),  # new
            wd.Polyline("kerb", [(0, 0), (50, 6), (100, 0)]),
            wd.Label("night"),
        ],
        replace=True,
    )
    found = diff(collection)
    assert changes(found) == [
        ("added", None, "pig"),
        ("moved", "dog", "dog"),
        ("moved", "kerb", "kerb"),
        ("reclassed", "cow", "ox"),
        ("reclassed", "day", "night"),
        ("removed", "hen", None),
    ]
    assert found.counts == {"added": 1, "removed": 1, "moved": 2, "reclassed": 2}
    assert found.migrations == {("cow", "ox"): 1, ("day", "night"): 1}
    assert [(one.path, one.file) for one in found.images] == [(IMAGE, "same")]


def test_files_that_come_go_and_change(tmp_path: Path) -> None:
    collection = labelled(tmp_path, [wd.Label("cat")])
    collection.add("gone.jpg", b"gone", annotations=[wd.Label("dog")])
    collection.add("other.jpg", b"one")
    collection.create_version("before")
    collection.remove("gone.jpg")
    collection.add("new.jpg", b"new", annotations=[wd.Label("hen")])
    collection.add("other.jpg", b"two", replace=True)
    found = diff(collection, "before")
    assert {one.path: one.file for one in found.images} == {
        "gone.jpg": "removed",
        "new.jpg": "added",
        "other.jpg": "changed",
    }
    assert changes(found) == [("added", None, "hen"), ("removed", "dog", None)]


def test_shapes_are_paired_by_their_bounds(tmp_path: Path) -> None:
    mask = np.zeros((40, 40), bool)
    mask[5:20, 5:20] = True
    wider = mask.copy()
    wider[5:20, 20:22] = True
    collection = labelled(
        tmp_path,
        [
            wd.Mask("cat", mask),
            wd.Polygon("dog", [[(0, 0), (10, 0), (10, 10)]]),
            wd.Keypoints("hen", [(1, 1, 2), (9, 9, 2)]),
        ],
    )
    collection.annotate(
        IMAGE,
        [
            wd.Mask("cat", wider),
            wd.Polygon("fox", [[(0, 0), (10, 0), (10, 11)]]),
            wd.Keypoints("hen", [(1, 1, 2), (9, 9, 2)]),
            wd.Box("cat", 5, 5, 15, 15),  # another kind is another object
        ],
        replace=True,
    )
    assert changes(diff(collection)) == [("added", None, "cat"), ("moved", "cat", "cat"), ("reclassed", "dog", "fox")]


boxes = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(0, 5), st.integers(0, 5)).map(
        lambda one: wd.Box(one[0], one[1] * 4, one[2] * 4, 10, 10)
    ),
    max_size=5,
)


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(before=boxes, after=boxes)
def test_the_changes_turn_one_version_into_the_other(tmp_path: Path, before: list[Any], after: list[Any]) -> None:
    """Applied to the objects before, they give the objects after; with the versions exchanged, the reverse."""
    collection = labelled(tmp_path, before)
    collection.annotate(IMAGE, after, replace=True)
    objects = Counter((one.class_name, one.x, one.y) for one in before)
    for image in diff(collection).images:
        for one in image.objects:
            if one.before:
                objects[(one.before["class_name"], *one.before["bbox"][:2])] -= 1
            if one.after:
                objects[(one.after["class_name"], *one.after["bbox"][:2])] += 1
    assert +objects == Counter((one.class_name, one.x, one.y) for one in after)
    assert min(objects.values(), default=0) >= 0
    back = diff_objects(collection.dataset(), collection.dataset("old"))
    forth = diff(collection)
    assert back.counts == {
        "added": forth.counts["removed"],
        "removed": forth.counts["added"],
        "moved": forth.counts["moved"],
        "reclassed": forth.counts["reclassed"],
    }


def test_equal_versions_differ_in_nothing(tmp_path: Path) -> None:
    collection = labelled(tmp_path, [wd.Box("cat", 0, 0, 10, 10)])
    assert diff(collection).images == ()
