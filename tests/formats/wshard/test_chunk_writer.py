"""If this fails, a long recording loses chunks: to a second writer, to a kill, or to an unreadable manifest."""

from __future__ import annotations

import inspect
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.formats.wshard.invariants import scratch_directory
from tests.formats.wshard.kill_points import CHUNK_STEPS, STEPS, value
from tests.formats.wshard.scenes import same_episode
from tests.formats.wshard.test_journal_owner import killed
from warpdata.errors import AlreadyExistsError, BadInputError, ConflictError, CorruptError, LimitExceededError
from warpdata.formats.wshard import chunk_manifest, chunked
from warpdata.wshard import (
    Block,
    Channel,
    ChunkedEpisodeWriter,
    ChunkPlace,
    Codec,
    Episode,
    JoinedFile,
    Timebase,
    join_chunks,
    load_chunk_manifest,
    load_wshard,
    open_wshard,
    save_wshard,
    validate_chunk_continuity,
)


def part(first: int, length: int, **changes: Any) -> Episode:
    rows = np.stack([value(step) for step in range(first, first + length)])
    episode = Episode("ep", length, "Long-v1", Timebase("ticks", 30.0), {"x": Channel("x", rows)})
    return replace(episode, rewards=np.arange(first, first + length, dtype=np.float32), **changes)


def write_chunks(directory: Path, lengths: list[int], **options: Any) -> ChunkedEpisodeWriter:
    writer = ChunkedEpisodeWriter(directory, "ep", **options)
    for length in lengths:
        writer.write_chunk(part(writer.step_count, length))
    return writer


def check_whole(directory: Path, steps: int) -> None:
    manifest = load_chunk_manifest(directory / "ep_manifest.wshard")
    validate_chunk_continuity(manifest, directory)
    same_episode(load_wshard(directory / "ep_manifest.wshard"), part(0, steps))
    assert load_wshard(directory / manifest.chunks[-1].uri).chunk == ChunkPlace(
        len(manifest.chunks) - 1, len(manifest.chunks), manifest.chunks[-1].first_step
    )
    assert {path.name for path in directory.iterdir()} == {
        "ep_manifest.wshard",
        *(entry.uri for entry in manifest.chunks),
    }


@pytest.mark.parametrize("name", ["e" * 180, "e" * 181, "e" * 183, "e" * 200, "é" * 120, "漢" * 90, 5, None])
def test_id_is_refused_at_once_or_its_manifest_is_readable(name: Any, tmp_path: Path) -> None:
    """An id of 183 characters was once written into a manifest that no reader accepted."""
    if name not in ("e" * 180,):
        with pytest.raises(BadInputError):
            ChunkedEpisodeWriter(tmp_path / "data", name)
        assert list(tmp_path.iterdir()) == []
        return
    with ChunkedEpisodeWriter(tmp_path, name) as writer:
        writer.write_chunk(replace(part(0, 3), id=name))
    assert load_wshard(writer.manifest_path).length == 3


@settings(max_examples=60, deadline=None)
@given(name=st.text(max_size=250), env_id=st.text(max_size=5))
def test_every_written_manifest_is_readable(name: str, env_id: str) -> None:
    with scratch_directory() as directory:
        try:
            with ChunkedEpisodeWriter(directory, name) as writer:
                writer.write_chunk(replace(part(0, 3), id=name, env_id=env_id))
        except BadInputError:
            assert not list(Path(directory).glob("*.wshard"))
            return
        assert load_wshard(writer.manifest_path).env_id == env_id


