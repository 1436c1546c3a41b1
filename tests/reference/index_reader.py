"""A second opinion on indexes, written from docs/specs/indexes.md and nothing else.

Plain `json` and pyarrow, slow and literal on purpose, with no import from the project. It reads whole files and trusts
that they are well formed.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Callable
from typing import Any

import pyarrow.parquet as pq

from tests.reference.edited_table_reader import roaring_positions

__all__ = ["read_directory", "rows_of_value", "table_rows"]

Load = Callable[[str], bytes]


def read_directory(data: bytes) -> list[tuple[str, list[tuple[str, str, int]]]]:
    """Each segment with its sources: hash, column, rows."""
    document = json.loads(data)
    assert document["format"] == 1
    return [(segment["hash"], [tuple(source) for source in segment["sources"]]) for segment in document["segments"]]


def rows_of_value(kind: str, segment: bytes, value: Any) -> list[int]:
    """The rows of a segment that have a value; None is null, and NaN equals NaN."""
    entries = pq.read_table(io.BytesIO(segment)).to_pylist()
    found: set[int] = set()
    for entry in entries:
        stored = entry["value"]
        both_nan = all(isinstance(side, float) and math.isnan(side) for side in (stored, value))
        if (stored is None) != (value is None) or not (both_nan or stored == value):
            continue
        found |= set(roaring_positions(entry["rows"])) if kind == "bitmap" else {entry["row"]}
    return sorted(found)


def table_rows(manifest: bytes, name: str, value: Any, load: Load) -> list[int]:
    """The visible rows of an unedited table, without pages, that an index has for a value."""
    document = json.loads(manifest)
    index = document["indexes"][name]
    table = document["tables"][index["attributes"]["table"]]
    column = index["attributes"]["column"]
    rows: list[int] = []
    for segment_hash, sources in read_directory(load(index["index"]["hash"])):
        found = rows_of_value(index["kind"], load(segment_hash), value)
        start = 0
        for source_hash, source_column, count in sources:
            first = 0
            for shard in table["shards"]:
                if (shard["hash"], column) == (source_hash, source_column):
                    rows += [first + row - start for row in found if start <= row < start + count]
                first += shard["row_count"]
            start += count
    return sorted(rows)
