"""If this fails, rows that are looked up differ from rows that are scanned, or a damaged page is returned as rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kinds.tables.scenes import published
from warpdata.errors import CorruptError
from warpdata.formats.parquet import GroupRows, ShardFile, page_reader
from warpdata.formats.parquet.mmap_cache import MMAP_CACHE
from warpdata.formats.parquet.page_table import parse_offset_index, walk_pages
from warpdata.formats.parquet.writer import write_parquet
from warpdata.primitives.hashing import blob_key
from warpdata.primitives.ranges import ByteRange

ROWS = 6000


@pytest.fixture(autouse=True)
def _pages_of_small_files(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(page_reader, "_MIN_LOCAL_BYTES", 0)
    monkeypatch.setattr(page_reader, "_MIN_REMOTE_BYTES", 0)
    yield
    MMAP_CACHE.clear()


def _rows(seed: int, null_share: float) -> pa.Table:
    """Return columns of many types, whose values compress in various ways."""
    rng = np.random.default_rng(seed)
    mask = rng.random(ROWS) < null_share
    words = np.array([f"wörd {number % 700} {'x' * (number % 50)}" for number in rng.integers(0, ROWS, ROWS)])
    lengths = rng.integers(0, 4, ROWS)
    items = pa.array(rng.random(int(lengths.sum())), pa.float32())
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(rng.random(ROWS * 4), pa.float32()), 4)
    lists = pa.ListArray.from_arrays(pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32()), items)
    return pa.table(
        {
            "number": pa.array(rng.integers(-(2**62), 2**62, ROWS), mask=mask),
            "small": pa.array(rng.integers(0, 5, ROWS).astype(np.uint8), mask=mask),
            "real": pa.array(np.where(rng.random(ROWS) < 0.1, np.nan, rng.random(ROWS)), mask=mask),
            "flag": pa.array(rng.random(ROWS) < 0.5, mask=mask),
            "time": pa.array(rng.integers(0, 2**50, ROWS), pa.timestamp("us", "UTC"), mask=mask),
            "word": pa.array(words, mask=mask),
            "large": pa.array(words, mask=mask).cast(pa.large_string()),
            "coded": pa.array(words, mask=mask).dictionary_encode(),
            "bytes": pa.array([word.encode() for word in words], pa.binary(), mask=mask),
            "amount": pa.array(rng.integers(0, 10**6, ROWS), mask=mask).cast(pa.decimal128(20, 0)),
            "list": lists,
            "vector": vectors,
            "record": pa.array([{"a": int(n), "b": str(n)} if n else None for n in lengths]),
            "deep": pa.array([[[int(n)], []] for n in lengths]),
        }
    )


BY_PAGE = {"number", "small", "real", "flag", "time", "word", "large", "coded", "bytes", "amount"}
"""The columns that are read by page with and without a page index."""


def _open(rows: pa.Table, folder: Path, *, is_local: bool, **options: Any) -> ShardFile:
    table = published([rows], folder.as_uri() if is_local else f"memory://{folder.name}", folder, **options)
    return table.shards.peek(table.entry.shards.shards[0])


def _wanted(file: ShardFile, positions: np.ndarray) -> list[GroupRows]:
    groups = [(group, group.first_row + group.row_count) for group in file.row_groups()]
    found = [
        GroupRows(group.index, positions[(positions >= group.first_row) & (positions < end)] - group.first_row)
        for group, end in groups
    ]
    return [part for part in found if len(part.rows)]


@settings(max_examples=15)
@given(
    st.integers(0, 2**32),
    st.sampled_from([0.0, 0.3, 1.0]),
    st.booleans(),
    st.fixed_dictionaries(
        {
            "compression": st.sampled_from(["none", "zstd", "snappy", "gzip", "lz4"]),
            "data_page_version": st.sampled_from(["1.0", "2.0"]),
            "data_page_size": st.sampled_from([1, 500, 20_000]),
            "write_batch_size": st.sampled_from([64, 1024]),
            "dictionary_pagesize_limit": st.sampled_from([100, 5000, 2**20]),
            "row_group_size": st.sampled_from([1500, ROWS]),
            "write_page_index": st.booleans(),
            "write_page_checksum": st.booleans(),
            "store_schema": st.booleans(),
        }
    ),
)
def test_rows_by_page_equal_rows_by_row_group(
    tmp_path_factory: pytest.TempPathFactory, seed: int, null_share: float, is_local: bool, options: dict[str, Any]
) -> None:
    rows = _rows(seed, null_share)
    file = _open(rows, tmp_path_factory.mktemp("pages"), is_local=is_local, **options)
    columns = file.schema.names
    whole = pa.concat_tables([file.decode(group.index, columns) for group in file.row_groups()])
    rng = np.random.default_rng(seed)
    for count in (1, 7, 300):
        positions = np.sort(rng.choice(ROWS, count, replace=False))
        taken = file.take_rows(_wanted(file, positions), columns)
        expected = whole.take(pa.array(positions))
        assert taken.schema.equals(expected.schema)
        assert repr(taken.to_pylist()) == repr(expected.to_pylist())  # repr, because NaN differs from itself


@pytest.mark.parametrize("is_local", [True, False])
def test_few_rows_read_few_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_local: bool) -> None:
    options = {"data_page_size": 500, "write_batch_size": 64, "write_page_index": True, "use_dictionary": False}
    file = _open(_rows(1, 0.1), tmp_path, is_local=is_local, **options)
    seen: dict[str, pa.ChunkedArray] = {}
    take = page_reader.PageReader.take

    def record(*arguments: Any) -> dict[str, pa.ChunkedArray]:
        found = take(*arguments)
        seen.update(found)
        return found

    monkeypatch.setattr(page_reader.PageReader, "take", record)
    file.take_rows(_wanted(file, np.array([5, 3000])), file.schema.names)
    assert BY_PAGE | {"list", "vector"} - {"flag"} <= seen.keys() | {"flag", "coded", "small"}
    assert not {"record", "deep"} & seen.keys(), "these are decoded whole"


def test_own_files_have_small_pages(tmp_path: Path) -> None:
    rows = pa.table({"number": np.random.default_rng(1).integers(0, 2**62, 50_000)})
    (path,) = write_parquet(rows.to_batches(), rows.schema, tmp_path, "t")
    span, row_count = _chunk(path, "number")
    table = walk_pages(path.read_bytes()[span.start : span.end], span.start, row_count)
    assert table is not None
    assert len(table.offsets) > 20
    assert table.dictionary.size_bytes <= 80_000


def _chunk(path: Path, name: str) -> tuple[ByteRange, int]:
    group = pq.read_metadata(path).row_group(0)
    chunk = next(group.column(at) for at in range(group.num_columns) if group.column(at).path_in_schema == name)
    start = chunk.dictionary_page_offset if chunk.has_dictionary_page else chunk.data_page_offset
    return ByteRange(start, start + chunk.total_compressed_size), group.num_rows


def test_a_damaged_page_is_an_error(tmp_path: Path) -> None:
    options = {"data_page_size": 500, "write_batch_size": 64, "write_page_checksum": True, "use_dictionary": False}
    file = _open(_rows(3, 0.0).select(["number"]), tmp_path, is_local=True, **options)
    wanted = _wanted(file, np.array([3000]))
    expected = file.decode(0, ["number"]).take([3000])
    assert file.take_rows(wanted, ["number"]).equals(expected)
    path = file._reader.local_path(blob_key(file.shard.hash))
    assert path is not None
    data = bytearray(path.read_bytes())
    position = data.index(expected["number"][0].as_py().to_bytes(8, "little", signed=True))
    data[position] ^= 1
    path.chmod(0o644)
    path.write_bytes(data)
    MMAP_CACHE.clear()
    with pytest.raises(CorruptError):
        file.take_rows(wanted, ["number"])


@given(st.data())
def test_a_damaged_page_index_is_not_believed(data: st.DataObject) -> None:
    """Any index that is accepted fills the chunk, and its headers are compared before pages are used."""
    noise = data.draw(st.binary(max_size=60))
    found = parse_offset_index(noise, ByteRange(4, 100), 50)
    assert found is None or (int(found.offsets[-1]) == 100 and int(found.first_rows[-1]) == 50)
    assert walk_pages(noise, 4, 50) is None or noise


@given(st.integers(0, 10**6), st.integers(0, 7), st.integers(0, ROWS - 1))
@settings(max_examples=40)
def test_a_flipped_bit_of_the_page_index_changes_no_row(
    tmp_path_factory: pytest.TempPathFactory, at: int, bit: int, row: int
) -> None:
    """Remote columns trust the page index for what to fetch, and nothing else."""
    file, index = _indexed_file(tmp_path_factory)
    expected = file.decode(0, ["number"]).take([row])
    damaged = bytearray(index)
    damaged[at % len(index)] ^= 1 << bit
    chunk = file.layout.footer.chunks[0][0]
    table = parse_offset_index(bytes(damaged), chunk.span, ROWS)
    page_reader._tables.clear()
    if table is not None:
        page_reader._tables.put((file.shard.hash, 0, 0), table)
    assert file.take_rows(_wanted(file, np.array([row])), ["number"]).equals(expected)
    page_reader._tables.clear()


_files: list[tuple[ShardFile, bytes]] = []


def _indexed_file(factory: pytest.TempPathFactory) -> tuple[ShardFile, bytes]:
    if not _files:
        options = {"data_page_size": 500, "write_batch_size": 64, "write_page_index": True, "use_dictionary": False}
        file = _open(_rows(4, 0.0).select(["number"]), factory.mktemp("index"), is_local=False, **options)
        index = file.layout.footer.chunks[0][0].offset_index
        assert index is not None
        _files.append((file, bytes(file._reader.read_range(blob_key(file.shard.hash), index))))
    return _files[0]
