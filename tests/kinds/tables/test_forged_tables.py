"""If this fails, a store that is not trusted makes a reader raise untyped errors or take all memory."""

from __future__ import annotations

import io
import resource
from collections.abc import Callable
from dataclasses import replace

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xxhash

import warpdata as wd
from warpdata.datasets import Dataset
from warpdata.errors import CorruptError, ManifestCorruptedError, WarpError
from warpdata.primitives.hashing import blob_key, sha256_hex
from warpdata.repository.manifest import Footer, Page, Shard, ShardList
from warpdata.repository.manifest.pages import open_page

READS: list[Callable[[wd.Table], object]] = [
    lambda table: table.to_arrow(allow_large=True),
    lambda table: table.head(23),
    lambda table: list(table.batches(7)),
    lambda table: table.filter("n >= 0").count(),
    lambda table: table.filter("n >= 0 AND abs(n) >= 0").row_numbers(),
    lambda table: table.take([25]),
    lambda table: list(table.batches(shard=(1, 2))),
]


def forged(*files: tuple[bytes, int]) -> wd.Table:
    return forged_dataset(*files).table()


def forged_dataset(*files: tuple[bytes, int]) -> Dataset:
    """Return a dataset with a table of these files, each with the number of rows that the manifest claims."""
    wd.DatasetBuilder("a/b").add_table("main", pa.table({"n": range(20), "s": ["x"] * 20})).publish()
    dataset = wd.dataset("a/b")
    shards = list(dataset.manifest.tables["main"].shards.shards)
    for data, row_count in files:
        digest, size = sha256_hex(data), int.from_bytes(data[-8:-4], "little") + 8
        dataset.session.writer.create(blob_key(digest), data)
        shards.append(Shard(digest, len(data), row_count, Footer(size, xxhash.xxh3_64_hexdigest(data[-size:]))))
    entry = replace(dataset.manifest.tables["main"], shards=ShardList(shards=tuple(shards)))
    return Dataset(dataset.session, dataset.version_ref, replace(dataset.manifest, tables={"main": entry}))


def encoded(rows: pa.Table) -> bytes:
    sink = io.BytesIO()
    pq.write_table(rows, sink)
    return sink.getvalue()


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize(
    "rows",
    [
        pa.table({"s": ["x"] * 20}),
        pa.table({"n": ["text"] * 20, "s": ["x"] * 20}),
        pa.table({"n": [1.5] * 20, "s": ["x"] * 20}),
        pa.table({"n": pa.array([[1]] * 20), "s": ["x"] * 20}),
    ],
    ids=["missing", "text", "float", "list"],
)
def test_a_shard_of_other_columns_is_corrupt(rows: pa.Table, read: Callable[[wd.Table], object]) -> None:
    table = forged((encoded(rows), 20))
    with pytest.raises(CorruptError, match="column 'n' is"):
        read(table)
    assert table.select("s").to_arrow().num_rows == 40


@pytest.mark.parametrize("read", READS[:6])
def test_a_row_group_with_fewer_rows_than_its_footer_says_is_corrupt(read: Callable[[wd.Table], object]) -> None:
    """The numbers of rows in the footer are changed from 20 to 50, with the same size in bytes."""
    data = encoded(pa.table({"n": range(20), "s": ["x"] * 20}))
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    footer = data[start:].replace(b"\x16\x28", b"\x16\x64")  # num_rows and num_values: zigzag of 20 and 50
    assert footer != data[start:]
    with pytest.raises(WarpError):
        read(forged((data[:start] + footer, 50)))


def test_false_row_counts_size_no_array() -> None:
    data = encoded(pa.table({"n": range(20), "s": ["x"] * 20}))
    table = forged((data, 2**40))
    reads = (*READS[1:], wd.Table.row_numbers, wd.Table.check_row_counts)
    for read in reads:
        with pytest.raises(CorruptError, match="the manifest has 1099511627776"):
            read(table)


@pytest.mark.parametrize("shuffle", [False, True])
def test_a_stream_of_a_false_row_count_is_refused_before_it_takes_memory(shuffle: bool) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    dataset = forged_dataset((encoded(pa.table({"n": range(20), "s": ["x"] * 20})), 2**40))
    with pytest.raises(CorruptError, match="the manifest has 1099511627776"):
        dataset.stream(shuffle=shuffle)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < before + 512 * 1024


@pytest.mark.parametrize(
    "data",
    [
        b'{"format":1,"level":0,"entries":[{"hash":"\xff\xfe","byte_size":1}]}',
        b'{"format":1,"level":0,"entries":[{"hash":"' + b"\xc3(" * 32 + b'","byte_size":1}]}',
        b'{"format":1,"level":0,"entries":' + b"[" * 100_000,
        b'{"format":1,"level":0,"entries":[{"hash":' + b'{"a":' * 50_000,
        b"\xff",
        b"",
        b"null",
    ],
)
def test_a_page_that_is_not_valid_json_is_corrupt(data: bytes) -> None:
    page = Page(hash="a" * 64, byte_size=len(data), shard_count=1, row_count=0, data_bytes=1)
    with pytest.raises(ManifestCorruptedError):
        open_page(page, data, 0)


def test_pages_with_flipped_bits_are_corrupt_or_the_same() -> None:
    digest = sha256_hex(b"x")
    data = f'{{"entries":[{{"byte_size":7,"hash":"{digest}","row_count":3}}],"format":1,"level":0}}'.encode()
    page = Page(hash="a" * 64, byte_size=len(data), shard_count=1, row_count=3, data_bytes=7)
    assert open_page(page, data, 0) == [Shard(digest, 7, 3)]
    for position in range(len(data)):
        for bit in range(8):
            changed = bytearray(data)
            changed[position] ^= 1 << bit
            try:
                open_page(page, bytes(changed), 0)
            except ManifestCorruptedError:
                continue
    assert msgspec.json.decode(data)["level"] == 0
