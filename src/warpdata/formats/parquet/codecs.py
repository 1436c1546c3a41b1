"""Codecs of the columns of new files: Zstandard, except for numbers that it cannot make smaller.

Random mantissas, as in measurements and embeddings, have almost no redundancy. Compressing them saves a few percent of
the space and takes most of the time of every later read. Implements "Writing" of docs/specs/tables.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from warpdata.limits import KIB

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["ColumnCodecs", "choose_codecs"]

_SAMPLE_BYTES = 64 * KIB
"""The first values of a column that are compressed on trial. Smaller columns are always compressed."""
_MIN_SAVING = 1 / 8


@dataclass(frozen=True, slots=True)
class ColumnCodecs:
    """Options of Arrow's writer: one codec and level for all columns, or one for each leaf column."""

    compression: str | dict[str, str]
    level: int | dict[str, int]


def choose_codecs(first: pa.Table, codec: str, level: int) -> ColumnCodecs:
    """Return the codecs of files that begin with these rows. Depends on the first rows alone."""
    plain = [name for name in first.column_names if _is_incompressible(first.column(name), codec, level)]
    if not plain:
        return ColumnCodecs(codec, level)
    paths = _leaf_paths(first.schema)
    packed = [path for path in paths if not any(path == name or path.startswith(f"{name}.list.") for name in plain)]
    codecs = {path: codec if path in packed else "none" for path in paths}
    return ColumnCodecs(codecs, dict.fromkeys(packed, level))


def _is_incompressible(column: pa.ChunkedArray, codec: str, level: int) -> bool:
    """Return whether a column has floating-point numbers, or lists of them, that the codec hardly makes smaller."""
    import pyarrow as pa

    found = column.type
    is_list = pa.types.is_list(found) or pa.types.is_large_list(found) or pa.types.is_fixed_size_list(found)
    numbers = found.value_type if is_list else found
    if codec == "none" or not pa.types.is_floating(numbers) or not column.num_chunks:
        return False
    values = column.chunk(0).flatten() if is_list else column.chunk(0)
    wanted = _SAMPLE_BYTES // (numbers.bit_width // 8)
    values = values.slice(0, 2 * wanted).drop_null().slice(0, wanted)  # nulls are not stored
    if len(values) < wanted:
        return False
    sample = values.to_numpy(zero_copy_only=False).tobytes()
    compressed = pa.Codec(codec, level).compress(sample, asbytes=True)
    return len(compressed) > (1 - _MIN_SAVING) * len(sample)


def _leaf_paths(schema: pa.Schema) -> list[str]:
    """Return the paths of leaf columns as Arrow writes them."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    pq.write_table(schema.empty_table(), sink)
    written = pq.ParquetFile(pa.BufferReader(sink.getvalue())).metadata.schema
    return [written.column(leaf).path for leaf in range(len(written))]
