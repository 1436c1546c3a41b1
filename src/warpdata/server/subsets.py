"""Subsets: rows of a table that no filter can express, named by a text that fits into an address.

A filter has conditions on one row of one table. A subset follows from other tables or from an analysis: the images
with an object in a part of the picture, those with findings of a check, or the rows inside a region of a map. The text
is a kind and its parts, percent-encoded and separated by colons:

    row:NUMBER                     one row of this version
    class:NAME                     images with an annotation of this class
    cell:COLUMN:ROW[:CLASS]        images with an object whose centre is in a cell of the heat map
    area:BIN[:CLASS]               images with an object in a bin of shares of the image
    objects:LOW:HIGH               images with at least LOW and fewer than HIGH objects; HIGH may be empty
    quality:CHECK[:BITS]           images with findings of a check of labels
    leak:CHECK:SPLIT:SPLIT[:BITS]  images with a double in the other split
    map:COLUMN:POLYGON             rows inside a polygon of the map of a column of vectors

A polygon is base64url of x and y in turn, as unsigned 16-bit numbers in little-endian order.
"""

from __future__ import annotations

import base64
from binascii import Error as Base64Error
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote

from warpdata.collections import AREA_SHARES, HEAT_CELLS, QUALITY_CHECKS
from warpdata.datasets import Dataset
from warpdata.errors import BadInputError, NotFoundError
from warpdata.kinds.tables import Table
from warpdata.repository.rows import RowSelection
from warpdata.server.analyses import Quality, find_map, find_quality, placed_objects
from warpdata.server.image_classes import rows_with_class
from warpdata.server.service import Service

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["MAX_SUBSETS", "MAX_SUBSET_LENGTH", "no_map", "no_quality", "subset_rows"]

MAX_SUBSETS = 8
MAX_SUBSET_LENGTH = 4096
MAX_POLYGON_POINTS = 512
_MAX_NUMBER = 2**53


@dataclass(frozen=True, slots=True)
class _Place:
    """The table of a version whose rows are wanted."""

    service: Service
    dataset: Dataset
    table: Table


def subset_rows(service: Service, dataset: Dataset, table: Table, text: str) -> RowSelection:
    """Return the rows of a subset. Found once for a version."""
    kind, _, rest = text.partition(":")
    find = _KINDS.get(kind)
    if find is None or len(text) > MAX_SUBSET_LENGTH:
        raise _bad(text, f"its kind is none of {', '.join(_KINDS)}")
    key = (dataset.id, dataset.version, table.name, "subset", text)
    found = service.selections.get(key)
    if found is None:
        found = find(_Place(service, dataset, table), [unquote(part) for part in rest.split(":")])
        service.selections.put(key, found, 8 * len(found) + len(text))
    return found


def no_map(column: str) -> NotFoundError:
    """Return the error for a map that no job has computed yet."""
    return NotFoundError(f"the map of {column!r} is not computed", hint="Start an analysis of the kind 'map'.")


def no_quality() -> NotFoundError:
    """Return the error for checks that no job has made yet."""
    return NotFoundError("the labels are not checked", hint="Start an analysis of the kind 'quality'.")


def _row(at: _Place, parts: list[str]) -> RowSelection:
    (number,) = _numbers(parts, 1)
    return RowSelection.all_rows(1, number) if number < at.table.unfiltered_count else RowSelection.all_rows(0)


def _class(at: _Place, parts: list[str]) -> RowSelection:
    return rows_with_class(at.service, at.dataset, at.table, ":".join(parts))


def _cell(at: _Place, parts: list[str]) -> RowSelection:
    column, row = _numbers(parts[:2], 2)
    if max(column, row) >= HEAT_CELLS:
        raise _bad("cell", f"a column and a row are below {HEAT_CELLS}")
    placed = placed_objects(at.service, _of_images(at))
    return RowSelection.of_numbers(placed.images_at(column, row, _optional(parts, 2)))


