"""What a file is, by the ending of its name. Pure; nothing is opened to look inside."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

__all__ = ["REF_TYPE_BY_ENDING", "count_endings", "ending_of", "ref_type_of"]

_ENDINGS = {
    "image": "jpg jpeg jfif png webp gif tif tiff bmp dib ppm pgm pbm pnm jp2 j2k avif qoi",
    "audio": "wav flac mp3 ogg oga opus aif aiff aifc au snd caf w64 rf64",
    "video": "mp4 m4v mov mkv webm avi mpg mpeg ts m2ts flv ogv wmv asf ivf",
}

REF_TYPE_BY_ENDING: Mapping[str, str] = {
    ending: ref_type for ref_type, endings in _ENDINGS.items() for ending in endings.split()
}
"""Endings of files that references can decode."""


def ending_of(path: str) -> str:
    """What stands after the last dot of the file's name, in lower case; nothing for `README` and `.profile`."""
    stem, dot, ending = path.rpartition("/")[2].rpartition(".")
    return ending.lower() if stem and dot else ""


def ref_type_of(path: str) -> str | None:
    """image, audio or video; None for anything else."""
    return REF_TYPE_BY_ENDING.get(ending_of(path))


def count_endings(paths: Iterable[str]) -> dict[str, int]:
    """How many files there are with each ending, the most frequent first; `""` counts those without one."""
    counts = Counter(ending_of(path) for path in paths)
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))
