"""If this fails, a training run repeats or loses a sample, or cannot resume."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from weakref import WeakSet

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import warpdata as wd
from warpdata.datasets.table_source import TableSource
from warpdata.errors import BadInputError, MediaDecodeError
from warpdata.primitives.parallel import IO_POOL
from warpdata.streaming import ShuffleBuffer
from warpdata.testing import S3Endpoint

ROWS = 137
unhurried = settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Two tables of several shards and row groups, with a column of references."""
    import pyarrow.parquet as pq

    directory = tmp_path_factory.mktemp("stream")
    root = (directory / "store").as_uri()
    for name, count in (("a/main", ROWS), ("a/other", 41)):
        paths = []
        for number, start in enumerate(range(0, count, 50)):
            ids = list(range(start, min(start + 50, count)))
            part = pa.table({"id": ids, "half": [i % 2 for i in ids], "file": [f"{i:04d}.bin" for i in ids]})
            paths.append(directory / f"{name.replace('/', '-')}-{number}.parquet")
            pq.write_table(part, paths[-1], row_group_size=16, write_page_checksum=True)
        files = {f"{i:04d}.bin": i.to_bytes(4, "big") for i in range(count)}
        builder = wd.DatasetBuilder(name, root).add_table("main", [str(path) for path in paths])
        builder.add_artifact("raw", files, shard_bytes=100).bind("main", "file", "raw").publish()
    return root


def ids_of(batches: Any) -> list[list[int]]:
    return [list(batch["id"]) for batch in batches]


def flat(lists: Iterable[list[int]]) -> list[int]:
    return [value for values in lists for value in values]


def opened(store: str, name: str = "a/main") -> wd.Dataset:
    return wd.dataset(name, store=store)


shuffles = st.sampled_from([False, True, wd.Shuffle(3, 4), wd.Shuffle(16, 2), wd.Shuffle(1, 1)])
filters = st.sampled_from([None, "half = 1", "id >= 130", "id < 0"])


@given(shuffles, filters, st.integers(1, 30), st.integers(1, 6), st.integers(0, 3), st.data())
@unhurried
def test_one_global_order_for_every_number_of_ranks(
    store: str,
    shuffle: bool | wd.Shuffle,
    condition: str | None,
    batch: int,
    world: int,
    epoch: int,
    data: st.DataObject,
) -> None:
    dataset = opened(store)

    def stream(size: int, rank: int, ranks: int) -> wd.Stream:
        return dataset.stream(
            columns=["id"],
            filter=condition,
            batch_size=size,
            shuffle=shuffle,
            seed=7,
            shard=(rank, ranks),
            collate="dict",
        )

    alone = ids_of(stream(batch * world, 0, 1).epoch(epoch))
    together = [ids_of(stream(batch, rank, world).epoch(epoch)) for rank in range(world)]
    assert len({len(part) for part in together}) == 1, "every rank makes the same number of steps"
    assert [flat(parts) for parts in zip(*together, strict=True)] == alone
    kept = dataset.table().filter(condition).to_arrow()["id"].to_pylist() if condition else list(range(ROWS))
    assert sorted(flat(alone)) == kept
    if shuffle is False:
        assert flat(alone) == kept