def test_second_writer_is_refused_and_a_later_one_continues_on_request(tmp_path: Path) -> None:
    """A second writer once overwrote the chunks, and left stale ones behind."""
    writer = write_chunks(tmp_path, [4, 4])
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(AlreadyExistsError, match="resume"):
        ChunkedEpisodeWriter(tmp_path, "ep")
    live = ChunkedEpisodeWriter(tmp_path, "ep", resume=True)
    with pytest.raises(ConflictError, match="in use"):
        live.write_chunk(part(8, 2))
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    writer.close()
    live.write_chunk(part(8, 2))
    with pytest.raises(ConflictError, match="in use"):
        writer.write_chunk(part(8, 2))
    live.finalize_manifest()
    with pytest.raises(ConflictError, match="another writer has added"):
        writer.write_chunk(part(8, 2))
    writer.close()
    check_whole(tmp_path, 10)
    with pytest.raises(AlreadyExistsError):
        ChunkedEpisodeWriter(tmp_path, "ep")
    ChunkedEpisodeWriter(tmp_path, "ep2")


def test_two_new_writers_do_not_mix(tmp_path: Path) -> None:
    one, two = ChunkedEpisodeWriter(tmp_path, "ep"), ChunkedEpisodeWriter(tmp_path, "ep")
    one.write_chunk(part(0, 4))
    with pytest.raises(ConflictError):
        two.write_chunk(part(0, 9))
    one.finalize_manifest()
    with pytest.raises(ConflictError):
        two.write_chunk(part(0, 9))
    check_whole(tmp_path, 4)


@pytest.mark.parametrize("promised", [None, 3])
def test_finished_episode_can_continue(promised: int | None, tmp_path: Path) -> None:
    writer = write_chunks(tmp_path, [4, 4], total_chunks=promised)
    if promised is None:
        writer.finalize_manifest()
    writer.close()
    again = ChunkedEpisodeWriter(tmp_path, "ep", resume=True)
    again.write_chunk(part(8, 2))
    with pytest.raises(BadInputError, match="60 steps"):
        again.write_chunk(part(10, 2, timebase=Timebase("ticks", 60.0)))
    again.finalize_manifest()
    check_whole(tmp_path, 10)
    totals = [load_wshard(tmp_path / f"ep_chunk_000{number}.wshard").chunk for number in range(3)]
    assert [place.total for place in totals if place is not None] == [promised, promised, 3]


def test_damaged_series_of_chunks_is_not_continued(tmp_path: Path) -> None:
    write_chunks(tmp_path, [4, 4, 2]).close()
    (tmp_path / "ep_chunk_0001.wshard").unlink()
    with pytest.raises(CorruptError, match=r"chunk 1 .* is missing"):
        ChunkedEpisodeWriter(tmp_path, "ep", resume=True)
    save_wshard(part(4, 4), tmp_path / "ep_chunk_0001.wshard")
    with pytest.raises(CorruptError, match="is not chunk 1"):
        ChunkedEpisodeWriter(tmp_path, "ep", resume=True)


def test_options_are_those_of_save(tmp_path: Path) -> None:
    saved = inspect.signature(save_wshard).parameters
    chosen = inspect.signature(ChunkedEpisodeWriter.__init__).parameters
    for name, parameter in saved.items():
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY:
            assert (chosen[name].default, chosen[name].annotation) == (parameter.default, parameter.annotation)
    options: dict[str, Any] = {"per_block": {"signal/x": "zstd"}, "alignment": 16, "time_chunk_steps": 20, "seal": True}
    with ChunkedEpisodeWriter(tmp_path, "ep", **options) as writer:
        writer.write_chunk(part(0, 100))
    with open_wshard(tmp_path / "ep_chunk_0000.wshard") as file:
        assert (file.header.alignment, "meta/identity" in file) == (16, True)
        assert (file["signal/x"].entry.codec, file["signal/x"].entry.is_chunked) == (Codec.ZSTD, True)
    for bad in ({"alignment": 3}, {"compression": "gzip"}, {"time_chunk_steps": -1}, {"chunk_size_t": 1.5}):
        with pytest.raises(BadInputError):
            ChunkedEpisodeWriter(tmp_path / "other", "ep", **bad)


def test_limits_are_checked_before_a_chunk_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = write_chunks(tmp_path, [2, 2])
    monkeypatch.setattr(chunked, "WSHARD_MAX_CHUNKS", 2)
    monkeypatch.setattr(chunk_manifest, "WSHARD_MAX_CHUNKS", 2)
    with pytest.raises(LimitExceededError):
        writer.write_chunk(part(4, 2))
    writer.finalize_manifest()
    check_whole(tmp_path, 4)


