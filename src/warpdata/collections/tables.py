"""Tables and names of a collection: the columns of `images` and `annotations`, paths, and rows by path.

Implements "Layout" of docs/specs/collections.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from warpdata.datasets import Dataset
from warpdata.errors import BadInputError
from warpdata.formats.labels import geometry_schema

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "ANNOTATIONS",
    "FILES",
    "IMAGES",
    "annotation_schema",
    "check_collection",
    "image_schema",
    "is_collection",
    "quoted_lists",
    "read_columns",
]

IMAGES, ANNOTATIONS, FILES = "images", "annotations", "images"
"""The tables, and the artifact that has the files."""
_LIST_BYTES = 24_000
"""A list of values in one filter has about this size."""


def image_schema() -> pa.Schema:
    """Return the columns of `images`: one row for each file."""
    import pyarrow as pa

    texts = {name: pa.string() for name in ("path", "hash", "media_type", "split", "author", "time")}
    numbers = {"size_bytes": pa.int64(), "width": pa.int32(), "height": pa.int32()}
    types = {**texts, **numbers, "tags": pa.list_(pa.string())}
    order = ("path", "hash", "size_bytes", "media_type", "width", "height", "split", "tags", "author", "time")
    return pa.schema([pa.field(name, types[name], nullable=name not in ("path", "hash")) for name in order])


def annotation_schema() -> pa.Schema:
    """Return the columns of `annotations`: one row for each object."""
    import pyarrow as pa

    names = [pa.field("image", pa.string(), nullable=False), pa.field("id", pa.string(), nullable=False)]
    return pa.schema([*names, *geometry_schema(), pa.field("author", pa.string()), pa.field("time", pa.string())])


def is_collection(dataset: Dataset) -> bool:
    """Return whether a dataset has the tables and the files of a collection."""
    return not _missing_parts(dataset)


def check_collection(dataset: Dataset) -> Dataset:
    """Return the dataset. `BadInputError` if it has not the tables and the files of a collection."""
    missing = _missing_parts(dataset)
    if missing:
        raise BadInputError(
            f"{dataset.id} is not a collection: it has no {' and no '.join(missing)}",
            hint="Create a collection under another name with wd.create_collection().",
        )
    return dataset


def _missing_parts(dataset: Dataset) -> list[str]:
    missing = [f"table {name!r}" for name in (IMAGES, ANNOTATIONS) if name not in dataset.tables]
    return missing + ([f"artifact {FILES!r}"] if FILES not in dataset.artifacts else [])


def quoted_lists(column: str, values: Sequence[str]) -> Iterator[str]:
    """Yield filters that are true for rows with one of the values, each of bounded length."""
    listed: list[str] = []
    size = 0
    for value in values:
        text = "'" + value.replace("'", "''") + "'"
        if listed and size + len(text) > _LIST_BYTES:
            yield f"{column} IN ({', '.join(listed)})"
            listed, size = [], 0
        listed.append(text)
        size += len(text) + 2
    if listed:
        yield f"{column} IN ({', '.join(listed)})"


def read_columns(dataset: Dataset, table: str, columns: Sequence[str], where: str | None = None) -> pa.Table:
    """Read some columns of a table, with references as they are stored."""
    found = dataset.table(table).raw().select(columns)
    return (found if where is None else found.filter(where)).to_arrow(allow_large=True)
