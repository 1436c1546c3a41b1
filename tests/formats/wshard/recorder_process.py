"""A program that records until it is killed, and prints the number of flushed steps after each flush."""

from __future__ import annotations

import os
import sys

import numpy as np

from warpdata.wshard import WShardStreamWriter

__all__ = ["CHANNEL_COUNT", "NUMPY", "value"]

DTYPES = ("f32", "f64", "u8", "i16", "i64", "bool", "u32", "f16")
NUMPY = (np.float32, np.float64, np.uint8, np.int16, np.int64, np.bool_, np.uint32, np.float16)
CHANNEL_COUNT = len(DTYPES)


def value(channel: int, step: int) -> np.ndarray[tuple[int], np.dtype[np.generic]]:
    """Return the value of a channel at a step, different for each step and element."""
    return ((np.arange(channel + 1) + step * 7 + channel) % 120).astype(NUMPY[channel])


def main(path: str, flush_steps: int, fsync: str, count: int) -> None:
    channels = [
        {"id": f"c{number}", "dtype": dtype, "shape": [number + 1], "compression": "zstd" if number % 2 else "none"}
        for number, dtype in enumerate(DTYPES)
    ]
    os.write(1, b"ready\n")
    with WShardStreamWriter(path, "ep", channels, flush_steps=flush_steps, fsync=fsync) as writer:
        writer.begin_episode(env_id="Killed-v0", tick_hz=30.0)
        printed = 0
        for step in range(count):
            writer.write_timestep({f"c{n}": value(n, step) for n in range(CHANNEL_COUNT)}, reward=float(step % 1000))
            if writer.flushed_steps != printed:
                printed = writer.flushed_steps
                os.write(1, b"%d\n" % printed)
        writer.end_episode()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
