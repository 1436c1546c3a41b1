"""The codec of each column of a new file: none where compression saves little, because it makes look-ups slow.

A row that is looked up decodes a page of each column, and Zstandard takes most of that time. So the first rows are
written twice, with and without it, and the sizes decide. Implements "Writing" of docs/specs/tables.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from warpdata.limits import MIB

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["CODEC_TRIAL_ROWS", "choose_codecs"]

CODEC_TRIAL_ROWS = 4096
"""Fewer rows are compressed without a trial, which would take longer than their look-ups save."""
_SAMPLE_ROWS = 65_536
_SAMPLE_BYTES = 8 * MIB
_LEAST_SAVED = 1 / 8
_MAX_DELTA_GROWTH = 1.1
_DELTA = "DELTA_BINARY_PACKED"
_INTEGERS = ("INT32", "INT64")


@dataclass(frozen=True, slots=True)
class _Leaf:
    """The sizes of a column in the sample."""

    is_integer: bool
    size_bytes: int
    page_bytes: int
    """Without the dictionary, which many more rows will share."""


def choose_codecs(rows: pa.Table, options: dict[str, Any]) -> dict[str, Any]:
    """Return the options of Arrow's writer with a codec for each column. `options` compress all of them.

    A column stays uncompressed if the codec would save less than an eighth. Integers are stored as differences if that
    takes at most a tenth more than the codec, because it is decoded in a fraction of the time.
    """
    row_bytes = max(1, rows.nbytes // max(rows.num_rows, 1))
    sample = rows.slice(0, max(1, min(_SAMPLE_ROWS, _SAMPLE_BYTES // row_bytes)))
    compressed = _measure(sample, options)
    integers = {path for path, leaf in compressed.items() if leaf.is_integer}
    plain = _measure(sample, _with_codecs(options, list(compressed), set(compressed), integers))
    delta = {path for path in integers if plain[path].size_bytes <= _MAX_DELTA_GROWTH * compressed[path].size_bytes}
    incompressible = {
        path
        for path, leaf in compressed.items()
        if path not in integers and leaf.page_bytes > (1 - _LEAST_SAVED) * plain[path].page_bytes
    }
    return _with_codecs(options, list(compressed), incompressible | delta, delta)


def _with_codecs(options: dict[str, Any], paths: list[str], plain: set[str], delta: set[str]) -> dict[str, Any]:
    """Return the options with the columns in `plain` uncompressed, and those in `delta` stored as differences."""
    coded = paths if options["use_dictionary"] is True else options["use_dictionary"]
    compressed = [path for path in paths if path not in plain]
    return {
        **options,
        "compression": {path: "none" if path in plain else options["compression"] for path in paths},
        "compression_level": dict.fromkeys(compressed, options["compression_level"]) or None,
        "use_dictionary": [path for path in coded if path not in delta],
        "column_encoding": dict.fromkeys(sorted(delta), _DELTA) or None,
    }


def _measure(sample: pa.Table, options: dict[str, Any]) -> dict[str, _Leaf]:
    """Write the sample, and return its leaf columns by their paths."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, sample.schema, **options) as writer:
        writer.write_table(sample, row_group_size=max(sample.num_rows, 1))
    group = pq.read_metadata(pa.BufferReader(sink.getvalue())).row_group(0)
    out = {}
    for chunk in (group.column(at) for at in range(group.num_columns)):
        size_bytes = chunk.total_compressed_size
        dictionary_bytes = chunk.data_page_offset - chunk.dictionary_page_offset if chunk.has_dictionary_page else 0
        is_integer = chunk.physical_type in _INTEGERS
        out[chunk.path_in_schema] = _Leaf(is_integer, size_bytes, size_bytes - dictionary_bytes)
    return out
