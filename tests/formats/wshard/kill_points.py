"""A program that runs a scene many times, each in a forked process that kills itself before its n-th line.

The lines are those of the modules that change files, so that every step of a recording is interrupted. The
parent prints one JSON list: the number of steps that each process had flushed. The last number is that of a process
that reached its end.
"""

from __future__ import annotations

import json
import mmap
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

from warpdata.wshard import Channel, ChunkedEpisodeWriter, Episode, WShardStreamWriter, recover

__all__ = ["CHUNK_STEPS", "STEPS", "value"]

STEPS, FLUSH_STEPS, CHUNK_STEPS = 10, 4, 3
_TRACED = (
    "stream_writer.py",
    "step_values.py",
    "recovery.py",
    "container_writer.py",
    "chunked.py",
    "atomic_file.py",
    "lock_file.py",
)


def value(step: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.arange(3, dtype=np.float32) + step


def make_writer(directory: Path) -> WShardStreamWriter:
    channels = [{"id": "x", "dtype": "f32", "shape": [3], "compression": "zstd"}]
    return WShardStreamWriter(directory / "ep.wshard", "ep", channels, flush_steps=FLUSH_STEPS, fsync="never")


def record(directory: Path, flushed: mmap.mmap) -> None:
    writer = make_writer(directory)
    writer.begin_episode("Killed-v0", tick_hz=30)
    for step in range(STEPS):
        writer.write_timestep({"x": value(step)}, reward=float(step))
        flushed[0] = writer.flushed_steps
    writer.end_episode()
    flushed[0] = STEPS


def recover_journal(directory: Path, flushed: mmap.mmap) -> None:
    flushed[0] = STEPS
    recover(directory / "ep.wshard.partial", remove_partial=True)


def record_chunks(directory: Path, flushed: mmap.mmap) -> None:
    writer = ChunkedEpisodeWriter(directory, "ep", chunk_size_t=CHUNK_STEPS)
    for first in range(0, STEPS, CHUNK_STEPS):
        rows = np.stack([value(step) for step in range(first, min(first + CHUNK_STEPS, STEPS))])
        writer.write_chunk(Episode("ep", len(rows), observations={"x": Channel("x", rows)}))
        flushed[0] = first + len(rows)
    writer.finalize_manifest()


SCENES: dict[str, Callable[[Path, mmap.mmap], None]] = {
    "record": record,
    "recover": recover_journal,
    "chunks": record_chunks,
}


def kill_before_line(number: int) -> Callable[[FrameType, str, Any], Any]:
    left = number

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal left
        if event == "call":
            return trace if frame.f_code.co_filename.endswith(_TRACED) else None
        if event == "line":
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)
        return trace

    return trace


def run(scene: str, directory: Path, number: int, flushed: mmap.mmap) -> bool:
    """Run the scene until its n-th line. True: it reached its end."""
    flushed[0] = 0
    child = os.fork()
    if not child:
        sys.settrace(kill_before_line(number))
        SCENES[scene](directory, flushed)
        sys.settrace(None)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or status == 0, status
    return status == 0


def main(scene: str, root: Path, stride: int) -> None:
    flushed = mmap.mmap(-1, 1)
    results: list[int] = []
    is_over = False
    while not is_over:
        directory = root / str(len(results))
        directory.mkdir()
        if scene == "recover":
            with make_writer(directory) as writer:
                writer.begin_episode("Killed-v0", tick_hz=30)
                for step in range(STEPS):
                    writer.write_timestep({"x": value(step)}, reward=float(step))
        is_over = run(scene, directory, len(results) * stride, flushed)
        results.append(flushed[0])
    print(json.dumps(results))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
