"""Refusal of files that are no images, by their first bytes and before they are part of anything.

Nothing is decoded here: a decoder meets only files that state a size within the limit.
"""

from __future__ import annotations

from warpdata.errors import BadInputError
from warpdata.formats.labels import check_image_path
from warpdata.formats.media import read_image_size
from warpdata.limits import KIB, MAX_IMAGE_PIXELS
from warpdata.storage import SNIFFED_BYTES, content_type

__all__ = ["HEADER_BYTES", "check_image"]

HEADER_BYTES = 256 * KIB
"""The size of an image is read from this much of its file."""
_SIZED = ("image/png", "image/jpeg")


def check_image(path: str, head: bytes) -> None:
    """Raise `BadInputError` with the reason why a file cannot be an image of a collection."""
    check_image_path(path)
    media_type = content_type("", head[:SNIFFED_BYTES])
    if not media_type.startswith("image/"):
        looks = " It is markup, which browsers run." if head.lstrip()[:1] == b"<" else ""
        raise BadInputError(
            f"{path!r} is no image.{looks}", hint="Send PNG, JPEG, WebP, GIF, BMP, TIFF or AVIF under their own names."
        )
    size = read_image_size(head)
    if size is None:
        if media_type in _SIZED:
            raise BadInputError(f"{path!r} has a damaged header", hint="Open it in an image viewer, and save it again.")
        return
    height, width = size
    if not 0 < height * width <= MAX_IMAGE_PIXELS:
        raise BadInputError(
            f"{path!r} has {width:,} × {height:,} pixels, and {MAX_IMAGE_PIXELS:,} is the limit", hint="Scale it down."
        )
