"""What all selections of one episode set share: its index, and the episodes that are open."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from warpdata.formats.parquet import ShardOpener
from warpdata.kinds.episodes.buffered_blob import HeldBlob
from warpdata.kinds.episodes.chunked import ChunkedEpisode
from warpdata.kinds.episodes.description import ChannelLayout, parse_layout
from warpdata.kinds.episodes.entry import EpisodesEntry
from warpdata.kinds.episodes.episode import FileEpisode, StoredEpisode
from warpdata.kinds.episodes.index import CHUNKS, HIDDEN_COLUMNS, OPENING_COLUMNS, ChunkedRow, check_columns, row_of
from warpdata.kinds.tables import Table
from warpdata.limits import EPISODES_OPEN, EPISODES_REMEMBERED_GROUPS, EPISODES_WHOLE_INDEX_BYTES
from warpdata.primitives.cached_property import cached_property
from warpdata.primitives.hashing import blob_key
from warpdata.repository.manifest import Page
from warpdata.settings import Settings
from warpdata.storage import Reader
from warpdata.streaming import Clock

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

    from warpdata.kinds.episodes.episodes import Episodes

__all__ = ["Library", "Origin", "Overview"]


@dataclass(frozen=True, slots=True)
class Origin:
    """Where episodes come from: the version they belong to, and something to read with."""

    dataset_id: str
    version: str
    reader: Reader
    settings: Settings
    clock: Clock
    reopen: Callable[[], Episodes] | None = None
    """Opens the same set in another process; can be pickled."""
    may_fork: bool = True
    """Whether what it is read with survives a fork."""


@dataclass(frozen=True)
class Overview:
    """Of each episode how long it is, and which of the layouts it has."""

    lengths: NDArray[np.int64]
    layout_numbers: NDArray[np.int64]
    layouts: tuple[tuple[ChannelLayout, ...], ...]


class Library:
    """The index by row group, and episodes by number. Remembers the latest of both. Safe to share between threads."""

    def __init__(self, name: str, entry: EpisodesEntry, origin: Origin) -> None:
        self.name = name
        self.entry = entry
        self.origin = origin
        self._shard = entry.table_entry().shards.shards[0]
        self._opener = ShardOpener(self._index_reader())
        self._group = functools.lru_cache(maxsize=EPISODES_REMEMBERED_GROUPS)(self._read_group)
        self.open = functools.lru_cache(maxsize=self.most_open)(self._open)

    @property
    def most_open(self) -> int:
        """How many episodes are kept open: fewer where each is several files, as a process may map only so many."""
        files = self.entry.file_count
        return EPISODES_OPEN if files is None else max(1, EPISODES_OPEN * self.entry.episode_count // files)

    @cached_property
    def rows(self) -> Table:
        """The index, with all its columns."""
        return Table(self.name, self.entry.table_entry(), self._opener, _no_page, self.origin.settings)

    def table(self) -> Table:
        """The index as people see it."""
        return self.rows.select([name for name in self.rows.schema().names if name not in HIDDEN_COLUMNS])

    @cached_property
    def overview(self) -> Overview:
        """One scan of two columns."""
        import pyarrow.compute as pc

        check_columns(self.rows.schema(), has_chunks=self._has_chunks)
        rows = self.rows.select(["length", "layout"]).to_arrow(allow_large=True)
        coded = pc.dictionary_encode(rows["layout"].combine_chunks())
        return Overview(
            np.asarray(rows["length"].to_numpy(), dtype=np.int64),
            np.asarray(coded.indices.to_numpy(), dtype=np.int64),
            tuple(parse_layout(text) for text in coded.dictionary.to_pylist()),
        )

    @cached_property
    def numbers_by_id(self) -> dict[str, int]:
        ids = self.rows.select(["id"]).to_arrow(allow_large=True)["id"].to_pylist()
        return {name: number for number, name in enumerate(ids)}

    def _open(self, number: int) -> StoredEpisode:
        file = self._opener.open(self._shard)
        group = next(g for g in file.row_groups() if g.first_row <= number < g.first_row + g.row_count)
        document: dict[str, Any] = self._group(group.index).slice(number - group.first_row, 1).to_pylist()[0]
        row, reader, check_bytes = row_of(document), self.origin.reader, self.entry.check_bytes
        if isinstance(row, ChunkedRow):
            return ChunkedEpisode(number, row, reader, check_bytes)
        return FileEpisode(number, row, reader, check_bytes)

    @property
    def _has_chunks(self) -> bool:
        return self.entry.file_count is not None

    def _read_group(self, group: int) -> pa.Table:
        file = self._opener.open(self._shard)
        check_columns(file.schema, has_chunks=self._has_chunks)
        columns: Sequence[str] = (*OPENING_COLUMNS, CHUNKS) if self._has_chunks else OPENING_COLUMNS
        return file.decode(group, columns, file.fetch(group, columns))

    def _index_reader(self) -> Reader:
        """A small index is fetched whole, with one request; of a large one the parts that are needed."""
        reader, blob = self.origin.reader, self.entry.index
        is_small = blob.byte_size <= EPISODES_WHOLE_INDEX_BYTES
        return HeldBlob(reader, blob) if is_small and not reader.is_local(blob_key(blob.hash)) else reader


def _no_page(_page: Page) -> bytes:
    raise AssertionError("an index is one file, so its list has no pages")
