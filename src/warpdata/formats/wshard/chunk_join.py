"""Chunks of one episode, read as the episode they are cut from: rows of each block one after another.

What has no rows to put one after another, such as a film, is read chunk by chunk. Implements "Joined chunks" of
docs/specs/wshard.md.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate

from warpdata.errors import BadInputError, EpisodeCorruptedError, NotFoundError, UnsupportedError
from warpdata.formats.wshard.block_type import Meaning
from warpdata.formats.wshard.canonical_json import Json, JsonObject, encode_json, same_json
from warpdata.formats.wshard.dtypes import Array
from warpdata.formats.wshard.libraries import np
from warpdata.formats.wshard.metadata import EpisodeInfo
from warpdata.formats.wshard.model import Block, Channel, Episode
from warpdata.formats.wshard.reader import BlockReader, WShardFile
from warpdata.primitives.hashing import sha256_hex

__all__ = ["JoinedBlock", "JoinedFile", "cut_rows", "join_episodes", "join_metadata", "joined_identity"]

_APART = ("meta/", "residual/")
"""What says something of its own chunk alone: residuals begin anew with each."""
_ONE_BY_ONE = "Load the chunks one by one, or name the channels to load."


def _has_rows(reader: BlockReader, info: EpisodeInfo) -> bool:
    """Whether a block has rows, which those of the next chunk go on with."""
    name = reader.entry.name
    spec = info.channels.get(name) or info.lanes.get(name)
    return not name.startswith(_APART) and reader.meaning.is_declared and not (spec and "encoding" in spec.attributes)


class JoinedBlock:
    """One block of an episode in several files."""

    def __init__(self, readers: Sequence[BlockReader]) -> None:
        self.parts = tuple(readers)
        first = readers[0].meaning
        for number, reader in enumerate(readers):
            if (reader.meaning.dtype, reader.meaning.shape) != (first.dtype, first.shape):
                raise EpisodeCorruptedError(
                    f"block {self.name!r} is {reader.meaning.dtype}{list(reader.meaning.shape)} in chunk {number}, "
                    f"and {first.dtype}{list(first.shape)} in the first"
                )
        self._starts = [0, *accumulate(reader.meaning.rows for reader in readers)]
        self.meaning: Meaning = replace(first, rows=self._starts[-1])

    @property
    def name(self) -> str:
        return self.parts[0].entry.name

    def read(self) -> Array:
        """The whole block, checked."""
        return np.concatenate([reader.read() for reader in self.parts])

    def window(self, start: int, stop: int) -> Array:
        """Rows `start` to `stop`, counted over all chunks, as `BlockReader.window` gives those of one."""
        if not 0 <= start <= stop <= self.meaning.rows:
            raise BadInputError(f"rows {start}…{stop} are not within the {self.meaning.rows} of {self.name!r}")
        found = [self.parts[number].window(low, high) for number, low, high in cut_rows(self._starts, start, stop)]
        if len(found) == 1:
            return found[0]
        return np.concatenate(found) if found else self.parts[0].window(0, 0)


def cut_rows(starts: Sequence[int], first: int, last: int) -> Iterator[tuple[int, int, int]]:
    """Rows by the part that has them: its number, and which of its own rows. `starts` ends with how many there are."""
    number = bisect_right(starts, first) - 1
    while first < last:
        end = min(last, starts[number + 1])
        if first < end:
            yield number, first - starts[number], end - starts[number]
        first, number = end, number + 1


class JoinedFile:
    """Open files that are the chunks of one episode, in order. Looks like a `WShardFile` of the whole."""

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
        """The names of all blocks that can be read over all chunks."""

    def __contains__(self, name: object) -> bool:
        return name in self.blocks

    def __getitem__(self, name: str) -> JoinedBlock:
        if name not in self.blocks:
            if name in self.parts[0]:
                raise UnsupportedError(
                    f"block {name!r} has no rows that go on from chunk to chunk",
                    hint="Read it from each of the chunks.",
                )
            raise NotFoundError(f"there is no block {name!r}", hint=f"There are: {', '.join(self.blocks[:20])}.")
        lacking = [number for number, file in enumerate(self.parts) if name not in file]
        if lacking:
            raise EpisodeCorruptedError(f"chunk {lacking[0]} of the episode {self.info.id!r} has no block {name!r}")
        return JoinedBlock([file[name] for file in self.parts])


def _info(file: WShardFile) -> EpisodeInfo:
    if file.info is None:
        raise EpisodeCorruptedError("a chunk has no block 'meta/episode'")
    return file.info


def join_metadata(each: Sequence[JsonObject]) -> JsonObject:
    """What was recorded with the chunks, in order: where two say different things, the later one knew better."""
    out: dict[str, Json] = {}
    for metadata in each:
        out.update(metadata)
    return out


def joined_identity(identities: Sequence[str]) -> str:
    """The identity of an episode in several files, from those of its chunks, in order."""
    return sha256_hex(encode_json({"chunks": list(identities), "v": 1}))


def join_episodes(chunks: Sequence[Episode]) -> Episode:
    """The episode that was cut into these chunks, given in order; `UnsupportedError` names what can not be joined.

    A film is an encoding of its own in each chunk, and so is a residual. Blocks that are not understood must be
    the same in all.
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
            raise UnsupportedError(f"channel {name!r} is an encoding of its own in each chunk", hint=_ONE_BY_ONE)
        form = (first.stored_dtype, first.step_shape)
        alike = [
            (part.stored_dtype, part.step_shape) == form and same_json(part.attributes, first.attributes)
            for part in parts
        ]
        if len(parts) < len(groups) or not all(alike):
            raise UnsupportedError(f"channel {name!r} is not the same in all chunks", hint=_ONE_BY_ONE)
        out[name] = replace(first, data=np.concatenate([part.data for part in parts]))
    return out


def _join_series(chunks: Sequence[Episode], name: str) -> Array | None:
    found = [array for chunk in chunks if (array := getattr(chunk, name)) is not None]
    if len(found) not in (0, len(chunks)):
        raise UnsupportedError(f"{name} are there in some chunks only", hint=_ONE_BY_ONE)
    return np.concatenate(found) if found else None


def _same_blocks(each: Sequence[Mapping[str, Block]]) -> Mapping[str, Block]:
    for name in {name for blocks in each for name in blocks}:
        if any(blocks.get(name) != each[0].get(name) for blocks in each):
            raise UnsupportedError(f"block {name!r} is not the same in all chunks", hint=_ONE_BY_ONE)
    return each[0]
