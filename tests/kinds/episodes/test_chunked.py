"""If this fails, an episode that was recorded in several files differs from the recorded one."""

from __future__ import annotations

import errno
import json
import mmap
import tempfile
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import warpdata as wd
from tests.formats.wshard.scenes import RawFile, same_episode
from tests.kinds.episodes.scenes import FORMS, KEYS, make_episode, memory_store, naive_window, open_session, save_all
from tests.reference import wshard_reader
from warpdata.datasets import open_dataset
from warpdata.errors import (
    CorruptError,
    InvalidSourceError,
    NotFoundError,
    UnsupportedError,
)
from warpdata.formats.parquet import describe_parquet
from warpdata.kinds.episodes import EpisodeIndex, Episodes, EpisodesContext, EpisodesEntry, StoredEpisode
from warpdata.kinds.episodes.window_source import WindowSource
from warpdata.limits import EPISODES_CHECK_BYTES
from warpdata.primitives.hashing import blob_key, fingerprint_file, sha256_hex
from warpdata.repository.catalog import parse_address
from warpdata.repository.manifest import Shard, ShardList
from warpdata.settings import load_settings
from warpdata.wshard import (
    Block,
    Channel,
    ChunkedEpisodeWriter,
    ChunkPlace,
    Episode,
    Timebase,
    load_wshard,
    save_wshard,
)

# Each example publishes two versions, so shrinking would exceed the time limit of a test.
SLOW = settings(
    max_examples=25, phases=[Phase.explicit, Phase.reuse, Phase.generate], suppress_health_check=list(HealthCheck)
)
LONG = 40


def cut(episode: Episode, borders: list[int], row_borders: list[int]) -> list[Episode]:
    """Cut an episode into chunks at these steps. The IMU has its own rate, so it is cut at `row_borders`."""
    total = len(borders) - 1

    def one(number: int, low: int, high: int) -> Episode:
        def rows(channel: Channel) -> Channel:
            a, b = row_borders[number : number + 2] if channel.id == "imu" else (low, high)
            return replace(channel, data=channel.data[a:b])

        def steps(array: Any) -> Any:
            return None if array is None else array[low:high]

        return replace(
            episode,
            length=high - low,
            chunk=ChunkPlace(number, total, low),
            observations={name: rows(channel) for name, channel in episode.observations.items()},
            actions={name: rows(channel) for name, channel in episode.actions.items()},
            rewards=steps(episode.rewards),
            terminations=steps(episode.terminations),
            timestamps_ns=steps(episode.timestamps_ns),
        )

    return [one(number, low, high) for number, (low, high) in enumerate(pairwise(borders))]


@st.composite
def cuts(draw: st.DrawFn, length: int, rows: int) -> tuple[list[int], list[int]]:
    inner = sorted(draw(st.sets(st.integers(1, length - 1), min_size=1, max_size=6)))
    others = sorted(draw(st.lists(st.integers(0, rows), min_size=len(inner), max_size=len(inner))))
    return [0, *inner, length], [0, *others, rows]


def opened(store: Any, name: str) -> Episodes:
    return open_dataset(open_session(store), parse_address(name)).episodes("demos")


def write_chunks(directory: Path, chunks: list[Episode], **options: Any) -> list[Path]:
    directory.mkdir(parents=True, exist_ok=True)
    paths = [directory / f"{chunk.id}_chunk_{number:04d}.wshard" for number, chunk in enumerate(chunks)]
    for chunk, path in zip(chunks, paths, strict=True):
        save_wshard(chunk, path, **options)
    return paths


