"""One episode file on this machine → what the index says about it. Reads all of it, once for each of two hashes.

A file is taken only when every block decodes to its checksum, every declaration fits its block, and a sealed
file is what was sealed. Implements "Index" of docs/specs/episodes.md.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import numpy as np

from warpdata.errors import (
    BlobCorruptedError,
    CorruptError,
    EpisodeCorruptedError,
    InvalidSourceError,
    LimitExceededError,
    UnsupportedFormatError,
)
from warpdata.formats.wshard import (
    BlockReader,
    ChunkPlace,
    Codec,
    DType,
    EpisodeInfo,
    WShardFile,
    identity,
    open_wshard,
)
from warpdata.limits import EPISODES_KNOWN_BYTES
from warpdata.repository.manifest import JsonObject

__all__ = ["ChannelLayout", "Described", "Piece", "Scalar", "describe_episode", "parse_layout"]

Scalar: TypeAlias = bool | int | float | str
Piece: TypeAlias = tuple[int, bytes]
"""Some bytes of a file, and where they begin in it."""

_JOURNAL = b"WSJ1"
_SEAL = "meta/identity"
_DOCUMENTS = ("meta/wshard", "meta/episode", "meta/channels")


@dataclass(frozen=True, slots=True)
class ChannelLayout:
    """A block whose rows are steps: what its rows are, and its own rate where it has one."""

    id: str
    block: str
    dtype: str
    shape: tuple[int, ...]
    rate_hz: float | None = None
    is_whole: bool = False
    """Whether any of its rows takes decoding all of them."""


@dataclass(frozen=True, slots=True)
class Described:
    """A row of the index, but for the blob's name."""

    id: str
    env_id: str
    length: int
    timebase: str
    tick_hz: float | None
    identity: str
    is_sealed: bool
    metadata: JsonObject
    layout: tuple[ChannelLayout, ...]
    pieces: tuple[Piece, ...] = ()
    checks: Mapping[str, bytes] = field(default_factory=dict)
    chunk: ChunkPlace | None = None
    """Where it stands in a longer episode, if it says that it is a part of one."""

    @property
    def is_chunk(self) -> bool:
        return self.chunk is not None and self.chunk.index is not None and self.chunk.total != 1

    @property
    def scalars(self) -> dict[str, Scalar]:
        """The metadata that become columns."""
        return {key: value for key, value in self.metadata.items() if isinstance(value, bool | int | float | str)}

    @property
    def layout_text(self) -> str:
        """The layout as JSON: few different ones, however many episodes there are."""
        listed = [
            {"id": spec.id, "block": spec.block, "dtype": spec.dtype, "shape": list(spec.shape)}
            | ({} if spec.rate_hz is None else {"rate_hz": spec.rate_hz})
            | ({"is_whole": True} if spec.is_whole else {})
            for spec in self.layout
        ]
        return json.dumps(listed, separators=(",", ":"), ensure_ascii=False)


def parse_layout(text: str) -> tuple[ChannelLayout, ...]:
    """What `layout_text` wrote; `BlobCorruptedError` for anything else."""
    try:
        return tuple(
            ChannelLayout(
                str(item["id"]),
                str(item["block"]),
                DType(item["dtype"]).value,
                tuple(int(size) for size in item["shape"]),
                None if item.get("rate_hz") is None else float(item["rate_hz"]),
                bool(item.get("is_whole", False)),
            )
            for item in json.loads(text)
        )
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise BlobCorruptedError(f"the index describes the channels of an episode as {text[:200]!r}") from error


def describe_episode(path: Path, check_bytes: int) -> Described:
    """`InvalidSourceError` names the file that is no sound, finished episode, or chunk of one."""
    _refuse_unfinished(path)
    try:
        with open_wshard(path) as file:
            return _described(file, identity(path), check_bytes)
    except InvalidSourceError as error:
        raise InvalidSourceError(f"{path}: {error.message}", hint=error.hint) from error
    except (CorruptError, UnsupportedFormatError, LimitExceededError) as error:
        raise InvalidSourceError(f"{path} is not a sound episode: {error.message}", hint=error.hint) from error


def _refuse_unfinished(path: Path) -> None:
    """A recording is part of this format, and has a next step of its own."""
    try:
        with path.open("rb") as file:
            head = file.read(len(_JOURNAL))
    except OSError as error:
        raise InvalidSourceError(f"{path} cannot be read: {error.strerror or error}") from error
    if head == _JOURNAL:
        raise InvalidSourceError(
            f"{path} is a recording that has not ended", hint=f"Finish it: `warp episodes recover {path}`."
        )


def _described(file: WShardFile, named: str, check_bytes: int) -> Described:
    info = file.info
    if info is None:
        raise EpisodeCorruptedError("there is no block 'meta/episode'")
    readers = [file[name] for name in file.blocks]
    return Described(
        id=info.id,
        env_id=info.env_id,
        length=info.length,
        timebase=info.timebase.type,
        tick_hz=info.timebase.hz,
        identity=named,
        is_sealed=_SEAL in file,
        metadata=info.metadata,
        layout=tuple(_layout(readers, info)),
        pieces=_pieces(file, readers),
        checks={
            reader.entry.name: _checks(reader, check_bytes)
            for reader in readers
            if reader.entry.codec is Codec.NONE and not reader.entry.name.startswith("meta/")
        },
        chunk=info.chunk,
    )


def _layout(readers: list[BlockReader], info: EpisodeInfo) -> Iterator[ChannelLayout]:
    for reader in readers:
        name, meaning = reader.entry.name, reader.block_type
        spec = info.channels.get(name) or info.lanes.get(name)
        if name.startswith("meta/") or not meaning.is_declared or (spec and "encoding" in spec.attributes):
            continue
        rate = spec.attributes.get("sampling_rate_hz") if spec else None
        own_rate = float(rate) if isinstance(rate, int | float) and not isinstance(rate, bool) and rate > 0 else None
        if own_rate is None and meaning.rows != info.length:
            continue  # it has a length of its own, and nothing says how that runs along the steps
        is_whole = reader.entry.codec is not Codec.NONE and not reader.entry.is_chunked
        yield ChannelLayout(spec.id if spec else name, name, str(meaning.dtype), meaning.shape, own_rate, is_whole)


def _pieces(file: WShardFile, readers: list[BlockReader]) -> tuple[Piece, ...]:
    """Header, index and names; then metadata and tables of time chunks, as long as there is room."""
    head = file.header.data_offset
    if head > EPISODES_KNOWN_BYTES:
        raise LimitExceededError(f"its header and index have {head} bytes; the most is {EPISODES_KNOWN_BYTES}")
    spans = [(0, head)]
    spans += [(file[name].entry.offset, file[name].entry.end) for name in _DOCUMENTS if name in file]
    spans += [span for reader in readers if (span := reader.table_span) is not None]
    out, left = [], EPISODES_KNOWN_BYTES
    for start, end in spans:
        if end - start <= left:
            out.append((start, bytes(file.read_range(start, end))))
            left -= end - start
    return tuple(out)


def _checks(reader: BlockReader, check_bytes: int) -> bytes:
    """A checksum for each `check_bytes` of the block, so that a part of it can be believed alone."""
    import xxhash

    data = reader.raw()
    sums = [xxhash.xxh3_64_intdigest(data[at : at + check_bytes]) for at in range(0, len(data), check_bytes)]
    return np.array(sums, "<u8").tobytes()
