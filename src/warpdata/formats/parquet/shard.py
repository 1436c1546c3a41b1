"""One Parquet shard in a store: its footer, its byte ranges, and row groups decoded from them.

Nothing here fetches a whole file. The footer is checked against the checksum in the manifest, and
pages against their own checksums while they are decoded; a foreign file without page checksums can
only be checked whole (docs/specs/tables.md).
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from warpdata.errors import BlobCorruptedError, CorruptError, UnsupportedFormatError, WarpError
from warpdata.formats.parquet.mmap_cache import MAPPED, MappedFile
from warpdata.formats.parquet.nan_stats import columns_without_nan, told_nothing
from warpdata.formats.parquet.range_file import PartialFile, Parts
from warpdata.formats.parquet.scratch import open_reader, scratch_pool
from warpdata.limits import FOOTER_GUESS_BYTES, HEAD_COLUMN_BYTES, KIB, MAX_FOOTER_BYTES, MIB, SMALL_SHARD_BYTES
from warpdata.primitives.cached_property import cached_property
from warpdata.primitives.hashing import blob_key, sha256_hex
from warpdata.query import Bounds
from warpdata.repository.manifest import Shard
from warpdata.storage import ByteRange, Reader

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

__all__ = ["RowGroup", "ShardFile", "ShardOpener", "open_shard", "parse_tail"]

_TRAILER_BYTES = 8
_REMEMBERED_SHARDS = 64
_SMALL_DICTIONARY_BYTES = 64 * KIB
_CODE_BYTES = 2
_TRIES = 2
"""Once more where a nearer copy was to blame, and not for ever where the store is."""

_latest = threading.local()
"""The local file that a thread read last, still open; let go of with the next one, or with the thread."""


@dataclass(frozen=True, slots=True)
class RowGroup:
    """A part of a shard, by position. `first_row` counts within the shard."""

    index: int
    first_row: int
    row_count: int


class ShardOpener:
    """Opens shards of one store and remembers the latest, so that asking twice costs one request.

    `open` is for who wants most of the rows: a small shard comes whole, with one request.
    """

    def __init__(self, reader: Reader) -> None:
        remembered = functools.lru_cache(maxsize=_REMEMBERED_SHARDS)
        self.reader = reader
        self.open = remembered(functools.partial(open_shard, reader))
        self._peek = remembered(functools.partial(open_shard, reader, may_come_whole=False))

    def peek(self, shard: Shard) -> ShardFile:
        """For its footer, and perhaps a few rows: no shard comes whole."""
        return self._peek(shard) if _comes_whole(self.reader, shard) else self.open(shard)

    def is_local(self, shard: Shard) -> bool:
        """Whether it can be read in place."""
        return self.reader.local_path(blob_key(shard.hash)) is not None


def open_shard(reader: Reader, shard: Shard, *, may_come_whole: bool = True) -> ShardFile:
    """Fetch and check the footer: one range read when the manifest knows its size. A small shard may come whole."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    whole = _read_whole(reader, shard) if may_come_whole and _comes_whole(reader, shard) else None
    tail = _read_tail(reader, shard) if whole is None else whole
    try:
        metadata = pq.read_metadata(pa.BufferReader(pa.py_buffer(tail)))
    except (pa.ArrowException, OSError) as error:
        raise BlobCorruptedError(f"shard {shard.hash} has an unreadable Parquet footer: {error}") from error
    if metadata.num_rows != shard.row_count:
        raise BlobCorruptedError(
            f"shard {shard.hash} says it has {metadata.num_rows} rows; the manifest says {shard.row_count}"
        )
    return ShardFile(reader, shard, metadata, whole)


def parse_tail(tail: memoryview | bytes) -> int:
    """The size of the footer, trailer included, told by a file's last bytes."""
    trailer = bytes(tail[-_TRAILER_BYTES:])
    if trailer[4:] == b"PARE":
        raise UnsupportedFormatError("the file is an encrypted Parquet file, which is not supported")
    if len(trailer) < _TRAILER_BYTES or trailer[4:] != b"PAR1":
        raise CorruptError("the file does not end like a Parquet file; it may be truncated")
    return int.from_bytes(trailer[:4], "little") + _TRAILER_BYTES


def _comes_whole(reader: Reader, shard: Shard) -> bool:
    """Whether it is so small, and so far away, that a second request would take longer than all of it."""
    return shard.byte_size <= SMALL_SHARD_BYTES and not reader.is_local(blob_key(shard.hash))


