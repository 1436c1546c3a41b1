"""If this fails, a stored episode differs from the published one, or reading it fetches more bytes than it has."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import warpdata as wd
from tests.kinds.episodes.scenes import FORMS, make_episode, memory_store, open_session, save_all
from warpdata.datasets import open_dataset
from warpdata.errors import (
    BadInputError,
    CorruptError,
    EpisodeNotFoundError,
    NotFoundError,
)
from warpdata.kinds.episodes import Episodes, index_writer
from warpdata.kinds.episodes.channel_reader import ChannelReader
from warpdata.kinds.episodes.index import ChannelLayout
from warpdata.kinds.episodes.window_source import WindowSource
from warpdata.limits import EPISODES_CHECK_BYTES
from warpdata.primitives.hashing import blob_key
from warpdata.repository.catalog import parse_address
from warpdata.session import Session
from warpdata.storage import IOMetrics, MeteredReader
from warpdata.testing import S3Endpoint
from warpdata.wshard import Channel, Episode, load_wshard, save_wshard

SLOW = settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


@pytest.fixture
def episodes(tmp_path: Path) -> Episodes:
    wd.DatasetBuilder("a/robot").add_episodes("demos", save_all(tmp_path / "in", [12, 1, 30, 4])).publish()
    return wd.dataset("a/robot").episodes("demos")


def test_episodes_are_found_by_position_id_and_iteration(episodes: Episodes) -> None:
    assert len(episodes) == 4
    assert [episode.id for episode in episodes] == ["ep_000", "ep_001", "ep_002", "ep_003"]
    assert episodes[2].id == episodes[-2].id == episodes["ep_002"].id == episodes[np.int64(2)].id  # type: ignore[index]
    assert "ep_002" in episodes
    assert "ep_009" not in episodes
    assert 2 not in episodes
    for key in (4, -5, "ep_009", "p_002"):
        with pytest.raises(EpisodeNotFoundError):
            episodes[key]
    with pytest.raises(BadInputError, match="filter"):
        episodes[1:2]  # type: ignore[index]
    with pytest.raises(EpisodeNotFoundError, match="Did you mean ep_002") as caught:
        episodes["p_002"]
    assert isinstance(caught.value, IndexError)


def test_sets_are_found_by_name(tmp_path: Path) -> None:
    paths = save_all(tmp_path / "in", [3])
    wd.DatasetBuilder("a/two").add_episodes("demos", paths).add_episodes("more", paths).publish()
    dataset = wd.dataset("a/two")
    assert len(dataset.episodes("more")) == 1
    for name, said in ((None, "2 sets of episodes"), ("demo", "Did you mean demos")):
        with pytest.raises(EpisodeNotFoundError, match=said):
            dataset.episodes(name)
    wd.DatasetBuilder("a/none").add_table("main", {"n": [1]}).publish()
    with pytest.raises(EpisodeNotFoundError, match="0 sets"):
        wd.dataset("a/none").episodes()


def test_table_has_one_row_for_each_episode(episodes: Episodes) -> None:
    table = episodes.table()
    assert table.count() == 4
    assert not {"pieces", "checks", "layout"} & set(table.schema().names)
    assert table.to_arrow()["length"].to_pylist() == [12, 1, 30, 4]
    assert table.filter("env_id = 'Lift-v1' AND length > 10").count() == 2
    assert table.to_arrow()["channels"].to_pylist()[0][:3] == ["rgb", "joint", "imu"]
    assert table.duckdb().filter("metadata.success").count("*").fetchone() == (2,)


def test_filter_selects_episodes(episodes: Episodes) -> None:
    some = episodes.filter("length > 3").filter("metadata.operator = 'person 0'")
    assert [episode.id for episode in some] == ["ep_000", "ep_002"]
    assert len(some) == some.table().count() == 2
    assert some[-1].id == some["ep_002"].id == "ep_002"
    assert "ep_001" not in some
    assert list(some.numbers) == [0, 2]
    with pytest.raises(EpisodeNotFoundError):
        some["ep_001"]
    with pytest.raises(EpisodeNotFoundError, match="has 2 episodes"):
        some[2]
    assert len(episodes.filter("length > 1000")) == 0
    assert len(episodes) == 4


def test_channels_are_found_by_id_or_block_name(episodes: Episodes, tmp_path: Path) -> None:
    episode = episodes[2]
    assert (episode.length, len(episode), episode.env_id, episode.timebase.hz) == (30, 30, "Lift-v1", 30.0)
    assert np.array_equal(episode["rgb"].read(), episode["signal/rgb"].read())
    assert episode.block_name("ctrl") == "action/ctrl"
    with pytest.raises(NotFoundError, match="has no channel 'rbg'"):
        episode["rbg"]
    same = {"x": Channel("x", np.zeros((2, 1), np.float32))}
    other = Episode("both", 2, observations=same, actions=same)
    wd.DatasetBuilder("a/both").add_episodes("demos", [other]).publish()
    with pytest.raises(BadInputError, match="signal/x or action/x"):
        wd.dataset("a/both").episodes()[0]["x"]


@pytest.mark.parametrize("place", ["local", "memory"])
@SLOW
@given(st.sampled_from(sorted(FORMS)), st.data())
def test_any_window_of_any_block_equals_the_saved_rows(place: str, form: str, data: st.DataObject) -> None:
    loaded, episode = _published(form, place)
    block = data.draw(st.sampled_from(["signal/rgb", "signal/joint", "signal/imu", "action/ctrl", "reward", "done"]))
    whole = episode[block].read()
    start = data.draw(st.integers(0, len(whole)))
    stop = data.draw(st.integers(start, len(whole)))
    expected = {"reward": loaded.rewards, "done": loaded.terminations}.get(block)
    if expected is None:
        expected = loaded.lanes()[block].data
    assert np.array_equal(whole, expected)
    assert np.array_equal(episode[block].window(start, stop), expected[start:stop])
    assert np.array_equal(episode.read([block])[block], expected)
    assert np.array_equal(episode.load([block]).length, loaded.length)


_made: dict[tuple[str, str], tuple[Episode, Any]] = {}


def _published(form: str, place: str) -> tuple[Episode, Any]:
    if (form, place) not in _made:
        import tempfile

        directory = Path(tempfile.mkdtemp())
        save_wshard(make_episode(1, 9000), directory / "e.wshard", **FORMS[form])
        store = f"memory://{directory.name}" if place == "memory" else (directory / "store").as_uri()
        wd.DatasetBuilder("a/robot", store).add_episodes("demos", directory / "e.wshard").publish()
        _made[form, place] = load_wshard(directory / "e.wshard"), wd.dataset("a/robot", store=store).episodes()[0]
    return _made[form, place]


def counted(connection: Session) -> tuple[Session, IOMetrics]:
    """Open the same store with a reader that counts requests."""
    from dataclasses import replace

    counters = IOMetrics()
    return replace(connection, reader=MeteredReader(connection.writer, counters), media=None), counters


def save_twenty_channels(directory: Path) -> list[Path]:
    """Save three files with twenty channels of 200 kB each."""
    paths = [directory / f"{number}.wshard" for number in range(3)]
    for number, path in enumerate(paths):
        rng = np.random.default_rng(number)
        channels = {f"c{n:02d}": Channel(f"c{n:02d}", rng.random((1000, 50), np.float32)) for n in range(20)}
        save_wshard(Episode(f"e{number}", 1000, observations=channels), path)
    return paths


@pytest.mark.s3
def test_two_of_twenty_channels_fetch_little_more_than_their_size(
    s3_server: S3Endpoint, s3_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in s3_server.environ().items():
        monkeypatch.setenv(name, value)
    paths = save_twenty_channels(tmp_path)
    wd.DatasetBuilder("a/robot", s3_url).add_episodes("demos", paths).publish()
    whole = load_wshard(paths[1])
    for mode in ("remote", "auto"):
        dataset = wd.dataset("a/robot", store=s3_url, mode=mode)
        before = dataset.io_stats
        taken = dataset.episodes("demos")[1].read(["c03", "c17"])
        spent = dataset.io_stats.since(before)
        size = sum(array.nbytes for array in taken.values())
        assert size == 2 * 200_000
        assert spent.requests <= 3
        assert spent.bytes_fetched <= 1.1 * size
        for name, array in taken.items():
            assert np.array_equal(array, whole.observations[name].data)


def test_opening_more_episodes_sends_no_request(tmp_path: Path) -> None:
    store = memory_store("opening")
    wd.DatasetBuilder("a/robot", open_session(store)).add_episodes("demos", save_twenty_channels(tmp_path)).publish()
    connection, counters = counted(open_session(store))
    episodes = open_dataset(connection, parse_address("a/robot")).episodes()
    first = counters.snapshot().requests
    assert [episode.info.length for episode in episodes] == [1000] * 3
    assert episodes["e1"]["c03"].block_type.rows == 1000
    assert episodes.table().to_arrow().num_rows == 3
    assert counters.snapshot().requests - first == 1, "the index, once"
    before = counters.snapshot()
    episodes[0]["c05"].window(10, 12)
    spent = counters.snapshot().since(before)
    assert (spent.requests, spent.bytes_fetched) == (1, EPISODES_CHECK_BYTES)


def test_a_large_index_is_read_by_row_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("warpdata.kinds.episodes.index_writer._ROW_GROUP_BYTES", 40_000)
    monkeypatch.setattr("warpdata.kinds.episodes.index._WHOLE_INDEX_BYTES", 1000)
    monkeypatch.setattr("warpdata.formats.parquet.shard.SMALL_SHARD_BYTES", 1000)
    store = memory_store("large-index")
    many = [Episode(f"e{n}", 2, rewards=np.zeros(2, np.float32), metadata={"n": n}) for n in range(200)]
    wd.DatasetBuilder("a/robot", open_session(store)).add_episodes("demos", many).publish()
    connection, counters = counted(open_session(store))
    dataset = open_dataset(connection, parse_address("a/robot"))
    index = dataset.manifest.episodes["demos"].index
    assert index is not None
    before = counters.snapshot()
    assert dataset.episodes()[150].metadata["n"] == 150
    spent = counters.snapshot().since(before)
    assert spent.requests == 2, "the footer and one row group"
    assert spent.bytes_fetched < index.byte_size * 0.7
    assert [episode.metadata["n"] for episode in dataset.episodes()] == list(range(200))


@pytest.mark.parametrize("place", ["local", "memory"])
@pytest.mark.parametrize("form", ["plain", "zstd", "chunks"])
def test_a_flipped_bit_fails_every_read_that_needs_it(tmp_path: Path, place: str, form: str) -> None:
    """Includes reads of a part of an uncompressed block."""
    save_wshard(make_episode(1, 3000), tmp_path / "e.wshard", **FORMS[form])
    store = wd.connect(f"memory://flips-{form}" if place == "memory" else (tmp_path / "store").as_uri()).writer
    wd.DatasetBuilder("a/robot", open_session(store)).add_episodes("demos", tmp_path / "e.wshard").publish()

    def opened() -> Any:
        return open_dataset(open_session(store), parse_address("a/robot")).episodes()[0]

    entry, key = opened()["rgb"].entry, blob_key(opened().hash)
    valid = store.read(key).data
    at = entry.offset + entry.stored_bytes // 2
    row = 1500
    reads: list[Callable[[Any], Any]] = [
        lambda episode: episode["rgb"].read(),
        lambda episode: episode.read(["rgb"]),
        lambda episode: episode.load(["rgb"]),
        lambda episode: episode.load(),
        lambda episode: episode["rgb"].window(row - 200, row + 200),
    ]
    store.replace(key, valid[:at] + bytes([valid[at] ^ 4]) + valid[at + 1 :])
    for read in reads:
        with pytest.raises(CorruptError):
            read(opened())
    episode = opened()
    assert np.array_equal(episode["joint"].read(), make_episode(1, 3000).observations["joint"].data)
    if form != "zstd":
        assert episode["rgb"].window(10, 20).shape == (10, 6, 5, 3), "other rows are still valid"
    windows = open_dataset(open_session(store), parse_address("a/robot")).episodes().windows(keys={"rgb": (0, 4)})
    with pytest.raises(CorruptError):
        list(windows)


def test_a_corrupt_index_is_rejected(tmp_path: Path) -> None:
    paths = save_all(tmp_path, [20, 30])
    for place in ("memory", "local"):
        store = wd.connect("memory://bad-index" if place == "memory" else (tmp_path / "store").as_uri()).writer
        wd.DatasetBuilder("a/robot", open_session(store)).add_episodes("demos", paths).publish()
        dataset = open_dataset(open_session(store), parse_address("a/robot"))
        index = dataset.manifest.episodes["demos"].index
        assert index is not None
        key = blob_key(index.hash)
        valid = store.read(key).data
        truth = load_wshard(paths[1])
        for at in range(0, len(valid), 997):
            store.replace(key, valid[:at] + bytes([valid[at] ^ 16]) + valid[at + 1 :])
            try:
                found = open_dataset(open_session(store), parse_address("a/robot")).episodes()[1].load()
            except CorruptError:
                continue
            assert np.array_equal(found.rewards, truth.rewards)  # type: ignore[arg-type]
            assert place == "local", "a small remote index is verified whole"


@pytest.mark.s3
def test_warmed_episodes_need_no_network(
    s3_server: S3Endpoint, s3_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in s3_server.environ().items():
        monkeypatch.setenv(name, value)
    paths = save_all(tmp_path / "in", [40, 50])
    wd.DatasetBuilder("a/robot", s3_url).add_episodes("demos", paths).publish()
    wd.dataset("a/robot", store=s3_url).warm()
    episodes = wd.dataset("a/robot", store=s3_url, mode="local").episodes()
    assert np.array_equal(episodes[1].load().rewards, load_wshard(paths[1]).rewards)  # type: ignore[arg-type]
    assert sum(len(batch["step"]) for batch in episodes.windows(keys={"rgb": (0, 4)})) == 90


@pytest.mark.s3
@pytest.mark.parametrize("how", ["window", "read", "windows"])
def test_a_corrupt_cached_copy_is_replaced(
    s3_server: S3Endpoint, s3_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    for name, value in s3_server.environ().items():
        monkeypatch.setenv(name, value)
    paths = save_all(tmp_path / "in", [3000])
    wd.DatasetBuilder("a/robot", s3_url).add_episodes("demos", paths).publish()
    wd.dataset("a/robot", store=s3_url).warm()
    dataset = wd.dataset("a/robot", store=s3_url)
    episode = dataset.episodes()[0]
    (copy,) = wd.load_settings().cache_dir.rglob(episode.hash)
    entry, corrupt = episode.chunks[0].file["signal/rgb"].entry, bytearray(copy.read_bytes())
    corrupt[entry.offset + entry.stored_bytes // 2] ^= 4
    copy.chmod(0o644)
    copy.write_bytes(corrupt)
    if how == "windows":
        batches = list(dataset.episodes().windows(keys={"rgb": (0, 1)}, batch_size=100))
        found = np.concatenate([batch["rgb"] for batch in batches])[:, 0]
    else:
        found = episode["rgb"].window(0, 3000) if how == "window" else episode.read(["rgb"])["rgb"]
    assert np.array_equal(found, make_episode(0, 3000).observations["rgb"].data)
    assert dataset.io_stats.healed >= 1, "several threads may find the corruption together"


@pytest.mark.s3
def test_verified_rows_are_verified_again_in_another_copy(
    s3_server: S3Endpoint, s3_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bytes may become corrupt after their verification, on a failing disk."""
    for name, value in s3_server.environ().items():
        monkeypatch.setenv(name, value)
    paths = save_all(tmp_path / "in", [300])
    wd.DatasetBuilder("a/robot", s3_url).add_episodes("demos", paths).publish()
    wd.dataset("a/robot", store=s3_url).warm()
    (file,) = wd.dataset("a/robot", store=s3_url).episodes()[0].chunks
    rgb = make_episode(0, 300).observations["rgb"].data
    reader = ChannelReader(file, ChannelLayout("rgb", "signal/rgb", "u8", rgb.shape[1:]))
    assert reader.verified_rows(0, 300) is None, "no row is verified yet"
    assert np.array_equal(reader.mapped_rows(0, 300), rgb)  # type: ignore[arg-type]
    assert np.array_equal(reader.verified_rows(10, 20), rgb[10:20])  # type: ignore[arg-type]
    (copy,) = wd.load_settings().cache_dir.rglob(file.hash)
    copy.chmod(0o644)
    with copy.open("r+b") as open_copy:
        open_copy.seek(file.file["signal/rgb"].entry.offset)
        open_copy.write(b"\xff" * 64)
    assert file.source.invalidate(file.source.generation)
    assert reader.verified_rows(0, 300) is None


