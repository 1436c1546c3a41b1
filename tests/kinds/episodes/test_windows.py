"""If this fails, an epoch repeats or skips a window, or a window has other steps than the recorded ones."""

from __future__ import annotations

import json
import threading
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import warpdata as wd
from tests.kinds.episodes.scenes import FORMS, KEYS, make_episode, memory_store, naive_window, open_session
from warpdata.datasets import open_dataset
from warpdata.errors import BadInputError, CorruptError, NotFoundError
from warpdata.kinds.episodes import Episodes
from warpdata.kinds.episodes.gather import WindowGroup
from warpdata.kinds.episodes.index import ChannelLayout
from warpdata.kinds.episodes.window_loader import WindowLoader
from warpdata.kinds.episodes.window_source import choose_blocks, row_cost
from warpdata.kinds.episodes.window_spec import WindowRequest, make_spec
from warpdata.limits import EPISODES_CHECK_BYTES
from warpdata.primitives.parallel import CPU_POOL, IO_POOL
from warpdata.repository.catalog import parse_address
from warpdata.storage import IOMetrics, MeteredReader
from warpdata.wshard import Channel, Episode, Timebase, save_wshard

LENGTHS = [23, 1, 40, 0, 7, 12]
EPISODES = [make_episode(number, length) for number, length in enumerate(LENGTHS)]
SLOW = settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])

pads = st.sampled_from(["edge", "zero", None])
strides = st.sampled_from([1, 2, 5, 30])
shuffles = st.sampled_from([False, True, wd.Shuffle(3, 4), wd.Shuffle(16, 2), wd.Shuffle(1, 1)])


@pytest.fixture(scope="module")
def sets(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], Episodes]:
    """Publish the same episodes in every form, to a local and a remote store."""
    out = {}
    for form, options in FORMS.items():
        directory = tmp_path_factory.mktemp(form)
        for number, episode in enumerate(EPISODES):
            save_wshard(episode, directory / f"{number}.wshard", **options)
        for place, store in (("local", (directory / "store").as_uri()), ("memory", f"memory://{directory.name}")):
            wd.DatasetBuilder("a/robot", store).add_episodes("demos", directory).publish()
            out[form, place] = wd.dataset("a/robot", store=store).episodes()
    return out


@pytest.fixture(scope="module")
def episodes(sets: dict[tuple[str, str], Episodes]) -> Episodes:
    return sets["plain", "local"]


def all_windows(stride: int, pad: str | None, history: int = 4, horizon: int = 6) -> list[tuple[int, int]]:
    """Return episode and step of every window, as the specification defines them."""
    out = []
    for number, length in enumerate(LENGTHS):
        steps = [t for t in range(length) if pad is not None or (t - history >= 0 and t + horizon <= length)]
        out += [(number, step) for step in steps[::stride]]
    return out


def places(batches: Any) -> list[list[tuple[int, int]]]:
    return [list(zip(batch["episode"].tolist(), batch["step"].tolist(), strict=True)) for batch in batches]


def flat(lists: list[list[tuple[int, int]]]) -> list[tuple[int, int]]:
    return [item for items in lists for item in items]


@given(
    st.sampled_from(sorted(FORMS)),
    st.sampled_from(["local", "memory"]),
    pads,
    strides,
    shuffles,
    st.tuples(st.integers(1, 40), st.integers(1, 5), st.integers(0, 2)),
)
@SLOW
def test_every_window_occurs_once_with_the_recorded_steps(
    sets: dict[tuple[str, str], Episodes],
    form: str,
    place: str,
    pad: Any,
    stride: int,
    shuffle: bool | wd.Shuffle,
    topology: tuple[int, int, int],
) -> None:
    batch_size, world, epoch = topology
    seen = []
    for rank in range(world):
        stream = sets[form, place].windows(
            keys=KEYS,
            history=4,
            horizon=6,
            stride=stride,
            pad=pad,
            mask=True,
            batch_size=batch_size,
            shuffle=shuffle,
            seed=3,
            shard=(rank, world),
        )
        for batch in stream.epoch(epoch):
            for at, (number, step) in enumerate(zip(batch["episode"], batch["step"], strict=True)):
                episode = EPISODES[number]
                seen.append((int(number), int(step)))
                for name, span in KEYS.items():
                    assert np.array_equal(batch[name][at], naive_window(episode, name, span, step, pad)), name
                    real = [0 <= t < episode.length for t in range(step + span[0], step + span[1])]
                    assert batch[f"{name}.mask"][at].tolist() == real
            assert all(array.flags.c_contiguous for array in batch.values())
    assert sorted(seen) == all_windows(stride, pad)


