"""What to draw of an episode: its first camera, and every channel of few numbers."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from warpdata.cli.episode_targets import OpenEpisode
from warpdata.errors import MissingExtraError

if TYPE_CHECKING:
    import numpy as np
    from PIL import ImageDraw

    from warpdata.formats.wshard import BlockReader, JoinedBlock

__all__ = ["Panel", "Picture", "draw", "episode_figure"]

_FRAMES, _PANELS, _LINES = 8, 12, 32
_CHANNEL_COUNTS = (1, 3, 4)


def episode_figure(episode: OpenEpisode) -> Picture:
    """Reads the frames that are shown, and numbers whole."""
    info = episode.info
    readers = [episode.file[name] for name in episode.file.blocks if not name.startswith("meta/")]
    shown = [reader for reader in readers if reader.meaning.is_declared and reader.meaning.rows]
    camera = next((reader for reader in shown if _is_camera(reader)), None)
    lines = [reader for reader in shown if _is_line(reader)]
    facts = [info.env_id, f"{info.length:,} steps", _rate(info.timebase.hz)]
    return Picture(
        title=info.id,
        subtitle=" · ".join(fact for fact in facts if fact),
        step_count=info.length,
        strip_name="" if camera is None else camera.name,
        frames=[] if camera is None else [(row, _frame(camera, row)) for row in _spread(camera.meaning.rows)],
        panels=[Panel(reader.name, _numbers(reader)) for reader in lines[:_PANELS]],
    )


def _is_camera(reader: BlockReader | JoinedBlock) -> bool:
    shape = reader.meaning.shape
    looks_right = len(shape) == 2 or (len(shape) == 3 and shape[2] in _CHANNEL_COUNTS)
    return str(reader.meaning.dtype) in ("u8", "u16", "f32") and looks_right and min(shape[:2]) >= 8


def _is_line(reader: BlockReader | JoinedBlock) -> bool:
    shape = reader.meaning.shape
    is_time = reader.name.startswith("time/")
    return not is_time and (not shape or (len(shape) == 1 and 1 <= shape[0] <= _LINES))


def _spread(rows: int) -> list[int]:
    count = min(_FRAMES, rows)
    return sorted({round((rows - 1) * number / max(count - 1, 1)) for number in range(count)})


def _frame(reader: BlockReader | JoinedBlock, row: int) -> np.ndarray[Any, Any]:
    """One picture as RGB. Depth and other numbers are stretched to what a screen can show."""
    import numpy as np

    pixels = np.asarray(reader.window(row, row + 1)[0])
    if pixels.dtype != np.uint8:
        values = np.nan_to_num(pixels.astype(np.float64))
        span = float(values.max() - values.min()) or 1.0
        pixels = ((values - values.min()) / span * 255).astype(np.uint8)
    if pixels.ndim == 2:
        pixels = pixels[:, :, None]
    pixels = pixels[:, :, :3] if pixels.shape[2] >= 3 else np.repeat(pixels[:, :, :1], 3, axis=2)
    return np.ascontiguousarray(pixels)


def _numbers(reader: BlockReader | JoinedBlock) -> np.ndarray[Any, Any]:
    import numpy as np

    values = reader.read()
    return np.asarray(values.reshape(len(values), -1), np.float64)


def _rate(hz: float | None) -> str:
    return "" if hz is None else f"{hz:g} Hz"


_Colour: TypeAlias = tuple[int, int, int]

_WIDTH, _MARGIN, _LABELS = 1000, 16, 170
_PANEL, _GAP, _STRIP = 86, 10, 120
_PAPER, _INK, _FAINT, _GRID = (255, 255, 255), (40, 44, 52), (130, 136, 148), (232, 234, 238)
_COLOURS = (
    (31, 119, 180),
    (214, 39, 40),
    (44, 160, 44),
    (255, 127, 14),
    (148, 103, 189),
    (140, 86, 75),
    (23, 190, 207),
    (227, 119, 194),
)


@dataclass(frozen=True, slots=True)
class Panel:
    """Numbers of one channel: an array of (rows, lines)."""

    name: str
    values: np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Picture:
    """`frames` are steps with their pixels, as (height, width, 3) of uint8."""

    title: str
    subtitle: str
    step_count: int
    strip_name: str
    frames: Sequence[tuple[int, np.ndarray[Any, Any]]]
    panels: Sequence[Panel]


def draw(picture: Picture) -> bytes:
    """The picture as PNG."""
    try:
        from PIL import Image, ImageDraw
    except ImportError as error:
        raise MissingExtraError("a picture needs Pillow", hint="pip install 'warpdata[image]'") from error

    strip = _STRIP + 34 if picture.frames else 0
    height = 64 + strip + len(picture.panels) * (_PANEL + _GAP) + (30 if picture.panels else 0) + _MARGIN
    image = Image.new("RGB", (_WIDTH, height), _PAPER)
    pen = ImageDraw.Draw(image)
    _text(pen, (_MARGIN, 12), picture.title, _INK, 20)
    _text(pen, (_MARGIN, 38), picture.subtitle, _FAINT, 13)
    top = 64
    if picture.frames:
        _draw_strip(image, pen, picture, top)
        top += strip
    for panel in picture.panels:
        _draw_panel(pen, panel, top)
        top += _PANEL + _GAP
    if picture.panels:
        _draw_axis(pen, picture.step_count, top)
    out = io.BytesIO()
    image.save(out, "PNG")
    return out.getvalue()


def _draw_strip(image: Any, pen: ImageDraw.ImageDraw, picture: Picture, top: int) -> None:
    """Frames side by side at one height, as many as there is room for."""
    from PIL import Image

    left, right = _MARGIN, _WIDTH - _MARGIN
    tall, wide = picture.frames[0][1].shape[:2]
    width = max(1, round(wide * _STRIP / max(tall, 1)))
    width = min(width, (right - left - 6 * (len(picture.frames) - 1)) // len(picture.frames))
    height = max(1, min(_STRIP, round(tall * width / max(wide, 1))))
    for number, (step, pixels) in enumerate(picture.frames):
        at = left + number * (width + 6)
        image.paste(Image.fromarray(pixels).resize((width, height), Image.Resampling.NEAREST), (at, top))
        _text(pen, (at, top + height + 3), f"{step}", _FAINT, 11)
    _text(pen, (right, top + height + 3), picture.strip_name, _FAINT, 11, anchor="ra")


def _draw_panel(pen: ImageDraw.ImageDraw, panel: Panel, top: int) -> None:
    import numpy as np

    left, right, bottom = _MARGIN + _LABELS, _WIDTH - _MARGIN, top + _PANEL
    values = np.asarray(panel.values, np.float64)
    sound = values[np.isfinite(values)]
    low, high = (float(sound.min()), float(sound.max())) if sound.size else (0.0, 1.0)
    if low == high:
        low, high = low - 0.5, high + 0.5
    pen.rectangle((left, top, right, bottom), outline=_GRID)
    if low < 0 < high:
        zero = bottom - (0 - low) / (high - low) * _PANEL
        pen.line((left, zero, right, zero), fill=_GRID)
    _text(pen, (_MARGIN, top + 2), _shortened(panel.name), _INK, 13)
    shape = "" if values.shape[1] == 1 else f"{values.shape[1]} lines"
    _text(pen, (_MARGIN, top + 20), shape, _FAINT, 11)
    _text(pen, (left - 6, top), f"{high:.3g}", _FAINT, 11, anchor="ra")
    _text(pen, (left - 6, bottom - 12), f"{low:.3g}", _FAINT, 11, anchor="ra")
    rows = np.unique(np.linspace(0, len(values) - 1, min(len(values), 4 * (right - left))).round().astype(int))
    across = left + rows / max(len(values) - 1, 1) * (right - left)
    for number in range(values.shape[1]):
        down = bottom - 3 - (values[rows, number] - low) / (high - low) * (_PANEL - 6)
        points = [(float(x), float(y)) for x, y in zip(across, down, strict=True) if np.isfinite(y)]
        colour = _COLOURS[number % len(_COLOURS)]
        if len(points) > 1:
            pen.line(points, fill=colour, width=2 if values.shape[1] == 1 else 1)
        elif points:
            pen.ellipse((points[0][0] - 2, points[0][1] - 2, points[0][0] + 2, points[0][1] + 2), fill=colour)


def _draw_axis(pen: ImageDraw.ImageDraw, step_count: int, top: int) -> None:
    left, right, last = _MARGIN + _LABELS, _WIDTH - _MARGIN, max(step_count - 1, 0)
    for number in range(5):
        step = round(last * number / 4)
        at = left + (right - left) * number / 4
        pen.line((at, top - _GAP, at, top - _GAP + 4), fill=_FAINT)
        _text(
            pen, (at, top - _GAP + 6), f"{step:,}", _FAINT, 11, anchor="ra" if number == 4 else "ma" if number else "la"
        )
    _text(pen, (_MARGIN, top - _GAP + 6), "step", _FAINT, 11)


def _shortened(name: str, most: int = 20) -> str:
    return name if len(name) <= most else f"…{name[1 - most :]}"


def _text(
    pen: ImageDraw.ImageDraw,
    at: tuple[float, float],
    text: str,
    colour: _Colour,
    size: int,
    *,
    anchor: str = "la",
) -> None:
    from PIL import ImageFont

    pen.text(at, text, fill=colour, font=ImageFont.load_default(size), anchor=anchor)
