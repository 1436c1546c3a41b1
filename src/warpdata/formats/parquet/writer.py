"""Arrow batches → Parquet files that are good to read in part.

Row groups of even size, statistics, content-defined chunking (an insertion changes the pages around
it, not all that follow), a checksum on every page, and which columns have no NaN. The layout depends
only on the rows, not on how they were batched, so the same rows written twice give the same bytes.
Implements "Writing" of docs/specs/tables.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from warpdata.errors import InvalidSourceError
from warpdata.formats.parquet.nan_stats import NanWatch, told_nothing
from warpdata.limits import MIB
from warpdata.query import check_unique

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["WriteOptions", "write_parquet"]

_SAMPLE_ROWS = 65_536


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """Targets are of rows in memory, before compression."""

    row_group_bytes: int = 32 * MIB
    file_bytes: int = 512 * MIB
    compression: str = "zstd"
    compression_level: int = 3
    statistics: tuple[str, ...] | None = None
    """The columns that row groups are pruned by; None for all. Those of large binary values only swell the footer."""


def write_parquet(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, folder: Path, stem: str, options: WriteOptions | None = None
) -> Iterator[Path]:
    """Write files into `folder`, yielding each as soon as it is complete. No rows still give one file."""
    import pyarrow.parquet as pq

    options = options or WriteOptions()
    check_unique(schema, stem)
    schema = told_nothing(schema)
    groups = _row_groups(batches, schema, options)
    first = next(groups, None)
    group_rows, pending = (0, schema.empty_table()) if first is None else (first.num_rows, first)
    groups_per_file = max(1, options.file_bytes // max(options.row_group_bytes, 1))
    number = 0
    more: pa.Table | None = pending
    while more is not None:
        path = folder / f"{stem}-{number:05d}.parquet"
        watch = NanWatch(schema, options.statistics)
        with pq.ParquetWriter(
            path,
            schema,
            compression=options.compression,
            compression_level=options.compression_level,
            write_statistics=True if options.statistics is None else list(options.statistics),
            write_page_index=True,
            write_page_checksum=True,
            use_content_defined_chunking=True,
        ) as writer:
            for _ in range(groups_per_file):
                writer.write_table(more, row_group_size=max(group_rows, 1))
                watch.look_at(more)
                more = next(groups, None)
                if more is None:
                    break
            writer.add_key_value_metadata(watch.told())
        yield path
        number += 1


def _row_groups(batches: Iterable[pa.RecordBatch], schema: pa.Schema, options: WriteOptions) -> Iterator[pa.Table]:
    """Rows in groups of one size, decided by the first rows alone."""
    import pyarrow as pa

    held: list[pa.RecordBatch] = []
    held_rows, group_rows = 0, 0
    for batch in batches:
        held.append(_matching(batch, schema))
        held_rows += batch.num_rows
        if group_rows == 0 and held_rows >= _SAMPLE_ROWS:
            group_rows = _group_rows(held, options)
        while group_rows and held_rows >= group_rows:
            rows = pa.Table.from_batches(held, schema)
            yield rows.slice(0, group_rows).combine_chunks()
            rest = rows.slice(group_rows)
            held, held_rows = rest.to_batches(), rest.num_rows
    if held_rows:
        rows = pa.Table.from_batches(held, schema).combine_chunks()
        size = group_rows or _group_rows(held, options)
        for start in range(0, rows.num_rows, size):
            yield rows.slice(start, size).combine_chunks()


def _group_rows(held: list[pa.RecordBatch], options: WriteOptions) -> int:
    """A power of two, so that small differences in measured size do not change the layout."""
    import pyarrow as pa

    sample = pa.Table.from_batches(held).slice(0, _SAMPLE_ROWS).combine_chunks()
    row_bytes = max(1, sample.nbytes // max(sample.num_rows, 1))
    return int(1 << max(0, (options.row_group_bytes // row_bytes).bit_length() - 1))


def _matching(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    if batch.schema.equals(schema):
        return batch
    try:
        return batch.select(schema.names).cast(schema)
    except (KeyError, ValueError, NotImplementedError) as error:
        raise InvalidSourceError(f"a batch does not fit the first one's schema: {error}") from error
