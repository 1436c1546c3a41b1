"""The invariant for arbitrary bytes: a typed error, or exactly the values that the naive reader finds.

The tests of mutated files and the fuzzer use it. `judge` raises violations unchanged.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import crc32c
import numpy as np

from tests.formats.wshard.scenes import ROOT, VECTORS, full_episode
from tests.kinds.artifacts.media import Scene, encode_test_image
from tests.reference import wshard_reader as reference
from warpdata.errors import WarpError
from warpdata.wshard import (
    Channel,
    ChunkedEpisodeWriter,
    Episode,
    FrameReader,
    WShardFile,
    WShardStreamWriter,
    compose_wshard,
    frames_block,
    identity,
    index_images,
    index_video,
    load_chunk_manifest,
    load_wshard,
    open_wshard,
    recover,
    save_wshard,
    validate_chunk_continuity,
)

__all__ = ["Memory", "judge", "scratch_directory", "seeds"]

MOST_BLOCKS, MOST_FRAMES = 24, 3
META = {"meta/wshard", "meta/episode", "meta/channels", "meta/provenance", "meta/identity"}
SERIES = {
    "reward": "rewards",
    "done": "terminations",
    "truncated": "truncations",
    "time/timestamps_ns": "timestamps_ns",
}


class Memory:
    """A source over bytes in memory."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.size_bytes = len(data)

    def read_range(self, start: int, end: int) -> memoryview:
        return memoryview(self._data)[start:end]


def scratch_directory() -> tempfile.TemporaryDirectory[str]:
    """Use a file system in memory if there is one: nothing here must survive."""
    memory = Path("/dev/shm")  # noqa: S108
    return tempfile.TemporaryDirectory(prefix="wshard-", dir=memory if memory.is_dir() else None)


def judge(data: bytes, directory: Path) -> bool:
    """Return whether the bytes are accepted as an episode, a manifest or a journal, and check the values if so."""
    if data[:4] == b"WSJ1":
        return _judge_journal(data, directory)
    is_manifest = _judge_manifest(data)
    blocks = _judge_loading(data, directory)
    _judge_reading(data, blocks)
    return is_manifest or blocks is not None


def _judge_loading(data: bytes, directory: Path) -> dict[str, reference.RawBlock] | None:
    try:
        episode = load_wshard(Memory(data))
    except WarpError:
        return None
    blocks = reference.read_blocks(data)
    _compare(episode, blocks)
    # A quarter is also written again, which keeps the identity.
    if data[-1] % 4 == 0:
        path = directory / "again.wshard"
        save_wshard(episode, path, compression="zstd")
        again = reference.read_blocks(path.read_bytes())
        path.unlink()
        # A seal is computed again.
        assert _contents(again) == _contents(blocks)
    return blocks


def _compare(episode: Episode, blocks: dict[str, reference.RawBlock]) -> None:
    document = json.loads(blocks["meta/episode"].data)
    assert episode.length == document.get("length_T", document.get("length_t"))
    assert episode.id == document.get("episode_id", document.get("id"))
    declared = _declarations(blocks)
    lanes = episode.lanes()
    for name, channel in lanes.items():
        _same_bytes(channel.data, blocks[name].data, name)
        if name in declared and "encoding" not in declared[name]:
            found = declared[name]
            assert channel.stored_dtype == found["dtype"], name
            assert list(channel.step_shape) == found.get("shape", []), name
            assert len(channel.data) == episode.length or "sampling_rate_hz" in found, name
    series = {name: getattr(episode, member) for name, member in SERIES.items()}
    for name, array in series.items():
        assert (array is None) == (name not in blocks), name
        if array is not None:
            assert array.shape == (episode.length,)
            _same_bytes(array, blocks[name].data, name)
    for name, block in episode.extra.items():
        found_block = blocks[name]
        assert (block.data, block.content_type, block.tags) == (
            found_block.data,
            found_block.content_type,
            found_block.tags,
        ), name
    assert {*lanes, *episode.extra, *(name for name in (*META, *SERIES) if name in blocks)} == set(blocks)


def _contents(blocks: dict[str, reference.RawBlock]) -> dict[str, bytes]:
    return {name: block.data for name, block in blocks.items() if name != "meta/identity"}


