"""If this fails, publishing changes an episode, or accepts a corrupt one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import xxhash

import warpdata as wd
from tests.formats.wshard.scenes import full_episode, needs_vectors, same_episode, vector
from tests.kinds.episodes.scenes import FORMS, make_episode, memory_store, open_session, save_all
from tests.reference import wshard_reader
from warpdata.datasets import open_dataset
from warpdata.errors import BadInputError, CorruptError, InvalidSourceError, WarpError
from warpdata.formats.parquet import describe_parquet
from warpdata.kinds.episodes import EpisodeIndex, Episodes, EpisodesContext, EpisodesEntry
from warpdata.limits import EPISODES_CHECK_BYTES
from warpdata.primitives.hashing import blob_key, fingerprint_file
from warpdata.repository.catalog import parse_address
from warpdata.repository.manifest import Shard, ShardList
from warpdata.settings import load_settings
from warpdata.testing import FaultyStore, KillAt, Killed
from warpdata.wshard import (
    Episode,
    WShardStreamWriter,
    identity,
    load_wshard,
    recover,
    save_wshard,
)

LENGTHS = [12, 1, 30]


def publish(source: Any, **options: Any) -> wd.Dataset:
    wd.DatasetBuilder("a/robot").add_episodes("demos", source, **options).publish()
    return wd.dataset("a/robot")


@pytest.mark.parametrize("form", FORMS)
def test_files_are_stored_byte_for_byte(tmp_path: Path, form: str) -> None:
    paths = save_all(tmp_path / "in", LENGTHS, **FORMS[form])
    dataset = publish(tmp_path / "in")
    reader = dataset.session.reader
    episodes = dataset.episodes()
    assert [reader.read(blob_key(episode.hash)).data for episode in episodes] == [path.read_bytes() for path in paths]
    assert [episode.identity for episode in episodes] == [identity(path) for path in paths]
    for episode, path in zip(episodes, paths, strict=True):
        same_episode(episode.load(), load_wshard(path))
    assert wd.verify(dataset).problems == ()


def test_all_kinds_of_sources_give_the_same_version(tmp_path: Path) -> None:
    paths = save_all(tmp_path / "in", LENGTHS)
    objects = [make_episode(number, length) for number, length in enumerate(LENGTHS)]
    sources: list[Any] = [
        tmp_path / "in",
        str(tmp_path / "in" / "*.wshard"),
        paths,
        [str(paths[0]), tmp_path / "in" / "00[12].wshard"],
        objects,
        iter(objects),
        [paths[0], objects[1], str(paths[2])],
    ]
    versions = {publish(source).version for source in sources}
    assert len(versions) == 1
    assert len(wd.dataset("a/robot").history()) == 1


def test_objects_are_saved_with_the_given_options() -> None:
    dataset = publish([make_episode(0, 64)], compression="zstd", time_chunk_steps=16)
    assert dataset.episodes()[0].chunks[0].file["signal/rgb"].entry.is_chunked


def test_an_episode_with_all_features_round_trips(tmp_path: Path) -> None:
    save_wshard(full_episode(), tmp_path / "full.wshard")
    same_episode(publish(tmp_path / "full.wshard").episodes()["full"].load(), load_wshard(tmp_path / "full.wshard"))


@needs_vectors
def test_files_of_another_implementation_are_published_unchanged() -> None:
    paths = sorted(vector("any").parent.glob("*.wshard"))
    assert len(paths) == 6
    dataset = publish(paths)
    for episode, path in zip(dataset.episodes(), paths, strict=True):
        same_episode(episode.load(), load_wshard(path))
        assert episode.identity == wshard_reader.identity(wshard_reader.read_blocks(path.read_bytes()))


def test_the_index_agrees_with_an_independent_reader(tmp_path: Path) -> None:
    """Read it with Arrow and the reference reader alone, as docs/specs/episodes.md describes it."""
    paths = save_all(tmp_path / "in", [3000, 5], per_block={"signal/joint": "zstd"})
    dataset = publish(paths)
    payload = dataset.manifest.episodes["demos"]
    assert payload.index is not None
    index = tmp_path / "index.parquet"
    index.write_bytes(dataset.session.reader.read(blob_key(payload.index.hash)).data)
    assert payload.attributes["check_bytes"] == EPISODES_CHECK_BYTES
    for row, path in zip(pq.read_table(index).to_pylist(), paths, strict=True):
        data = path.read_bytes()
        blocks = wshard_reader.read_blocks(data)
        assert row["identity"] == wshard_reader.identity(blocks)
        for piece in row["pieces"]:
            assert data[piece["start"] : piece["start"] + len(piece["data"])] == piece["data"]
        assert row["pieces"][0]["start"] == 0
        checks = {check["block"]: check["xxh3"] for check in row["checks"]}
        plain = [name for name in blocks if not name.startswith("meta/") and name != "signal/joint"]
        assert sorted(checks) == sorted(plain)
        for name, sums in checks.items():
            raw = blocks[name].data
            units = [raw[at : at + EPISODES_CHECK_BYTES] for at in range(0, len(raw), EPISODES_CHECK_BYTES)]
            assert np.frombuffer(sums, "<u8").tolist() == [xxhash.xxh3_64_intdigest(unit) for unit in units]
    assert max(len(check["xxh3"]) for check in pq.read_table(index)["checks"].to_pylist()[0]) > 8


def test_metadata_becomes_columns(tmp_path: Path) -> None:
    values: list[dict[str, Any]] = [
        {"ok": True, "n": 1, "x": 1, "who": "Ada", "mixed": 1, "Case": "kept", "case": "not", "nested": {"a": 1}},
        {"ok": False, "n": 2**40, "x": 0.5, "mixed": "two"},
        {"mixed": True, "big": 2**70},
    ]
    episodes = [Episode(f"e{number}", 0, metadata=value) for number, value in enumerate(values)]
    dataset = publish(episodes)
    cells = dataset.episodes().table().to_arrow()["metadata"].to_pylist()
    wanted = {"Case": "kept", "big": None, "mixed": "1", "n": 1, "ok": True, "who": "Ada", "x": 1.0}
    assert cells[0] == wanted
    assert [cell["mixed"] for cell in cells] == ["1", "two", "true"]
    assert [cell["big"] for cell in cells] == [None, None, float(2**70)]
    assert dict(dataset.episodes()[0].metadata) == values[0]


def test_unfinished_recordings_are_rejected(tmp_path: Path) -> None:
    with WShardStreamWriter(tmp_path / "run.wshard", "run", [{"id": "x", "dtype": "f32", "shape": [2]}]) as writer:
        writer.begin_episode()
        writer.write_timestep({"x": np.zeros(2, np.float32)})
    partial = tmp_path / "run.wshard.partial"
    for source in (partial, tmp_path, [str(partial)]):
        with pytest.raises(InvalidSourceError, match="has not ended") as caught:
            publish(source)
        assert f"warp episodes recover {partial}" in (caught.value.hint or "")
    recover(partial, remove_partial=True)
    assert len(publish(tmp_path).episodes()) == 1


def test_errors_name_invalid_sources(tmp_path: Path) -> None:
    save_wshard(make_episode(0, 9), tmp_path / "twice.wshard")
    save_wshard(make_episode(0, 8), tmp_path / "again.wshard")
    with pytest.raises(InvalidSourceError, match=r"have the id 'ep_000': .*again.wshard and .*twice.wshard"):
        publish(tmp_path)
    for source, said in (
        (tmp_path / "none.wshard", "none.wshard cannot be read"),
        (str(tmp_path / "*.nothing"), "no episode matches"),
        ([], "empty list"),
        (7, "cannot be made from a int"),
        ([Episode("bad", 3, rewards=np.zeros(2, np.float32))], "episode 'bad' cannot be saved"),
    ):
        with pytest.raises(InvalidSourceError, match=said):
            publish(source)
    builder = wd.DatasetBuilder("a/robot").add_episodes("demos", tmp_path)
    with pytest.raises(BadInputError, match="added twice"):
        builder.add_episodes("demos", tmp_path)
    with pytest.raises(BadInputError):
        builder.add_episodes("not a name", tmp_path)
    assert wd.list_datasets() == []


def test_corrupt_files_are_rejected_at_any_position(tmp_path: Path) -> None:
    """Bits in padding are ignored: no reader uses them, and they are stored unchanged."""
    (path,) = save_all(tmp_path, [40], seal=True)
    valid = path.read_bytes()
    used = np.zeros(len(valid), np.bool_)
    for block in wshard_reader.read_blocks(valid).values():
        used[block.offset : block.offset + len(block.stored)] = True
    rng = np.random.default_rng(0)
    for at in [*rng.choice(np.flatnonzero(used), 60, replace=False).tolist(), 0, 45, 70]:
        corrupt = bytearray(valid)
        corrupt[at] ^= 1 << int(rng.integers(8))
        path.write_bytes(corrupt)
        with pytest.raises(InvalidSourceError, match=r"000\.wshard"):
            publish(path)


def test_an_index_that_contradicts_its_files_is_rejected(tmp_path: Path) -> None:
    """An index can be made by hand, so readers compare it with the files."""
    import pyarrow as pa

    paths = save_all(tmp_path, [20])
    (row,) = pq.read_table(_index_of(publish(paths), tmp_path)).to_pylist()
    schema = pq.read_schema(tmp_path / "index.parquet")
    changes: list[dict[str, Any]] = [
        {"hash": "../../secret"},
        {"byte_size": -1},
        {"length": 21},
        {"id": "other"},
        {"pieces": []},
        {"pieces": [{"start": 3, "data": b"x"}]},
        {"pieces": [{"start": 0, "data": b"SHRD"}]},
        {"checks": [{"block": "signal/rgb", "xxh3": b"short"}]},
        {"layout": "[]"},
        {"layout": "not JSON"},
        {"layout": row["layout"].replace('"f32"', '"f33"')},
        {"layout": row["layout"].replace('"u8"', '"i8"')},
        {"layout": row["layout"].replace("[6,5,3]", "[6,5,4]")},
        {"layout": row["layout"].replace('"signal/rgb"', '"signal/imu"')},
    ]
    for number, change in enumerate(changes):
        table = pa.Table.from_pylist([row | change], schema)
        assert row != row | change
        episodes = _with_index(paths, table, tmp_path / f"{number}.parquet")
        with pytest.raises(WarpError):
            list(episodes.windows(keys={"rgb": (0, 2)}))
    table = pa.Table.from_pylist([row], schema)
    for name in ("hash", "pieces", "layout"):
        episodes = _with_index(paths, table.drop_columns([name]), tmp_path / f"{name}.parquet")
        with pytest.raises(CorruptError, match=f"no column '{name}'"):
            episodes[0]
    assert len(list(_with_index(paths, table, tmp_path / "true.parquet").windows(keys=["rgb"]))) == 1


def _index_of(dataset: wd.Dataset, directory: Path) -> Path:
    index = dataset.manifest.episodes["demos"].index
    assert index is not None
    path = directory / "index.parquet"
    path.write_bytes(dataset.session.reader.read(blob_key(index.hash)).data)
    return path


def _with_index(paths: list[Path], table: Any, path: Path) -> Episodes:
    """Open these files with an index made by hand."""
    pq.write_table(table, path, write_page_checksum=True)
    store = memory_store(str(path))
    found = describe_parquet(path)
    blobs = [fingerprint_file(each).blob for each in [*paths, path]]
    for each, blob in zip([*paths, path], blobs, strict=True):
        store.create(blob_key(blob.hash), each.read_bytes())
    shards = ShardList(tuple(Shard(blob.hash, blob.byte_size) for blob in blobs[:-1]))
    entry = EpisodesEntry(shards, blobs[-1], found.footer, table.num_rows, 20, EPISODES_CHECK_BYTES)
    context = EpisodesContext("a/robot", "0" * 64, store, load_settings(), lambda: 0.0)
    return Episodes(EpisodeIndex("demos", entry, context))


def test_publish_killed_at_every_operation_can_be_repeated(tmp_path: Path) -> None:
    paths = save_all(tmp_path, [5, 6, 7])

    def run(store: Any) -> wd.Dataset:
        wd.DatasetBuilder("a/robot", open_session(store, 1)).add_episodes("demos", paths).publish()
        return open_dataset(open_session(store), parse_address("a/robot"))

    counting = FaultyStore(memory_store("episodes-counted"))
    version = run(counting).version
    assert len(counting.log) > 8
    for at in range(len(counting.log)):
        store = memory_store(f"episodes-{at}")
        with pytest.raises(Killed):
            run(FaultyStore(store, KillAt(at, "after")))
        again = run(store)
        assert again.version == version
        assert [episode.length for episode in again.episodes()] == [5, 6, 7]
        assert len(again.history()) == 1


def test_append_info_warm_and_diff_include_episodes(tmp_path: Path) -> None:
    paths = save_all(tmp_path, LENGTHS)
    builder = wd.DatasetBuilder("a/robot").add_table("main", {"n": [1]}).add_episodes("demos", paths)
    assert builder.plan().episodes == {"demos": 3}
    first = builder.publish(label="v1")
    wd.DatasetBuilder("a/robot").append_table("main", {"n": [2]}).publish()
    dataset = wd.dataset("a/robot")
    assert dataset.version != first.version
    assert [episode.length for episode in dataset.episodes("demos")] == LENGTHS, "an append keeps them"
    (info,) = dataset.info().episodes
    assert (info.name, info.episodes, info.steps) == ("demos", 3, sum(LENGTHS))
    assert info.size_bytes == sum(path.stat().st_size for path in paths)
    hashes = {blob.hash for blob in dataset.blobs()}
    index = dataset.manifest.episodes["demos"].index
    assert index is not None
    assert {index.hash, *(episode.hash for episode in dataset.episodes())} <= hashes
    assert dataset.warm(episodes=["demos"]).blobs == 4
    wd.DatasetBuilder("a/robot").add_episodes("demos", paths[:2]).publish(replace=True)
    changes = {(change.section, change.name): change for change in wd.diff("a/robot@v1", "a/robot").changes}
    assert changes["episodes", "demos"].shards_removed == 1
    assert changes["tables", "main"].change == "removed"
