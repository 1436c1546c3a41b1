"""The fields of an episode file by name, so that a report has one line for each.

A field is a block by its name, a member of `meta/episode` such as `meta/episode.env_id`, or the further members of a
channel's declaration, such as `signal/imu.attributes`. `meta/wshard` describes no episode and is not a field.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from warpdata.errors import BadInputError, CorruptError
from warpdata.formats.wshard import (
    BlockReader,
    ChannelSpec,
    DType,
    EpisodeInfo,
    WShardFile,
    is_chunk_manifest,
    join_chunks,
    open_wshard,
)

__all__ = [
    "META_BLOCKS",
    "SERIES_BLOCKS",
    "Array",
    "attributes_field",
    "find_spec",
    "is_encoded",
    "is_stepwise",
    "is_usual_series",
    "iterate_rows",
    "list_fields",
    "open_episode",
    "require_info",
    "widen_bf16",
]

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"

META_BLOCKS = ("meta/wshard", "meta/episode", "meta/channels")
SERIES_BLOCKS = {
    "reward": ("rewards", DType.F32),
    "done": ("terminations", DType.BOOL),
    "truncated": ("truncations", DType.BOOL),
    "time/timestamps_ns": ("timestamps_ns", DType.I64),
}
"""Blocks that are fields of `Episode`, with their types unless a file declares others."""


def open_episode(path: Path) -> WShardFile:
    """Open an episode file, or a chunk manifest as one file; refuse a journal with a hint.

    Chunks are joined in a temporary file, in bounded memory, because a converter reads every block of an episode.
    """
    if path.name.endswith(".partial"):
        hint = "Call warpdata.wshard.recover on it first."
        raise BadInputError(f"{path} is the journal of a recording, not an episode", hint=hint)
    if not is_chunk_manifest(path):
        return open_wshard(path)
    with tempfile.TemporaryDirectory() as scratch:
        joined = Path(scratch, "joined.wshard")
        join_chunks(path, joined)
        # The mapping outlives the name of the file.
        return open_wshard(joined)


def require_info(file: WShardFile) -> EpisodeInfo:
    if file.info is None:
        raise CorruptError("there is no block 'meta/episode'")
    return file.info


def list_fields(file: WShardFile) -> list[str]:
    """Return every field of the file. `meta/episode.episode_id` is always present."""
    info = require_info(file)
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
        if block in META_BLOCKS:
            continue
        found.append(block)
        spec = find_spec(info, block)
        if spec is not None and (spec.attributes or spec.id != block.partition("/")[2]):
            found.append(attributes_field(block))
    return found


def attributes_field(block: str) -> str:
    """Return the field for a declaration's attributes, and for an id that differs from the block name."""
    return f"{block}.attributes"


def find_spec(info: EpisodeInfo, block: str) -> ChannelSpec | None:
    return info.channels.get(block) or info.lanes.get(block)


def is_encoded(file: WShardFile, block: str) -> bool:
    """Return whether the block holds encoded video or images."""
    spec = find_spec(require_info(file), block)
    return spec is not None and "encoding" in spec.attributes


def is_stepwise(file: WShardFile, block: str) -> bool:
    """Return whether the block is an array with one row for each step."""
    block_type = file[block].block_type
    has_steps = block_type.rows == require_info(file).length
    return block_type.is_declared and not is_encoded(file, block) and has_steps


def is_usual_series(file: WShardFile, block: str) -> bool:
    """Return whether rewards or endings have the type that they have without a declaration."""
    block_type = file[block].block_type
    return (block_type.dtype, block_type.shape) == (SERIES_BLOCKS[block][1], ()) and is_stepwise(file, block)


def iterate_rows(reader: BlockReader) -> Iterator[tuple[int, Array]]:
    """Yield all rows of a block in pieces, each with the number of its first row; verified at the end.

    Memory is one piece: a few MiB, or a whole block that is compressed in one frame. bf16 comes as its bits.
    """
    block_type = reader.block_type
    dtype = np.dtype("<u2") if block_type.dtype is DType.BF16 else block_type.dtype.numpy
    row_bytes = prod(block_type.shape) * block_type.dtype.size_bytes
    if not row_bytes:
        yield 0, reader.read()
        return
    first, left = 0, b""
    for piece in reader.pieces():
        data = piece if not left else memoryview(left + bytes(piece))
        count = len(data) // row_bytes
        if count:
            rows = np.frombuffer(data[: count * row_bytes], dtype).reshape(count, *block_type.shape)
            # Any non-zero byte is true here, but other readers expect 1.
            yield first, rows.view(np.uint8) != 0 if dtype == np.bool_ else rows
        first, left = first + count, bytes(data[count * row_bytes :])


def widen_bf16(bits: Array) -> Array:
    """Convert the bits of bf16 to float32, exactly."""
    return (bits.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
