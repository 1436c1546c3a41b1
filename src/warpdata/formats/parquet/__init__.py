"""Parquet shards: read by byte range, checked, and written."""

from warpdata.formats.parquet.range_file import Parts
from warpdata.formats.parquet.shard import ShardFile, ShardOpener
from warpdata.formats.parquet.source_files import ParquetSource, describe_all, describe_parquet, read_unified
from warpdata.formats.parquet.writer import WriteOptions, write_parquet

__all__ = [
    "ParquetSource",
    "Parts",
    "ShardFile",
    "ShardOpener",
    "WriteOptions",
    "describe_all",
    "describe_parquet",
    "read_unified",
    "write_parquet",
]
