"""If this fails, the Go library fails its own tests, or disagrees on frame indexes, forged files or chunked episodes.

`test_languages.py` has the comparisons that all languages share, `test_go_recording.py` those of recordings. Skipped
without the Go compiler, or if its libraries are neither installed nor reachable.
"""

from __future__ import annotations

import random
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import asdict, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.formats.wshard.drivers import (
    GOLDEN,
    Driver,
    compare_blocks,
    described,
    known_files,
    run,
    sha256,
    verdict_here,
)
from tests.formats.wshard.golang import GO, go_environment
from tests.formats.wshard.mutators import mutate_file
from tests.formats.wshard.scenes import VECTORS, same_episode, write
from tests.formats.wshard.test_mutations import mutate
from warpdata.errors import WarpError
from warpdata.formats.wshard.frame_index import parse_frames
from warpdata.wshard import (
    Channel,
    ChunkedEpisodeWriter,
    Episode,
    frames_block,
    is_chunk_manifest,
    load_chunk_manifest,
    load_wshard,
    open_wshard,
    save_wshard,
    validate_chunk_continuity,
)

TEST_S = 110


def test_package_tests_pass(go_library: Path) -> None:
    """Reference files, refusals, sources, recordings, the command, and the seeds of the fuzz target."""
    places = {"WSHARD_VECTORS": str(VECTORS), "WSHARD_GOLDEN": str(GOLDEN), **go_environment(go_library)}
    source = go_library / "src" / "wshard"
    try:
        code, output = run([GO, "test", "./..."], TEST_S, source, **places)
    except subprocess.TimeoutExpired:
        pytest.skip(f"the Go compiler did not finish in {TEST_S} s")
    assert code == 0, output[-8000:]
    if formatter := shutil.which("gofmt"):
        assert run([formatter, "-l", "."], TEST_S, source) == (0, "")


def frames_here(path: Path, block: str) -> tuple[str | None, Any]:
    """Describe a frame index like the driver does."""
    try:
        with open_wshard(path) as file:
            data = bytes(file[frames_block(block)].raw())
            index = parse_frames(data, file[block].entry.size_bytes)
            spans = [list(index.entry_span(np.array([frame]))) for frame in range(len(index))]
            found = {
                "codec": index.codec,
                "extradata": sha256(index.extradata),
                "times": index.times_ns.tolist(),
                "extents": [list(index.extent(frame)) for frame in range(len(index))],
                "spans": spans,
                "groups": index.group_numbers.tolist(),
                "encoded": sha256(data),
            }
    except WarpError as error:
        return error.kind, None
    return None, found


def test_both_read_the_same_frame_index(go_driver: Driver) -> None:
    path = GOLDEN / "frames.wshard"
    assert go_driver.ask("frames", path, block="signal/cam") == frames_here(path, "signal/cam")


def mutate_some(data: bytes, chance: random.Random) -> bytes:
    return mutate(data, chance) if data else b"x"


def judge_forged(go_driver: Driver, directory: Path, seeds: range) -> int:
    """Return the number of forged files and journals that both accept, with right checksums wherever possible."""
    files = [path.read_bytes() for path in known_files() if not is_chunk_manifest(path)]
    accepted = 0
    for seed in seeds:
        chance = random.Random(seed)
        source, donor = chance.choice(files), chance.choice(files)
        data = mutate_file(source, chance, partial(mutate_some, chance=chance), donor)
        path = write(directory / "forged.wshard", data)
        here = verdict_here(path)
        there = go_driver.ask("load", path)
        assert there == here or "a match 0 bytes back" in go_driver.message, (
            seed,
            here[0],
            there[0],
            go_driver.message,
        )
        accepted += here[0] is None
        if b"WSFI" in data and here[0] is None and "signal/cam" in here[1]["lanes"]:
            here, there = frames_here(path, "signal/cam"), go_driver.ask("frames", path, block="signal/cam")
            # Python verifies a frame when it reads one, the driver reads all.
            assert there == here or "fails its checksum" in go_driver.message, (seed, go_driver.message)
    return accepted


