"""References to members of an artifact, with the methods of their type.

A reference reads nothing until a method is called. It can be pickled: the other process opens the artifact with its
own settings.
"""

from __future__ import annotations

import io
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar, TypeVar

from warpdata.errors import BadInputError, WarpError
from warpdata.formats.media import (
    AudioInfo,
    Resample,
    Reserve,
    ResizeTo,
    VideoInfo,
    VideoReader,
    audio_info,
    check_resize_to,
    decode_audio,
    decode_image,
    image_size,
    image_to_array,
    image_to_rgb,
    reserve_nothing,
    thumbnail_png,
)
from warpdata.kinds.artifacts.artifact import Artifact, Reopen
from warpdata.kinds.artifacts.member import ByteLocation, Locator
from warpdata.kinds.artifacts.member_fetch import FutureBytes
from warpdata.primitives.arguments import check_arguments
from warpdata.primitives.cached_property import cached_property
from warpdata.primitives.reprs import html_image, html_table, short_repr

if TYPE_CHECKING:
    import numpy as np
    from PIL.Image import Image

__all__ = ["REF_CLASSES", "AudioRef", "FileRef", "ImageRef", "VideoRef", "read_ahead", "read_many", "resolve_resize"]

_T = TypeVar("_T")


class FileRef:
    """A reference to any file. `size` costs an index look-up, `read_bytes` one verified range read."""

    ref_type: ClassVar[str] = "file"

    def __init__(self, artifact: Artifact, locator: Locator) -> None:
        if not isinstance(artifact, Artifact) or not isinstance(locator, str | ByteLocation):  # cheap: one for each row
            raise BadInputError(
                f"a reference needs an artifact and a path, not {type(artifact).__name__} and {locator!r}"
            )
        self._artifact = artifact
        self._locator = locator

    def __repr__(self) -> str:
        return short_repr(type(self).__name__, self.path, artifact=self._artifact.name)

    def _repr_html_(self) -> str:
        return html_table(repr(self), [], [])

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
        """The artifact that contains the file."""
        return self._artifact

    @property
    def locator(self) -> Locator:
        """The value that the table stores: a member path, or a range of a shard."""
        return self._locator

    @property
    def path(self) -> str:
        """The member path, or a description of the range."""
        at = self._locator
        return at if isinstance(at, str) else f"shard {at.shard} bytes {at.offset}…{at.offset + at.length}"

    @property
    def size(self) -> int:
        """The length of the content in bytes."""
        return self._artifact.size_of(self._locator)

    def read_bytes(self) -> bytes:
        """Return the content, verified."""
        return self._artifact.read_one(self._locator)

    def open(self) -> BinaryIO:
        """Return a seekable file over the content. A large file is fetched as it is read."""
        return self._artifact.open_at(self._locator)

    def as_numpy(self) -> np.ndarray[Any, Any]:
        """Return the bytes as an array of uint8. Subclasses return pixels or samples."""
        import numpy as np

        return np.frombuffer(self.read_bytes(), dtype=np.uint8)

    def decode(self, content: bytes, reserve: Reserve = reserve_nothing) -> Any:
        """Decode content that `read_many` returned, for training. Without a type, the bytes.

        `reserve` takes the bytes that decoding needs, before they are allocated.
        """
        return content

    @check_arguments
    def signed_url(self, expires_s: int = 3600) -> str:
        """Return a URL for a browser. Needs an artifact of kind `files`, and a store that can sign URLs."""
        return self._artifact.signed_url(self._locator, expires_s)

    def local_path(self) -> Path:
        """Return a local file with the content, written if needed. It exists at least while this process runs."""
        return self._artifact.local_path(self._locator)

    def _identity(self) -> tuple[Reopen, Locator]:
        return self._artifact.reopen, self._locator


class ImageRef(FileRef):
    """A reference to an image."""

    ref_type = "image"

    def thumbnail_png(self, edge: int = 256) -> bytes:
        """Read the image, and return it as a PNG of at most `edge` pixels in each direction."""
        return thumbnail_png(self.read_bytes(), self.path, edge)

    def _repr_html_(self) -> str:
        """Show a thumbnail, which reads the image."""
        try:
            return html_image(repr(self), b64encode(self.thumbnail_png()).decode("ascii"))
        except WarpError as error:
            return html_table(repr(self), [], [], notes=[str(error)])

    def as_pil(self) -> Image:
        """Return the decoded image. The orientation tag is not applied."""
        return decode_image(self.read_bytes(), self.path)

    @check_arguments
    def as_numpy(self, *, resize: ResizeTo | None = None) -> np.ndarray[Any, Any]:
        """Return pixels: height × width for grey, × 3 for colour, × 4 with transparency.

        `resize` scales to (height, width), or to a shorter side of this length. The result is then always
        height × width × 3, RGB; grey images of more than 8 bits keep their type.
        """
        return self.decode(self.read_bytes(), resize=resize)

    @check_arguments
    def decode(
        self,
        content: bytes,
        reserve: Reserve = reserve_nothing,
        *,
        resize: ResizeTo | None = None,
        resample: Resample | None = None,
    ) -> np.ndarray[Any, Any]:
        """Return pixels like `as_numpy`. `resample` scales pixels in place of Pillow."""
        if resize is None:
            return image_to_array(content, self.path, reserve)
        return image_to_rgb(content, self.path, check_resize_to(resize), reserve, resample)

    @property
    def shape(self) -> tuple[int, int]:
        """Width and height, from the header."""
        return image_size(self.read_bytes(), self.path)


