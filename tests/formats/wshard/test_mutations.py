"""If this fails, a damaged file crashes a reader, hangs it, exhausts its memory, or is accepted.

Bytes of valid files are changed, cut, moved or repeated. The result must be a typed error or exactly the saved data.
A memory limit turns a huge allocation into a failure.
"""

from __future__ import annotations

import contextlib
import json
import random
import resource
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import crc32c
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.formats.wshard.invariants import Memory
from tests.formats.wshard.mutators import mutate_json
from tests.formats.wshard.scenes import RawFile, full_episode
from tests.reference import wshard_reader as reference
from warpdata.errors import WarpError
from warpdata.wshard import Episode, WShardStreamWriter, identity, load_wshard, open_wshard, recover, save_wshard

OPTIONS: list[dict[str, Any]] = [
    {},
    {"compression": "zstd", "alignment": 16},
    {"compression": "lz4", "alignment": 0, "seal": True},
    {"compression": "zstd", "time_chunk_steps": 5},
]
ALLOWANCE_BYTES = 2 * 2**30


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    path = tmp_path_factory.mktemp("mutations") / "a.wshard"
    out = []
    for options in OPTIONS:
        save_wshard(full_episode(12), path, **options)
        out.append(path.read_bytes())
    return out


@pytest.fixture(scope="module", autouse=True)
def bounded_memory() -> Iterator[None]:
    """Limit memory to slightly more than the process already uses."""
    statm = Path("/proc/self/statm")
    if not statm.exists():
        yield
        return
    before = resource.getrlimit(resource.RLIMIT_AS)
    used = int(statm.read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + ALLOWANCE_BYTES, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


GOOD = {name: channel.data.tobytes() for name, channel in full_episode(12).lanes().items()}
EXTRA = {name: block.data for name, block in full_episode(12).extra.items()}
REWARDS = np.linspace(0, 1, 12, dtype=np.float32).tobytes()


def judge(data: bytes) -> bool:
    """Return whether the file was accepted, and check its values if so."""
    accepted = False
    try:
        _compare(load_wshard(Memory(data)))
        accepted = True
    except WarpError:
        pass
    try:
        with open_wshard(Memory(data)) as file:
            for name in file.blocks:
                try:
                    rows = file[name].block_type.rows
                    window = file[name].window(rows // 3, rows // 2)
                    assert len(window) == rows // 2 - rows // 3
                except WarpError:
                    continue
        identity(Memory(data))
    except WarpError:
        pass
    return accepted


def _compare(episode: Episode) -> None:
    assert (episode.id, episode.length) == ("full", 12)
    assert {name: channel.data.tobytes() for name, channel in episode.lanes().items()} == GOOD
    assert {name: block.data for name, block in episode.extra.items()} == EXTRA
    assert episode.rewards is not None
    assert episode.rewards.tobytes() == REWARDS


def mutate(data: bytes, chance: random.Random) -> bytes:
    out = bytearray(data)
    head = 64 + 48 * 30
    for _ in range(chance.choice([1, 1, 1, 2, 4])):
        at = chance.randrange(min(len(out), head) if chance.random() < 0.6 else len(out))
        kind = chance.randrange(6)
        if kind == 0:
            out[at] ^= 1 << chance.randrange(8)
        elif kind == 1:
            out[at] = chance.choice([0, 1, 0x7F, 0x80, 0xFF])
        elif kind == 2:
            width = chance.choice([2, 4, 8])
            out[at : at + width] = chance.choice([0, 1, 2**15, 2**16 - 1]).to_bytes(width, "little")
        elif kind == 3:
            out[at : at + 8] = chance.choice([0, 2**63, 2**64 - 1, len(out), len(out) - 1]).to_bytes(8, "little")
        elif kind == 4:
            del out[at : at + chance.choice([1, 8, 48, 500])]
        else:
            out[at:at] = out[at : at + chance.choice([1, 8, 48, 500])]
        if not out:
            return b""
    return bytes(out)


def run(files: list[bytes], seeds: range) -> tuple[int, int]:
    accepted = refused = 0
    for seed in seeds:
        chance = random.Random(seed)
        if judge(mutate(chance.choice(files), chance)):
            accepted += 1
        else:
            refused += 1
    return accepted, refused


def test_unchanged_files_are_accepted(files: list[bytes]) -> None:
    assert all(judge(data) for data in files)


def test_thousands_of_mutations(files: list[bytes]) -> None:
    accepted, refused = run(files, range(5000))
    assert refused > accepted


@settings(max_examples=400, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_mutations_that_hypothesis_finds(files: list[bytes], data: st.DataObject) -> None:
    out = bytearray(data.draw(st.sampled_from(files)))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(out) - 1))
        piece = data.draw(st.binary(max_size=12))
        if data.draw(st.booleans()):
            out[at : at + len(piece)] = piece
        else:
            out[at:at] = piece
    judge(bytes(out))


@given(st.binary(max_size=300), st.booleans())
def test_arbitrary_bytes(data: bytes, has_magic: bool) -> None:
    judge(b"SHRD\x02\x05" + data if has_magic else data)


def judge_documents(plain: dict[str, bytes], journal: bytes, directory: Path, seed: int) -> None:
    """Falsify metadata under right checksums: the result is a typed error, or an episode."""
    chance = random.Random(seed)
    name = chance.choice([name for name in plain if name in ("meta/wshard", "meta/episode", "meta/channels")])
    spoiled = json.dumps(mutate_json(json.loads(plain[name]), chance)).encode()
    with contextlib.suppress(WarpError):
        load_wshard(Memory(RawFile({**plain, name: spoiled}).build()))
    head = struct.unpack("<4sB3xIQIQII", journal[:40])
    document = json.loads(journal[40 : 40 + head[5]])
    payload = json.dumps(mutate_json(document, chance)).encode()
    fields = struct.pack("<4sB3xIQIQI", *head[:5], len(payload), crc32c.crc32c(payload))
    begin = fields + struct.pack("<I", crc32c.crc32c(fields)) + payload
    path = directory / f"{seed}.journal"
    path.write_bytes(begin + journal[40 + head[5] :])
    with contextlib.suppress(WarpError):
        load_wshard(path)
    try:
        report = recover(path, path.with_suffix(".wshard"))
    except WarpError:
        return
    assert load_wshard(report.path).length == report.step_count, "a recovered file can be read"


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, bytes], bytes]:
    directory = tmp_path_factory.mktemp("honest")
    save_wshard(full_episode(4), directory / "a.wshard")
    blocks = reference.read_blocks((directory / "a.wshard").read_bytes())
    channels = [{"id": "q", "dtype": "f32", "shape": [2], "compression": "zstd"}]
    writer = WShardStreamWriter(directory / "b.wshard", "b", channels, flush_steps=2, fsync="never")
    writer.begin_episode(tick_hz=10, metadata={"a": 1})
    for step in range(6):
        writer.write_timestep({"q": np.full(2, step, np.float32)})
    writer.close()
    return {name: block.data for name, block in blocks.items()}, writer.partial_path.read_bytes()


def test_forged_documents(honest: tuple[dict[str, bytes], bytes], tmp_path: Path) -> None:
    for seed in range(1500):
        judge_documents(*honest, tmp_path, seed)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_many_forged_documents(honest: tuple[dict[str, bytes], bytes], tmp_path: Path) -> None:
    for seed in range(10_000, 60_000):
        judge_documents(*honest, tmp_path, seed)
        for path in tmp_path.iterdir():
            path.unlink()


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", range(4))
def test_many_mutations(files: list[bytes], part: int) -> None:
    """A million in all, in parts that run in parallel."""
    start = 10_000 + 250_000 * part
    accepted, refused = run(files, range(start, start + 250_000))
    assert refused > accepted
