"""If this fails, the TypeScript library reads or writes other episodes than the Python library.

The package `packages/wshard-js` is built once into a temporary directory and compared with the Python library. Skipped
without node, or if its packages are neither installed nor installable.
"""

from __future__ import annotations

import json
import random
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.formats.wshard.mutators import mutate_json
from tests.formats.wshard.scenes import VECTORS, RawFile, full_episode, same_episode, write
from tests.formats.wshard.test_mutations import mutate
from tests.formats.wshard.test_rejected import CONTAINER, METADATA, valid_file
from tests.formats.wshard.test_round_trip import episodes
from tests.formats.wshard.typescript import GOLDEN, NODE, described, run, sha256
from tests.reference import wshard_reader as reference
from warpdata.errors import WarpError
from warpdata.formats.wshard.codecs import crc32c
from warpdata.wshard import (
    Channel,
    ChunkedEpisodeWriter,
    Episode,
    WShardStreamWriter,
    identity,
    is_chunk_manifest,
    load_wshard,
    open_wshard,
    save_wshard,
)

TEST_S = 100


class Driver:
    """The TypeScript library, as a process that answers requests."""

    message = ""
    """The message of its last refusal."""

    def __init__(self, library: Path) -> None:
        command = [NODE, str(library / "dist" / "test" / "driver.js")]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
        )

    def ask(self, what: str, path: Path, **rest: Any) -> tuple[str | None, Any]:
        """Return the kind of the refusal, or None and the answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps({"ask": what, "path": str(path), **rest}), file=self._process.stdin, flush=True)
        said = json.loads(self._process.stdout.readline())
        assert "crash" not in said, said
        self.message = str(said.get("message", ""))
        return said.get("kind"), said.get("answer")

    def answer(self, what: str, path: Path, **rest: Any) -> Any:
        kind, answer = self.ask(what, path, **rest)
        assert kind is None, f"{path} was refused: {kind}"
        return answer

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:  # a busy machine
            self._process.kill()
            self._process.wait()


@pytest.fixture(scope="session")
def driver(library: Path) -> Iterator[Driver]:
    started = Driver(library)
    yield started
    started.close()


def verdict_here(path: Path) -> tuple[str | None, Any]:
    try:
        return None, described(load_wshard(path))
    except WarpError as error:
        return error.kind, None


def test_package_tests_pass(library: Path) -> None:
    """Reference files, refusals, properties, sources, the browser platform."""
    files = [str(path) for path in sorted((library / "dist" / "test").glob("*.test.js"))]
    places = {"WSHARD_VECTORS": str(VECTORS), "WSHARD_GOLDEN": str(GOLDEN)}
    code, output = run([NODE, "--test", *files], TEST_S, library, **places)
    assert code == 0, output[-8000:]
    assert "# pass 0\n" not in output


def known_files() -> list[Path]:
    return [*sorted(VECTORS.glob("*.wshard")), *sorted(GOLDEN.glob("*.wshard")), *sorted(GOLDEN.glob("*.journal"))]


def test_both_read_the_same_from_all_reference_files(driver: Driver) -> None:
    for path in known_files():
        if not is_chunk_manifest(path):  # Python loads its chunks, which are not here
            assert driver.ask("load", path) == verdict_here(path), path.name
        if path.suffix == ".wshard":
            assert driver.answer("identity", path) == identity(path)


SETTINGS: list[dict[str, Any]] = [
    {},
    {"compression": "zstd", "alignment": 32},
    {"compression": ("lz4", 9), "alignment": 16},
    {"alignment": 0, "seal": True},
    {"compression": "zstd", "time_chunk_steps": 7},
    {"per_block": {"signal/cam0/rgb": ("zstd", 19), "signal/state": "lz4"}, "alignment": 32, "seal": True},
]
PLAIN = [options for options in SETTINGS if not {"compression", "per_block"} & set(options)]


def translated(options: dict[str, Any]) -> dict[str, Any]:
    spelled = {"per_block": "perBlock", "time_chunk_steps": "timeChunkSteps"}
    return {spelled.get(key, key): value for key, value in options.items()}


@pytest.mark.parametrize("options", SETTINGS, ids=str)
def test_files_of_python_are_read(driver: Driver, options: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "a.wshard"
    save_wshard(full_episode(), path, **options)
    assert driver.answer("load", path) == described(load_wshard(path))
    assert driver.answer("identity", path) == identity(path)
    some = ["state", "action/ctrl"]
    assert driver.answer("load", path, channels=some) == described(load_wshard(path, some))
    with open_wshard(path) as file:
        for name, (dtype, shape, digest) in driver.answer("blocks", path):
            array = file[name].read()
            assert (dtype, shape) == (str(file[name].block_type.dtype), list(array.shape))
            assert digest == sha256(array.tobytes())
            rows = len(array) // 3, len(array) // 2
            found = driver.answer("window", path, block=name, rows=rows)
            assert found[1:] == [list(array[slice(*rows)].shape), sha256(array[slice(*rows)].tobytes())]


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
        rewritten = driver.answer("rewrite", path, to=str(theirs), fresh=is_fresh, options=translated(options))
        assert rewritten == written, path.name
        assert theirs.read_bytes() == ours.read_bytes(), path.name


@pytest.mark.parametrize("options", SETTINGS, ids=str)
def test_files_of_typescript_are_read(driver: Driver, options: dict[str, Any], tmp_path: Path) -> None:
    source, theirs = tmp_path / "a.wshard", tmp_path / "b.wshard"
    save_wshard(full_episode(), source)
    # TypeScript does not write levels of lz4.
    usable = {**options, **({"compression": "lz4"} if options.get("compression") == ("lz4", 9) else {})}
    driver.answer("rewrite", source, to=str(theirs), fresh=True, options=translated(usable))
    same_episode(load_wshard(theirs), full_episode())
    assert identity(theirs) == identity(source)
    data = theirs.read_bytes()
    problems = reference.strict_problems(data)
    assert problems == (["time chunks"] if "time_chunk_steps" in options else [])
    for name, block in reference.read_blocks(data).items():
        if block.flags & 8:
            assert b"".join(reference.time_chunks(block.stored)) == block.data, name
    is_compressed = bool({"compression", "per_block"} & set(options))
    assert any(block.flags & 1 for block in reference.read_blocks(data).values()) == is_compressed


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
NUMBERS = st.integers(-(10**300), 10**300) | st.floats(allow_nan=False, allow_infinity=False)
JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=60)
@given(episodes(), st.dictionaries(TEXT, JSON, max_size=3), st.sampled_from(SETTINGS[:5]))
def test_any_episode_round_trips_both_ways(
    driver: Driver,
    tmp_path_factory: pytest.TempPathFactory,
    drawn: Episode,
    metadata: dict[str, Any],
    options: dict[str, Any],
) -> None:
    directory = tmp_path_factory.mktemp("both", numbered=True)
    path, plain, theirs = directory / "a.wshard", directory / "b.wshard", directory / "c.wshard"
    episode = replace(drawn, metadata=metadata)
    save_wshard(episode, path, **options)
    loaded = load_wshard(path)
    assert driver.answer("load", path) == described(loaded)
    save_wshard(replace(loaded, origin=None), plain)
    driver.answer("rewrite", path, to=str(theirs), fresh=True, options={})
    assert theirs.read_bytes() == plain.read_bytes()
    driver.answer("rewrite", plain, to=str(theirs), fresh=False, options={"compression": "zstd"})
    same_episode(load_wshard(theirs), episode)
    shutil.rmtree(directory)


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


def judge_damaged(driver: Driver, path: Path, seeds: range) -> int:
    """Return the number of mutated files that both accept. They must agree on the error kind and the values."""
    files = []
    for options in SETTINGS:
        save_wshard(full_episode(12), path, **options)
        files.append(path.read_bytes())
    accepted = 0
    for seed in seeds:
        chance = random.Random(seed)
        write(path, mutate(chance.choice(files), chance))
        here, there = verdict_here(path), driver.ask("load", path)
        # The lz4 library of Python accepts a match of offset 0 and returns uninitialized memory, right by chance.
        assert there == here or "a match 0 bytes back" in driver.message, seed
        accepted += here[0] is None
    return accepted


def rewrite(path: Path, target: Path) -> str | None:
    """Return the kind of the refusal to save it again, if any."""
    try:
        save_wshard(load_wshard(path), target)
    except WarpError as error:
        return error.kind
    return None


def judge_lies(driver: Driver, path: Path, seeds: range) -> int:
    """Do the same for forged metadata under right checksums."""
    save_wshard(full_episode(4), path)
    ours, theirs = path.with_suffix(".ours"), path.with_suffix(".theirs")
    plain = {name: block.data for name, block in reference.read_blocks(path.read_bytes()).items()}
    accepted = 0
    for seed in seeds:
        chance = random.Random(seed)
        name = chance.choice(["meta/wshard", "meta/episode", "meta/channels"])
        spoiled = json.dumps(mutate_json(json.loads(plain[name]), chance)).encode()
        write(path, RawFile({**plain, name: spoiled}).build())
        here = verdict_here(path)
        assert driver.ask("load", path) == here, (seed, spoiled)
        if here[0] is None:
            accepted += 1
            assert driver.ask("rewrite", path, to=str(theirs), fresh=False, options={})[0] == rewrite(path, ours), seed
            assert theirs.read_bytes() == ours.read_bytes(), (seed, spoiled)
    return accepted


def test_both_agree_on_damaged_files(driver: Driver, tmp_path: Path) -> None:
    assert 0 < judge_damaged(driver, tmp_path / "a.wshard", range(500)) < 250


def test_both_agree_on_forged_documents(driver: Driver, tmp_path: Path) -> None:
    assert 0 < judge_lies(driver, tmp_path / "a.wshard", range(600)) < 400


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_both_agree_on_many_files(driver: Driver, tmp_path: Path) -> None:
    assert judge_damaged(driver, tmp_path / "a.wshard", range(10_000, 110_000)) > 0
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


def test_chunks_and_their_manifest(driver: Driver, tmp_path: Path) -> None:
    writer = ChunkedEpisodeWriter(tmp_path, "long", chunk_size_t=10, total_chunks=3)
    for start in (0, 10, 20):
        state = Channel("s", np.arange(start, start + 10, dtype=np.float64))
        writer.write_chunk(Episode("long", 10, "E", observations={"s": state}))
    manifest = writer.finalize_manifest()
    path = tmp_path / "long_manifest.wshard"
    manifest_document, checksum = driver.answer("manifest", path)
    assert checksum == crc32c(path.read_bytes())
    assert (manifest_document["episodeId"], manifest_document["totalTimesteps"]) == ("long", 30)
    spelled = {"first_step": "firstStep", "last_step": "lastStep"}
    listed = [{spelled.get(key, key): value for key, value in asdict(entry).items()} for entry in manifest.chunks]
    assert manifest_document["chunks"] == listed
    for entry in manifest.chunks:
        chunk = tmp_path / entry.uri
        assert driver.answer("load", chunk) == described(load_wshard(chunk))
