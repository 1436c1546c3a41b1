"""If this fails, the experience of an agent is recorded wrongly, or lost when its environment crashes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from warpdata.conversion import RecordEpisodes
from warpdata.errors import BadInputError, SchemaMismatchError, UnsupportedError
from warpdata.wshard import load_wshard, recover


class Maze(gym.Env[Any, Any]):
    """Nested spaces of every type. Writes each observation into the same arrays, like fast environments do."""

    observation_space = spaces.Dict(
        {
            "cam": spaces.Box(0, 255, (4, 4, 3), np.uint8),
            "arm": spaces.Tuple((spaces.Box(-1, 1, (2,), np.float32), spaces.Discrete(5))),
            "lamps": spaces.MultiBinary(3),
        }
    )
    action_space = spaces.Dict({"move": spaces.Box(-1, 1, (2,), np.float32), "grip": spaces.Discrete(2)})

    def __init__(self, steps: int = 5, *, terminates: bool = False, fails_at: int | None = None) -> None:
        self._steps, self._terminates, self._fails_at = steps, terminates, fails_at
        self._cam = np.zeros((4, 4, 3), np.uint8)
        self.at = 0

    def _observe(self) -> dict[str, Any]:
        self._cam[:] = self.at
        arm = np.array([self.at, -self.at], np.float32)
        return {"cam": self._cam, "arm": (arm, self.at % 5), "lamps": np.array([1, 0, 1], np.int8)}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self.at = 0
        return self._observe(), {}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        self.at += 1
        if self.at == self._fails_at:
            raise RuntimeError("the motor is on fire")
        action["move"][:] = -9
        over = self.at == self._steps
        return self._observe(), self.at / 10, over and self._terminates, over and not self._terminates, {}


def act(number: int) -> dict[str, Any]:
    return {"move": np.array([number, 0.5], np.float32), "grip": number % 2}


def test_two_recorders_share_a_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both may choose the same number at the same time."""
    monkeypatch.setattr(RecordEpisodes, "_next_number", lambda self: 0)
    one, two = (RecordEpisodes(Maze(3), tmp_path, fsync="never") for _ in range(2))
    for env in (one, two):
        env.reset()
        env.step(act(1))
    for env in (one, two):
        env.close()
    assert [path.name for env in (one, two) for path in env.written] == [
        "episode_000000.wshard",
        "episode_000001.wshard",
    ]
    assert {load_wshard(path).length for env in (one, two) for path in env.written} == {1}


def test_cart_pole_is_recorded_exactly(tmp_path: Path) -> None:
    env = RecordEpisodes(gym.make("CartPole-v1", max_episode_steps=30), tmp_path, tick_hz=50)
    seen: list[list[Any]] = []
    for seed in range(3):
        observation, _ = env.reset(seed=seed)
        env.action_space.seed(seed)
        rows: list[Any] = []
        over = False
        while not over:
            # The second episode balances long enough to be truncated.
            action = int(observation[2] + 0.3 * observation[3] > 0) if seed == 1 else env.action_space.sample()
            after, reward, terminated, truncated, _ = env.step(action)
            rows.append((observation, action, reward, terminated, truncated))
            observation, over = after, terminated or truncated
        seen.append(rows)
    env.close()
    assert [path.name for path in env.written] == [f"episode_00000{number}.wshard" for number in range(3)]
    for seed, (path, rows) in enumerate(zip(env.written, seen, strict=True)):
        episode = load_wshard(path)
        assert (episode.env_id, episode.timebase.hz, episode.length) == ("CartPole-v1", 50, len(rows))
        about = episode.attributes["gymnasium"]
        assert isinstance(about, dict)
        assert about["seed"] == seed
        assert episode.rewards is not None
        assert episode.terminations is not None
        assert episode.truncations is not None
        observations = episode.observations["observation"].data
        assert observations.dtype == np.float32
        for number, (observation, action, reward, terminated, truncated) in enumerate(rows):
            assert observations[number].tobytes() == observation.tobytes()
            assert episode.actions["action"].data[number] == action
            assert episode.rewards[number] == np.float32(reward)
            assert bool(episode.terminations[number]) == terminated
            assert bool(episode.truncations[number]) == truncated
    first, second = load_wshard(env.written[0]), load_wshard(env.written[1])
    assert first.terminations is not None
    assert first.terminations[-1]
    assert second.truncations is not None
    assert second.truncations[-1]


