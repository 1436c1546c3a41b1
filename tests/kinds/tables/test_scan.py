"""If this fails, reading a table loses, repeats, reorders or invents rows, or believes damaged bytes."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import warpdata as wd
from warpdata.datasets import open_dataset
from warpdata.errors import BadInputError, BlobCorruptedError, ColumnNotFoundError, LargeExportError
from warpdata.formats.parquet.mmap_cache import MAPPED
from warpdata.primitives.hashing import blob_key
from warpdata.repository.catalog import parse_address
from warpdata.repository.manifest import iter_shards
from warpdata.session import Session, connect
from warpdata.storage import ByteRange, Writer
from warpdata.testing import FaultyStore


def published(parts: list[pa.Table], store: str, folder: Path, **options: Any) -> wd.Table:
    paths = []
    for number, part in enumerate(parts):
        path = folder / f"part-{number:04d}.parquet"
        pq.write_table(part, path, **options)
        paths.append(path)
    wd.DatasetBuilder("a/b", store).add_table("main", paths).publish()
    return wd.dataset("a/b", store=store).table("main")


def counted(start: int, count: int) -> pa.Table:
    numbers = np.arange(start, start + count)
    words = pa.array([f"w{n}" for n in numbers], pa.string())
    return pa.table({"n": numbers, "word": words, "x": numbers / 3})


shapes = st.lists(st.integers(0, 70), min_size=1, max_size=6).filter(lambda sizes: sum(sizes) > 0)


@given(shapes, st.integers(1, 40), st.integers(1, 50), st.integers(1, 12), st.data())
def test_any_world_reads_every_row_once_in_order(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], group: int, batch: int, world: int, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("scan")
    starts = [sum(sizes[:n]) for n in range(len(sizes))]
    parts = [counted(start, size) for start, size in zip(starts, sizes, strict=True)]
    table = published(parts, f"memory://{folder.name}", folder, row_group_size=group)
    seen: list[int] = []
    for rank in range(world):
        lengths = []
        for each in table.batches(batch, columns=["n"], shard=(rank, world)):
            lengths.append(each.num_rows)
            seen += each["n"].to_pylist()
        assert all(length == batch for length in lengths[:-1])
        assert all(0 < length <= batch for length in lengths)
    assert seen == list(range(sum(sizes)))
    limit = data.draw(st.integers(0, sum(sizes) + 5))
    assert table.to_arrow(limit=limit)["n"].to_pylist() == seen[:limit]
    assert table.filter(f"n >= {limit}").to_arrow(limit=7)["n"].to_pylist() == seen[limit : limit + 7]


@pytest.mark.parametrize("scheme", ["memory", "file"])
@pytest.mark.parametrize(
    ("expression", "first", "last"),
    [("n >= 0", 0, 500), ("n < 3", 0, 3), ("n >= 275 AND n < 277", 275, 277), ("n % 500 >= 95", 95, 500)],
)
def test_several_shards_are_read_as_one_table(
    tmp_path: Path, scheme: str, expression: str, first: int, last: int
) -> None:
    """Whole rows, so that the columns a filter does not need must match those it does."""
    url = f"memory://{tmp_path.name}" if scheme == "memory" else (tmp_path / "store").as_uri()
    table = published([counted(n * 100, 100) for n in range(5)], url, tmp_path, row_group_size=50)
    assert table.to_arrow().equals(counted(0, 500))
    assert table.filter(expression).to_arrow().equals(counted(first, last - first))
    for world in (1, 3, 20):
        parts = [
            pa.Table.from_batches([batch])
            for rank in range(world)
            for batch in table.filter(expression).batches(7, columns=["x", "n"], shard=(rank, world))
        ]
        assert pa.concat_tables(parts).equals(counted(first, last - first).select(["x", "n"]))


def test_auto_reads_the_launchers_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = published([counted(0, 100)], (tmp_path / "s").as_uri(), tmp_path, row_group_size=10)
    whole = [n for batch in table.batches(7) for n in batch["n"].to_pylist()]
    seen = []
    for rank in range(3):
        monkeypatch.setenv("SLURM_PROCID", str(rank))
        monkeypatch.setenv("SLURM_NTASKS", "3")
        seen += [n for batch in table.batches(7, shard="auto") for n in batch["n"].to_pylist()]
    assert seen == whole == list(range(100))


@pytest.mark.parametrize(
    "options", [{}, {"compression": "zstd"}, {"use_dictionary": False}, {"data_page_version": "2.0"}]
)
def test_every_arrow_type_survives(tmp_path: Path, options: dict[str, Any]) -> None:
    table = pa.table(
        {
            "list": pa.array([[1, 2], None, []], pa.list_(pa.int32())),
            "struct": pa.array([{"a": 1, "b": "x"}, None, {"a": None, "b": "y"}]),
            "a.b": pa.array([1, 2, 3]),
            "a": pa.array(["p", "q", None]),
            "struct.a": pa.array([[("k", {"x": 1})], [], None], pa.map_(pa.string(), pa.struct({"x": pa.int8()}))),
            "dict": pa.array(["u", "v", "u"]).dictionary_encode(),
            "when": pa.array([0, 1, None], pa.timestamp("us", tz="UTC")),
            "decimal": pa.array([1, 2, None], pa.decimal128(12, 3)),
            "fixed": pa.array([[1, 2], [3, 4], None], pa.list_(pa.uint8(), 2)),
            "binary": pa.array([b"\0", b"", None]),
            "view": pa.array(["long enough to lie elsewhere", None, "short"], pa.string_view()),
            "bytes view": pa.array([None, b"\0" * 20, b""], pa.binary_view()),
            "половина ½": pa.array([0.5, None, float("nan")]),
        }
    )
    for store in ((tmp_path / "local").as_uri(), f"memory://{tmp_path.name}"):
        read = published([table, table], store, tmp_path, **options)
        once = pq.read_table(tmp_path / "part-0000.parquet")
        expected = pa.concat_tables([once, once])
        assert read.schema().equals(expected.schema)
        file = read.shards.open(next(iter_shards(read.entry.shards, read.load_page)))
        for name in expected.column_names:
            assert file.decode(0, [name], file.fetch(0, [name])).column_names == [name]
        assert repr(read.to_arrow().to_pylist()) == repr(expected.to_pylist())
        assert read.select(["a"]).to_arrow()["a"].to_pylist() == ["p", "q", None] * 2
        assert read.select(["a.b", "list"]).schema().names == ["a.b", "list"]
        assert read.filter('"a.b" = 2 AND struct.a IS NULL').to_arrow()["a"].to_pylist() == ["q", "q"]
        some = [n for n in range(6) if n % 3 != 0]
        kept, taken = read.filter('"a.b" > 1').to_arrow(), read.taker()(np.array(some))
        assert kept.schema.equals(expected.schema)
        assert repr(kept.to_pylist()) == repr(taken.to_pylist()) == repr([expected.to_pylist()[n] for n in some])
        assert read.filter("view = 'short'").select(["a.b"]).to_arrow()["a.b"].to_pylist() == [3, 3]


@given(
    st.lists(st.none() | st.sampled_from(["", "x", "y" * 9, "\u00e9"]), min_size=1, max_size=60),
    st.integers(10, 40),
    st.sampled_from([pa.string(), pa.large_string(), pa.binary()]),
)
def test_texts_read_as_dictionaries_come_back_as_texts(
    tmp_path_factory: pytest.TempPathFactory, words: list[str | None], chunk_bytes: int, kind: pa.DataType
) -> None:
    """Whatever the size of a chunk that offsets can address; here it is tiny."""
    folder = tmp_path_factory.mktemp("texts")
    table = pa.table({"word": pa.array(words).cast(kind), "n": pa.array(range(len(words)), pa.int64())})
    read = published([table], f"memory://{folder.name}", folder, row_group_size=25)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("warpdata.kinds.tables.row_group_scan._MAX_CHUNK_BYTES", chunk_bytes)
        found = read.to_arrow()
        assert found.equals(table)
        for chunk in found["word"].chunks:
            assert sum(len(word or "") for word in chunk.to_pylist()) <= chunk_bytes
        even = pa.array([n % 2 == 0 for n in range(len(words))], pa.bool_())
        assert read.filter("n % 2 = 0").to_arrow().equals(table.filter(even))


@given(st.lists(st.sampled_from(["n", "word", "x"]), unique=True), st.integers(1, 3000))
def test_columns_in_runs_are_all_the_columns(
    tmp_path_factory: pytest.TempPathFactory, columns: list[str], run_bytes: int
) -> None:
    folder = tmp_path_factory.mktemp("runs")
    read = published([counted(0, 100)], f"memory://{folder.name}", folder, compression="none", use_dictionary=False)
    file = read.shards.open(read.entry.shards.shards[0])
    runs = list(file.runs(0, columns, run_bytes))
    assert [name for run in runs for name in run] == columns
    for run in runs:
        assert len(run) == 1 or sum(span.size_bytes for span in file.spans(0, run)) <= run_bytes


def test_a_dictionary_that_was_given_up_is_not_made_again(tmp_path: Path) -> None:
    words = pa.table({"word": [f"{n:09d}" for n in range(200_000)]})
    few = pa.table({"word": [f"{n % 9:09d}" for n in range(200_000)]})
    for number, (rows, expected) in enumerate([(words, []), (few, ["word"])]):
        folder = tmp_path / str(number)
        folder.mkdir()
        read = published([rows], folder.as_uri(), folder, dictionary_pagesize_limit=1024)
        (shard,) = read.entry.shards.shards
        assert read.shards.open(shard).small_dictionaries(0, ["word"]) == expected
        assert read.to_arrow().equals(rows)


def test_ten_thousand_columns(tmp_path: Path) -> None:
    wide = pa.table({f"c{n}": [n, n + 1] for n in range(10_000)})
    wd.DatasetBuilder("a/b").add_table("main", wide).publish()
    table = wd.dataset("a/b").table()
    assert len(table.schema()) == 10_000
    assert table.select(["c9999", "c0"]).head(1).to_pylist() == [{"c9999": 9999, "c0": 0}]
    assert table.filter("c5000 = 5001").count() == 1


def test_dict_batches_and_frames(tmp_path: Path) -> None:
    table = published([counted(0, 10)], (tmp_path / "s").as_uri(), tmp_path)
    assert [len(batch["n"]) for batch in table.batch_dicts(4)] == [4, 4, 2]
    assert list(table.pandas(limit=3)["n"]) == [0, 1, 2]
    assert table.polars(limit=3)["n"].to_list() == [0, 1, 2]
    relation = table.filter("n > 6").select(["n"]).duckdb()
    assert relation.fetchall() == [(7,), (8,), (9,)]


def test_a_large_export_needs_consent(tmp_path: Path) -> None:
    big = pa.table({"n": np.arange(1_000_001)})
    table = published([big], (tmp_path / "s").as_uri(), tmp_path)
    for export in (table.to_arrow, table.pandas, table.polars):
        with pytest.raises(LargeExportError, match="1,000,001 rows"):
            export()
    assert table.to_arrow(allow_large=True).num_rows == 1_000_001


def test_wrong_questions_get_clear_answers(tmp_path: Path) -> None:
    table = published([counted(0, 3)], (tmp_path / "s").as_uri(), tmp_path)
    with pytest.raises(ColumnNotFoundError, match="wrod") as raised:
        table.select(["wrod"])
    assert raised.value.hint == "Did you mean word?"
    for bad in (0, -1, True, 1.5):
        with pytest.raises(BadInputError, match="batch_size"):
            table.batches(bad)  # type: ignore[arg-type]
    with pytest.raises(BadInputError, match="limit"):
        table.to_arrow(limit=-1)
    with pytest.raises(BadInputError, match="auto"):
        list(table.batches(1, shard="all"))


def test_batches_cross_process_borders_by_ipc(tmp_path: Path) -> None:
    table = published([counted(0, 9)], (tmp_path / "s").as_uri(), tmp_path)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema()) as stream:
        for batch in table.batches(4):
            stream.write_batch(batch)
    assert pa.ipc.open_stream(sink.getvalue()).read_all().num_rows == 9


def test_no_thread_outlives_the_iteration(tmp_path: Path) -> None:
    table = published(
        [counted(n * 100, 100) for n in range(5)], f"memory://{tmp_path.name}", tmp_path, row_group_size=10
    )
    for stop_early in (True, False):
        batches = table.batches(7)
        for _ in batches:
            if stop_early:
                break
        batches.close()  # type: ignore[attr-defined]
        assert not [thread for thread in threading.enumerate() if thread.name.startswith("warp-")]


def test_a_local_file_is_mapped_once_for_all_threads_and_scans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = published([counted(0, 1000)], (tmp_path / "s").as_uri(), tmp_path, row_group_size=10)
    opened: list[str] = []
    memory_map = pa.memory_map

    def watched(path: str) -> Any:
        opened.append(path)
        return memory_map(path)

    monkeypatch.setattr(pa, "memory_map", watched)
    for _ in range(3):
        anew = wd.dataset("a/b", store=(tmp_path / "s").as_uri()).table("main")
        assert sum(batch.num_rows for batch in anew.filter("n > 5 AND word != 'w7'").batches(7)) == 993
    assert 1 <= len(opened) <= 2, "threads may meet on the first scan"
    assert table.count() == 1000


def test_damage_done_to_a_local_file_after_it_was_read_is_noticed(tmp_path: Path) -> None:
    """In place, to the same size and with the old time of change, as a repair tool might do it."""
    rows = pa.table({"n": np.arange(5000), "word": [f"w{n % 17}" for n in range(5000)]})
    url = (tmp_path / "store").as_uri()
    wd.DatasetBuilder("a/b", url).add_table("main", rows).publish()
    dataset = wd.dataset("a/b", store=url)
    (shard,) = dataset.manifest.tables["main"].shards.shards
    path = connect(url).reader.local_path(blob_key(shard.hash))
    assert path is not None
    for _ in range(2):
        assert dataset.table().to_arrow().equals(rows)
    before = path.stat()
    path.chmod(0o644)
    with path.open("r+b") as file:
        file.seek(shard.byte_size // 3)
        byte = file.read(1)[0]
        file.seek(-1, 1)
        file.write(bytes([byte ^ 0x10]))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    for _ in range(2):
        with pytest.raises(BlobCorruptedError):
            dataset.table().to_arrow()
        with pytest.raises(BlobCorruptedError):
            wd.dataset("a/b", store=url).table().to_arrow()


def test_only_what_was_compared_is_trusted(tmp_path: Path) -> None:
    """Reading one column says nothing about another, nor about the next row group."""
    rows = pa.table({"n": np.arange(5000), "m": np.arange(5000) ** 2})
    url = (tmp_path / "store").as_uri()
    published([rows], url, tmp_path, row_group_size=2500, write_page_checksum=True)
    dataset = wd.dataset("a/b", store=url)
    (shard,) = dataset.manifest.tables["main"].shards.shards
    file = dataset.table().shards.open(shard)
    _flip(connect(url).writer, blob_key(shard.hash), file.spans(1, ["m"])[0].end - 5)
    table = dataset.table()
    assert table.select(["n"]).to_arrow() == rows.select(["n"])
    assert table.head(2500) == rows.slice(0, 2500)
    for columns in (["m"], ["n", "m"], ["n", "m"]):
        with pytest.raises(BlobCorruptedError):
            table.select(columns).to_arrow()
    assert table.select(["n"]).to_arrow() == rows.select(["n"])


def test_a_local_file_that_goes_away_is_read_through_the_store(tmp_path: Path) -> None:
    """As a cached copy may, between opening a shard and reading it."""
    table = published([counted(0, 100)], (tmp_path / "s").as_uri(), tmp_path, row_group_size=10)
    file = table.shards.open(table.entry.shards.shards[0])
    assert file.is_local
    file._reader = _Elsewhere(connect((tmp_path / "s").as_uri()).writer)
    assert file.decode(3, ["n"], [])["n"].to_pylist() == list(range(30, 40))


def test_a_damaged_copy_is_not_trusted_because_another_was_sound(tmp_path: Path) -> None:
    """A thread that still has the damaged one would otherwise not compare it."""
    store = (tmp_path / "s").as_uri()
    table = published([counted(0, 100)], store, tmp_path, row_group_size=10, write_page_checksum=True)
    file = table.shards.open(table.entry.shards.shards[0])
    path = connect(store).reader.local_path(blob_key(file.shard.hash))
    assert path is not None
    sound = path.read_bytes()
    position = file.spans(3, ["n"])[0].end - 5
    copy = tmp_path / "copy"
    copy.write_bytes(sound[:position] + bytes([sound[position] ^ 1]) + sound[position + 1 :])
    damaged = MAPPED.open(copy)
    file._reader = _Healing(connect(store).writer, copy, sound)
    for _ in range(3):
        assert file.decode(3, ["n"], [])["n"].to_pylist() == list(range(30, 40))
    assert damaged.sound == set()
    assert MAPPED.open(copy).sound == {(3, 0)}


class _Healing(FaultyStore):
    def __init__(self, inner: Writer, copy: Path, sound: bytes) -> None:
        super().__init__(inner)
        self._copy, self._sound = copy, sound

    def local_path(self, key: str) -> Path | None:
        return self._copy

    def invalidate(self, key: str) -> bool:
        self._copy.unlink()
        self._copy.write_bytes(self._sound)
        return True


class _Elsewhere(FaultyStore):
    def local_path(self, key: str) -> Path | None:
        return Path("/nowhere") / key


def _flip(store: Writer, key: str, position: int) -> None:
    data = bytearray(b"".join(bytes(chunk) for chunk in store.stream(key)))
    data[position] ^= 0x10
    store.delete(key)
    assert store.create(key, bytes(data))


@pytest.mark.parametrize("scheme", ["memory", "file"])
def test_no_flipped_bit_in_our_own_files_is_ever_served(tmp_path: Path, scheme: str) -> None:
    """Every byte of a file written here is covered: pages by their checksum, the footer by the manifest's."""
    url = f"memory://{tmp_path.name}" if scheme == "memory" else (tmp_path / "store").as_uri()
    rows = pa.table({"n": np.arange(5000), "word": [f"w{n % 17}" for n in range(5000)]})
    wd.DatasetBuilder("a/b", url).add_table("main", rows).publish()
    session = connect(url)
    dataset = wd.dataset("a/b", store=url)
    (shard,) = iter_shards(dataset.manifest.tables["main"].shards, session.catalog.load_page)
    key = blob_key(shard.hash)
    served, caught = 0, 0
    for position in range(0, shard.byte_size, max(1, shard.byte_size // 150)):
        _flip(session.writer, key, position)
        try:
            seen = dataset.table().to_arrow()
        except BlobCorruptedError:
            caught += 1
        else:
            served += 1
            assert seen.equals(rows), f"byte {position} of {shard.byte_size}"
        _flip(session.writer, key, position)
    assert caught > served


def test_every_byte_of_a_footer_is_covered(tmp_path: Path) -> None:
    """A flipped statistic would prune the wrong rows and nobody would notice."""
    url = f"memory://{tmp_path.name}"
    wd.DatasetBuilder("a/b", url).add_table("main", counted(0, 50)).publish()
    session = connect(url)
    dataset = wd.dataset("a/b", store=url)
    (shard,) = dataset.manifest.tables["main"].shards.shards
    assert shard.footer is not None
    for position in range(shard.byte_size - shard.footer.byte_size, shard.byte_size):
        _flip(session.writer, blob_key(shard.hash), position)
        with pytest.raises(BlobCorruptedError):
            wd.dataset("a/b", store=url).table().schema()
        _flip(session.writer, blob_key(shard.hash), position)
    assert wd.dataset("a/b", store=url).table().count() == 50


def test_open_schema_and_head_take_six_requests_at_most(tmp_path: Path) -> None:
    store = f"memory://{tmp_path.name}"
    parts = [counted(n * 50, 50) for n in range(200)]
    published(parts, store, tmp_path, row_group_size=10)
    session = connect(store)
    counting = FaultyStore(session.writer)
    watched = Session(counting, counting, session.settings)
    table = open_dataset(watched, parse_address("a/b")).table()
    assert len(table.schema()) == 3
    assert table.head(5)["n"].to_pylist() == [0, 1, 2, 3, 4]
    assert len(counting.log) <= 6, counting.log


def test_a_small_shard_comes_whole_only_for_who_wants_most_of_it(tmp_path: Path) -> None:
    """One request instead of two for a scan, but never a whole shard for a schema or a few rows."""
    store = f"memory://{tmp_path.name}"
    published([counted(n * 1000, 1000) for n in range(4)], store, tmp_path, row_group_size=100)

    class Far(FaultyStore):
        def __init__(self, inner: Writer) -> None:
            super().__init__(inner)
            self.spans: list[tuple[str, int]] = []

        def is_local(self, key: str) -> bool:
            return False

        def read_range(self, key: str, span: ByteRange) -> memoryview:
            self.spans.append((key, span.size_bytes))
            return super().read_range(key, span)

        def read_ranges(self, key: str, spans: Sequence[ByteRange], **options: Any) -> list[memoryview]:
            self.spans.append((key, sum(span.size_bytes for span in spans)))
            return super().read_ranges(key, spans, **options)

    session = connect(store)
    sizes = [shard.byte_size for shard in wd.dataset("a/b", store=store).manifest.tables["main"].shards.shards]

    def reads(use: Callable[[wd.Table], object]) -> list[int]:
        far = Far(session.writer)
        use(open_dataset(Session(far, far, session.settings), parse_address("a/b")).table())
        return [size for key, size in far.spans if key.startswith("blobs/")]

    few: list[Callable[[wd.Table], object]] = [
        lambda table: table.schema(),
        lambda table: table.head(5),
        lambda table: table.select(["n"]).to_arrow(limit=250),
        lambda table: list(table.batches(100, shard=(1, 20))),
    ]
    for use in few:
        assert max(reads(use)) < min(sizes) / 2
    assert sorted(reads(lambda table: list(table.batches(100))))[-4:] == sorted(sizes)
    assert len(reads(lambda table: list(table.batches(100)))) == 4 + 1, "the schema is asked for first"
    assert reads(lambda table: table.to_arrow(limit=1500)).count(sizes[0]) == 1


def test_head_of_a_large_row_group_reads_a_part_of_it(tmp_path: Path) -> None:
    rng = np.random.default_rng(7)
    big = pa.table({"n": np.arange(400_000), "noise": rng.random(400_000), "more": rng.random(400_000)})
    store = f"memory://{tmp_path.name}"
    published([big], store, tmp_path, row_group_size=400_000, use_dictionary=False)

    class Weighing(FaultyStore):
        fetched = 0

        def read_ranges(self, key: str, spans: Any, **options: Any) -> list[memoryview]:
            replies = super().read_ranges(key, spans, **options)
            self.fetched += sum(len(reply) for reply in replies)
            return replies

    session = connect(store)
    weighing = Weighing(session.writer)
    dataset = open_dataset(Session(weighing, weighing, session.settings), parse_address("a/b"))
    assert dataset.table().head(5)["n"].to_pylist() == [0, 1, 2, 3, 4]
    assert 0 < weighing.fetched < dataset.manifest.data_bytes / 4
