"""If this fails, a scan loses, repeats, reorders or invents rows, or fetches more than it needs."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq
import pytest
import torch.utils.data as torch_data
from hypothesis import given
from hypothesis import strategies as st

import warpdata as wd
from tests.kinds.tables.scenes import counted, published
from warpdata.datasets import open_dataset
from warpdata.kinds.tables import scan
from warpdata.kinds.tables.assignment import RowRange
from warpdata.primitives.parallel import CPU_POOL, IO_POOL
from warpdata.query import Evaluator, evaluator
from warpdata.repository.catalog import parse_address
from warpdata.repository.manifest import iter_shards
from warpdata.session import Session, connect
from warpdata.storage import ByteRange, Writer
from warpdata.testing import FaultyStore

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


@pytest.mark.parametrize(("cores", "max_run"), [(1, 1), (2, 1), (8, 2), (32, 2)])
def test_any_number_of_cores_reads_every_row_in_order(tmp_path: Path, cores: int, max_run: int) -> None:
    """On many cores a thread decodes several row groups of a local file in a row."""
    sizes = [400, 3, 1000, 0, 650]
    starts = [sum(sizes[:number]) for number in range(len(sizes))]
    parts = [counted(start, size) for start, size in zip(starts, sizes, strict=True)]
    table = published(parts, (tmp_path / "store").as_uri(), tmp_path, row_group_size=10)
    CPU_POOL.resize(cores)
    try:
        runs = [len(run.tasks) for run in _planned_runs(table, cores)]
        assert sum(runs) == sum(-(-size // 10) for size in sizes)
        assert runs[0] == runs[-1] == 1, "the first rows come early, and no thread finishes late"
        assert max(runs) == max_run
        assert table.to_arrow()["n"].to_pylist() == list(range(sum(sizes)))
        wanted = [n for n in range(sum(sizes)) if n % 7 == 3]
        assert table.filter("n % 7 = 3").to_arrow()["n"].to_pylist() == wanted
        assert table.filter("n % 7 = 3").row_numbers().tolist() == wanted
    finally:
        CPU_POOL.resize(None)


def test_small_shards_of_a_local_store_are_filtered_by_few_queries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Edits leave small shards. A query for each would cost more than all their rows."""
    table = published([counted(n * 10, 10) for n in range(40)], (tmp_path / "store").as_uri(), tmp_path)
    wanted = [n for n in range(400) if n % 7 == 3]
    assert table.filter("n % 7 = 3").row_numbers().tolist() == wanted
    queries: list[int] = []
    evaluate = Evaluator._query

    def query(self: Evaluator, rows: pa.Table) -> Any:
        queries.append(rows.num_rows)
        return evaluate(self, rows)

    monkeypatch.setattr(Evaluator, "_query", query)
    assert table.filter("n % 7 = 3 AND x >= 0").to_arrow()["n"].to_pylist() == wanted
    assert sum(queries) <= 400
    assert len(queries) <= 2


def test_a_large_row_group_is_filtered_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluator, "_MIN_PARALLEL_ROWS", 100)
    table = published([counted(0, 1003)], (tmp_path / "store").as_uri(), tmp_path)
    CPU_POOL.resize(4)
    try:
        assert table.filter("n % 7 = 3").row_numbers().tolist() == [n for n in range(1003) if n % 7 == 3]
    finally:
        CPU_POOL.resize(None)


def _planned_runs(table: wd.Table, cores: int) -> list[scan._Run]:
    rows = RowRange(0, table.count())
    request = scan.Scan(table.entry.shards, table.schema(), ("n",), rows)
    tasks = scan._plan_tasks(request, table.opener, table.load_page, IO_POOL.executor(2))
    return list(scan._runs(request, tasks, cores))


@pytest.mark.parametrize("scheme", ["memory", "file"])
@pytest.mark.parametrize(
    ("expression", "first", "last"),
    [("n >= 0", 0, 500), ("n < 3", 0, 3), ("n >= 275 AND n < 277", 275, 277), ("n % 500 >= 95", 95, 500)],
)
def test_several_shards_are_read_as_one_table(
    tmp_path: Path, scheme: str, expression: str, first: int, last: int
) -> None:
    """Rows are compared whole: columns outside the filter must match those of the filter."""
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
            "view": pa.array(["too long to be stored inline", None, "short"], pa.string_view()),
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
def test_dictionary_columns_are_yielded_as_texts(
    tmp_path_factory: pytest.TempPathFactory, words: list[str | None], chunk_bytes: int, kind: pa.DataType
) -> None:
    """The largest chunk that offsets can address is tiny here."""
    folder = tmp_path_factory.mktemp("texts")
    table = pa.table({"word": pa.array(words).cast(kind), "n": pa.array(range(len(words)), pa.int64())})
    read = published([table], f"memory://{folder.name}", folder, row_group_size=25)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("warpdata.kinds.tables.columns._MAX_CHUNK_BYTES", chunk_bytes)
        found = read.to_arrow()
        assert found.equals(table)
        for chunk in found["word"].chunks:
            assert sum(len(word or "") for word in chunk.to_pylist()) <= chunk_bytes
        even = pa.array([n % 2 == 0 for n in range(len(words))], pa.bool_())
        assert read.filter("n % 2 = 0").to_arrow().equals(table.filter(even))