@given(shuffles, filters, st.integers(1, 20), st.integers(1, 4), st.data())
@unhurried
def test_a_stream_resumes_with_other_ranks_and_batch_sizes(
    store: str, shuffle: bool | wd.Shuffle, condition: str | None, batch: int, world: int, data: st.DataObject
) -> None:
    """The token is small JSON, the same on every rank."""
    dataset = opened(store)

    def stream(size: int, rank: int, ranks: int) -> wd.Stream:
        return dataset.stream(
            columns=["id"],
            filter=condition,
            batch_size=size,
            shuffle=shuffle,
            seed=3,
            shard=(rank, ranks),
            collate="dict",
        )

    whole = flat(ids_of(stream(1, 0, 1).epoch(2)))
    stopped = data.draw(st.integers(0, len(stream(batch, 0, world))))
    before, tokens = [], set()
    runs = [stream(batch, rank, world) for rank in range(world)]
    iterators = [run.epoch(2) for run in runs]
    for _ in range(stopped):
        before += flat(list(next(iterator)["id"]) for iterator in iterators)
    for run, iterator in zip(runs, iterators, strict=True):
        if stopped:
            tokens.add(json.dumps(run.state_dict()))
        iterator.close()
    assert len(tokens) <= 1, "the same on every rank"
    token = json.loads(tokens.pop()) if tokens else {**runs[0].state_dict(), "epoch": 2}
    size, ranks = data.draw(st.integers(1, 20)), data.draw(st.integers(1, 5))
    after = []
    for rank in range(ranks):
        run = stream(size, rank, ranks)
        run.load_state_dict(token)
        after.append(ids_of(run))
    assert before + flat(flat(parts) for parts in zip(*after, strict=True)) == whole
    assert len(json.dumps(token)) < 600


def test_epochs_follow_one_another(store: str) -> None:
    stream = opened(store).stream(columns=["id"], batch_size=50, shuffle=True, seed=1, collate="dict")
    first, second = flat(ids_of(stream)), flat(ids_of(stream))
    assert sorted(first) == sorted(second) == list(range(ROWS))
    assert first != second
    assert stream.state_dict()["epoch"] == 2
    assert flat(ids_of(stream.epoch(0))) == first


def test_locate_and_find_are_inverse(store: str) -> None:
    for condition in (None, "half = 1"):
        stream = opened(store).stream(
            columns=["id"],
            filter=condition,
            batch_size=10,
            shuffle=wd.Shuffle(4, 5),
            seed=1,
            shard=(0, 3),
            collate="dict",
        )
        rows = [row for step in range(len(stream)) for _, row in stream.locate(step, epoch=4)]
        kept = [row for row in range(ROWS) if condition is None or row % 2]
        assert sorted(rows) == kept
        for step in range(len(stream)):
            for at, (_, row) in enumerate(stream.locate(step, epoch=4)):
                found, rank = stream.find(row, epoch=4)
                assert found == step
                assert 0 <= rank < 3
                if step < len(stream) - 1:
                    assert rank == at // 10
    with pytest.raises(BadInputError, match="row 2 is not kept"):
        stream.find(2)


@given(
    shuffles, st.integers(1, 20), st.integers(1, 3), st.sampled_from(["first_exhausted", "all_exhausted"]), st.data()
)
@unhurried
def test_a_mixture_keeps_its_order_and_resumes(
    store: str, shuffle: bool | wd.Shuffle, batch: int, world: int, stop: Any, data: st.DataObject
) -> None:
    def mixture(size: int, rank: int, ranks: int) -> wd.Stream:
        parts = [
            opened(store, name).stream(
                columns=["id", "half"], batch_size=size, shuffle=shuffle, seed=5, shard=(rank, ranks), collate="dict"
            )
            for name in ("a/main", "a/other")
        ]
        return wd.mix({parts[0]: 0.7, parts[1]: 0.3}, seed=7, stop=stop)

    alone = mixture(batch * world, 0, 1)
    whole = ids_of(alone.epoch(1))
    places = [place for step in range(len(alone)) for place in alone.locate(step, epoch=1)]
    assert [row for _, row in places] == flat(whole)
    for part, count in ((0, ROWS), (1, 41)):
        given_rows = [row for at, row in places if at == part]
        turns = [given_rows[start : start + count] for start in range(0, len(given_rows), count)]
        assert all(len(set(turn)) == len(turn) for turn in turns), "no sample repeats before the part is exhausted"
        if stop == "all_exhausted":
            assert set(given_rows) == set(range(count))
    together = [ids_of(mixture(batch, rank, world).epoch(1)) for rank in range(world)]
    assert [flat(parts) for parts in zip(*together, strict=True)] == whole
    stopped = data.draw(st.integers(0, len(alone)))
    iterator = alone.epoch(1)
    before = flat(list(next(iterator)["id"]) for _ in range(stopped))
    token = {**alone.state_dict(), **({} if stopped else {"epoch": 1, "samples_done": 0})}
    iterator.close()
    again = mixture(3, 0, 1)
    again.load_state_dict(token)
    assert before + flat(ids_of(again)) == flat(whole)


