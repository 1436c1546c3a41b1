"""A Parquet shard in a store: its footer, its byte ranges, and the row groups decoded from them.

Nothing here fetches a large file whole. The footer is verified against the checksum in the manifest, and pages
against their own checksums during decoding. A foreign file without page checksums can only be verified whole
(docs/specs/tables.md).
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from warpdata.errors import CorruptError, WarpError
from warpdata.formats.parquet.extension_types import plain_rows
from warpdata.formats.parquet.group_pruner import GroupPruner
from warpdata.formats.parquet.layout import RowGroup, ShardLayout, open_layout, parse_footer_size
from warpdata.formats.parquet.mmap_cache import MMAP_CACHE, MappedFile
from warpdata.formats.parquet.page_reader import GroupRows, PageReader
from warpdata.formats.parquet.range_file import FetchedRanges, RangeFile
from warpdata.limits import KIB, MAX_FOOTER_BYTES
from warpdata.primitives.arrow_buffers import as_arrow, as_numpy, check_text
from warpdata.primitives.cached_property import cached_property
from warpdata.primitives.hashing import blob_key, sha256_hex
from warpdata.query import Bounds, Predicate
from warpdata.repository.manifest import Shard
from warpdata.storage import REPAIR_HINT, ByteRange, Reader, read_verified, retry_corrupt

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq
    from numpy.typing import NDArray

__all__ = ["SMALL_SHARD_BYTES", "DecodeOptions", "ShardFile", "ShardOpener", "open_shard"]

SMALL_SHARD_BYTES = 256 * KIB
"""A remote shard up to this size is fetched whole: a second request would take longer."""

_FOOTER_GUESS_BYTES = 64 * KIB
_PREFIX_BUFFER_BYTES = 256 * KIB
_CACHED_SHARDS = 64


class ShardOpener:
    """Opens the shards of one store and caches the most recently used.

    `open` is for readers of most rows: it fetches a small shard whole, with one request.
    """

    def __init__(self, reader: Reader) -> None:
        cached = functools.lru_cache(maxsize=_CACHED_SHARDS)
        self.reader = reader
        self.open = cached(functools.partial(open_shard, reader))
        self._peek = cached(functools.partial(open_shard, reader, may_fetch_whole=False))

    def peek(self, shard: Shard) -> ShardFile:
        """Open a shard for its footer, or for a few rows, without fetching it whole."""
        return self._peek(shard) if self.fetches_whole(shard) else self.open(shard)

    def fetches_whole(self, shard: Shard) -> bool:
        """Return whether `open` fetches the whole file, so that `peek` differs from it."""
        return _is_small_and_remote(self.reader, shard)

    def is_local(self, shard: Shard) -> bool:
        """Return whether the shard is a local file, so that reading it fetches nothing."""
        return self.reader.local_path(blob_key(shard.hash)) is not None


def open_shard(reader: Reader, shard: Shard, *, may_fetch_whole: bool = True) -> ShardFile:
    """Fetch and verify the footer, with one range read if the manifest has its size, and its rows if that has them."""
    reader.expect_size(blob_key(shard.hash), shard.byte_size)
    whole = _read_whole(reader, shard) if may_fetch_whole and _is_small_and_remote(reader, shard) else None
    tail = _read_tail(reader, shard) if whole is None else whole
    layout = open_layout(tail, shard.byte_size, f"shard {shard.hash}", is_verified=shard.footer is not None)
    if shard.row_count is not None and layout.metadata.num_rows != shard.stored_count:
        raise CorruptError(
            f"the footer of shard {shard.hash} has {layout.metadata.num_rows} rows; "
            f"the manifest has {shard.stored_count}"
        )
    return ShardFile(reader, shard, layout, whole)


def _is_small_and_remote(reader: Reader, shard: Shard) -> bool:
    return shard.byte_size <= SMALL_SHARD_BYTES and not reader.is_local(blob_key(shard.hash))


def _read_whole(reader: Reader, shard: Shard) -> memoryview:
    def check(data: memoryview) -> memoryview:
        if sha256_hex(data) != shard.hash:
            raise CorruptError(f"the bytes of shard {shard.hash} do not have this hash", hint=REPAIR_HINT)
        return data

    whole = read_verified(reader, blob_key(shard.hash), ByteRange(0, shard.byte_size), check)
    parse_footer_size(whole)
    return whole


def _read_tail(reader: Reader, shard: Shard) -> memoryview:
    """Read the footer. Without a checksum in the manifest, its size is guessed and its bytes are not verified."""
    key, footer = blob_key(shard.hash), shard.footer
    if footer is None:
        guess = reader.read_range(key, _tail_span(shard, min(_FOOTER_GUESS_BYTES, shard.byte_size)))
        size = parse_footer_size(guess)
        return guess[-size:] if size <= len(guess) else reader.read_range(key, _tail_span(shard, size))

    def check(data: memoryview) -> memoryview:
        import xxhash

        if xxhash.xxh3_64_hexdigest(data) != footer.xxh3:
            raise CorruptError(f"the footer of shard {shard.hash} does not match its checksum", hint=REPAIR_HINT)
        return data

    return read_verified(reader, key, _tail_span(shard, footer.byte_size), check)


def _tail_span(shard: Shard, size: int) -> ByteRange:
    if size > min(MAX_FOOTER_BYTES, shard.byte_size):
        raise CorruptError(f"shard {shard.hash} claims a footer of {size} bytes in {shard.byte_size}")
    return ByteRange(shard.byte_size - size, shard.byte_size)


class _ThreadFiles(threading.local):
    """The local file that a thread opened last, with the arguments it was opened for."""

    opened_for: tuple[object, ...] | None = None
    file: _OpenFile | None = None


@dataclass(frozen=True, slots=True)
class DecodeOptions:
    """Options for the row groups of one scan.

    Each thread keeps its last local file open, because opening it for every row group takes a tenth of a short scan.
    Options must not outlive their scan: a new scan has to notice files that were replaced.
    """

    dictionaries: tuple[str, ...] = ()
    """The columns that may become dictionary arrays. Text columns with few distinct values do."""
    parallel_columns: bool = False
    """Decode columns on several cores, for a scan of fewer row groups than cores."""
    files: _ThreadFiles = field(default_factory=_ThreadFiles, repr=False, compare=False)


class ShardFile:
    """A shard whose footer is known. Safe to share between threads."""

    def __init__(self, reader: Reader, shard: Shard, layout: ShardLayout, whole: memoryview | None = None) -> None:
        self._reader = reader
        self._whole = whole
        self.shard = shard
        self.layout = layout
        self.is_local = whole is None and reader.local_path(blob_key(shard.hash)) is not None
        """True if the shard is read in place. If the local file disappears later, reads fetch from the store."""

    @property
    def schema(self) -> pa.Schema:
        return self.layout.schema

    def row_groups(self) -> list[RowGroup]:
        return self.layout.row_groups

    @property
    def claims_extensions(self) -> bool:
        """True if the file claims an extension type of this library, which decoded rows must not have."""
        return self.layout.claims_extensions

    def bounds(self, group: int, columns: Sequence[str]) -> dict[str, Bounds]:
        """Return the statistics of the columns that have them."""
        return self.layout.bounds(group, columns)

    def size_bytes(self, group: int, columns: Sequence[str]) -> int:
        """Return the stored size of columns of a row group."""
        return sum(span.size_bytes for span in self.layout.spans(group, columns))

    def row_bytes(self, columns: Sequence[str]) -> float:
        """Estimate the mean size of a decoded row, from below where values have various sizes."""
        return self.layout.row_bytes(columns)

    def fetch(self, group: int, columns: Sequence[str]) -> FetchedRanges:
        """Fetch the bytes of these columns. A local file needs none."""
        return self._fetch_spans(self.layout.spans(group, columns))

    def decode(
        self,
        group: int,
        columns: Sequence[str],
        fetched: FetchedRanges | None = None,
        options: DecodeOptions | None = None,
    ) -> pa.Table:
        """Decode columns of a row group, with every page verified; those of a mapped file once.

        `fetched` is the result of `fetch`; None fetches now.
        """
        options = options or DecodeOptions()
        dictionaries = tuple(self.layout.small_dictionaries(group, options.dictionaries))
        chunks = {(group, leaf) for leaf in self.layout.leaves(columns)}

        def read(file: _OpenFile) -> pa.Table:
            is_verified = file.verified >= chunks
            parquet = file.trusting if is_verified else file.verifying
            rows = parquet.read_row_group(group, columns, use_threads=options.parallel_columns)
            if columns:
                self._check_count(rows, group, self.row_groups()[group].row_count)
            if not is_verified:
                self._check_codes(rows, group)
                self._check_text(rows, group)
                file.verified.update(chunks)
            return rows

        fetched = self.fetch(group, columns) if fetched is None else fetched
        return self._read(read, columns, fetched, options.files, dictionaries)

    def take_rows(self, wanted: Sequence[GroupRows], columns: Sequence[str]) -> pa.Table:
        """Return rows of row groups, in their order, and verify what is read.

        Few rows of large columns are read by page. Other columns are decoded by row group, one at a time.
        """
        import pyarrow as pa

        pages = PageReader(self._reader, self.shard, self.layout)
        by_page = pages.take(wanted, columns, self._map_local_file() if self.is_local else None)
        rest = [name for name in columns if name not in by_page]
        # The columns of one row group are decoded on several cores. Other shards may be read at the same time.
        options = DecodeOptions(dictionaries=tuple(rest), parallel_columns=len(wanted) == 1)
        parts = [self._take_decoded(part, rest, options) for part in wanted] if rest else []
        found = dict(zip(rest, pa.concat_tables(parts).columns, strict=True)) if parts else {}
        rows = pa.table(by_page)
        rows = self._without_views(plain_rows(rows) if self.layout.claims_extensions else rows)
        found |= dict(zip(rows.column_names, rows.columns, strict=True))
        return pa.table({name: found[name] for name in columns})

    def _take_decoded(self, wanted: GroupRows, columns: Sequence[str], options: DecodeOptions) -> pa.Table:
        """Return rows of a decoded row group. Text with few values is decoded only for these rows."""
        import pyarrow as pa

        rows = self.decode(wanted.group, columns, options=options).take(as_arrow(wanted.rows))
        for position, name in enumerate(rows.column_names):
            declared, found = self.schema.field(name).type, rows.column(position)
            if pa.types.is_dictionary(found.type) and found.type != declared:
                rows = rows.set_column(position, name, found.cast(declared))
        return rows

    def rules_out(self, group: int, predicate: Predicate) -> bool:
        """Return True if bloom filters of the file prove that no row of the row group matches."""
        return self._pruner.rules_out(group, predicate)

    def candidates(self, group: int, predicate: Predicate) -> NDArray[np.int64] | None:
        """Return the rows of a row group in pages that may have a match; None if the page index does not help."""
        return self._pruner.candidates(group, predicate)

    @cached_property
    def _pruner(self) -> GroupPruner:
        return GroupPruner(self.shard.hash, self.layout, self._read_parts, is_local=self.is_local or bool(self._whole))

    def _read_parts(self, spans: Sequence[ByteRange]) -> Sequence[bytes | memoryview]:
        if self._whole is not None:
            return [self._whole[span.start : span.end] for span in spans]
        mapped = self._map_local_file() if self.is_local else None
        if mapped is not None:
            return [mapped.data[span.start : span.end] for span in spans]
        return self._reader.read_ranges(blob_key(self.shard.hash), spans)

    def decode_in_parts(
        self, group: int, columns: Sequence[str], options: DecodeOptions, max_bytes: int
    ) -> Iterator[pa.Table]:
        """Decode columns of a row group, a few at a time, each time into about `max_bytes`.

        Columns that are decoded in parallel come all at once.
        """
        fetched = self.fetch(group, columns)
        parts = [columns] if options.parallel_columns else self.layout.split_columns(group, columns, max_bytes)
        for part in parts:
            yield self.decode(group, part, fetched, options)

    def decode_prefix(self, group: int, columns: Sequence[str], row_count: int) -> pa.Table:
        """Decode the first rows of a row group, fetching about as many bytes as they need."""
        import pyarrow as pa

        def read(file: _OpenFile) -> pa.Table:
            taken, rows = [], 0
            for batch in file.verifying.iter_batches(row_count, [group], columns, use_threads=False):
                taken.append(batch)
                rows += batch.num_rows
                if rows >= row_count:
                    break
            head = pa.Table.from_batches(taken).slice(0, row_count) if taken else pa.table({})
            self._check_count(head, group, min(row_count, self.row_groups()[group].row_count))
            self._check_text(head, group)
            return head

        fetched = self._fetch_spans(self.layout.prefix_spans(group, columns, row_count))
        return self._read(read, columns, fetched, _ThreadFiles(), buffer_size=_PREFIX_BUFFER_BYTES)

    def _read(
        self,
        read: Callable[[_OpenFile], pa.Table],
        columns: Sequence[str],
        fetched: FetchedRanges,
        files: _ThreadFiles,
        dictionaries: tuple[str, ...] = (),
        *,
        buffer_size: int = 0,
    ) -> pa.Table:
        """Open the file and read columns from it. If a cached copy is corrupt, read once more from the store."""
        import pyarrow as pa

        attempts: Iterator[FetchedRanges] = iter((fetched, {}))

        def attempt() -> pa.Table:
            try:
                rows = read(self._open(next(attempts), files, dictionaries, buffer_size))
                rows = plain_rows(rows) if self.layout.claims_extensions else rows
            except WarpError:
                files.opened_for = None
                raise
            except (pa.ArrowException, OSError) as error:
                files.opened_for = None
                raise CorruptError(f"shard {self.shard.hash} cannot be decoded: {error}", hint=REPAIR_HINT) from error
            # Arrow also reads columns whose path begins with the name, such as `a.b` for `a`.
            return self._without_views(rows if rows.num_columns == len(columns) else rows.select(list(columns)))

        return retry_corrupt(attempt, functools.partial(self._reader.invalidate, blob_key(self.shard.hash)))

    def _check_count(self, rows: pa.Table, group: int, expected: int) -> None:
        """Raise `CorruptError` if the pages have other rows than the footer says."""
        if rows.num_rows != expected:
            raise CorruptError(
                f"row group {group} of shard {self.shard.hash} has {rows.num_rows} rows; its footer says {expected}",
                hint=REPAIR_HINT,
            )

    def _check_codes(self, rows: pa.Table, group: int) -> None:
        """Raise `CorruptError` for codes behind the end of their dictionary, which Arrow does not check."""
        import pyarrow as pa
        import pyarrow.compute as pc

        for name, column in zip(rows.column_names, rows.columns, strict=True):
            for chunk in column.chunks if pa.types.is_dictionary(column.type) else ():
                codes = as_numpy(pc.drop_null(chunk.indices) if chunk.indices.null_count else chunk.indices)
                if len(codes) and not 0 <= codes.min() <= codes.max() < len(chunk.dictionary):
                    raise CorruptError(
                        f"column {name!r} has a code outside of its dictionary in row group {group} of shard "
                        f"{self.shard.hash}",
                        hint=REPAIR_HINT,
                    )

    def _check_text(self, rows: pa.Table, group: int) -> None:
        """Raise `CorruptError` for text that is not UTF-8, which SQL and Python cannot process."""
        import pyarrow as pa

        for name in self.layout.text_columns.intersection(rows.column_names):
            try:
                check_text(rows[name])
            except pa.ArrowInvalid as error:
                raise CorruptError(
                    f"column {name!r} has invalid text in row group {group} of shard {self.shard.hash}: {error}",
                    hint="Read other columns with select(), or publish the table again with valid text.",
                ) from error

    def _without_views(self, rows: pa.Table) -> pa.Table:
        """Return text views as large texts. Readers cast the columns they yield to the declared types."""
        if not self.layout.view_columns:
            return rows
        import pyarrow as pa

        for name in self.layout.view_columns.intersection(rows.column_names):
            position = rows.column_names.index(name)
            is_text = rows.schema.field(position).type == pa.string_view()
            plain = rows.column(position).cast(pa.large_string() if is_text else pa.large_binary())
            rows = rows.set_column(position, name, plain)
        return rows

    def _fetch_spans(self, spans: Sequence[ByteRange]) -> FetchedRanges:
        if self.is_local:
            return {}
        if self._whole is not None:
            return {self.shard.hash: [(ByteRange(0, self.shard.byte_size), self._whole)]}
        replies = self._reader.read_ranges(blob_key(self.shard.hash), spans)
        return {self.shard.hash: list(zip(spans, replies, strict=True))}

    def _open(
        self, fetched: FetchedRanges, files: _ThreadFiles, dictionaries: tuple[str, ...], buffer_size: int
    ) -> _OpenFile:
        """Open the local file, if there is one now, or the fetched ranges."""
        wanted = (self, dictionaries, buffer_size)
        if files.file is not None and files.opened_for == wanted:
            return files.file
        mapped = self._map_local_file()
        if mapped is None:
            ranges = RangeFile(self._reader, self.shard, fetched)
            return _OpenFile(ranges, set(), self.layout.metadata, dictionaries, buffer_size)
        files.file = _OpenFile(mapped.source, mapped.verified, self.layout.metadata, dictionaries, buffer_size)
        files.opened_for = wanted
        return files.file

    def _map_local_file(self) -> MappedFile | None:
        path = self._reader.local_path(blob_key(self.shard.hash))
        if path is not None:
            with contextlib.suppress(FileNotFoundError):
                return MMAP_CACHE.open(path)
        return None


@dataclass(frozen=True)
class _OpenFile:
    """A shard as one thread reads it. `verified` is shared by all threads that read the same mapped file."""

    source: Any
    verified: set[tuple[int, int]]
    metadata: pq.FileMetaData
    dictionaries: tuple[str, ...]
    buffer_size: int

    @cached_property
    def verifying(self) -> pq.ParquetFile:
        """Compares every page with its checksum."""
        return self._open(verify=True)

    @cached_property
    def trusting(self) -> pq.ParquetFile:
        """Compares no page. For column chunks that are verified."""
        return self._open(verify=False)

    def _open(self, *, verify: bool) -> pq.ParquetFile:
        import pyarrow.parquet as pq

        return pq.ParquetFile(
            self.source,
            metadata=self.metadata,
            read_dictionary=list(self.dictionaries),
            buffer_size=self.buffer_size,
            pre_buffer=False,
            page_checksum_verification=verify,
            arrow_extensions_enabled=True,
        )
