"""References: a member of an artifact, with the methods its type promises.

Nothing is read before a method asks for it. A reference can be pickled: the other process opens the
artifact anew, with its own settings.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from warpdata.formats.media import (
    AudioInfo,
    VideoInfo,
    VideoReader,
    audio_info,
    decode_audio,
    decode_image,
    image_size,
    image_to_array,
)
from warpdata.kinds.artifacts.artifact import Artifact, Reopen
from warpdata.kinds.artifacts.member import ByteLocation, Locator
from warpdata.primitives.cached_property import cached_property

if TYPE_CHECKING:
    import numpy as np
    from PIL.Image import Image

__all__ = ["REF_CLASSES", "AudioRef", "FileRef", "ImageRef", "VideoRef"]


class FileRef:
    """Any file. `size` costs a look into the index; `read_bytes` one range read, verified."""

    def __init__(self, artifact: Artifact, locator: Locator) -> None:
        self._artifact = artifact
        self._locator = locator

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.path!r}, artifact={self._artifact.name!r})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, FileRef):
            return NotImplemented
        return type(self) is type(other) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())

    def __reduce__(self) -> tuple[Any, ...]:
        return _revive, (type(self), self._artifact.reopen, self._locator)

    @property
    def artifact(self) -> Artifact:
        """The artifact it points into."""
        return self._artifact

    @property
    def locator(self) -> Locator:
        """What the table stores: a member path, or the bytes of a shard."""
        return self._locator

    @property
    def path(self) -> str:
        """The member path; for bytes named directly, where they are."""
        at = self._locator
        return at if isinstance(at, str) else f"shard {at.shard} bytes {at.offset}…{at.offset + at.length}"

    @property
    def size(self) -> int:
        """How many bytes `read_bytes` will give."""
        return self._artifact.size_of(self._locator)

    def read_bytes(self) -> bytes:
        """The whole content, verified."""
        return self._artifact.read_one(self._locator)

    def open(self) -> BinaryIO:
        """A seekable file over the content; a large one is fetched as it is read."""
        return self._artifact.open_at(self._locator)

    def as_numpy(self) -> np.ndarray[Any, Any]:
        """The bytes as an array of uint8; pictures give their pixels instead."""
        import numpy as np

        return np.frombuffer(self.read_bytes(), dtype=np.uint8)

    def decode(self, content: bytes) -> Any:
        """What training wants of content that was read by other means, as by `read_many`: here, the bytes."""
        return content

    def signed_url(self, expires_s: int = 3600) -> str:
        """A URL that lets a browser read it for a while; for artifacts of kind `files` on stores that can sign."""
        return self._artifact.signed_url(self._locator, expires_s)

    def local_path(self) -> Path:
        """A file on this machine with the content, made if needed. It stays at least while this process lives."""
        return self._artifact.local_path(self._locator)

    def _identity(self) -> tuple[Reopen, Locator]:
        return self._artifact.reopen, self._locator


class ImageRef(FileRef):
    """A picture."""

    def as_pil(self) -> Image:
        """Decoded by Pillow, loaded; its orientation tag is not applied."""
        return decode_image(self.read_bytes(), self.path)

    def as_numpy(self) -> np.ndarray[Any, Any]:
        """Pixels: height × width for grey, × 3 for colour, × 4 with transparency."""
        return image_to_array(self.read_bytes(), self.path)

    def decode(self, content: bytes) -> np.ndarray[Any, Any]:
        """Pixels, as `as_numpy`."""
        return image_to_array(content, self.path)

    @property
    def shape(self) -> tuple[int, int]:
        """Width and height, from the header."""
        return image_size(self.read_bytes(), self.path)


class AudioRef(FileRef):
    """A sound."""

    @cached_property
    def info(self) -> AudioInfo:
        with self.open() as file:
            return audio_info(file, self.path)

    @property
    def sample_rate(self) -> int:
        return self.info.sample_rate

    def as_array(self, start_s: float = 0.0, duration_s: float | None = None) -> np.ndarray[Any, Any]:
        """float32, frames × channels; only the part asked for is decoded."""
        with self.open() as file:
            return decode_audio(file, self.path, start_s=start_s, duration_s=duration_s)[0]

    def as_numpy(self) -> np.ndarray[Any, Any]:
        """As `as_array`."""
        return self.as_array()

    def decode(self, content: bytes) -> np.ndarray[Any, Any]:
        """Samples of sound, as `as_array`."""
        return decode_audio(io.BytesIO(content), self.path)[0]


class VideoRef(FileRef):
    """A film. Each call opens it; to read many frames, use `reader`."""

    @cached_property
    def info(self) -> VideoInfo:
        with self.reader() as video:
            return video.info

    def reader(self) -> VideoReader:
        """A decoder that stays open, to be used in a `with` block."""
        return VideoReader(self.open(), self.path)

    def frame(self, index: int) -> np.ndarray[Any, Any]:
        """One frame by its number from 0: height × width × 3, uint8."""
        with self.reader() as video:
            return video.frame(index)

    def frame_at(self, seconds: float) -> np.ndarray[Any, Any]:
        """The frame that is shown at that time."""
        with self.reader() as video:
            return video.frame_at(seconds)

    def frames(self, start: int = 0, stop: int | None = None, step: int = 1) -> Iterator[np.ndarray[Any, Any]]:
        """Frames in order, decoded as they are asked for."""
        with self.reader() as video:
            yield from video.frames(start, stop, step)


REF_CLASSES: dict[str, type[FileRef]] = {"file": FileRef, "image": ImageRef, "audio": AudioRef, "video": VideoRef}
"""The class for each `ref_type` of a binding."""


def _revive(cls: type[FileRef], reopen: Reopen, locator: str | ByteLocation) -> FileRef:
    return cls(reopen(), locator)