def test_a_token_of_another_stream_is_refused(store: str) -> None:
    dataset = opened(store)
    token = dataset.stream(filter="half = 1", seed=1).state_dict()
    with pytest.raises(BadInputError, match="seed was '1' and is '2'"):
        dataset.stream(filter="half = 1", seed=2).load_state_dict(token)
    with pytest.raises(BadInputError, match="filter was"):
        dataset.stream(filter="half = 0", seed=1).load_state_dict(token)
    with pytest.raises(BadInputError, match="version was"):
        opened(store, "a/other").stream(filter="half = 1", seed=1).load_state_dict(token)
    with pytest.raises(BadInputError, match="a token of a stream has the fields"):
        dataset.stream().load_state_dict({"epoch": 1})
    with pytest.raises(BadInputError, match="samples_done=-1"):
        dataset.stream(filter="half = 1", seed=1).load_state_dict({**token, "samples_done": -1})


def test_remainders(store: str) -> None:
    def batches(remainder: Any, rank: int) -> list[list[int]]:
        stream = opened(store).stream(
            columns=["id"], batch_size=20, shard=(rank, 3), remainder=remainder, collate="dict"
        )
        return ids_of(stream.epoch(0))

    assert [len(batches("partial", rank)[-1]) for rank in range(3)] == [6, 6, 5]
    assert [len(batches("pad", rank)[-1]) for rank in range(3)] == [20, 20, 20]
    assert [len(batches("drop", rank)) for rank in range(3)] == [2, 2, 2]
    few = opened(store).stream(columns=["id"], filter="id < 2", batch_size=4, shard=(4, 5))
    assert [len(batch["id"]) for batch in few.epoch(0)] == [0], "a rank without samples gets an empty batch"


def test_options_shape_the_batches(store: str) -> None:
    dataset = opened(store)
    batch = next(dataset.stream(batch_size=5).epoch(0))
    np.testing.assert_array_equal(batch["id"], np.arange(5))
    assert batch["file"] == [n.to_bytes(4, "big") for n in range(5)]
    raw = next(dataset.stream(batch_size=5, decode=False, collate="dict").epoch(0))
    assert [ref.path for ref in raw["file"]] == [f"{n:04d}.bin" for n in range(5)]
    arrow = next(dataset.stream(batch_size=5, collate="arrow").epoch(0))
    assert isinstance(arrow, pa.RecordBatch)
    assert arrow["file"][2].read_bytes() == (2).to_bytes(4, "big")

    def transform(sample: dict[str, Any]) -> dict[str, Any]:
        return {"double": sample["id"] * 2, "size": np.full((2, 2), len(sample["file"]))}

    made = next(dataset.stream(batch_size=5, transform=transform).epoch(0))
    assert made["double"].tolist() == [0, 2, 4, 6, 8]
    assert made["size"].shape == (5, 2, 2)
    assert made["size"].flags.c_contiguous


