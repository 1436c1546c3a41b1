"""Episode files on this machine → the index of an episode set.

`describe_episode` reads a file twice, once for each of two hashes. It accepts the file only if every block matches
its checksum, every declaration fits its block, and a sealed file matches its seal. Implements "Index" and "Chunked
episodes" of docs/specs/episodes.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from warpdata.errors import (
    CorruptError,
    InvalidSourceError,
    LimitExceededError,
    UnsupportedError,
)
from warpdata.formats.parquet import ParquetSource, WriteOptions, describe_parquet, write_parquet
from warpdata.formats.wshard import (
    BlockReader,
    ChannelSpec,
    ChunkPlace,
    Codec,
    DType,
    EpisodeInfo,
    FrameReader,
    WShardFile,
    frames_block,
    identity,
    join_metadata,
    joined_identity,
    open_wshard,
)
from warpdata.kinds.episodes.index import CHUNKS, HIDDEN_COLUMNS, ChannelLayout, format_layout, index_fields
from warpdata.kinds.episodes.source import Piece
from warpdata.limits import EPISODES_KNOWN_BYTES, EPISODES_MAX_CHUNKS, EPISODES_METADATA_NAMES, MIB
from warpdata.primitives.hashing import Blob
from warpdata.repository.manifest import JsonObject

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "EpisodeDescription",
    "IndexedEpisode",
    "describe_episode",
    "index_rows",
    "index_schema",
    "join_descriptions",
    "metadata_names",
    "write_index",
]

_Scalar: TypeAlias = bool | int | float | str

_JOURNAL = b"WSJ1"
_SEAL = "meta/identity"
_DOCUMENTS = ("meta/wshard", "meta/episode", "meta/channels")
_RESIDUAL = "residual/"
"""Residuals restart with each chunk, so a joined episode has none."""
_ROW_GROUP_BYTES = 1 * MIB
_MAX_FILE_BYTES = 2**50
"""Large enough for the whole index to be one file."""
_COLUMNS_WITH_STATISTICS = ("id", "env_id", "length", "timebase", "tick_hz")
_NO_HASH = ""
"""The hash of an episode in several files."""


@dataclass(frozen=True, slots=True)
class EpisodeDescription:
    """A row of the index, without the blob."""

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
    """The file's position in a longer episode, if the file says that it is a chunk."""

    @property
    def is_chunk(self) -> bool:
        return self.chunk is not None and self.chunk.index is not None and self.chunk.total != 1

    @property
    def scalars(self) -> dict[str, _Scalar]:
        """The metadata that become columns."""
        return {key: value for key, value in self.metadata.items() if isinstance(value, bool | int | float | str)}


@dataclass(frozen=True, slots=True)
class IndexedEpisode:
    """An episode, and its files with their blobs: one, or the chunks in order."""

    whole: EpisodeDescription
    files: tuple[tuple[EpisodeDescription, Blob], ...]


def describe_episode(path: Path, check_bytes: int) -> EpisodeDescription:
    """Read a file. Raise `InvalidSourceError` with its name unless it is a valid, finished episode or chunk."""
    _refuse_unfinished(path)
    try:
        with open_wshard(path) as file:
            return _describe(file, identity(path), check_bytes)
    except InvalidSourceError as error:
        raise InvalidSourceError(f"{path}: {error.message}", hint=error.hint) from error
    except (CorruptError, UnsupportedError, LimitExceededError) as error:
        raise InvalidSourceError(f"{path} is not a valid episode: {error.message}", hint=error.hint) from error