@SLOW
@given(st.sampled_from(sorted(FORMS)), st.sampled_from(["local", "memory"]), st.booleans(), st.data())
def test_a_chunked_episode_equals_the_episode_in_one_file(
    form: str, place: str, timestamps: bool, data: st.DataObject
) -> None:
    """Compares windows, values, table and length for any cuts. Only the identity differs."""
    long = make_episode(1, LONG, timestamps=timestamps)
    borders, row_borders = data.draw(cuts(LONG, len(long.observations["imu"].data)))
    with tempfile.TemporaryDirectory() as text:
        directory = Path(text)
        wholes = [make_episode(0, 7, timestamps=timestamps), long, make_episode(2, 9, timestamps=timestamps)]
        for episode in wholes:
            save_wshard(episode, directory / f"{episode.id}.wshard", **FORMS[form])
        chunks = write_chunks(directory, cut(long, borders, row_borders), **FORMS[form])
        contents = [path.read_bytes() for path in chunks]
        first, last = directory / "ep_000.wshard", directory / "ep_002.wshard"
        store = memory_store(text) if place == "memory" else wd.connect((directory / "store").as_uri()).writer
        publish_into(store, "a/whole", [first, directory / "ep_001.wshard", last])
        publish_into(store, "a/chunked", [first, *data.draw(st.permutations(chunks)), last])
        whole, chunked = opened(store, "a/whole"), opened(store, "a/chunked")

        assert len(chunked) == len(whole) == 3
        assert [len(each) for each in chunked] == [7, LONG, 9]
        assert table_rows(chunked) == table_rows(whole)
        assert [store.read(blob_key(chunk.hash)).data for chunk in chunked["ep_001"].chunks] == contents
        same_values(chunked["ep_001"], whole["ep_001"], data)
        keywords: dict[str, Any] = {
            "keys": KEYS,
            "stride": data.draw(st.integers(1, 9)),
            "pad": data.draw(st.sampled_from(["edge", "zero", None])),
            "shuffle": data.draw(st.sampled_from([False, True, wd.Shuffle(4, 2)])),
            "batch_size": data.draw(st.integers(1, 70)),
            "mask": True,
        }
        one_by_one = mock.patch.object(WindowSource, "_max_groups", 0)  # as if groups were too large for memory
        with one_by_one if data.draw(st.booleans()) else nullcontext():
            batches = list(chunked.windows(**keywords))
        for mine, other in zip(batches, whole.windows(**keywords), strict=True):
            assert mine.keys() == other.keys()
            assert all(np.array_equal(mine[name], other[name]) for name in mine)
        for number, step, window in list(zip(*(batches[0][name] for name in ("episode", "step", "rgb")), strict=True))[
            :4
        ]:
            assert np.array_equal(window, naive_window(wholes[number], "rgb", KEYS["rgb"], int(step), keywords["pad"]))


def publish_into(store: Any, name: str, source: Any) -> wd.Dataset:
    wd.DatasetBuilder(name, open_session(store)).add_episodes("demos", source).publish()
    return open_dataset(open_session(store), parse_address(name))


def table_rows(episodes: Episodes) -> list[dict[str, Any]]:
    different = ("identity", "hash", "byte_size")
    rows = episodes.table().to_arrow().to_pylist()
    return [{name: value for name, value in row.items() if name not in different} for row in rows]


def same_values(mine: StoredEpisode, other: StoredEpisode, data: st.DataObject) -> None:
    names = ["signal/rgb", "signal/imu", "ctrl", "reward", "done", "time/timestamps_ns"]
    assert set(mine.blocks) == {name for name in other.blocks if not name.startswith("meta/")}
    for name in names:
        rows = mine[name].block_type.rows
        assert mine[name].block_type == other[name].block_type
        assert np.array_equal(mine[name].read(), other[name].read())
        low = data.draw(st.integers(0, rows))
        high = data.draw(st.integers(low, rows))
        assert np.array_equal(mine[name].window(low, high), other[name].window(low, high))
    found = mine.read(names)
    assert all(np.array_equal(found[name], values) for name, values in other.read(names).items())
    same_episode(replace(mine.load(), origin=None), replace(other.load(), origin=None))
    assert mine.metadata == other.metadata
    assert mine.timebase == other.timebase
    mine.verify()


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """Save two episodes, and a long one as its writer does: three chunks and a manifest."""
    save_all(tmp_path / "in", [5, 6])
    chunks = cut(make_episode(7, 30), [0, 12, 20, 30], [0, 40, 70, 100])
    writer = ChunkedEpisodeWriter(tmp_path / "in", "ep_007", compression="zstd")
    for chunk in chunks:
        writer.write_chunk(replace(chunk, chunk=None))
    writer.finalize_manifest()
    return tmp_path / "in"


def publish(source: Any) -> Episodes:
    wd.DatasetBuilder("a/robot").add_episodes("demos", source).publish()
    return wd.dataset("a/robot").episodes("demos")