def _declarations(blocks: dict[str, reference.RawBlock]) -> dict[str, dict[str, Any]]:
    if "meta/channels" not in blocks:
        return {}
    document = json.loads(blocks["meta/channels"].data)
    if "channels" not in document:
        items = [{"signal_block": name, **value} for name, value in document.items() if name != "lanes"]
    else:
        items = document["channels"]
    blocks_of = [item.get("signal_block") for item in items]
    return {f"signal/{item['id']}" if name is None else name: item for name, item in zip(blocks_of, items, strict=True)}


def _same_bytes(array: np.ndarray[Any, Any], data: bytes, name: str) -> None:
    # Any non-zero byte is true.
    expected = bytes(map(bool, data)) if array.dtype == np.bool_ else data
    assert array.tobytes() == expected, name


def _judge_reading(data: bytes, blocks: dict[str, reference.RawBlock] | None) -> None:
    try:
        with open_wshard(Memory(data)) as file:
            assert reference.broken_rules(data) == []
            for name in file.blocks[:MOST_BLOCKS]:
                _judge_block(file, name, blocks)
            for name in file.blocks:
                if name.startswith("frames/"):
                    _judge_frames(file, name.removeprefix("frames/"))
        found = identity(Memory(data))
    except WarpError:
        return
    assert found == reference.identity(blocks if blocks is not None else reference.read_blocks(data))


def _judge_block(file: WShardFile, name: str, blocks: dict[str, reference.RawBlock] | None) -> None:
    reader = file[name]
    try:
        rows = reader.block_type.rows
        start, stop = rows // 3, rows // 2
        window = reader.window(start, stop)
        assert len(window) == stop - start
        pieces = b"".join(reader.pieces())
        whole = reader.read()
    except WarpError:
        # A loaded file can also be read in pieces.
        assert blocks is None or name not in blocks, name
        return
    assert whole[start:stop].tobytes() == window.tobytes(), name
    assert bytes(reader.raw()) == pieces, name
    assert blocks is None or blocks[name].data == pieces, name


def _judge_frames(file: WShardFile, block: str) -> None:
    try:
        reader = FrameReader(file, block)
        content = bytes(file[block].raw())
        index = bytes(file[frames_block(block)].raw())
    except WarpError:
        return
    codec, extradata, entries = reference.read_frames(index)
    assert (reader.index.codec, reader.index.extradata) == (codec, extradata)
    shown = sorted((row["time_ns"], number) for number, row in enumerate(entries) if not row["flags"] & 2)
    assert reader.index.times_ns.tolist() == [time for time, _ in shown]
    for frame, (time, number) in enumerate(shown[:MOST_FRAMES]):
        row = entries[number]
        keys = [at for at in range(number + 1) if entries[at]["flags"] & 1 and entries[at]["time_ns"] <= time]
        assert reader.index.start_of(frame, frame) == keys[-1]
        expected = content[row["offset"] : row["offset"] + row["size"]]
        try:
            assert reader.encoded(frame) == expected
            assert crc32c.crc32c(expected) == row["checksum"]
            pixels = reader.frame(frame)
        except WarpError:
            continue
        assert pixels.ndim == 3
        assert pixels.shape[2] == 3
        assert pixels.dtype == np.uint8


def _judge_manifest(data: bytes) -> bool:
    try:
        manifest = load_chunk_manifest(Memory(data))
    except WarpError:
        return False
    document = json.loads(reference.read_blocks(data, "meta/manifest")["meta/manifest"].data)
    assert (manifest.episode_id, manifest.total_timesteps) == (document["episode_id"], document["total_timesteps"])
    for entry, item in zip(manifest.chunks, document["chunks"], strict=True):
        assert (entry.uri, entry.sha256, entry.length) == (item["uri"], item["sha256"], item["length_T"])
        assert [entry.first_step, entry.last_step] == item["timestep_range"]
        assert "/" not in entry.uri
    try:
        validate_chunk_continuity(manifest)
    except WarpError:
        return True
    assert sum(entry.length for entry in manifest.chunks) == manifest.total_timesteps
    return True