def test_manifest_opens_as_one_file(tmp_path: Path) -> None:
    write_chunks(tmp_path, [4, 4, 2]).finalize_manifest()
    with open_wshard(tmp_path / "ep_manifest.wshard") as file:
        assert isinstance(file, JoinedFile)
        assert file.info.length == STEPS
        block = file["signal/x"]
        expected = np.stack([value(step) for step in range(STEPS)])
        np.testing.assert_array_equal(block.read(), expected)
        np.testing.assert_array_equal(block.window(3, 9), expected[3:9])
        out = np.zeros((6, 3), np.float32)
        assert block.window(3, 9, out=out) is out
        np.testing.assert_array_equal(out, expected[3:9])
        assert bytes(block.raw()) == b"".join(block.pieces()) == expected.tobytes()
        assert file["reward"].read().tolist() == list(range(STEPS))
    assert set(load_wshard(tmp_path / "ep_manifest.wshard", channels=[]).lanes()) == set()
    (tmp_path / "ep_chunk_0001.wshard").unlink()
    for read in (open_wshard, load_wshard):
        with pytest.raises(CorruptError, match="missing"):
            read(tmp_path / "ep_manifest.wshard")


def test_ticks_are_joined(tmp_path: Path) -> None:
    with ChunkedEpisodeWriter(tmp_path, "ep") as writer:
        for first in (0, 4):
            ticks = np.arange(first, first + 4, dtype=np.int32).tobytes()
            writer.write_chunk(part(first, 4, extra={"time/ticks": Block(ticks)}))
    found = load_wshard(writer.manifest_path).extra["time/ticks"].data
    assert np.frombuffer(found, np.int32).tolist() == list(range(8))


def test_kill_before_any_line_leaves_chunks_that_continue() -> None:
    with scratch_directory() as root:
        for directory, written in killed("chunks", Path(root), 83):
            if (directory / "ep_manifest.wshard").exists():
                assert load_wshard(directory / "ep_manifest.wshard").length == STEPS
                continue
            with ChunkedEpisodeWriter(directory, "ep", chunk_size_t=CHUNK_STEPS, resume=True) as writer:
                assert writer.step_count >= written
                while writer.step_count < STEPS:
                    count = min(CHUNK_STEPS, STEPS - writer.step_count)
                    rows = np.stack([value(step) for step in range(writer.step_count, writer.step_count + count)])
                    writer.write_chunk(Episode("ep", count, observations={"x": Channel("x", rows)}))
            whole = load_wshard(directory / "ep_manifest.wshard")
            np.testing.assert_array_equal(
                whole.observations["x"].data, np.stack([value(step) for step in range(STEPS)])
            )
            assert not list(directory.glob("*.partial"))


@pytest.mark.parametrize("compression", ["none", "zstd", "lz4"])
def test_chunks_become_one_file(compression: str, tmp_path: Path) -> None:
    with ChunkedEpisodeWriter(tmp_path, "ep", compression=compression, time_chunk_steps=2) as writer:
        for first in (0, 40, 80):
            lane = {"x/m": Channel("x/m", np.arange(first, first + 40), attributes={"by": "m"})}
            writer.write_chunk(part(first, 40, omens=lane, extra={"vendor/x": Block(b"same", 3, 4)}))
    join_chunks(writer.manifest_path, tmp_path / "whole.wshard")
    whole = load_wshard(tmp_path / "whole.wshard")
    same_episode(whole, load_wshard(writer.manifest_path))
    assert whole.length == 120
    assert whole.chunk is None
    (tmp_path / "ep_chunk_0001.wshard").write_bytes(b"damaged")
    with pytest.raises(CorruptError, match="not the file that was listed"):
        join_chunks(writer.manifest_path, tmp_path / "again.wshard")
