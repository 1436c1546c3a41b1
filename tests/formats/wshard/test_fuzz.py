"""If this fails, a forged file crashes or hangs a reader, or returns values that are not in it.

The mutations pass the checksums, and the naive reader of tests/reference is the oracle. In `make soak`, a
coverage-guided fuzzer chooses a million of them.
"""

from __future__ import annotations

import importlib.util
import json
import os
import random
import re
import struct
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import crc32c
import numpy as np
import pytest

from tests.formats.wshard.invariants import Memory, judge, scratch_directory, seeds
from tests.formats.wshard.mutators import mutate_file
from tests.formats.wshard.scenes import ROOT, RawFile, full_episode, write
from tests.formats.wshard.test_mutations import mutate
from tests.reference import wshard_reader as reference
from warpdata.errors import CorruptError, LimitExceededError
from warpdata.formats.wshard.frame_index import FRAME_ENTRY, KEY, FrameIndex
from warpdata.wshard import Channel, Episode, load_wshard, open_wshard, recover, save_wshard

CORPUS = ROOT / "build" / "fuzz" / "wshard"
"""Inputs that reached new code stay here, for the next run."""
SLICES, RUNS = 4, 250_000
LEAST_COVERAGE = 900
has_fuzzer = pytest.mark.skipif(importlib.util.find_spec("atheris") is None, reason="atheris is not installed")


@pytest.fixture(scope="module")
def directory() -> Iterator[Path]:
    with scratch_directory() as name:
        yield Path(name)


@pytest.fixture(scope="module")
def valid_files(directory: Path) -> list[bytes]:
    return seeds(directory)


def test_valid_files_are_accepted(valid_files: list[bytes], directory: Path) -> None:
    assert all(judge(data, directory) for data in valid_files)


def test_thousands_of_forged_files(valid_files: list[bytes], directory: Path) -> None:
    accepted, count = 0, 2500
    for seed in range(count):
        chance = random.Random(seed)
        data = mutate_file(
            chance.choice(valid_files),
            chance,
            lambda piece, chance=chance: mutate(piece or b"\0", chance),  # type: ignore[misc]
            chance.choice(valid_files),
        )
        accepted += judge(data, directory)
    # A test of the mutations: neither all nor none of the files are refused.
    assert count // 8 < accepted < count // 2


@has_fuzzer
@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", range(SLICES))
def test_a_million_files_of_the_fuzzer(valid_files: list[bytes], part: int, tmp_path: Path) -> None:
    output = fuzz(valid_files, CORPUS, tmp_path, RUNS, part + 1)
    assert f"Done {RUNS} runs" in output


@has_fuzzer
def test_fuzzer_measures_coverage(valid_files: list[bytes], tmp_path: Path) -> None:
    output = fuzz(valid_files, tmp_path / "corpus", tmp_path, 300, 1)
    reached = re.findall(r"cov: (\d+)", output)
    assert int(reached[-1]) > LEAST_COVERAGE


def fuzz(valid_files: list[bytes], corpus: Path, found: Path, runs: int, seed: int) -> str:
    """Run the fuzzer, and fail with the end of its output if it finds a violation."""
    corpus.mkdir(parents=True, exist_ok=True)
    for number, data in enumerate(valid_files):
        (corpus / f"valid_files-{number}").write_bytes(data)
    command = [sys.executable, "-m", "tests.formats.wshard.fuzz_target", str(corpus), f"-runs={runs}", f"-seed={seed}"]
    done = subprocess.run(
        [*command, f"-artifact_prefix={found}/"],
        check=False,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"},
    )
    assert done.returncode == 0, done.stdout[-8000:]
    return done.stdout


def raw_blocks(data: bytes) -> dict[str, bytes]:
    return {name: block.data for name, block in reference.read_blocks(data).items()}


STRAYS: dict[str, tuple[str, dict[str, Any]]] = {
    "no such block": ("channels", {"id": "gone", "dtype": "f32", "shape": [2], "signal_block": "signal/gone"}),
    "not a channel": ("channels", {"id": "blob", "dtype": "u8", "shape": [], "signal_block": "vendor/blob"}),
    "no such lane": ("lanes", {"id": "state/gone", "dtype": "f64", "shape": [2], "signal_block": "omen/state/gone"}),
    "a signal as a lane": ("lanes", {"id": "gone", "dtype": "f64", "shape": [5], "signal_block": "signal/gone"}),
    "declared twice": ("lanes", {"id": "x", "dtype": "f64", "shape": [9], "signal_block": "signal/state"}),
}


