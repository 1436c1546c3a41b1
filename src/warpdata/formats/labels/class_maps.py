"""Masks: for each image a PNG whose pixels are numbers of classes, with a palette, as Pascal VOC keeps segmentations.

A pixel has one class, so objects of a class become one mask, and a later object covers an earlier one. Polygons are
filled by the even-odd rule at the centers of pixels. 0 is the background.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from warpdata.errors import BadInputError, CorruptError
from warpdata.formats.labels.annotations import Annotation, Mask, Polygon
from warpdata.formats.labels.conservation import Conservation
from warpdata.formats.labels.files import ImagePlace, LabelFile, LabelFiles, OutputFile, foreign_path, image_names
from warpdata.formats.labels.model import FACTS, LabelClass, LabeledImage, LabelSet
from warpdata.formats.labels.options import LabelOptions, StemNames, safe_name
from warpdata.formats.labels.parts import stem_of
from warpdata.formats.media import decode_numbers, encode_palette_png
from warpdata.limits import MAX_IMAGE_PIXELS, MIB

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["fill_polygon", "read_class_maps", "voc_palette", "write_class_maps"]

_MAX_CLASSES = 255
_MAX_FILE_BYTES = 512 * MIB
_FOLDER, _LABEL_MAP, _BACKGROUND = "SegmentationClass", "labelmap.txt", "background"


def write_class_maps(labels: LabelSet, account: Conservation) -> Iterator[OutputFile]:
    """Yield `labelmap.txt`, and a map and the place of each image, and then the lists of splits."""
    if len(labels.classes) > _MAX_CLASSES:
        raise BadInputError(f"a map has at most {_MAX_CLASSES} classes, not {len(labels.classes)}")
    names = _line_names(labels.class_names)
    palette = voc_palette(len(names) + 1)
    lines = [
        f"{name}:{','.join(map(str, colour))}::\n" for name, colour in zip([_BACKGROUND, *names], palette, strict=True)
    ]
    yield LabelFile(_LABEL_MAP, [b"# label:color_rgb:parts:actions\n", "".join(lines).encode()])
    written = dict(zip(labels.class_names, names, strict=True))
    stems = StemNames(account)
    splits: dict[str, list[str]] = {}
    for image in labels.images:
        name = stems.unique(image.path)
        account.take_image(image)
        numbers, held = _paint(image, written, account)
        held.path = name
        account.lose("tags", "maps have no tags of images", image.path, len(image.tags))
        if image.split is not None:
            splits.setdefault(safe_name(image.split), []).append(stem_of(name))
            if safe_name(image.split) != image.split:
                account.change("splits", "a file has the name of the split", image.path)
        account.give_image(held)
        if numbers is not None:
            yield LabelFile(f"{_FOLDER}/{stem_of(name)}.png", [encode_palette_png(numbers, palette)])
        yield ImagePlace(f"JPEGImages/{name}", image.path)
    for split, listed in splits.items():
        yield LabelFile(f"ImageSets/Segmentation/{split}.txt", ["".join(f"{stem}\n" for stem in listed).encode()])


def read_class_maps(files: LabelFiles, account: Conservation, options: LabelOptions) -> LabelSet:
    """Return the mask of each class in each map."""
    folders = (f"{_FOLDER}/", "masks/", "SegmentationObject/")
    maps = [name for name in files.names() if name.endswith(".png") and name.startswith(folders[:2])]
    if not maps:
        raise BadInputError(f"{files.name} has no PNG files in {_FOLDER} or masks")
    names = _class_names(files)
    known = {stem_of(name.partition("/")[2]): name for name in image_names(files) if not name.startswith(folders)}
    known |= {stem_of(path): path for path in options.images} if not known else {}
    splits = _splits(files)

    def images() -> Iterator[LabeledImage]:
        used: set[str] = set()
        for name in maps:
            stem = stem_of(name.partition("/")[2])
            used.add(stem)
            found = known.get(stem)
            where = f"{files.name}/{name}"
            path = name.partition("/")[2] if found is None else found.partition("/")[2] if "/" in found else found
            path = path if found is None or found not in options.images else found
            numbers = decode_numbers(files.read(name, _MAX_FILE_BYTES), where)
            image = LabeledImage(foreign_path(path, where), [], numbers.shape[1], numbers.shape[0], splits.get(stem))
            image.annotations = _masks(numbers, names, where)
            account.take("images")
            account.take("objects", len(image.annotations))
            account.take_details(image)
            yield image
        for stem, name in known.items():
            if stem not in used and name not in options.images:
                width, height = files.image_size(name) or (None, None)
                path = foreign_path(name.partition("/")[2], files.name)
                image = LabeledImage(path, [], width, height, splits.get(stem))
                account.take_image(image)
                yield image

    return LabelSet(tuple(LabelClass(name) for name in names if name != _BACKGROUND), images(), name=files.name)


def fill_polygon(polygon: Polygon, width: int, height: int) -> NDArray[np.bool_]:
    """Return the pixels whose centers are inside of a polygon, by the even-odd rule over all outlines."""
    import numpy as np

    filled = np.zeros((height, width), bool)
    edges: list[tuple[float, float, float, float]] = []
    for ring in polygon.points:
        edges += [(*a, *b) for a, b in zip(ring, [*ring[1:], ring[0]], strict=True) if a[1] != b[1]]
    if not edges:
        return filled
    x1, y1, x2, y2 = np.array(edges, dtype=np.float64).T
    first = max(0, int(np.floor(min(y1.min(), y2.min()))))
    last = min(height, int(np.ceil(max(y1.max(), y2.max()))))
    for row in range(first, last):
        y = row + 0.5
        crossed = (y1 <= y) != (y2 <= y)
        xs = np.sort(x1[crossed] + (y - y1[crossed]) * (x2[crossed] - x1[crossed]) / (y2[crossed] - y1[crossed]))
        bounds = np.clip(np.ceil(xs - 0.5), 0, width).astype(np.int64)
        for start, end in zip(bounds[::2], bounds[1::2], strict=True):
            filled[row, start:end] = True
    return filled


def voc_palette(count: int) -> list[tuple[int, int, int]]:
    """Return the colours of Pascal VOC: the bits of a number, dealt out to red, green and blue."""
    colours = []
    for number in range(count):
        channels = [0, 0, 0]
        for bit in range(8):
            for channel in range(3):
                channels[channel] |= (number >> (3 * bit + channel) & 1) << (7 - bit)
        colours.append((channels[0], channels[1], channels[2]))
    return colours


def line_name(name: str) -> str:
    """Return the name of a class as a line of `labelmap.txt` can hold it."""
    kept = "".join("_" if char in ":\n\r#" or not char.isprintable() else char for char in name)
    return kept.strip() or "_"


def _line_names(names: Sequence[str]) -> list[str]:
    """Return a name of its own for each class, none of them that of the background."""
    taken = [_BACKGROUND]
    for name in names:
        line = line_name(name)
        while line in taken:
            line += "_"
        taken.append(line)
    return taken[1:]


def _paint(
    image: LabeledImage, names: dict[str, str], account: Conservation
) -> tuple[NDArray[np.uint8] | None, LabeledImage]:
    """Return the map of an image, and the image that it reads back as."""
    import numpy as np

    held = LabeledImage(image.path, [], image.width, image.height, image.split)
    if image.size is None or image.size[0] * image.size[1] > MAX_IMAGE_PIXELS:
        for one in image.annotations:
            account.hold(one, None, "the size of the image is not known, or too large", image.path)
        return None, held
    width, height = image.size
    numbers = np.zeros((height, width), np.uint8)
    order = {name: number for number, name in enumerate(names, 1)}
    painted: dict[str, list[Annotation]] = {}
    for one in image.annotations:
        pixels = one.to_array() if isinstance(one, Mask) and one.size == (height, width) else None
        if isinstance(one, Polygon):
            pixels = fill_polygon(one, width, height)
        if pixels is None:
            account.hold(one, None, f"maps have no {FACTS[one.kind]}, or of another size", image.path)
            continue
        numbers[pixels] = order[one.class_name]
        painted.setdefault(one.class_name, []).append(one)
    why = "a map has one class for each pixel, and no objects"
    for name in sorted(painted, key=order.__getitem__):
        pixels = numbers == order[name]
        kept = Mask(names[name], pixels) if pixels.any() else None
        first, *others = painted[name]
        account.hold(first, kept, why, image.path)
        for one in others:
            account.hold(one, None, why, image.path)
        held.annotations += [] if kept is None else [kept]
    return numbers, held


def _masks(numbers: Any, names: Sequence[str], where: str) -> list[Annotation]:
    import numpy as np

    found: list[Annotation] = []
    for number in np.unique(numbers).tolist():
        if number == 0 or (number == 255 and number >= len(names)):  # 255 is the border of objects
            continue
        if names and number >= len(names):
            raise CorruptError(f"{where} has the class {number}, and {_LABEL_MAP} has {len(names)}")
        found.append(Mask(names[number] if names else str(number), numbers == number))
    return found


def _class_names(files: LabelFiles) -> list[str]:
    if _LABEL_MAP not in files.names():
        return []
    text = files.read(_LABEL_MAP, MIB).decode("utf-8", "replace")
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [line.split(":")[0].strip() for line in lines]


def _splits(files: LabelFiles) -> dict[str, str]:
    found: dict[str, str] = {}
    for name in files.names():
        folder, _, file = name.rpartition("/")
        if folder.endswith("ImageSets/Segmentation") and file.endswith(".txt") and file != "trainval.txt":
            text = files.read(name, 64 * MIB).decode("utf-8", "replace")
            found |= {line.strip(): file.removesuffix(".txt") for line in text.splitlines() if line.strip()}
    return found