class AudioRef(FileRef):
    """A reference to an audio file."""

    ref_type = "audio"

    @cached_property
    def info(self) -> AudioInfo:
        with self.open() as file:
            return audio_info(file, self.path)

    @property
    def sample_rate(self) -> int:
        return self.info.sample_rate

    @check_arguments
    def as_array(self, start_s: float = 0.0, duration_s: float | None = None) -> np.ndarray[Any, Any]:
        """Return float32 samples, frames × channels. Decodes only the given part."""
        with self.open() as file:
            return decode_audio(file, self.path, start_s=start_s, duration_s=duration_s)[0]

    def as_numpy(self) -> np.ndarray[Any, Any]:
        """Return samples like `as_array`."""
        return self.as_array()

    @check_arguments
    def decode(self, content: bytes, reserve: Reserve = reserve_nothing) -> np.ndarray[Any, Any]:
        """Return samples like `as_array`."""
        return decode_audio(io.BytesIO(content), self.path, reserve=reserve)[0]


class VideoRef(FileRef):
    """A reference to a video. Each call opens the file; use `reader` to read many frames."""

    ref_type = "video"

    @cached_property
    def info(self) -> VideoInfo:
        with self.reader() as video:
            return video.info

    def reader(self) -> VideoReader:
        """Return a decoder that stays open, for a `with` block."""
        return VideoReader(self.open(), self.path)

    @check_arguments
    def frame(self, index: int) -> np.ndarray[Any, Any]:
        """Return a frame by its number from 0: height × width × 3, uint8."""
        with self.reader() as video:
            return video.frame(index)

    @check_arguments
    def frame_at(self, seconds: float) -> np.ndarray[Any, Any]:
        """Return the frame that is shown at this time."""
        with self.reader() as video:
            return video.frame_at(seconds)

    @check_arguments
    def frames(self, start: int = 0, stop: int | None = None, step: int = 1) -> Iterator[np.ndarray[Any, Any]]:
        """Yield frames in order, decoded on demand."""
        with self.reader() as video:
            yield from video.frames(start, stop, step)


REF_CLASSES: dict[str, type[FileRef]] = {known.ref_type: known for known in (FileRef, ImageRef, AudioRef, VideoRef)}
"""The class for each `ref_type` of a binding."""


def resolve_resize(resize: Any, image_columns: Sequence[str]) -> dict[str, ResizeTo]:
    """Return the target size of each image column. One size is for all of them; None for none."""
    if resize is None:
        return {}
    given = resize if isinstance(resize, Mapping) else dict.fromkeys(image_columns, resize)
    known = f"Image columns: {sorted(image_columns)}."
    for name in given:
        if name not in image_columns:
            raise BadInputError(f"resize names {name!r}, which is not an image column of the stream", hint=known)
    if not given:
        raise BadInputError(f"resize={resize!r} has no column to apply to", hint=known)
    return {name: check_resize_to(size) for name, size in given.items()}


def _revive(cls: type[FileRef], reopen: Reopen, locator: str | ByteLocation) -> FileRef:
    return cls(reopen(), locator)


@check_arguments
def read_many(refs: Iterable[FileRef | None]) -> list[bytes | None]:
    """Return the content of each reference, in order, verified; None for None.

    References into one artifact are fetched together: neighbours share a request, and requests run in parallel. Takes
    references, their Arrow scalars, or an Arrow column of them.
    """
    return _by_artifact(refs, lambda artifact, locators: artifact.read_at(locators))


def read_ahead(refs: Iterable[FileRef | None], executor: Executor) -> list[FutureBytes | None]:
    """Start fetching like `read_many`, in order, and return a future for each reference."""
    return _by_artifact(refs, lambda artifact, locators: artifact.submit(locators, executor))


def _by_artifact(
    refs: Iterable[FileRef | None], read: Callable[[Artifact, Sequence[Locator]], Sequence[_T]]
) -> list[_T | None]:
    """Call `read` once for each artifact, and return its results in the order of the references."""
    listed = [_reference(ref) for ref in refs]
    by_artifact: dict[int, tuple[Artifact, list[int]]] = {}
    for position, ref in enumerate(listed):
        if ref is not None:
            by_artifact.setdefault(id(ref.artifact), (ref.artifact, []))[1].append(position)
    out: list[_T | None] = [None] * len(listed)
    for artifact, positions in by_artifact.values():
        wanted = [ref.locator for position in positions if (ref := listed[position]) is not None]
        for position, found in zip(positions, read(artifact, wanted), strict=True):
            out[position] = found
    return out


def _reference(value: object) -> FileRef | None:
    """Return a reference as it is, or the reference of an Arrow scalar."""
    if hasattr(value, "as_py"):
        value = value.as_py()
    if value is None or isinstance(value, FileRef):
        return value
    raise BadInputError(f"read_many takes references, not a {type(value).__name__}")
