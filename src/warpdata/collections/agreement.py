"""Agreement between annotators who labelled the same bytes, from the labels that came back to the inbox.

Objects of two annotators are matched by overlap. Cohen's kappa is that of the classes of all objects, where an object
without a match has the class "none" on the other side.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

from warpdata.collections.object_merge import match_objects
from warpdata.formats.labels import Annotation, bounds_of, box_iou

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["AnnotatedImage", "agreement_table", "cohens_kappa"]


@dataclass(frozen=True, slots=True)
class AnnotatedImage:
    """The objects that one annotator drew on an image."""

    path: str
    hash: str
    annotator: str
    objects: tuple[Annotation, ...]


def agreement_table(drawn: Sequence[AnnotatedImage]) -> pa.Table:
    """Return a row for each image and pair of annotators, and one without an image for each pair over all images.

    Of an annotator who labelled the same bytes several times, the last work counts.
    """
    import pyarrow as pa

    newest = {(one.path, one.hash, one.annotator): one for one in drawn}
    by_image: dict[tuple[str, str], list[AnnotatedImage]] = {}
    for one in newest.values():
        by_image.setdefault((one.path, one.hash), []).append(one)
    rows: list[dict[str, object]] = []
    pairs: dict[tuple[str, str], list[_Compared]] = {}
    for (path, _), listed in sorted(by_image.items()):
        for first, second in combinations(sorted(listed, key=lambda one: one.annotator), 2):
            compared = _compare(first.objects, second.objects)
            names = first.annotator, second.annotator
            pairs.setdefault(names, []).append(compared)
            rows.append({"image": path, "annotator": names[0], "other": names[1], **compared.columns()})
    for names, found in sorted(pairs.items()):
        rows.append({"image": None, "annotator": names[0], "other": names[1], **_sum(found).columns()})
    numbers = {name: pa.int64() for name in ("objects", "other_objects", "matched", "same_class")}
    texts = {name: pa.string() for name in ("image", "annotator", "other")}
    return pa.Table.from_pylist(rows, pa.schema({**texts, **numbers, "mean_iou": pa.float64(), "kappa": pa.float64()}))


def cohens_kappa(pairs: Counter[tuple[str, str]]) -> float | None:
    """Return the agreement of two raters beyond chance: 1 is perfect, 0 is chance. None if chance alone is perfect."""
    total = pairs.total()
    if not total:
        return None
    first: Counter[str] = Counter()
    second: Counter[str] = Counter()
    for (one, other), count in pairs.items():
        first[one] += count
        second[other] += count
    observed = sum(count for (one, other), count in pairs.items() if one == other) / total
    chance = sum(first[name] * second[name] for name in first) / total**2
    return None if chance == 1 else (observed - chance) / (1 - chance)


@dataclass(frozen=True, slots=True)
class _Compared:
    objects: int
    other_objects: int
    ious: tuple[float, ...]
    classes: Counter[tuple[str, str]]

    def columns(self) -> dict[str, object]:
        same = sum(count for (one, other), count in self.classes.items() if one == other)
        return {
            "objects": self.objects,
            "other_objects": self.other_objects,
            "matched": len(self.ious),
            "same_class": same,
            "mean_iou": sum(self.ious) / len(self.ious) if self.ious else None,
            "kappa": cohens_kappa(self.classes),
        }


def _compare(one: Sequence[Annotation], other: Sequence[Annotation]) -> _Compared:
    matched = match_objects(one, other)
    classes = Counter((one[at].class_name, other[to].class_name) for at, to in matched.items())
    classes.update((each.class_name, "") for at, each in enumerate(one) if at not in matched)
    classes.update(("", each.class_name) for at, each in enumerate(other) if at not in matched.values())
    return _Compared(len(one), len(other), tuple(_iou(one[at], other[to]) for at, to in matched.items()), classes)


def _sum(found: Sequence[_Compared]) -> _Compared:
    classes: Counter[tuple[str, str]] = Counter()
    for each in found:
        classes.update(each.classes)
    ious = tuple(iou for each in found for iou in each.ious)
    return _Compared(sum(each.objects for each in found), sum(each.other_objects for each in found), ious, classes)


def _iou(one: Annotation, other: Annotation) -> float:
    first, second = bounds_of(one), bounds_of(other)
    return 1.0 if first is None or second is None else box_iou(first, second)
