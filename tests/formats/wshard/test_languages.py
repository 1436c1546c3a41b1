"""If this fails, the Go or the TypeScript library reads or writes other episodes than the Python library.

Each package is built once into a temporary directory, and answers the same questions as the Python library. Skipped
for a language whose compiler or libraries are not here.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.formats.wshard.chunk_scenes import long_episode, pieces
from tests.formats.wshard.drivers import (
    Driver,
    compare_blocks,
    described,
    judge_damaged,
    judge_lies,
    known_files,
    sha256,
    verdict_here,
)
from tests.formats.wshard.scenes import RawFile, full_episode, same_episode, write
from tests.formats.wshard.test_rejected import CONTAINER, METADATA, valid_file
from tests.formats.wshard.test_round_trip import episodes
from tests.reference import wshard_reader as reference
from warpdata.wshard import (
    ChunkedEpisodeWriter,
    Episode,
    WShardStreamWriter,
    identity,
    is_chunk_manifest,
    load_wshard,
    open_wshard,
    save_wshard,
)

SETTINGS: list[dict[str, Any]] = [
    {},
    {"compression": "zstd", "alignment": 32},
    {"compression": ("lz4", 9), "alignment": 16},
    {"alignment": 0, "seal": True},
    {"compression": "zstd", "time_chunk_steps": 7},
    {"per_block": {"signal/cam0/rgb": ("zstd", 19), "signal/state": "lz4"}, "alignment": 32, "seal": True},
]
PLAIN = [options for options in SETTINGS if not {"compression", "per_block"} & set(options)]
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
NUMBERS = st.integers(-(10**300), 10**300) | st.floats(allow_nan=False, allow_infinity=False)
JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)


def test_both_read_the_same_from_all_reference_files(driver: Driver) -> None:
    for path in known_files():
        if not is_chunk_manifest(path):  # its chunks are not here
            assert driver.ask("load", path) == verdict_here(path), path.name
        if path.suffix == ".wshard":
            assert driver.answer("identity", path) == identity(path)


@pytest.mark.parametrize("options", SETTINGS, ids=str)
def test_files_of_python_are_read(driver: Driver, options: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "a.wshard"
    save_wshard(full_episode(), path, **options)
    assert driver.answer("load", path) == described(load_wshard(path))
    assert driver.answer("identity", path) == identity(path)
    some = ["state", "action/ctrl"]
    assert driver.answer("load", path, channels=some) == described(load_wshard(path, some))
    compare_blocks(driver, path)


@pytest.mark.parametrize("is_fresh", [False, True], ids=["kept", "fresh"])
@pytest.mark.parametrize("options", PLAIN, ids=str)
def test_uncompressed_files_are_identical(
    driver: Driver, options: dict[str, Any], is_fresh: bool, tmp_path: Path
) -> None:
    source, ours, theirs = tmp_path / "a.wshard", tmp_path / "b.wshard", tmp_path / "c.wshard"
    save_wshard(full_episode(), source)
    for path in [source, *known_files()]:
        if verdict_here(path)[0] is not None:
            continue
        loaded = load_wshard(path)
        written = save_wshard(replace(loaded, origin=None) if is_fresh else loaded, ours, **options)
        assert (
            driver.answer("rewrite", path, to=str(theirs), fresh=is_fresh, options=driver.translate(options)) == written
        ), path.name
        assert theirs.read_bytes() == ours.read_bytes(), path.name


@pytest.mark.parametrize("options", SETTINGS, ids=str)
def test_files_of_the_library_are_read(driver: Driver, options: dict[str, Any], tmp_path: Path) -> None:
    source, theirs = tmp_path / "a.wshard", tmp_path / "b.wshard"
    save_wshard(full_episode(), source)
    driver.answer("rewrite", source, to=str(theirs), fresh=True, options=driver.translate(options))
    same_episode(load_wshard(theirs), full_episode())
    assert identity(theirs) == identity(source)
    data = theirs.read_bytes()
    assert reference.strict_problems(data) == (["time chunks"] if "time_chunk_steps" in options else [])
    for name, block in reference.read_blocks(data).items():
        if block.flags & 8:
            assert b"".join(reference.time_chunks(block.stored)) == block.data, name
    is_compressed = bool({"compression", "per_block"} & set(options))
    assert any(block.flags & 1 for block in reference.read_blocks(data).values()) == is_compressed
    compare_blocks(driver, theirs)


def round_trip(driver: Driver, directory: Path, episode: Episode, options: dict[str, Any]) -> None:
    """Write the episode with each library, and read it with the other."""
    path, plain, theirs = directory / "a.wshard", directory / "b.wshard", directory / "c.wshard"
    save_wshard(episode, path, **options)
    loaded = load_wshard(path)
    assert driver.answer("load", path) == described(loaded)
    assert driver.answer("identity", path) == identity(path)
    save_wshard(replace(loaded, origin=None), plain)
    driver.answer("rewrite", path, to=str(theirs), fresh=True, options={})
    assert theirs.read_bytes() == plain.read_bytes()
    driver.answer("rewrite", plain, to=str(theirs), fresh=False, options=driver.translate(options))
    same_episode(load_wshard(theirs), episode)
    assert identity(theirs) == identity(plain)
    compare_blocks(driver, theirs)
    shutil.rmtree(directory)


EPISODES = (episodes(), st.dictionaries(TEXT, JSON, max_size=3), st.sampled_from(SETTINGS[:5]))


@settings(max_examples=40)
@given(*EPISODES)
def test_any_episode_round_trips_both_ways(
    driver: Driver,
    tmp_path_factory: pytest.TempPathFactory,
    drawn: Episode,
    metadata: dict[str, Any],
    options: dict[str, Any],
) -> None:
    round_trip(driver, tmp_path_factory.mktemp("both"), replace(drawn, metadata=metadata), options)


def trade(drivers: list[Driver], directory: Path, episode: Episode, options: dict[str, Any]) -> None:
    """Write the episode with all libraries, and read each file with the others."""
    drawn, plain = directory / "a.wshard", directory / "b.wshard"
    save_wshard(episode, drawn)
    save_wshard(replace(load_wshard(drawn), origin=None), plain, **options)
    wanted, named = described(load_wshard(plain)), identity(plain)
    written: list[tuple[Driver | None, Path]] = [(None, plain)]
    for number, driver in enumerate(drivers):
        path = directory / f"{number}.wshard"
        driver.answer("rewrite", plain, to=str(path), fresh=True, options=driver.translate(options))
        same_episode(load_wshard(path), episode)
        assert identity(path) == named
        written.append((driver, path))
    for writer, path in written:
        for reader in drivers:
            if reader is not writer:
                assert reader.answer("load", path) == wanted
                assert reader.answer("identity", path) == named
                compare_blocks(reader, path)
    shutil.rmtree(directory)


@settings(max_examples=20)
@given(*EPISODES)
def test_any_episode_is_traded(
    go_driver: Driver,
    js_driver: Driver,
    tmp_path_factory: pytest.TempPathFactory,
    drawn: Episode,
    metadata: dict[str, Any],
    options: dict[str, Any],
) -> None:
    trade([go_driver, js_driver], tmp_path_factory.mktemp("three"), replace(drawn, metadata=metadata), options)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@settings(max_examples=10_000, deadline=None, suppress_health_check=list(HealthCheck))
@given(*EPISODES)
def test_many_episodes_are_traded(
    go_driver: Driver,
    js_driver: Driver,
    tmp_path_factory: pytest.TempPathFactory,
    drawn: Episode,
    metadata: dict[str, Any],
    options: dict[str, Any],
) -> None:
    trade([go_driver, js_driver], tmp_path_factory.mktemp("many"), replace(drawn, metadata=metadata), options)


def test_both_refuse_the_same_containers_for_the_same_reason(driver: Driver, tmp_path: Path) -> None:
    for rule, (spoil, _) in CONTAINER.items():
        path = write(tmp_path / "a.wshard", valid_file().build(spoil))
        here = verdict_here(path)
        assert here[0] is not None
        assert driver.ask("load", path) == here, rule


def test_both_refuse_the_same_metadata_for_the_same_reason(driver: Driver, tmp_path: Path) -> None:
    for rule, (name, document) in METADATA.items():
        path = write(tmp_path / "a.wshard", valid_file(**{name: document}).build())
        here = verdict_here(path)
        assert here[0] is not None
        assert driver.ask("load", path) == here, rule


@pytest.mark.parametrize("shape", [[0, 2**31 - 1], [0, *[2**31 - 1] * 2], [0, *[2**31 - 1] * 3], [2**31 - 1] * 16])
@pytest.mark.parametrize("dtype", ["u8", "i64"])
def test_both_agree_on_empty_arrays_of_any_shape(driver: Driver, shape: list[int], dtype: str, tmp_path: Path) -> None:
    episode = {"episode_id": "e", "length_T": 0 if shape[0] else 5}
    channels = {"channels": [{"id": "x", "dtype": dtype, "shape": shape}]}
    metadata = {"meta/episode": episode, "meta/channels": channels}
    blocks = {name: json.dumps(document).encode() for name, document in metadata.items()}
    path = write(tmp_path / "a.wshard", RawFile({**blocks, "signal/x": b""}).build())
    assert driver.ask("load", path) == verdict_here(path)


def test_both_agree_on_damaged_files(driver: Driver, tmp_path: Path) -> None:
    assert 0 < judge_damaged(driver, tmp_path / "a.wshard", SETTINGS, range(400)) < 200


def test_both_agree_on_forged_documents(driver: Driver, tmp_path: Path) -> None:
    assert 0 < judge_lies(driver, tmp_path / "a.wshard", range(400)) < 300


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_both_agree_on_many_files(driver: Driver, tmp_path: Path) -> None:
    assert judge_damaged(driver, tmp_path / "a.wshard", SETTINGS, range(10_000, 110_000)) > 0
    assert judge_lies(driver, tmp_path / "a.wshard", range(10_000, 60_000)) > 0


def test_journal_is_read_while_it_grows(driver: Driver, tmp_path: Path) -> None:
    channels: list[dict[str, Any]] = [
        {"id": "q", "dtype": "f32", "shape": [2], "compression": "zstd"},
        {"id": "n", "dtype": "i64", "shape": [], "signal_block": "action/n", "unit": 1.0},
        {"id": "q/m", "dtype": "f32", "shape": [2], "signal_block": "omen/q/m"},
        {"id": "std", "dtype": "f16", "shape": [3], "signal_block": "uncert/q/m/std"},
    ]
    with WShardStreamWriter(tmp_path / "b.wshard", "b", channels, flush_steps=3, fsync="never") as writer:
        writer.begin_episode("E", tick_hz=12.5, metadata={"a": [1, 2.0]}, attributes={"x": None})
        for step in range(8):
            values = {"q": np.full(2, step, np.float32), "n": np.int64(step), "q/m": [step, -1], "std": [0, 1, step]}
            writer.write_timestep(values, reward=step, done=step == 7)
            here = described(load_wshard(writer.partial_path))
            assert here["head"][1] == writer.flushed_steps
            assert driver.answer("load", writer.partial_path) == here
        writer.end_episode()
    assert driver.answer("load", tmp_path / "b.wshard") == described(load_wshard(tmp_path / "b.wshard"))


def test_chunks_of_python_are_joined(driver: Driver, tmp_path: Path) -> None:
    writer = ChunkedEpisodeWriter(tmp_path, "long", chunk_size_t=12, compression="zstd", time_chunk_steps=4)
    for chunk in pieces(long_episode(), [0, 12, 13, 25, 30]):
        writer.write_chunk(chunk)
    manifest = writer.finalize_manifest()
    path = writer.manifest_path
    listed = {**asdict(manifest), "chunks": [asdict(entry) for entry in manifest.chunks]}
    assert driver.answer("manifest", path) == listed
    assert driver.answer("load", path) == described(load_wshard(path))
    compare_blocks(driver, path)
    for rows in ([0, 30], [11, 14], [12, 13], [13, 13], [30, 30]):
        with open_wshard(path) as file:
            expected = file["signal/s"].window(*rows)
        found = driver.answer("window", path, block="signal/s", rows=rows)
        assert found[1:] == [list(expected.shape), sha256(expected.tobytes())]
    write(tmp_path / manifest.chunks[1].uri, (tmp_path / manifest.chunks[0].uri).read_bytes())
    assert driver.ask("load", path) == verdict_here(path) == ("corrupt", None)