def join_descriptions(chunks: Sequence[tuple[EpisodeDescription, str]]) -> EpisodeDescription:
    """Return the episode that these chunks make up. Each has a name for error messages; their order is checked."""
    if len(chunks) == 1:
        return replace(chunks[0][0], chunk=None)
    first, rows = chunks[0][0], [row for row, _ in chunks]
    if len(chunks) > EPISODES_MAX_CHUNKS:
        raise InvalidSourceError(f"episode {first.id!r} has {len(chunks)} chunks; the limit is {EPISODES_MAX_CHUNKS}")
    for row, name in chunks[1:]:
        _check_alike(first, row, name)
    whole = {spec.block for row in rows for spec in row.layout if spec.is_whole}
    groups: dict[str, int] = {}
    for spec in (spec for row in rows for spec in row.layout if spec.group_frames is not None):
        groups[spec.block] = max(groups.get(spec.block, 0), spec.group_frames or 0)
    return EpisodeDescription(
        id=first.id,
        env_id=first.env_id,
        length=sum(row.length for row in rows),
        timebase=first.timebase,
        tick_hz=first.tick_hz,
        identity=joined_identity([row.identity for row in rows]),
        is_sealed=all(row.is_sealed for row in rows),
        metadata=join_metadata([row.metadata for row in rows]),
        layout=tuple(
            replace(spec, is_whole=block in whole, group_frames=groups.get(block))
            for block, spec in _joined_channels(first).items()
        ),
    )


def index_rows(episodes: Sequence[IndexedEpisode]) -> pa.Table:
    """Return the rows of the index."""
    import pyarrow as pa

    has_chunks = any(len(episode.files) > 1 for episode in episodes)
    members = _metadata_fields([episode.whole.scalars for episode in episodes])
    schema = index_schema(members, has_chunks=has_chunks)
    return pa.Table.from_pylist([_row(episode, schema) for episode in episodes], schema)


def write_index(tables: Iterable[pa.Table], schema: pa.Schema, directory: Path, stem: str) -> ParquetSource:
    """Write the index. The same rows give the same bytes, with the same release of Arrow."""
    options = WriteOptions(
        row_group_bytes=_ROW_GROUP_BYTES, file_bytes=_MAX_FILE_BYTES, statistics=_COLUMNS_WITH_STATISTICS
    )
    batches = (batch for table in tables for batch in table.to_batches())
    (path,) = write_parquet(batches, schema, directory, stem, options)
    return describe_parquet(path)


def _refuse_unfinished(path: Path) -> None:
    """Raise a specific error for a recording in progress, which is a journal and not a corrupt file."""
    try:
        with path.open("rb") as file:
            head = file.read(len(_JOURNAL))
    except OSError as error:
        raise InvalidSourceError(f"{path} cannot be read: {error.strerror or error}") from error
    if head == _JOURNAL:
        raise InvalidSourceError(
            f"{path} is a recording that has not ended", hint=f"Finish it: `warp episodes recover {path}`."
        )


def _describe(file: WShardFile, identity: str, check_bytes: int) -> EpisodeDescription:
    info = file.info
    if info is None:
        raise CorruptError("the file has no block 'meta/episode'")
    readers = [file[name] for name in file.blocks]
    return EpisodeDescription(
        id=info.id,
        env_id=info.env_id,
        length=info.length,
        timebase=info.timebase.type,
        tick_hz=info.timebase.hz,
        identity=identity,
        is_sealed=_SEAL in file,
        metadata=info.metadata,
        layout=tuple(_channels(file, readers, info)),
        pieces=_pieces(file, readers),
        checks={
            reader.entry.name: _checksums(reader, check_bytes)
            for reader in readers
            if reader.entry.codec is Codec.NONE and not reader.entry.name.startswith("meta/")
        },
        chunk=info.chunk,
    )