def test_the_output_of_a_chunk_writer_is_published_unchanged(recorded: Path) -> None:
    chunks = sorted(recorded.glob("*_chunk_*"))
    manifest = recorded / "ep_007_manifest.wshard"
    whole = make_episode(7, 30)
    for source in (recorded, str(recorded / "*.wshard"), [manifest], [*chunks, manifest], [manifest, *chunks]):
        episode = publish(source)["ep_007"]
        assert [chunk.hash for chunk in episode.chunks] == [fingerprint_file(path).blob.hash for path in chunks]
        assert np.array_equal(episode["rgb"].window(10, 25), whole.observations["rgb"].data[10:25])
        assert wd.verify(wd.dataset("a/robot")).problems == ()
    dataset = wd.dataset("a/robot")
    assert dataset.warm(episodes=["demos"]).blobs == 4, "the index and three chunks"
    (info,) = dataset.info().episodes
    assert (info.episodes, info.steps) == (1, 30)
    assert wd.DatasetBuilder("a/robot").add_episodes("demos", recorded).plan().episodes == {"demos": 3}


def test_a_single_chunk_is_an_episode_in_one_file(tmp_path: Path) -> None:
    writer = ChunkedEpisodeWriter(tmp_path, "short")
    writer.write_chunk(replace(make_episode(3, 8), id="short"))
    writer.finalize_manifest()
    episodes = publish(tmp_path)
    assert episodes.entry.file_count is None
    assert episodes["short"].hash == fingerprint_file(tmp_path / "short_chunk_0000.wshard").blob.hash


def test_objects_can_be_chunks() -> None:
    chunks = cut(make_episode(7, 30), [0, 12, 30], [0, 1, 100])
    assert len(publish(iter(chunks))["ep_007"].chunks) == 2


def test_a_set_without_chunks_has_the_original_format(tmp_path: Path) -> None:
    """Older releases can read it."""
    publish(save_all(tmp_path, [5, 6]))
    payload = wd.dataset("a/robot").manifest.episodes["demos"]
    assert set(payload.attributes) == {"episodes", "steps", "check_bytes", "index_footer"}
    assert "chunks" not in index_of(wd.dataset("a/robot"), tmp_path).column_names


def test_an_independent_reader_finds_the_chunks(recorded: Path, tmp_path: Path) -> None:
    publish(recorded)
    dataset = wd.dataset("a/robot")
    assert dataset.manifest.episodes["demos"].attributes["files"] == 5
    rows = index_of(dataset, tmp_path).to_pylist()
    assert [len(row["chunks"]) for row in rows] == [0, 0, 3]
    row, paths = rows[2], sorted(recorded.glob("*_chunk_*"))
    assert (row["hash"], row["pieces"], row["checks"], row["length"]) == ("", [], [], 30)
    for chunk, path in zip(row["chunks"], paths, strict=True):
        data = path.read_bytes()
        assert (chunk["hash"], chunk["byte_size"]) == (sha256_hex(data), len(data))
        assert chunk["identity"] == wshard_reader.identity(wshard_reader.read_blocks(data))
        assert chunk["pieces"][0]["data"] == data[: len(chunk["pieces"][0]["data"])]
    listed = ",".join(f'"{chunk["identity"]}"' for chunk in row["chunks"])
    assert row["identity"] == sha256_hex(f'{{"chunks":[{listed}],"v":1}}'.encode())


def index_of(dataset: wd.Dataset, directory: Path) -> pa.Table:
    index = dataset.manifest.episodes["demos"].index
    assert index is not None
    (directory / "index.parquet").write_bytes(dataset.session.reader.read(blob_key(index.hash)).data)
    return pq.read_table(directory / "index.parquet")


def _drop(directory: Path, paths: list[Path]) -> None:
    paths[1].unlink()


def _double(directory: Path, paths: list[Path]) -> None:
    (directory / "again.wshard").write_bytes(paths[1].read_bytes())


def _swap(directory: Path, paths: list[Path]) -> None:
    one, two = paths[0].read_bytes(), paths[1].read_bytes()
    paths[0].write_bytes(two)
    paths[1].write_bytes(one)


def _rewrite(change: Callable[[Episode], Episode]) -> Callable[[Path, list[Path]], None]:
    def damage(directory: Path, paths: list[Path]) -> None:
        save_wshard(change(load_wshard(paths[1])), paths[1])

    return damage


def _moved(chunk: Episode) -> Episode:
    assert chunk.chunk is not None
    return replace(chunk, chunk=replace(chunk.chunk, first_step=chunk.chunk.first_step + 1))


