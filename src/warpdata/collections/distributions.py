"""How the labels of a version are distributed: over splits, sizes and places, and which classes occur together.

`place_objects` reads the tables once. Every number of `describe_labels` counts rows that `PlacedObjects` can also
return, so that a bar and the images behind it agree. Implements "Distributions" of docs/specs/collections.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from warpdata.collections.tables import ANNOTATIONS, IMAGES, read_columns
from warpdata.datasets import Dataset
from warpdata.errors import BadInputError
from warpdata.formats.labels import annotation_of, bounds_of

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

__all__ = [
    "AREA_SHARES",
    "ASPECTS",
    "HEAT_CELLS",
    "ClassCounts",
    "CountBin",
    "LabelDistributions",
    "PlacedObjects",
    "ShapeBin",
    "describe_labels",
    "place_objects",
]

HEAT_CELLS = 16
"""Cells of a heat map along each side."""
AREA_SHARES = (0.0, 0.001, 0.0025, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5)
"""Lower ends of the bins of an object's share of its image, by its bounds. The last bin has no upper end."""
ASPECTS = ((1, 3), (1, 2), (2, 3), (4, 5), (1, 1), (5, 4), (3, 2), (2, 1), (3, 1))
"""Ends of the bins of width to height, as fractions. Square images have a bin of their own."""
_COUNT_ENDS = (0, 1, 2, 3, 4, 5, 6, 8, 11, 16, 21, 31, 51, 101)
_SIZES = 20
_PAIRED_CLASSES = 20
_HEAT_CLASSES = 50
_NONE = 255


@dataclass(frozen=True, slots=True)
class ClassCounts:
    """One class: its objects, and the images that have any, by the splits of `LabelDistributions.splits`."""

    class_name: str
    objects: tuple[int, ...]
    images: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CountBin:
    """Counts of values from `low` to before `high`, which is None for the last bin."""

    low: float
    high: float | None
    count: int


@dataclass(frozen=True, slots=True)
class ShapeBin:
    """Images of one shape. `filter` selects them in the table `images`."""

    name: str
    filter: str
    count: int


@dataclass(frozen=True, slots=True)
class LabelDistributions:
    """The distributions of one version.

    A split without a name is the empty text. `heat` counts the centres of bounds in cells, row by row: of all objects,
    and of each of the most frequent classes. `together` counts the images with both of two classes of `paired`.
    `unplaced` counts objects without bounds, such as labels, and those of images without a known size.
    """

    version: str
    images: int
    objects: int
    splits: tuple[str, ...]
    images_by_split: tuple[int, ...]
    classes: tuple[ClassCounts, ...]
    objects_per_image: tuple[CountBin, ...]
    sizes: tuple[ShapeBin, ...]
    aspects: tuple[ShapeBin, ...]
    unsized_images: int
    areas: tuple[CountBin, ...]
    heat_cells: int
    heat: tuple[int, ...]
    heat_by_class: dict[str, tuple[int, ...]]
    unplaced: int
    paired: tuple[str, ...]
    together: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, eq=False)
class PlacedObjects:
    """The objects of a version in the order of their table: the row of the image, class, cell and share of each.

    `column`, `row` and `area_bin` are 255 without bounds. An object whose image is not there has row -1.
    """

    images: pa.Table
    class_names: list[str]
    image_row: NDArray[np.int64]
    class_code: NDArray[np.int32]
    column: NDArray[np.uint8]
    row: NDArray[np.uint8]
    area_bin: NDArray[np.uint8]

    @property
    def size_bytes(self) -> int:
        arrays = (self.image_row, self.class_code, self.column, self.row, self.area_bin)
        return sum(array.nbytes for array in arrays) + int(self.images.nbytes)

    def images_at(self, column: int, row: int, class_name: str | None = None) -> NDArray[np.int64]:
        """Return the rows of images with an object whose centre is in a cell of the heat map."""
        return self._rows((self.column == column) & (self.row == row) & self._is_class(class_name))

    def images_with_area(self, area_bin: int, class_name: str | None = None) -> NDArray[np.int64]:
        """Return the rows of images with an object in a bin of `AREA_SHARES`."""
        return self._rows((self.area_bin == area_bin) & self._is_class(class_name))

    def images_with_count(self, low: int, high: int | None) -> NDArray[np.int64]:
        """Return the rows of images with at least `low`, and fewer than `high`, objects."""
        import numpy as np

        counts = self.counts()
        return np.flatnonzero((counts >= low) & (True if high is None else counts < high))

    def counts(self) -> NDArray[np.int64]:
        """Return the number of objects of each image."""
        import numpy as np

        return np.bincount(self.image_row[self.image_row >= 0], minlength=self.images.num_rows)

    def _is_class(self, class_name: str | None) -> Any:
        if class_name is None:
            return True
        if class_name not in self.class_names:
            return False
        return self.class_code == self.class_names.index(class_name)

    def _rows(self, kept: NDArray[np.bool_]) -> NDArray[np.int64]:
        import numpy as np

        return np.unique(self.image_row[kept & (self.image_row >= 0)])