def _channels(file: WShardFile, readers: Sequence[BlockReader], info: EpisodeInfo) -> Iterator[ChannelLayout]:
    for reader in readers:
        name, block_type = reader.entry.name, reader.block_type
        spec = info.channels.get(name) or info.lanes.get(name)
        if name.startswith("meta/") or not block_type.is_declared:
            continue
        rate = spec.attributes.get("sampling_rate_hz") if spec else None
        own_rate = float(rate) if isinstance(rate, int | float) and not isinstance(rate, bool) and rate > 0 else None
        if spec and "encoding" in spec.attributes:
            yield _describe_camera(file, spec, own_rate)
            continue
        if own_rate is None and block_type.rows != info.length:
            continue  # its rows cannot be aligned with the steps
        is_whole = reader.entry.codec is not Codec.NONE and not reader.entry.is_chunked
        yield ChannelLayout(
            spec.id if spec else name, name, str(block_type.dtype), block_type.shape, own_rate, is_whole
        )


def _describe_camera(file: WShardFile, spec: ChannelSpec, rate_hz: float | None) -> ChannelLayout:
    """Describe an encoded channel by its decoded frames. Without a frame index, it has no rows for windows."""
    encoding = str(spec.attributes["encoding"])
    if frames_block(spec.block) not in file:
        return ChannelLayout(spec.id, spec.block, DType.U8, (), rate_hz, encoding=encoding)
    frames = FrameReader(file, spec.block)
    shape = () if frames.size is None else (*frames.size, 3)
    group_frames = frames.index.max_group_frames
    return ChannelLayout(spec.id, spec.block, DType.U8, shape, rate_hz, encoding=encoding, group_frames=group_frames)


def _pieces(file: WShardFile, readers: Sequence[BlockReader]) -> tuple[Piece, ...]:
    """Return header, index and names, then metadata and seek tables, up to a bound of bytes."""
    head = file.header.data_offset
    if head > EPISODES_KNOWN_BYTES:
        raise LimitExceededError(f"the header and index have {head} bytes; the limit is {EPISODES_KNOWN_BYTES}")
    spans = [(0, head)]
    spans += [(file[name].entry.offset, file[name].entry.end) for name in _DOCUMENTS if name in file]
    spans += [span for reader in readers if (span := reader.table_span) is not None]
    out, left = [], EPISODES_KNOWN_BYTES
    for start, end in spans:
        if end - start <= left:
            out.append((start, bytes(file.read_range(start, end))))
            left -= end - start
    return tuple(out)


def _checksums(reader: BlockReader, check_bytes: int) -> bytes:
    """Return a checksum for each `check_bytes` of the block, so that a part of the block can be verified alone."""
    import xxhash

    data = reader.raw()
    sums = [xxhash.xxh3_64_intdigest(data[at : at + check_bytes]) for at in range(0, len(data), check_bytes)]
    return np.array(sums, "<u8").tobytes()


def _check_alike(first: EpisodeDescription, row: EpisodeDescription, name: str) -> None:
    """Raise `InvalidSourceError` unless a chunk has the environment, timebase and channels of the first chunk."""
    for what, found, wanted in (
        ("environment", row.env_id, first.env_id),
        ("timebase", (row.timebase, row.tick_hz), (first.timebase, first.tick_hz)),
    ):
        if found != wanted:
            raise InvalidSourceError(f"{name} has the {what} {found!r}; the first chunk of {row.id!r} has {wanted!r}")
    has, expected = _joined_channels(row), _joined_channels(first)
    for block in [*expected, *has]:
        if has.get(block) != expected.get(block):
            raise InvalidSourceError(
                f"{name} has the block {block!r} as {_format_channel(has.get(block))}; "
                f"the first chunk of {row.id!r} has it as {_format_channel(expected.get(block))}",
                hint="Record the same channels in all chunks of an episode.",
            )


def _joined_channels(row: EpisodeDescription) -> dict[str, ChannelLayout]:
    # GOPs may differ between chunks; so may the storage of a block.
    return {
        spec.block: replace(spec, is_whole=False, group_frames=None if spec.group_frames is None else 0)
        for spec in row.layout
        if not spec.block.startswith(_RESIDUAL)
    }