@given(shuffles, pads, st.integers(1, 24), st.sampled_from([1, 2, 3, 4, 6]), st.integers(0, 3), st.data())
@settings(SLOW, max_examples=15)
def test_resume_after_any_step_with_any_ranks_and_batch_size(
    episodes: Episodes,
    shuffle: bool | wd.Shuffle,
    pad: Any,
    batch_size: int,
    world: int,
    epoch: int,
    data: st.DataObject,
) -> None:
    """The resumed streams return the remaining windows in the same order."""

    def windows(size: int, rank: int, ranks: int) -> wd.Stream:
        keywords: dict[str, Any] = {"keys": {"ctrl": (0, 4)}, "pad": pad, "shuffle": shuffle, "seed": 11}
        return episodes.windows(**keywords, batch_size=size, shard=(rank, ranks))

    whole = flat(places(windows(7, 0, 1).epoch(epoch)))
    first = windows(batch_size, 0, 1)
    stop = data.draw(st.integers(1, len(first)))
    running = first.epoch(epoch)
    done = flat(places(batch for _, batch in zip(range(stop), running, strict=False)))
    running.close()
    assert done == whole[: len(done)]
    token = json.loads(json.dumps(first.state_dict()))
    other = data.draw(st.integers(1, 9))
    rest: list[tuple[int, int]] = []
    ranks = []
    for rank in range(world):
        stream = windows(other, rank, world)
        stream.load_state_dict(token)
        ranks.append(places(stream))
    assert len({len(batches) for batches in ranks}) == 1, "all ranks make the same number of steps"
    for step in range(len(ranks[0])):
        rest += [item for batches in ranks for item in batches[step]]
    assert rest == whole[len(done) :]


def test_order_and_plan_hash_are_stable() -> None:
    """Stored tokens stay valid. These values are from the first release."""
    from warpdata.kinds.episodes.window_source import WindowIdentity
    from warpdata.kinds.episodes.window_spec import WindowIndex, WindowKey, WindowSpec

    spec = WindowSpec(4, 16, 2, "edge", (WindowKey("rgb", -4, 0), WindowKey("ctrl", 0, 16)))
    windows = WindowIndex.of(spec, np.array([50, 0, 7, 120]))
    identity = WindowIdentity(
        dataset_id="a/robot",
        version="0" * 64,
        episodes="demos",
        filter="length > 5",
        windows=spec,
        sample_count=windows.count,
        seed=7,
        shuffle=wd.Shuffle(8, 3),
    )
    assert windows.count == 25 + 0 + 4 + 60
    assert identity.plan_hash == "d0ea102444bcf79e1b78cb9b720afb11767d627ef721b9c992a302ddae0b8cf2"
    positions, steps = windows.locate(identity.order(1).samples(0, 8))
    assert list(zip(positions.tolist(), steps.tolist(), strict=True)) == [
        (3, 44),
        (0, 14),
        (3, 86),
        (3, 92),
        (3, 48),
        (3, 40),
        (0, 12),
        (3, 100),
    ]


