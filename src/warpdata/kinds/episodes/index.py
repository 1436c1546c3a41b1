"""The index of an episode set: a Parquet file with one row for each episode.

The index is an ordinary table, so SQL can select episodes. Each row also has the bytes that locate everything in the
episode's file, so opening an episode sends no request. index_writer.py writes it. Implements "Index" of
docs/specs/episodes.md.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from warpdata.errors import BadInputError, CorruptError, NotFoundError
from warpdata.formats.parquet import ShardFile, ShardOpener
from warpdata.formats.wshard import DType
from warpdata.kinds.episodes.entry import EpisodesEntry
from warpdata.kinds.episodes.episode import ChunkedEpisode, ChunkedRow, FileEpisode, IndexRow, StoredEpisode
from warpdata.kinds.tables import Table
from warpdata.limits import MIB
from warpdata.primitives.byte_lru import ByteLRU
from warpdata.primitives.cached_property import cached_property
from warpdata.primitives.hashing import Blob, blob_key, is_digest
from warpdata.primitives.parallel import IO_POOL
from warpdata.repository.manifest import Page
from warpdata.settings import Settings
from warpdata.storage import BufferedBlob, Reader
from warpdata.streaming import Clock

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

    from warpdata.kinds.episodes.similarity import EpisodeVectors

__all__ = [
    "CHUNKS",
    "HIDDEN_COLUMNS",
    "ChannelLayout",
    "EpisodeIndex",
    "EpisodeSummary",
    "EpisodesContext",
    "find_channel",
    "format_layout",
    "index_fields",
]

CHUNKS = "chunks"
"""The column of the files of chunked episodes. Only sets with such episodes have it."""

HIDDEN_COLUMNS = ("layout", "pieces", "checks", CHUNKS)
"""Columns that only readers of episodes need."""

_OPENING_COLUMNS = ("id", "length", "hash", "byte_size", "identity", "pieces", "checks")
_WHOLE_INDEX_BYTES = 1 * MIB
"""A remote index up to this size is fetched with one request."""
_CACHED_ROW_GROUPS = 32
_CACHED_VECTORS = 4
_MAX_OPEN_FILES = 1024


@dataclass(frozen=True, slots=True)
class EpisodesContext:
    """The version of an episode set, and the means to read it."""

    dataset_id: str
    version: str
    reader: Reader
    settings: Settings
    clock: Clock
    reopen: Callable[[], Any] | None = None
    """Opens the same `Episodes` in another process; can be pickled."""
    may_fork: bool = True
    """False if the reader does not survive a fork."""


@dataclass(frozen=True, slots=True)
class ChannelLayout:
    """A block with rows along the steps: the format of a decoded row, and the block's own rate if it has one."""

    id: str
    block: str
    dtype: str
    shape: tuple[int, ...]
    rate_hz: float | None = None
    is_whole: bool = False
    """True if reading any row decodes the whole block."""
    encoding: str | None = None
    """The codec of a camera whose rows are encoded images or video. Its shape is (height, width, 3), or empty."""
    group_frames: int | None = None
    """The number of frames in the largest GOP of a camera; None without a frame index."""


@dataclass(frozen=True)
class EpisodeSummary:
    """The length and the layout of every episode. Episodes share few layouts."""

    lengths: NDArray[np.int64]
    layout_numbers: NDArray[np.int64]
    layouts: tuple[tuple[ChannelLayout, ...], ...]