def test_numbers_keep_their_type(tmp_path: Path) -> None:
    """Vectors do too, and in mixtures. A column with a null becomes a list."""
    kinds = ["int8", "uint16", "int64", "float32", "float64", "bool_"]
    rows = {kind: pa.array(np.arange(6).astype(kind)) for kind in kinds}
    vectors = np.arange(24, dtype=np.float32).reshape(6, 2, 2)
    pairs = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), 2)
    rows["vector"] = pa.FixedSizeListArray.from_arrays(pairs, 2)
    rows["gaps"] = pa.array([1, None, 3, 4, 5, 6])
    wd.DatasetBuilder("a/n", tmp_path.as_uri()).add_table("main", pa.table(rows)).publish()
    stream = wd.dataset("a/n", store=tmp_path.as_uri()).stream(batch_size=4)
    for batches in (list(stream.epoch(0)), list(wd.mix({stream: 1.0}).epoch(0))):
        for kind in kinds:
            assert [batch[kind].dtype for batch in batches] == [np.dtype(kind)] * 2
            np.testing.assert_array_equal(np.concatenate([b[kind] for b in batches]), np.arange(6).astype(kind))
        np.testing.assert_array_equal(np.concatenate([batch["vector"] for batch in batches]), vectors)
        assert batches[0]["gaps"] == [1, None, 3, 4]


def test_an_image_that_cannot_be_decoded_follows_on_error(tmp_path: Path) -> None:
    from PIL import Image

    def image(n: int) -> bytes:
        out = io.BytesIO()
        Image.fromarray(np.full((2, 2), n, np.uint8)).save(out, "PNG")
        return out.getvalue()

    files = {f"{n}.png": image(n) if n != 3 else b"no image" for n in range(8)}
    rows = pa.table({"n": range(8), "image": list(files)})
    builder = wd.DatasetBuilder("a/p", str(tmp_path / "s")).add_table("main", rows)
    builder.add_artifact("raw", files).bind("main", "image", "raw", "image").publish()
    dataset = wd.dataset("a/p", store=str(tmp_path / "s"))
    with pytest.raises(MediaDecodeError, match=r"3\.png"):
        list(dataset.stream(batch_size=8).epoch(0))
    stream = dataset.stream(batch_size=8, on_error="substitute")
    (batch,) = stream.epoch(0)
    assert batch["n"].tolist() == [0, 1, 2, 4, 4, 5, 6, 7], "the whole row is replaced, label included"
    assert batch["image"].shape == (8, 2, 2)
    assert batch["image"][3, 0, 0] == 4
    assert stream.telemetry.stats.substituted == 1


def test_no_task_outlives_an_iteration(store: str) -> None:
    stream = opened(store).stream(batch_size=5, shuffle=True)
    iterator = stream.epoch(0)
    next(iterator)
    iterator.close()
    broken = opened(store).stream(batch_size=5, transform=lambda _: 1 / 0)  # type: ignore[arg-type, return-value]
    with pytest.raises(ZeroDivisionError):
        next(broken.epoch(0))
    assert not any(executor._running or executor._waiting for executor in list(IO_POOL._executors))


