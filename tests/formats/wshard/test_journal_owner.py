"""If this fails, a recording loses flushed steps: to a second process, to a recovery, or to a kill at some moment."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.formats.wshard.invariants import scratch_directory
from tests.formats.wshard.kill_points import STEPS, make_writer, value
from tests.formats.wshard.scenes import ROOT
from warpdata.errors import AlreadyExistsError, BadInputError, ConflictError, CorruptError, StorageError
from warpdata.formats.wshard import journal, stream_writer
from warpdata.wshard import WShardStreamWriter, load_wshard, recover


def begin(directory: Path, steps: int = 0) -> WShardStreamWriter:
    writer = make_writer(directory)
    writer.begin_episode("Killed-v0", tick_hz=30)
    for step in range(steps):
        writer.write_timestep({"x": value(step)}, reward=float(step))
    return writer


def check_steps(path: Path) -> int:
    episode = load_wshard(path)
    expected = np.stack([value(step) for step in range(episode.length)]) if episode.length else np.zeros((0, 3))
    np.testing.assert_array_equal(episode.observations["x"].data, expected)
    return episode.length


def test_running_recording_is_not_recovered(tmp_path: Path) -> None:
    """Recovering a live journal once removed it under its writer, with every later step."""
    writer = begin(tmp_path, 5)
    before = writer.partial_path.read_bytes()
    for remove in (False, True):
        with pytest.raises(ConflictError, match="in use"):
            recover(writer.partial_path, remove_partial=remove)
    with pytest.raises(ConflictError, match="in use"):
        recover(writer.partial_path, tmp_path / "other.wshard")
    assert writer.partial_path.read_bytes() == before
    assert load_wshard(writer.partial_path).length == 4
    for step in range(5, STEPS):
        writer.write_timestep({"x": value(step)}, reward=float(step))
    writer.end_episode()
    assert check_steps(tmp_path / "ep.wshard") == STEPS
    assert [path.name for path in tmp_path.iterdir()] == ["ep.wshard"]


def test_second_writer_is_refused(tmp_path: Path) -> None:
    writer = begin(tmp_path, 5)
    with pytest.raises(ConflictError, match="in use"):
        begin(tmp_path)
    writer.close()
    with pytest.raises(AlreadyExistsError, match="earlier recording"):
        begin(tmp_path)
    assert recover(writer.partial_path, remove_partial=True).step_count == 4


CHILD = """
import os, sys
from pathlib import Path
from tests.formats.wshard.kill_points import make_writer, value
writer = make_writer(Path(sys.argv[1]))
writer.begin_episode()
for step in range(5):
    writer.write_timestep({"x": value(step)})
if os.fork() == 0:
    os.write(1, b"child\\n")
    sys.stdin.read()
    os._exit(0)
