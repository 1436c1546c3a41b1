"""Arrow batches → Parquet files that are efficient to read in part.

Files have row groups of equal size, statistics, a checksum for every page, and NaN metadata. Content-defined chunking
makes an insertion change only the pages around it. The layout depends on the rows alone, not on their batches, so
the same rows always give the same bytes. Implements "Writing" of docs/specs/tables.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from warpdata.errors import InvalidSourceError
from warpdata.formats.parquet.column_codecs import CODEC_TRIAL_ROWS, choose_codecs
from warpdata.formats.parquet.extension_types import plain_schema
from warpdata.formats.parquet.file_sink import SPOOLED_BYTES, FileSink, WrittenFile
from warpdata.formats.parquet.layout import has_text
from warpdata.formats.parquet.nan_stats import NanTracker, strip_nan_metadata
from warpdata.formats.parquet.source_files import check_unique
from warpdata.limits import KIB, MIB
from warpdata.primitives.arrow_buffers import check_text

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

__all__ = ["WriteOptions", "write_column_file", "write_parquet", "write_row_groups", "write_spooled"]

_SAMPLE_ROWS = 65_536
_PAGE_BYTES = 8 * KIB
"""The size that the Parquet format recommends. A row that is looked up decodes a page of each column."""
_PAGE_ROWS = 2048
"""Pages of columns that are coded in a few bits for each row end here."""
_BUFFER_BYTES = 256 * KIB
_DICTIONARY_BYTES = 64 * KIB
"""A page of codes needs the whole dictionary, so larger ones would make such look-ups slow."""


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """Options for new files. Sizes are targets for rows in memory, before compression."""

    row_group_bytes: int = 32 * MIB
    file_bytes: int = 512 * MIB
    compression: str = "zstd"
    compression_level: int = 3
    statistics: tuple[str, ...] | None = None
    """The columns with statistics, for pruning; None for all. Statistics of large binary values bloat the footer."""


def write_parquet(
    batches: Iterable[pa.RecordBatch],
    schema: pa.Schema,
    directory: Path,
    stem: str,
    options: WriteOptions | None = None,
) -> Iterator[Path]:
    """Write files into a directory and yield each when it is complete. No rows give one empty file."""
    for file in write_spooled(batches, schema, lambda: directory, stem, options, memory_bytes=0):
        yield file.path


def write_spooled(
    batches: Iterable[pa.RecordBatch],
    schema: pa.Schema,
    find_directory: Callable[[], Path],
    stem: str,
    options: WriteOptions | None = None,
    *,
    memory_bytes: int = SPOOLED_BYTES,
) -> Iterator[WrittenFile]:
    """Write files like `write_parquet`, with the same bytes. Files of up to `memory_bytes` stay in memory."""
    options = options or WriteOptions()
    check_unique(schema, stem)
    schema = plain_schema(strip_nan_metadata(schema))
    groups = _row_groups(batches, schema, options)
    first = next(groups, None)
    group_rows, pending = (0, schema.empty_table()) if first is None else (first.num_rows, first)
    groups_per_file = max(1, options.file_bytes // max(options.row_group_bytes, 1))
    number = 0
    group: pa.Table | None = pending
    while group is not None:
        sink = FileSink(find_directory, f"{stem}-{number:05d}.parquet", memory_bytes)
        nan_tracker = NanTracker(schema, options.statistics)
        with (
            _typed_errors(pending, stem),
            _open_writer(sink, schema, _writer_options(options, options.statistics), pending) as writer,
        ):
            for _ in range(groups_per_file):
                writer.write_table(group, row_group_size=max(group_rows, 1))
                nan_tracker.observe(group)
                group = next(groups, None)
                if group is None:
                    break
            writer.add_key_value_metadata(nan_tracker.metadata())
        yield sink.written()
        number += 1


def write_column_file(groups: Iterable[pa.Array], name: str, declared: pa.DataType | None, path: Path) -> None:
    """Write one column into a file whose row groups have exactly these values.

    Without groups, the column has the declared type and no rows.
    """
    import pyarrow as pa

    stream = iter(groups)
    first = next(stream, None)
    stored = declared if first is None or declared is not None else first.type
    schema = plain_schema(pa.schema([pa.field(name, pa.null() if stored is None else stored)]))
    listed = chain([] if first is None else [first], stream)
    batches = (_conform(pa.RecordBatch.from_arrays([values], names=[name]), schema) for values in listed)
    write_row_groups((pa.Table.from_batches([batch], schema) for batch in batches), schema, path)


def write_row_groups(
    groups: Iterable[pa.Table],
    schema: pa.Schema,
    path: Path,
    *,
    statistics: Sequence[str] | None = None,
    dictionaries: Sequence[str] | None = None,
) -> None:
    """Write a file whose row groups have exactly these rows. The columns named have statistics and dictionaries."""
    nan_tracker = NanTracker(schema, statistics)
    stream = iter(groups)
    first = next(stream, None)
    options = _writer_options(WriteOptions(), statistics, dictionaries)
    sink = FileSink(lambda: path.parent, path.name)
    with _open_writer(sink, schema, options, first) as writer:
        for group in stream if first is None else chain([first], stream):
            writer.write_table(group, row_group_size=max(group.num_rows, 1))
            nan_tracker.observe(group)
        writer.add_key_value_metadata(nan_tracker.metadata())


@contextmanager
def _open_writer(
    sink: FileSink, schema: pa.Schema, options: dict[str, Any], first: pa.Table | None
) -> Iterator[pq.ParquetWriter]:
    """Open a writer, with codecs that suit the first rows. An error of the file, such as a full disk, ends it."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if first is not None and first.num_rows >= CODEC_TRIAL_ROWS:
        options = choose_codecs(first, options)
    with sink:
        with (
            pa.BufferedOutputStream(pa.PythonFile(sink, "w"), _BUFFER_BYTES) as stream,
            pq.ParquetWriter(stream, schema, **options) as writer,
        ):
            yield writer
        sink.check()


