"""If this fails, a recorded file differs from the written steps, or contains an invalid step."""

from __future__ import annotations

import json
import os
import struct
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import crc32c
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.reference import wshard_reader as reference
from warpdata.errors import (
    AlreadyExistsError,
    BadInputError,
    CorruptError,
    ObjectNotFoundError,
    SchemaMismatchError,
    StorageError,
)
from warpdata.formats.wshard import container_writer
from warpdata.wshard import (
    DType,
    Timebase,
    WShardStreamWriter,
    identity,
    load_wshard,
    open_wshard,
    recover,
    save_wshard,
)

CHANNELS: list[dict[str, Any]] = [
    {"id": "rgb", "dtype": "u8", "shape": [4, 4, 3], "compression": "zstd", "modality": "rgb"},
    {"id": "joint", "dtype": "f32", "shape": [7], "compression": "lz4"},
    {"id": "half", "dtype": "bf16", "shape": [2]},
    {"id": "flag", "dtype": "bool", "shape": []},
    {"id": "ctrl", "dtype": "f64", "shape": [3], "signal_block": "action/ctrl", "compression": "zstd", "level": 9},
]


def step(number: int) -> dict[str, Any]:
    return {
        "rgb": np.full((4, 4, 3), number % 251, np.uint8),
        "joint": np.arange(7, dtype=np.float32) + number,
        "half": np.full(2, number % 60_000, np.uint16),
        "flag": np.bool_(number % 3 == 0),
        "ctrl": np.full(3, number / 7),
    }


def record(path: Path, count: int, **options: Any) -> WShardStreamWriter:
    writer = WShardStreamWriter(path, "ep", CHANNELS, **{"fsync": "never", **options})
    writer.begin_episode(env_id="Lift-v1", tick_hz=30, metadata={"who": "Ada"})
    for number in range(count):
        writer.write_timestep(step(number), reward=number / 2, done=number == count - 1, truncated=number % 5 == 0)
    return writer


def check(path: Path, count: int) -> None:
    episode = load_wshard(path)
    assert (episode.id, episode.env_id, episode.length) == ("ep", "Lift-v1", count)
    lanes = episode.lanes()
    assert lanes["signal/half"].stored_dtype is DType.BF16
    for number in range(count):
        for channel in CHANNELS:
            name = channel.get("signal_block", f"signal/{channel['id']}")
            assert lanes[name].data[number].tobytes() == step(number)[channel["id"]].tobytes(), (name, number)
    assert episode.rewards is not None
    np.testing.assert_array_equal(episode.rewards, np.arange(count, dtype=np.float32) / 2)
    assert episode.truncations is not None
    np.testing.assert_array_equal(episode.truncations, np.arange(count) % 5 == 0)


@settings(max_examples=25)
@given(count=st.integers(0, 200), flush_steps=st.integers(1, 70), chunks=st.sampled_from([0, 8]), seal=st.booleans())
def test_every_length_and_flush(
    tmp_path_factory: pytest.TempPathFactory, count: int, flush_steps: int, chunks: int, seal: bool
) -> None:
    path = tmp_path_factory.mktemp("stream") / "ep.wshard"
    writer = record(path, count, flush_steps=flush_steps, time_chunk_steps=chunks, seal=seal)
    assert writer.flushed_steps == count // flush_steps * flush_steps
    assert writer.end_episode() == path
    assert [item.name for item in path.parent.iterdir()] == ["ep.wshard"]
    check(path, count)
    data = path.read_bytes()
    assert chunks or reference.strict_problems(data) == []
    assert reference.identity(reference.read_blocks(data)) == identity(path)


@pytest.mark.parametrize("fsync", ["flush", "end", "never"])
def test_each_fsync_mode(tmp_path: Path, fsync: str) -> None:
    record(tmp_path / "ep.wshard", 70, fsync=fsync).end_episode()
    check(tmp_path / "ep.wshard", 70)