def _renumbered(chunk: Episode) -> Episode:
    assert chunk.chunk is not None
    return replace(chunk, chunk=replace(chunk.chunk, total=4))


def _without_joint(chunk: Episode) -> Episode:
    return replace(chunk, observations={k: v for k, v in chunk.observations.items() if k != "joint"})


def _other_type(chunk: Episode) -> Episode:
    joint = chunk.observations["joint"]
    wide = Channel("joint", joint.data.astype(np.float64))
    return replace(chunk, observations={**chunk.observations, "joint": wide})


_LISTED = r"0001\.wshard is not the file that ep_007_manifest\.wshard lists as chunk 1"

FAULTS: dict[str, tuple[Callable[[Path, list[Path]], None], str, str]] = {
    "missing": (
        _drop,
        r"chunk 1 of the episode 'ep_007' is missing: .*manifest\.wshard lists ep_007_chunk_0001\.wshard",
        r"chunk 1 of the episode 'ep_007' is missing: 2 of 3 were given",
    ),
    "doubled": (
        _double,
        r"again\.wshard is a chunk of 'ep_007' that .* does not list",
        r"chunk 1 of the episode 'ep_007' was given twice: .*again.* and .*0001",
    ),
    "swapped": (_swap, r"0000\.wshard is not the file that ep_007_manifest\.wshard lists as chunk 0", ""),
    "moved": (_rewrite(_moved), _LISTED, "chunk 1 begins at step 13 instead of 12"),
    "renumbered": (_rewrite(_renumbered), _LISTED, r"different numbers of chunks: .*4 in .*0001\.wshard"),
    "renamed": (_rewrite(lambda e: replace(e, id="other")), _LISTED, "'ep_007' is missing"),
    "channels": (_rewrite(_without_joint), _LISTED, r"0001\.wshard has the block 'signal/joint' as nothing"),
    "types": (_rewrite(_other_type), _LISTED, r"0001\.wshard has the block 'signal/joint' as joint: f64\[7\]"),
    "environment": (_rewrite(lambda e: replace(e, env_id="X")), _LISTED, r"0001\.wshard has the environment 'X'"),
    "timebase": (
        _rewrite(lambda e: replace(e, timebase=Timebase("ticks", 7.0))),
        _LISTED,
        r"0001\.wshard has the timebase \('ticks', 7\.0\)",
    ),
}
"""Faults with the messages expected with a manifest and without one."""


@pytest.mark.parametrize("with_manifest", [True, False])
@pytest.mark.parametrize("fault", sorted(FAULTS))
def test_errors_name_inconsistent_chunks(tmp_path: Path, fault: str, with_manifest: bool) -> None:
    """The error is raised before anything is uploaded."""
    directory = tmp_path / "in"
    writer = ChunkedEpisodeWriter(directory, "ep_007", total_chunks=3)
    for chunk in cut(make_episode(7, 30), [0, 12, 20, 30], [0, 40, 70, 100]):
        writer.write_chunk(chunk)
    writer.finalize_manifest()
    if not with_manifest:
        (directory / "ep_007_manifest.wshard").unlink()
    damage, with_listing, without_listing = FAULTS[fault]
    damage(directory, sorted(directory.glob("*_chunk_*")))
    if not with_manifest and not without_listing:
        assert len(publish(directory)) == 1, "file names do not matter"
        return
    with pytest.raises(InvalidSourceError, match=with_listing if with_manifest else without_listing):
        publish(directory)
    assert wd.list_datasets() == []


def test_an_invalid_chunk_manifest_is_rejected(recorded: Path, tmp_path: Path) -> None:
    manifest = recorded / "ep_007_manifest.wshard"
    with pytest.raises(InvalidSourceError, match=r"0000.wshard, a chunk .* was given twice"):
        publish([manifest, recorded / "ep_007_chunk_0000.wshard", recorded / "ep_007_chunk_0000.wshard"])
    with pytest.raises(InvalidSourceError, match=r"0001.wshard is chunk 1 .* no file states their number") as caught:
        publish(recorded / "ep_007_chunk_0001.wshard")
    assert "ep_007_manifest.wshard" in (caught.value.hint or "")
    copy = tmp_path / "copy"
    copy.mkdir()
    for path in recorded.iterdir():
        (copy / path.name).write_bytes(path.read_bytes())
    with pytest.raises(InvalidSourceError, match=r"'ep_007' has two manifests"):
        publish([recorded, copy])
    data = bytearray(manifest.read_bytes())
    data[-3] ^= 1
    manifest.write_bytes(data)
    with pytest.raises(InvalidSourceError, match=r"manifest.wshard is not a valid chunk manifest"):
        publish(recorded)


