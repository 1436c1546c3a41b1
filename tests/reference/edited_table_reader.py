"""A second opinion on edited tables, written from "Rows" of docs/specs/manifest.md and nothing else.

Plain `json`, `struct` and pyarrow, slow and literal on purpose, with no import from the project. It reads every file
whole, row by row, and trusts that the version is well formed.
"""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pyarrow.parquet as pq

from tests.reference.manifest_reader import shards_of

__all__ = ["SampleRow", "read_rows", "roaring_positions"]

Load = Callable[[str], bytes]


class SampleRow(NamedTuple):
    sample_id: int
    shard: int
    position: int
    values: dict[str, Any]


def read_rows(manifest: bytes, table: str, load: Load) -> list[SampleRow]:
    """Every visible row of a table, in order. `load` fetches a blob by its hash."""
    entry = json.loads(manifest)["tables"][table]
    changes, names = entry.get("schema_changes", []), entry.get("schema", {}).get("columns")
    rows: list[SampleRow] = []
    stored_before = 0
    for number, shard in enumerate(shards_of(entry, load)):
        stored = shard["row_count"] + shard.get("deletes", {}).get("row_count", 0)
        columns = _columns(shard["hash"], shard.get("revision", 0), changes, load)
        for file in shard.get("files", []):
            more = _columns(file["hash"], file.get("revision", 0), changes, load)
            assert not more.keys() & columns.keys()
            columns |= more
        deleted = set(_deleted(shard.get("deletes"), load))
        ids = list(_ids(shard.get("ids"), stored, stored_before, load))
        for position in range(stored):
            if position not in deleted:
                values = {name: columns[name][position] for name in names or columns}
                rows.append(SampleRow(ids[position], number, position, values))
        stored_before += stored
    return rows


def _columns(digest: str, revision: int, changes: list[dict[str, str]], load: Load) -> dict[str, list[Any]]:
    rows = pq.read_table(io.BytesIO(load(digest)))
    names: list[str | None] = list(rows.column_names)
    for change in changes[revision:]:
        names = [change.get("renamed_to") if name == change["column"] else name for name in names]
    listed = [column.to_pylist() for column in rows.columns]
    return {name: values for name, values in zip(names, listed, strict=True) if name is not None}


def _deleted(deletes: dict[str, Any] | None, load: Load) -> list[int]:
    if deletes is None:
        return []
    found: list[int] = deletes["positions"] if "positions" in deletes else roaring_positions(load(deletes["hash"]))
    assert len(found) == deletes["row_count"]
    return found


def _ids(ids: dict[str, Any] | None, stored: int, stored_before: int, load: Load) -> Iterator[int]:
    if ids is None:
        runs = [[stored_before, stored]]
    elif "first" in ids:
        runs = [[ids["first"], stored]]
    elif "runs" in ids:
        runs = ids["runs"]
    else:
        runs = _runs(load(ids["hash"]))
    for first, count in runs:
        yield from range(first, first + count)


def _runs(data: bytes) -> list[list[int]]:
    if data[:8] != b"WIDS\0\0\0\1":
        return [list(run) for run in struct.iter_unpack("<QQ", data)]
    values, value, shift = [], 0, 0
    for byte in data[8:]:
        value, shift = value | (byte & 0x7F) << shift, shift + 7
        if byte < 0x80:
            values.append(value)
            value, shift = 0, 0
    runs, end = [], 0
    for coded, count in zip(values[0::2], values[1::2], strict=True):
        first = end + (coded // 2 if coded % 2 == 0 else -(coded + 1) // 2)
        end = first + count + 1
        runs.append([first, count + 1])
    return runs


def roaring_positions(data: bytes) -> list[int]:
    """The numbers of a 32-bit Roaring bitmap in the portable format, by RoaringFormatSpec."""
    (cookie,) = struct.unpack_from("<I", data)
    if cookie & 0xFFFF == 12347:
        count, at = (cookie >> 16) + 1, 4
        flags = data[at : at + (count + 7) // 8]
        at += len(flags)
    else:
        assert cookie == 12346
        (count,), at, flags = struct.unpack_from("<I", data, 4), 8, b""
    heads = [struct.unpack_from("<HH", data, at + 4 * number) for number in range(count)]
    at += 4 * count
    if not flags or count >= 4:
        at += 4 * count  # the offsets of the containers, which follow one another anyway
    out: list[int] = []
    for number, (key, less_one) in enumerate(heads):
        if flags and flags[number // 8] >> (number % 8) & 1:
            (runs,) = struct.unpack_from("<H", data, at)
            pairs = [struct.unpack_from("<HH", data, at + 2 + 4 * run) for run in range(runs)]
            low = [value for start, more in pairs for value in range(start, start + more + 1)]
            at += 2 + 4 * runs
        elif less_one + 1 > 4096:
            bits = int.from_bytes(data[at : at + 8192], "little")
            low = [value for value in range(65536) if bits >> value & 1]
            at += 8192
        else:
            low = list(struct.unpack_from(f"<{less_one + 1}H", data, at))
            at += 2 * (less_one + 1)
        out += [key << 16 | value for value in low]
    return out