def test_journal_is_readable_while_being_written(tmp_path: Path) -> None:
    path = tmp_path / "ep.wshard"
    writer = record(path, 130, flush_steps=64)
    partial = load_wshard(writer.partial_path)
    assert partial.length == 128
    assert load_wshard(writer.partial_path, channels=["rgb"]).lanes().keys() == {"signal/rgb"}
    np.testing.assert_array_equal(partial.observations["joint"].data[127], step(127)["joint"])
    document, steps, parts = reference.read_journal_steps(writer.partial_path.read_bytes())
    assert (steps, document["episode"]["episode_id"]) == (128, "ep")
    assert parts["signal/joint"] == partial.observations["joint"].data.tobytes()
    writer.flush()
    assert load_wshard(writer.partial_path).length == 130
    with pytest.raises(CorruptError, match="begins with"):
        open_wshard(writer.partial_path)
    writer.end_episode()
    check(path, 130)


@pytest.mark.parametrize(
    "spoil",
    [
        {"joint": None},
        {"joint": np.zeros(6, np.float32)},
        {"joint": np.zeros((7, 1), np.float32)},
        {"joint": np.zeros(7)},
        {"joint": np.zeros(7, ">f4")},
        {"rgb": np.zeros((4, 4, 3), np.int8)},
        {"half": np.zeros(2, np.float16)},
        {"flag": np.uint8(1)},
        {"stranger": np.zeros(1)},
    ],
    ids=str,
)
def test_invalid_step_is_refused_as_a_whole(tmp_path: Path, spoil: dict[str, Any]) -> None:
    path = tmp_path / "ep.wshard"
    writer = record(path, 5, flush_steps=6)
    size = writer.partial_path.stat().st_size
    bad = {name: value for name, value in {**step(9), **spoil}.items() if value is not None}
    with pytest.raises(SchemaMismatchError):
        writer.write_timestep(bad, reward=1.0)
    assert (writer.step_count, writer.partial_path.stat().st_size) == (5, size)
    writer.end_episode()
    episode = load_wshard(path)
    assert episode.length == 5
    np.testing.assert_array_equal(episode.observations["joint"].data[4], step(4)["joint"])


@pytest.mark.parametrize(
    "bad", [{"reward": "x"}, {"reward": 1e39}, {"done": 1}, {"truncated": None}, {"timestamp_ns": 1}]
)
def test_invalid_series_are_refused(tmp_path: Path, bad: dict[str, Any]) -> None:
    writer = record(tmp_path / "ep.wshard", 1)
    with pytest.raises(SchemaMismatchError):
        writer.write_timestep(step(1), **bad)
    assert writer.step_count == 1
    writer.close()


def test_timestamps(tmp_path: Path) -> None:
    path = tmp_path / "ep.wshard"
    with WShardStreamWriter(path, "ep", CHANNELS[1:2], fsync="never") as writer:
        writer.begin_episode(timebase=Timebase("timestamps_ns"))
        for number in range(3):
            writer.write_timestep({"joint": step(number)["joint"]}, timestamp_ns=number * 10)
        with pytest.raises(SchemaMismatchError, match="timestamp"):
            writer.write_timestep({"joint": step(0)["joint"]})
        writer.end_episode()
    episode = load_wshard(path)
    assert episode.timestamps_ns is not None
    assert episode.timestamps_ns.tolist() == [0, 10, 20]


def test_exception_leaves_a_journal_with_every_step(tmp_path: Path) -> None:
    path = tmp_path / "ep.wshard"
    with pytest.raises(KeyboardInterrupt), record(path, 100):
        raise KeyboardInterrupt
    assert not path.exists()
    report = recover(f"{path}.partial", remove_partial=True)
    assert (report.step_count, report.is_complete, report.lost_bytes) == (100, False, 0)
    assert [item.name for item in tmp_path.iterdir()] == ["ep.wshard"]
    check(path, 100)


