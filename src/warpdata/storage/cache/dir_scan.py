"""One look at everything in a cache folder: what there is, how large, how long unused.

Costs two calls of the system for each entry, so it is made when room is needed or somebody asks, not
for each fill. A million entries fit in about 90 MB of memory.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from warpdata.primitives.hashing import is_digest
from warpdata.storage.cache.layout import Places
from warpdata.storage.cache.locks import Handle

__all__ = ["Survey", "survey"]


class Survey:
    """Entries in columns, and the sums over entries and over parts that are being filled."""

    def __init__(self) -> None:
        self._used_at = array("d")
        self._sizes = array("q")
        self._digests = bytearray()
        self.entry_bytes = 0
        self.part_bytes = 0
        self.part_count = 0

    def __len__(self) -> int:
        return len(self._sizes)

    @property
    def total_bytes(self) -> int:
        return self.entry_bytes + self.part_bytes

    def add(self, digest: str, size_bytes: int, used_at: float) -> None:
        self._used_at.append(used_at)
        self._sizes.append(size_bytes)
        self._digests += bytes.fromhex(digest)
        self.entry_bytes += size_bytes

    def least_recent_first(self) -> Iterator[tuple[str, float]]:
        """Each entry and when it was last used."""
        for index in sorted(range(len(self)), key=self._used_at.__getitem__):
            yield self._digests[32 * index : 32 * index + 32].hex(), self._used_at[index]


def survey(places: Places, *, tidy: bool = False) -> Survey:
    """Look at all shelves. With `tidy`, which needs the ledger's lock, remove what killed processes left."""
    found = Survey()
    for shelf in places.shelves():
        _look_at(Path(shelf), found, tidy=tidy)
    return found


def _look_at(shelf: Path, found: Survey, *, tidy: bool) -> None:
    by_suffix: dict[str, dict[str, os.stat_result]] = {"": {}, ".ok": {}, ".part": {}, ".new": {}, ".map": {}}
    try:
        with os.scandir(shelf) as listing:
            for item in listing:
                digest, suffix = item.name[:64], item.name[64:]
                if suffix in by_suffix and is_digest(digest):
                    with suppress(FileNotFoundError):
                        by_suffix[suffix][digest] = item.stat(follow_symlinks=False)
    except FileNotFoundError:
        return
    data, records, parts, staged, maps = by_suffix.values()
    for digest, status in data.items():
        if digest in records:
            found.add(digest, status.st_size, records[digest].st_mtime)
    for digest, status in parts.items():
        if tidy and _remove_if_dead(shelf / f"{digest}.part"):
            continue
        maps.pop(digest, None)
        found.part_bytes += status.st_size
        found.part_count += 1
    if tidy:
        lonely = [*(data.keys() - records.keys()), *(f"{digest}.ok" for digest in records.keys() - data.keys())]
        for name in [*lonely, *(f"{digest}.new" for digest in staged), *(f"{digest}.map" for digest in maps)]:
            (shelf / name).unlink(missing_ok=True)


def _remove_if_dead(path: Path) -> bool:
    """Whether nobody was filling this part, so that it is gone now."""
    try:
        handle = Handle.open(path, os.O_RDWR)
    except FileNotFoundError:
        return True
    if not handle.try_lock(exclusive=True):
        return False
    if handle.is_at(path):
        path.unlink(missing_ok=True)
    handle.unlock()
    return True