def _writer_options(
    options: WriteOptions, statistics: Sequence[str] | None, dictionaries: Sequence[str] | None = None
) -> dict[str, Any]:
    """Return the options of Arrow's writer for all columns alike."""
    return {
        "compression": options.compression,
        "compression_level": options.compression_level,
        "use_dictionary": True if dictionaries is None else list(dictionaries),
        "write_statistics": True if statistics is None else list(statistics),
        "write_page_index": True,
        "write_page_checksum": True,
        "use_content_defined_chunking": True,
        "data_page_size": _PAGE_BYTES,
        "max_rows_per_page": _PAGE_ROWS,
        "dictionary_pagesize_limit": _DICTIONARY_BYTES,
    }


@contextmanager
def _typed_errors(rows: pa.Table, stem: str) -> Iterator[None]:
    """Name the column of a type that Parquet does not have, or that this release of Arrow cannot write."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        yield
    except (pa.ArrowNotImplementedError, OSError):
        for name in rows.column_names:
            try:
                pq.write_table(rows.select([name]).slice(0, 1), pa.BufferOutputStream())
            except (pa.ArrowException, OSError) as error:
                raise InvalidSourceError(
                    f"column {name!r} of {stem} is {rows.schema.field(name).type}, which cannot be written: {error}",
                    hint="Cast the column to another type.",
                ) from error
        raise


def _row_groups(batches: Iterable[pa.RecordBatch], schema: pa.Schema, options: WriteOptions) -> Iterator[pa.Table]:
    """Yield the rows in groups of one size, which depends on the first rows only."""
    import pyarrow as pa

    pending: list[pa.RecordBatch] = []
    pending_rows, group_rows = 0, 0
    for batch in batches:
        pending.append(_conform(batch, schema))
        pending_rows += batch.num_rows
        if group_rows == 0 and pending_rows >= _SAMPLE_ROWS:
            group_rows = _choose_group_rows(pending, options)
        while group_rows and pending_rows >= group_rows:
            rows = pa.Table.from_batches(pending, schema)
            yield rows.slice(0, group_rows).combine_chunks()
            rest = rows.slice(group_rows)
            pending, pending_rows = rest.to_batches(), rest.num_rows
    if pending_rows:
        rows = pa.Table.from_batches(pending, schema).combine_chunks()
        size = group_rows or _choose_group_rows(pending, options)
        for start in range(0, rows.num_rows, size):
            yield rows.slice(start, size).combine_chunks()


def _choose_group_rows(batches: list[pa.RecordBatch], options: WriteOptions) -> int:
    """Return a power of two, so that small differences in measured size do not change the layout."""
    import pyarrow as pa

    sample = pa.Table.from_batches(batches).slice(0, _SAMPLE_ROWS).combine_chunks()
    row_bytes = max(1, sample.nbytes // max(sample.num_rows, 1))
    return int(1 << max(0, (options.row_group_bytes // row_bytes).bit_length() - 1))


def _conform(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    if not batch.schema.equals(schema):
        try:
            batch = batch.select(schema.names).cast(schema)
        except (KeyError, ValueError, NotImplementedError) as error:
            raise InvalidSourceError(f"a batch does not fit the schema of the first batch: {error}") from error
    _check_text(batch)
    return batch


def _check_text(batch: pa.RecordBatch) -> None:
    """Raise `InvalidSourceError` for text that is not UTF-8: readers would refuse it."""
    import pyarrow as pa

    for field in batch.schema:
        if has_text(field.type):
            try:
                check_text(batch.column(field.name))
            except pa.ArrowInvalid as error:
                raise InvalidSourceError(f"column {field.name!r} has text that is not UTF-8: {error}") from error