@pytest.mark.parametrize("terminates", [True, False])
def test_nested_spaces_become_channels(tmp_path: Path, terminates: bool) -> None:
    env = RecordEpisodes(Maze(terminates=terminates), tmp_path, next_observations=True)
    env.reset()
    for number in range(5):
        env.step(act(number))
    episode = load_wshard(env.written[0])
    names = {"cam", "arm/0", "arm/1", "lamps"}
    assert set(episode.observations) == names | {f"next_obs/{name}" for name in names}
    assert set(episode.actions) == {"move", "grip"}
    assert all(channel.id == name for name, channel in episode.observations.items())
    np.testing.assert_array_equal(episode.observations["cam"].data[:, 0, 0, 0], range(5))
    np.testing.assert_array_equal(episode.observations["next_obs/cam"].data[:, 0, 0, 0], range(1, 6))
    np.testing.assert_array_equal(episode.observations["arm/1"].data, range(5))
    # The action that was passed, not the one that the environment modified.
    np.testing.assert_array_equal(episode.actions["move"].data[:, 0], range(5))
    assert episode.terminations is not None
    assert episode.truncations is not None
    assert (bool(episode.terminations[-1]), bool(episode.truncations[-1])) == (terminates, not terminates)
    with pytest.raises(BadInputError, match="reset"):
        env.step(act(0))


def test_environment_that_raises_leaves_a_journal(tmp_path: Path) -> None:
    env = RecordEpisodes(Maze(50, fails_at=20), tmp_path)
    env.reset()
    for number in range(19):
        env.step(act(number))
    with pytest.raises(RuntimeError, match="fire"):
        env.step(act(19))
    (partial,) = tmp_path.iterdir()
    found = recover(partial, remove_partial=True)
    assert found.step_count == 19
    np.testing.assert_array_equal(load_wshard(found.path).observations["cam"].data[:, 0, 0, 0], range(19))
    # The next episode gets a new number.
    env.reset()
    env.step(act(1))
    env.close()
    assert [path.name for path in env.written] == ["episode_000001.wshard"]
    assert load_wshard(env.written[0]).length == 1


def test_killed_process_leaves_flushed_steps(tmp_path: Path) -> None:
    script = (
        "import os, sys, signal\n"
        "from tests.formats.convert.test_gymnasium import Maze, act\n"
        "from warpdata.conversion import RecordEpisodes\n"
        "env = RecordEpisodes(Maze(100), sys.argv[1], flush_steps=8)\n"
        "env.reset()\n"
        "for number in range(20): env.step(act(number))\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    root = Path(__file__).parents[3]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root), str(root / "src")])}
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], env=environment, timeout=60, check=False)
    assert done.returncode == -9
    (partial,) = tmp_path.iterdir()
    assert recover(partial).step_count == 16


def test_reset_and_close_save_the_running_episode(tmp_path: Path) -> None:
    env = RecordEpisodes(Maze(), tmp_path, name="run")
    env.reset()
    env.step(act(0))
    env.reset()
    env.close()
    assert [path.name for path in env.written] == ["run_000000.wshard"]
    episode = load_wshard(env.written[0])
    assert episode.truncations is not None
    assert not episode.truncations.any()


def test_unsupported_spaces_are_refused_at_once(tmp_path: Path) -> None:
    env = Maze()
    env.observation_space = spaces.Dict({"words": spaces.Text(5)})
    with pytest.raises(UnsupportedError, match="Text"):
        RecordEpisodes(env, tmp_path)
    with pytest.raises(BadInputError):
        RecordEpisodes(Maze(), tmp_path, name="a/b")


def test_inexact_cast_is_refused(tmp_path: Path) -> None:
    env = RecordEpisodes(gym.make("CartPole-v1"), tmp_path)
    env.reset(seed=1)
    env.step(1)
    env.step(np.int8(1))
    with pytest.raises(SchemaMismatchError, match="action/action"):
        env._cast("action/action", np.array(0.5))
