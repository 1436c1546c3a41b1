"""Annotations of COCO as columns: what almost all of them are, without an object of the model for each.

Boxes, polygons and masks with the members of COCO are parsed into typed records, a chunk at a time, and checked as
arrays. Everything else goes through `coco_annotation`, one at a time, so that both ways give the same rows and errors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, compress
from typing import TYPE_CHECKING, Any

import msgspec

from warpdata.errors import BadInputError
from warpdata.formats.labels.annotations import Annotation, Mask, geometry_columns
from warpdata.formats.labels.columns import geometry_schema
from warpdata.formats.labels.geometry import bounds_of
from warpdata.formats.labels.point_arrays import point_bounds, polygon_areas
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


_NONE = _Object(image_id="", category_id="", keypoints=[0.0])
_decode = msgspec.json.Decoder(_Object).decode
_decode_list = msgspec.json.Decoder(list[_Object]).decode

Parse = Callable[[int], "tuple[int, Annotation] | None"]
"""Returns the number of the image and the annotation of one object by its number; None if it is listed as lost."""


Columns = Callable[["_Rows"], "tuple[_Rows, dict[str, pa.Array], list[str | None]]"]


@dataclass(frozen=True, slots=True)
class _Rows:
    """Objects of one kind, with their numbers and those of their images and classes."""

    objects: list[_Object]
    numbers: NDArray[np.int64]
    images: NDArray[np.int64]
    classes: NDArray[np.int64]

    def without(self, odd: Any) -> _Rows:
        """Return the rows that are not odd."""
        import numpy as np

        kept = ~np.asarray(odd, bool)
        if kept.all():
            return self
        objects = list(compress(self.objects, kept.tolist()))
        return _Rows(objects, self.numbers[kept], self.images[kept], self.classes[kept])


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
        self._places: list[tuple[NDArray[np.int64], NDArray[np.int64]]] = []

    def read(self, raws: Sequence[msgspec.Raw]) -> tuple[pa.Table, NDArray[np.int64]]:
        """Return all rows, and where those of each image begin."""
        import numpy as np
        import pyarrow as pa

        for first in range(0, len(raws), _CHUNK):
            self._add_chunk(raws[first : first + _CHUNK], first)
        rows = pa.concat_tables([geometry_schema().empty_table(), *self._tables])
        images, numbers = (
            np.concatenate([np.zeros(0, np.int64), *each])
            for each in (zip(*self._places, strict=True) if self._places else ((), ()))
        )
        self._tables = []
        order = np.lexsort((numbers, images))
        starts = np.searchsorted(images[order], np.arange(len(self._images) + 1))
        return rows if (np.diff(order) == 1).all() else rows.take(as_arrow(order)), starts

    def _add_chunk(self, raws: Sequence[msgspec.Raw], first: int) -> None:
        import numpy as np

        found = _typed(raws)
        kinds = _kinds_of(found)
        image_of, class_of = self._images.get, self._classes.get
        images = np.array([image_of(one.image_id, -1) for one in found], np.int64)
        classes = np.array([class_of(one.category_id, -1) for one in found], np.int64)
        kinds[(images < 0) | (classes < 0)] = _ODD_KIND
        odd = (np.flatnonzero(kinds == _ODD_KIND) + first).tolist()
        for number, (kind, columns) in enumerate(_KINDS):
            chosen = np.flatnonzero(kinds == number)
            if len(chosen):
                objects = found if len(chosen) == len(found) else [found[index] for index in chosen.tolist()]
                rows = _Rows(objects, chosen + first, images[chosen], classes[chosen])
                odd += self._add(rows, kind, columns)
        self._add_odd(sorted(odd))

    def _add(self, rows: _Rows, kind: str, columns: Columns) -> list[int]:
        """Add rows of one kind, and return the numbers of objects that need to be parsed one at a time."""
        import numpy as np
        import pyarrow as pa

        kept, made, attributes = columns(rows)
        if kept.objects:
            count = len(kept.objects)
            made["kind"] = pa.repeat(pa.scalar(kind), count)
            made["class_name"] = pa.array(self._names, pa.string()).take(as_arrow(kept.classes))
            made["attributes"] = _texts(attributes)
            schema = geometry_schema()
            arrays = [made[one.name] if one.name in made else pa.nulls(count, one.type) for one in schema]
            self._tables.append(pa.Table.from_arrays(arrays, schema=schema))
            self._places.append((kept.images, kept.numbers))
        found: list[int] = np.setdiff1d(rows.numbers, kept.numbers, assume_unique=True).tolist()
        return found

    def _add_odd(self, numbers: Sequence[int]) -> None:
        import numpy as np
        import pyarrow as pa

        parsed = [(number, found) for number in numbers if (found := self._parse(number)) is not None]
        if parsed:
            rows = [geometry_columns(one) for _, (_, one) in parsed]
            self._tables.append(pa.Table.from_pylist(rows, geometry_schema()))
            images = np.array([image for _, (image, _) in parsed], np.int64)
            self._places.append((images, np.array([number for number, _ in parsed], np.int64)))


def _kinds_of(objects: Sequence[_Object]) -> NDArray[np.int8]:
    """Return the number of the kind of each object."""
    import numpy as np

    if not any(one.segmentation or one.keypoints for one in objects):
        return np.zeros(len(objects), np.int8)
    return np.array([_kind_of(one) for one in objects], np.int8)


def _kind_of(one: _Object) -> int:
    if one.keypoints:
        return _ODD_KIND
    if not one.segmentation:
        return 0
    return 1 if isinstance(one.segmentation, list) else 2


def _texts(texts: list[str | None]) -> pa.Array:
    import pyarrow as pa

    return pa.array(texts, pa.string()) if any(texts) else pa.nulls(len(texts), pa.string())


def _typed(raws: Sequence[msgspec.Raw]) -> list[_Object]:
    """Return the objects as typed records; for one with other members `_NONE`, which is odd."""
    try:
        return _decode_list(b"[" + b",".join(raws) + b"]")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return [_typed_or_none(raw) for raw in raws]


def _typed_or_none(raw: msgspec.Raw) -> _Object:
    try:
        return _decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _NONE


def _box_columns(rows: _Rows) -> tuple[_Rows, dict[str, pa.Array], list[str | None]]:
    import numpy as np

    rows = rows.without([len(one.bbox or ()) != 4 for one in rows.objects])
    try:
        boxes = np.fromiter(chain.from_iterable(one.bbox or () for one in rows.objects), np.float64).reshape(-1, 4)
    except OverflowError:  # an integer that no float holds
        return rows.without([True] * len(rows.objects)), {}, []
    is_odd = (np.abs(boxes) >= _EXACT_INTEGERS).any(axis=1) | (boxes[:, 2:] < 0).any(axis=1)
    rows, boxes = rows.without(is_odd), boxes[~is_odd]
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
    stated = [math.nan if one.area is None or abs(one.area) >= _EXACT_INTEGERS else one.area for one in rows.objects]
    areas = polygon_areas(points, ring_ends // 2, counts, np.array(stated)).tolist()
    bounds = point_bounds(points, ring_ends[counts] // 2).tolist()
    texts: list[str | None] = [
        _attributes(one, area, tuple(box)) for one, area, box in zip(rows.objects, areas, bounds, strict=True)
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


def _lists(offsets: Any, values: Any) -> pa.Array:
    import numpy as np
    import pyarrow as pa

    inner = values if isinstance(values, pa.Array) else array_of(values, pa.from_numpy_dtype(values.dtype))
    data = pa.py_buffer(np.asarray(offsets, np.int32))
    return pa.Array.from_buffers(pa.list_(inner.type), len(offsets) - 1, [None, data], children=[inner])


_KINDS: tuple[tuple[str, Columns], ...] = (
    ("box", _box_columns),
    ("polygon", _polygon_columns),
    ("mask", _mask_columns),
)
_ODD_KIND = len(_KINDS)
