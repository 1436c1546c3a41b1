"""If this fails, a common form of table input is refused, changed, or published differently each time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import warpdata as wd
from warpdata.errors import InvalidSourceError
from warpdata.formats.parquet import WriteOptions, describe_parquet, write_parquet
from warpdata.primitives.hashing import blob_key
from warpdata.primitives.progress import ProgressEvent
from warpdata.repository.manifest import iter_shards

TABLE = pa.table({"n": pa.array([1, 2, 3], pa.int64()), "s": ["a", None, "c"]})


def through(source: Any, **options: Any) -> pa.Table:
    wd.DatasetBuilder("a/b").add_table("main", source, **options).publish()
    return wd.dataset("a/b").table().to_arrow()


@pytest.mark.parametrize(
    "column",
    [
        pa.array([None], pa.month_day_nano_interval()),
        pa.RunEndEncodedArray.from_arrays([1], ["a"]),
        pa.UnionArray.from_dense(pa.array([0], pa.int8()), pa.array([0], pa.int32()), [pa.array([1])]),
    ],
    ids=["interval", "runs", "union"],
)
def test_a_type_that_parquet_lacks_is_refused_with_its_column(column: pa.Array) -> None:
    with pytest.raises(InvalidSourceError, match=r"column 'odd' of main.* cannot be written") as caught:
        through(pa.table({"n": [1], "odd": column}))
    assert "Cast" in str(caught.value.hint)
    assert wd.list_datasets() == []


@pytest.mark.parametrize(
    "source",
    [
        TABLE,
        TABLE.to_batches()[0],
        TABLE.to_reader(),
        iter(TABLE.to_batches()),
        (batch for batch in TABLE.to_batches(max_chunksize=1)),
        [TABLE.slice(0, 1), TABLE.slice(1)],
        TABLE.to_pandas(),
        pl.from_arrow(TABLE),
        TABLE.to_pydict(),
        TABLE.to_pylist(),
        [TABLE.slice(0, 2), TABLE.slice(2).to_pandas()],
    ],
    ids=lambda source: type(source).__name__,
)
def test_every_kind_of_source_gives_the_same_rows(source: Any) -> None:
    assert through(source).to_pylist() == TABLE.to_pylist()


def test_files_are_kept_byte_for_byte(tmp_path: Path) -> None:
    paths = [tmp_path / f"{n}.parquet" for n in range(3)]
    for number, path in enumerate(paths):
        pq.write_table(pa.table({"n": [number]}), path, compression="snappy", version="1.0")
    for source in (paths, str(tmp_path / "*.parquet"), tmp_path, [str(paths[0]), tmp_path / "[12].parquet"]):
        published = wd.DatasetBuilder("a/b").add_table("main", source).publish()
        dataset = wd.dataset("a/b")
        assert dataset.version == published.version
        session = wd.connect()
        shards = list(iter_shards(dataset.manifest.tables["main"].shards, session.catalog.load_page))
        stored = [session.reader.read(blob_key(shard.hash)).data for shard in shards]
        assert stored == [path.read_bytes() for path in paths]
    assert len(wd.dataset("a/b").history()) == 1


def test_files_and_frames_mix_in_order(tmp_path: Path) -> None:
    pq.write_table(TABLE, tmp_path / "x.parquet")
    mixed = [TABLE.slice(0, 1), tmp_path / "x.parquet", TABLE.slice(2)]
    assert through(mixed)["n"].to_pylist() == [1, 1, 2, 3, 3]


def test_the_same_content_is_the_same_version_anywhere() -> None:
    first = wd.DatasetBuilder("a/b", "memory://one").add_table("main", TABLE).publish("first")
    again = wd.DatasetBuilder("a/b", "memory://one").add_table("main", TABLE).publish("again")
    other = (
        wd.DatasetBuilder("a/b", "memory://two").add_table("main", iter(TABLE.to_batches(max_chunksize=2))).publish()
    )
    assert first.version == again.version == other.version
    assert (first.changed, again.changed, other.changed) == (True, False, True)
    assert again.uploaded_files == 0


@given(st.integers(0, 400), st.lists(st.integers(1, 60), min_size=1, max_size=20))
def test_how_rows_are_batched_does_not_change_the_bytes(
    tmp_path_factory: pytest.TempPathFactory, count: int, cuts: list[int]
) -> None:
    folder = tmp_path_factory.mktemp("write")
    table = pa.table({"n": np.arange(count), "s": [None if n % 3 == 0 else f"w{n % 5}" for n in range(count)]})
    table = table.cast(pa.schema([("n", pa.int64()), ("s", pa.string())]))
    options = WriteOptions(row_group_bytes=512, file_bytes=2048)
    pieces: list[pa.RecordBatch] = []
    start = 0
    while start < count:
        size = cuts[len(pieces) % len(cuts)]
        pieces += table.slice(start, size).to_batches()
        start += size
    whole = [path.read_bytes() for path in write_parquet(table.to_batches(), table.schema, folder, "whole", options)]
    cut = [path.read_bytes() for path in write_parquet(pieces, table.schema, folder, "cut", options)]
    assert whole == cut
    assert pa.concat_tables([pq.read_table(pa.BufferReader(data)) for data in whole]).equals(table)


def test_written_files_have_what_partial_reads_need(tmp_path: Path) -> None:
    words = [f"a text of several words, number {number}" for number in range(300_000)]
    table = pa.table({"x": np.random.default_rng(0).random(300_000), "n": np.arange(300_000), "t": words})
    (path,) = write_parquet(table.to_batches(), table.schema, tmp_path, "t", WriteOptions(row_group_bytes=1 << 20))
    metadata = pq.read_metadata(path)
    assert metadata.num_row_groups > 2
    chunk = metadata.row_group(0).column(0)
    assert chunk.statistics.has_min_max
    assert chunk.has_offset_index
    assert chunk.compression == "UNCOMPRESSED", "random numbers"
    assert "DELTA_BINARY_PACKED" in metadata.row_group(0).column(1).encodings
    assert metadata.row_group(0).column(2).compression == "ZSTD"
    assert describe_parquet(path).row_count == 300_000
    data = bytearray(path.read_bytes())
    data[chunk.data_page_offset + 500] ^= 1
    with pytest.raises(OSError, match="CRC"):
        pq.ParquetFile(pa.BufferReader(bytes(data)), page_checksum_verification=True).read()


def test_pandas_keeps_its_index_and_types(tmp_path: Path) -> None:
    frame = pd.DataFrame({"x": [1.5, 2.5]}, index=pd.Index(["p", "q"], name="key"))
    wd.DatasetBuilder("a/b").add_table("main", frame).publish()
    assert wd.dataset("a/b").table().pandas().equals(frame)


def test_an_empty_table_is_a_table() -> None:
    empty = TABLE.slice(0, 0)
    assert through(empty).schema.equals(TABLE.schema, check_metadata=False)
    table = wd.dataset("a/b").table()
    assert table.count() == 0
    assert table.head().num_rows == 0
    assert list(table.batches(10, shard=(1, 3))) == []
    assert table.filter("n > 1").count() == 0


def test_plan_says_what_publish_will_do_and_writes_nothing(tmp_path: Path) -> None:
    store = f"memory://{tmp_path.name}"
    builder = wd.DatasetBuilder("a/b", store).add_table("main", TABLE)
    plan = builder.plan()
    assert list(wd.connect(store).reader.list_objects("")) == []
    assert (plan.upload_files, plan.tables) == (1, {"main": 3})
    published = builder.publish()
    assert published.version == plan.version
    assert (published.uploaded_files, published.uploaded_bytes) == (1, plan.upload_bytes)
    assert builder.plan().upload_files == 0


def test_progress_reaches_its_total(tmp_path: Path) -> None:
    events: list[ProgressEvent] = []
    paths = []
    for number in range(5):
        paths.append(tmp_path / f"{number}.parquet")
        pq.write_table(pa.table({"n": [number]}), paths[-1])
    wd.DatasetBuilder("a/b").add_table("main", paths).publish(progress=events.append)
    last = {event.stage: event for event in events}
    for stage in ("hash", "upload"):
        assert last[stage].done_bytes == last[stage].total_bytes > 0
        assert last[stage].done_files == last[stage].total_files == 5


def test_nothing_is_left_in_the_staging_folder() -> None:
    import gc

    builder = wd.DatasetBuilder("a/b").add_table("main", TABLE)
    builder.publish()
    cache = wd.load_settings().cache_dir
    del builder
    gc.collect()
    assert not list(cache.glob("staging-*"))
