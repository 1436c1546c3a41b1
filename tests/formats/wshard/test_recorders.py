"""If this fails, two libraries disagree on recordings: a live journal, its owner, or its recovery.

The recorder is a process of the Go or the TypeScript library that writes the same eight channels as
`recorder_process.py`. Skipped for a language whose compiler or libraries are not here.
"""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.formats.wshard.drivers import Driver
from tests.formats.wshard.scenes import ROOT
from tests.formats.wshard.test_stream_killed import RECORDER, check, kill_once
from warpdata.errors import ConflictError, WarpError
from warpdata.wshard import Recovery, WShardStreamWriter, identity, load_wshard, recover

CHANNELS: list[dict[str, Any]] = [
    {"id": "q", "dtype": "f32", "shape": [2], "compression": "zstd"},
    {"id": "n", "dtype": "i64", "shape": [], "signal_block": "action/n", "unit": 1.0},
    {"id": "q/m", "dtype": "f32", "shape": [2], "signal_block": "omen/q/m"},
    {"id": "std", "dtype": "f16", "shape": [3], "signal_block": "uncert/q/m/std"},
]


def make_writer(path: Path) -> WShardStreamWriter:
    writer = WShardStreamWriter(path, "b", CHANNELS, flush_steps=3, fsync="never", seal=True)
    writer.begin_episode("E", tick_hz=12.5, metadata={"a": [1, 2.0]}, attributes={"x": None})
    return writer


def add_step(writer: WShardStreamWriter, step: int) -> None:
    values = {"q": np.full(2, step, np.float32), "n": np.int64(step), "q/m": [step, -1], "std": [0, 1, step]}
    writer.write_timestep(values, reward=step, done=step == 7)


def record(driver: Driver, path: Path, *arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([*driver.command, str(path), *arguments], stdout=subprocess.PIPE)


def test_recordings_of_both_have_the_same_identity(driver: Driver, tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours.wshard", tmp_path / "theirs.wshard"
    for recorder, path in ((RECORDER, ours), (driver.command, theirs)):
        subprocess.run([*recorder, str(path), "7", "never", "100"], check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
    assert check(ours) == check(theirs) == 100
    assert identity(ours) == identity(theirs)


def test_live_journal_is_read_and_owned(driver: Driver, tmp_path: Path) -> None:
    path = tmp_path / "a.wshard"
    journal = tmp_path / "a.wshard.partial"
    child = record(driver, path, "5", "never", "1000000000")
    assert child.stdout is not None
    try:
        for _ in range(3):
            flushed = 0
            while not flushed:
                line = child.stdout.readline()
                flushed = 0 if line == b"ready\n" else int(line)
            assert check(journal) >= flushed
        with pytest.raises(ConflictError):
            recover(journal)
        assert driver.ask("recover", journal)[0] == "conflict"
        assert driver.ask("claim", path)[0] == "conflict"
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()
    assert driver.ask("claim", path)[0] == "already_exists"
    assert recover(journal).step_count == check(path)


def test_journal_of_python_has_one_owner(driver: Driver, tmp_path: Path) -> None:
    path = tmp_path / "b.wshard"
    with make_writer(path) as writer:
        for step in range(5):
            add_step(writer, step)
        assert driver.ask("recover", writer.partial_path)[0] == "conflict"
        assert driver.ask("claim", path)[0] == "conflict"
    assert driver.ask("claim", path)[0] == "already_exists"
    report = driver.answer("recover", writer.partial_path, remove=True)
    assert (report["step_count"], report["is_complete"], report["unflushed_steps_at_most"]) == (5, False, 3)
    assert not writer.partial_path.exists()
    assert load_wshard(path).attributes["recovered"] == {"lost_bytes": 0}


def test_journal_without_a_step_is_taken_over(driver: Driver, tmp_path: Path) -> None:
    """A recorder that died before its first flush can be started again."""
    writer = make_writer(tmp_path / "b.wshard")
    writer.close()
    data = writer.partial_path.read_bytes()
    for size in range(len(data) + 2):
        writer.partial_path.write_bytes((data + b"W")[:size])
        refusal = driver.ask("claim", tmp_path / "b.wshard")[0]
        assert refusal == (None if size <= len(data) else "already_exists"), size


def recover_here(journal: Path) -> tuple[str | None, Recovery | None]:
    try:
        return None, recover(journal)
    except WarpError as error:
        return error.kind, None


def compare_recoveries(driver: Driver, journal: Path) -> int | None:
    """Recover a copy of the journal with each library. Return the number of steps, or None if both refuse it."""
    copies = [journal.with_name(f"{name}-{journal.name}") for name in ("ours", "theirs")]
    for copy in copies:
        shutil.copy(journal, copy)
    kind, there = driver.ask("recover", copies[1])
    refused, here = recover_here(copies[0])
    assert kind == refused, driver.message
    if here is None:
        return None
    theirs = Path(there["path"])
    assert (there["step_count"], there["is_complete"]) == (here.step_count, here.is_complete)
    assert (there["lost_bytes"], there["unflushed_steps_at_most"]) == (here.lost_bytes, here.unflushed_steps_at_most)
    assert identity(theirs) == identity(here.path) == driver.answer("identity", here.path)
    return here.step_count


def kill_writers(driver: Driver, directory: Path, seeds: range) -> None:
    for seed in seeds:
        left = kill_once(directory, seed, driver.command)
        if left is None:
            continue
        journal, flushed = left
        if not journal.exists():
            assert flushed == 0
            continue
        steps = compare_recoveries(driver, journal)
        assert flushed == 0 if steps is None else steps >= flushed
        if steps is not None:
            assert check(journal.with_name(f"theirs-{journal.name}").with_suffix("")) == steps


def test_flushed_steps_of_killed_writers_are_recovered(driver: Driver, tmp_path: Path) -> None:
    kill_writers(driver, tmp_path, range(12))


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_many_killed_writers(driver: Driver, tmp_path: Path) -> None:
    kill_writers(driver, tmp_path, range(1000, 1200))


def test_damaged_journals_are_recovered_alike(driver: Driver, tmp_path: Path) -> None:
    with make_writer(tmp_path / "b.wshard") as writer:
        for step in range(11):
            add_step(writer, step)
    data = writer.partial_path.read_bytes()
    found = set()
    for seed in range(60):
        chance = random.Random(seed)
        spoiled = bytearray(data)
        spoiled[chance.randrange(len(spoiled))] ^= 1 << chance.randrange(8)
        journal = tmp_path / f"{seed}.wshard.partial"
        journal.write_bytes(spoiled[: chance.randrange(len(spoiled))] if seed % 3 == 0 else spoiled)
        found.add(compare_recoveries(driver, journal))
    assert {None, 0, 3, 6, 9} <= found


def test_file_of_a_finished_recording_counts_as_written(driver: Driver, tmp_path: Path) -> None:
    """A crash may come between the file and the removal of its journal."""
    path = tmp_path / "b.wshard"
    with make_writer(path) as writer:
        add_step(writer, 0)
        journal = writer.partial_path
        writer.flush()
        shutil.copy(journal, tmp_path / "kept")
        writer.end_episode()
    shutil.move(tmp_path / "kept", journal)
    # The copy has no end record, so its episode is marked as recovered, and differs.
    assert driver.ask("recover", journal)[0] == "already_exists"
    path.unlink()
    recover(journal)
    assert driver.answer("recover", journal, remove=True)["step_count"] == 1
    assert not journal.exists()