@pytest.mark.parametrize("kind", STRAYS)
def test_unused_declaration_survives_a_rewrite(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "a.wshard"
    save_wshard(full_episode(256), path)
    blocks = raw_blocks(path.read_bytes())
    document = json.loads(blocks["meta/channels"])
    place, stray = STRAYS[kind]
    document[place].insert(0, stray)
    blocks["meta/channels"] = json.dumps(document).encode()
    episode = load_wshard(Memory(RawFile(blocks).build()))
    save_wshard(episode, path)
    assert raw_blocks(path.read_bytes()) == blocks
    # A removed channel is no longer declared.
    rest = {name: channel for name, channel in episode.observations.items() if name != "state"}
    save_wshard(replace(episode, observations=rest), path)
    declared = json.loads(raw_blocks(path.read_bytes())["meta/channels"])
    assert stray in declared[place] or kind == "declared twice"
    assert "signal/state" not in {item["signal_block"] for item in declared["channels"]}


def test_declared_residual_keeps_its_type_in_a_rewrite(tmp_path: Path) -> None:
    path = tmp_path / "a.wshard"
    save_wshard(Episode("e", 2, observations={"s": Channel("s", np.zeros(2, np.float32))}), path)
    blocks = {**raw_blocks(path.read_bytes()), "residual/s/sign2nddiff": np.array([1.0, 2.0], "<f4").tobytes()}
    lane = {"id": "s", "dtype": "f32", "shape": [], "signal_block": "residual/s/sign2nddiff"}
    blocks["meta/channels"] = json.dumps({**json.loads(blocks["meta/channels"]), "lanes": [lane]}).encode()
    save_wshard(load_wshard(Memory(RawFile(blocks).build())), path)
    assert load_wshard(path).residuals["s/sign2nddiff"].data.tolist() == [1.0, 2.0]


def test_names_that_share_bytes_are_bounded_together() -> None:
    count, length = 1_700, 65_535
    file = RawFile({f"b{number}": b"" for number in range(count)})
    pool = b"".join(b"%08d" % number for number in range(length // 4))
    file.names = [pool]
    names_at = 64 + 48 * count
    file.header["data"] = file.header["total"] = file.size = file.data_at = -(-(names_at + len(pool)) // 64) * 64
    for number, entry in enumerate(file.entries):
        entry.update(name_at=number, name_bytes=length, offset=file.size)
    with pytest.raises(LimitExceededError, match="names of all blocks"):
        open_wshard(Memory(file.build()))


@pytest.mark.timeout(30)
def test_frame_index_with_many_key_frames_is_linear() -> None:
    half = 30_000
    entries = np.zeros(2 * half, FRAME_ENTRY)
    entries["flags"][:half] = KEY
    entries["time_ns"][1:half] = 10**9 + np.arange(1, half)
    entries["time_ns"][half:] = np.arange(1, half + 1)
    index = FrameIndex("h264", b"", entries)
    index.check(0)
    assert [index.start_of(frame, frame) for frame in (0, 1, half, half + 1, 2 * half - 1)] == [0, 0, 0, 1, half - 1]


@pytest.mark.timeout(30)
def test_predictions_of_many_channels_are_linear() -> None:
    count = 20_000
    channels = [{"id": f"c{number}", "dtype": "u8", "shape": []} for number in range(count)]
    blocks = {
        "meta/episode": b'{"episode_id":"e","length_T":1}',
        "meta/channels": json.dumps({"channels": channels}).encode(),
        **{f"omen/{number}/m": b"x" for number in range(count)},
        "omen/c7/m": b"x",
    }
    with open_wshard(Memory(RawFile(blocks).build())) as file:
        declared = [name for name in file.blocks if name.startswith("omen/") and file[name].block_type.is_declared]
    assert declared == ["omen/c7/m"]


def record(kind: int, number: int, first: int, count: int, payload: bytes) -> bytes:
    head = struct.pack("<4sB3xIQIQI", b"WSJ1", kind, number, first, count, len(payload), crc32c.crc32c(payload))
    return head + struct.pack("<I", crc32c.crc32c(head)) + payload


def journal(part_count: int, shape: list[int]) -> bytes:
    document = {
        "v": 1,
        "episode": {"episode_id": "e"},
        "parts": [{"id": f"c{number}", "dtype": "u8", "shape": shape} for number in range(part_count)],
        "save": {"alignment": 0, "time_chunk_steps": 0, "seal": False, "compression": {}},
    }
    return record(1, 0, 0, 0, json.dumps(document).encode())


@pytest.mark.timeout(60)
def test_journal_with_too_many_parts_is_refused_fast(tmp_path: Path) -> None:
    count = 20_000
    data = journal(count, []) + record(2, 1, 0, 1, bytes(count))
    path = write(tmp_path / "a.wshard.partial", data)
    assert len(load_wshard(path).observations) == count
    path = write(tmp_path / "a.wshard.partial", journal(70_000, []))
    with pytest.raises(CorruptError, match="70000 parts"):
        recover(path)


@pytest.mark.timeout(60)
def test_journal_with_many_empty_records_is_linear(tmp_path: Path) -> None:
    parts, records = 1_000, 20_000
    steps = b"".join(record(2, number + 1, number, 1, b"") for number in range(records))
    path = write(tmp_path / "a.wshard.partial", journal(parts, [0]) + steps)
    assert load_wshard(path).length == records
    assert recover(path).step_count == records


@pytest.mark.parametrize("shape", [[0, *[2**31 - 1] * 3], [2**31 - 1] * 4], ids=str)
@pytest.mark.parametrize("block", ["signal/c0", "reward"])
def test_journal_with_an_impossible_shape_is_refused(block: str, shape: list[int], tmp_path: Path) -> None:
    part = {"id": "c0", "dtype": "f32", "shape": shape, "signal_block": block}
    document = {**json.loads(journal(0, [])[40:]), "parts": [part]}
    path = write(tmp_path / "a.wshard.partial", record(1, 0, 0, 0, json.dumps(document).encode()))
    for read in (load_wshard, recover):
        with pytest.raises(CorruptError):
            read(path)
    assert list(tmp_path.iterdir()) == [path]