def _format_channel(spec: ChannelLayout | None) -> str:
    if spec is None:
        return "nothing"
    rate = "" if spec.rate_hz is None else f" at {spec.rate_hz:g} Hz"
    return f"{spec.id}: {spec.dtype}{list(spec.shape)}{rate}"


def index_schema(members: Sequence[pa.Field], *, has_chunks: bool) -> pa.Schema:
    """Return all columns of an index, with these fields of `metadata`."""
    import pyarrow as pa

    fields = index_fields(has_chunks=has_chunks)
    if members:
        before = [field.name for field in fields].index(HIDDEN_COLUMNS[0])
        fields.insert(before, pa.field("metadata", pa.struct(members), nullable=False))
    return pa.schema(fields)


def _metadata_fields(metadata: Sequence[Mapping[str, _Scalar]]) -> list[pa.Field]:
    """Return one field for each metadata name, sorted. SQL ignores case, so the first of `Ok` and `ok` is kept."""
    import pyarrow as pa

    names = metadata_names(name for values in metadata for name in values)
    return [pa.field(name, _type([values.get(name) for values in metadata])) for name in names]


def metadata_names(given: Iterable[str]) -> list[str]:
    """Return the names that become fields, sorted. Raise `LimitExceededError` if there are too many."""
    names: dict[str, str] = {}
    for name in sorted(set(given)):
        names.setdefault(name.casefold(), name)
    if len(names) > EPISODES_METADATA_NAMES:
        raise LimitExceededError(
            f"the episodes have {len(names)} metadata names; the limit is {EPISODES_METADATA_NAMES}",
            hint="Put values that differ between episodes into lists or objects, which do not become columns.",
        )
    return [name for name in names.values() if name]


def _type(values: Sequence[_Scalar | None]) -> pa.DataType:
    import pyarrow as pa

    kinds = {type(value) for value in values if value is not None}
    if kinds == {bool}:
        return pa.bool_()
    fits = all(abs(value) < 2**63 for value in values if isinstance(value, int))
    if kinds == {int} and fits:
        return pa.int64()
    return pa.float64() if kinds <= {int, float} else pa.string()


def _row(episode: IndexedEpisode, schema: pa.Schema) -> dict[str, object]:
    row, files = episode.whole, episode.files
    is_chunked = len(files) > 1
    document: dict[str, object] = {
        "id": row.id,
        "env_id": row.env_id,
        "length": row.length,
        "timebase": row.timebase,
        "tick_hz": row.tick_hz,
        "channels": [spec.id for spec in row.layout],
        "identity": row.identity,
        "is_sealed": row.is_sealed,
        "hash": _NO_HASH if is_chunked else files[0][1].hash,
        "byte_size": sum(blob.byte_size for _, blob in files),
        "layout": format_layout(row.layout),
        **_opening_columns(row),
        CHUNKS: [_chunk(chunk, blob) for chunk, blob in files] if is_chunked else [],
    }
    if "metadata" in schema.names:
        members, scalars = schema.field("metadata").type, row.scalars
        document["metadata"] = {
            members[at].name: _cell(scalars.get(members[at].name), members[at].type) for at in range(members.num_fields)
        }
    return document


def _chunk(row: EpisodeDescription, blob: Blob) -> dict[str, object]:
    named = {"length": row.length, "identity": row.identity, "hash": blob.hash, "byte_size": blob.byte_size}
    return {**named, **_opening_columns(row)}


def _opening_columns(row: EpisodeDescription) -> dict[str, object]:
    return {
        "pieces": [{"start": start, "data": data} for start, data in row.pieces],
        "checks": [{"block": name, "xxh3": sums} for name, sums in row.checks.items()],
    }


def _cell(value: _Scalar | None, wanted: pa.DataType) -> _Scalar | None:
    import pyarrow as pa

    if value is None:
        return None
    if pa.types.is_string(wanted):
        return value if isinstance(value, str) else str(value).lower() if isinstance(value, bool) else repr(value)
    return float(value) if pa.types.is_floating(wanted) else value
