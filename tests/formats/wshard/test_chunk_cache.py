"""If this fails, windows return wrong steps, damage stays undetected, or the cache grows without bound."""

from __future__ import annotations

import functools
import gc
import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from warpdata.errors import BadInputError, CorruptError
from warpdata.formats.wshard import reader as reader_module
from warpdata.formats.wshard.chunk_cache import ChunkCache
from warpdata.formats.wshard.seek_table import SeekTable
from warpdata.wshard import BlockReader, Channel, Episode, open_wshard, save_wshard

STEPS = 200
TYPES = {"u8": np.uint8, "f32": np.float32, "i64": np.int64, "flag": np.bool_}


@functools.cache
def arrays() -> dict[str, Any]:
    rng = np.random.default_rng(5)
    return {name: rng.integers(0, 2, (STEPS, 6, 5)).cumsum(axis=0).astype(dtype) for name, dtype in TYPES.items()}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """Write the same episode with different chunk sizes, in steps."""
    directory = tmp_path_factory.mktemp("cache")
    channels = {name: Channel(name, array) for name, array in arrays().items()}
    for steps in (1, 7, 16):
        save_wshard(Episode("cached", STEPS, observations=channels), directory / f"{steps}.wshard", compression="zstd",
                    time_chunk_steps=steps)  # fmt: skip
    return {steps: directory / f"{steps}.wshard" for steps in (1, 7, 16)}


class Bytes:
    """A file in memory that can be damaged, and counts reads. It has no prefetched head."""

    head = b""

    def __init__(self, data: bytes) -> None:
        self.data = bytearray(data)
        self.size_bytes = len(data)
        self.requested = 0

    def read_range(self, start: int, end: int) -> memoryview:
        self.requested += 1
        return memoryview(bytes(self.data[start:end]))


spans = st.tuples(st.integers(0, STEPS), st.integers(0, 40)).map(lambda span: (span[0], min(STEPS, sum(span))))


@given(
    st.sampled_from([1, 7, 16]),
    st.sampled_from([0, 1, 600, 2_000, 9_000, 2**23]),
    st.sampled_from([0, 700, 5_000, 2**31]),
    st.lists(st.tuples(st.sampled_from(sorted(TYPES)), spans, st.sampled_from(["new", "out", "strided"])), max_size=30),
)
@settings(max_examples=80, deadline=None)
def test_window_equals_slice_with_any_cache_size(
    files: dict[int, Path], steps: int, each: int, all_bytes: int, asked: list[tuple[str, tuple[int, int], str]]
) -> None:
    cache = ChunkCache(all_bytes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reader_module, "CHUNK_CACHE", cache)
        with open_wshard(files[steps], cache_bytes=each) as file:
            for name, (start, stop), way in asked:
                expected = arrays()[name][start:stop]
                room = np.ones((stop - start, 6, 10 if way == "strided" else 5), expected.dtype)
                out = None if way == "new" else room[:, :, ::2] if way == "strided" else room
                found = file[f"signal/{name}"].window(start, stop, out=out)
                assert found.dtype == expected.dtype
                assert np.array_equal(found, expected)
                assert out is None or found is out
                assert cache.size_bytes <= min(all_bytes, each * len(TYPES))
    assert cache.size_bytes == 0, "a closed file caches nothing"


keeping = st.tuples(st.just("keep"), st.integers(0, 3), st.integers(0, 9), st.integers(1, 40))
others = st.tuples(st.sampled_from(["find", "rows", "clear", "end"]), st.integers(0, 3), st.integers(0, 9), st.just(0))


@given(st.integers(0, 120), st.lists(st.one_of(keeping, keeping, others), max_size=60))
@settings(max_examples=150, deadline=None)
def test_cache_returns_stored_chunks_within_its_bounds(limit: int, actions: list[tuple[str, int, int, int]]) -> None:
    """Compare with a dictionary that never evicts."""
    cache = ChunkCache(limit)
    limits = [0, 30, 60, 1_000]
    blocks = [cache.open_block(each) for each in limits]
    put: dict[tuple[int, int], bytes] = {}
    whole: dict[int, int] = {}
    for number, (action, at, chunk, size) in enumerate(actions):
        if action == "keep" and (at, chunk) not in put:
            put[at, chunk] = bytes([number]) * size
            blocks[at].put(chunk, memoryview(put[at, chunk]))
        elif action == "rows" and blocks[at].should_load_all(50, 50):
            whole[at] = whole[at] if blocks[at].rows is not None else number
            blocks[at].put_rows(np.full(50, number, np.uint8))
        elif action == "clear":
            blocks[at].clear()
        elif action == "end":
            blocks[at] = cache.open_block(limits[at])
            put = {place: data for place, data in put.items() if place[0] != at}
            whole.pop(at, None)
        found = {place: blocks[place[0]].get(place[1]) for place in put}
        held = {place: bytes(data) for place, data in found.items() if data is not None}
        assert all(data == put[place] for place, data in held.items())
        arrays = [block.rows for block in blocks]
        assert all(rows is None or set(rows) == {whole[each]} for each, rows in enumerate(arrays))
        sizes = [0 if rows is None else rows.nbytes for rows in arrays]
        assert not any(rows is not None and place[0] == each for each, rows in enumerate(arrays) for place in held)
        sizes = [size + sum(len(d) for place, d in held.items() if place[0] == each) for each, size in enumerate(sizes)]
        assert all(size <= each for size, each in zip(sizes, limits, strict=True))
        assert sum(sizes) <= cache.size_bytes <= limit
    cache._reset_after_fork()
    assert cache.size_bytes == 0
    assert all(block.get(chunk) is None for block in blocks for chunk in range(10))
    assert all(block.rows is None for block in blocks)