def _read_whole(reader: Reader, shard: Shard) -> memoryview:
    key = blob_key(shard.hash)
    for _ in range(_TRIES):
        whole = reader.read_range(key, ByteRange(0, shard.byte_size))
        if sha256_hex(whole) == shard.hash:
            parse_tail(whole)
            return whole
        if not reader.invalidate(key):
            break
    raise BlobCorruptedError(f"shard {shard.hash} does not have the bytes its name promises", hint=_REPAIR)


def _read_tail(reader: Reader, shard: Shard) -> memoryview:
    key = blob_key(shard.hash)
    if shard.footer is None:
        guess = _tail(reader, key, shard, min(FOOTER_GUESS_BYTES, shard.byte_size))
        size = parse_tail(guess)
        return guess[-size:] if size <= len(guess) else _tail(reader, key, shard, size)
    import xxhash

    for _ in range(_TRIES):
        tail = _tail(reader, key, shard, shard.footer.byte_size)
        if xxhash.xxh3_64_hexdigest(tail) == shard.footer.xxh3:
            return tail
        if not reader.invalidate(key):
            break
    raise BlobCorruptedError(f"the footer of shard {shard.hash} does not match its checksum", hint=_REPAIR)


def _tail(reader: Reader, key: str, shard: Shard, size: int) -> memoryview:
    if size > min(MAX_FOOTER_BYTES, shard.byte_size):
        raise BlobCorruptedError(f"shard {shard.hash} claims a footer of {size} bytes in {shard.byte_size}")
    return reader.read_range(key, ByteRange(shard.byte_size - size, shard.byte_size))


_REPAIR = "`warp verify` shows what else is damaged; publishing the same data to a sound store repairs it."


class _Way(NamedTuple):
    """How a file is read: some columns as dictionaries, and into which memory."""

    dictionaries: tuple[str, ...] = ()
    scratch: bool = False


@dataclass(frozen=True)
class _Place:
    """A local file as one thread reads it. `sound` belongs to all of them."""

    sound: set[tuple[int, int]]
    open: Callable[..., Any]

    @cached_property
    def compared(self) -> Any:
        """Compares every page with its checksum."""
        return self.open(compare=True)

    @cached_property
    def trusted(self) -> Any:
        """For what is sound."""
        return self.open(compare=False)