def test_tokens_of_other_windows_are_rejected(episodes: Episodes) -> None:
    keywords: dict[str, Any] = {"keys": {"ctrl": (0, 4)}, "history": 2, "horizon": 4, "shuffle": True, "seed": 1}
    token = episodes.windows(**keywords).state_dict()
    episodes.windows(**keywords, mask=True, batch_size=9).load_state_dict(token)
    for change in (
        {"keys": {"ctrl": (0, 3)}},
        {"keys": {"joint": (0, 4)}},
        {"history": 3},
        {"horizon": 5},
        {"stride": 2},
        {"pad": None},
        {"seed": 2},
        {"shuffle": False},
    ):
        with pytest.raises(BadInputError, match=r"windows|seed|shuffle"):
            episodes.windows(**(keywords | change)).load_state_dict(token)
    with pytest.raises(BadInputError, match="filter"):
        episodes.filter("length > 5").windows(**keywords).load_state_dict(token)
    wd.DatasetBuilder("a/rows").add_table("main", {"n": [1]}).publish()
    with pytest.raises(BadInputError):
        wd.dataset("a/rows").stream().load_state_dict(token)


def test_adjacent_windows_are_shuffled_together(episodes: Episodes) -> None:
    """Windows of one shuffle window come from few runs of adjacent steps."""
    stream = episodes.windows(keys=["ctrl"], shuffle=wd.Shuffle(8, 2), batch_size=16)
    first = sorted(places(stream.epoch(0))[0])
    jumps = sum(1 for a, b in pairwise(first) if b != (a[0], a[1] + 1))
    assert jumps <= 5, "two blocks, each of one or more episodes"


def test_windows_of_a_selection(episodes: Episodes) -> None:
    some = episodes.filter("env_id = 'Lift-v1' AND length > 10")
    assert {number for number, _ in flat(places(some.windows(keys=["ctrl"], batch_size=5)))} == {0, 2}
    with pytest.raises(BadInputError, match="no episode to take windows from"):
        episodes.filter("length > 99").windows(keys=["ctrl"])


def test_locate_and_find(episodes: Episodes) -> None:
    stream = episodes.filter("length > 10").windows(keys=["ctrl"], stride=3, shuffle=True, seed=5, batch_size=4)
    found = places(stream.epoch(1))
    assert [stream.locate(step, epoch=1) for step in range(len(found))] == found
    for step, items in enumerate(found):
        for number, at in items:
            assert stream.find(at, part=number, epoch=1) == (step, 0)
    for number, at in ((2, 1), (2, 99), (1, 0), (77, 0)):
        with pytest.raises(BadInputError):
            stream.find(at, part=number)
    assert "samples" in str(stream.explain())


def test_held_batches_do_not_change(episodes: Episodes) -> None:
    """The memory of a batch is reused only when no view of it is left."""
    stream = episodes.windows(keys={"rgb": (-2000, 2000)}, batch_size=2, prefetch=3)
    held = [batch["rgb"][1:, ::7] for batch in stream if len(batch["rgb"]) > 1]
    again = [batch["rgb"][1:, ::7].copy() for batch in stream.epoch(1) if len(batch["rgb"]) > 1]
    assert held[0].base is not None
    assert all(np.array_equal(one, two) for one, two in zip(held, again, strict=True))


@pytest.mark.parametrize("count", [1, 3])
def test_batches_are_written_into_given_arrays(episodes: Episodes, count: int) -> None:
    out: list[dict[str, Any]] = [
        {"ctrl": np.empty((5, 6, 4), np.float32), "step": np.empty(5, np.int64)} for _ in range(count)
    ]
    keywords: dict[str, Any] = {"keys": {"ctrl": (0, 6), "rgb": (0, 1)}, "batch_size": 5, "shuffle": True, "mask": True}
    for turn, (batch, plain) in enumerate(
        zip(episodes.windows(**keywords, out=out if count > 1 else out[0]), episodes.windows(**keywords), strict=True)
    ):
        assert np.shares_memory(batch["ctrl"], out[turn % count]["ctrl"])
        assert np.shares_memory(batch["step"], out[turn % count]["step"])
        assert batch.keys() == plain.keys()
        assert all(np.array_equal(batch[name], plain[name]) for name in plain)
    for wrong in (
        {"ctrl": np.empty((4, 6, 4), np.float32)},
        {"ctrl": np.empty((5, 6, 4))},
        {"ctrl": np.empty((5, 7, 4), np.float32)},
        {"ctrl": np.empty((5, 12, 4), np.float32)[:, ::2]},
        {"other": np.empty(5)},
        {"ctrl": [1.0]},
    ):
        with pytest.raises(BadInputError, match="out"):
            episodes.windows(**keywords, out=wrong)  # type: ignore[arg-type]


