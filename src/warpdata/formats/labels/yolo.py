"""YOLO, written: one text file for each image, with shares of the image size, and `data.yaml`.

Layouts of detection, segmentation, pose and oriented boxes, as Ultralytics reads them. Classification is a tree of
images. A number has as many digits as give the pixels back exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal

from warpdata.formats.labels.annotations import Annotation, Box, Keypoints, Polygon
from warpdata.formats.labels.conservation import Conservation
from warpdata.formats.labels.files import ImagePlace, LabelFile, OutputFile, has_image_suffix
from warpdata.formats.labels.geometry import EXACT, bounds_of, corners_of, decimals, has_hole, shorten
from warpdata.formats.labels.image_folder import write_image_folder
from warpdata.formats.labels.model import LabeledImage, LabelSet
from warpdata.formats.labels.options import LabelOptions, StemNames, safe_name
from warpdata.formats.labels.parts import box_around, hold_parts, stem_of
from warpdata.formats.labels.yolo_lines import (
    TASKS,
    decode_box,
    decode_corners,
    decode_keypoints,
    decode_polygon,
)

__all__ = ["YoloLayout", "keypoint_count", "write_yolo", "yolo_data", "yolo_labels"]

UNSPLIT = "unsplit"


@dataclass(frozen=True, slots=True)
class YoloLayout:
    """What all files of an export share: the task, the numbers of classes, and the points of a pose."""

    task: str
    numbers: dict[str, int]
    keypoints: int = 0

    @classmethod
    def of(cls, labels: LabelSet, task: str) -> YoloLayout:
        numbers = {name: number for number, name in enumerate(labels.class_names)}
        return cls(task, numbers, keypoint_count(labels) if task == "pose" else 0)


def write_yolo(labels: LabelSet, account: Conservation, options: LabelOptions) -> Iterator[OutputFile]:
    """Yield `data.yaml`, and for each image its labels and its place."""
    task = options.choose(TASKS)
    if task == "classify":
        yield from write_image_folder(labels, account)
        return
    layout = YoloLayout.of(labels, task)
    yield LabelFile("data.yaml", [yolo_data(labels, layout)])
    names = StemNames(account)
    folders = split_folders(labels)
    for image in labels.images:
        if not has_image_suffix(image.path):
            account.lose_image(image, "the name has no suffix of an image")
            continue
        folder = folders[image.split]
        split = image.split
        if split is None and folder:
            split = UNSPLIT
            account.add("splits", "images without a split are beside splits", image.path)
        name = names.unique(f"{folder}{image.path}")
        data = yolo_labels(image, layout, account, split)
        yield LabelFile(f"labels/{stem_of(name)}.txt", [data])
        yield ImagePlace(f"images/{name}", image.path)


def split_folders(labels: LabelSet) -> dict[str | None, str]:
    """Return the directory of each split, with a slash; none if there are no splits."""
    if set(labels.splits) <= {None}:
        return {None: ""}
    taken: dict[str, str | None] = {}
    for split in labels.splits:
        name = UNSPLIT if split is None else safe_name(split)
        while name.casefold() in taken:
            name += "_"
        taken[name.casefold()] = split
    return {split: f"{name}/" for name, split in zip(taken, taken.values(), strict=True)}


def yolo_data(labels: LabelSet, layout: YoloLayout) -> bytes:
    """Return `data.yaml`: the splits and the names of classes."""
    folders = split_folders(labels)
    lines: list[str] = []
    named = {split or UNSPLIT: f"images/{folder}".rstrip("/") for split, folder in folders.items()}
    if None in folders and not folders[None]:
        named = {"train": "images", "val": "images"}
    named.setdefault("train", next(iter(named.values())))
    named.setdefault("val", named["train"])
    lines += [f"{_yaml(split)}: {_yaml(path)}" for split, path in named.items()]
    if layout.keypoints:
        lines.append(f"kpt_shape: [{layout.keypoints}, 3]")
    lines.append("names:" if layout.numbers else "names: {}")
    lines += [f"  {number}: {_yaml(name)}" for name, number in layout.numbers.items()]
    return ("\n".join(lines) + "\n").encode()


def _yaml(text: str) -> str:
    """Return a text in the quotes of YAML."""
    escaped = (char if char.isprintable() and char not in '"\\\ufeff' else f"\\U{ord(char):08x}" for char in text)
    return f'"{"".join(escaped)}"'


def yolo_labels(
    image: LabeledImage, layout: YoloLayout, account: Conservation | None = None, split: str | None = None
) -> bytes:
    """Return the text file of one image. `split` is that of its directory."""
    account = account or Conservation("yolo", "export")
    lines: list[str] = []
    held = LabeledImage(image.path, [], image.width, image.height, split)
    for one in image.annotations:
        for line, kept in _lines_of(one, image, layout, account):
            lines.append(f"{layout.numbers[one.class_name]} {line}\n")
            held.annotations.append(kept)
    account.take_image(image)
    account.give_image(held)
    account.lose("tags", "YOLO has no tags of images", image.path, len(image.tags))
    return "".join(lines).encode()


def keypoint_count(labels: LabelSet) -> int:
    """Return the largest number of points that keypoints have. Reads all annotations unless classes name points."""
    named = max((len(one.keypoints) for one in labels.classes), default=0)
    if named:
        return named
    drawn = (len(one.points) for image in labels.images for one in image.annotations if isinstance(one, Keypoints))
    return max(drawn, default=1)


def _lines_of(
    one: Annotation, image: LabeledImage, layout: YoloLayout, account: Conservation
) -> list[tuple[str, Annotation]]:
    """Return the lines of an annotation, each with the annotation that it reads back as."""
    if image.size is None:
        account.hold(one, None, "the size of the image is not known", image.path)
        return []
    lines, why = _write(one, image.size, layout)
    hold_parts(account, one, [kept for _, kept in lines], why, image.path)
    return lines


Written = tuple[list[tuple[str, Annotation]], str]
_NO_PLACE = "YOLO has no place for attributes, and rounds what 40 digits do not hold"


def _write(one: Annotation, size: tuple[int, int], layout: YoloLayout) -> Written:
    if layout.task == "segment":
        return _write_polygon(one, size)
    if layout.task == "obb":
        return _write_corners(one, size)
    return _write_pose(one, size, layout.keypoints) if layout.task == "pose" else _write_box(one, size)


def _write_box(one: Annotation, size: tuple[int, int]) -> Written:
    bounds = box_around(one)
    if bounds is None:
        return [], f"a {one.kind} has no box"
    line, kept = _box_text(bounds, one.class_name, size)
    why = _NO_PLACE if isinstance(one, Box) and not one.rotation else "the task detect has upright boxes"
    return [(line, kept)], why


def _write_polygon(one: Annotation, size: tuple[int, int]) -> Written:
    if isinstance(one, Box):
        rings: Sequence[Sequence[tuple[float, float]]] = [corners_of(one)]
    elif isinstance(one, Polygon):
        rings = one.points
    else:
        return [], f"the task segment has no {one.kind}"
    if isinstance(one, Polygon) and has_hole(one):
        return [], "an outline of YOLO has no holes"
    why = "each outline is an object of its own" if len(rings) > 1 else _NO_PLACE
    why = "a box becomes an outline" if isinstance(one, Box) else why
    return [_points_text(ring, one.class_name, size, decode_polygon) for ring in rings], why


def _write_corners(one: Annotation, size: tuple[int, int]) -> Written:
    if isinstance(one, Box):
        box = one
    else:
        bounds = box_around(one)
        if bounds is None:
            return [], f"a {one.kind} has no box"
        box = Box(one.class_name, *bounds)
    why = "an oriented box is four corners, from which its sides and its angle follow"
    return [_points_text(corners_of(box), one.class_name, size, decode_corners)], why


def _write_pose(one: Annotation, size: tuple[int, int], keypoints: int) -> Written:
    bounds = box_around(one)
    if bounds is None:
        return [], f"a {one.kind} has no box"
    box_text, box = _box_text(bounds, one.class_name, size)
    if not isinstance(one, Keypoints):
        return [(box_text + " 0 0 0" * keypoints, box)], "the task pose has boxes with keypoints"
    points = [(x, y, int(visible)) for x, y, visible in one.points][:keypoints]
    points += [(0.0, 0.0, 0)] * (keypoints - len(points))
    values = _shares([(x, y) for x, y, _ in points], size)
    visible = [point[2] for point in points]
    wanted = Keypoints(one.class_name, points)
    short, found = shorten(values, lambda v: decode_keypoints(v, visible, one.class_name, size), wanted)
    texts = [f"{short[2 * n]:f} {short[2 * n + 1]:f} {flag}" for n, flag in enumerate(visible)]
    drawn = (box.x, box.y, box.width, box.height)
    kept = (
        found if drawn == bounds_of(found) else Keypoints(one.class_name, found.points, attributes={"bbox": [*drawn]})
    )
    return [(" ".join([box_text, *texts]), kept)], "all poses have the same number of points, and no attributes"


def _box_text(bounds: tuple[float, float, float, float], name: str, size: tuple[int, int]) -> tuple[str, Box]:
    x, y, width, height = decimals(bounds)
    centers = (EXACT.add(x, EXACT.divide(width, Decimal(2))), EXACT.add(y, EXACT.divide(height, Decimal(2))))
    sides = (Decimal(size[0]), Decimal(size[1]))
    values = [EXACT.divide(value, side) for value, side in zip((*centers, width, height), sides * 2, strict=True)]
    short, found = shorten(values, lambda v: decode_box(v, name, size), Box(name, *bounds))
    return " ".join(f"{value:f}" for value in short), found


def _points_text(
    points: Sequence[tuple[float, float]],
    name: str,
    size: tuple[int, int],
    decode: Callable[[Sequence[Decimal], str, tuple[int, int]], Annotation],
) -> tuple[str, Annotation]:
    values = _shares(points, size)
    exact = decode([*values], name, size)
    short, found = shorten(values, lambda v: decode(v, name, size), exact)
    return " ".join(f"{value:f}" for value in short), found


def _shares(points: Sequence[tuple[float, float]], size: tuple[int, int]) -> list[Decimal]:
    sides = (Decimal(size[0]), Decimal(size[1]))
    return [EXACT.divide(value, side) for point in points for value, side in zip(decimals(point), sides, strict=True)]