def _area(at: _Place, parts: list[str]) -> RowSelection:
    (area_bin,) = _numbers(parts[:1], 1)
    if area_bin >= len(AREA_SHARES):
        raise _bad("area", f"a bin is below {len(AREA_SHARES)}")
    placed = placed_objects(at.service, _of_images(at))
    return RowSelection.of_numbers(placed.images_with_area(area_bin, _optional(parts, 1)))


def _objects(at: _Place, parts: list[str]) -> RowSelection:
    if len(parts) != 2:
        raise _bad("objects", "it takes two numbers")
    (low,) = _numbers(parts[:1], 1)
    high = _numbers(parts[1:], 1)[0] if parts[1] else None
    placed = placed_objects(at.service, _of_images(at))
    return RowSelection.of_numbers(placed.images_with_count(low, high))


def _quality(at: _Place, parts: list[str]) -> RowSelection:
    if parts[0] not in QUALITY_CHECKS:
        raise _bad("quality", f"the checks are {', '.join(QUALITY_CHECKS)}")
    return _of_list(_checked(at.service, _of_images(at), parts, 1).rows[parts[0]])


def _leak(at: _Place, parts: list[str]) -> RowSelection:
    if len(parts) < 3:
        raise _bad("leak", "it takes a check and two splits")
    check, *splits = parts[:3]
    checked = _checked(at.service, _of_images(at), parts, 3)
    wanted = (check, *sorted(splits))
    return _of_list(next((leak[4] for leak in checked.leaks if leak[:3] == wanted), []))


def _map(at: _Place, parts: list[str]) -> RowSelection:
    if len(parts) != 2:
        raise _bad("map", "it takes a column and a polygon")
    polygon = _polygon(parts[1])
    found = find_map(at.service, at.dataset, at.table.name, parts[0])
    if found is None:
        raise no_map(parts[0])
    return RowSelection.of_numbers(found.inside(polygon))


_KINDS: dict[str, Callable[[_Place, list[str]], RowSelection]] = {
    "row": _row,
    "class": _class,
    "cell": _cell,
    "area": _area,
    "objects": _objects,
    "quality": _quality,
    "leak": _leak,
    "map": _map,
}


def _polygon(text: str) -> NDArray[np.int64]:
    import numpy as np

    try:
        data = base64.b64decode(text + "=" * (-len(text) % 4), b"-_", validate=True)
    except (ValueError, Base64Error):
        raise _bad("map", "its polygon is not base64url") from None
    count, odd = divmod(len(data), 4)
    if odd or not 3 <= count <= MAX_POLYGON_POINTS:
        raise _bad("map", f"a polygon has 3 to {MAX_POLYGON_POINTS} points of 4 bytes")
    return np.frombuffer(data, "<u2").astype(np.int64).reshape(-1, 2)


def _checked(service: Service, dataset: Dataset, parts: list[str], at: int) -> Quality:
    bits = _optional(parts, at)
    found = find_quality(service, dataset, None if bits is None else _numbers([bits], 1)[0])
    if found is None:
        raise no_quality()
    return found


def _of_images(place: _Place) -> Dataset:
    if place.table.name != "images":
        raise BadInputError(f"this subset is for the table 'images', not {place.table.name!r}")
    return place.dataset


def _of_list(rows: list[int]) -> RowSelection:
    import numpy as np

    return RowSelection.of_numbers(np.array(rows, np.int64))


def _numbers(parts: list[str], count: int) -> list[int]:
    if len(parts) != count or not all(part.isascii() and part.isdecimal() and len(part) < 17 for part in parts):
        raise _bad(":".join(parts), f"it takes {count} whole numbers")
    return [min(int(part), _MAX_NUMBER) for part in parts]


def _optional(parts: list[str], at: int) -> str | None:
    return parts[at] if len(parts) > at else None


def _bad(text: str, why: str) -> BadInputError:
    return BadInputError(f"the subset {text[:100]!r} cannot be read: {why}", hint="See the API reference for subsets.")
