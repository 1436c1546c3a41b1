"""Paths of labelled images: names that every file system, archive and tool can store."""

from __future__ import annotations

import re
import unicodedata

from warpdata.errors import BadInputError, ErrorKind

__all__ = ["check_image_path"]

MAX_PATH_BYTES, MAX_SEGMENT_BYTES = 1024, 255
_PLAIN = re.compile(r"(?:[A-Za-z0-9_-]+/)*[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*")
"""Letters, digits and single dots within the last part."""


def check_image_path(path: str) -> str:
    """Return the path of a file in a collection. `BadInputError` for one that some system could not store."""
    if len(path) <= MAX_SEGMENT_BYTES and _PLAIN.fullmatch(path):
        return path  # as almost always
    problem = None
    segments = path.split("/")
    if unicodedata.normalize("NFC", path) != path:
        problem = "is not in Unicode normal form C"
    elif len(path.encode(errors="replace")) > MAX_PATH_BYTES:
        problem = f"is longer than {MAX_PATH_BYTES} bytes"
    elif any(len(segment.encode(errors="replace")) > MAX_SEGMENT_BYTES for segment in segments):
        problem = f"has a part of more than {MAX_SEGMENT_BYTES} bytes"
    elif any(segment in ("", ".", "..") for segment in segments) or segments[0].endswith(":"):
        problem = "is not a plain relative path"
    elif "\\" in path or not path.isprintable():
        problem = "has a backslash or a character that cannot be printed"
    elif any(segment.endswith((".", " ")) for segment in segments):
        problem = "has a part that ends with a dot or a space"
    if problem is not None:
        raise BadInputError(
            f"the path {path[:80]!r} {problem}",
            hint="Use a relative path such as 'cats/1.jpg'.",
            kind=ErrorKind.INVALID_NAME,
        )
    return path
