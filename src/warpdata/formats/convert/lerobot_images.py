"""Pictures inside the rows of a LeRobot dataset: passed through as they are, or decoded where we encoded them."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import numpy as np

from warpdata.errors import BadInputError, InvalidSourceError
from warpdata.formats.convert.episode_fields import Array
from warpdata.formats.convert.libraries import load
from warpdata.formats.wshard import Block, Channel, index_pictures

__all__ = ["decoded_pictures", "passed_pictures", "picture_times"]


def passed_pictures(cells: Sequence[Any], fps: float, channel_id: str, name: str) -> tuple[Channel, Block]:
    """A channel of the encoded pictures, and its frame index, with times that follow from the rate."""
    try:
        return index_pictures([_bytes(cell, name) for cell in cells], picture_times(len(cells), fps), channel_id)
    except BadInputError as error:
        raise InvalidSourceError(f"{name}: {error.message}") from error


def picture_times(count: int, fps: float) -> list[int]:
    """When each picture is shown, in nanoseconds."""
    return [round(number * 1e9 / fps) for number in range(count)]


def decoded_pictures(cells: Sequence[Any], name: str) -> Array:
    """Pixels, of PNG files that an export made of them."""
    images = load("PIL.Image")
    try:
        return np.stack([np.asarray(images.open(io.BytesIO(_bytes(cell, name)), formats=("PNG",))) for cell in cells])
    except (OSError, ValueError) as error:
        raise InvalidSourceError(f"{name}: a picture cannot be decoded: {error}") from error


def _bytes(cell: Any, name: str) -> bytes:
    data = cell.get("bytes") if isinstance(cell, dict) else None
    if not isinstance(data, bytes):
        raise InvalidSourceError(f"{name}: a picture is not in the table, but in a file of its own")
    return data
