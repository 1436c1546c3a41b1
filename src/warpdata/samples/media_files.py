"""Media of samples on their way into an artifact: named by content, so that equal bytes are stored once.

Bytes wait in a directory until the commit, so memory holds one of them at a time. Files of the user stay where they
are.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from warpdata.errors import SchemaMismatchError
from warpdata.primitives.hashing import fingerprint_file
from warpdata.samples.values import MediaInput

__all__ = ["MediaFiles", "extension_of"]

_HEAD_BYTES = 64
_MAGIC: tuple[tuple[int, bytes, str], ...] = (
    (0, b"\xff\xd8\xff", ".jpg"),
    (0, b"\x89PNG\r\n\x1a\n", ".png"),
    (0, b"GIF8", ".gif"),
    (0, b"BM", ".bmp"),
    (0, b"II*\x00", ".tif"),
    (0, b"MM\x00*", ".tif"),
    (8, b"WEBP", ".webp"),
    (4, b"ftypavif", ".avif"),
    (4, b"ftypheic", ".heic"),
    (8, b"WAVE", ".wav"),
    (0, b"fLaC", ".flac"),
    (0, b"OggS", ".ogg"),
    (0, b"ID3", ".mp3"),
    (0, b"\xff\xfb", ".mp3"),
    (0, b"\xff\xf3", ".mp3"),
    (4, b"ftypM4A", ".m4a"),
    (4, b"ftypqt", ".mov"),
    (4, b"ftyp", ".mp4"),
    (0, b"\x1aE\xdf\xa3", ".mkv"),
    (8, b"AVI ", ".avi"),
    (0, b"%PDF", ".pdf"),
    (0, b"\x93NUMPY", ".npy"),
    (0, b"PK\x03\x04", ".zip"),
    (0, b"\x1f\x8b", ".gz"),
)
_UNKNOWN = ".bin"


def extension_of(head: bytes) -> str:
    """Return the extension that belongs to the first bytes of a file; ".bin" if they are not known. Pure."""
    for offset, magic, extension in _MAGIC:
        if head.startswith(magic, offset):
            return extension
    return _UNKNOWN


class MediaFiles:
    """Files to add to artifacts, by column and member path. The directory is the caller's."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.files: dict[str, dict[str, Path]] = {}
        self.size_bytes = 0

    def add(self, column: str, content: MediaInput) -> str:
        """Keep a file for the commit, and return its member path."""
        if isinstance(content, Path):
            digest, head, size = _read(content)
        else:
            digest, head, size = hashlib.sha256(content).hexdigest(), content[:_HEAD_BYTES], len(content)
        path = f"{column}/{digest}{extension_of(head)}"
        known = self.files.setdefault(column, {})
        if path not in known:
            known[path] = content if isinstance(content, Path) else self._spool(digest, content)
            self.size_bytes += size
        return path

    def _spool(self, digest: str, content: bytes) -> Path:
        path = self._directory / digest
        path.write_bytes(content)
        return path


def _read(path: Path) -> tuple[str, bytes, int]:
    try:
        blob = fingerprint_file(path).blob
        with path.open("rb") as file:
            return blob.hash, file.read(_HEAD_BYTES), blob.byte_size
    except OSError as error:
        raise SchemaMismatchError(f"{path} cannot be read: {error.strerror or error}") from error