def test_existing_files_are_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "ep.wshard"
    writer = record(path, 3)
    writer.flush()
    writer.close()
    with pytest.raises(AlreadyExistsError, match="partial"):
        record(path, 3)
    recover(f"{path}.partial")
    with pytest.raises(AlreadyExistsError):
        record(path, 3)
    save_wshard(replace(load_wshard(path), env_id="Another-v1"), path)
    before = path.read_bytes()
    with pytest.raises(AlreadyExistsError):
        recover(f"{path}.partial")
    assert path.read_bytes() == before


def test_order_of_calls(tmp_path: Path) -> None:
    writer = WShardStreamWriter(tmp_path / "ep.wshard", "ep", CHANNELS)
    with pytest.raises(BadInputError):
        writer.write_timestep(step(0))
    with pytest.raises(BadInputError):
        writer.end_episode()
    writer.begin_episode()
    with pytest.raises(BadInputError):
        writer.begin_episode()
    writer.close()
    with pytest.raises(ObjectNotFoundError):
        WShardStreamWriter(tmp_path / "no" / "ep.wshard", "ep", CHANNELS).begin_episode()


@pytest.mark.parametrize(
    "channels",
    [
        [{"id": "a", "dtype": "f99", "shape": []}],
        [{"id": "a", "dtype": "f32", "shape": [-1]}],
        [{"dtype": "f32", "shape": []}],
        [{"id": "a", "dtype": "f32"}, {"id": "a", "dtype": "f32"}],
        [{"id": "a", "dtype": "f32", "signal_block": "reward"}],
        [{"id": "a", "dtype": "f32", "compression": "gzip"}],
    ],
    ids=str,
)
def test_invalid_channels_are_refused(tmp_path: Path, channels: list[dict[str, Any]]) -> None:
    with pytest.raises(BadInputError):
        WShardStreamWriter(tmp_path / "ep.wshard", "ep", channels)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("channel", "options"),
    [
        ({"encoding": "h264"}, {}),
        ({"id": "x" * 70_000}, {}),
        ({}, {"metadata": {"a": float("nan")}}),
        ({}, {"attributes": {"timestep_range": [5, 5]}}),
        ({}, {"tick_hz": -1.0}),
        ({}, {"tick_hz": 1e-301}),
        ({}, {"metadata": {"a": 10**400}}),
        ({}, {"timebase": Timebase("moons")}),
    ],
    ids=lambda value: str(value)[:40],
)
def test_episode_that_cannot_end_is_not_begun(tmp_path: Path, channel: dict[str, Any], options: dict[str, Any]) -> None:
    """A recording must not fail at its end."""
    writer = WShardStreamWriter(tmp_path / "ep.wshard", "ep", [{"id": "a", "dtype": "f32", "shape": [2], **channel}])
    with pytest.raises(BadInputError):
        writer.begin_episode(**options)
    assert list(tmp_path.iterdir()) == []


def with_beginning(journal: bytes, document: Any) -> bytes:
    """Replace the first document of a journal, with right checksums."""
    *fields, size, _ = struct.unpack_from("<4sB3xIQIQI", journal)
    payload = json.dumps(document).encode()
    head = struct.pack("<4sB3xIQIQI", *fields, len(payload), crc32c.crc32c(payload))
    return head + struct.pack("<I", crc32c.crc32c(head)) + payload + journal[40 + size :]


@pytest.mark.parametrize(
    ("change", "is_loaded"),
    [
        ({}, True),
        ({"v": True}, False),
        ({"v": 2}, False),
        ({"v": None}, False),
        ({"save": {"alignment": 64.0}}, True),
        ({"save": {"alignment": False}}, True),
        ({"save": {"time_chunk_steps": True}}, True),
        ({"save": {"compression": {"signal/rgb": ["zstd", 3.5]}}}, True),
        ({"save": {"compression": {"signal/rgb": ["zstd", True]}}}, True),
    ],
    ids=str,
)
def test_journal_with_invalid_options_is_refused(change: dict[str, Any], is_loaded: bool, tmp_path: Path) -> None:
    """True is not 1, and 64.0 is not 64. Save options matter only to `recover`."""
    path = tmp_path / "ep.wshard"
    writer = record(path, 20, flush_steps=4)
    writer.close()
    journal = writer.partial_path.read_bytes()
    size = struct.unpack_from("<4sB3xIQIQI", journal)[5]
    document = json.loads(journal[40 : 40 + size])
    save = {**document["save"], **change.get("save", {})}
    writer.partial_path.write_bytes(with_beginning(journal, {**document, **change, "save": save}))
    if is_loaded:
        assert load_wshard(writer.partial_path).length == 20
    else:
        with pytest.raises(CorruptError, match="version"):
            load_wshard(writer.partial_path)
    if not change:
        assert recover(writer.partial_path).step_count == 20
        return
    with pytest.raises(CorruptError):
        recover(writer.partial_path)
    assert not path.exists()