def test_a_chunk_manifest_that_contradicts_its_chunks_is_rejected(recorded: Path) -> None:
    """The manifest is consistent and lists the right files, but they have other steps."""
    path = recorded / "ep_007_manifest.wshard"
    blocks = wshard_reader.read_blocks(path.read_bytes())
    document = json.loads(blocks["meta/manifest"].data)
    for name in ("11 steps", "another id"):
        changed = json.loads(json.dumps(document))
        if name == "11 steps":
            for chunk, span in zip(changed["chunks"], ([0, 10], [11, 19]), strict=False):
                chunk.update(timestep_range=span, length_T=span[1] - span[0] + 1)
        else:
            changed["episode_id"] = "other"

        def as_manifest(raw: RawFile) -> None:
            raw.header["role"] = 4

        path.write_bytes(RawFile({"meta/manifest": json.dumps(changed).encode()}).build(as_manifest))
        with pytest.raises(InvalidSourceError, match=r"0000\.wshard has 12 steps of 'ep_007' from step 0 on, but"):
            publish(path)


def test_a_channel_is_whole_if_it_is_whole_in_any_chunk(tmp_path: Path) -> None:
    """Blocks of windows are then chosen as for an episode that can only be decoded whole."""
    chunks = cut(make_episode(7, 30), [0, 12, 30], [0, 1, 100])
    paths = write_chunks(tmp_path / "in", chunks)
    save_wshard(chunks[1], paths[1], per_block={"signal/rgb": "zstd"})
    publish(paths)
    (row,) = index_of(wd.dataset("a/robot"), tmp_path).to_pylist()
    assert [spec["id"] for spec in json.loads(row["layout"]) if spec.get("is_whole")] == ["rgb"]


def test_encoded_channels_are_read_chunk_by_chunk(tmp_path: Path) -> None:
    def chunk(number: int) -> Episode:
        video = Channel("video", np.full(9 + number, number, np.uint8), attributes={"encoding": "h264"})
        x = Channel("x", np.full((4, 2), number, np.float32))
        return Episode("e", 4, observations={"video": video, "x": x}, chunk=ChunkPlace(number, 2, 4 * number))

    episode = publish([chunk(0), chunk(1)])["e"]
    assert episode.blocks == ("signal/x",)
    with pytest.raises(
        UnsupportedError, match="'signal/video' of episode 'e' is encoded and has no frame index"
    ) as caught:
        episode["video"]
    assert "chunks" in (caught.value.hint or "")
    with pytest.raises(NotFoundError, match="has no channel 'vide'"):
        episode["vide"]
    assert [part.file["signal/video"].read().tolist() for part in episode.chunks] == [[0] * 9, [1] * 10]
    with pytest.raises(UnsupportedError, match="video"):
        episode.load()
    assert episode.load(["x"]).observations["x"].data[:, 0].tolist() == [0] * 4 + [1] * 4
    noted = [Episode("e", 4, chunk=ChunkPlace(n, 2, 4 * n), extra={"note": Block(bytes([n]))}) for n in range(2)]
    with pytest.raises(UnsupportedError, match="'note' is not the same in all chunks"):
        publish(noted)["e"].load()


def test_metadata_of_later_chunks_wins(tmp_path: Path) -> None:
    known: list[dict[str, Any]] = [{"operator": "Ada", "success": False, "n": 1}, {"success": True, "n": [1]}]
    chunks = [Episode("e", 4, chunk=ChunkPlace(at, 2, 4 * at), metadata=known[at]) for at in range(2)]
    episodes = publish(chunks)
    assert dict(episodes["e"].metadata) == {"operator": "Ada", "success": True, "n": [1]}
    assert episodes.table().to_arrow()["metadata"].to_pylist() == [{"operator": "Ada", "success": True}]