def test_unread_blocks_are_evicted_first() -> None:
    cache = ChunkCache(100)
    read, unread, new = (cache.open_block(100) for _ in range(3))
    for block in (read, unread):
        block.put(0, memoryview(bytes(50)))
    assert read.get(0) is not None
    new.put(0, memoryview(bytes(50)))
    assert read.get(0) is not None
    assert unread.get(0) is None


def test_overlapping_windows_decode_a_chunk_once(files: dict[int, Path]) -> None:
    source = Bytes(files[16].read_bytes())
    for cache_bytes, most in ((2**20, 1 + -(-STEPS // 16)), (0, None)):
        reader = open_wshard(source, cache_bytes=cache_bytes)["signal/u8"]
        reader.window(0, 1)
        source.requested = 0
        for start in range(STEPS - 16):
            reader.window(start, start + 16)
        if most is None:
            assert source.requested >= STEPS - 16
        else:
            assert source.requested <= most


def test_threads_share_the_cache(files: dict[int, Path]) -> None:
    """Use bounds so small that chunks are evicted all the time."""
    with open_wshard(files[7], cache_bytes=1_000) as file:

        def read(seed: int) -> int:
            rng = random.Random(seed)
            for _ in range(300):
                name, start = rng.choice(sorted(TYPES)), rng.randrange(STEPS - 20)
                found = file[f"signal/{name}"].window(start, start + 20)
                assert np.array_equal(found, arrays()[name][start : start + 20])
            return 1

        with ThreadPoolExecutor(8) as pool:
            assert sum(pool.map(read, range(8))) == 8


def test_repeatedly_read_block_becomes_one_array(files: dict[int, Path]) -> None:
    """Then a window is a view of it, also with `out`, and nothing is decoded."""
    with open_wshard(files[16]) as file, pytest.MonkeyPatch.context() as patch:
        for name, array in arrays().items():
            reader = file[f"signal/{name}"]
            for start in range(0, 2 * STEPS, 10):
                reader.window(start % STEPS, start % STEPS + 10)
            patch.setattr(SeekTable, "_decode", None)
            view = reader.window(3, STEPS - 3)
            assert np.shares_memory(view, reader.window(40, 60))
            assert not view.flags.writeable
            assert np.array_equal(view, array[3:-3])
            room = np.ones((20, 6, 5), array.dtype)
            assert np.array_equal(reader.window(50, 70, out=room), array[50:70])
            patch.undo()


def test_damage_in_one_chunk_does_not_affect_others(files: dict[int, Path], tmp_path: Path) -> None:
    """The same holds when the whole block is about to be cached."""
    data = bytearray(files[16].read_bytes())
    start, end = open_wshard(files[16])["signal/i64"].span(160, 170)
    data[(start + end) // 2] ^= 0xFF
    path = tmp_path / "damaged.wshard"
    path.write_bytes(data)
    reader = open_wshard(path)["signal/i64"]
    for _ in range(3 * STEPS // 32):
        assert np.array_equal(reader.window(0, 32), arrays()["i64"][:32])
    with pytest.raises(CorruptError):
        reader.window(150, 180)


def test_whole_array_evicts_no_other_block() -> None:
    cache = ChunkCache(100)
    first, second, small = cache.open_block(100), cache.open_block(100), cache.open_block(40)
    assert not first.should_load_all(59, 60)
    assert first.should_load_all(1, 60)
    first.put(0, memoryview(bytes(20)))
    first.put_rows(np.zeros(60, np.uint8))
    assert cache.size_bytes == 60, "the whole block replaces its chunks"
    assert not second.should_load_all(60, 60)
    assert not small.should_load_all(60, 60)
    first.clear()
    assert second.should_load_all(60, 60)
    assert not small.should_load_all(60, 60), "the block exceeds its bound"


def test_damage_beside_cached_chunks_is_detected(files: dict[int, Path]) -> None:
    source = Bytes(files[16].read_bytes())
    reader = open_wshard(source)["signal/i64"]
    expected = reader.window(0, 16).copy()
    start, end = reader.span(16, 32)
    place = (start + end) // 2
    source.data[place] ^= 0xFF
    for _ in range(2):
        with pytest.raises(CorruptError):
            reader.window(0, 32)
    assert np.array_equal(reader.window(0, 16), expected), "the valid chunk is still cached"
    source.data[place] ^= 0xFF
    assert np.array_equal(reader.window(0, 32), arrays()["i64"][:32]), "a damaged chunk is not cached"


def test_cache_is_freed_with_the_reader(files: dict[int, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    cache = ChunkCache(2**20)
    monkeypatch.setattr(reader_module, "CHUNK_CACHE", cache)

    def reader() -> BlockReader:
        return open_wshard(files[16])["signal/u8"]

    reader().window(0, STEPS)
    assert cache.size_bytes >= STEPS * 30
    gc.collect()
    last = reader()
    last.window(0, 1)
    assert cache.size_bytes == 16 * 30, "the chunks of the collected reader are freed"


@pytest.mark.parametrize(
    "out", [np.empty((3, 6, 5), np.uint8), np.empty((4, 6, 5), np.int8), np.empty((4, 30), np.uint8)]
)
def test_out_array_of_wrong_type_or_shape_is_refused(files: dict[int, Path], out: Any) -> None:
    with open_wshard(files[16]) as file, pytest.raises(BadInputError, match="out is"):
        file["signal/u8"].window(0, 4, out=out)


@pytest.mark.parametrize("amount", [-1, 1.5, True, None])
def test_invalid_cache_size_is_refused(files: dict[int, Path], amount: Any) -> None:
    with pytest.raises(BadInputError, match="cache_bytes"):
        open_wshard(files[16], cache_bytes=amount)