os.write(1, b"ready\\n")
sys.stdin.read()
"""


def test_journal_of_a_dead_owner_recovers_while_its_child_lives(tmp_path: Path) -> None:
    """A forked worker of the recorder must not keep the journal."""
    command = [sys.executable, "-c", CHILD, str(tmp_path)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT)
    assert process.stdout is not None
    assert process.stdin is not None
    assert {process.stdout.readline(), process.stdout.readline()} == {b"child\n", b"ready\n"}
    partial = tmp_path / "ep.wshard.partial"
    with pytest.raises(ConflictError):
        recover(partial)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert recover(partial, remove_partial=True).step_count == 4
    process.stdin.close()
    process.stdout.close()


def test_journal_stays_if_steps_behind_damage_cannot_be_read(tmp_path: Path) -> None:
    writer = begin(tmp_path, 9)
    writer.close()
    data = bytearray(writer.partial_path.read_bytes())
    at = data.find(value(1).tobytes())
    data[at] ^= 1
    writer.partial_path.write_bytes(data)
    report = recover(writer.partial_path, remove_partial=True)
    assert (report.step_count, report.is_complete) == (0, False)
    assert report.problem is not None
    assert "the journal stays" in report.problem
    assert writer.partial_path.read_bytes() == data


def test_torn_last_record_does_not_keep_the_journal(tmp_path: Path) -> None:
    writer = begin(tmp_path, 9)
    writer.close()
    data = writer.partial_path.read_bytes()
    writer.partial_path.write_bytes(data[:-5])
    assert recover(writer.partial_path, remove_partial=True).step_count == 4
    assert not writer.partial_path.exists()


@pytest.mark.parametrize("left", [b"", b"WS", b"WSJ1\x01"], ids=repr)
def test_journal_without_a_first_record_does_not_block_its_path(left: bytes, tmp_path: Path) -> None:
    partial = tmp_path / "ep.wshard.partial"
    partial.write_bytes(left)
    with pytest.raises(CorruptError, match="no valid first record"):
        recover(partial)
    begin(tmp_path, STEPS).end_episode()
    assert check_steps(tmp_path / "ep.wshard") == STEPS


def test_recording_that_died_before_its_first_flush_does_not_block_its_path(tmp_path: Path) -> None:
    writer = begin(tmp_path)
    writer.close()
    assert recover(writer.partial_path, tmp_path / "other.wshard").step_count == 0
    begin(tmp_path, STEPS).end_episode()
    assert check_steps(tmp_path / "ep.wshard") == STEPS


def test_foreign_file_under_the_name_of_the_journal_is_not_overwritten(tmp_path: Path) -> None:
    partial = tmp_path / "ep.wshard.partial"
    partial.write_bytes(b"notes of another program, longer than a record of a journal")
    with pytest.raises(AlreadyExistsError):
        begin(tmp_path)
    assert partial.read_bytes().startswith(b"notes")


@pytest.mark.parametrize("length", [200, 245, 247, 248, 255])
def test_name_is_refused_at_the_beginning_or_works_to_the_end(length: int, tmp_path: Path) -> None:
    path = tmp_path / ("n" * (length - 7) + ".wshard")
    writer = WShardStreamWriter(path, "ep", [{"id": "x", "dtype": "f32", "shape": [3]}], fsync="never")
    if length + len(".partial") > 255:
        with pytest.raises(BadInputError, match="too long"):
            writer.begin_episode()
        assert list(tmp_path.iterdir()) == []
        return
    writer.begin_episode()
    writer.write_timestep({"x": value(0)})
    assert writer.end_episode() == path
    assert check_steps(path) == 1


def test_interrupt_inside_a_flush_loses_and_repeats_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C usually ends a recording, and `with` then flushes what is buffered."""
    real = journal.append_record

    def interrupted(*args: Any) -> int:
        real(*args)
        raise KeyboardInterrupt

    with begin(tmp_path, 6) as writer:
        with monkeypatch.context() as patch:
            patch.setattr(stream_writer, "append_record", interrupted)
            with pytest.raises(KeyboardInterrupt):
                writer.flush()
        assert (writer.step_count, writer.flushed_steps) == (6, 4)
    report = recover(tmp_path / "ep.wshard.partial", remove_partial=True)
    assert (report.step_count, report.lost_bytes) == (6, 0)
    assert check_steps(tmp_path / "ep.wshard") == 6


def test_end_can_be_repeated_after_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = begin(tmp_path, STEPS)

    def full(*_: Any, **__: Any) -> None:
        raise StorageError("No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(stream_writer, "assemble", full)
        with pytest.raises(StorageError):
            writer.end_episode()
    with pytest.raises(BadInputError, match="has ended"):
        writer.write_timestep({"x": value(STEPS)})
    assert writer.end_episode() == tmp_path / "ep.wshard"
    assert check_steps(tmp_path / "ep.wshard") == STEPS


def killed(scene: str, root: Path, stride: int) -> list[tuple[Path, int]]:
    """Run a scene once for every `stride` lines; return the directories, and the steps flushed in each."""
    command = [sys.executable, "-m", "tests.formats.wshard.kill_points", scene, str(root), str(stride)]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=1500)
    return [(root / str(number), flushed) for number, flushed in enumerate(json.loads(done.stdout))]


@pytest.mark.parametrize(("scene", "stride"), [("record", 23), ("recover", 13)])
def test_kill_before_any_line_leaves_every_flushed_step(scene: str, stride: int) -> None:
    check_kills(scene, stride)


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("scene", ["record", "recover"])
def test_kill_before_every_line_leaves_every_flushed_step(scene: str) -> None:
    check_kills(scene, 1)


def check_kills(scene: str, stride: int) -> None:
    states = set()
    with scratch_directory() as root:
        for directory, flushed in killed(scene, Path(root), stride):
            states.add(check_kill(directory, flushed))
    assert len(states) >= 3, "the kills hit too few different moments"


def check_kill(directory: Path, flushed: int) -> tuple[bool, ...]:
    """Recover what a killed process left, and record again under the same name. Return what was left."""
    path, partial = directory / "ep.wshard", directory / "ep.wshard.partial"
    left = path.exists(), partial.exists(), any(found.suffix == ".saving" for found in directory.iterdir())
    if partial.exists():
        try:
            assert recover(partial, remove_partial=True).step_count >= flushed
        except CorruptError:
            assert flushed == 0
    if path.exists():
        assert check_steps(path) >= flushed
        path.rename(directory / "first.wshard")
    else:
        assert flushed == 0
    begin(directory, STEPS).end_episode()
    assert check_steps(path) == STEPS
    assert {found.name for found in directory.iterdir()} <= {"ep.wshard", "first.wshard"}
    return left
