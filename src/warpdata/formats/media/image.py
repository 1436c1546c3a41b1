"""Images: decoding, sizes and PNG encoding. The only user of Pillow apart from the command line.

The functions take bytes and know neither stores nor references; `name` is the path in error messages. Sizes in a
header are compared with `limits` before memory is allocated. Arrays of plain JPEGs come from the fastest decoder that
is installed (`jpeg.py`), with the same pixels.
"""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeAlias

from warpdata.errors import LimitExceededError, MediaDecodeError, UnsupportedError, WarpError
from warpdata.formats.media.callback_file import Reserve, describe_error, reserve_nothing
from warpdata.formats.media.image_size import ResizeTo, Size, scale_divisor, target_size
from warpdata.formats.media.jpeg import decode_jpeg, plain_jpeg_header
from warpdata.limits import MAX_IMAGE_PIXELS
from warpdata.primitives.extras import require
from warpdata.primitives.fork import ForkSafeLock

if TYPE_CHECKING:
    import numpy as np
    from PIL import Image, ImageFile

__all__ = [
    "Array",
    "Resample",
    "check_pixels",
    "decode_image",
    "decode_numbers",
    "decode_rgb",
    "difference_hash",
    "encode_palette_png",
    "encode_png",
    "image_size",
    "image_to_array",
    "image_to_rgb",
    "raw_to_png",
    "resize_rgb",
    "thumbnail_png",
    "thumbnail_webp",
]

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"

Resample: TypeAlias = Callable[[Any, Size], Any]
"""Scales height × width × 3, uint8, to (height, width): bilinear, over all pixels that a pixel of the result covers."""

_IMAGE_FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "TIFF", "BMP", "PPM", "JPEG2000", "AVIF", "QOI")
"""Formats with a signature. EPS is absent, because Pillow hands it to another program."""

_PNG_MODES = frozenset({"1", "L", "LA", "I;16", "RGB", "RGBA"})
"""Modes of Pillow that PNG keeps. A palette is not part of the pixels, so `P` is absent."""

_PILLOW_PIXEL_BYTES = 4
"""Memory of a pixel in Pillow, which pads colours to four bytes."""

_DEEP_MODES = ("I", "F")

_MOSAIC_COLUMNS = 3
_TINY_EDGE = 64
_WEBP_QUALITY = 80

_warning_filters = ForkSafeLock()


def decode_image(data: bytes | memoryview, name: str, reserve: Reserve = reserve_nothing) -> Image.Image:
    """Decode an image; of several frames, the first.

    An orientation tag is not applied: see `PIL.ImageOps.exif_transpose`. TIFF and AVIF are the exception, because
    Pillow rotates them while it loads. `reserve` takes the memory of the image and of an array of it, before any of it
    is allocated.
    """
    image = _open_image(data, name)
    check_pixels(image.size, name)
    reserve(math.prod(image.size) * (_PILLOW_PIXEL_BYTES + _array_pixel_bytes(image)))
    return _load(image, data, name)


def _load(image: ImageFile.ImageFile, data: bytes | memoryview, name: str) -> Image.Image:
    """Decode an opened image; of several frames, the first."""
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
    pixels = _decode_plain_jpeg(data, name, reserve)
    if pixels is not None:
        return pixels
    image = decode_image(data, name, reserve)
    if image.mode.startswith("I;16") or (image.mode == "I" and image.format == "PPM"):
        deep: Array = np.asarray(image).astype(np.uint16)
        return deep
    mode = _array_mode(image)
    with _image_errors(name):
        converted: Array = np.array(image if image.mode == mode else image.convert(mode))
        return converted


def _decode_plain_jpeg(data: bytes | memoryview, name: str, reserve: Reserve) -> Array | None:
    header = plain_jpeg_header(data)
    if header is None:
        return None
    check_pixels((header.width, header.height), name)
    reserve(header.width * header.height * header.components)
    return decode_jpeg(data, header, header.components)


def image_to_rgb(
    data: bytes | memoryview,
    name: str,
    resize: ResizeTo,
    reserve: Reserve = reserve_nothing,
    resample: Resample | None = None,
) -> Array:
    """Decode and scale an image to height × width × 3, RGB, uint8, without its transparency.

    Grey images of more than 8 bits keep their type, as height × width. A JPEG of at least six times the target's sides
    is decoded at a reduced scale. `resample` scales the pixels, Pillow by default.
    """
    scaled = _decode_reduced_jpeg(data, name, resize, reserve, resample or resize_rgb)
    if scaled is not None:
        return scaled
    image = _open_image(data, name)
    check_pixels(image.size, name)
    target = target_size((image.height, image.width), resize)
    if image.mode in _DEEP_MODES or image.mode.startswith("I;16"):
        reserve(math.prod(target) * 2 * _PILLOW_PIXEL_BYTES)
        return _scale_deep(image_to_array(data, name, reserve), target)
    covered = _reduce_scale(image, target)
    opened_size = image.size
    copies = 1 if image.mode == "RGB" else 2
    reserve((math.prod(image.size) * copies + math.prod(target) * 2) * _PILLOW_PIXEL_BYTES)
    np = require("numpy", purpose=f"decoding {name}", extra="image")
    loaded = _load(image, data, name)
    if loaded.size == opened_size[::-1]:  # Pillow rotates TIFF and AVIF while it loads
        target = target_size((loaded.height, loaded.width), resize)
    with _image_errors(name), _without_size_warning(image.size):
        rgb = loaded if loaded.mode == "RGB" else loaded.convert("RGB")
        if resample is None or covered is not None or target == (rgb.height, rgb.width):
            rgb, resample = _scaled(rgb, target, covered), None
        pixels: Array = np.array(rgb)
    return pixels if resample is None else resample(pixels, target)


