"""Thumbnails of images in a terminal, side by side, drawn with half blocks in the colours of their pixels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from warpdata.cli.output import console, show
from warpdata.errors import WarpError
from warpdata.primitives.parallel import IO_POOL

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from rich.text import Text

__all__ = ["can_show_images", "print_images"]

_CELL_WIDTH, _CELL_LINES, _GAP = 26, 13, 2
"""Characters are about twice as high as wide, and a line has two rows of pixels."""
_COLOUR_SYSTEMS = ("256", "truecolor", "windows")
_HALF_BLOCK = "▀"


def can_show_images() -> bool:
    """Return whether stdout is a terminal with enough colours."""
    out = console()
    return out.is_terminal and out.color_system in _COLOUR_SYSTEMS


def print_images(images: Sequence[Any], captions: Sequence[str]) -> None:
    """Print a grid of references to images with their captions. An image that cannot be read has only a caption."""
    from rich.table import Table

    columns = max(1, (console().width + _GAP) // (_CELL_WIDTH + _GAP))
    grid = Table.grid(padding=(0, _GAP, 1, 0))
    for _ in range(columns):
        grid.add_column(width=_CELL_WIDTH)
    cells = [_cell(*each) for each in zip(IO_POOL.map_all(_pixels, images), captions, strict=True)]
    for start in range(0, len(cells), columns):
        grid.add_row(*cells[start : start + columns])
    show(grid)


def _pixels(reference: Any) -> NDArray[np.uint8] | None:
    """Return the image in the size of a cell, RGB."""
    if reference is None:
        return None
    try:
        height, width = reference.shape[1], reference.shape[0]
        scale = min(_CELL_WIDTH / width, 2 * _CELL_LINES / height)
        size = (max(2, 2 * round(height * scale / 2)), max(1, round(width * scale)))
        pixels: Any = reference.as_numpy(resize=size)
    except WarpError:
        return None
    if pixels.ndim == 2:  # grey with more than 8 bits
        pixels = (pixels / max(float(pixels.max()), 1.0) * 255).astype("u1")[..., None].repeat(3, axis=2)
    found: NDArray[np.uint8] = pixels
    return found


def _cell(pixels: NDArray[np.uint8] | None, caption: str) -> Text:
    from rich.color import Color
    from rich.style import Style
    from rich.text import Text

    cell = Text(no_wrap=True, overflow="ellipsis", end="")
    for upper, lower in zip(pixels[::2].tolist(), pixels[1::2].tolist(), strict=True) if pixels is not None else ():
        for top, bottom in zip(upper, lower, strict=True):
            cell.append(_HALF_BLOCK, Style(color=Color.from_rgb(*top), bgcolor=Color.from_rgb(*bottom)))
        cell.append("\n")
    cell.append(caption if pixels is not None else f"(not readable)\n{caption}", "dim")
    return cell
