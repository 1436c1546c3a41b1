"""Types of media files, by the suffix of a name or by the first bytes of a content."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["REF_TYPE_BY_SUFFIX", "media_suffix", "ref_type_of", "suffix_of"]

_SUFFIXES = {
    "image": "jpg jpeg jfif png webp gif tif tiff bmp dib ppm pgm pbm pnm jp2 j2k avif qoi",
    "audio": "wav flac mp3 ogg oga opus aif aiff aifc au snd caf w64 rf64",
    "video": "mp4 m4v mov mkv webm avi mpg mpeg ts m2ts flv ogv wmv asf ivf",
}

_SIGNATURES: tuple[tuple[int, bytes, str], ...] = (
    (0, b"\x89PNG\r\n\x1a\n", "png"),
    (0, b"\xff\xd8\xff", "jpg"),
    (0, b"GIF8", "gif"),
    (0, b"BM", "bmp"),
    (0, b"II*\0", "tif"),
    (0, b"MM\0*", "tif"),
    (8, b"WEBP", "webp"),
    (8, b"WAVE", "wav"),
    (8, b"AVI ", "avi"),
    (0, b"fLaC", "flac"),
    (0, b"OggS", "ogg"),
    (0, b"ID3", "mp3"),
    (0, b"\xff\xfb", "mp3"),
    (4, b"ftyp", "mp4"),
    (0, b"\x1aE\xdf\xa3", "mkv"),
    (0, b"%PDF-", "pdf"),
)

REF_TYPE_BY_SUFFIX: Mapping[str, str] = {
    suffix: ref_type for ref_type, suffixes in _SUFFIXES.items() for suffix in suffixes.split()
}
"""Suffixes of files that references can decode, without the dot."""


def suffix_of(path: str) -> str:
    """Return the part of the file name after the last dot, in lower case; "" for `README` and `.profile`."""
    stem, dot, suffix = path.rpartition("/")[2].rpartition(".")
    return suffix.lower() if stem and dot else ""


def ref_type_of(path: str) -> str | None:
    """Return "image", "audio" or "video"; None for other files."""
    return REF_TYPE_BY_SUFFIX.get(suffix_of(path))


def media_suffix(content: bytes | memoryview) -> str:
    """Return the usual suffix of a content by its first bytes, without the dot; "" if they are not known."""
    head = bytes(content[:16])
    for offset, signature, suffix in _SIGNATURES:
        if head[offset : offset + len(signature)] == signature:
            return suffix
    return ""
