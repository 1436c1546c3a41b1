"""Record what a Gymnasium environment does, one crash-safe episode file after another."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np

from warpdata.errors import BadInputError, SchemaMismatchError
from warpdata.formats.convert.episode_fields import Array
from warpdata.formats.convert.gymnasium_spaces import channel_of, flat_names, flat_values
from warpdata.formats.convert.libraries import load
from warpdata.formats.convert.output_dir import free_name
from warpdata.formats.wshard import WShardStreamWriter

__all__ = ["RecordEpisodes"]

_gymnasium = load("gymnasium")


class RecordEpisodes(_gymnasium.Wrapper):  # type: ignore[misc,name-defined]
    """An environment that writes down each episode as `folder/NAME_000000.wshard`.

    A row is one transition: the observation before the action (`signal/…`), the action (`action/…`), and the
    reward, `done` (terminated) and `truncated` that came of it. The observation after the last action is not
    in a row; with `next_observations` every row has the observation after it as well, as `signal/next_obs/…`.
    Rewards are float32. Numbers go on after those that are in the folder. What `info` says is not recorded.

    When the environment raises, or the process dies, the journal of the episode stays, and
    `warpdata.formats.wshard.recover` makes an episode of it. An episode that is left by `reset` or `close` is saved
    with neither flag set. `flush_steps` and `fsync` are those of `WShardStreamWriter`.
    """

    def __init__(
        self,
        env: Any,
        folder: str | Path,
        *,
        name: str = "episode",
        tick_hz: float | None = None,
        next_observations: bool = False,
        flush_steps: int = 64,
        fsync: str = "flush",
    ) -> None:
        super().__init__(env)
        if hasattr(env, "num_envs") or not name or "/" in name:
            raise BadInputError(f"{name!r} cannot be recorded: one environment and a plain name are needed")
        self._folder, self._name, self._tick_hz = Path(folder), name, tick_hz
        self._with_next = next_observations
        self._options: dict[str, Any] = {"flush_steps": flush_steps, "fsync": fsync}
        # Spaces that cannot be recorded are refused now, not after an hour.
        list(flat_names(env.observation_space, ""))
        list(flat_names(env.action_space, ""))
        self._folder.mkdir(parents=True, exist_ok=True)
        self._writer: WShardStreamWriter | None = None
        self._before: dict[str, Array] | None = None
        self._seed: int | None = None
        self._dtypes: dict[str, np.dtype[Any]] = {}
        self._ids: dict[str, str] = {}
        self.written: list[Path] = []
        """The files of the episodes that ended, in order."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """As the environment's. An episode that had not ended is saved as it is."""
        self._end()
        observation, info = super().reset(seed=seed, options=options)
        self._seed = seed
        self._before = self._observed(observation)
        return observation, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """As the environment's. The episode's file is there when this says that it ended."""
        if self._before is None:
            raise BadInputError("the episode is over, or never began", hint="Call reset first.")
        try:
            # Before the step: environments may write into what they were handed.
            acted = {f"action/{name}": value.copy() for name, value in self._acted(action)}
            observation, reward, terminated, truncated, info = super().step(action)
            after = self._observed(observation)
            row = {**self._before, **acted}
            if self._with_next:
                row |= {f"signal/next_obs/{key.removeprefix('signal/')}": value for key, value in after.items()}
            writer = self._writer or self._begin(row)
            writer.write_timestep(
                {self._ids[block]: self._fitting(block, value) for block, value in row.items()},
                reward=float(reward),
                done=bool(terminated),
                truncated=bool(truncated),
            )
        except BaseException:
            self._abandon()
            raise
        self._before = after
        if terminated or truncated:
            self._end()
            self._before = None
        return observation, reward, terminated, truncated, info

    def close(self) -> None:
        """Save the episode as far as it went, and close the environment."""
        try:
            self._end()
        finally:
            super().close()

    def _observed(self, observation: Any) -> dict[str, Array]:
        leaves = flat_values(self.env.observation_space, observation, "")
        # A copy: many environments write the next observation into the same array.
        return {f"signal/{name or 'observation'}": value.copy() for name, value in leaves}

    def _acted(self, action: Any) -> list[tuple[str, Array]]:
        return [(name or "action", value) for name, value in flat_values(self.env.action_space, action, "")]

    def _begin(self, row: dict[str, Array]) -> WShardStreamWriter:
        self._dtypes = {block: value.dtype for block, value in row.items()}
        path = self._folder / f"{self._name}_{self._next_number():06d}.wshard"
        # Observations and actions may share a name, but ids may not.
        taken: set[str] = set()
        self._ids = {block: free_name(block.partition("/")[2], taken) for block in row}
        channels = [channel_of(block, self._ids[block], value) for block, value in row.items()]
        writer = WShardStreamWriter(path, path.stem, channels, **self._options)
        spec = getattr(self.env, "spec", None)
        told: dict[str, Any] = {"version": str(_gymnasium.__version__)}
        if self._seed is not None:
            told["seed"] = int(self._seed)
        env_id = str(spec.id) if spec is not None else ""
        writer.begin_episode(env_id, tick_hz=self._tick_hz, attributes={"gymnasium": told})
        self._writer = writer
        return writer

    def _next_number(self) -> int:
        pattern = re.compile(re.escape(self._name) + r"_(\d{6,})\.wshard(\.partial)?")
        found = [pattern.fullmatch(path.name) for path in self._folder.iterdir()]
        return max((int(match[1]) + 1 for match in found if match), default=0)

    def _fitting(self, block: str, value: Array) -> Array:
        """The value in the type of the first one, where that changes nothing: 0 may be an int now and then."""
        wanted = self._dtypes[block]
        if value.dtype == wanted:
            return value
        with np.errstate(all="ignore"):
            made = value.astype(wanted)
        if not np.array_equal(made, value, equal_nan=wanted.kind == "f" and value.dtype.kind == "f"):
            raise SchemaMismatchError(f"{block} was {wanted} at first, and is {value.dtype} now")
        return made

    def _end(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            try:
                self.written.append(writer.end_episode())
            finally:
                writer.close()

    def _abandon(self) -> None:
        """Put what was written into the journal, and leave it there."""
        writer, self._writer, self._before = self._writer, None, None
        if writer is not None:
            with writer:
                pass