@pytest.mark.parametrize("place", ["local", "memory"])
def test_a_flipped_bit_in_any_chunk_is_found(tmp_path: Path, place: str) -> None:
    chunks = cut(make_episode(7, 3000), [0, 1000, 2000, 3000], [0, 4000, 7000, 10000])
    paths = write_chunks(tmp_path / "in", chunks)
    store = memory_store("chunk-flips") if place == "memory" else wd.connect((tmp_path / "store").as_uri()).writer
    publish_into(store, "a/robot", paths)
    part = opened(store, "a/robot")[0].chunks[1]
    entry, key = part.file["signal/rgb"].entry, blob_key(part.hash)
    data = bytearray(store.read(key).data)
    data[entry.offset + entry.stored_bytes // 2] ^= 4
    store.replace(key, bytes(data))
    reads: list[Callable[[StoredEpisode], Any]] = [
        lambda episode: episode["rgb"].window(1400, 1600),
        lambda episode: episode.read(["rgb"]),
        lambda episode: episode.load(),
        lambda episode: episode.verify(),
    ]
    for read in reads:
        with pytest.raises(CorruptError):
            read(opened(store, "a/robot")[0])
    with pytest.raises(CorruptError):
        list(opened(store, "a/robot").windows(keys={"rgb": (0, 4)}))
    assert len(opened(store, "a/robot")[0]["rgb"].window(0, 900)) == 900


def test_files_beyond_the_mapping_limit_are_read_by_range(recorded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = list(publish(recorded).windows(keys={"rgb": (-4, 4)}))
    real, left = mmap.mmap, [2]

    def mapped(*args: Any, **named: Any) -> mmap.mmap:
        left[0] -= 1
        if left[0] < 0:
            raise OSError(errno.ENOMEM, "Cannot allocate memory")
        return real(*args, **named)

    monkeypatch.setattr("warpdata.kinds.episodes.source.mmap.mmap", mapped)
    for mine, other in zip(wd.dataset("a/robot").episodes().windows(keys={"rgb": (-4, 4)}), whole, strict=True):
        assert np.array_equal(mine["rgb"], other["rgb"])
    assert left[0] < 0


def test_an_index_that_contradicts_its_chunks_is_rejected(recorded: Path, tmp_path: Path) -> None:
    publish(recorded)
    table = index_of(wd.dataset("a/robot"), tmp_path)
    (row,) = [row for row in table.to_pylist() if row["chunks"]]
    chunks = row["chunks"]
    for number, change in enumerate(_invalid_changes(chunks)):
        episodes = _with_row({**row, **change}, table.schema, tmp_path / f"{number}.parquet", recorded)
        with pytest.raises(CorruptError):
            list(episodes.windows(keys=["rgb"]))
    assert sum(len(b["step"]) for b in _with_row(row, table.schema, tmp_path / "x.parquet", recorded).windows()) == 30
    no_column = table.schema.remove(table.schema.get_field_index("chunks"))
    with pytest.raises(CorruptError, match="no column 'chunks'"):
        _ = _with_row(row, no_column, tmp_path / "y.parquet", recorded)[0]


def _invalid_changes(chunks: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    yield {"chunks": [chunks[1], chunks[0], chunks[2]]}
    yield {"chunks": chunks[:2]}
    yield {"chunks": [chunks[0], chunks[1], chunks[1]]}
    yield {"chunks": chunks[:1], "length": 12}
    yield {"length": 31}
    yield {"chunks": [*chunks[:2], {**chunks[2], "hash": "../secret"}]}
    yield {"chunks": [*chunks[:2], {**chunks[2], "pieces": []}]}
    yield {"chunks": [{**chunks[0], "length": 11}, {**chunks[1], "length": 9}, chunks[2]]}
    yield {"chunks": []}


def _with_row(row: dict[str, Any], schema: pa.Schema, path: Path, directory: Path) -> Episodes:
    kept = {name: value for name, value in row.items() if name in schema.names}
    pq.write_table(pa.Table.from_pylist([kept], schema), path, write_page_checksum=True)
    store, found = memory_store(str(path)), describe_parquet(path)
    files = [*sorted(directory.glob("*_chunk_*")), path]
    blobs = [fingerprint_file(file).blob for file in files]
    for file, blob in zip(files, blobs, strict=True):
        store.create(blob_key(blob.hash), file.read_bytes())
    shards = ShardList(tuple(Shard(blob.hash, blob.byte_size) for blob in blobs[:-1]))
    entry = EpisodesEntry(shards, blobs[-1], found.footer, 1, 30, EPISODES_CHECK_BYTES, 3)
    context = EpisodesContext("a/robot", "0" * 64, store, load_settings(), lambda: 0.0)
    return Episodes(EpisodeIndex("demos", entry, context))
