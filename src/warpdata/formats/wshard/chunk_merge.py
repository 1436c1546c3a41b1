"""One file from the chunks of an episode, with rows that are read while they are written.

Implements "Joined chunks" of docs/specs/wshard.md.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate

from warpdata.errors import UnsupportedError
from warpdata.formats.wshard.block_type import GROUPS, SERIES
from warpdata.formats.wshard.chunk_join import JoinedBlock, JoinedFile, cut_rows, join_episodes
from warpdata.formats.wshard.codecs import Codec, CompressionName
from warpdata.formats.wshard.dtypes import Array, np
from warpdata.formats.wshard.episode_file import find_chunks
from warpdata.formats.wshard.identity import META_IDENTITY, META_PROVENANCE
from warpdata.formats.wshard.load import load_wshard
from warpdata.formats.wshard.metadata import META_CHANNELS, META_EPISODE, META_WSHARD
from warpdata.formats.wshard.model import Block
from warpdata.formats.wshard.reader import WShardFile, open_file
from warpdata.formats.wshard.save import RowSource, compose_wshard
from warpdata.formats.wshard.source import PathLike
from warpdata.primitives.paths import check_path

__all__ = ["join_chunks"]

_META = (META_WSHARD, META_EPISODE, META_CHANNELS, META_IDENTITY, META_PROVENANCE)


def join_chunks(manifest: PathLike, target: PathLike, *, compression: CompressionName = "none") -> None:
    """Write the episode of a chunk manifest as one file. Every byte of the chunks is verified.

    Memory is a few MiB beside rewards and endings, or the largest block that is compressed as a whole.
    `UnsupportedError` names a channel that cannot be joined; see `join_episodes`.
    """
    chunks = find_chunks(check_path(manifest), is_verified=True)
    with JoinedFile([open_file(chunk) for chunk in chunks]) as joined:
        episodes = [
            replace(load_wshard(chunk, channels=[]), extra=_extra(file))
            for chunk, file in zip(chunks, joined.parts, strict=True)
        ]
        compose_wshard(join_episodes(episodes), target, _rows(joined), compression=compression)


def _extra(file: WShardFile) -> dict[str, Block]:
    """Return the blocks that are no field of an `Episode`."""
    names = [name for name in file.blocks if name not in _META and name not in SERIES and not _is_lane(name)]
    found = {name: file[name] for name in names}
    return {name: Block(bytes(one.raw()), one.entry.content_type, one.entry.tags) for name, one in found.items()}


def _is_lane(name: str) -> bool:
    lane, _, rest = name.partition("/")
    return lane in GROUPS and bool(rest)


def _rows(joined: JoinedFile) -> dict[str, RowSource]:
    """Return a source for the rows of each channel."""
    out = {}
    for name in dict.fromkeys(name for file in joined.parts for name in file.blocks if _is_lane(name)):
        if name not in joined:
            raise UnsupportedError(
                f"channel {name!r} has an encoding of its own in each chunk", hint="Convert the chunks one by one."
            )
        spec, block_type = joined.info.channels.get(name) or joined.info.lanes.get(name), joined[name].block_type
        out[name] = RowSource(
            block_type.dtype,
            block_type.shape,
            block_type.rows,
            _JoinedRows(joined[name]).read,
            spec.attributes if spec is not None else {},
            spec.id if spec is not None else None,
        )
    return out


class _JoinedRows:
    """Rows of a joined block, read in order. A block that is compressed as a whole is decoded once."""

    def __init__(self, block: JoinedBlock) -> None:
        self._parts = block.parts
        self._starts = [0, *accumulate(reader.block_type.rows for reader in block.parts)]
        self._number, self._decoded = -1, block.parts[0].window(0, 0)

    def read(self, start: int, stop: int) -> Array:
        cuts = cut_rows(self._starts, start, stop)
        return np.concatenate([self._decoded[:0], *(self._read(*cut) for cut in cuts)])

    def _read(self, number: int, low: int, high: int) -> Array:
        reader = self._parts[number]
        if reader.entry.codec is Codec.NONE or reader.entry.is_chunked:
            return reader.window(low, high)
        if self._number != number:
            self._number, self._decoded = number, reader.read()
        return self._decoded[low:high]
