"""Target sizes of images: the meaning of `resize=`, and the scale at which a JPEG may be decoded for it."""

from __future__ import annotations

from typing import Any, TypeAlias

from warpdata.errors import BadInputError, LimitExceededError
from warpdata.limits import MAX_IMAGE_PIXELS

__all__ = ["ResizeTo", "Size", "check_resize_to", "parse_size", "scale_divisor", "target_size"]

Size: TypeAlias = tuple[int, int]
"""Height and width."""

ResizeTo: TypeAlias = tuple[int, int] | int
"""Height and width of the result; or the length of its shorter side, where the aspect ratio stays."""

_MIN_REDUCED, _MIN_REDUCED_SIDE = 3, 32
"""A JPEG is decoded at a reduced scale only to this multiple of the target's sides, and to this many pixels or more.

The blocks at the right and lower border are filled up by the encoder, which shows in small images.
"""


def target_size(size: Size, resize: ResizeTo) -> Size:
    """Return the size of the result. A number is the shorter side of the result, and never enlarges the image."""
    if not isinstance(resize, int):
        return resize
    shorter, longer = min(size), max(size)
    if shorter <= resize:
        return size
    scaled = resize * longer // shorter
    return (resize, scaled) if size[0] == shorter else (scaled, resize)


def scale_divisor(size: Size, target: Size) -> int:
    """Return 1, 2, 4 or 8: the largest reduction that leaves at least three times the sides of the target.

    libjpeg drops high frequencies of blocks as it decodes. A filter over at least three pixels in each direction does
    the rest of the reduction, so the result stays close to that of the full image.
    """
    surplus = min(
        size[0] // max(_MIN_REDUCED * target[0], _MIN_REDUCED_SIDE),
        size[1] // max(_MIN_REDUCED * target[1], _MIN_REDUCED_SIDE),
    )
    return 8 if surplus >= 8 else 4 if surplus >= 4 else 2 if surplus >= 2 else 1


def parse_size(resize: Any) -> Size:
    """Return a size that the caller gave as (height, width). `BadInputError` for other values."""
    is_pair = isinstance(resize, tuple | list) and len(resize) == 2
    if not is_pair or not all(isinstance(side, int) and not isinstance(side, bool) and side > 0 for side in resize):
        raise BadInputError(f"resize={resize!r} is not a size", hint="Use resize=(height, width), such as (224, 224).")
    height, width = resize
    if height * width > MAX_IMAGE_PIXELS:
        raise LimitExceededError(
            f"resize={resize!r} has {height * width} pixels; at most {MAX_IMAGE_PIXELS} are decoded"
        )
    return height, width


def check_resize_to(resize: Any) -> ResizeTo:
    """Return a target that the caller gave as (height, width) or as the shorter side. `BadInputError` for others."""
    if isinstance(resize, tuple | list):
        return parse_size(resize)
    if isinstance(resize, int) and not isinstance(resize, bool) and resize > 0:
        return resize
    raise BadInputError(
        f"resize={resize!r} is not a size",
        hint="Use resize=(height, width), such as (224, 224), or the shorter side as a number.",
    )
