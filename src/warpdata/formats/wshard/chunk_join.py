"""Chunks of one episode, read as one episode: the rows of each block are concatenated.

A block without rows, such as a video, is read chunk by chunk. Implements "Joined chunks" of docs/specs/wshard.md.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate

from warpdata.errors import BadInputError, CorruptError, NotFoundError, UnsupportedError
from warpdata.formats.wshard.block_type import TICKS, BlockType
from warpdata.formats.wshard.canonical_json import Json, JsonObject
from warpdata.formats.wshard.chunk_layout import episode_layout, file_layout, find_disagreement
from warpdata.formats.wshard.dtypes import Array, np
from warpdata.formats.wshard.metadata import EpisodeInfo
from warpdata.formats.wshard.model import Block, Channel, Episode, Origin, check_episodes
from warpdata.formats.wshard.reader import BlockReader, WShardFile
from warpdata.primitives.reprs import short_repr
from warpdata.primitives.suggest import suggest
from warpdata.storage import RangeSource

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


class JoinedBlock(BlockReader):
    """One block of an episode in several files. `entry` has the sums of the sizes, and no offset or checksum."""

    def __init__(self, readers: Sequence[BlockReader]) -> None:
        self.parts = tuple(readers)
        first = readers[0]
        entries = [reader.entry for reader in readers]
        self.entry = replace(
            first.entry,
            offset=0,
            checksum=0,
            stored_bytes=sum(entry.stored_bytes for entry in entries),
            size_bytes=sum(entry.size_bytes for entry in entries),
        )
        for number, reader in enumerate(readers):
            found, wanted = reader.block_type, first.block_type
            if (found.dtype, found.shape) != (wanted.dtype, wanted.shape):
                raise CorruptError(
                    f"block {self.name!r} is {found.dtype}{list(found.shape)} in chunk {number}, "
                    f"but {wanted.dtype}{list(wanted.shape)} in the first"
                )
        self._starts = [0, *accumulate(reader.block_type.rows for reader in readers)]
        self._joined_type = replace(first.block_type, rows=self._starts[-1])

    def __repr__(self) -> str:
        return short_repr("JoinedBlock", self.name, parts=len(self.parts), rows=self.block_type.rows)

    @property
    def block_type(self) -> BlockType:
        """Element type, step shape and number of rows over all chunks."""
        return self._joined_type

    def read(self) -> Array:
        """Read and verify the whole block."""
        return np.concatenate([reader.read() for reader in self.parts])

    def window(self, start: int, stop: int, *, out: Array | None = None) -> Array:
        """Return rows `start` to `stop`, counted over all chunks; see `BlockReader.window`."""
        if not 0 <= start <= stop <= self.block_type.rows:
            raise BadInputError(f"rows {start}…{stop} are not within the {self.block_type.rows} of {self.name!r}")
        cuts = list(cut_rows(self._starts, start, stop))
        if out is not None:
            at = 0
            for number, low, high in cuts:
                self.parts[number].window(low, high, out=out[at : at + high - low])
                at += high - low
            return out if cuts else self.parts[0].window(0, 0, out=out)
        found = [self.parts[number].window(low, high) for number, low, high in cuts]
        if len(found) == 1:
            return found[0]
        return np.concatenate(found) if found else self.parts[0].window(0, 0)

    def raw(self) -> memoryview:
        """Return the decoded bytes of all chunks, verified."""
        return memoryview(b"".join(reader.raw() for reader in self.parts))

    def pieces(self) -> Iterator[memoryview]:
        """Yield the decoded bytes of all chunks, verified."""
        for reader in self.parts:
            yield from reader.pieces()

    def clear_cache(self) -> None:
        for reader in self.parts:
            reader.clear_cache()

    def span(self, start: int, stop: int) -> tuple[int, int]:
        raise UnsupportedError(f"block {self.name!r} is in several files", hint="Ask the readers in `parts`.")

    @property
    def table_span(self) -> tuple[int, int] | None:
        return None

    def with_source(self, source: RangeSource) -> BlockReader:
        raise UnsupportedError(f"block {self.name!r} is in several files", hint="Ask the readers in `parts`.")


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


class JoinedFile(WShardFile):
    """The open chunks of one episode, in order, as one file. `blocks` are those that continue from chunk to chunk.

    `CorruptError` if the chunks differ in their environment, rate, or channels.
    """

    def __init__(self, files: Sequence[WShardFile]) -> None:
        given: object = files
        if not isinstance(given, list | tuple) or not all(isinstance(file, WShardFile) for file in given):
            raise BadInputError("the chunks are not a list of open files")
        if not files:
            raise BadInputError("there are no chunks to join")
        infos = [_info(file) for file in files]
        _check_layouts(files)
        self.parts = tuple(files)
        self.header, self.cache_bytes = files[0].header, files[0].cache_bytes
        self._joined = replace(
            infos[0],
            length=sum(info.length for info in infos),
            chunk=None,
            metadata=join_metadata([info.metadata for info in infos]),
        )
        self._blocks = tuple(name for name in files[0].blocks if _has_rows(files[0][name], infos[0]))

    @property
    def blocks(self) -> tuple[str, ...]:
        """The names of the blocks that can be read over all chunks."""
        return self._blocks

    @property
    def info(self) -> EpisodeInfo:
        """The metadata of the whole episode."""
        return self._joined

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

    def read_json(self, name: str) -> bytes:
        return self[name].raw().tobytes()

    def read_range(self, start: int, end: int) -> memoryview:
        raise UnsupportedError("the episode is in several files", hint="Read from the chunks in `parts`.")

    @property
    def is_mapped(self) -> bool:
        """True if ranges are views of mapped files."""
        return all(file.is_mapped for file in self.parts)

    def close(self) -> None:
        """Close all chunks."""
        for file in self.parts:
            file.close()

    def clear_cache(self) -> None:
        for file in self.parts:
            file.clear_cache()


def _check_layouts(files: Sequence[WShardFile]) -> None:
    first = file_layout(files[0])
    for number, file in enumerate(files[1:], 1):
        problem = find_disagreement(first, file_layout(file), is_strict=False)
        if problem is not None:
            raise CorruptError(f"chunk {number} of the episode {_info(files[0]).id!r} {problem}")


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

    All chunks must have the same environment, rate, channels and types. Video and residuals are encoded separately
    in each chunk. Uninterpreted blocks must be equal in all chunks.
    """
    given: object = chunks
    if not isinstance(given, list | tuple):
        raise BadInputError(f"the chunks are a {type(given).__name__}, not a list of episodes")
    check_episodes(*given)
    if not chunks:
        raise BadInputError("there are no chunks to join")
    first = chunks[0]
    if len(chunks) == 1:
        return replace(first, chunk=None)
    _check_alike(chunks)
    series = first.origin.series if first.origin is not None else {}
    return replace(
        first,
        length=sum(chunk.length for chunk in chunks),
        metadata=join_metadata([chunk.metadata for chunk in chunks]),
        chunk=None,
        provenance=None,
        origin=Origin(series=series) if series else None,
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


def _check_alike(chunks: Sequence[Episode]) -> None:
    first = episode_layout(chunks[0])
    for number, chunk in enumerate(chunks[1:], 1):
        problem = find_disagreement(first, episode_layout(chunk))
        if chunk.id != chunks[0].id:
            problem = f"has the id {chunk.id!r} instead of {chunks[0].id!r}"
        if problem is not None:
            raise UnsupportedError(f"chunk {number} {problem}, so the chunks cannot be joined", hint=_HINT)


def _join_channels(groups: Sequence[Mapping[str, Channel]]) -> dict[str, Channel]:
    out = {}
    for name, first in groups[0].items():
        if "encoding" in first.attributes or not first.is_declared or name.endswith("/sign2nddiff"):
            raise UnsupportedError(f"channel {name!r} has an encoding of its own in each chunk", hint=_HINT)
        out[name] = replace(first, data=np.concatenate([group[name].data for group in groups]))
    for name in {name for group in groups for name in group} - set(out):
        raise UnsupportedError(f"channel {name!r} has an encoding of its own in each chunk", hint=_HINT)
    return out


def _join_series(chunks: Sequence[Episode], name: str) -> Array | None:
    found = [array for chunk in chunks if (array := getattr(chunk, name)) is not None]
    return np.concatenate(found) if found else None


def _same_blocks(each: Sequence[Mapping[str, Block]]) -> Mapping[str, Block]:
    out = dict(each[0])
    if all(TICKS in blocks for blocks in each):
        out[TICKS] = replace(out[TICKS], data=b"".join(blocks[TICKS].data for blocks in each))
    for name in {name for blocks in each for name in blocks}:
        is_joined = name == TICKS and name in out
        if not is_joined and any(blocks.get(name) != each[0].get(name) for blocks in each):
            raise UnsupportedError(f"block {name!r} is not the same in all chunks", hint=_HINT)
    return out
