"""Chunks of one episode, read as one episode: the rows of each block are concatenated.

A block without rows, such as a video, is read chunk by chunk. Implements "Joined chunks" of docs/specs/wshard.md.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate

from warpdata.errors import BadInputError, CorruptError, NotFoundError, UnsupportedError
from warpdata.formats.wshard.block_type import BlockType
from warpdata.formats.wshard.canonical_json import Json, JsonObject, same_json
from warpdata.formats.wshard.dtypes import Array, np
from warpdata.formats.wshard.metadata import EpisodeInfo
from warpdata.formats.wshard.model import Block, Channel, Episode
from warpdata.formats.wshard.reader import BlockReader, WShardFile
from warpdata.primitives.reprs import short_repr
from warpdata.primitives.suggest import suggest

__all__ = ["JoinedBlock", "JoinedFile", "cut_rows", "join_episodes", "join_metadata"]

_PER_CHUNK = ("meta/", "residual/")
"""Blocks that describe their own chunk only: residuals restart with each chunk."""
_HINT = "Load the chunks one by one, or name the channels to load."


def _has_rows(reader: BlockReader, info: EpisodeInfo) -> bool:
    """Return whether a block has rows that continue in the next chunk."""
    name = reader.entry.name
    spec = info.channels.get(name) or info.lanes.get(name)
    return (
        not name.startswith(_PER_CHUNK)
        and reader.block_type.is_declared
        and not (spec and "encoding" in spec.attributes)
    )


class JoinedBlock:
    """One block of an episode in several files."""

    def __init__(self, readers: Sequence[BlockReader]) -> None:
        self.parts = tuple(readers)
        first = readers[0].block_type
        for number, reader in enumerate(readers):
            found = reader.block_type
            if (found.dtype, found.shape) != (first.dtype, first.shape):
                raise CorruptError(
                    f"block {self.name!r} is {found.dtype}{list(found.shape)} in chunk {number}, "
                    f"but {first.dtype}{list(first.shape)} in the first"
                )
        self._starts = [0, *accumulate(reader.block_type.rows for reader in readers)]
        self.block_type: BlockType = replace(first, rows=self._starts[-1])

    def __repr__(self) -> str:
        return short_repr("JoinedBlock", self.name, parts=len(self.parts), rows=self.block_type.rows)

    @property
    def name(self) -> str:
        return self.parts[0].entry.name

    def read(self) -> Array:
        """Read and verify the whole block."""
        return np.concatenate([reader.read() for reader in self.parts])

    def window(self, start: int, stop: int) -> Array:
        """Return rows `start` to `stop`, counted over all chunks; see `BlockReader.window`."""
        if not 0 <= start <= stop <= self.block_type.rows:
            raise BadInputError(f"rows {start}…{stop} are not within the {self.block_type.rows} of {self.name!r}")
        found = [self.parts[number].window(low, high) for number, low, high in cut_rows(self._starts, start, stop)]
        if len(found) == 1:
            return found[0]
        return np.concatenate(found) if found else self.parts[0].window(0, 0)


def cut_rows(starts: Sequence[int], first: int, last: int) -> Iterator[tuple[int, int, int]]:
    """Split a range of rows by part: the number of the part, and the range of its own rows.

    `starts` has the first row of each part, and then the number of rows.
    """
    number = bisect_right(starts, first) - 1
    while first < last:
        end = min(last, starts[number + 1])
        if first < end:
            yield number, first - starts[number], end - starts[number]
        first, number = end, number + 1


class JoinedFile:
    """The open chunks of one episode, in order, with the interface of a `WShardFile`."""

    def __init__(self, files: Sequence[WShardFile]) -> None:
        infos = [_info(file) for file in files]
        self.parts = tuple(files)
        self.info = replace(
            infos[0],
            length=sum(info.length for info in infos),
            chunk=None,
            metadata=join_metadata([info.metadata for info in infos]),
        )
        self.blocks = tuple(name for name in files[0].blocks if _has_rows(files[0][name], infos[0]))
        """The names of the blocks that can be read over all chunks."""

    def __repr__(self) -> str:
        return short_repr("JoinedFile", self.info.id, parts=len(self.parts), blocks=list(self.blocks))

    def __contains__(self, name: object) -> bool:
        return name in self.blocks

    def __getitem__(self, name: str) -> JoinedBlock:
        if name not in self.blocks:
            if name in self.parts[0]:
                raise UnsupportedError(
                    f"block {name!r} has no rows that go on from chunk to chunk",
                    hint="Read it from the chunks in `parts`.",
                )
            hint = suggest(name, self.blocks, label="Blocks", shown=20)
            raise NotFoundError(f"there is no block {name!r}", hint=hint)
        missing = [number for number, file in enumerate(self.parts) if name not in file]
        if missing:
            raise CorruptError(f"chunk {missing[0]} of the episode {self.info.id!r} has no block {name!r}")
        return JoinedBlock([file[name] for file in self.parts])


def _info(file: WShardFile) -> EpisodeInfo:
    if file.info is None:
        raise CorruptError("a chunk has no block 'meta/episode'")
    return file.info


def join_metadata(each: Sequence[JsonObject]) -> JsonObject:
    """Merge the metadata of the chunks, in order. Later chunks override earlier ones."""
    out: dict[str, Json] = {}
    for metadata in each:
        out.update(metadata)
    return out


def join_episodes(chunks: Sequence[Episode]) -> Episode:
    """Join the chunks of an episode, given in order; `UnsupportedError` names a channel that cannot be joined.

    Video and residuals are encoded separately in each chunk. Uninterpreted blocks must be equal in all chunks.
    """
    if not chunks:
        raise BadInputError("there are no chunks to join")
    first = chunks[0]
    if len(chunks) == 1:
        return replace(first, chunk=None)
    return replace(
        first,
        length=sum(chunk.length for chunk in chunks),
        metadata=join_metadata([chunk.metadata for chunk in chunks]),
        chunk=None,
        provenance=None,
        origin=None,
        extra=_same_blocks([chunk.extra for chunk in chunks]),
        rewards=_join_series(chunks, "rewards"),
        terminations=_join_series(chunks, "terminations"),
        truncations=_join_series(chunks, "truncations"),
        timestamps_ns=_join_series(chunks, "timestamps_ns"),
        observations=_join_channels([chunk.observations for chunk in chunks]),
        actions=_join_channels([chunk.actions for chunk in chunks]),
        omens=_join_channels([chunk.omens for chunk in chunks]),
        uncertainties=_join_channels([chunk.uncertainties for chunk in chunks]),
        residuals=_join_channels([chunk.residuals for chunk in chunks]),
    )


def _join_channels(groups: Sequence[Mapping[str, Channel]]) -> dict[str, Channel]:
    out = {}
    for name, first in groups[0].items():
        parts = [group[name] for group in groups if name in group]
        if "encoding" in first.attributes or not first.is_declared or name.endswith("/sign2nddiff"):
            raise UnsupportedError(f"channel {name!r} has an encoding of its own in each chunk", hint=_HINT)
        layout = (first.stored_dtype, first.step_shape)
        is_same = [
            (part.stored_dtype, part.step_shape) == layout and same_json(part.attributes, first.attributes)
            for part in parts
        ]
        if len(parts) < len(groups) or not all(is_same):
            raise UnsupportedError(f"channel {name!r} is not the same in all chunks", hint=_HINT)
        out[name] = replace(first, data=np.concatenate([part.data for part in parts]))
    return out


def _join_series(chunks: Sequence[Episode], name: str) -> Array | None:
    found = [array for chunk in chunks if (array := getattr(chunk, name)) is not None]
    if len(found) not in (0, len(chunks)):
        raise UnsupportedError(f"{name} are present in some chunks only", hint=_HINT)
    return np.concatenate(found) if found else None


def _same_blocks(each: Sequence[Mapping[str, Block]]) -> Mapping[str, Block]:
    for name in {name for blocks in each for name in blocks}:
        if any(blocks.get(name) != each[0].get(name) for blocks in each):
            raise UnsupportedError(f"block {name!r} is not the same in all chunks", hint=_HINT)
    return each[0]