class ShardFile:
    """A shard whose footer is known. Safe to share between threads."""

    def __init__(
        self, reader: Reader, shard: Shard, metadata: pq.FileMetaData, whole: memoryview | None = None
    ) -> None:
        self._reader = reader
        self._whole = whole
        self.shard = shard
        self.metadata = metadata
        self.is_local = whole is None and reader.local_path(blob_key(shard.hash)) is not None
        """Whether it is read in place, with nothing to fetch. Should that change, reading still works, but slower."""

    @cached_property
    def schema(self) -> pa.Schema:
        return told_nothing(self.metadata.schema.to_arrow_schema())

    def row_groups(self) -> list[RowGroup]:
        out, first = [], 0
        for index in range(self.metadata.num_row_groups):
            count = self.metadata.row_group(index).num_rows
            out.append(RowGroup(index, first, count))
            first += count
        return out

    def spans(self, group: int, columns: Sequence[str]) -> list[ByteRange]:
        """Where the columns' bytes lie, one span per column chunk."""
        described = self.metadata.row_group(group)
        return [_chunk_span(described.column(leaf)) for leaf in self._leaf_indexes(columns)]

    def runs(self, group: int, columns: Sequence[str], run_bytes: int) -> Iterator[list[str]]:
        """The same columns in order, some at a time, so that each run decodes to about `run_bytes` at most."""
        described = self.metadata.row_group(group)
        run: list[str] = []
        size = 0
        for name in columns:
            more = sum(described.column(leaf).total_uncompressed_size for leaf in self._leaf_indexes([name]))
            if run and size + more > run_bytes:
                yield run
                run, size = [], 0
            run.append(name)
            size += more
        if run:
            yield run

    def bounds(self, group: int, columns: Sequence[str]) -> dict[str, Bounds]:
        """The statistics of the row group, for flat columns that have them."""
        described = self.metadata.row_group(group)
        out = {}
        for name in columns:
            leaves = self._leaf_indexes([name])
            chunk = described.column(leaves[0]) if len(leaves) == 1 else None
            if chunk is None or chunk.path_in_schema != name or chunk.statistics is None:
                continue
            known = chunk.statistics
            ranged = known.has_min_max
            out[name] = Bounds(
                minimum=known.min if ranged else None,
                maximum=known.max if ranged else None,
                null_count=known.null_count if known.has_null_count else None,
                row_count=described.num_rows,
                may_have_nan=chunk.physical_type in ("FLOAT", "DOUBLE") and name not in self._without_nan,
            )
        return out

    def small_dictionaries(self, group: int, columns: Sequence[str]) -> list[str]:
        """Text columns with few distinct values, cheaper to read and to filter before they are spelled out."""
        described = self.metadata.row_group(group)
        leaves = ((name, self._texts.get(name)) for name in columns)
        return [name for name, leaf in leaves if leaf is not None and _is_coded(described.column(leaf))]

    def fetch(self, group: int, columns: Sequence[str]) -> Parts:
        """The bytes of these columns: nothing for a local file, which is read in place."""
        if self.is_local:
            return []
        return self._fetch_spans(self.spans(group, columns))

    def decode(
        self,
        group: int,
        columns: Sequence[str],
        parts: Parts,
        dictionaries: Sequence[str] = (),
        *,
        parallel_columns: bool = False,
        scratch: bool = False,
    ) -> pa.Table:
        """A row group's columns, every page checked, those of a mapped file once.

        `parallel_columns` on several cores; `scratch` if most of it will be thrown away at once.
        """
        leaves = self._leaf_indexes(columns)

        def read(reader: Any) -> pa.Table:
            return self._takeable(reader.read_row_group(group, column_indices=leaves, use_threads=parallel_columns))

        way = _Way(tuple(dictionaries), scratch)
        place = self._place(way) if self.is_local else None
        if place is None:
            return self._guarded(read, self._open(self._source(parts), way), way)
        chunks = {(group, leaf) for leaf in leaves}
        if place.sound >= chunks:
            return self._guarded(read, place.trusted, way)

        def compare(reader: Any) -> pa.Table:
            rows = read(reader)
            if reader is place.compared:
                place.sound.update(chunks)
            return rows

        return self._guarded(compare, place.compared, way)

    def decode_prefix(self, group: int, columns: Sequence[str], row_count: int) -> pa.Table:
        """The first rows of a row group, fetching about as many bytes as they need."""
        import pyarrow as pa

        described = self.metadata.row_group(group)
        share = row_count / max(described.num_rows, 1)
        leaves = self._leaf_indexes(columns)
        spans = []
        for leaf in leaves:
            chunk = described.column(leaf)
            span = _chunk_span(chunk)
            dictionary = chunk.data_page_offset - span.start
            wanted = dictionary + max(HEAD_COLUMN_BYTES, int(2 * share * span.size_bytes))
            spans.append(ByteRange(span.start, min(span.end, span.start + wanted)))
        parts = [] if self.is_local else self._fetch_spans(spans)

        def read(reader: Any) -> pa.Table:
            taken, rows = [], 0
            for batch in reader.iter_batches(row_count, [group], column_indices=leaves, use_threads=False):
                taken.append(batch)
                rows += batch.num_rows
                if rows >= row_count:
                    break
            return self._takeable(pa.Table.from_batches(taken).slice(0, row_count))

        way = _Way()
        return self._guarded(read, self._open(self._source(parts), way, buffer_size=MIB // 4), way)

    def _takeable(self, rows: pa.Table) -> pa.Table:
        """Texts that are views spelled out, as Arrow takes no rows of those; who hands rows out has their types."""
        if not self._views:
            return rows
        import pyarrow as pa

        for name in self._views.intersection(rows.column_names):
            at = rows.column_names.index(name)
            kind = pa.large_string() if rows.schema.field(at).type == pa.string_view() else pa.large_binary()
            rows = rows.set_column(at, name, rows.column(at).cast(kind))
        return rows

    def _fetch_spans(self, spans: Sequence[ByteRange]) -> Parts:
        if self._whole is not None:
            return [(ByteRange(0, self.shard.byte_size), self._whole)]
        replies = self._reader.read_ranges(blob_key(self.shard.hash), spans)
        return [(span, reply) for span, reply in zip(spans, replies, strict=True)]

    def _place(self, way: _Way) -> _Place | None:
        """A local file as this thread left it: opening again for each row group takes a tenth of a short scan."""
        wanted = (self, way)
        if getattr(_latest, "wanted", None) != wanted:
            mapped = self._mapped()
            if mapped is None:
                return None
            _latest.place = _Place(mapped.sound, functools.partial(self._open, mapped.source, way))
            _latest.wanted = wanted
        place: _Place = _latest.place
        return place

    def _open(self, source: Any, way: _Way, *, compare: bool = True, buffer_size: int = 0) -> Any:
        pool = scratch_pool() if way.scratch else None
        return open_reader(source, self.metadata, way.dictionaries, compare=compare, pool=pool, buffer_size=buffer_size)

    def _source(self, parts: Parts) -> Any:
        """The file in place, wherever it lies now, or its fetched parts."""
        mapped = self._mapped()
        return PartialFile(self._reader, self.shard, parts) if mapped is None else mapped.source

    def _mapped(self) -> MappedFile | None:
        path = self._reader.local_path(blob_key(self.shard.hash))
        if path is not None:
            with contextlib.suppress(FileNotFoundError):
                return MAPPED.open(path)
        return None

    def _guarded(self, read: Callable[[Any], pa.Table], reader: Any, way: _Way) -> pa.Table:
        """What is damaged in a nearer copy is read again, from the store."""
        import pyarrow as pa

        for _ in range(_TRIES):
            try:
                return read(reader)
            except WarpError:
                raise
            except (pa.ArrowException, OSError) as error:
                _latest.wanted = None  # a file that is damaged here may be sound when it is opened again
                damage = BlobCorruptedError(f"shard {self.shard.hash} cannot be decoded: {error}", hint=_REPAIR)
                damage.__cause__ = error
            if not self._reader.invalidate(blob_key(self.shard.hash)):
                break
            reader = self._open(self._source([]), way)
        raise damage

    @cached_property
    def _without_nan(self) -> frozenset[str]:
        """Believed only where something vouches for the footer."""
        return frozenset() if self.shard.footer is None else columns_without_nan(self.metadata.metadata)

    @cached_property
    def _texts(self) -> dict[str, int]:
        """The columns that can be read as dictionaries, and where each is."""
        import pyarrow as pa

        kinds = (pa.string(), pa.large_string(), pa.binary(), pa.large_binary())
        found = {field.name: self._leaf_indexes([field.name]) for field in self.schema if field.type in kinds}
        return {name: leaves[0] for name, leaves in found.items() if len(leaves) == 1}

    @cached_property
    def _views(self) -> frozenset[str]:
        import pyarrow as pa

        return frozenset(field.name for field in self.schema if field.type in (pa.string_view(), pa.binary_view()))

    def _leaf_indexes(self, columns: Sequence[str]) -> list[int]:
        return [leaf for name in columns for leaf in self._leaves.get(name, [])]

    @cached_property
    def _leaves(self) -> dict[str, list[int]]:
        """Where each column's leaves are. Their paths would not tell: a name may have a dot in it."""
        leaves: dict[str, list[int]] = {}
        first = 0
        for field in self.schema:
            end = first + _leaf_count(field.type)
            leaves[field.name] = list(range(first, end))
            first = end
        return leaves


def _leaf_count(kind: pa.DataType) -> int:
    """How many columns of a file a value of this type takes."""
    stored = getattr(kind, "storage_type", kind)
    return sum(_leaf_count(stored.field(index).type) for index in range(stored.num_fields)) or 1


def _is_coded(chunk: pq.ColumnChunkMetaData) -> bool:
    """Whether the values are codes of a small dictionary, as far as sizes tell.

    A writer may give up on a dictionary half-way. Then many values stand for themselves, and making a
    dictionary of them would be slow.
    """
    dictionary_bytes = chunk.data_page_offset - _chunk_span(chunk).start
    is_mostly_codes: bool = chunk.total_uncompressed_size <= _CODE_BYTES * chunk.num_values + MIB
    return 0 < dictionary_bytes <= _SMALL_DICTIONARY_BYTES and is_mostly_codes


def _chunk_span(chunk: pq.ColumnChunkMetaData) -> ByteRange:
    start = chunk.data_page_offset
    dictionary = chunk.dictionary_page_offset if chunk.has_dictionary_page else None
    if dictionary and dictionary < start:
        start = dictionary
    return ByteRange(start, start + chunk.total_compressed_size)
