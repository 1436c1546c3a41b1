"""Images: decoding, sizes and PNG encoding. The only user of Pillow apart from the command line.

The functions take bytes and know neither stores nor references; `name` is the path in error messages. Sizes in a
header are compared with `limits` before memory is allocated.
"""

from __future__ import annotations

import io
import math
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

from warpdata.errors import LimitExceededError, MediaDecodeError, UnsupportedError, WarpError
from warpdata.formats.media.callback_file import Reserve, describe_error, reserve_nothing
from warpdata.limits import MAX_IMAGE_PIXELS
from warpdata.primitives.extras import require

if TYPE_CHECKING:
    import numpy as np
    from PIL import Image, ImageFile

__all__ = [
    "Array",
    "check_pixels",
    "decode_image",
    "decode_rgb",
    "encode_png",
    "image_size",
    "image_to_array",
    "resize_rgb",
    "thumbnail_png",
]

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"

_IMAGE_FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "TIFF", "BMP", "PPM", "JPEG2000", "AVIF", "QOI")
"""Formats with a signature. EPS is absent, because Pillow hands it to another program."""

_PILLOW_PIXEL_BYTES = 4
"""Memory of a pixel in Pillow, which pads colours to four bytes."""

_warning_filters = threading.Lock()


def decode_image(data: bytes | memoryview, name: str, reserve: Reserve = reserve_nothing) -> Image.Image:
    """Decode an image; of several frames, the first.

    An orientation tag is not applied: see `PIL.ImageOps.exif_transpose`. TIFF and AVIF are the exception, because
    Pillow rotates them while it loads. `reserve` takes the memory of the image and of an array of it, before any of it
    is allocated.
    """
    image = _open_image(data, name)
    check_pixels(image.size, name)
    reserve(math.prod(image.size) * (_PILLOW_PIXEL_BYTES + _array_pixel_bytes(image)))
    if image.format == "JPEG2000" and _is_truncated_jpeg2000(data):
        raise MediaDecodeError(f"{name} is a truncated JPEG 2000 image: its codestream has no end marker")
    with _image_errors(name), _without_size_warning(image.size):
        image.load()
        if not getattr(image, "is_animated", False):
            return image
        first = image.copy()
        first.format = image.format
        return first


def image_to_array(data: bytes | memoryview, name: str, reserve: Reserve = reserve_nothing) -> Array:
    """Decode an image to height × width for grey, × 3 for colour, × 4 with transparency.

    The pixels are uint8. Grey images of more depth are uint16, int32 or float32. Pillow reduces 16-bit colour to 8.
    """
    np = require("numpy", purpose=f"decoding {name}", extra="image")
    image = decode_image(data, name, reserve)
    if image.mode.startswith("I;16") or (image.mode == "I" and image.format == "PPM"):
        deep: Array = np.asarray(image).astype(np.uint16)
        return deep
    mode = _array_mode(image)
    with _image_errors(name):
        pixels: Array = np.array(image if image.mode == mode else image.convert(mode))
        return pixels


def decode_rgb(
    data: bytes | memoryview,
    name: str,
    formats: Sequence[str],
    *,
    resize: tuple[int, int] | None = None,
    max_pixels: int | None = None,
) -> Array:
    """Decode an image of one of the given Pillow formats to height × width × 3, uint8; grey images too.

    `resize` scales it to (height, width). The default limit is that of all images.
    """
    np = require("numpy", purpose=f"decoding {name}", extra="image")
    image = _open_image(data, name, formats)
    check_pixels(image.size, name, max_pixels)
    with _image_errors(name), _without_size_warning(image.size):
        pixels: Array = np.asarray(_scaled(image.convert("RGB"), resize))
        return pixels


def resize_rgb(pixels: Array, resize: tuple[int, int]) -> Array:
    """Scale an array of height × width × 3, uint8, to (height, width)."""
    np = require("numpy", purpose="resizing", extra="image")
    images = require("PIL.Image", purpose="resizing", extra="image")
    scaled: Array = np.asarray(_scaled(images.fromarray(pixels), resize))
    return scaled


def _scaled(image: Image.Image, resize: tuple[int, int] | None) -> Image.Image:
    if resize is None or resize == (image.height, image.width):
        return image
    from PIL import Image

    return image.resize((resize[1], resize[0]), Image.Resampling.BILINEAR)


