"""If this fails, a label format loses or changes something that its report does not list."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

import warpdata as wd
from tests.formats.labels.scenes import labeled_images, written
from warpdata.formats.labels import (
    LABEL_FORMATS,
    Annotation,
    Conservation,
    LabelBlock,
    LabelBlocks,
    LabeledImage,
    LabelOptions,
    LabelSet,
    MemoryFiles,
    geometry_columns,
    label_format,
    measure,
)

CASES = [(name, task) for name, one in LABEL_FORMATS.items() for task in one.tasks or (None,)]
LOSSLESS = {"csv", "parquet", "platform"}


class Held(Conservation):
    """An account that keeps the images that a writer says its files hold."""

    def __init__(self, name: str) -> None:
        super().__init__(name, "export")
        self.images: list[LabeledImage] = []

    def give_image(self, image: LabeledImage) -> None:
        self.images.append(image)
        super().give_image(image)

    def give_block(self, block: LabelBlock) -> None:
        self.images += block
        super().give_block(block)


def key(one: Annotation) -> tuple[Any, ...]:
    columns = geometry_columns(one)
    return tuple(repr(_unsigned_zeros(columns[name])) for name in sorted(columns))


def _unsigned_zeros(value: Any) -> Any:
    """Return the value with 0.0 for -0.0, which is the same coordinate and has no text of its own in most formats."""
    if isinstance(value, list | tuple):
        return [_unsigned_zeros(item) for item in value]
    return value + 0.0 if isinstance(value, float) else value


@pytest.mark.parametrize(("name", "task"), CASES, ids=str)
@settings(max_examples=15)
@given(labeled_images())
def test_what_is_written_is_read_or_listed(name: str, task: str | None, images: list[LabeledImage]) -> None:
    check_round_trip(name, task, images)


@pytest.mark.soak
@pytest.mark.parametrize(("name", "task"), CASES, ids=str)
@settings(max_examples=1500, deadline=None)
@given(labeled_images(max_annotations=6))
def test_many_random_sets(name: str, task: str | None, images: list[LabeledImage]) -> None:
    check_round_trip(name, task, images)


def check_round_trip(name: str, task: str | None, images: list[LabeledImage], kept: LabelBlocks | None = None) -> None:
    options = LabelOptions(task=task)
    held = Held(name)
    whole = LabelSet.of(images)
    labels = whole if kept is None else replace(whole, images=kept)
    files = written(list(label_format(name).write(labels, held, options)), images)
    report = held.report()
    account = Conservation(name, "import")
    read = []
    for image in label_format(name).read(MemoryFiles(files), account, options).images:
        account.give_image(image)
        read.append(image)
    account.report()
    expected = sorted(map(shape, held.images), key=repr)
    assert sorted(map(shape, read), key=repr) == expected
    if report.is_lossless and not report.added and name not in ("imagefolder", "masks", "yolo"):
        assert expected == sorted(map(shape, images), key=repr)
    total = sum((measure(image) for image in images), start=measure(LabeledImage("")) - measure(LabeledImage("")))
    assert report.taken == dict(sorted(total.items()))


def shape(image: LabeledImage) -> tuple[Any, ...]:
    """Return what must be equal. Directories of an ImageFolder are part of its paths."""
    return image.split, image.tags, [key(one) for one in image.annotations]


def about(image: LabeledImage) -> tuple[Any, ...]:
    return image.path, image.size, image.split or "", image.tags


@given(labeled_images())
@settings(max_examples=15)
def test_some_formats_lose_nothing(images: list[LabeledImage]) -> None:
    for name in sorted(LOSSLESS):
        account = Conservation(name, "export")
        files = written(list(label_format(name).write(LabelSet.of(images), account, LabelOptions())), images)
        assert account.report().is_lossless
        read = list(label_format(name).read(MemoryFiles(files), Conservation(name, "import"), LabelOptions()).images)
        assert sorted(map(about, read)) == sorted(map(about, images))
        assert [list(map(key, image.annotations)) for image in sorted(read, key=lambda image: image.path)] == [
            list(map(key, image.annotations)) for image in sorted(images, key=lambda image: image.path)
        ]


def test_an_unlisted_loss_is_an_error() -> None:
    account = Conservation("coco", "export")
    account.take("boxes", 2)
    account.give("boxes")
    with pytest.raises(Exception, match="unlisted loss of boxes: 2 in, 0 added, 1 out, 0 lost"):
        account.report()
    account.lose("boxes", "too small", "a.jpg")
    assert account.report().document()["lost"] == [{"fact": "boxes", "why": "too small", "count": 1, "first": "a.jpg"}]


def test_classes_whose_lines_would_be_equal_stay_apart() -> None:
    top = np.array([[True, True], [False, False]])
    drawn: list[Annotation] = [wd.Mask("a:b", top), wd.Mask("a#b", ~top)]
    images = [LabeledImage("a.png", drawn, 2, 2)]
    masks, account = label_format("masks"), Conservation("masks", "export")
    files = written(list(masks.write(LabelSet.of(images), account, LabelOptions())), images)
    assert {item.fact for item in account.report().changed} == {"masks"}
    (read,) = masks.read(MemoryFiles(files), Conservation("masks", "import"), LabelOptions()).images
    assert [one.class_name for one in read.annotations] == ["a_b", "a_b_"]
