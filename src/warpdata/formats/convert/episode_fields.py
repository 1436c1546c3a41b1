"""All that an episode file holds, by name, so that a report can speak of each thing once.

A field is a block by its name, a member of `meta/episode` as `meta/episode.env_id`, or what the declaration
of a channel adds, as `signal/imu.attributes`. `meta/wshard` says nothing about an episode.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from warpdata.errors import BadInputError, EpisodeCorruptedError
from warpdata.formats.wshard import BlockReader, ChannelSpec, DType, EpisodeInfo, WShardFile, open_wshard

__all__ = [
    "Array",
    "attributes_field",
    "fields_of",
    "info_of",
    "is_stepwise",
    "opened",
    "row_windows",
    "spec_of",
    "widened",
]

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"

META = ("meta/wshard", "meta/episode", "meta/channels")


def opened(path: Path) -> WShardFile:
    """The episode file; a journal is refused with a word about what to do."""
    if path.name.endswith(".partial"):
        hint = "Call warpdata.formats.wshard.recover on it first."
        raise BadInputError(f"{path} is the journal of a recording, not an episode", hint=hint)
    return open_wshard(path)


def info_of(file: WShardFile) -> EpisodeInfo:
    if file.info is None:
        raise EpisodeCorruptedError("there is no block 'meta/episode'")
    return file.info


def fields_of(file: WShardFile) -> list[str]:
    """Every field of the file. `meta/episode.episode_id` is always there."""
    info = info_of(file)
    found = ["meta/episode.episode_id"]
    members: dict[str, object] = {
        "env_id": info.env_id,
        "timebase": info.timebase.type != "ticks" or info.timebase.hz is not None,
        "chunk": info.chunk,
        "metadata": info.metadata,
    }
    found += [f"meta/episode.{name}" for name, value in members.items() if value]
    found += [f"meta/episode.{name}" for name in info.attributes]
    for block in file.blocks:
        if block in META:
            continue
        found.append(block)
        spec = spec_of(info, block)
        if spec is not None and (spec.attributes or spec.id != block.partition("/")[2]):
            found.append(attributes_field(block))
    return found


def attributes_field(block: str) -> str:
    """The name of what a declaration says beside type and shape: attributes, and an id that is not the block's."""
    return f"{block}.attributes"


def spec_of(info: EpisodeInfo, block: str) -> ChannelSpec | None:
    return info.channels.get(block) or info.lanes.get(block)


def is_stepwise(file: WShardFile, block: str) -> bool:
    """Whether the block is an array with one row for each step."""
    info, meaning = info_of(file), file[block].meaning
    spec = spec_of(info, block)
    encoded = spec is not None and "encoding" in spec.attributes
    return meaning.is_declared and not encoded and meaning.rows == info.length


def row_windows(reader: BlockReader) -> Iterator[tuple[int, Array]]:
    """All rows of a block in pieces, each with the number of its first row; checked at the end.

    Memory is a piece: some MiB, or a whole block where it is compressed in one frame. bf16 comes as its bits.
    """
    meaning = reader.meaning
    dtype = np.dtype("<u2") if meaning.dtype is DType.BF16 else meaning.dtype.numpy
    row_bytes = prod(meaning.shape) * meaning.dtype.size_bytes
    if not row_bytes:
        yield 0, reader.read()
        return
    first, left = 0, b""
    for piece in reader.pieces():
        data = piece if not left else memoryview(left + bytes(piece))
        count = len(data) // row_bytes
        if count:
            rows = np.frombuffer(data[: count * row_bytes], dtype).reshape(count, *meaning.shape)
            # Any byte but 0 is true, and others would be surprised by it.
            yield first, rows.view(np.uint8) != 0 if dtype == np.bool_ else rows
        first, left = first + count, bytes(data[count * row_bytes :])


def widened(bits: Array) -> Array:
    """bf16 as float32, from its bits; every value is exact."""
    return (bits.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
