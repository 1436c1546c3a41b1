"""Videos of a LeRobot dataset, of which one file may hold many episodes: cut without encoding if possible."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from warpdata.errors import BadInputError, InvalidSourceError
from warpdata.formats.convert.episode_fields import Array
from warpdata.formats.media import VideoReader, cut_video
from warpdata.formats.wshard import index_video

__all__ = ["VideoPart", "count_frames"]


@dataclass(frozen=True, slots=True)
class VideoPart:
    """The frames of one episode in a video file."""

    path: Path
    first: int
    frame_count: int

    def cut(self, target: Path) -> bool:
        """Write the part to an MP4 without encoding. False, without a file: it does not begin with a key frame."""
        try:
            return cut_video(self.path, self.first, self.frame_count, target)
        except BadInputError as error:
            raise InvalidSourceError(error.message) from error

    def decode(self) -> Array:
        """Decode all frames of the part."""
        with VideoReader(self.path.open("rb"), str(self.path)) as video:
            frames = list(video.frames(self.first, self.first + self.frame_count))
        if len(frames) != self.frame_count:
            raise InvalidSourceError(f"{self.path} ends before frame {self.first + self.frame_count}")
        return np.stack(frames)


def count_frames(path: Path) -> int:
    """Count the frames of a video from its packets."""
    rows, _ = index_video(path, "video", is_verified=False)
    found = rows.attributes["frame_count"]
    assert isinstance(found, int)
    return found
