"""Images of a collection by the classes of their annotations.

The filter language has conditions on one row of one table. A class is a condition on the rows of `images` that other
rows, those of `annotations`, refer to.
"""

from __future__ import annotations

from warpdata.collections import check_collection
from warpdata.datasets import Dataset
from warpdata.errors import BadInputError
from warpdata.kinds.tables import Table
from warpdata.query import col
from warpdata.repository.rows import RowSelection
from warpdata.server.service import Service

__all__ = ["rows_with_class"]

_IMAGES, _ANNOTATIONS = "images", "annotations"


def rows_with_class(service: Service, dataset: Dataset, table: Table, class_name: str) -> RowSelection:
    """Return the images with an annotation of a class. Evaluated once for a version."""
    check_collection(dataset)
    if table.name != _IMAGES:
        raise BadInputError(f"class_name is for the table {_IMAGES!r}, not {table.name!r}")
    key = (dataset.id, dataset.version, table.name, "class", class_name)
    found = service.selections.get(key)
    if found is None:
        found = _find(dataset, class_name)
        service.selections.put(key, found, 8 * len(found) + len(class_name))
    return found


def _find(dataset: Dataset, class_name: str) -> RowSelection:
    import numpy as np
    import pyarrow.compute as pc

    objects = dataset.table(_ANNOTATIONS).raw().select(["image"]).filter(col("class_name") == class_name)
    wanted = pc.unique(objects.to_arrow(allow_large=True)["image"])
    paths = dataset.table(_IMAGES).raw().select(["path"]).to_arrow(allow_large=True)["path"]
    return RowSelection.of_numbers(np.flatnonzero(pc.is_in(paths, value_set=wanted).to_numpy()))
