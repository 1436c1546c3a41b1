"""A Gymnasium wrapper that records each episode into a crash-safe file, with nested spaces as flat channels."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from warpdata.errors import BadInputError, ConflictError, SchemaMismatchError, UnsupportedError
from warpdata.formats.convert.episode_fields import Array
from warpdata.formats.convert.output import make_unique
from warpdata.formats.wshard import DType, WShardStreamWriter
from warpdata.primitives.extras import require
from warpdata.primitives.paths import check_path

__all__ = ["RecordEpisodes"]

_gymnasium = require("gymnasium", purpose="recording an environment", extra="gymnasium")
_LEAF_SPACES = ("Box", "Discrete", "MultiBinary", "MultiDiscrete")


class RecordEpisodes(_gymnasium.Wrapper):  # type: ignore[misc,name-defined]
    """An environment wrapper that records each episode as `directory/NAME_000000.wshard`.

    A row is one transition: the observation before the action (`signal/…`), the action (`action/…`), and the
    resulting reward, `done` (terminated) and `truncated`. The observation after the last action is not in a row.
    With `next_observations`, every row also has the observation after it, as `signal/next_obs/…`. Rewards are
    float32. Numbering continues after the files in the directory. `info` is not recorded.

    If the environment raises or the process dies, the journal of the episode stays, for `warpdata.wshard.recover`.
    An episode interrupted by `reset` or `close` is saved with neither flag set. `flush_steps` and `fsync` are those
    of `WShardStreamWriter`.
    """

    def __init__(
        self,
        env: Any,
        directory: str | Path,
        *,
        name: str = "episode",
        tick_hz: float | None = None,
        next_observations: bool = False,
        flush_steps: int = 64,
        fsync: str = "flush",
    ) -> None:
        super().__init__(env)
        if hasattr(env, "num_envs") or not name or "/" in name:
            raise BadInputError(f"name={name!r} is not a plain name, or the environment is vectorized")
        self._directory, self._name, self._tick_hz = check_path(directory), name, tick_hz
        self._with_next = next_observations
        self._options: dict[str, Any] = {"flush_steps": flush_steps, "fsync": fsync}
        # Refuse unsupported spaces now, not after the first episode.
        list(_flatten_names(env.observation_space, ""))
        list(_flatten_names(env.action_space, ""))
        self._directory.mkdir(parents=True, exist_ok=True)
        self._writer: WShardStreamWriter | None = None
        self._before: dict[str, Array] | None = None
        self._seed: int | None = None
        self._dtypes: dict[str, np.dtype[Any]] = {}
        self._ids: dict[str, str] = {}
        self.written: list[Path] = []
        """The files of the episodes that have ended, in order."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset the environment. An episode that has not ended is saved first."""
        self._end()
        observation, info = super().reset(seed=seed, options=options)
        self._seed = seed
        self._before = self._observation_channels(observation)
        return observation, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step the environment. The file of the episode exists when this returns that it ended."""
        if self._before is None:
            raise BadInputError("no episode is running", hint="Call reset first.")
        try:
            # Copy before the step, because environments may modify the action.
            actions = {f"action/{name}": value.copy() for name, value in self._action_channels(action)}
            observation, reward, terminated, truncated, info = super().step(action)
            after = self._observation_channels(observation)
            row = {**self._before, **actions}
            if self._with_next:
                row |= {f"signal/next_obs/{key.removeprefix('signal/')}": value for key, value in after.items()}
            writer = self._writer or self._begin(row)
            writer.write_timestep(
                {self._ids[block]: self._cast(block, value) for block, value in row.items()},
                reward=_to_float(reward),
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
        """Save the running episode, and close the environment."""
        try:
            self._end()
        finally:
            super().close()

    def _observation_channels(self, observation: Any) -> dict[str, Array]:
        leaves = _flatten(self.env.observation_space, observation, "")
        # Copy, because many environments write the next observation into the same array.
        return {f"signal/{name or 'observation'}": value.copy() for name, value in leaves}

    def _action_channels(self, action: Any) -> list[tuple[str, Array]]:
        return [(name or "action", value) for name, value in _flatten(self.env.action_space, action, "")]

    def _begin(self, row: dict[str, Array]) -> WShardStreamWriter:
        self._dtypes = {block: value.dtype for block, value in row.items()}
        # Observations and actions may share a name, but ids may not.
        taken: set[str] = set()
        self._ids = {block: make_unique(block.partition("/")[2], taken) for block in row}
        channels = [_declare(block, self._ids[block], value) for block, value in row.items()]
        spec = getattr(self.env, "spec", None)
        about: dict[str, Any] = {"version": str(_gymnasium.__version__)}
        if self._seed is not None:
            about["seed"] = int(self._seed)
        env_id = str(spec.id) if spec is not None else ""
        for number in itertools.count(self._next_number()):
            path = self._directory / f"{self._name}_{number:06d}.wshard"
            writer = WShardStreamWriter(path, path.stem, channels, **self._options)
            # Another process that records into the same directory may have taken the number.
            with suppress(ConflictError):
                writer.begin_episode(env_id, tick_hz=self._tick_hz, attributes={"gymnasium": about})
                break
        self._writer = writer
        return writer

    def _next_number(self) -> int:
        pattern = re.compile(re.escape(self._name) + r"_(\d{6,})\.wshard(\.partial)?")
        found = [pattern.fullmatch(path.name) for path in self._directory.iterdir()]
        return max((int(match[1]) + 1 for match in found if match), default=0)

    def _cast(self, block: str, value: Array) -> Array:
        """Cast to the dtype of the first value if that is exact: environments may return an int 0 for a float."""
        wanted = self._dtypes[block]
        if value.dtype == wanted:
            return value
        with np.errstate(all="ignore"):
            cast = value.astype(wanted)
        if not np.array_equal(cast, value, equal_nan=wanted.kind == "f" and value.dtype.kind == "f"):
            raise SchemaMismatchError(f"{block} was {wanted} in the first step, and is {value.dtype} now")
        return cast

    def _end(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            try:
                self.written.append(writer.end_episode())
            finally:
                writer.close()

    def _abandon(self) -> None:
        """Flush the journal and leave it, for `recover`."""
        writer, self._writer, self._before = self._writer, None, None
        if writer is not None:
            with writer:
                pass


def _to_float(reward: Any) -> float:
    try:
        return float(reward)
    except (TypeError, ValueError, OverflowError) as error:
        raise SchemaMismatchError(f"the environment returned a reward that is no float: {error}") from error


def _flatten_names(space: Any, name: str) -> Iterator[str]:
    """Yield the name of each leaf of a space: keys of `Dict` and positions in `Tuple`, joined by slashes.

    `UnsupportedError` for spaces whose values have no fixed shape.
    """
    kind = type(space).__name__
    if kind == "Dict":
        for key, below in space.spaces.items():
            yield from _flatten_names(below, f"{name}/{key}" if name else str(key))
    elif kind == "Tuple":
        for number, below in enumerate(space.spaces):
            yield from _flatten_names(below, f"{name}/{number}" if name else str(number))
    elif kind in _LEAF_SPACES:
        yield name
    else:
        raise UnsupportedError(
            f"the space {name or space!s} is a {kind}, whose values have no fixed shape",
            hint="Wrap the environment so that it has Box, Discrete, MultiBinary, MultiDiscrete, Dict or Tuple spaces.",
        )


def _flatten(space: Any, value: Any, name: str) -> Iterator[tuple[str, Array]]:
    """Yield the leaves of a value, by the same names. Dtypes are those of the values, not of the space."""
    kind = type(space).__name__
    if kind == "Dict":
        for key, below in space.spaces.items():
            yield from _flatten(below, value[key], f"{name}/{key}" if name else str(key))
    elif kind == "Tuple":
        for number, below in enumerate(space.spaces):
            yield from _flatten(below, value[number], f"{name}/{number}" if name else str(number))
    else:
        yield name, np.asarray(value)


def _declare(block: str, channel_id: str, value: Array) -> dict[str, Any]:
    """Return the declaration of a channel for the stream writer."""
    try:
        dtype = DType.of(value.dtype)
    except BadInputError as error:
        raise SchemaMismatchError(f"{block} has values of {value.dtype}, which an episode cannot hold") from error
    return {"id": channel_id, "dtype": str(dtype), "shape": list(value.shape), "signal_block": block}
