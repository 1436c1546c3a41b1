"""If this fails, an episode in several files is read with a gap, a repetition or a foreign chunk."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.formats.wshard.scenes import RawFile, write
from tests.reference import wshard_reader as reference
from warpdata.errors import (
    BadInputError,
    CorruptError,
    NotFoundError,
    UnsupportedError,
)
from warpdata.primitives.hashing import fingerprint_file
from warpdata.wshard import (
    Channel,
    ChunkedEpisodeWriter,
    ChunkEntry,
    ChunkManifest,
    ChunkPlace,
    Episode,
    JoinedFile,
    Timebase,
    join_episodes,
    load_chunk_manifest,
    load_wshard,
    open_wshard,
    save_wshard,
    validate_chunk_continuity,
)


def chunk(start: int, stop: int, **members: Any) -> Episode:
    state = Channel("state", np.arange(start * 2, stop * 2, dtype=np.float32).reshape(-1, 2))
    return Episode("ep_001", stop - start, "Long-v1", observations={"state": state}, **members)


@pytest.fixture
def written(tmp_path: Path) -> ChunkManifest:
    writer = ChunkedEpisodeWriter(tmp_path / "data", "ep_001", chunk_size_t=10, compression="zstd")
    for start in range(0, 25, 10):
        writer.write_chunk(chunk(start, min(start + 10, 25)))
    return writer.finalize_manifest()


def test_chunks_and_manifest(written: ChunkManifest, tmp_path: Path) -> None:
    directory = tmp_path / "data"
    validate_chunk_continuity(written)
    validate_chunk_continuity(written, directory)
    assert load_chunk_manifest(directory / "ep_001_manifest.wshard") == written
    assert (written.total_chunks, written.total_timesteps) == (3, 25)
    assert [(entry.first_step, entry.last_step) for entry in written.chunks] == [(0, 9), (10, 19), (20, 24)]
    assert [entry.uri for entry in written.chunks] == [f"ep_001_chunk_{number:04d}.wshard" for number in range(3)]
    loaded = [load_wshard(directory / entry.uri) for entry in written.chunks]
    assert [episode.chunk for episode in loaded] == [
        ChunkPlace(0, None, 0),
        ChunkPlace(1, None, 10),
        ChunkPlace(2, 3, 20),
    ]
    whole = np.concatenate([episode.observations["state"].data for episode in loaded])
    np.testing.assert_array_equal(whole, np.arange(50, dtype=np.float32).reshape(25, 2))
    assert reference.strict_problems((directory / "ep_001_manifest.wshard").read_bytes()) == []
    with pytest.raises(UnsupportedError, match="role 0x05"):
        load_chunk_manifest(directory / written.chunks[0].uri)


@pytest.mark.parametrize(
    ("number", "change", "message"),
    [
        (1, {"index": 2}, "position 1"),
        (1, {"first_step": 11, "length": 9}, "begins at step 11 instead of 10"),
        (1, {"first_step": 9, "length": 11}, "begins at step 9 instead of 10"),
        (2, {"length": 6}, "has 6 steps"),
        (0, {"total": 4}, "says that there are 4"),
        (2, {"uri": "ep_001_chunk_0000.wshard"}, "twice"),
    ],
)
def test_discontinuities_are_detected(
    written: ChunkManifest, number: int, change: dict[str, Any], message: str
) -> None:
    chunks = list(written.chunks)
    chunks[number] = replace(chunks[number], **change)
    with pytest.raises(CorruptError, match=message):
        validate_chunk_continuity(replace(written, chunks=tuple(chunks)))


def test_missing_and_extra_chunks_are_detected(written: ChunkManifest) -> None:
    for chunks in (written.chunks[:2], written.chunks[1:], (*written.chunks, written.chunks[2]), ()):
        with pytest.raises(CorruptError):
            validate_chunk_continuity(replace(written, chunks=chunks))
    with pytest.raises(CorruptError, match="add up to 24"):
        validate_chunk_continuity(replace(written, total_timesteps=24))


def test_files_are_verified_with_a_directory(written: ChunkManifest, tmp_path: Path) -> None:
    directory = tmp_path / "data"
    one, two = (directory / written.chunks[number].uri for number in (0, 1))
    kept = one.read_bytes()
    one.write_bytes(two.read_bytes())
    with pytest.raises(CorruptError, match="not the file that was listed"):
        validate_chunk_continuity(written, directory)
    one.write_bytes(kept)
    two.unlink()
    with pytest.raises(CorruptError, match="missing"):
        validate_chunk_continuity(written, directory)


def test_foreign_chunks_are_refused(tmp_path: Path) -> None:
    writer = ChunkedEpisodeWriter(tmp_path, "ep_001", chunk_size_t=10, total_chunks=1)
    for bad in (replace(chunk(0, 5), id="other"), chunk(0, 11), chunk(0, 0)):
        with pytest.raises(BadInputError):
            writer.write_chunk(bad)
    with pytest.raises(BadInputError, match="0 chunks"):
        writer.finalize_manifest()
    writer.write_chunk(chunk(0, 10))
    with pytest.raises(BadInputError, match="one more"):
        writer.write_chunk(chunk(10, 20))
    other = replace(chunk(0, 5), observations={"state": Channel("state", np.zeros((5, 3), np.float32))})
    with pytest.raises(BadInputError, match=r"f32\[3\] instead of state: f32\[2\]"):
        writer.write_chunk(other)
    assert load_wshard(tmp_path / "ep_001_chunk_0000.wshard").chunk == ChunkPlace(0, 1, 0)
    for name in ("a/b", "..", "", "a\0b"):
        with pytest.raises(BadInputError):
            ChunkedEpisodeWriter(tmp_path, name)


def listed(uri: str, digest: str, span: list[float]) -> dict[str, Any]:
    rest = {"chunk_index": 0, "length_T": 1, "total_chunks": 1}
    return {"uri": uri, "sha256": digest, "timestep_range": span, **rest}


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        "[]",
        '{"episode_id":"e","total_chunks":1,"total_timesteps":1,"chunks":[1]}',
        '{"episode_id":"e","total_chunks":-1,"total_timesteps":1,"chunks":[]}',
        '{"episode_id":1,"total_chunks":1,"total_timesteps":1,"chunks":[]}',
        *(
            json.dumps({"episode_id": "e", "total_chunks": 1, "total_timesteps": 1, "chunks": [listed(*row)]})
            for row in (
                ("../x", "0" * 64, [0, 0]),
                ("/etc/x", "0" * 64, [0, 0]),
                ("s3://x", "0" * 64, [0, 0]),
                ("x", "0", [0, 0]),
                ("x", "0" * 64, [0]),
                ("x", "0" * 64, [0, 1.5]),
            )
        ),
    ],
)
def test_malformed_manifests_are_refused(tmp_path: Path, text: str) -> None:
    whole = RawFile({"meta/manifest": text.encode()})
    whole.header["role"] = 4
    with pytest.raises(CorruptError):
        load_chunk_manifest(write(tmp_path / "m.wshard", whole.build()))


def test_chunks_are_read_as_one_episode(written: ChunkManifest, tmp_path: Path) -> None:
    files = [open_wshard(tmp_path / "data" / entry.uri) for entry in written.chunks]
    joined = JoinedFile(files)
    assert (joined.info.length, joined.info.chunk, joined.blocks) == (25, None, ("signal/state",))
    state, whole = joined["signal/state"], np.arange(50, dtype=np.float32).reshape(25, 2)
    np.testing.assert_array_equal(state.read(), whole)
    for start, stop in ((0, 25), (9, 21), (10, 20), (3, 4), (20, 20), (25, 25)):
        np.testing.assert_array_equal(state.window(start, stop), whole[start:stop])
    for start, stop in ((-1, 3), (4, 3), (0, 26)):
        with pytest.raises(BadInputError, match="not within the 25"):
            state.window(start, stop)
    with pytest.raises(NotFoundError, match="no block 'signal/x'"):
        joined["signal/x"]
    with pytest.raises(UnsupportedError, match="meta/episode"):
        joined["meta/episode"]
    loaded = [load_wshard(tmp_path / "data" / entry.uri) for entry in written.chunks]
    np.testing.assert_array_equal(join_episodes(loaded).observations["state"].data, whole)


DIFFERENCES: dict[str, tuple[str, Any]] = {
    "rate": ("60 steps per second instead of 30", {"timebase": Timebase("ticks", 60.0)}),
    "timestamps": ("timestamps", {"timebase": Timebase("timestamps_ns"), "timestamps_ns": np.arange(5)}),
    "environment": ("environment", {"env_id": "Other-v1"}),
    "dtype": ("f64", {"observations": {"state": Channel("state", np.zeros((5, 2)))}}),
    "shape": (r"f32\[3\]", {"observations": {"state": Channel("state", np.zeros((5, 3), np.float32))}}),
    "missing": ("nothing", {"observations": {}}),
    "more": ("'action/x'", {"actions": {"x": Channel("x", np.zeros(5))}}),
    "reward": ("'reward'", {"rewards": np.zeros(5, np.float32)}),
    "attributes": (
        "modality",
        {"observations": {"state": Channel("state", np.zeros((5, 2), np.float32), None, {"modality": "x"})}},
    ),
    "own rate": (
        "200 Hz",
        {"observations": {"state": Channel("state", np.zeros((5, 2), np.float32), None, {"sampling_rate_hz": 200})}},
    ),
}


@pytest.mark.parametrize("difference", DIFFERENCES)
def test_chunks_that_differ_are_refused_everywhere(difference: str, tmp_path: Path) -> None:
    """Steps at 30 and 60 Hz once became one episode, in which time passes at a wrong speed."""
    said, change = DIFFERENCES[difference]
    first = replace(chunk(0, 10), timebase=Timebase("ticks", 30.0))
    other = replace(chunk(10, 15), **{"timebase": Timebase("ticks", 30.0), **change})
    writer = ChunkedEpisodeWriter(tmp_path / "w", "ep_001")
    writer.write_chunk(first)
    with pytest.raises(BadInputError, match=said):
        writer.write_chunk(other)
    assert not (tmp_path / "w" / "ep_001_chunk_0001.wshard").exists()
    with pytest.raises(UnsupportedError, match=said):
        join_episodes([first, other])
    paths = [tmp_path / f"ep_001_chunk_{number:04d}.wshard" for number in range(2)]
    for number, (episode, path) in enumerate(zip((first, other), paths, strict=True)):
        save_wshard(replace(episode, chunk=ChunkPlace(number, 2, 10 * number)), path)
    hashes = [fingerprint_file(path).blob.hash for path in paths]
    entries = (
        ChunkEntry(0, paths[0].name, hashes[0], 0, 9, 10, 2),
        ChunkEntry(1, paths[1].name, hashes[1], 10, 14, 5, 2),
    )
    with pytest.raises(CorruptError, match=said):
        validate_chunk_continuity(ChunkManifest("ep_001", "Long-v1", 2, 15, entries), tmp_path)
    if difference != "attributes":  # they do not matter to rows, and published chunks may have them
        with pytest.raises(CorruptError, match=said):
            JoinedFile([open_wshard(path) for path in paths])


def test_chunks_without_common_rows_are_not_joined() -> None:
    residual = {"state/sign2nddiff": Channel("state", np.zeros((10, 1), np.uint8))}
    with pytest.raises(UnsupportedError, match="an encoding of its own"):
        join_episodes([replace(chunk(0, 10), residuals=residual)] * 2)
    with pytest.raises(UnsupportedError, match="has the id"):
        join_episodes([chunk(0, 10), replace(chunk(10, 15), id="other")])
    with pytest.raises(BadInputError, match="no chunks"):
        join_episodes([])
    with pytest.raises(BadInputError, match="no chunks"):
        JoinedFile([])
