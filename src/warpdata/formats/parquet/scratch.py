"""Parquet readers, and the memory they decode into.

What a filter decodes and throws away are blocks of a megabyte, used for a moment. mimalloc, Arrow's
usual allocator, gives such a block to the thread that asks next. If that thread runs on another
core, the bytes lie in a cache far from it, and writing them takes ten times as long. jemalloc, which
most builds of Arrow have too, lets a thread keep its blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

__all__ = ["open_reader", "scratch_pool"]


def scratch_pool() -> pa.MemoryPool | None:
    """Where to decode what is not kept; None for where Arrow puts everything, if somebody chose that."""
    import pyarrow as pa

    if pa.default_memory_pool().backend_name != "mimalloc" or "jemalloc" not in pa.supported_memory_backends():
        return None
    return pa.jemalloc_memory_pool()


def open_reader(
    source: Any,
    metadata: pq.FileMetaData,
    dictionaries: Sequence[str] = (),
    *,
    compare: bool = True,
    pool: pa.MemoryPool | None = None,
    buffer_size: int = 0,
) -> Any:
    """What is within `pq.ParquetFile`, which cannot be told about memory; `compare` pages with their checksums."""
    from pyarrow.parquet.core import ParquetReader

    reader = ParquetReader(memory_pool=pool)
    reader.open(
        source,
        metadata=metadata,
        read_dictionary=list(dictionaries),
        buffer_size=buffer_size,
        pre_buffer=False,
        page_checksum_verification=compare,
        arrow_extensions_enabled=True,
    )
    return reader
