"""Annotations of COCO as columns: what almost all of them are, without an object of the model for each.

Boxes, polygons and masks with the members of COCO are parsed into typed records, a chunk at a time, and checked as
arrays. Everything else goes through `coco_annotation`, one at a time, so that both ways give the same rows and errors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, compress, pairwise
from typing import TYPE_CHECKING, Any

import msgspec

from warpdata.errors import BadInputError
from warpdata.formats.labels.annotations import Annotation, Mask, geometry_columns
from warpdata.formats.labels.columns import geometry_schema
from warpdata.formats.labels.geometry import bounds_of
from warpdata.limits import MAX_ANNOTATION_POINTS
from warpdata.primitives.arrow_buffers import array_of, as_arrow

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

__all__ = ["CocoColumns"]

_CHUNK = 20_000
_EXACT_INTEGERS = 2**53
"""Integers below are equal to their floats, and have a place in attributes."""
_ODD = ""
"""The attributes of an object that needs to be parsed by itself."""
_CERTAIN = 1e-9
"""Sums in another order differ by less than this part of the sum of all magnitudes."""


class _Runs(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    size: list[int]
    counts: str | list[int]


class _Object(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """An annotation with the members of COCO only. Numbers keep their type where they may become attributes."""

    image_id: int | str
    category_id: int | str
    bbox: list[int | float] | None = None
    segmentation: list[list[float]] | _Runs | None = None
    area: int | float | None = None
    iscrowd: int | None = None
    keypoints: list[float] | None = None
    num_keypoints: int | None = None
    id: int | float | str | None = None


_decode = msgspec.json.Decoder(_Object).decode
_decode_list = msgspec.json.Decoder(list[_Object]).decode

Parse = Callable[[int], "tuple[int, Annotation] | None"]
"""Returns the number of the image and the annotation of one object by its number; None if it is listed as lost."""


@dataclass(slots=True)
class _Rows:
    """Rows of one kind: the numbers of their objects and images, of their classes, and attributes."""

    objects: list[_Object] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    images: list[int] = field(default_factory=list)
    classes: list[int] = field(default_factory=list)

    def add(self, one: _Object, number: int, image: int, class_number: int) -> None:
        self.objects.append(one)
        self.numbers.append(number)
        self.images.append(image)
        self.classes.append(class_number)

    def without(self, odd: Sequence[Any]) -> _Rows:
        """Return the rows that are not odd."""
        if not any(odd):
            return self
        kept = [not is_odd for is_odd in odd]
        return _Rows(
            list(compress(self.objects, kept)),
            list(compress(self.numbers, kept)),
            list(compress(self.images, kept)),
            list(compress(self.classes, kept)),
        )


class CocoColumns:
    """Parses the annotations of a document into rows in the order of its images.

    `images` has the numbers of ids, and `classes` the names. `parse` returns the annotation of an object that has no
    fast way.
    """

    def __init__(self, images: Mapping[Any, int], classes: Mapping[Any, str], parse: Parse) -> None:
        self._images = images
        self._classes = {key: number for number, key in enumerate(classes)}
        self._names = list(classes.values())
        self._parse = parse
        self._tables: list[pa.Table] = []
        self._places: list[tuple[Sequence[int], Sequence[int]]] = []

    def read(self, raws: Sequence[msgspec.Raw]) -> tuple[pa.Table, NDArray[np.int64]]:
        """Return all rows, and where those of each image begin."""
        import numpy as np
        import pyarrow as pa

        for first in range(0, len(raws), _CHUNK):
            self._add_chunk(raws[first : first + _CHUNK], first)
        rows = pa.concat_tables([geometry_schema().empty_table(), *self._tables])
        images, numbers = (
            np.concatenate([np.zeros(0, np.int64), *(np.asarray(one, np.int64) for one in each)])
            for each in (zip(*self._places, strict=True) if self._places else ((), ()))
        )
        self._tables = []
        order = np.lexsort((numbers, images))
        starts = np.searchsorted(images[order], np.arange(len(self._images) + 1))
        return rows if (np.diff(order) == 1).all() else rows.take(as_arrow(order)), starts

    def _add_chunk(self, raws: Sequence[msgspec.Raw], first: int) -> None:
        boxes, polygons, masks, odd = _Rows(), _Rows(), _Rows(), list[int]()
        for number, one in enumerate(_typed(raws), first):
            image = None if one is None else self._images.get(one.image_id)
            class_number = None if one is None else self._classes.get(one.category_id)
            if one is None or image is None or class_number is None or one.keypoints:
                odd.append(number)
            elif not one.segmentation:
                boxes.add(one, number, image, class_number)
            else:
                drawn = polygons if isinstance(one.segmentation, list) else masks
                drawn.add(one, number, image, class_number)
        odd += self._add(boxes, "box", _box_columns)
        odd += self._add(polygons, "polygon", _polygon_columns)
        odd += self._add(masks, "mask", _mask_columns)
        self._add_odd(sorted(odd))

    def _add(self, rows: _Rows, kind: str, columns: Columns) -> list[int]:
        """Add rows of one kind, and return the numbers of objects that need to be parsed one at a time."""
        import pyarrow as pa

        if not rows.objects:
            return []
        kept, made, attributes = columns(rows)
        odd = set(rows.numbers) - set(kept.numbers)
        if kept.objects:
            count = len(kept.objects)
            made["kind"] = pa.repeat(pa.scalar(kind), count)
            made["class_name"] = pa.array(self._names, pa.string()).take(array_of(kept.classes, pa.int32()))
            made["attributes"] = pa.array(attributes, pa.string())
            schema = geometry_schema()
            arrays = [made[one.name] if one.name in made else pa.nulls(count, one.type) for one in schema]
            self._tables.append(pa.Table.from_arrays(arrays, schema=schema))
            self._places.append((kept.images, kept.numbers))
        return list(odd)

    def _add_odd(self, numbers: Sequence[int]) -> None:
        import pyarrow as pa

        parsed = [(number, found) for number in numbers if (found := self._parse(number)) is not None]
        if parsed:
            rows = [geometry_columns(one) for _, (_, one) in parsed]
            self._tables.append(pa.Table.from_pylist(rows, geometry_schema()))
            self._places.append(([image for _, (image, _) in parsed], [number for number, _ in parsed]))


Columns = Callable[[_Rows], "tuple[_Rows, dict[str, pa.Array], list[str | None]]"]


def _typed(raws: Sequence[msgspec.Raw]) -> Sequence[_Object | None]:
    """Return the objects that are typed records, and None for others."""
    try:
        return _decode_list(b"[" + b",".join(raws) + b"]")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return [_typed_or_none(raw) for raw in raws]


def _typed_or_none(raw: msgspec.Raw) -> _Object | None:
    try:
        return _decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _box_columns(rows: _Rows) -> tuple[_Rows, dict[str, pa.Array], list[str | None]]:
    import numpy as np

    rows = rows.without([len(one.bbox or ()) != 4 for one in rows.objects])
    try:
        boxes = np.fromiter(chain.from_iterable(one.bbox or () for one in rows.objects), np.float64).reshape(-1, 4)
    except OverflowError:  # an integer that no float holds
        return _Rows(), {}, []
    is_odd = (np.abs(boxes) >= _EXACT_INTEGERS).any(axis=1) | (boxes[:, 2:] < 0).any(axis=1)
    rows, boxes = rows.without(is_odd.tolist()), boxes[~is_odd]
    areas = (boxes[:, 2] * boxes[:, 3]).tolist()
    texts: list[str | None] = [
        None if one.area == area and not one.iscrowd else _attributes(one, area, None)
        for one, area in zip(rows.objects, areas, strict=True)
    ]
    odd = [text == _ODD for text in texts]
    if any(odd):
        boxes = boxes[~np.array(odd)]
        rows, texts = rows.without(odd), [text for text in texts if text != _ODD]
    return rows, {"box": _lists(np.arange(len(rows.objects) + 1) * 4, boxes.ravel())}, texts


def _polygon_columns(rows: _Rows) -> tuple[_Rows, dict[str, pa.Array], list[str | None]]:
    import numpy as np

    rows = rows.without([not _is_polygon(one) for one in rows.objects])
    if not rows.objects:
        return rows, {}, []
    rings = [ring for one in rows.objects for ring in _rings(one)]
    values = np.fromiter(chain.from_iterable(rings), np.float64)
    ring_ends = np.cumsum([0, *map(len, rings)])
    counts = np.cumsum([0, *(len(_rings(one)) for one in rows.objects)])
    points = values.reshape(-1, 2)
    areas, bounds = _polygon_areas(points, ring_ends // 2, counts, rows), _point_bounds(points, ring_ends[counts] // 2)
    texts: list[str | None] = [
        _attributes(one, area, box) for one, area, box in zip(rows.objects, areas, bounds, strict=True)
    ]
    odd = [text == _ODD for text in texts]
    if any(odd):
        return _polygon_columns(rows.without(odd))
    return rows, {"polygon": _lists(counts, _lists(ring_ends, values))}, texts


def _mask_columns(rows: _Rows) -> tuple[_Rows, dict[str, pa.Array], list[str | None]]:
    import numpy as np

    sizes: list[int] = []
    runs: list[Sequence[int]] = []
    texts: list[str | None] = []
    odd: list[bool] = []
    for one in rows.objects:
        assert isinstance(one.segmentation, _Runs)
        try:
            mask = Mask("mask", {"size": one.segmentation.size, "counts": one.segmentation.counts})
        except BadInputError:
            odd.append(True)
            continue
        text = _attributes(one, float(sum(mask.counts[1::2])), bounds_of(mask) or (0, 0, 0, 0))
        odd.append(text == _ODD)
        if text != _ODD:
            sizes += mask.size
            runs.append(mask.counts)
            texts.append(text)
    counts = np.fromiter(chain.from_iterable(runs), np.int64)
    made = {
        "mask_size": _lists(np.arange(len(runs) + 1) * 2, np.array(sizes, np.int32)),
        "mask_counts": _lists(np.cumsum([0, *map(len, runs)]), counts),
    }
    return rows.without(odd), made, texts


def _attributes(one: _Object, area: float, bounds: tuple[float, ...] | None) -> str | None:
    """Return the members that the geometry does not imply as canonical JSON, or None; `_ODD` for unusual numbers.

    `bounds` is None for a box, whose bounds are its geometry.
    """
    found: list[str] = []
    if area == math.inf:
        return _ODD
    if one.area is not None and one.area != area:
        if abs(one.area) >= _EXACT_INTEGERS:
            return _ODD
        found.append(f'"area":{one.area!r}')
    if bounds is not None and one.bbox and tuple(one.bbox) != bounds:
        if max(map(abs, one.bbox)) >= _EXACT_INTEGERS:
            return _ODD
        found.append(f'"bbox":[{",".join(map(repr, one.bbox))}]')
    if one.iscrowd:
        if abs(one.iscrowd) >= _EXACT_INTEGERS:
            return _ODD
        found.append(f'"iscrowd":{one.iscrowd!r}')
    return "{" + ",".join(found) + "}" if found else None


def _rings(one: _Object) -> list[list[float]]:
    assert isinstance(one.segmentation, list)
    return one.segmentation


def _is_polygon(one: _Object) -> bool:
    sizes = [len(ring) for ring in _rings(one)]
    return min(sizes) >= 6 and not any(size % 2 for size in sizes) and sum(sizes) <= 2 * MAX_ANNOTATION_POINTS


def _polygon_areas(points: Any, ring_ends: Any, counts: Any, rows: _Rows) -> list[float]:
    """Return the areas of polygons; NaN stands for one that certainly is not the area that its object states."""
    import numpy as np

    stated = [math.nan if one.area is None or abs(one.area) >= _EXACT_INTEGERS else one.area for one in rows.objects]
    with np.errstate(all="ignore"):
        following = np.arange(1, len(points) + 1)
        following[ring_ends[1:] - 1] = ring_ends[:-1]
        x, y = points[:, 0], points[:, 1]
        cross = x * y[following] - x[following] * y
        about = np.add.reduceat(np.abs(np.add.reduceat(cross, ring_ends[:-1])) / 2, counts[:-1])
        error = np.add.reduceat(np.abs(cross), ring_ends[counts[:-1]]) * _CERTAIN
        is_near = np.abs(about - np.array(stated, np.float64)) <= error
    areas = np.where(np.isfinite(about) & np.isfinite(error), math.nan, math.inf)
    for number in np.flatnonzero(is_near & np.isnan(areas)).tolist():
        ends = ring_ends[counts[number] : counts[number + 1] + 1].tolist()
        areas[number] = math.fsum(abs(math.fsum(cross[start:end].tolist())) / 2 for start, end in pairwise(ends))
    found: list[float] = areas.tolist()
    return found


def _point_bounds(points: Any, starts: Any) -> list[tuple[float, ...]]:
    """Return left, top, width and height of the points of each annotation."""
    import numpy as np

    least = np.minimum.reduceat(points, starts[:-1])
    with np.errstate(all="ignore"):
        sides = np.maximum.reduceat(points, starts[:-1]) - least
    return list(map(tuple, np.concatenate([least, sides], axis=1).tolist()))


def _lists(offsets: Any, values: Any) -> pa.Array:
    import numpy as np
    import pyarrow as pa

    inner = values if isinstance(values, pa.Array) else array_of(values, pa.from_numpy_dtype(values.dtype))
    data = pa.py_buffer(np.asarray(offsets, np.int32))
    return pa.Array.from_buffers(pa.list_(inner.type), len(offsets) - 1, [None, data], children=[inner])
