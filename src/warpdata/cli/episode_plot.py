"""PNG plot of an episode for `warp episodes show --png`: frames of its cameras, and small channels over time.

Drawn with Pillow, which the extra `image` installs; matplotlib would be a large dependency for one plot.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

from warpdata.cli.episode_cameras import Camera, find_cameras
from warpdata.cli.episode_targets import OpenEpisode
from warpdata.primitives.extras import require

if TYPE_CHECKING:
    import numpy as np

    from warpdata.formats.wshard import BlockReader, JoinedBlock

__all__ = ["draw_episode"]

_MAX_CAMERAS, _MAX_FRAMES, _MAX_PANELS, _MAX_LINES = 4, 8, 12, 32

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
    cameras = [camera for camera in find_cameras(episode) if camera.frame_count][:_MAX_CAMERAS]
    readers = [episode.file[name] for name in episode.file.blocks if not name.startswith("meta/")]
    panels = [reader for reader in readers if _is_small(reader, episode)][:_MAX_PANELS]

    strips = [_paste_frames(camera) for camera in cameras]
    strips_height = sum(_ROW_LABEL_HEIGHT + strip.height + _STRIP_MARGIN for strip in strips)
    panels_height = len(panels) * (_PANEL_HEIGHT + _GAP) + (_AXIS_HEIGHT if panels else 0)
    image = image_module.new("RGB", (_WIDTH, _TITLE_HEIGHT + strips_height + panels_height + _MARGIN), _WHITE)
    pen = require("PIL.ImageDraw", purpose="--png", extra="image").Draw(image)
    rate = "" if info.timebase.hz is None else f"{info.timebase.hz:g} Hz"
    _text(pen, (_MARGIN, 12), info.id, _BLACK, 20)
    _text(pen, (_MARGIN, 38), " · ".join(filter(None, (info.env_id, f"{info.length:,} steps", rate))), _GREY, 13)
    top = _TITLE_HEIGHT
    for camera, strip in zip(cameras, strips, strict=True):
        _text(pen, (_MARGIN, top), camera.name, _BLACK, 13)
        # Pillow's own font has no multiplication sign.
        label = ", ".join(filter(None, (camera.encoding, camera.text))).replace("×", " x ")
        _text(pen, (_RIGHT, top + 1), label, _GREY, 11, anchor="ra")
        image.paste(strip, (_MARGIN, top + _ROW_LABEL_HEIGHT))
        top += _ROW_LABEL_HEIGHT + strip.height + _STRIP_MARGIN
    for reader in panels:
        _draw_panel(pen, reader, top)
        top += _PANEL_HEIGHT + _GAP
    if panels:
        _draw_axis(pen, info.length, top - _GAP)
    out = io.BytesIO()
    image.save(out, "PNG")
    return out.getvalue()


def _is_small(reader: BlockReader | JoinedBlock, episode: OpenEpisode) -> bool:
    """Return whether a block is plotted: scalars or short vectors, but no encoded bytes and no times."""
    block_type, spec = reader.block_type, episode.info.channels.get(reader.name)
    is_encoded = spec is not None and "encoding" in spec.attributes
    if not block_type.is_declared or not block_type.rows or is_encoded or reader.name.startswith("time/"):
        return False
    shape = block_type.shape
    return not shape or (len(shape) == 1 and 1 <= shape[0] <= _MAX_LINES)


def _paste_frames(camera: Camera) -> Any:
    """Return an image of evenly spaced frames side by side, each with its number below."""
    from PIL import Image, ImageDraw

    last, count = camera.frame_count - 1, min(_MAX_FRAMES, camera.frame_count)
    numbers = sorted({round(last * number / max(count - 1, 1)) for number in range(count)})
    frames = [Image.fromarray(_rgb(camera.frame(number))) for number in numbers]
    available = (_RIGHT - _MARGIN - _FRAME_GAP * (len(frames) - 1)) // len(frames)
    frame_width, frame_height = frames[0].size
    width = min(max(1, round(frame_width * _FRAME_HEIGHT / frame_height)), available)
    height = max(1, min(_FRAME_HEIGHT, round(frame_height * width / frame_width)))
    # Enlarged pixels stay sharp; reduced frames are averaged.
    how = Image.Resampling.NEAREST if width >= frame_width else Image.Resampling.BILINEAR
    strip = Image.new("RGB", (_RIGHT - _MARGIN, height + _ROW_LABEL_HEIGHT), _WHITE)
    pen = ImageDraw.Draw(strip)
    for at, (number, frame) in enumerate(zip(numbers, frames, strict=True)):
        left = at * (width + _FRAME_GAP)
        strip.paste(frame.resize((width, height), how), (left, 0))
        _text(pen, (left, height + 3), f"{number}", _GREY, 11)
    return strip


def _rgb(pixels: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return a frame as RGB. Depth and other numbers are scaled to 0…255."""
    import numpy as np

    pixels = np.asarray(pixels)
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
