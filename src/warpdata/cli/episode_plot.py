"""What to draw of an episode: its first camera, and every channel of few numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from warpdata.cli.episode_targets import ShownEpisode
from warpdata.cli.plot import Panel, Picture

if TYPE_CHECKING:
    import numpy as np

    from warpdata.formats.wshard import BlockReader, JoinedBlock

__all__ = ["picture_of"]

_FRAMES, _PANELS, _LINES = 8, 12, 32
_COLOURS = (1, 3, 4)


def picture_of(episode: ShownEpisode) -> Picture:
    """Reads the frames that are shown, and numbers whole."""
    info = episode.info
    readers = [episode.file[name] for name in episode.file.blocks if not name.startswith("meta/")]
    shown = [reader for reader in readers if reader.block_type.is_declared and reader.block_type.rows]
    camera = next((reader for reader in shown if _is_camera(reader)), None)
    lines = [reader for reader in shown if _is_line(reader)]
    facts = [info.env_id, f"{info.length:,} steps", _rate(info.timebase.hz)]
    return Picture(
        title=info.id,
        subtitle=" · ".join(fact for fact in facts if fact),
        step_count=info.length,
        strip_name="" if camera is None else camera.name,
        frames=[] if camera is None else [(row, _frame(camera, row)) for row in _spread(camera.block_type.rows)],
        panels=[Panel(reader.name, _numbers(reader)) for reader in lines[:_PANELS]],
    )


def _is_camera(reader: BlockReader | JoinedBlock) -> bool:
    shape = reader.block_type.shape
    looks_right = len(shape) == 2 or (len(shape) == 3 and shape[2] in _COLOURS)
    return str(reader.block_type.dtype) in ("u8", "u16", "f32") and looks_right and min(shape[:2]) >= 8


def _is_line(reader: BlockReader | JoinedBlock) -> bool:
    shape = reader.block_type.shape
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