class EpisodeIndex:
    """Episodes by number. Caches row groups and open episodes, shared by all selections of the set. Thread-safe."""

    def __init__(self, name: str, entry: EpisodesEntry, context: EpisodesContext) -> None:
        self.name = name
        self.entry = entry
        self.context = context
        self._shard = entry.table_entry().shards.shards[0]
        self._opener = ShardOpener(self._index_reader())
        self._row_group = functools.lru_cache(maxsize=_CACHED_ROW_GROUPS)(self._read_row_group)
        self.open = functools.lru_cache(maxsize=self.max_open)(self._open)
        self.vectors: ByteLRU[Hashable, EpisodeVectors] = ByteLRU(max_entries=_CACHED_VECTORS)
        """Vectors of all episodes, by their channels and the function that makes them."""
        self.rewards: ByteLRU[str, NDArray[np.float64]] = ByteLRU(max_entries=1)
        """The total rewards of all episodes."""

    @property
    def max_open(self) -> int:
        """Bound on open episodes. A process may map only a limited number of files."""
        files = self.entry.file_count
        return _MAX_OPEN_FILES if files is None else max(1, _MAX_OPEN_FILES * self.entry.episode_count // files)

    @cached_property
    def table(self) -> Table:
        """The index without hidden columns."""
        rows = Table(self.name, self.entry.table_entry(), self._opener, _no_page, self.context.settings)
        return rows.select([name for name in rows.schema().names if name not in HIDDEN_COLUMNS])

    @cached_property
    def summary(self) -> EpisodeSummary:
        """Read two columns of the index."""
        import pyarrow.compute as pc

        rows = self.read_columns(["length", "layout"])
        encoded = pc.dictionary_encode(rows["layout"].combine_chunks())
        return EpisodeSummary(
            np.asarray(rows["length"].to_numpy(), dtype=np.int64),
            np.asarray(encoded.indices.to_numpy(), dtype=np.int64),
            tuple(_parse_layout(text) for text in encoded.dictionary.to_pylist()),
        )

    @cached_property
    def numbers_by_id(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(self.read_columns(["id"])["id"].to_pylist())}

    def _open(self, number: int) -> StoredEpisode:
        group = next(g for g in self._file.row_groups() if g.first_row <= number < g.first_row + g.row_count)
        document: dict[str, Any] = self._row_group(group.index).slice(number - group.first_row, 1).to_pylist()[0]
        row, reader, check_bytes = _parse_row(document), self.context.reader, self.entry.check_bytes
        if isinstance(row, ChunkedRow):
            return ChunkedEpisode(number, row, reader, check_bytes)
        return FileEpisode(number, row, reader, check_bytes)

    @cached_property
    def _file(self) -> ShardFile:
        file = self._opener.open(self._shard)
        _check_columns(file.schema, has_chunks=self._has_chunks)
        return file

    @property
    def _has_chunks(self) -> bool:
        return self.entry.file_count is not None

    def _read_row_group(self, group: int) -> pa.Table:
        """Read the columns that open episodes."""
        return self._read(group, (*_OPENING_COLUMNS, CHUNKS) if self._has_chunks else _OPENING_COLUMNS)

    def row_groups(self) -> Iterator[pa.Table]:
        """Yield the rows of all episodes with all columns, a row group at a time."""
        for group in self._file.row_groups():
            yield self._read(group.index, self._file.schema.names)

    @property
    def schema(self) -> pa.Schema:
        """The columns of the index, with the hidden ones."""
        return self._file.schema

    def read_columns(self, columns: Sequence[str]) -> pa.Table:
        """Read columns of all episodes."""
        import pyarrow as pa

        groups = [group.index for group in self._file.row_groups()]
        tables = IO_POOL.map_all(lambda group: self._read(group, columns), groups)
        empty = pa.schema([self._file.schema.field(name) for name in columns]).empty_table()
        return pa.concat_tables([empty, *tables])

    def _read(self, group: int, columns: Sequence[str]) -> pa.Table:
        return self._file.decode(group, columns, self._file.fetch(group, columns))

    def _index_reader(self) -> Reader:
        """Return a reader that fetches a small remote index whole, and only the needed parts of a large one."""
        reader, blob = self.context.reader, self.entry.index
        is_small = blob.byte_size <= _WHOLE_INDEX_BYTES
        return BufferedBlob(reader, blob) if is_small and not reader.is_local(blob_key(blob.hash)) else reader


def find_channel(name: str, layout: Sequence[ChannelLayout], owner: str) -> ChannelLayout:
    """Return the channel with this block name or id. `owner` names the episode in error messages."""
    found = [spec for spec in layout if spec.block == name] or [
        spec for spec in layout if name in (spec.id, spec.block.partition("/")[2])
    ]
    if len(found) > 1:
        blocks = " or ".join(spec.block for spec in found)
        raise BadInputError(f"{name!r} is ambiguous in {owner}: {blocks}", hint="Use the block name.")
    if not found:
        listed = ", ".join(spec.id for spec in layout[:20])
        raise NotFoundError(f"{owner} has no channel {name!r} with steps", hint=f"Channels: {listed or 'none'}.")
    return found[0]


def format_layout(layout: Sequence[ChannelLayout]) -> str:
    """Return the value of the column `layout`."""
    listed = [
        {"id": spec.id, "block": spec.block, "dtype": spec.dtype, "shape": list(spec.shape)}
        | ({} if spec.rate_hz is None else {"rate_hz": spec.rate_hz})
        | ({"is_whole": True} if spec.is_whole else {})
        | ({} if spec.encoding is None else {"encoding": spec.encoding})
        | ({} if spec.group_frames is None else {"group_frames": spec.group_frames})
        for spec in layout
    ]
    return json.dumps(listed, separators=(",", ":"), ensure_ascii=False)


def index_fields(*, has_chunks: bool) -> list[pa.Field]:
    """Return all columns except the user's metadata."""
    import pyarrow as pa

    def required(name: str, kind: pa.DataType) -> pa.Field:
        return pa.field(name, kind, nullable=False)

    piece = pa.struct([required("start", pa.int64()), required("data", pa.binary())])
    check = pa.struct([required("block", pa.string()), required("xxh3", pa.binary())])
    opening = [
        required("pieces", pa.list_(required("element", piece))),
        required("checks", pa.list_(required("element", check))),
    ]
    blob = [required("hash", pa.string()), required("byte_size", pa.int64())]
    chunk = pa.struct([required("length", pa.int64()), required("identity", pa.string()), *blob, *opening])
    return [
        required("id", pa.string()),
        required("env_id", pa.string()),
        required("length", pa.int64()),
        required("timebase", pa.string()),
        pa.field("tick_hz", pa.float64()),
        required("channels", pa.list_(pa.string())),
        required("identity", pa.string()),
        required("is_sealed", pa.bool_()),
        *blob,
        required("layout", pa.string()),
        *opening,
        *([required(CHUNKS, pa.list_(required("element", chunk)))] if has_chunks else []),
    ]


def _check_columns(schema: pa.Schema, *, has_chunks: bool) -> None:
    """Raise `CorruptError` unless all required columns exist and have the right type."""
    for wanted in index_fields(has_chunks=has_chunks):
        at = schema.get_field_index(wanted.name)
        if at < 0 or not schema.field(at).equals(wanted):
            raise CorruptError(
                f"the episode index has no column {wanted.name!r} of type {wanted.type}",
                hint="Publish the episodes again.",
            )


def _parse_layout(text: str) -> tuple[ChannelLayout, ...]:
    """Parse the output of `format_layout`; raise `CorruptError` for anything else."""
    try:
        return tuple(
            ChannelLayout(
                str(item["id"]),
                str(item["block"]),
                DType(item["dtype"]).value,
                tuple(int(size) for size in item["shape"]),
                None if item.get("rate_hz") is None else float(item["rate_hz"]),
                bool(item.get("is_whole", False)),
                None if item.get("encoding") is None else str(item["encoding"]),
                None if item.get("group_frames") is None else int(item["group_frames"]),
            )
            for item in json.loads(text)
        )
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise CorruptError(f"the episode index has an invalid channel layout: {text[:200]!r}") from error


def _parse_row(document: Mapping[str, Any]) -> IndexRow | ChunkedRow:
    """Parse a row of `_OPENING_COLUMNS`, with `CHUNKS` if the set has them; `CorruptError` if it is invalid."""
    chunks = document.get(CHUNKS)
    if not chunks:
        return _parse_file_row(document, document["id"], None)
    rows: list[IndexRow] = []
    next_step = 0
    for number, chunk in enumerate(chunks):
        rows.append(_parse_file_row(chunk, document["id"], (number, next_step)))
        next_step += rows[-1].length
    if len(rows) < 2 or next_step != document["length"]:
        raise CorruptError(
            f"the episode index has {len(rows)} chunks with {next_step} steps for episode {document['id']!r}, "
            f"which has {document['length']} steps"
        )
    return ChunkedRow(document["id"], document["length"], document["identity"], tuple(rows))


def _parse_file_row(document: Mapping[str, Any], name: str, chunk_position: tuple[int, int] | None) -> IndexRow:
    pieces = document["pieces"]
    if not is_digest(document["hash"]) or min(document["byte_size"], document["length"]) < 0:
        raise CorruptError(f"the episode index has an invalid hash, size or length for episode {name!r}")
    if not pieces or pieces[0]["start"] != 0:
        raise CorruptError(f"the episode index lacks the header of episode {name!r}")
    return IndexRow(
        name,
        document["length"],
        Blob(document["hash"], document["byte_size"]),
        document["identity"],
        tuple((piece["start"], piece["data"]) for piece in pieces),
        {check["block"]: check["xxh3"] for check in document["checks"]},
        chunk_position,
    )


def _no_page(_page: Page) -> bytes:
    raise AssertionError("an index is one file, so its shard list has no pages")
