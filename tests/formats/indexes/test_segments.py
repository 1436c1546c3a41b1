"""If this fails, a segment has other rows for a value than the column, or a false segment is believed.

`tests/golden/indexes` has segments as they were first written. Parquet files depend on the version of the library, so
their bytes are read back and not compared. `python -m tests.formats.indexes.test_segments` adds absent ones.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap

import warpdata as wd
from tests.faults.scenes import link, memory
from tests.indexing.scenes import connect, head, random_rows
from tests.reference import index_reader as reference
from warpdata.errors import CorruptError, LimitExceededError, SchemaMismatchError
from warpdata.formats.indexes import (
    BitmapSegment,
    BtreeSegment,
    Segment,
    Source,
    value_type_of,
    write_bitmap,
    write_btree,
)
from warpdata.formats.parquet import ShardOpener, describe_parquet
from warpdata.primitives.hashing import blob_key, fingerprint_file
from warpdata.query import Compare, IsNull, Leaf, evaluate_mask
from warpdata.repository.manifest import Shard

FOLDER = Path(__file__).parents[2] / "golden" / "indexes"
COLUMN = pa.array(["cat", None, "dog", "cat", "Ä", "", None, "dog"], pa.string())
KINDS = ("bitmap", "btree")
_stores = iter(range(10**9))


def write(kind: str, chunks: list[pa.Array], path: Path) -> int:
    value_type = value_type_of("x", chunks[0].type)
    if kind == "bitmap":
        return write_bitmap(chunks, chunks[0].type, value_type, path)
    return write_btree(chunks, value_type, path)


def open_file(kind: str, path: Path, rows: int, entries: int | None = None) -> BitmapSegment | BtreeSegment:
    session = link(memory(f"segment-{next(_stores)}"))
    fingerprint, described = fingerprint_file(path), describe_parquet(path)
    session.writer.create_file(blob_key(fingerprint.blob.hash), path, fingerprint)
    entries = described.row_count if entries is None else entries
    shard = Shard(fingerprint.blob.hash, fingerprint.blob.byte_size, described.row_count, described.footer)
    segment = Segment(shard.hash, (Source("0" * 64, "x", rows),), entries)
    file = ShardOpener(session.reader).open(shard)
    return BitmapSegment(file, segment) if kind == "bitmap" else BtreeSegment(file, segment)


def build(kind: str, chunks: list[pa.Array], path: Path) -> BitmapSegment | BtreeSegment:
    entries = write(kind, chunks, path)
    assert entries == pq.read_metadata(path).num_rows
    return open_file(kind, path, sum(map(len, chunks)))


VALUES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "int8": (pa.int8(), st.integers(-3, 3)),
    "uint64": (pa.uint64(), st.sampled_from([0, 1, 2**64 - 1])),
    "float": (pa.float32(), st.sampled_from([math.nan, -0.0, 0.0, 1.5, math.inf, -math.inf])),
    "text": (pa.large_string(), st.sampled_from(["", "a", "ab", "É", "é", "～", "😀"])),
    "bool": (pa.bool_(), st.booleans()),
    "date": (pa.date32(), st.dates(date(2020, 1, 1), date(2020, 1, 5))),
    "time": (pa.timestamp("ms"), st.sampled_from([datetime(1969, 1, 1), datetime(2030, 5, 5, 5, 5, 5, 5000)])),
    "decimal": (pa.decimal128(5, 2), st.sampled_from([Decimal("1.25"), Decimal("-3"), Decimal("0")])),
    "bytes": (pa.binary(), st.sampled_from([b"", b"\xff", b"a"])),
    "dictionary": (pa.dictionary(pa.int8(), pa.string()), st.sampled_from(["x", "y"])),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", VALUES)
@settings(max_examples=10)
@given(data=st.data())
def test_rows_of_each_leaf_are_those_that_a_scan_keeps(
    kind: str, name: str, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    stored, strategy = VALUES[name]
    chunks = [pa.array(part, stored) for part in data.draw(st.lists(st.lists(st.none() | strategy), min_size=1))]
    segment = build(kind, chunks, tmp_path_factory.mktemp("segment") / "x.parquet")
    column = pa.chunked_array(chunks)
    plain = column.cast(stored.value_type) if pa.types.is_dictionary(stored) else column
    leaves: list[Leaf] = [IsNull("x")]
    value = data.draw(strategy)
    is_nan = isinstance(value, float) and math.isnan(value)
    if name not in ("uint64", "decimal", "bytes", "bool") and not is_nan:
        leaves += [Compare("x", op, value) for op in ("=", "!=", "<", "<=", ">", ">=")]
    for leaf in leaves:
        expected = np.flatnonzero(evaluate_mask(leaf, pa.table({"x": plain})))
        found = segment.rows(leaf)
        assert list(found) == expected.tolist(), leaf
        assert segment.estimate(leaf) >= len(expected)
    assert segment.nulls == segment.rows(IsNull("x"))


@given(st.lists(st.none() | st.lists(st.none() | st.sampled_from(["a", "b", ""])), max_size=20))
def test_a_row_of_a_list_is_in_the_bitmap_of_each_element(
    tmp_path_factory: pytest.TempPathFactory, cells: list[Any]
) -> None:
    path = tmp_path_factory.mktemp("segment") / "x.parquet"
    column = pa.array(cells, pa.list_(pa.string()))
    segment = build("bitmap", [column.slice(0, 3), column.slice(3)], path)
    for word in ("a", "b", "", "missing"):
        expected = [row for row, cell in enumerate(cells) if cell is not None and word in cell]
        assert list(segment.rows(Compare("x", "=", word))) == expected
    assert list(segment.nulls) == [row for row, cell in enumerate(cells) if cell is None]


def test_large_segments_have_row_groups_and_the_same_rows(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    numbers = rng.integers(0, 5000, 200_000)
    for kind in KINDS:
        segment = build(kind, [pa.array(numbers[:150_000]), pa.array(numbers[150_000:])], tmp_path / kind)
        assert pq.read_metadata(tmp_path / kind).num_row_groups >= 3
        for leaf, mask in (
            (Compare("x", "=", 77), numbers == 77),
            (Compare("x", "<", 20), numbers < 20),
            (Compare("x", ">=", 20), numbers >= 20),
        ):
            assert np.array_equal(segment.rows(leaf).to_array(), np.flatnonzero(mask))
        assert segment.cost_rows(Compare("x", "=", 77)) < len(numbers) * 3


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_column_gives_the_same_bytes_whatever_its_chunks(kind: str, tmp_path: Path) -> None:
    write(kind, [COLUMN], tmp_path / "one")
    write(kind, [COLUMN.slice(0, 3), COLUMN.slice(3, 0), COLUMN.slice(3)], tmp_path / "other")
    assert (tmp_path / "one").read_bytes() == (tmp_path / "other").read_bytes()


@pytest.mark.parametrize("kind", KINDS)
def test_golden_segments_are_read_by_two_readers(kind: str) -> None:
    path = FOLDER / f"{kind}.parquet"
    segment = open_file(kind, path, len(COLUMN))
    for word in ("cat", "dog", "Ä", "", "missing"):
        expected = [row for row, cell in enumerate(COLUMN.to_pylist()) if cell == word]
        assert list(segment.rows(Compare("x", "=", word))) == expected
        assert reference.rows_of_value(kind, path.read_bytes(), word) == expected
    assert list(segment.nulls) == reference.rows_of_value(kind, path.read_bytes(), None) == [1, 6]


@pytest.mark.parametrize("kind", KINDS)
def test_a_second_reader_finds_the_same_rows_of_a_published_table(kind: str) -> None:
    session = connect()
    wd.DatasetBuilder("a/b", session).add_table("main", random_rows(random.Random(1), 0, 50)).publish()
    wd.DatasetBuilder("a/b", session).append_table("main", random_rows(random.Random(2), 50, 30)).publish()
    dataset = head(session).create_index("main", "f", kind=kind)
    manifest = session.reader.read(f"datasets/a/b/manifests/{dataset.version}.json").data
    cells = dataset.table().to_arrow()["f"].to_pylist()

    def load(digest: str) -> bytes:
        return bytes(session.reader.read(blob_key(digest)).data)

    for value in (None, math.nan, 1.5, math.inf):
        expected = [row for row, cell in enumerate(cells) if str(cell) == str(value)]
        assert reference.table_rows(bytes(manifest), "main.f", value, load) == expected


def _bitmap_file(path: Path, **changed: Any) -> None:
    bitmap = BitMap([0, 3])
    rows = pa.array([bitmap.serialize()], pa.binary())
    columns = {"value": ["cat"], "count": pa.array([2], pa.int64()), "rows": rows}
    pq.write_table(pa.table({**columns, **changed}), path)


def _btree_file(path: Path, groups: int = 100, **changed: Any) -> None:
    columns = {"value": ["a", "b", None], "row": pa.array([0, 1, 2], pa.uint32())}
    pq.write_table(pa.table({**columns, **changed}), path, row_group_size=groups)


@pytest.mark.parametrize(
    ("kind", "make", "message"),
    [
        ("bitmap", lambda path: _bitmap_file(path, more=[1]), "has the columns"),
        ("bitmap", lambda path: _bitmap_file(path, rows=["text"]), "has the columns"),
        ("bitmap", lambda path: _bitmap_file(path, count=pa.array([3], pa.int64())), "bitmap of 2 rows, where 3"),
        ("bitmap", lambda path: _bitmap_file(path, rows=pa.array([b"x"], pa.binary())), "without a bitmap"),
        ("bitmap", lambda path: _bitmap_file(path, rows=pa.array([None], pa.binary())), "without a bitmap"),
        (
            "bitmap",
            lambda path: _bitmap_file(path, rows=pa.array([BitMap([0, 9]).serialize()], pa.binary())),
            "bitmap of 2 rows",
        ),
        ("btree", lambda path: _btree_file(path, more=[1, 2, 3]), "has the columns"),
        ("btree", lambda path: _btree_file(path, row=pa.array([0, 1, 2], pa.int64())), "has the columns"),
        ("btree", _btree_file, "mixes nulls and values"),
        ("btree", lambda path: _btree_file(path, 1, row=pa.array([0, 7, 2], pa.uint32())), "has row 7 of 3"),
        ("btree", lambda path: _btree_file(path, value=["a", "b", "c"], row=pa.array([0, 1, 9], pa.uint32())), "row 9"),
    ],
)
def test_one_rejected_segment_for_each_rule(
    kind: str, make: Callable[[Path], None], message: str, tmp_path: Path
) -> None:
    make(tmp_path / "x.parquet")
    rows = 3 if kind == "btree" else 4

    def read_all() -> None:
        segment = open_file(kind, tmp_path / "x.parquet", rows)
        for word in ("cat", "a", "b", "c"):
            segment.rows(Compare("x", "=", word))

    with pytest.raises(CorruptError, match=message):
        read_all()


def test_a_btree_has_an_entry_for_each_row(tmp_path: Path) -> None:
    _btree_file(tmp_path / "x", 1)
    with pytest.raises(CorruptError, match="entries for 4 rows"):
        open_file("btree", tmp_path / "x", 4)


def test_values_that_cannot_be_indexed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    nested = (pa.struct([("a", pa.int8())]), pa.list_(pa.list_(pa.int8())), pa.map_(pa.int8(), pa.int8()))
    for stored in (pa.null(), *nested):
        with pytest.raises(SchemaMismatchError, match="cannot be indexed"):
            value_type_of("x", stored)
    monkeypatch.setattr("warpdata.formats.indexes.bitmap.MAX_BITMAP_VALUES", 3)
    with pytest.raises(LimitExceededError, match="more than 3 values"):
        write("bitmap", [pa.array([1, 2, 3, 4])], tmp_path / "x")


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for each in KINDS:
        if not (FOLDER / f"{each}.parquet").exists():
            write(each, [COLUMN], FOLDER / f"{each}.parquet")
