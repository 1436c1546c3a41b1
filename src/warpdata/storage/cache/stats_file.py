"""What processes did with a cache, added up in its folder when they end.

Best effort: a process that is killed, or a disk that fails, leaves its counts out. Nobody reads them but
people. Implements "Totals" of docs/specs/cache.md.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import asdict, fields
from pathlib import Path

import msgspec

from warpdata.storage.cache.locks import Handle
from warpdata.storage.cache.metrics import IOStats

__all__ = ["add_to_totals", "read_totals"]

_NAME = "totals.json"
_MOST_BYTES = 4096


def add_to_totals(folder: Path, counts: IOStats) -> bool:
    """Whether they were added. A folder that nobody made yet, or that somebody else writes, is left alone."""
    if not any(asdict(counts).values()) or not folder.is_dir():
        return False
    with suppress(OSError):
        handle = Handle.open(folder / _NAME, os.O_RDWR | os.O_CREAT)
        if handle.try_lock(exclusive=True):
            known = asdict(_parse(os.pread(handle.fd, _MOST_BYTES, 0)))
            added = {name: known[name] + amount for name, amount in asdict(counts).items()}
            data = msgspec.json.encode(added)
            os.pwrite(handle.fd, data, 0)
            os.ftruncate(handle.fd, len(data))
            handle.unlock()
            return True
    return False


def read_totals(folder: Path) -> IOStats:
    """All zero where nothing was added yet."""
    with suppress(OSError):
        return _parse((folder / _NAME).read_bytes()[:_MOST_BYTES])
    return IOStats()


def _parse(data: bytes) -> IOStats:
    """What can not be read counts as nothing, and is written anew."""
    try:
        found = msgspec.json.decode(data, type=dict[str, int])
    except msgspec.MsgspecError:
        return IOStats()
    return IOStats(**{field.name: max(0, found.get(field.name, 0)) for field in fields(IOStats)})
