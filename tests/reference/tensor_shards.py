"""Shard boundaries of published tensors, by the words of docs/specs/tensors.md and nothing else."""

from __future__ import annotations

import hashlib
from typing import Any

__all__ = ["cut"]


def cut(rows: dict[str, list[Any]], total: int, *, large: int, most: int) -> list[int]:
    """The sizes of the shards. `rows` are those of the index; `large` and `most` the two numbers of the rules."""
    end = (total + 7) // 8 * 8
    names: dict[int, str] = {}
    for name in sorted(rows, reverse=True):
        offset, size = rows[name][:2]
        if size:
            names[offset] = name
    starts = sorted(names)
    rooms = [(start, stop) for start, stop in zip([0, *starts[1:]], [*starts[1:], end], strict=True) if stop > start]
    if not starts:
        rooms = [(0, end)] if end else []
    shards: list[int] = []
    may_join = False
    for number, (start, stop) in enumerate(rooms):
        room = stop - start
        if room >= large:
            shards += [min(most, room - at) for at in range(0, room, most)]
            may_join = False
            continue
        if may_join and shards[-1] + room <= most:
            shards[-1] += room
        else:
            shards.append(room)
        name = names[starts[number]] if starts else ""
        ends = shards[-1] >= large and hashlib.sha256(name.encode()).digest()[0] % 8 == 0
        may_join = not ends
    return shards
