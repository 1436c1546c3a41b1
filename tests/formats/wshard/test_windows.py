"""If this fails, training reads other steps than were recorded, or a short window reads the whole file."""

from __future__ import annotations

import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.formats.wshard.scenes import full_episode
from tests.reference import wshard_reader as reference
from warpdata.errors import BadInputError, CorruptError, NotFoundError
from warpdata.wshard import Channel, Episode, identity, load_wshard, open_wshard, save_wshard

OPTIONS: list[dict[str, Any]] = [
    {},
    {"alignment": 0},
    {"compression": "zstd"},
    {"compression": "lz4"},
    {"compression": "zstd", "time_chunk_steps": 6},
]


class CountingSource:
    """Bytes in memory that record the ranges that are read."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.size_bytes = len(data)
        self.requested: list[tuple[int, int]] = []

    def read_range(self, start: int, end: int) -> memoryview:
        self.requested.append((start, end))
        return memoryview(self._data)[start:end]


@pytest.fixture(scope="module", params=OPTIONS, ids=str)
def file(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("windows") / "a.wshard"
    save_wshard(full_episode(), path, **request.param)
    return path


@settings(max_examples=60)
@given(data=st.data())
def test_window_equals_slice(file: Path, data: st.DataObject) -> None:
    with open_wshard(file) as opened:
        name = data.draw(st.sampled_from(opened.blocks))
        whole = opened[name].read()
        start = data.draw(st.integers(0, len(whole)))
        stop = data.draw(st.integers(start, len(whole)))
        window = opened[name].window(start, stop)
        assert (window.dtype, window.shape) == (whole.dtype, whole[start:stop].shape)
        assert window.tobytes() == whole[start:stop].tobytes()


def test_types_and_shapes_match_the_declaration(file: Path) -> None:
    episode = full_episode()
    with open_wshard(file) as opened:
        for name, channel in episode.lanes().items():
            read = opened[name].read()
            assert (read.dtype, read.shape) == (channel.data.dtype, channel.data.shape), name
        assert opened["vendor/blob"].read().dtype == np.uint8
        assert opened["done"].read().dtype == np.bool_
        assert opened["time/timestamps_ns"].read().dtype == np.int64


def test_arrays_are_views_that_outlive_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.wshard"
    save_wshard(full_episode(), path)
    with open_wshard(path) as file:
        state, window = file["signal/state"].read(), file["signal/state"].window(3, 9)
    path.unlink()
    assert not state.flags.owndata
    assert not state.flags.writeable
    assert state.flags.aligned
    np.testing.assert_array_equal(state, full_episode().observations["state"].data)
    np.testing.assert_array_equal(window, state[3:9])
    with pytest.raises(BadInputError, match="closed"):
        file["signal/state"].read()


def big_episode() -> Episode:
    rng = np.random.default_rng(1)
    camera = rng.integers(0, 8, (1000, 32, 32), dtype=np.uint8)
    return Episode("big", 1000, observations={f"c{n}": Channel(f"c{n}", camera[:, :, : n + 1]) for n in range(8)})


def test_uncompressed_windows_read_only_their_bytes(tmp_path: Path) -> None:
    path = tmp_path / "a.wshard"
    save_wshard(big_episode(), path)
    source = CountingSource(path.read_bytes())
    file = open_wshard(source)
    assert source.requested == [(0, 65536)], "one request covers header, index and metadata"
    file["signal/c7"].window(500, 516)
    entry = file["signal/c7"].entry
    width = 32 * 8
    assert source.requested[1:] == [(entry.offset + 500 * width, entry.offset + 516 * width)]


def test_windows_of_time_chunks_decode_only_their_chunks(tmp_path: Path) -> None:
    path = tmp_path / "a.wshard"
    episode = big_episode()
    save_wshard(episode, path, compression="zstd", time_chunk_steps=16)
    data = path.read_bytes()
    source = CountingSource(data)
    file = open_wshard(source)
    reader = file["signal/c7"]
    np.testing.assert_array_equal(reader.window(500, 516), episode.observations["c7"].data[500:516])
    read = sum(end - start for start, end in source.requested[1:])
    assert read < reader.entry.stored_bytes / 10
    block = reference.read_blocks(data)["signal/c7"]
    assert block.flags == 1 | 2 | 8
    chunks = reference.time_chunks(block.stored)
    assert b"".join(chunks) == block.data
    assert [len(chunk) for chunk in chunks] == [16 * 32 * 8] * 62 + [8 * 32 * 8]


def test_threads_share_an_open_file(tmp_path: Path) -> None:
    data = np.random.default_rng(0).integers(0, 4, (400, 2000), dtype=np.uint8)
    episode = Episode("e", 400, observations={"x": Channel("x", data)})
    save_wshard(episode, tmp_path / "a.wshard", compression="zstd", time_chunk_steps=10)
    with open_wshard(tmp_path / "a.wshard") as opened, ThreadPoolExecutor(8) as pool:
        starts = [start % 380 for start in range(0, 380 * 7, 7)]
        windows = pool.map(lambda start: opened["signal/x"].window(start, start + 20), starts)
        assert all(np.array_equal(got, data[at : at + 20]) for at, got in zip(starts, windows, strict=True))


def test_identity_needs_memory_for_one_chunk(tmp_path: Path) -> None:
    camera = np.zeros((400, 256, 256), np.uint8)
    path = tmp_path / "a.wshard"
    save_wshard(Episode("big", 400, observations={"c": Channel("c", camera)}), path, seal=True)
    sealed = identity(path)
    save_wshard(load_wshard(path), path, compression="zstd", time_chunk_steps=16)
    tracemalloc.start()
    assert identity(path) == sealed
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak_bytes < camera.nbytes / 4


def test_damaged_chunk_affects_no_other(tmp_path: Path) -> None:
    path = tmp_path / "a.wshard"
    save_wshard(big_episode(), path, compression="zstd", time_chunk_steps=16)
    data = bytearray(path.read_bytes())
    with open_wshard(path) as file:
        entry = file["signal/c7"].entry
    data[entry.offset + entry.stored_bytes // 2] ^= 0x55
    path.write_bytes(data)
    good = bad = 0
    with open_wshard(path) as file:
        for start in range(0, 1000, 16):
            try:
                window = file["signal/c7"].window(start, min(start + 16, 1000))
                np.testing.assert_array_equal(window, big_episode().observations["c7"].data[start : start + 16])
                good += 1
            except CorruptError:
                bad += 1
    assert (good, bad) == (62, 1)


@pytest.mark.parametrize(("start", "stop"), [(-1, 2), (3, 2), (0, 41), (41, 41)])
def test_windows_out_of_range_are_refused(tmp_path: Path, start: int, stop: int) -> None:
    path = tmp_path / "a.wshard"
    save_wshard(full_episode(), path)
    with open_wshard(path) as file, pytest.raises(BadInputError, match="not within the 40"):
        file["signal/state"].window(start, stop)


def test_missing_block(tmp_path: Path) -> None:
    path = tmp_path / "a.wshard"
    save_wshard(full_episode(), path)
    with open_wshard(path) as file:
        assert "signal/state" in file
        with pytest.raises(NotFoundError, match="signal/nothing"):
            file["signal/nothing"]


def test_short_read_of_a_source_is_detected(tmp_path: Path) -> None:
    path = tmp_path / "a.wshard"
    save_wshard(big_episode(), path)
    source = CountingSource(path.read_bytes())
    file = open_wshard(source)
    source._data = source._data[:70_000]
    with pytest.raises(CorruptError, match="gave"):
        file["signal/c7"].read()