def test_both_agree_on_forged_files_and_journals(go_driver: Driver, tmp_path: Path) -> None:
    assert 0 < judge_forged(go_driver, tmp_path, range(300)) < 250


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_both_agree_on_many_forged_files_and_journals(go_driver: Driver, tmp_path: Path) -> None:
    assert judge_forged(go_driver, tmp_path, range(10_000, 60_000)) > 0


def long_episode() -> Episode:
    state = np.arange(60, dtype=np.float64).reshape(30, 2)
    return Episode(
        "long",
        30,
        "E",
        observations={"s": Channel("s", state)},
        actions={"a": Channel("a", np.arange(30, dtype=np.int16))},
        omens={"s/m": Channel("s/m", state * 2)},
        rewards=np.arange(30, dtype=np.float32),
        metadata={"a": 1.0},
    )


def pieces(episode: Episode, cuts: list[int]) -> list[Episode]:
    def cut(group: Mapping[str, Channel], start: int, stop: int) -> dict[str, Channel]:
        return {name: replace(channel, data=channel.data[start:stop]) for name, channel in group.items()}

    assert episode.rewards is not None
    return [
        replace(
            episode,
            length=stop - start,
            rewards=episode.rewards[start:stop],
            observations=cut(episode.observations, start, stop),
            actions=cut(episode.actions, start, stop),
            omens=cut(episode.omens, start, stop),
        )
        for start, stop in pairwise(cuts)
    ]


def test_chunks_of_python_are_joined(go_driver: Driver, tmp_path: Path) -> None:
    writer = ChunkedEpisodeWriter(tmp_path, "long", chunk_size_t=12, compression="zstd", time_chunk_steps=4)
    for chunk in pieces(long_episode(), [0, 12, 13, 25, 30]):
        writer.write_chunk(chunk)
    manifest = writer.finalize_manifest()
    path = writer.manifest_path
    assert go_driver.answer("manifest", path) == {
        **asdict(manifest),
        "chunks": [asdict(entry) for entry in manifest.chunks],
    }
    assert go_driver.answer("load", path) == described(load_wshard(path))
    compare_blocks(go_driver, path)
    for rows in ([0, 30], [11, 14], [12, 13], [13, 13], [30, 30]):
        with open_wshard(path) as file:
            expected = file["signal/s"].window(*rows)
        found = go_driver.answer("window", path, block="signal/s", rows=rows)
        assert found[1:] == [list(expected.shape), sha256(expected.tobytes())]
    write(tmp_path / manifest.chunks[1].uri, (tmp_path / manifest.chunks[0].uri).read_bytes())
    assert go_driver.ask("load", path) == verdict_here(path) == ("corrupt", None)


@pytest.mark.parametrize("options", [{}, {"compression": "zstd", "seal": True}], ids=str)
def test_chunks_of_go_are_those_of_python(go_driver: Driver, options: dict[str, Any], tmp_path: Path) -> None:
    """Uncompressed chunks and manifests have the same bytes, also after the episode continued."""
    source, ours, theirs = tmp_path / "a.wshard", tmp_path / "ours", tmp_path / "theirs"
    save_wshard(long_episode(), source)
    for cuts, is_resumed in (([0, 10, 20], False), ([20, 30], True)):
        with ChunkedEpisodeWriter(ours, "long", resume=is_resumed, **options) as writer:
            for chunk in pieces(long_episode(), cuts):
                writer.write_chunk(chunk)
        go_driver.answer("chunks", source, to=str(theirs), cuts=cuts, resume=is_resumed, options=options)
        manifest = load_chunk_manifest(theirs / "long_manifest.wshard")
        validate_chunk_continuity(manifest, theirs)
        same_episode(load_wshard(theirs / "long_manifest.wshard"), load_wshard(ours / "long_manifest.wshard"))
        assert sorted(path.name for path in theirs.iterdir()) == sorted(path.name for path in ours.iterdir())
        if not options:
            for path in ours.iterdir():
                assert (theirs / path.name).read_bytes() == path.read_bytes(), path.name
    assert go_driver.ask("chunks", source, to=str(theirs), cuts=[0, 10])[0] == "already_exists"
