"""Options of readers and writers, and the names that writers give to files."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from warpdata.errors import BadInputError
from warpdata.formats.labels.conservation import Conservation

__all__ = ["LabelOptions", "StemNames", "safe_name"]

_MAX_NAME_BYTES = 200
_UNSAFE = re.compile(r"[^\w .+-]|^[.\s]|[.\s]$")


@dataclass(frozen=True, slots=True)
class LabelOptions:
    """Choices of a conversion.

    `task` chooses what a format with several kinds of files holds, such as "detect" or "segment". `images` has width
    and height of the images that labels may belong to, by path, where no image files are beside the labels.
    """

    task: str | None = None
    images: Mapping[str, tuple[int, int] | None] = field(default_factory=dict)

    def choose(self, known: Sequence[str]) -> str:
        """Return the task. `BadInputError` if the format has no such task."""
        task = known[0] if self.task is None else self.task
        if task not in known:
            raise BadInputError(f"task={task!r} is not known", hint=f"The tasks are {', '.join(known)}.")
        return task


def safe_name(name: str) -> str:
    """Return a text as the name of a file or directory. Characters that could lead out of it become `_`."""
    text = _UNSAFE.sub("_", unicodedata.normalize("NFC", name))
    short = text.encode(errors="replace")[:_MAX_NAME_BYTES].decode(errors="ignore")
    return _UNSAFE.sub("_", short) or "_"


class StemNames:
    """Names of files that replace the suffix of an image path, where `a.jpg` and `a.png` must not meet."""

    def __init__(self, account: Conservation, fold: Callable[[str], str] = str.casefold) -> None:
        self._account = account
        self._fold = fold
        self._taken: set[str] = set()

    def unique(self, path: str) -> str:
        """Return the path, or if another image has its stem, the path with its suffix repeated, such as a.png.png."""
        stem, dot, suffix = path.rpartition(".")
        stem, suffix = (stem, suffix) if dot and "/" not in suffix and stem else (path, "")
        name = path
        while self._fold(stem) in self._taken:
            stem, name = name, f"{name}.{suffix or 'image'}"
            self._account.change("paths", "another image differs only in its suffix or case", path)
        self._taken.add(self._fold(stem))
        return name