def test_collate_and_transform(episodes: Episodes) -> None:
    torch = pytest.importorskip("torch")
    keywords: dict[str, Any] = {"keys": {"ctrl": (0, 3)}, "batch_size": 4}
    plain = next(iter(episodes.windows(**keywords)))
    tensors = next(iter(episodes.windows(**keywords, collate="torch")))
    assert torch.equal(tensors["ctrl"], torch.from_numpy(plain["ctrl"]))
    lists = next(iter(episodes.windows(**keywords, collate="dict")))
    assert [value.shape for value in lists["ctrl"]] == [(3, 4)] * 4
    summed = next(iter(episodes.windows(**keywords, transform=lambda sample: {"sum": sample["ctrl"].sum(axis=0)})))
    assert np.array_equal(summed["sum"], plain["ctrl"].sum(axis=1))
    with pytest.raises(BadInputError, match="arrays, not rows"):
        episodes.windows(**keywords, collate="arrow")


def test_batches_keep_every_element_type() -> None:
    from tests.formats.wshard.scenes import full_episode

    wd.DatasetBuilder("a/zoo").add_episodes("demos", [full_episode(9)]).publish()
    episodes = wd.dataset("a/zoo").episodes()
    names = [name for name in episodes[0].blocks if name.endswith("_ch")]
    assert len(names) == 13
    (batch,) = episodes.windows(keys=names, batch_size=9)
    for name in names:
        assert np.array_equal(batch[name][:, 0], episodes[0][name].read()), name
        assert batch[name].dtype == episodes[0][name].read().dtype
    torch = pytest.importorskip("torch")
    (tensors,) = episodes.windows(keys=["bf16_ch"], batch_size=9, collate="torch")
    assert tensors["bf16_ch"].dtype is torch.bfloat16
    assert torch.equal(tensors["bf16_ch"].float(), torch.from_numpy(batch["signal/bf16_ch"].astype(np.float32)))


def test_keys_default_to_all_observations_and_actions(episodes: Episodes) -> None:
    batch = next(iter(episodes.windows(history=2, horizon=3, batch_size=2)))
    shapes = {name: array.shape[1:2] for name, array in batch.items()}
    assert shapes == {"rgb": (5,), "joint": (5,), "imu": (5,), "ctrl": (5,), "episode": (), "step": ()}


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"keys": {"nothing": (0, 1)}}, "has no channel 'nothing'"),
        ({"keys": {"ctrl": (3, 3)}}, "is empty"),
        ({"keys": {"ctrl": (-3, 3)}, "history": 2}, "not within"),
        ({"keys": {"ctrl": (0, 3)}, "horizon": 2}, "not within"),
        ({"keys": {"ctrl": 3}}, "not a range"),
        ({"keys": {"ctrl": (0, 1.5)}}, "not a range"),
        ({"keys": {"ctrl": (0, 1), "step": (0, 1)}}, "another meaning"),
        ({"keys": "ctrl"}, "names no channel"),
        ({"keys": {}}, "names no channel"),
        ({"stride": 0}, "stride"),
        ({"history": -1}, "history"),
        ({"horizon": 2**40}, "not within"),
        ({"pad": "wrap"}, "pad"),
        ({"seed": "x"}, "seed"),
        ({"prefetch": "much"}, "prefetch"),
        ({"shard": (3, 2)}, "rank"),
        ({"batch_size": 0}, "batch_size"),
    ],
)
def test_invalid_arguments_are_rejected(episodes: Episodes, keywords: dict[str, Any], message: str) -> None:
    with pytest.raises((BadInputError, NotFoundError), match=message):
        episodes.windows(**{"keys": {"ctrl": (0, 1)}, **keywords})