def encode_png(pixels: Array) -> bytes:
    """Encode a uint8 array of height × width × 3 as PNG, fast rather than small."""
    images = require("PIL.Image", purpose="encoding PNG", extra="image")
    out = io.BytesIO()
    images.fromarray(pixels).save(out, "PNG", compress_level=1)
    return out.getvalue()


def thumbnail_png(data: bytes | memoryview, name: str, edge: int = 256) -> bytes:
    """Return the image as PNG, at most `edge` pixels wide and high."""
    image = decode_image(data, name)
    with _image_errors(name):
        small = image.convert("RGBA" if image.has_transparency_data else "RGB")
        small.thumbnail((edge, edge))
        out = io.BytesIO()
        small.save(out, "PNG")
        return out.getvalue()


def image_size(data: bytes | memoryview, name: str) -> tuple[int, int]:
    """Return width and height from the header, also of an image that is too large to decode."""
    return _open_image(data, name).size


def check_pixels(size: tuple[int, int], name: str, max_pixels: int | None = None) -> None:
    """Raise `LimitExceededError` if an image or video frame of this size is too large to decode."""
    most = MAX_IMAGE_PIXELS if max_pixels is None else max_pixels
    if math.prod(size) > most:
        raise LimitExceededError(f"{name} has {size[0]} × {size[1]} pixels; at most {most} are decoded")


def _array_pixel_bytes(image: Image.Image) -> int:
    """Return the most bytes of a pixel in the array, from the header."""
    return {"1": 1, "L": 1, "RGB": 4 if "transparency" in image.info else 3, "I;16": 2}.get(image.mode, 4)


def _array_mode(image: Image.Image) -> str:
    if image.mode in ("I", "F"):
        return image.mode
    if image.has_transparency_data:
        return "RGBA"
    return "L" if image.mode in ("1", "L") else "RGB"


def _open_image(data: bytes | memoryview, name: str, formats: Sequence[str] = _IMAGE_FORMATS) -> ImageFile.ImageFile:
    """Read the header. `PIL.Image.open` does the same, but warns about sizes that are allowed here."""
    images = require("PIL.Image", purpose=f"decoding {name}", extra="image")
    images.init()
    for kind in formats:
        opener, accepts = images.OPEN.get(kind, (None, None))
        accepted = accepts is not None and accepts(bytes(data[:16]))
        if isinstance(accepted, str):
            raise UnsupportedError(f"{name}: {accepted}")
        if accepted and opener is not None:
            with _image_errors(name):
                opened: ImageFile.ImageFile = opener(io.BytesIO(data), "")
                return opened
    raise MediaDecodeError(f"{name} is not an image of a known format: it begins with {bytes(data[:8])!r}")


def _is_truncated_jpeg2000(data: bytes | memoryview) -> bool:
    """Return whether the codestream has no end marker. OpenJPEG returns black pixels for some truncated ones.

    The marker cannot occur in compressed data. A damaged box structure is left to the decoder.
    """
    if data[:2] != b"\xff\x4f":
        at = 0
        while bytes(data[at + 4 : at + 8]) != b"jp2c":
            size = int.from_bytes(data[at : at + 4], "big")
            if size < 8 or at + size > len(data):
                return False
            at += size
        data = data[at:]
    return b"\xff\xd9" not in bytes(data)


@contextmanager
def _image_errors(name: str) -> Iterator[None]:
    """Map errors of Pillow, which raises exceptions of any type for damaged bytes."""
    from PIL import Image

    try:
        yield
    except (WarpError, MemoryError):
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise LimitExceededError(f"{name}: {error}") from error
    except Exception as error:
        raise MediaDecodeError(f"{name} is not an image that can be decoded: {describe_error(error)}") from error


@contextmanager
def _without_size_warning(size: tuple[int, int]) -> Iterator[None]:
    """Suppress Pillow's warning about sizes that `MAX_IMAGE_PIXELS` allows.

    Warning filters belong to the whole process. Only images that would warn change them, one at a time.
    """
    from PIL import Image

    if Image.MAX_IMAGE_PIXELS is None or math.prod(size) <= Image.MAX_IMAGE_PIXELS:
        yield
        return
    with _warning_filters, warnings.catch_warnings():
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)
        yield
