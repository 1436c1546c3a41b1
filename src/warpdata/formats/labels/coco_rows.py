"""Rows of annotations as objects of COCO: boxes and single outlines, which almost all of them are.

Rows of other kinds, and attributes that are not members of COCO, are left to `object_members`. Both ways write the same
members.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, groupby
from typing import TYPE_CHECKING

import msgspec

from warpdata.formats.labels.columns import LabelBlock
from warpdata.formats.labels.point_arrays import point_bounds, polygon_areas
from warpdata.primitives.arrow_buffers import as_arrow, as_bools, as_numpy

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

__all__ = ["CocoRows", "RowIds"]


class _Members(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """Attributes that have a place in an annotation of COCO."""

    area: int | float | msgspec.UnsetType = msgspec.UNSET
    bbox: list[int | float] | msgspec.UnsetType = msgspec.UNSET
    iscrowd: int | msgspec.UnsetType = msgspec.UNSET
    score: int | float | msgspec.UnsetType = msgspec.UNSET


class _Object(msgspec.Struct, gc=False):
    id: int
    image_id: int
    category_id: int
    bbox: list[int | float]
    area: int | float
    iscrowd: int
    segmentation: list[list[float]]
    score: int | float | msgspec.UnsetType = msgspec.UNSET


_encode = msgspec.json.encode
_decode = msgspec.json.Decoder(_Members).decode


@dataclass(frozen=True, slots=True)
class RowIds:
    """The ids of the first object and of the first image, and those of classes."""

    first_object: int
    first_image: int
    classes: Mapping[str, int]


class CocoRows:
    """The rows of a block, with bounds and areas. Boxes have no outline."""

    def __init__(self, block: LabelBlock) -> None:
        import numpy as np

        self._block = block
        self._odd = ~_are_plain(block.rows)
        self._boxes = np.zeros((block.rows.num_rows, 4))
        self._areas = np.zeros(block.rows.num_rows)
        self._outlines: list[list[list[float]]] = [[]] * block.rows.num_rows
        self._measure_boxes()
        self._measure_outlines()
        self._odd |= ~np.isfinite(self._areas)
        self._own: dict[int, _Members] = {}
        if block.rows["attributes"].null_count < block.rows.num_rows:
            self._parse_attributes()

    def runs(self) -> Iterator[tuple[int, int, bool]]:
        """Yield runs of images: the first, the end, and whether `encode` cannot write their rows."""
        import numpy as np

        odd_images = set(np.searchsorted(self._block.starts, np.flatnonzero(self._odd), side="right").tolist())
        if not odd_images:
            yield 0, len(self._block), False
            return
        for is_odd, numbers in groupby(range(len(self._block)), lambda number: number + 1 in odd_images):
            listed = list(numbers)
            yield listed[0], listed[-1] + 1, is_odd

    def encode(self, first: int, end: int, ids: RowIds) -> bytes:
        """Return the objects of a run of images as JSON, with commas between them. The ids are those of the run."""
        import numpy as np

        starts = self._block.starts[first : end + 1]
        rows = slice(int(starts[0]), int(starts[-1]))
        names = self._block.rows["class_name"].slice(rows.start, rows.stop - rows.start).to_pylist()
        images = np.repeat(np.arange(end - first) + ids.first_image, np.diff(starts)).tolist()
        objects = [
            _Object(number, image, ids.classes[name], box, area, 0, outline)
            for number, (image, name, box, area, outline) in enumerate(
                zip(
                    images,
                    names,
                    self._boxes[rows].tolist(),
                    self._areas[rows].tolist(),
                    self._outlines[rows],
                    strict=True,
                ),
                ids.first_object,
            )
        ]
        if self._own:
            for number, one in enumerate(objects, rows.start):
                if number in self._own:
                    _set_members(one, self._own[number])
        return _encode(objects)[1:-1]

    def _measure_boxes(self) -> None:
        import numpy as np

        boxes = self._block.rows["box"].combine_chunks()
        are_boxes = as_bools(boxes.is_valid())
        self._boxes[are_boxes] = as_numpy(boxes.flatten()).reshape(-1, 4)
        with np.errstate(all="ignore"):
            self._areas[are_boxes] = self._boxes[are_boxes, 2] * self._boxes[are_boxes, 3]

    def _measure_outlines(self) -> None:
        import numpy as np

        polygons = self._block.rows["polygon"].combine_chunks()
        drawn = ~self._odd & as_bools(polygons.is_valid())
        numbers = np.flatnonzero(drawn)
        if not len(numbers):
            return
        found = polygons.take(as_arrow(numbers)).to_pylist()
        points = np.fromiter(chain.from_iterable(rings[0] for rings in found), np.float64).reshape(-1, 2)
        starts = np.cumsum([0, *(len(rings[0]) // 2 for rings in found)])
        self._boxes[numbers] = point_bounds(points, starts)
        self._areas[numbers] = polygon_areas(points, starts, np.arange(len(found) + 1))
        for number, rings in zip(numbers.tolist(), found, strict=True):
            self._outlines[number] = rings

    def _parse_attributes(self) -> None:
        for number, text in enumerate(self._block.rows["attributes"].to_pylist()):
            if text is None or self._odd[number]:
                continue
            try:
                own = _decode(text)
            except msgspec.DecodeError:
                self._odd[number] = True
                continue
            self._own[number] = own
            self._odd[number] = self._is_implied(number, own)

    def _is_implied(self, number: int, own: _Members) -> bool:
        """Return whether an attribute has the value of its member already, or no member of its own."""
        if own.bbox is not msgspec.UNSET and (
            not self._outlines[number] or len(own.bbox) != 4 or own.bbox == self._boxes[number].tolist()
        ):
            return True
        return bool(own.area == self._areas[number]) or own.iscrowd == 0


def _set_members(one: _Object, own: _Members) -> None:
    one.area = one.area if own.area is msgspec.UNSET else own.area
    one.bbox = one.bbox if own.bbox is msgspec.UNSET else own.bbox
    one.iscrowd = one.iscrowd if own.iscrowd is msgspec.UNSET else own.iscrowd
    one.score = own.score


def _are_plain(rows: pa.Table) -> NDArray[np.bool_]:
    """Return which rows are boxes without a rotation, or polygons of one outline."""
    import pyarrow.compute as pc

    has_one_ring = pc.fill_null(pc.equal(pc.list_value_length(rows["polygon"]), 1), False)
    plain = pc.or_(pc.equal(rows["kind"], "box"), pc.and_(pc.equal(rows["kind"], "polygon"), has_one_ring))
    return as_bools(pc.and_(plain, pc.is_null(rows["rotation"])).combine_chunks())