def place_objects(dataset: Dataset) -> PlacedObjects:
    """Read the annotations of a version, and find where each is in its image. Needs no image files."""
    import numpy as np
    import pyarrow.compute as pc

    images = read_columns(dataset, IMAGES, ["path", "width", "height", "split"])
    rows = read_columns(dataset, ANNOTATIONS, _GEOMETRY)
    found = pc.index_in(rows["image"], value_set=images["path"].combine_chunks())
    image_row = found.fill_null(-1).to_numpy().astype(np.int64)
    encoded = rows["class_name"].combine_chunks().dictionary_encode()
    bounds = _bounds(rows)
    width, height = (images[name].cast("float64").fill_null(0).to_numpy() for name in ("width", "height"))
    is_known = (image_row >= 0) & ~np.isnan(bounds[:, 0])
    wide = np.where(is_known, width[np.where(is_known, image_row, 0)] if len(width) else 0, 0)
    high = np.where(is_known, height[np.where(is_known, image_row, 0)] if len(height) else 0, 0)
    is_known &= (wide > 0) & (high > 0)
    column = _cells(bounds[:, 0] + bounds[:, 2] / 2, wide, is_known)
    row = _cells(bounds[:, 1] + bounds[:, 3] / 2, high, is_known)
    with np.errstate(invalid="ignore", divide="ignore"):
        share = bounds[:, 2] * bounds[:, 3] / (wide * high)
    bins = np.searchsorted(AREA_SHARES, np.where(is_known, share, 0), side="right") - 1
    area_bin = np.where(is_known, bins, _NONE).astype(np.uint8)
    codes = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int32)
    return PlacedObjects(images, encoded.dictionary.to_pylist(), image_row, codes, column, row, area_bin)


def describe_labels(placed: PlacedObjects, version: str) -> LabelDistributions:
    """Count the objects and images of a version."""
    import numpy as np

    split_column = placed.images["split"].fill_null("").combine_chunks().dictionary_encode()
    names: list[str] = split_column.dictionary.to_pylist()
    order = sorted(range(len(names)), key=lambda at: (names[at] == "", _split_rank(names[at]), names[at]))
    places = np.empty(max(len(names), 1), np.int64)
    places[order] = np.arange(len(order))
    split_of = places[split_column.indices.to_numpy(zero_copy_only=False)]
    splits, classes = len(names), len(placed.class_names)
    is_bound = placed.image_row >= 0
    codes, image_rows = placed.class_code[is_bound].astype(np.int64), placed.image_row[is_bound]
    objects = np.bincount(codes * splits + split_of[image_rows], minlength=classes * splits).reshape(classes, splits)
    pairs = np.unique(codes * max(placed.images.num_rows, 1) + image_rows)
    pair_class, pair_image = np.divmod(pairs, max(placed.images.num_rows, 1))
    pair_counts = np.bincount(pair_class * splits + split_of[pair_image], minlength=classes * splits)
    in_images = pair_counts.reshape(classes, splits)
    by_count = sorted(range(classes), key=lambda at: (-int(objects[at].sum()), placed.class_names[at]))
    sizes, unsized = _sizes(placed.images)
    heat = _heat(placed, None)
    return LabelDistributions(
        version=version,
        images=placed.images.num_rows,
        objects=len(placed.image_row),
        splits=tuple(names[at] for at in order),
        images_by_split=_counts(np.bincount(split_of, minlength=splits)),
        classes=tuple(
            ClassCounts(placed.class_names[at], _counts(objects[at]), _counts(in_images[at])) for at in by_count
        ),
        objects_per_image=_object_counts(placed),
        sizes=sizes,
        aspects=_aspects(placed.images),
        unsized_images=unsized,
        areas=tuple(
            CountBin(low, AREA_SHARES[at + 1] if at + 1 < len(AREA_SHARES) else None, int(count))
            for at, (low, count) in enumerate(
                zip(AREA_SHARES, np.bincount(placed.area_bin, minlength=_NONE + 1), strict=False)
            )
        ),
        heat_cells=HEAT_CELLS,
        heat=heat,
        heat_by_class={placed.class_names[at]: _heat(placed, at) for at in by_count[:_HEAT_CLASSES]},
        unplaced=len(placed.image_row) - sum(heat),
        paired=tuple(placed.class_names[at] for at in by_count[:_PAIRED_CLASSES]),
        together=_together(by_count[:_PAIRED_CLASSES], pair_class, pair_image),
    )


