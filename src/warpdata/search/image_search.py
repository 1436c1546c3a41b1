"""Search of a column of images by an example: every selected image is compared by a hash of its appearance.

No model is needed. The hash finds copies that were scaled, compressed or changed a little, and not other pictures of
the same thing; for these, compare vectors of a model.
"""

from __future__ import annotations

import io
import reprlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from warpdata.errors import BadInputError, LimitExceededError, MediaDecodeError
from warpdata.formats.media import decode_image, image_to_rgb
from warpdata.formats.search import TopScores
from warpdata.kinds.tables import Table
from warpdata.limits import MIB
from warpdata.primitives.byte_lru import ByteLRU
from warpdata.primitives.parallel import IO_POOL
from warpdata.repository.rows import RowSelection
from warpdata.search.hits import SearchPart

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

__all__ = ["HASH_BITS", "ExampleImage", "ImageClause", "image_hash", "is_image", "parse_example", "search_images"]

HASH_BITS = 64
_HASH_ROWS, _HASH_COLUMNS = 8, 9
_LUMA = np.array([0.299, 0.587, 0.114])
_MAX_EXAMPLE_BYTES = 256 * MIB
_BATCH_ROWS = 256
_ENTRY_BYTES = 250

_hashes: ByteLRU[Any, int] = ByteLRU(32 * MIB)
"""Hashes by reference: an artifact of a version never changes."""


class ExampleImage:
    """An image that is in no dataset, with the methods of `ImageRef` that read."""

    def __init__(self, content: bytes, name: str) -> None:
        self._content = content
        self.path = name

    def __repr__(self) -> str:
        return f"ExampleImage({self.path!r})"

    def read_bytes(self) -> bytes:
        return self._content

    def as_pil(self) -> Any:
        return decode_image(self._content, self.path)

    def as_numpy(self, *, resize: Any) -> NDArray[Any]:
        """Return height × width × 3, RGB, scaled to (height, width)."""
        return np.asarray(image_to_rgb(self._content, self.path, resize))

    @staticmethod
    def of(given: Any) -> ExampleImage:
        """Take a path, encoded bytes or an image of Pillow."""
        if isinstance(given, ExampleImage):
            return given
        if isinstance(given, str | Path):
            return ExampleImage(_read_file(Path(given)), str(given))
        if isinstance(given, bytes | bytearray | memoryview):
            return ExampleImage(bytes(given), "the example")
        if hasattr(given, "save") and hasattr(given, "convert"):
            out = io.BytesIO()
            given.convert("RGB").save(out, "PNG")
            return ExampleImage(out.getvalue(), "the example")
        raise BadInputError(
            f"an example is a path, encoded bytes, an image of Pillow or a reference, not {reprlib.repr(given)}",
            hint="Arrays become an image with PIL.Image.fromarray.",
        )


@dataclass(frozen=True)
class ImageClause:
    """A column of images, and the hash of the image to find others like."""

    column: str
    hash: int


def is_image(schema: pa.Schema, column: str) -> bool:
    """Return whether a column refers to images. `schema` is not that of `Table.raw()`."""
    return column in schema.names and getattr(schema.field(column).type, "ref_type", None) == "image"


def parse_example(column: str, example: Any, metric: str) -> ImageClause:
    """Read the example, or take its hash, and check that no metric of vectors was chosen."""
    if metric != "cosine":
        raise BadInputError(
            f"column {column!r} has images, which metric={metric!r} does not compare", hint="Drop the metric."
        )
    if type(example) is int:
        if not 0 <= example < 1 << HASH_BITS:
            raise BadInputError(f"{example} is no hash of {HASH_BITS} bits")
        return ImageClause(column, example)
    reference = example if getattr(example, "ref_type", None) == "image" else ExampleImage.of(example)
    return ImageClause(column, image_hash(reference))


def image_hash(image: Any) -> int:
    """Return the difference hash of an image: for 8 × 8 places, whether it gets brighter to the right."""
    pixels = image.as_numpy(resize=(_HASH_ROWS, _HASH_COLUMNS)).astype(np.float64)
    grey = (pixels if pixels.ndim == 2 else pixels @ _LUMA).round(6)
    return int.from_bytes(np.packbits(grey[:, 1:] > grey[:, :-1]).tobytes(), "big")


def search_images(table: Table, selection: RowSelection, clause: ImageClause, best: TopScores) -> SearchPart:
    """Add the best of the selected rows, by the share of equal bits. Images that cannot be decoded are left out."""
    column, part = clause.column, SearchPart(clause.column, "appearance", None, 0, 0, 0)
    if not best.k:
        return part
    start = compared = 0
    restricted = replace(table, rows=selection, filters=())
    for batch in restricted.select([column]).batches(_BATCH_ROWS):
        numbers = selection.slice(start, start + batch.num_rows).numbers
        start += batch.num_rows
        found = IO_POOL.map_all(_known_hash, batch.column(0).to_pylist())
        usable = np.array([value is not None for value in found], bool)
        hashes = np.array([value for value in found if value is not None], np.uint64)
        best.add(numbers[usable], 1 - np.bitwise_count(hashes ^ np.uint64(clause.hash)) / HASH_BITS)
        compared += len(hashes)
    return replace(part, compared=compared, skipped=len(selection) - compared, scanned=len(selection))


def _known_hash(reference: Any) -> int | None:
    """Return the hash of a cell; None without an image that can be decoded."""
    if reference is None:
        return None
    key = (reference.artifact.reopen, reference.locator)
    known = _hashes.get(key)
    if known is None:
        try:
            known = image_hash(reference)
        except (MediaDecodeError, LimitExceededError):
            return None
        _hashes.put(key, known, _ENTRY_BYTES)
    return known


def _read_file(path: Path) -> bytes:
    try:
        if path.stat().st_size > _MAX_EXAMPLE_BYTES:
            raise BadInputError(f"{path} is larger than {_MAX_EXAMPLE_BYTES:,} bytes, so it is not an example image")
        return path.read_bytes()
    except OSError as error:
        raise BadInputError(f"{path} cannot be read: {error.strerror or error}") from error