@pytest.mark.parametrize("limit", ["WSHARD_MAX_CHUNKS", "WSHARD_MAX_DECODED_BYTES"])
def test_undecodable_time_chunks_are_not_written_at_the_end(
    limit: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A recording may outgrow its settings. It then ends uncompressed, not with an error."""
    path = tmp_path / "ep.wshard"
    with monkeypatch.context() as patch:
        patch.setattr(container_writer, limit, 40)
        record(path, 41, time_chunk_steps=1).end_episode()
    check(path, 41)
    assert reference.read_blocks(path.read_bytes())["signal/rgb"].flags == 0


def test_recording_survives_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An incomplete record must not hide later ones."""
    path = tmp_path / "ep.wshard"
    writer = record(path, 70)
    real = os.writev

    def full(handle: int, parts: Any) -> int:
        monkeypatch.setattr(os, "writev", broken)
        return real(handle, [memoryview(parts[0])[:17]])

    def broken(handle: int, parts: Any) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "writev", full)
    with pytest.raises(StorageError, match="space"):
        writer.flush()
    monkeypatch.setattr(os, "writev", real)
    assert writer.step_count == 70
    writer.end_episode()
    check(path, 70)


def test_full_disk_at_the_start_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(handle: int, parts: Any) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "writev", broken)
        with pytest.raises(StorageError):
            record(tmp_path / "ep.wshard", 0)
    assert list(tmp_path.iterdir()) == []
    record(tmp_path / "ep.wshard", 3).end_episode()
    check(tmp_path / "ep.wshard", 3)


def test_memory_is_independent_of_the_episode_length(tmp_path: Path) -> None:
    frame = np.zeros((64, 64, 3), np.uint8)
    peaks = []
    for count in (400, 4000):
        path = tmp_path / f"{count}.wshard"
        channel = {"id": "rgb", "dtype": "u8", "shape": [64, 64, 3], "compression": "zstd"}
        tracemalloc.start()
        with WShardStreamWriter(path, "ep", [channel], fsync="never") as writer:
            writer.begin_episode()
            for _ in range(count):
                writer.write_timestep({"rgb": frame})
            writer.end_episode()
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < peaks[0] + 1_000_000, peaks


@given(cut=st.floats(0, 1), flip=st.none() | st.floats(0, 1, exclude_max=True))
@settings(max_examples=60)
def test_damaged_journal_gives_a_correct_prefix(
    tmp_path_factory: pytest.TempPathFactory, cut: float, flip: float | None
) -> None:
    directory = tmp_path_factory.mktemp("torn")
    path = directory / "ep.wshard"
    writer = record(path, 50, flush_steps=4)
    writer.close()
    data = bytearray(writer.partial_path.read_bytes())
    data = data[: int(len(data) * cut)]
    if flip is not None and data:
        data[int(len(data) * flip)] ^= 0x10
    writer.partial_path.write_bytes(data)
    try:
        report = recover(writer.partial_path)
    except CorruptError:
        assert not path.exists()
        return
    assert report.lost_bytes == 0 or report.problem
    assert report.step_count % 4 == 0
    episode = load_wshard(path)
    assert episode.length == report.step_count
    for number in range(episode.length):
        np.testing.assert_array_equal(episode.observations["joint"].data[number], step(number)["joint"])
