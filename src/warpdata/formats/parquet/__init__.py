"""Parquet shards: read by byte range, verified, and written."""

from warpdata.formats.parquet.extension_types import has_own_extension, plain_rows
from warpdata.formats.parquet.file_sink import WrittenFile
from warpdata.formats.parquet.layout import RowGroup
from warpdata.formats.parquet.page_reader import GroupRows
from warpdata.formats.parquet.range_file import FetchedRanges
from warpdata.formats.parquet.shard import SMALL_SHARD_BYTES, DecodeOptions, ShardFile, ShardOpener
from warpdata.formats.parquet.source_files import (
    ParquetSource,
    check_appendable,
    check_same_schema,
    describe_all,
    describe_parquet,
    read_unified,
)
from warpdata.formats.parquet.widening import can_widen
from warpdata.formats.parquet.writer import (
    WriteOptions,
    write_column_file,
    write_parquet,
    write_row_groups,
    write_spooled,
)

__all__ = [
    "SMALL_SHARD_BYTES",
    "DecodeOptions",
    "FetchedRanges",
    "GroupRows",
    "ParquetSource",
    "RowGroup",
    "ShardFile",
    "ShardOpener",
    "WriteOptions",
    "WrittenFile",
    "can_widen",
    "check_appendable",
    "check_same_schema",
    "describe_all",
    "describe_parquet",
    "has_own_extension",
    "plain_rows",
    "read_unified",
    "write_column_file",
    "write_parquet",
    "write_row_groups",
    "write_spooled",
]