def test_epochs_of_a_small_part_do_not_accumulate(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each turn of a part is an epoch with a shuffle buffer of its own."""
    parts = [
        opened(store, name).stream(columns=["id"], batch_size=64, shuffle=True, seed=5, collate="dict")
        for name in ("a/main", "a/other")
    ]
    mixture = wd.mix({parts[0]: 0.02, parts[1]: 0.98}, stop="all_exhausted")
    buffers: WeakSet[ShuffleBuffer] = WeakSet()
    open_buffer = TableSource.shuffle_buffer

    def opened_buffer(*given: Any, **named: Any) -> ShuffleBuffer:
        buffer = open_buffer(*given, **named)
        buffers.add(buffer)
        return buffer

    monkeypatch.setattr(TableSource, "shuffle_buffer", opened_buffer)
    most = 0
    for _ in mixture.epoch(0):
        most = max(most, len(buffers))
    assert len(mixture) * 64 > 100 * 41, "the small part repeats more than a hundred times"
    assert 0 < most <= 10


def test_explain_and_stats_agree_with_the_epoch(store: str) -> None:
    stream = opened(store).stream(batch_size=10, shuffle=wd.Shuffle(4, 5), shard=(0, 3))
    explained = stream.explain()
    assert (explained.samples, explained.steps, explained.global_batch, explained.last_batch) == (ROWS, 5, 30, 17)
    assert (explained.window_samples, explained.block_rows) == (20, 4)
    assert "137 samples" in str(explained)
    list(stream.epoch(0))
    stats = stream.telemetry.stats
    assert (stats.batches, stats.queued) == (5, 0)
    assert stats.bytes >= 46 * (4 + 8 + 8), "the file, and two numbers"
    assert stats.bytes_per_s > 0
    assert 0 < stats.waiting_share <= 1
    assert stats.samples == 46
    assert stats.samples_per_s > 0


def test_explain_does_not_apply_the_filter(store: str) -> None:
    planned = wd.dataset("a/main", store=store).stream(filter="half = 1", batch_size=10)
    explained = planned.explain()
    assert not explained.is_exact
    assert explained.samples == ROWS
    assert "at most 137 samples" in str(explained)
    assert len(planned) == 7
    assert planned.explain().is_exact
    assert planned.explain().samples == 68


def test_a_progress_line_shows_steps_and_samples(store: str) -> None:
    line = io.StringIO()
    list(opened(store).stream(batch_size=50, progress=line).epoch(0))
    shown = line.getvalue().split("\r")
    assert shown[-1].startswith("\x1b[K3 of 3 steps, 137 samples, ")
    assert shown[-1].endswith("queued\n")


@pytest.fixture(scope="module")
def far(s3_server: S3Endpoint, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Any]:
    """Twelve megabytes of files and a table of references to them, in an object store."""
    rng = np.random.default_rng(7)
    files = {f"{n:04d}.bin": rng.bytes(30_000 + int(rng.integers(20_000))) for n in range(300)}
    settings = s3_server.settings(cache_dir=tmp_path_factory.mktemp("far"), mode="remote")
    url = s3_server.url("far-streams")
    builder = wd.DatasetBuilder("a/far", url, settings=settings)
    builder.add_table("main", pa.table({"id": range(300), "file": list(files)}))
    builder.add_artifact("raw", files, shard_bytes=4_000_000).bind("main", "file", "raw").publish()
    return url, settings


@pytest.mark.parametrize("shuffle", [False, wd.Shuffle(24, 4), wd.Shuffle(24, 6, 2)])
def test_shuffled_files_take_about_as_many_requests_as_files_in_order(
    far: tuple[str, Any], shuffle: bool | wd.Shuffle
) -> None:
    stream = wd.dataset("a/far", store=far[0], settings=far[1]).stream(batch_size=32, shuffle=shuffle, collate="dict")
    explained = stream.explain()
    contents = [file for batch in stream.epoch(0) for file in batch["file"]]
    assert len(set(contents)) == 300
    io = stream.telemetry.stats.io
    size = sum(map(len, contents))
    assert io.bytes_fetched < 1.1 * size + 200_000
    assert io.requests <= 1.3 * size / 2**20 + 12, "one request per megabyte, and some for the metadata"
    assert 0.7 * explained.requests <= io.requests <= explained.requests + 12


def test_ranks_fetch_only_their_own_members(far: tuple[str, Any]) -> None:
    """Small gaps between members of a rank are fetched along."""
    dataset = wd.dataset("a/far", store=far[0], settings=far[1])
    seen = []
    for rank in range(3):
        stream = dataset.stream(batch_size=8, shuffle=wd.Shuffle(24, 4), shard=(rank, 3), collate="dict")
        fetched = sum(len(file) for batch in stream.epoch(0) for file in batch["file"])
        seen.append((fetched, stream.telemetry.stats.io.bytes_fetched))
    assert sum(mine for mine, _ in seen) == sum(len(dataset.artifact("raw").read(f"{n:04d}.bin")) for n in range(300))
    assert all(came < 2.5 * mine + 200_000 for mine, came in seen)
