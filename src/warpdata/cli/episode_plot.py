"""PNG plot of an episode for `warp episodes show --png`: frames of the first camera, and small channels over time.

Drawn with Pillow, which the extra `image` installs; matplotlib would be a large dependency for one plot.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

from warpdata.cli.episode_targets import OpenEpisode
from warpdata.primitives.extras import require

if TYPE_CHECKING:
    import numpy as np

    from warpdata.formats.wshard import BlockReader, JoinedBlock

__all__ = ["draw_episode"]

_MAX_FRAMES, _MAX_PANELS, _MAX_LINES = 8, 12, 32
_IMAGE_CHANNELS = (1, 3, 4)

_WIDTH, _MARGIN, _LABEL_WIDTH = 1000, 16, 170
_TITLE_HEIGHT, _FRAME_HEIGHT, _ROW_LABEL_HEIGHT, _STRIP_MARGIN, _AXIS_HEIGHT = 64, 120, 18, 16, 30
_PANEL_HEIGHT, _GAP, _FRAME_GAP = 86, 10, 6
_LEFT, _RIGHT = _MARGIN + _LABEL_WIDTH, _WIDTH - _MARGIN
_WHITE, _BLACK, _GREY, _LIGHT_GREY = (255, 255, 255), (40, 44, 52), (130, 136, 148), (232, 234, 238)
_LINE_COLOURS = (
    (31, 119, 180),
    (214, 39, 40),
    (44, 160, 44),
    (255, 127, 14),
    (148, 103, 189),
    (140, 86, 75),
    (23, 190, 207),
    (227, 119, 194),
)


def draw_episode(episode: OpenEpisode) -> bytes:
    """Return the plot as PNG. Reads the shown frames, and the plotted channels in full."""
    image_module = require("PIL.Image", purpose="--png", extra="image")
    info = episode.info
    readers = [episode.file[name] for name in episode.file.blocks if not name.startswith("meta/")]
    shown = [reader for reader in readers if reader.block_type.is_declared and reader.block_type.rows]
    camera = next((reader for reader in shown if _is_camera(reader)), None)
    panels = [reader for reader in shown if _is_small(reader)][:_MAX_PANELS]

    strip = None if camera is None else _paste_frames(camera)
    strip_height = 0 if strip is None else strip.height + _STRIP_MARGIN
    panels_height = len(panels) * (_PANEL_HEIGHT + _GAP) + (_AXIS_HEIGHT if panels else 0)
    image = image_module.new("RGB", (_WIDTH, _TITLE_HEIGHT + strip_height + panels_height + _MARGIN), _WHITE)
    pen = require("PIL.ImageDraw", purpose="--png", extra="image").Draw(image)
    rate = "" if info.timebase.hz is None else f"{info.timebase.hz:g} Hz"
    _text(pen, (_MARGIN, 12), info.id, _BLACK, 20)
    _text(pen, (_MARGIN, 38), " · ".join(filter(None, (info.env_id, f"{info.length:,} steps", rate))), _GREY, 13)
    top = _TITLE_HEIGHT
    if strip is not None and camera is not None:
        image.paste(strip, (_MARGIN, top))
        _text(pen, (_RIGHT, top + strip.height - _ROW_LABEL_HEIGHT + 3), camera.name, _GREY, 11, anchor="ra")
        top += strip_height
    for reader in panels:
        _draw_panel(pen, reader, top)
        top += _PANEL_HEIGHT + _GAP
    if panels:
        _draw_axis(pen, info.length, top - _GAP)
    out = io.BytesIO()
    image.save(out, "PNG")
    return out.getvalue()


def _is_camera(reader: BlockReader | JoinedBlock) -> bool:
    shape = reader.block_type.shape
    has_image_shape = len(shape) == 2 or (len(shape) == 3 and shape[2] in _IMAGE_CHANNELS)
    return str(reader.block_type.dtype) in ("u8", "u16", "f32") and has_image_shape and min(shape[:2]) >= 8


def _is_small(reader: BlockReader | JoinedBlock) -> bool:
    shape = reader.block_type.shape
    is_time = reader.name.startswith("time/")
    return not is_time and (not shape or (len(shape) == 1 and 1 <= shape[0] <= _MAX_LINES))


def _paste_frames(camera: BlockReader | JoinedBlock) -> Any:
    """Return an image of evenly spaced frames side by side, each with its row number below."""
    from PIL import Image, ImageDraw

    last, count = camera.block_type.rows - 1, min(_MAX_FRAMES, camera.block_type.rows)
    rows = sorted({round(last * number / max(count - 1, 1)) for number in range(count)})
    frame_height, frame_width = camera.block_type.shape[:2]
    available = (_RIGHT - _MARGIN - _FRAME_GAP * (len(rows) - 1)) // len(rows)
    width = min(max(1, round(frame_width * _FRAME_HEIGHT / frame_height)), available)
    height = max(1, min(_FRAME_HEIGHT, round(frame_height * width / frame_width)))
    strip = Image.new("RGB", (_RIGHT - _MARGIN, height + _ROW_LABEL_HEIGHT), _WHITE)
    pen = ImageDraw.Draw(strip)
    for number, row in enumerate(rows):
        left = number * (width + _FRAME_GAP)
        frame = Image.fromarray(_rgb(camera, row)).resize((width, height), Image.Resampling.NEAREST)
        strip.paste(frame, (left, 0))
        _text(pen, (left, height + 3), f"{row}", _GREY, 11)
    return strip


def _rgb(camera: BlockReader | JoinedBlock, row: int) -> np.ndarray[Any, Any]:
    """Return one frame as RGB. Depth and other numbers are scaled to 0…255."""
    import numpy as np

    pixels = np.asarray(camera.window(row, row + 1)[0])
    if pixels.dtype != np.uint8:
        values = np.nan_to_num(pixels.astype(np.float64))
        span = float(values.max() - values.min()) or 1.0
        pixels = ((values - values.min()) / span * 255).astype(np.uint8)
    if pixels.ndim == 2:
        pixels = pixels[:, :, None]
    pixels = pixels[:, :, :3] if pixels.shape[2] >= 3 else np.repeat(pixels[:, :, :1], 3, axis=2)
    return np.ascontiguousarray(pixels)


def _draw_panel(pen: Any, reader: BlockReader | JoinedBlock, top: int) -> None:
    """Draw one line per element of a channel. Values that are not finite leave gaps."""
    import numpy as np

    values = np.asarray(reader.read(), np.float64).reshape(reader.block_type.rows, -1)
    finite = values[np.isfinite(values)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
    if low == high:
        low, high = low - 0.5, high + 0.5
    bottom, line_count = top + _PANEL_HEIGHT, values.shape[1]
    pen.rectangle((_LEFT, top, _RIGHT, bottom), outline=_LIGHT_GREY)
    if low < 0 < high:
        zero = bottom + low / (high - low) * _PANEL_HEIGHT
        pen.line((_LEFT, zero, _RIGHT, zero), fill=_LIGHT_GREY)
    _text(pen, (_MARGIN, top + 2), reader.name if len(reader.name) <= 20 else f"…{reader.name[-19:]}", _BLACK, 13)
    _text(pen, (_MARGIN, top + 20), f"{line_count} lines" if line_count > 1 else "", _GREY, 11)
    _text(pen, (_LEFT - 6, top), f"{high:.3g}", _GREY, 11, anchor="ra")
    _text(pen, (_LEFT - 6, bottom - 12), f"{low:.3g}", _GREY, 11, anchor="ra")
    last = len(values) - 1
    rows = np.unique(np.linspace(0, last, min(len(values), 4 * (_RIGHT - _LEFT))).round().astype(int))
    x = _LEFT + rows / max(last, 1) * (_RIGHT - _LEFT)
    for number in range(line_count):
        y = bottom - 3 - (values[rows, number] - low) / (high - low) * (_PANEL_HEIGHT - 6)
        points = [(float(across), float(down)) for across, down in zip(x, y, strict=True) if np.isfinite(down)]
        colour = _LINE_COLOURS[number % len(_LINE_COLOURS)]
        if len(points) > 1:
            pen.line(points, fill=colour, width=2 if line_count == 1 else 1)
        elif points:
            pen.circle(points[0], 2, fill=colour)


def _draw_axis(pen: Any, step_count: int, top: int) -> None:
    last = max(step_count - 1, 0)
    for number, anchor in enumerate(("la", "ma", "ma", "ma", "ra")):
        x = _LEFT + (_RIGHT - _LEFT) * number / 4
        pen.line((x, top, x, top + 4), fill=_GREY)
        _text(pen, (x, top + 6), f"{round(last * number / 4):,}", _GREY, 11, anchor=anchor)
    _text(pen, (_MARGIN, top + 6), "step", _GREY, 11)


def _text(
    pen: Any, at: tuple[float, float], text: str, colour: tuple[int, int, int], size: int, *, anchor: str = "la"
) -> None:
    pen.text(at, text, fill=colour, font_size=size, anchor=anchor)
