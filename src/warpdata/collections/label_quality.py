"""Quality of labels: findings about single objects, images that leak between splits, and counts of classes.

Each check is an Arrow table, and a list of image paths that opens as a filter. Implements "Quality" of
docs/specs/label-inbox.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from warpdata.collections.stored_labels import label_set
from warpdata.collections.tables import FILES, quoted_lists
from warpdata.datasets import Dataset
from warpdata.errors import BadInputError, CorruptError, UnsupportedError
from warpdata.formats.labels import LabeledImage, LabelSet, bounds_of, box_iou
from warpdata.formats.media import difference_hash
from warpdata.primitives.progress import Progress, ProgressCounter, silent

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["QUALITY_CHECKS", "LabelQuality", "QualityOptions", "check_quality"]

QUALITY_CHECKS = ("tiny", "outside", "overlapping", "duplicate", "leakage", "near_leakage")
_BANDS, _BAND_BITS = 8, 8
_BATCH_IMAGES = 64


@dataclass(frozen=True, slots=True)
class QualityOptions:
    """Thresholds of the checks.

    A box is tiny with fewer pixels than `tiny_area`. Boxes of one class are duplicates from `duplicate_iou`; other
    pairs overlap from `overlap_iou`. Images are near duplicates if their hashes differ in at most `near_bits` of 64
    bits, which reads and decodes all images; None leaves that check out.
    """

    tiny_area: float = 16.0
    duplicate_iou: float = 0.9
    overlap_iou: float = 0.75
    near_bits: int | None = None

    def __post_init__(self) -> None:
        if not 0 < self.overlap_iou <= 1 or not 0 < self.duplicate_iou <= 1 or self.tiny_area < 0:
            raise BadInputError("an overlap is above 0 and at most 1, and an area is not negative")
        if self.near_bits is not None and not 0 <= self.near_bits < _BANDS:
            raise BadInputError(f"near_bits={self.near_bits} is not from 0 to {_BANDS - 1}")


@dataclass(frozen=True)
class LabelQuality:
    """What the checks found in a version.

    `findings` has a row for each finding: `check`, `image`, `other_image`, `object` and `other_object` (positions among
    the annotations of the image), `class_name`, `other_class` and `value`. `classes` has a row for each class and
    split.
    """

    dataset_id: str
    version: str
    images: int
    objects: int
    findings: pa.Table
    classes: pa.Table
    unread: int = 0
    """Files that are no images that can be decoded, so that near duplicates of them are not known."""

    @property
    def counts(self) -> Mapping[str, int]:
        """The number of findings of each check."""
        found = Counter(self.findings["check"].to_pylist())
        return {name: found[name] for name in QUALITY_CHECKS}

    def paths(self, check: str) -> list[str]:
        """Return the images with findings of a check, each once."""
        if check not in QUALITY_CHECKS:
            raise BadInputError(f"check={check!r} is not known", hint=f"The checks are {', '.join(QUALITY_CHECKS)}.")
        rows = zip(*(self.findings[name].to_pylist() for name in ("check", "image", "other_image")), strict=True)
        listed = (path for name, *paths in rows if name == check for path in paths if path is not None)
        return list(dict.fromkeys(listed))

    def filter(self, check: str) -> str:
        """Return a filter of the table `images` that selects the images with findings of a check."""
        return " OR ".join(quoted_lists("path", self.paths(check))) or "false"

    def document(self) -> dict[str, Any]:
        """Return all tables as plain values for JSON."""
        about = {"dataset_id": self.dataset_id, "version": self.version, "images": self.images}
        tables = {"findings": self.findings.to_pylist(), "classes": self.classes.to_pylist()}
        return {**about, "objects": self.objects, "counts": dict(self.counts), "unread": self.unread, **tables}


def check_quality(
    dataset: Dataset, options: QualityOptions, where: str | None = None, progress: Progress = silent
) -> LabelQuality:
    """Check the labels of a version. Reads the tables; with `near_bits` also all image files."""
    import pyarrow as pa

    labels = label_set(dataset, where)
    rows: list[dict[str, Any]] = []
    images: list[LabeledImage] = []
    objects = 0
    for image in labels.images:
        rows += _object_findings(image, options)
        objects += len(image.annotations)
        images.append(LabeledImage(image.path, [], image.width, image.height, image.split, (), image.hash))
    rows += _exact_leakage(images)
    unread = 0
    if options.near_bits is not None:
        hashes, unread = _difference_hashes(dataset, images, progress)
        rows += _near_leakage(images, hashes, options.near_bits)
    classes = pa.Table.from_pylist(list(_class_rows(labels)), _class_schema())
    findings = pa.Table.from_pylist(rows, _finding_schema())
    return LabelQuality(dataset.id, dataset.version, len(images), objects, findings, classes, unread)


def _finding_schema() -> pa.Schema:
    import pyarrow as pa

    texts = ("check", "image", "other_image", "class_name", "other_class")
    types = {name: pa.string() for name in texts} | {"object": pa.int64(), "other_object": pa.int64()}
    order = ("check", "image", "other_image", "object", "other_object", "class_name", "other_class", "value")
    return pa.schema([pa.field(name, types.get(name, pa.float64())) for name in order])


def _class_schema() -> pa.Schema:
    import pyarrow as pa

    numbers = {"objects": pa.int64(), "images": pa.int64(), "share": pa.float64(), "ratio_to_largest": pa.float64()}
    return pa.schema([("class_name", pa.string()), ("split", pa.string()), *numbers.items()])


def _object_findings(image: LabeledImage, options: QualityOptions) -> Iterator[dict[str, Any]]:
    bounds = [bounds_of(one) if one.kind != "label" else None for one in image.annotations]
    for number, (one, box) in enumerate(zip(image.annotations, bounds, strict=True)):
        if box is None:
            continue
        about = {"image": image.path, "object": number, "class_name": one.class_name}
        area = box[2] * box[3]
        if one.kind in ("box", "polygon", "mask") and area < options.tiny_area:
            yield {"check": "tiny", **about, "value": area}
        outside = _outside(box, image)
        if outside > 0:
            yield {"check": "outside", **about, "value": outside}
        for other in range(number):
            yield from _pair(image, (other, number), bounds, options)


def _pair(
    image: LabeledImage, pair: tuple[int, int], bounds: list[Any], options: QualityOptions
) -> Iterator[dict[str, Any]]:
    first, second = (image.annotations[at] for at in pair)
    one, other = (bounds[at] for at in pair)
    if one is None or first.kind != second.kind:
        return
    iou = box_iou(one, other)
    is_same = first.class_name == second.class_name
    check = "duplicate" if is_same and iou >= options.duplicate_iou else "overlapping"
    if iou >= (options.duplicate_iou if check == "duplicate" else options.overlap_iou):
        positions = {"object": pair[1], "other_object": pair[0]}
        names = {"class_name": second.class_name, "other_class": first.class_name}
        yield {"check": check, "image": image.path, **positions, **names, "value": iou}


def _outside(box: tuple[float, float, float, float], image: LabeledImage) -> float:
    """Return how many pixels an object leaves its image by, at the side where it is most."""
    if image.size is None:
        return 0.0
    x, y, width, height = box
    return max(-x, -y, x + width - image.size[0], y + height - image.size[1], 0.0)


def _exact_leakage(images: list[LabeledImage]) -> Iterator[dict[str, Any]]:
    """Yield pairs of equal files in different splits. Each file is paired with the first of its content."""
    first: dict[str, LabeledImage] = {}
    for image in images:
        known = first.setdefault(image.hash or image.path, image)
        if known.split != image.split:
            yield {"check": "leakage", "image": image.path, "other_image": known.path, "value": 0.0}


def _difference_hashes(dataset: Dataset, images: list[LabeledImage], progress: Progress) -> tuple[dict[str, int], int]:
    artifact = dataset.artifact(FILES)
    counter = ProgressCounter(progress, "verify", 0, len(images))
    found: dict[str, int] = {}
    unread = 0
    for start in range(0, len(images), _BATCH_IMAGES):
        paths = [image.path for image in images[start : start + _BATCH_IMAGES]]
        for path, data in zip(paths, artifact.read_many(paths), strict=True):
            try:
                found[path] = difference_hash(data, path)
            except (CorruptError, UnsupportedError, BadInputError):
                unread += 1
            counter.finish_file()
    return found, unread


def _near_leakage(images: list[LabeledImage], hashes: Mapping[str, int], near_bits: int) -> Iterator[dict[str, Any]]:
    """Yield pairs of similar images in different splits. Two hashes that differ in 7 bits share one of 8 bytes."""
    buckets: dict[tuple[int, int], list[LabeledImage]] = {}
    for image in images:
        digest = hashes.get(image.path)
        if digest is None:
            continue
        seen: set[str] = set()
        for band in range(_BANDS):
            bucket = buckets.setdefault((band, digest >> (band * _BAND_BITS) & 0xFF), [])
            for other in bucket:
                distance = (digest ^ hashes[other.path]).bit_count()
                is_new = other.path not in seen and other.split != image.split and other.hash != image.hash
                if is_new and distance <= near_bits:
                    seen.add(other.path)
                    yield {
                        "check": "near_leakage",
                        "image": image.path,
                        "other_image": other.path,
                        "value": float(distance),
                    }
            bucket.append(image)


def _class_rows(labels: LabelSet) -> Iterator[dict[str, Any]]:
    """Yield the counts of each class: over all splits, where `split` is null, and for each split."""
    objects: Counter[tuple[str, str | None]] = Counter()
    images: Counter[tuple[str, str | None]] = Counter()
    for image in labels.images:
        drawn: Counter[str] = Counter(one.class_name for one in image.annotations)
        for split in {None, image.split}:
            objects.update({(name, split): count for name, count in drawn.items()})
            images.update({(name, split): 1 for name in drawn})
    totals = Counter[str | None]()
    largest: Counter[str | None] = Counter()
    for (_, split), count in objects.items():
        totals[split] += count
        largest[split] = max(largest[split], count)
    for (name, split), count in sorted(objects.items(), key=lambda item: (item[0][1] or "", -item[1], item[0][0])):
        shares = {"share": count / totals[split], "ratio_to_largest": count / largest[split]}
        yield {"class_name": name, "split": split, "objects": count, "images": images[name, split], **shares}
