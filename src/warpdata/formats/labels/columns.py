"""Labels as columns: blocks of images, whose annotations are rows of one Arrow table.

A row has the columns of `geometry_columns`. Large imports and exports move blocks, without an object for each
annotation. A block iterates over the same images as objects.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import msgspec

from warpdata.formats.labels.annotations import annotation_of, geometry_columns
from warpdata.formats.labels.model import FACTS, LabeledImage
from warpdata.primitives.arrow_buffers import as_arrow
from warpdata.primitives.cached_property import cached_property

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

__all__ = ["LabelBlock", "LabelBlocks", "blocks_of", "geometry_schema"]

_BLOCK_IMAGES = 1000
_members = msgspec.json.Decoder(dict[str, msgspec.Raw])


@runtime_checkable
class LabelBlocks(Protocol):
    """Images that are kept as blocks. They can be iterated as objects too."""

    def blocks(self, image_count: int = _BLOCK_IMAGES) -> Iterator[LabelBlock]:
        """Yield the images in order, with at most this number in a block."""
        ...

    def __iter__(self) -> Iterator[LabeledImage]: ...


def geometry_schema() -> pa.Schema:
    """Return the columns of `geometry_columns`, with their types."""
    import pyarrow as pa

    numbers = pa.list_(pa.float64())
    return pa.schema(
        [
            pa.field("kind", pa.string(), nullable=False),
            pa.field("class_name", pa.string(), nullable=False),
            pa.field("box", numbers),
            pa.field("rotation", pa.float64()),
            pa.field("polygon", pa.list_(numbers)),
            pa.field("mask_size", pa.list_(pa.int32())),
            pa.field("mask_counts", pa.list_(pa.int64())),
            pa.field("keypoints", numbers),
            pa.field("attributes", pa.string()),
        ]
    )


@dataclass(frozen=True)
class LabelBlock:
    """Images without annotations, and the rows of all their annotations, in the order of the images.

    `starts` has the number of the first row of each image, and at the end the number of rows.
    """

    images: list[LabeledImage]
    rows: pa.Table
    starts: NDArray[np.int64]

    @classmethod
    def of(cls, images: Sequence[LabeledImage]) -> LabelBlock:
        """Return images with annotations as a block."""
        import numpy as np
        import pyarrow as pa

        rows = [geometry_columns(one) for image in images for one in image.annotations]
        starts = np.cumsum([0, *(len(image.annotations) for image in images)], dtype=np.int64)
        bare = [replace(image, annotations=[]) for image in images]
        return cls(bare, pa.Table.from_pylist(rows, geometry_schema()), starts)

    def __len__(self) -> int:
        return len(self.images)

    def __iter__(self) -> Iterator[LabeledImage]:
        rows = self.rows.to_pylist()
        starts = self.starts.tolist()
        for number, image in enumerate(self.images):
            own = rows[starts[number] : starts[number + 1]]
            yield replace(image, annotations=[annotation_of(row) for row in own])

    @cached_property
    def counts(self) -> list[int]:
        """The number of annotations of each image."""
        import numpy as np

        found: list[int] = np.diff(self.starts).tolist()
        return found

    def image(self, number: int) -> LabeledImage:
        """Return one image with its annotations."""
        return next(iter(self.take([number])))

    def take(self, numbers: Sequence[int]) -> LabelBlock:
        """Return the images of these numbers, with their rows."""
        import numpy as np

        if len(numbers) == len(self.images) and list(numbers) == list(range(len(numbers))):
            return self
        chosen = np.asarray(numbers, np.int64)
        rows, starts = take_ranges(self.starts, chosen)
        return LabelBlock([self.images[number] for number in numbers], self.rows.take(as_arrow(rows)), starts)

    def slice(self, first: int, end: int) -> LabelBlock:
        """Return the images from `first` on, before `end`."""
        starts = self.starts[first : end + 1]
        rows = self.rows.slice(int(starts[0]), int(starts[-1] - starts[0]))
        return LabelBlock(self.images[first:end], rows, starts - starts[0])

    def split(self, image_count: int) -> Iterator[LabelBlock]:
        """Yield blocks of at most this number of images."""
        for first in range(0, len(self.images), image_count):
            yield self.slice(first, min(first + image_count, len(self.images)))

    @cached_property
    def facts(self) -> Counter[str]:
        """All that a conversion could lose, counted as `measure` does for each image."""
        found: Counter[str] = Counter(images=len(self.images), objects=self.rows.num_rows)
        for item in self.rows["kind"].value_counts().to_pylist():
            found[FACTS[item["values"]]] += item["counts"]
        texts = self.rows["attributes"].drop_null().to_pylist()
        found["attributes"] = sum(len(_members.decode(text)) for text in texts)
        found["rotations"] = self.rows.num_rows - self.rows["rotation"].null_count
        found["splits"] = sum(image.split is not None for image in self.images)
        found["tags"] = sum(len(image.tags) for image in self.images)
        return +found


def blocks_of(images: Iterable[LabeledImage] | LabelBlocks, image_count: int = _BLOCK_IMAGES) -> Iterator[LabelBlock]:
    """Yield images as blocks: those that they are kept in, or blocks of their objects."""
    if isinstance(images, LabelBlocks):
        yield from images.blocks(image_count)
        return
    iterator = iter(images)
    while batch := list(islice(iterator, image_count)):
        yield LabelBlock.of(batch)


def take_ranges(starts: NDArray[np.int64], chosen: NDArray[np.int64]) -> tuple[Any, Any]:
    """Return the numbers of the rows of the chosen images, and where those of each image begin among them."""
    import numpy as np

    counts = np.diff(starts)[chosen]
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    return np.repeat(starts[chosen] - offsets[:-1], counts) + np.arange(offsets[-1]), offsets