def _judge_journal(data: bytes, directory: Path) -> bool:
    path, out = directory / "a.wshard.partial", directory / "a.wshard"
    path.write_bytes(data)
    try:
        episode = load_wshard(path)
    except WarpError:
        episode = None
    try:
        report = recover(path, out)
    except WarpError:
        report = None
    assert not list(directory.glob(".*")), "no temporary file is left"
    if episode is None:
        assert report is None
        return False
    _, steps, parts = reference.read_journal_steps(data)
    _compare_steps(episode, steps, parts)
    if report is not None:
        assert report.step_count == steps
        assert report.lost_bytes <= len(data)
        recovered = reference.read_blocks(out.read_bytes())
        assert {name: block.data for name, block in recovered.items() if not name.startswith("meta/")} == parts
        _compare_steps(load_wshard(out), steps, parts)
        out.unlink()
    return True


def _compare_steps(episode: Episode, steps: int, parts: dict[str, bytes]) -> None:
    assert episode.length == steps
    lanes = {name: channel.data for name, channel in episode.lanes().items()}
    series = {name: getattr(episode, member) for name, member in SERIES.items()}
    found = {**lanes, **{name: array for name, array in series.items() if array is not None}}
    # `Episode` has no field for `time/ticks`.
    assert set(found) == set(parts) - {"time/ticks"}
    for name, array in found.items():
        _same_bytes(array, parts[name], name)


def seeds(directory: Path) -> list[bytes]:
    """Return small valid files of every kind."""
    out = [path.read_bytes() for path in sorted((ROOT / "tests" / "golden" / "wshard").glob("*.[wj]*"))]
    out = [data for data in out if data[:4] in (b"SHRD", b"WSJ1")]
    out += [path.read_bytes() for path in sorted(VECTORS.glob("*.wshard"))]
    options: list[dict[str, Any]] = [
        {},
        {"compression": "lz4", "alignment": 0, "seal": True},
        {"compression": "zstd", "time_chunk_steps": 5},
    ]
    for number, chosen in enumerate(options):
        path = directory / f"{number}.wshard"
        save_wshard(full_episode(12), path, **chosen)
        out.append(path.read_bytes())
    return [*out, *_chunked(directory), *_videos(directory), *_journals(directory)]


def _chunked(directory: Path) -> list[bytes]:
    writer = ChunkedEpisodeWriter(directory / "chunks", "long", chunk_size_t=4, compression="zstd")
    for start in (0, 4, 8):
        state = Channel("s", np.arange(start * 8, start * 8 + 32, dtype=np.float64).reshape(4, 8))
        writer.write_chunk(Episode("long", 4, "E", observations={"s": state}))
    writer.finalize_manifest()
    return [path.read_bytes() for path in sorted((directory / "chunks").iterdir()) if "_0000" not in path.name]


def _videos(directory: Path) -> list[bytes]:
    out = []
    for kind in ("png", "jpeg"):
        pixels = np.arange(4 * 6 * 8 * 3, dtype=np.uint8).reshape(4, 6, 8, 3)
        channel, block = index_images([encode_test_image(one, kind) for one in pixels], [0, 10, 20, 30], "cam")
        episode = Episode("p", 4, observations={"cam": channel}, extra={frames_block("signal/cam"): block})
        save_wshard(episode, directory / f"{kind}.wshard")
        out.append((directory / f"{kind}.wshard").read_bytes())
    video = directory / "video.mp4"
    video.write_bytes(Scene("libx264", "mp4", {"g": "3", "bf": "1", "crf": "45"}, length=6).data)
    rows, block = index_video(video, "cam")
    compose_wshard(
        Episode("f", 2, extra={frames_block("signal/cam"): block}), directory / "video.wshard", {"signal/cam": rows}
    )
    return [*out, (directory / "video.wshard").read_bytes()]


def _journals(directory: Path) -> list[bytes]:
    channels: list[dict[str, Any]] = [
        {"id": "q", "dtype": "f32", "shape": [8], "compression": "zstd"},
        {"id": "n", "dtype": "i16", "shape": [], "signal_block": "action/n", "compression": "lz4"},
    ]
    out = []
    for number, chunk_steps in enumerate((0, 2)):
        target = directory / f"{number}-recorded.wshard"
        writer = WShardStreamWriter(
            target, "r", channels, flush_steps=3, fsync="never", time_chunk_steps=chunk_steps, seal=bool(chunk_steps)
        )
        writer.begin_episode("E", tick_hz=10, metadata={"a": 1})
        for step in range(8):
            writer.write_timestep({"q": np.full(8, step, np.float32), "n": np.int16(step)}, reward=step, done=step == 7)
        writer.close()
        out.append(writer.partial_path.read_bytes())
    return out
