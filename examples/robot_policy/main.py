"""Record demonstrations of a point robot, publish them, and clone the behaviour from training windows.

The expert moves towards a target with `action = 0.5 * (target - position)`. A linear policy over the last two
positions and the target learns that rule by least squares.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

import warpdata as wd
from warpdata.wshard import WShardStreamWriter

DATASET = "examples/point-robot"
CHANNELS = [
    {"id": "position", "dtype": "f32", "shape": [2]},
    {"id": "target", "dtype": "f32", "shape": [2]},
    {"id": "move", "dtype": "f32", "shape": [2], "signal_block": "action/move"},
]


def record(directory: Path, count: int) -> None:
    """Record one crash-safe file per episode: flushed steps survive a killed process."""
    rng = np.random.default_rng(0)
    for number in range(count):
        name = f"demo_{number:03}"
        position, target = rng.normal(size=2), rng.normal(size=2)
        with WShardStreamWriter(directory / f"{name}.wshard", name, CHANNELS) as writer:
            writer.begin_episode(env_id="PointReach-v0", tick_hz=10, metadata={"expert": "proportional"})
            for _ in range(30):
                move = 0.5 * (target - position)
                step = {"position": position, "target": target, "move": move}
                writer.write_timestep({key: value.astype(np.float32) for key, value in step.items()})
                position = position + move + 0.05 * rng.normal(size=2)
            writer.end_episode()


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        record(Path(scratch), 20)
        wd.DatasetBuilder(DATASET).add_episodes("demos", Path(scratch)).publish("20 demonstrations")

    episodes = wd.dataset(DATASET).episodes("demos")
    print(f"{len(episodes)} episodes of {episodes[0].length} steps: {episodes[0].blocks}")

    stream = episodes.windows(
        keys={"position": (-1, 1), "target": (0, 1), "move": (0, 1)}, batch_size=64, shuffle=True, seed=0
    )
    inputs, outputs = [], []
    for batch in stream.epoch(0):
        inputs.append(np.concatenate([batch["position"].reshape(-1, 4), batch["target"][:, 0]], axis=1))
        outputs.append(batch["move"][:, 0])
    weights, *_ = np.linalg.lstsq(np.concatenate(inputs), np.concatenate(outputs), rcond=None)
    print("learned action =", np.round(weights[2:4].diagonal(), 2), "* position +", np.round(weights[4:].diagonal(), 2))

    position, target = np.array([2.0, -1.0]), np.array([0.0, 1.0])
    previous = position
    for _ in range(20):
        move = np.concatenate([previous, position, target]) @ weights
        previous, position = position, position + move
    error = float(np.linalg.norm(position - target))
    print(f"distance to the target after 20 steps: {error:.4f}")
    assert error < 0.05


if __name__ == "__main__":
    main()
