"""Cameras of an episode for `warp episodes show`: encoded images and video, and uncompressed images."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING

from warpdata.cli.episode_targets import OpenEpisode
from warpdata.errors import MediaDecodeError
from warpdata.formats.wshard import Array, FrameReader, JoinedFile, WShardFile, cut_rows, frames_block

if TYPE_CHECKING:
    from warpdata.formats.wshard import BlockReader, JoinedBlock

__all__ = ["Camera", "find_cameras"]

_IMAGE_CHANNELS = (1, 3, 4)
_MIN_SIDE = 8


@dataclass(frozen=True, slots=True)
class Camera:
    """A channel whose rows are images. `encoding` is None for uncompressed ones; `size` is (height, width)."""

    name: str
    encoding: str | None
    size: tuple[int, int] | None
    frame_count: int
    fps: float | None
    frame: Callable[[int], Array]
    """Decodes one frame, by number."""

    @property
    def text(self) -> str:
        """Resolution and rate, such as "640×480, 30 fps"."""
        size = "" if self.size is None else f"{self.size[1]}×{self.size[0]}"
        return ", ".join(filter(None, (size, "" if self.fps is None else f"{self.fps:.4g} fps")))


def find_cameras(episode: OpenEpisode) -> list[Camera]:
    """Return the cameras of an episode in the order of its blocks. Reads the frame index of each encoded one."""
    files = episode.file.parts if isinstance(episode.file, JoinedFile) else (episode.file,)
    out = []
    for name in files[0].blocks:
        spec = episode.info.channels.get(name)
        if spec is not None and "encoding" in spec.attributes:
            if all(name in file and frames_block(name) in file for file in files):
                out.append(_encoded(name, str(spec.attributes["encoding"]), files))
        elif name in episode.file and _has_images(episode.file[name]):
            rate = spec.attributes.get("sampling_rate_hz") if spec is not None else None
            out.append(_uncompressed(episode.file[name], rate if isinstance(rate, int | float) else None, episode))
    return out


def _encoded(name: str, encoding: str, files: tuple[WShardFile, ...]) -> Camera:
    parts = [FrameReader(file, name) for file in files]
    starts = [0, *accumulate(len(part) for part in parts)]

    def frame(number: int) -> Array:
        part, at, _ = next(cut_rows(starts, number, number + 1))
        try:
            return parts[part].frame(at)
        except MediaDecodeError as error:
            raise MediaDecodeError(f"{name}, frame {number}: {error.message}", hint=error.hint) from error

    return Camera(name, encoding, parts[0].size, starts[-1], parts[0].fps, frame)


def _uncompressed(reader: BlockReader | JoinedBlock, rate_hz: float | None, episode: OpenEpisode) -> Camera:
    height, width = reader.block_type.shape[:2]
    return Camera(
        reader.name,
        None,
        (height, width),
        reader.block_type.rows,
        rate_hz or episode.info.timebase.hz,
        partial(_read_row, reader),
    )


def _read_row(reader: BlockReader | JoinedBlock, row: int) -> Array:
    found: Array = reader.window(row, row + 1)[0]
    return found


def _has_images(reader: BlockReader | JoinedBlock) -> bool:
    shape = reader.block_type.shape
    has_image_shape = len(shape) == 2 or (len(shape) == 3 and shape[2] in _IMAGE_CHANNELS)
    return str(reader.block_type.dtype) in ("u8", "u16", "f32") and has_image_shape and min(shape[:2]) >= _MIN_SIDE
