"""The neutral model of labelled images: what every reader of a format returns, and every writer takes.

A `LabelSet` may be larger than memory: its images are produced while they are read, again for each pass.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from warpdata.formats.labels.annotations import Annotation, Box

__all__ = ["FACTS", "LabelClass", "LabelSet", "LabeledImage", "find_classes", "measure"]

FACTS = {
    "box": "boxes",
    "polygon": "polygons",
    "polyline": "polylines",
    "mask": "masks",
    "keypoints": "keypoints",
    "label": "labels",
}
"""The name of each kind of annotation in a report."""


@dataclass(slots=True)
class LabeledImage:
    """An image and its annotations. `hash` is the SHA-256 of the file, if it is known."""

    path: str
    annotations: list[Annotation] = field(default_factory=list)
    width: int | None = None
    height: int | None = None
    split: str | None = None
    tags: tuple[str, ...] = ()
    hash: str | None = None

    @property
    def size(self) -> tuple[int, int] | None:
        """Width and height."""
        return None if self.width is None or self.height is None else (self.width, self.height)


@dataclass(frozen=True, slots=True)
class LabelClass:
    """A class of annotations. `keypoints` are the names of its points, and `skeleton` the pairs that are connected."""

    name: str
    keypoints: tuple[str, ...] = ()
    skeleton: tuple[tuple[int, int], ...] = ()
    supercategory: str | None = None


@dataclass(frozen=True)
class LabelSet:
    """Labelled images and their classes, in the order in which formats number them.

    The images of a reader can be iterated once, others several times. `splits` are the splits that occur; None stands
    for images without one.
    """

    classes: tuple[LabelClass, ...]
    images: Iterable[LabeledImage]
    splits: tuple[str | None, ...] = (None,)
    name: str = ""

    @property
    def class_names(self) -> tuple[str, ...]:
        return tuple(one.name for one in self.classes)

    def of_split(self, split: str | None) -> Iterable[LabeledImage]:
        """Return the images of one split."""
        return (image for image in self.images if image.split == split)

    @classmethod
    def of(cls, images: Iterable[LabeledImage], classes: Iterable[LabelClass] = (), name: str = "") -> LabelSet:
        """Return a set of images in memory. Classes that are not given follow, sorted by name."""
        listed = list(images)
        splits = sorted({image.split for image in listed}, key=lambda split: split or "")
        return cls(find_classes(listed, tuple(classes)), listed, tuple(splits) or (None,), name)


def find_classes(images: Iterable[LabeledImage], known: tuple[LabelClass, ...] = ()) -> tuple[LabelClass, ...]:
    """Return the known classes, and after them those that only annotations have, sorted by name."""
    names = {one.class_name for image in images for one in image.annotations} - {one.name for one in known}
    return known + tuple(LabelClass(name) for name in sorted(names))


def measure(image: LabeledImage) -> Counter[str]:
    """Count all that a conversion could lose of an image."""
    found: Counter[str] = Counter(images=1)
    if image.annotations:
        found["objects"] = len(image.annotations)
    for one in image.annotations:
        found[FACTS[one.kind]] += 1
        if one.attributes:
            found["attributes"] += len(one.attributes)
        if isinstance(one, Box) and one.rotation is not None:
            found["rotations"] += 1
    if image.split is not None:
        found["splits"] += 1
    if image.tags:
        found["tags"] += len(image.tags)
    return found