def test_no_task_outlives_the_iteration(tmp_path: Path) -> None:
    store = f"memory://{tmp_path.name}"
    published([counted(n * 100, 100) for n in range(5)], store, tmp_path, row_group_size=10)

    class SlowStore(FaultyStore):
        running = 0

        def read_ranges(self, key: str, spans: Sequence[ByteRange], **options: Any) -> list[memoryview]:
            self.running += 1
            time.sleep(0.01)
            replies = super().read_ranges(key, spans, **options)
            self.running -= 1
            return replies

        def is_local(self, key: str) -> bool:
            return True  # so that no shard is fetched whole

    session = connect(store)
    slow = SlowStore(session.writer)
    table = open_dataset(Session(slow, slow, session.settings), parse_address("a/b")).table()
    for stop_early in (True, False):
        batches = table.batches(7)
        for _ in batches:
            if stop_early:
                break
        batches.close()  # type: ignore[attr-defined]
        read_count = len(slow.log)
        assert slow.running == 0
        time.sleep(0.03)
        assert len(slow.log) == read_count


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


def test_a_small_shard_is_fetched_whole_only_for_most_of_its_rows(tmp_path: Path) -> None:
    """A scan needs one request instead of two; a schema or a few rows need only a part."""
    store = f"memory://{tmp_path.name}"
    published([counted(n * 1000, 1000) for n in range(4)], store, tmp_path, row_group_size=100)

    class Remote(FaultyStore):
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
        remote = Remote(session.writer)
        use(open_dataset(Session(remote, remote, session.settings), parse_address("a/b")).table())
        return [size for key, size in remote.spans if key.startswith("blobs/")]

    few: list[Callable[[wd.Table], object]] = [
        lambda table: table.schema(),
        lambda table: table.head(5),
        lambda table: table.select(["n"]).to_arrow(limit=250),
        lambda table: list(table.batches(100, shard=(1, 20))),
    ]
    for use in few:
        assert max(reads(use)) < min(sizes) / 2
    assert sorted(reads(lambda table: list(table.batches(100))))[-4:] == sorted(sizes)
    assert len(reads(lambda table: list(table.batches(100)))) == 4 + 1, "the schema needs a request first"
    assert reads(lambda table: table.to_arrow(limit=1500)).count(sizes[0]) == 1


def test_head_of_a_large_row_group_reads_a_part_of_it(tmp_path: Path) -> None:
    rng = np.random.default_rng(7)
    big = pa.table({"n": np.arange(400_000), "noise": rng.random(400_000), "more": rng.random(400_000)})
    store = f"memory://{tmp_path.name}"
    published([big], store, tmp_path, row_group_size=400_000, use_dictionary=False)

    class CountingStore(FaultyStore):
        fetched = 0

        def read_ranges(self, key: str, spans: Any, **options: Any) -> list[memoryview]:
            replies = super().read_ranges(key, spans, **options)
            self.fetched += sum(len(reply) for reply in replies)
            return replies

    session = connect(store)
    counting = CountingStore(session.writer)
    dataset = open_dataset(Session(counting, counting, session.settings), parse_address("a/b"))
    assert dataset.table().head(5)["n"].to_pylist() == [0, 1, 2, 3, 4]
    assert 0 < counting.fetched < dataset.manifest.data_bytes / 4


class _Batches(torch_data.IterableDataset[int]):
    """Yields the numbers of a table's rows, as a user would write it for a DataLoader."""

    def __init__(self, store: str) -> None:
        self._store = store

    def __iter__(self) -> Iterator[int]:
        table = wd.dataset("a/b", store=self._store).table("main")
        for batch in table.batches(7, columns="n", shard="auto"):
            yield from batch["n"].to_pylist()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="workers that are forked start quickly")
@pytest.mark.filterwarnings("ignore:This (process|DataLoader)")
@pytest.mark.parametrize("workers", [0, 2])
def test_auto_gives_each_row_to_one_worker_of_one_rank(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    store = (tmp_path / "s").as_uri()
    published([counted(0, 100)], store, tmp_path, row_group_size=10)
    seen: list[int] = []
    for rank in range(2):
        monkeypatch.setenv("RANK", str(rank))
        monkeypatch.setenv("WORLD_SIZE", "2")
        loader = torch_data.DataLoader(
            _Batches(store), batch_size=None, num_workers=workers, multiprocessing_context="fork" if workers else None
        )
        seen += loader
    assert sorted(seen) == list(range(100))
