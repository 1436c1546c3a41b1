"""A part that somebody else fills, as it is seen from here: what is there, and what we would like to be there next.

Looks at files that their owner may change, finish or leave behind at any moment. Bytes are as little
verified as those of a store. Implements "Maps" of docs/specs/cache.md.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from warpdata.storage import ByteRange
from warpdata.storage.cache.locks import Handle
from warpdata.storage.cache.partial import MAP_BEAT_BYTES, Progress, is_collecting, read_progress, unit_count, units_of

__all__ = ["Elsewhere"]


class Elsewhere:
    """A part and its map, by their paths. `OSError` where the disk does not help."""

    def __init__(self, part: Handle, part_path: Path, map_path: Path) -> None:
        self._part = part
        self._part_path = part_path
        self._map_path = map_path
        self._map: Handle | None = None

    @staticmethod
    def open(part_path: Path, map_path: Path) -> Elsewhere | None:
        """None where there is no part. Whether somebody fills it is for `look` to say."""
        try:
            return Elsewhere(Handle.open(part_path, os.O_RDONLY), part_path, map_path)
        except FileNotFoundError:
            return None

    def look(self) -> Progress | None:
        """How far it is; None when nobody fills it any more."""
        return read_progress(self._part)

    def is_collecting(self) -> bool:
        """Whether somebody has it, who fetches nothing for it."""
        return is_collecting(self._part)

    def take(self, spans: Sequence[ByteRange]) -> list[memoryview] | None:
        """The bytes of these ranges; None unless all of them are there."""
        mapped = self._open_map()
        if mapped is None:
            return None
        for units in map(units_of, spans):
            marks = os.pread(mapped.fd, len(units), units.start)
            if len(marks) < len(units) or not all(marks):
                return None
        found = [os.pread(self._part.fd, span.size_bytes, span.start) for span in spans]
        if any(len(data) < span.size_bytes for data, span in zip(found, spans, strict=True)):
            return None
        # The map goes before a part is emptied that a killed process left.
        return [memoryview(data) for data in found] if mapped.is_at(self._map_path) else None

    def wish(self, spans: Sequence[ByteRange], size_bytes: int) -> bool:
        """Ask whoever fills it to fetch these ranges first; False if there is nowhere to ask yet."""
        mapped, count = self._open_map(), unit_count(size_bytes)
        if mapped is None:
            return False
        with suppress(OSError):  # a map that we can only read: then it comes in its turn
            for units in map(units_of, spans):
                marked = range(units.start, min(units.stop, count))
                os.pwrite(mapped.fd, b"\1" * len(marked), count + units.start)
        return True

    def beat(self, size_bytes: int) -> bytes:
        """Another one each time that whoever fills it looks at the wishes."""
        mapped = self._open_map()
        return b"" if mapped is None else os.pread(mapped.fd, MAP_BEAT_BYTES, 2 * unit_count(size_bytes))

    def _open_map(self) -> Handle | None:
        """The map of this very part, and of no later one."""
        if self._map is None:
            with suppress(FileNotFoundError):
                found = _open_to_write(self._map_path)
                self._map = found if self._part.is_at(self._part_path) else None
        return self._map


def _open_to_write(path: Path) -> Handle:
    try:
        return Handle.open(path, os.O_RDWR)
    except FileNotFoundError:
        raise
    except OSError:
        return Handle.open(path, os.O_RDONLY)