_GEOMETRY = (
    "image", "id", "kind", "class_name", "box", "rotation", "polygon", "mask_size", "mask_counts", "keypoints",
    "attributes",
)  # fmt: skip


def _split_rank(name: str) -> int:
    usual = ("train", "training", "val", "valid", "validation", "test")
    return usual.index(name) if name in usual else len(usual)


def _bounds(rows: pa.Table) -> NDArray[np.float64]:
    """Return x, y, width and height of each annotation; NaN without bounds. Boxes and lines are not parsed each."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    bounds = np.full((rows.num_rows, 4), np.nan)
    is_turned = pc.not_equal(rows["rotation"].fill_null(0), 0)
    is_box = pc.and_(pc.equal(rows["kind"], "box"), pc.invert(is_turned)).to_numpy()
    boxes = rows["box"].combine_chunks().filter(is_box)
    values = pc.list_flatten(boxes).to_numpy(zero_copy_only=False)
    if len(values) != 4 * int(is_box.sum()):
        raise BadInputError("an annotation of the kind 'box' has not four numbers", hint="Run `warp verify`.")
    bounds[is_box] = values.reshape(-1, 4)
    is_line = pc.is_in(rows["kind"], value_set=pa.array(["polygon", "polyline"])).to_numpy()
    bounds[is_line] = _line_bounds(rows["polygon"].combine_chunks().filter(is_line))
    others = np.flatnonzero(~is_box & ~is_line & pc.not_equal(rows["kind"], "label").to_numpy())
    for start in range(0, len(others), 1000):
        part = others[start : start + 1000]
        for number, row in zip(part.tolist(), rows.take(part).to_pylist(), strict=True):
            found = bounds_of(annotation_of(row))
            if found is not None:
                bounds[number] = found
    return bounds


def _line_bounds(shapes: pa.ListArray) -> NDArray[np.float64]:
    """Return the bounds of polygons and lines, each a list of lists of x and y in turn."""
    import numpy as np

    bounds = np.full((len(shapes), 4), np.nan)
    lines = shapes.values
    offsets = lines.offsets.to_numpy()[shapes.offsets.to_numpy()]
    numbers = lines.values.to_numpy(zero_copy_only=False)
    filled = np.flatnonzero(np.diff(offsets) >= 2)
    if len(filled):
        ends = np.stack([offsets[filled], offsets[filled + 1]], 1).reshape(-1) // 2
        for axis in range(2):
            values = np.append(numbers[axis::2], 0.0)  # so that the last end is a place of the array
            low, high = np.minimum.reduceat(values, ends)[::2], np.maximum.reduceat(values, ends)[::2]
            bounds[filled, axis], bounds[filled, axis + 2] = low, high - low
    return bounds


def _cells(centre: NDArray[Any], length: NDArray[Any], is_known: NDArray[np.bool_]) -> NDArray[np.uint8]:
    """Return the cells of centres along one side. A centre outside of the image is in the cell at its edge."""
    import numpy as np

    share = np.where(is_known, centre, 0) / np.where(is_known, length, 1)
    return np.where(is_known, np.clip(share * HEAT_CELLS, 0, HEAT_CELLS - 1), _NONE).astype(np.uint8)


def _heat(placed: PlacedObjects, code: int | None) -> tuple[int, ...]:
    import numpy as np

    kept = placed.column != _NONE
    if code is not None:
        kept &= placed.class_code == code
    cells = placed.row[kept].astype(np.int64) * HEAT_CELLS + placed.column[kept]
    return _counts(np.bincount(cells, minlength=HEAT_CELLS**2))


def _object_counts(placed: PlacedObjects) -> tuple[CountBin, ...]:
    """Return how many images have how many objects. Bins above the fullest image are left out."""
    import numpy as np

    counts = placed.counts()
    ends = [end for end in _COUNT_ENDS if end <= max(int(counts.max(initial=0)), 1)]
    found = np.bincount(np.searchsorted(ends, counts, side="right") - 1, minlength=len(ends))
    highs: list[int | None] = [_COUNT_ENDS[at + 1] if at + 1 < len(_COUNT_ENDS) else None for at in range(len(ends))]
    return tuple(CountBin(low, high, int(count)) for low, high, count in zip(ends, highs, found, strict=True))


def _sizes(images: pa.Table) -> tuple[tuple[ShapeBin, ...], int]:
    """Return the most frequent sizes, and the number of images without a size."""
    counted = images.group_by(["width", "height"]).aggregate([([], "count_all")]).to_pylist()
    known = [one for one in counted if one["width"] is not None and one["height"] is not None]
    known.sort(key=lambda one: (-one["count_all"], one["width"], one["height"]))
    shapes = tuple(
        ShapeBin(
            f"{one['width']} × {one['height']}",
            f"width = {one['width']} AND height = {one['height']}",
            one["count_all"],
        )
        for one in known[:_SIZES]
    )
    return shapes, images.num_rows - sum(one["count_all"] for one in known)


def _aspects(images: pa.Table) -> tuple[ShapeBin, ...]:
    """Return the shapes of images from tall to wide, compared in whole numbers. Shapes without images are left out."""
    import numpy as np

    sized = images.select(["width", "height"]).drop_null()
    width, height = (sized[name].to_numpy().astype(np.int64) for name in ("width", "height"))
    square = ASPECTS.index((1, 1))
    found = [ShapeBin("square", "width = height", int((width == height).sum()))]
    low: tuple[int, int] | None = None
    bins: list[ShapeBin] = []
    for at, high in enumerate([*ASPECTS, None]):
        kept, conditions = np.ones(len(width), bool), []
        if low is not None:
            is_open = low == (1, 1)
            kept &= width * low[1] > height * low[0] if is_open else width * low[1] >= height * low[0]
            conditions.append(f"{_times('width', low[1])} {'>' if is_open else '>='} {_times('height', low[0])}")
        if high is not None:
            kept &= width * high[1] < height * high[0]
            conditions.append(f"{_times('width', high[1])} < {_times('height', high[0])}")
        bins.append(ShapeBin(_name(low, high), " AND ".join(conditions), int(kept.sum())))
        if at == square:
            bins += found
        low = high
    return tuple(one for one in bins if one.count)


def _name(low: tuple[int, int] | None, high: tuple[int, int] | None) -> str:
    if low is None or high is None:
        end = low or high
        assert end is not None
        return f"{'from' if high is None else 'under'} {end[0]}:{end[1]}"
    return f"{low[0]}:{low[1]} to {high[0]}:{high[1]}"


def _times(column: str, factor: int) -> str:
    return column if factor == 1 else f"{column} * {factor}"


def _together(
    chosen: list[int], pair_class: NDArray[np.int64], pair_image: NDArray[np.int64]
) -> tuple[tuple[int, ...], ...]:
    """Count the images that have both of two classes."""
    import numpy as np

    sets = [pair_image[pair_class == code] for code in chosen]  # ascending, because the pairs are
    counts = [[len(np.intersect1d(one, two, assume_unique=True)) for two in sets] for one in sets]
    return tuple(tuple(row) for row in counts)


def _counts(array: NDArray[Any]) -> tuple[int, ...]:
    return tuple(int(count) for count in array)