@pytest.mark.s3
@pytest.mark.parametrize("are_grouped", [True, False])
def test_a_corrupt_cached_seek_table_is_replaced(
    s3_server: S3Endpoint, s3_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, are_grouped: bool
) -> None:
    """A seek table that does not fit into the index is read from the cached copy, and once more if that is corrupt."""
    for name, value in s3_server.environ().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(index_writer, "EPISODES_KNOWN_BYTES", 4096)
    rows = np.random.default_rng(1).integers(0, 9, (1000, 100), np.uint8).repeat(10, axis=1)
    episode = Episode("long", 1000, observations={"rgb": Channel("rgb", rows)})
    save_wshard(episode, tmp_path / "long.wshard", compression="zstd", time_chunk_steps=2)
    wd.DatasetBuilder("a/robot", s3_url).add_episodes("demos", tmp_path / "long.wshard").publish()
    wd.dataset("a/robot", store=s3_url).warm()
    dataset = wd.dataset("a/robot", store=s3_url)
    (file,) = dataset.episodes()[0].chunks
    (copy,) = wd.load_settings().cache_dir.rglob(file.hash)
    corrupt = bytearray(copy.read_bytes())
    assert file.file["signal/rgb"].entry.is_chunked
    corrupt[file.file["signal/rgb"].entry.end - 10] ^= 4  # in the checksum of the last chunk
    copy.chmod(0o644)
    copy.write_bytes(corrupt)
    if not are_grouped:  # as if groups were too large for memory
        monkeypatch.setattr(WindowSource, "_max_groups", 0)
    batches = list(dataset.episodes().windows(keys={"rgb": (0, 1)}, batch_size=100, shuffle=True, seed=1))
    found = {int(step): row for batch in batches for step, row in zip(batch["step"], batch["rgb"][:, 0], strict=True)}
    assert np.array_equal(np.stack([found[step] for step in range(1000)]), rows)
    assert dataset.io_stats.healed >= 1