def test_unknown_keywords_are_rejected(episodes: Episodes) -> None:
    for open_windows in (episodes.windows, episodes.to_torch):
        with pytest.raises(TypeError, match="Did you mean stride"):
            open_windows(keys=["ctrl"], strid=2)  # type: ignore[call-arg]


def test_errors_name_episodes_with_other_channels() -> None:
    def lone(number: int, width: int, **more: Any) -> Episode:
        return Episode(f"e{number}", 5, observations={"x": Channel("x", np.zeros((5, width), np.float32), **more)})

    made = [lone(0, 2), lone(1, 2), lone(2, 3), Episode("e3", 5, rewards=np.zeros(5, np.float32))]
    wd.DatasetBuilder("a/kinds").add_episodes("demos", made).publish()
    episodes = wd.dataset("a/kinds").episodes()
    with pytest.raises(BadInputError, match=r"f32\[3\] in episode 2 of 'demos', and f32\[2\] in another"):
        episodes.filter("id < 'e3'").windows(keys=["x"])
    with pytest.raises(NotFoundError, match="episode 3 of 'demos' has no channel 'x'"):
        episodes.filter("id <> 'e2'").windows(keys=["x"])
    assert len(flat(places(episodes.filter("id < 'e2'").windows(keys=["x"])))) == 10


def test_a_channel_rate_needs_a_timebase() -> None:
    imu = Channel("imu", np.zeros((20, 2), np.float32), attributes={"sampling_rate_hz": 100})
    wd.DatasetBuilder("a/rate").add_episodes("demos", [Episode("e", 5, observations={"imu": imu})]).publish()
    with pytest.raises(BadInputError, match="neither rate nor timestamps"):
        list(wd.dataset("a/rate").episodes().windows(keys=["imu"]))


def test_rows_are_aligned_by_rate_without_timestamps() -> None:
    """Each step of 1/30 s has three rows, and the last row repeats."""
    imu = Channel("imu", np.arange(20, dtype=np.int64), attributes={"sampling_rate_hz": 90})
    episode = Episode("e", 8, timebase=Timebase("ticks", 30.0), observations={"imu": imu})
    wd.DatasetBuilder("a/rate").add_episodes("demos", [episode]).publish()
    (batch,) = wd.dataset("a/rate").episodes().windows(keys={"imu": (0, 1)})
    assert batch["imu"][:, 0].tolist() == [0, 3, 6, 9, 12, 15, 18, 19]


@pytest.mark.parametrize("form", ["plain", "chunks", "zstd"])
def test_a_remote_epoch_fetches_about_the_size_of_its_channels(tmp_path: Path, form: str) -> None:
    """Overlapping windows share steps, so windows of sixteen steps do not fetch sixteen times the bytes."""
    store = memory_store(f"epoch-{form}")
    paths = []
    for number in range(6):
        rng = np.random.default_rng(number)
        rgb = rng.integers(0, 9, (200, 32, 32, 3), dtype=np.uint8)
        paths.append(tmp_path / f"{number}.wshard")
        episode = Episode(f"e{number}", 200, observations={"rgb": Channel("rgb", rgb), "x": Channel("x", rgb[:, 0])})
        save_wshard(episode, paths[-1], **FORMS[form])
    wd.DatasetBuilder("a/robot", open_session(store)).add_episodes("demos", paths).publish()
    counters = IOMetrics()
    connection = open_session(MeteredReader(store, counters))  # type: ignore[arg-type]
    episodes = open_dataset(connection, parse_address("a/robot")).episodes()
    stream = episodes.windows(keys={"rgb": (0, 16)}, shuffle=True, batch_size=32)
    before = counters.snapshot()
    assert len(flat(places(stream.epoch(0)))) == 1200
    spent = counters.snapshot().since(before)
    size = sum(episode.chunks[0].file["signal/rgb"].entry.stored_bytes for episode in episodes)
    assert spent.bytes_fetched <= 1.6 * size + 6 * EPISODES_CHECK_BYTES
    assert spent.requests <= 24


