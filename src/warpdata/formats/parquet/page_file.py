"""Some pages of one column as a Parquet file in memory, which Arrow decodes. Pure.

Arrow's Python interface decodes whole column chunks only. So the pages that are wanted are copied, as they are stored,
into the column chunks of a small file with one column, and a footer is written for them.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from warpdata.formats.parquet.thrift import Encoded, binary, i32, i64, list_of, struct

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["PageChunk", "encode_page_file"]

_MAGIC = b"PAR1"
_STRUCT = 12
_ARROW_SCHEMA = b"ARROW:schema"


@dataclass(frozen=True, slots=True)
class PageChunk:
    """Pages of one row group. `pieces` are its dictionary page, if it has one, and its data pages."""

    pieces: Sequence[bytes | memoryview]
    dictionary_bytes: int
    row_count: int
    value_count: int
    decoded_bytes: int
    """An estimate."""


def encode_page_file(
    schema: Sequence[bytes], field: pa.Field | None, physical_type: int, codec: int, chunks: Sequence[PageChunk]
) -> bytes:
    """Return a file with one column, and a row group for each chunk.

    `schema` has the elements of the column. `field` is its Arrow field if the original file embeds an Arrow schema.
    """
    position, groups = len(_MAGIC), []
    for chunk in chunks:
        groups.append(_row_group(chunk, position, physical_type, codec))
        position += sum(map(len, chunk.pieces))
    root = struct({4: binary(b"schema"), 5: i32(1)})
    fields = {
        1: i32(2),
        2: list_of([root, *((_STRUCT, element) for element in schema)]),
        3: i64(sum(chunk.row_count for chunk in chunks)),
        4: list_of(groups),
    }
    if field is not None:
        fields[5] = list_of([struct({1: binary(_ARROW_SCHEMA), 2: binary(_arrow_schema(field))})])
    footer = struct(fields)[1]
    pieces = [piece for chunk in chunks for piece in chunk.pieces]
    return b"".join([_MAGIC, *pieces, footer, len(footer).to_bytes(4, "little"), _MAGIC])


def _row_group(chunk: PageChunk, position: int, physical_type: int, codec: int) -> Encoded:
    size_bytes = sum(map(len, chunk.pieces))
    fields = {
        1: i32(physical_type),
        2: list_of([i32(0)]),
        3: list_of([binary(b"")]),
        4: i32(codec),
        5: i64(chunk.value_count),
        6: i64(chunk.decoded_bytes),
        7: i64(size_bytes),
        9: i64(position + chunk.dictionary_bytes),
    }
    if chunk.dictionary_bytes:
        fields[11] = i64(position)
    column = struct({2: i64(0), 3: struct(fields)})
    return struct({1: list_of([column]), 2: i64(chunk.decoded_bytes), 3: i64(chunk.row_count)})


def _arrow_schema(field: pa.Field) -> bytes:
    import pyarrow as pa

    return base64.b64encode(pa.schema([field]).serialize())