def decode_rgb(
    data: bytes | memoryview,
    name: str,
    formats: Sequence[str],
    *,
    resize: Size | None = None,
    max_pixels: int | None = None,
) -> Array:
    """Decode an image of one of the given Pillow formats to height × width × 3, uint8; grey images too.

    `resize` scales it to (height, width), as `image_to_rgb` does. The default limit is that of all images.
    """
    np = require("numpy", purpose=f"decoding {name}", extra="image")
    if "JPEG" in formats:
        found = _decode_reduced_jpeg(data, name, resize, reserve_nothing, resize_rgb, max_pixels)
        if found is not None:
            return found
    image = _open_image(data, name, formats)
    check_pixels(image.size, name, max_pixels)
    covered = None if resize is None else _reduce_scale(image, resize)
    with _image_errors(name), _without_size_warning(image.size):
        pixels: Array = np.asarray(_scaled(image.convert("RGB"), resize, covered))
        return pixels


def _decode_reduced_jpeg(
    data: bytes | memoryview,
    name: str,
    resize: ResizeTo | None,
    reserve: Reserve,
    resample: Resample,
    max_pixels: int | None = None,
) -> Array | None:
    """Decode a plain JPEG at the smallest scale that the target allows, then scale it. None if Pillow has to."""
    header = plain_jpeg_header(data)
    if header is None:
        return None
    check_pixels((header.width, header.height), name, max_pixels)
    size = header.height, header.width
    target = size if resize is None else target_size(size, resize)
    divisor = scale_divisor(size, target)
    reserve((math.prod(size) // divisor**2 + math.prod(target)) * 3)
    pixels = decode_jpeg(data, header, 3, divisor)
    if pixels is None or pixels.shape[:2] == target:
        return pixels
    covered = _covered(size, divisor)
    if covered is not None:
        return resize_rgb(pixels, target, covered)
    scaled: Array = resample(pixels, target)
    return scaled


def _reduce_scale(image: ImageFile.ImageFile, target: Size) -> tuple[float, float] | None:
    """Let Pillow decode a JPEG at the smallest scale that the target allows. Does nothing for other formats.

    Returns the width and height that the decoded image covers, if the scale does not divide its sides.
    """
    width, height = image.size
    divisor = scale_divisor((height, width), target)
    drafted = image.draft(None, (width // divisor, height // divisor)) if divisor > 1 else None
    return _covered((height, width), divisor if drafted else 1)


def _covered(size: Size, divisor: int) -> tuple[float, float] | None:
    """Return width and height of an image of this size at a reduced scale; None if all its pixels are whole."""
    is_whole = size[0] % divisor == 0 and size[1] % divisor == 0
    return None if is_whole else (size[1] / divisor, size[0] / divisor)


def _scale_deep(pixels: Array, target: Size) -> Array:
    """Scale grey pixels of uint16, int32 or float32, as that type."""
    np = require("numpy", purpose="resizing", extra="image")
    images = require("PIL.Image", purpose="resizing", extra="image")
    is_short = pixels.dtype == np.uint16
    scaled: Array = np.array(_scaled(images.fromarray(pixels.astype(np.int32) if is_short else pixels), target))
    return scaled.clip(0, np.iinfo(np.uint16).max).astype(np.uint16) if is_short else scaled


def resize_rgb(pixels: Array, resize: Size, covered: tuple[float, float] | None = None) -> Array:
    """Scale an array of height × width × 3, uint8, to (height, width), with Pillow.

    `covered` is the width and height from the top left that the result shows; by default all of it.
    """
    np = require("numpy", purpose="resizing", extra="image")
    images = require("PIL.Image", purpose="resizing", extra="image")
    scaled: Array = np.array(_scaled(images.fromarray(pixels), resize, covered))
    return scaled


def _scaled(image: Image.Image, resize: Size | None, covered: tuple[float, float] | None = None) -> Image.Image:
    if resize is None or resize == (image.height, image.width):
        return image
    from PIL import Image

    box = None if covered is None else (0, 0, *covered)
    return image.resize((resize[1], resize[0]), Image.Resampling.BILINEAR, box)


def encode_png(pixels: Array) -> bytes:
    """Encode a uint8 array of height × width × 3 as PNG, fast rather than small."""
    images = require("PIL.Image", purpose="encoding PNG", extra="image")
    out = io.BytesIO()
    images.fromarray(pixels).save(out, "PNG", compress_level=1)
    return out.getvalue()


def raw_to_png(mode: str, size: tuple[int, int], pixels: bytes | memoryview) -> bytes:
    """Encode uncompressed pixels of a Pillow mode as PNG, without loss. `UnsupportedError` for other modes."""
    images = require("PIL.Image", purpose="encoding PNG", extra="image")
    if mode not in _PNG_MODES:
        raise UnsupportedError(f"an image of mode {mode!r} cannot be stored as PNG without loss")
    check_pixels(size, "an uncompressed image")
    out = io.BytesIO()
    images.frombytes(mode, size, bytes(pixels)).save(out, "PNG", compress_level=1)
    return out.getvalue()


def encode_palette_png(numbers: Array, palette: Sequence[tuple[int, int, int]]) -> bytes:
    """Encode a uint8 array of height × width as PNG whose pixels are numbers of colours."""
    images = require("PIL.Image", purpose="encoding PNG", extra="image")
    image = images.frombytes("P", numbers.shape[::-1], numbers.tobytes())
    image.putpalette([value for colour in palette for value in colour])
    out = io.BytesIO()
    image.save(out, "PNG")
    return out.getvalue()


def decode_numbers(data: bytes | memoryview, name: str) -> Array:
    """Return the numbers of a PNG image with a palette or in shades of grey, which stand for classes."""
    import numpy as np

    with _image_errors(name):
        image = _open_image(data, name, ("PNG",))
        check_pixels(image.size, name)
        if image.mode not in ("P", "L", "1"):
            raise MediaDecodeError(f"{name} has colours of mode {image.mode}, and no numbers of classes")
        image.load()
        return np.asarray(image, dtype=np.uint8)


def difference_hash(data: bytes | memoryview, name: str) -> int:
    """Return 64 bits of brightness differences. Similar images have hashes that differ in few bits."""
    import numpy as np

    with _image_errors(name):
        image = decode_image(data, name).convert("L").resize((9, 8))
        pixels = np.asarray(image, dtype=np.int16)
    return int.from_bytes(np.packbits(pixels[:, 1:] > pixels[:, :-1]).tobytes(), "big")


def thumbnail_png(data: bytes | memoryview, name: str, edge: int = 256) -> bytes:
    """Return the image as PNG, at most `edge` pixels wide and high."""
    image = decode_image(data, name)
    with _image_errors(name):
        small = image.convert("RGBA" if image.has_transparency_data else "RGB")
        small.thumbnail((edge, edge))
        out = io.BytesIO()
        small.save(out, "PNG")
        return out.getvalue()


def thumbnail_webp(images: Sequence[tuple[str, bytes]], edge: int, *, max_pixels: int | None = None) -> bytes:
    """Return an image as WebP, upright, at most `edge` pixels wide and high. Small images keep their size.

    Several images are cropped to squares, and fill a square of three columns, left to right. JPEGs are decoded at a
    reduced scale.
    """
    if len(images) == 1:
        name, data = images[0]
        small = _upright(name, data, (edge, edge), max_pixels)
        small.thumbnail((edge, edge))
    else:
        small = _mosaic(images, edge // _MOSAIC_COLUMNS, max_pixels)
    out = io.BytesIO()
    small.save(out, "WEBP", quality=_WEBP_QUALITY, method=2)
    return out.getvalue()


def _mosaic(images: Sequence[tuple[str, bytes]], side: int, max_pixels: int | None) -> Image.Image:
    pillow = require("PIL.Image", purpose="thumbnails", extra="image")
    ops = require("PIL.ImageOps", purpose="thumbnails", extra="image")
    sheet: Image.Image = pillow.new("RGBA", (side * _MOSAIC_COLUMNS, side * -(-len(images) // _MOSAIC_COLUMNS)))
    for at, (name, data) in enumerate(images):
        with suppress(MediaDecodeError, LimitExceededError, UnsupportedError):  # its place stays empty
            upright = _upright(name, data, (side, side), max_pixels)
            is_tiny = max(upright.size) <= _TINY_EDGE
            tile = ops.fit(upright, (side, side), pillow.Resampling.NEAREST if is_tiny else pillow.Resampling.BICUBIC)
            sheet.paste(tile, (at % _MOSAIC_COLUMNS * side, at // _MOSAIC_COLUMNS * side))
    return sheet


def _upright(name: str, data: bytes, target: Size, max_pixels: int | None) -> Image.Image:
    """Decode an image at a scale that suffices for the target, and apply its orientation tag."""
    ops = require("PIL.ImageOps", purpose=f"decoding {name}", extra="image")
    opened = _open_image(data, name)
    check_pixels(opened.size, name, max_pixels)
    with _image_errors(name), _without_size_warning(opened.size):
        opened.draft("RGB", target)
        upright = ops.exif_transpose(_load(opened, data, name))
        found: Image.Image = upright.convert("RGBA" if upright.has_transparency_data else "RGB")
        return found


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