@pytest.mark.parametrize("place", ["local", "memory"])
@pytest.mark.parametrize("form", sorted(FORMS))
def test_windows_loaded_one_by_one_are_the_same(
    sets: dict[tuple[str, str], Episodes], form: str, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shuffle window that is too large for memory is not loaded ahead."""
    keywords: dict[str, Any] = {"keys": KEYS, "stride": 2, "shuffle": wd.Shuffle(4, 1000), "batch_size": 9}
    ahead = list(sets[form, place].windows(**keywords))
    monkeypatch.setattr("warpdata.kinds.episodes.window_source._MAX_SHUFFLE_FACTOR", 0)
    alone = list(sets[form, place].windows(**keywords))
    for one, two in zip(ahead, alone, strict=True):
        assert all(np.array_equal(one[name], two[name]) for name in one)


def test_distant_windows_do_not_fetch_the_steps_between(tmp_path: Path) -> None:
    rgb = np.random.default_rng(0).integers(0, 256, (100, 256, 256), dtype=np.uint8)
    save_wshard(Episode("e", 100, observations={"rgb": Channel("rgb", rgb)}), tmp_path / "e.wshard")
    store, counters = memory_store("far-apart"), IOMetrics()
    wd.DatasetBuilder("a/robot", open_session(store)).add_episodes("demos", tmp_path / "e.wshard").publish()
    connection = open_session(MeteredReader(store, counters))  # type: ignore[arg-type]
    episodes = open_dataset(connection, parse_address("a/robot")).episodes()
    episodes.windows(keys={"rgb": (0, 2)})
    before = counters.snapshot()
    (batch,) = episodes.windows(keys={"rgb": (0, 2)}, stride=30)
    assert [step.tolist() for step in batch["step"]] == [0, 30, 60, 90]
    assert np.array_equal(batch["rgb"][2], rgb[60:62])
    assert counters.snapshot().since(before).bytes_fetched == 4 * 2 * 256 * 256


def test_mix_rejects_windows(episodes: Episodes) -> None:
    with pytest.raises(BadInputError, match="only streams of tables"):
        wd.mix({episodes.windows(keys=["ctrl"]): 1.0})


def test_tasks_end_with_the_loop(episodes: Episodes, sets: dict[tuple[str, str], Episodes]) -> None:
    def other_threads() -> int:
        """Count threads that do not belong to a pool of the process, whose threads end when idle."""
        return sum(not thread.name.startswith("warpdata-") for thread in threading.enumerate())

    before = other_threads()
    for chosen in (episodes, sets["chunks", "memory"]):
        running = chosen.windows(keys={"rgb": (0, 2)}, batch_size=3, shuffle=True).epoch(0)
        next(running)
        running.close()
    assert other_threads() <= before
    executors = [*IO_POOL._executors, *CPU_POOL._executors]
    assert not any(executor._running or executor._waiting for executor in executors)


@pytest.mark.parametrize("shuffle", [True, wd.Shuffle(1, 10**6), False], ids=str)
@pytest.mark.parametrize("form", ["plain", "chunks", "zstd"])
def test_windows_with_corrupt_rows_are_not_returned(tmp_path: Path, form: str, shuffle: bool | wd.Shuffle) -> None:
    """Covers gathered rows, rows decoded alone and mapped rows. Windows of other steps are still correct."""
    rng = np.random.default_rng(1)
    rgb = rng.integers(0, 6, (64, 9, 9), dtype=np.uint8)
    episode = Episode("a", 64, "E", Timebase("ticks", 30.0), observations={"rgb": Channel("rgb", rgb)})
    save_wshard(episode, tmp_path / "a.wshard", **FORMS[form])
    store = (tmp_path / "store").as_uri()
    wd.DatasetBuilder("a/robot", store).add_episodes("demos", tmp_path / "a.wshard").publish()
    stored = wd.dataset("a/robot", store=store).episodes()[0]
    reader = stored.chunks[0].file["signal/rgb"]
    start, end = reader.span(40, 41)
    path = next(path for path in (tmp_path / "store").rglob(f"*{stored.hash}*") if path.is_file())
    path.chmod(0o644)
    data = bytearray(path.read_bytes())
    data[(start + end) // 2] ^= 1
    path.write_bytes(data)
    episodes = wd.dataset("a/robot", store=store).episodes()
    stream = episodes.windows(keys={"rgb": (0, 4)}, pad=None, batch_size=1, shuffle=shuffle, seed=2)
    seen = set()

    def train() -> None:
        for batch in stream.epoch(0):
            step = int(batch["step"][0])
            assert np.array_equal(batch["rgb"][0], rgb[step : step + 4])
            seen.add(step)

    with pytest.raises(CorruptError):
        train()
    assert not seen & {37, 38, 39, 40}


def test_small_groups_are_loaded_ahead(sets: dict[tuple[str, str], Episodes]) -> None:
    stream = sets["chunks", "local"].windows(keys={"rgb": (0, 4)}, batch_size=4, shuffle=wd.Shuffle(4, 2), seed=1)
    loader = stream.source.open(0, stream._owned(stream.schedule(0)), with_media=False)
    assert isinstance(loader, WindowLoader)
    for position in range(0, 32, 4):
        loader.arrays([(position, position + 4)], 0)
        assert len(loader._blocks._loading) == 8
        loader.advance(position)
    loader.close()


def test_a_large_shuffle_opens_with_a_small_window() -> None:
    camera = ChannelLayout("rgb", "signal/rgb", "u8", (84, 84))
    spec = make_spec(WindowRequest({"rgb": (0, 16)}, pad=None), [camera])
    large, small = (choose_blocks(count, row_cost(84 * 84, spec)) for count in (200_000, 3_000))
    assert (large.block_rows, large.window_blocks, large.opening_blocks) == (256, 139, 16)
    assert (small.window_blocks, small.opening_blocks) == (12, 0)


def test_a_stream_keeps_few_groups_in_memory(
    sets: dict[tuple[str, str], Episodes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loader keeps the current group and one ahead, or one whose last batch is being delivered."""
    made: list[int] = []
    init = WindowGroup.__init__

    def counted(self: WindowGroup, *args: Any) -> None:
        init(self, *args)
        made.append(sum(array.nbytes for array in self.arrays.values()))

    monkeypatch.setattr(WindowGroup, "__init__", counted)
    episodes = sets["chunks", "local"]
    stream = episodes.windows(keys={"rgb": (0, 4)}, batch_size=4, shuffle=wd.Shuffle(4, 2), seed=1)
    loader = stream.source.open(0, stream._owned(stream.schedule(0)), with_media=False)
    assert isinstance(loader, WindowLoader)
    monkeypatch.setattr(loader._blocks, "_max_groups", 3)
    monkeypatch.setattr(loader._blocks, "_max_ahead", 2)
    for position in range(0, len(stream) * 4 - 4, 4):
        loader.arrays([(position, position + 4)], 0)
        assert len(loader._blocks._loading) == 2
        loader.advance(position)
    loader.close()
    assert len(made) > 5
    assert max(made) <= 8 * (4 + 4) * 6 * 5 * 3
