"""Rewards and endings in a Dreamer NPZ, in both directions.

An NPZ has `is_last` and `is_terminal` for the `truncated` and `done` of an episode, and the redundant `is_first` and
`discount`. An import drops these two if they follow from the others, and keeps them as observations otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from warpdata.formats.convert.episode_fields import (
    Array,
    attributes_field,
    is_stepwise,
    is_usual_series,
    list_fields,
    require_info,
    widen_bf16,
)
from warpdata.formats.convert.report import ConversionLog
from warpdata.formats.wshard import DType, WShardFile

__all__ = ["FLAG_NAMES", "EpisodeFlags", "looks_like_flag", "make_flags", "parse_flags"]

FLAG_NAMES = ("is_first", "is_last", "discount")
"""Names of flags that an observation may have too, if an import can distinguish it."""
_SERIES = ("reward", "done", "truncated")


def make_flags(file: WShardFile, written: set[str], log: ConversionLog) -> dict[str, Array]:
    """Return the arrays that every NPZ has, except those already written as observations."""
    info = require_info(file)
    length = info.length
    fields = set(list_fields(file))
    for name in map(attributes_field, _SERIES):
        if name in fields:
            log.lost(name, "an NPZ has no metadata")
    done, truncated = _read_flag(file, "done", log), _read_flag(file, "truncated", log)
    ended = np.zeros(length, np.bool_) if done is None else done
    last = ended if truncated is None else ended | truncated
    if length:
        last = last.copy()
        last[-1] = True
    if done is None:
        log.added("is_terminal", "the episode has no terminations: false everywhere")
    elif is_usual_series(file, "done"):
        log.kept("done", "as is_terminal")
    if truncated is not None and is_usual_series(file, "truncated"):
        if "is_last" in written or not np.array_equal(truncated, last & ~ended):
            log.changed("truncated", "an NPZ has is_last without is_terminal for it, and always at the last step")
        else:
            log.kept("truncated", "as is_last")
    out: dict[str, Array] = {"is_terminal": ended, "reward": _read_reward(file, log)}
    first = np.arange(length) == 0
    if info.chunk is not None and info.chunk.first_step:
        first[:] = False
    flags = {"is_first": first, "is_last": last, "discount": 1 - ended.astype(np.float32)}
    for name, values in flags.items():
        if name not in written:
            out[name] = values
            log.added(name, "it follows from the endings" if name != "is_first" else "true at the first step")
    return out


def _read_flag(file: WShardFile, name: str, log: ConversionLog) -> Array | None:
    """Return a flag for each step, if the file has one. Record the outcome of another type than the usual one."""
    if name not in file or is_usual_series(file, name):
        return file[name].read() if name in file else None
    if not is_stepwise(file, name) or file[name].block_type.shape:
        log.lost(name, "an NPZ has one boolean for each step")
        return None
    log.changed(name, f"{file[name].block_type.dtype} became bool")
    return np.asarray(_read_values(file, name) != 0)


def _read_reward(file: WShardFile, log: ConversionLog) -> Array:
    if "reward" in file and is_stepwise(file, "reward") and not file["reward"].block_type.shape:
        if is_usual_series(file, "reward"):
            log.kept("reward")
        else:
            log.changed("reward", f"an import reads {file['reward'].block_type.dtype} as float32")
        return _read_values(file, "reward")
    if "reward" in file:
        log.lost("reward", "an NPZ has one reward for each step")
    log.added("reward", "the episode has none for each step: zeros")
    return np.zeros(require_info(file).length, np.float32)


def _read_values(file: WShardFile, name: str) -> Array:
    values = file[name].read()
    return widen_bf16(values) if file[name].block_type.dtype is DType.BF16 else values


def looks_like_flag(file: WShardFile, name: str, values: Array) -> bool:
    """Return whether an import would read an observation with this name and these values as a flag."""
    length = require_info(file).length
    if values.shape != (length,):
        return False
    has_done = "done" in file and is_stepwise(file, "done") and not file["done"].block_type.shape
    ended = np.asarray(_read_values(file, "done") != 0) if has_done else np.zeros(length, np.bool_)
    if name == "is_last":
        return _is_boolean(values) and _follows(values != 0, ended)
    return _is_implied(name, values, ended)


@dataclass(slots=True)
class EpisodeFlags:
    """The series of an episode, from the arrays of an NPZ. `used` are the arrays that have an outcome."""

    reward: Array | None = None
    done: Array | None = None
    truncated: Array | None = None
    timestamps_ns: Array | None = None
    used: set[str] = field(default_factory=set)


def parse_flags(arrays: dict[str, Array], length: int, log: ConversionLog) -> EpisodeFlags:
    """Parse the reserved arrays. All others become observations."""
    out = EpisodeFlags()
    fit = {name: array for name, array in arrays.items() if array.shape == (length,)}
    _parse_reward(fit, out, log)
    terminal = fit.get("is_terminal")
    if terminal is not None and _is_boolean(terminal):
        out.done = terminal != 0
        _record("is_terminal", terminal, "done", out, log)
    ended = np.zeros(length, np.bool_) if out.done is None else out.done
    last = fit.get("is_last")
    if last is not None and _is_boolean(last) and _follows(last != 0, ended):
        out.truncated = (last != 0) & ~ended
        _record("is_last", last, "done and truncated", out, log)
    if "timestamps_ns" in fit and fit["timestamps_ns"].dtype == np.dtype("<i8"):
        out.timestamps_ns = fit["timestamps_ns"]
        _record("timestamps_ns", fit["timestamps_ns"], "time/timestamps_ns", out, log)
    for name in ("is_first", "discount"):
        if name in fit and _is_implied(name, fit[name], ended):
            out.used.add(name)
            log.kept(name, "it follows from the others, and an export writes it again")
    return out


def _parse_reward(fit: dict[str, Array], out: EpisodeFlags, log: ConversionLog) -> None:
    reward = fit.get("reward")
    if reward is None:
        return
    with np.errstate(over="ignore"):
        out.reward = reward.astype(np.float32)
    out.used.add("reward")
    if reward.dtype == np.dtype("<f4"):
        log.kept("reward")
    elif np.array_equal(out.reward.astype(np.float64), reward.astype(np.float64), equal_nan=True):
        log.changed("reward", f"{reward.dtype} became float32; every value is exact")
    else:
        log.changed("reward", f"{reward.dtype} became float32; values are rounded")


def _record(name: str, array: Array, where: str, out: EpisodeFlags, log: ConversionLog) -> None:
    out.used.add(name)
    if array.dtype in (np.dtype(np.bool_), np.dtype("<i8")) and (array.dtype != np.int64 or name == "timestamps_ns"):
        log.kept(name, f"as {where}")
    else:
        log.changed(name, f"{array.dtype} became bool; every value is exact")


def _is_implied(name: str, values: Array, ended: Array) -> bool:
    """Return whether a flag follows from the endings. Compares bits, so that -0.0 differs from 0.0."""
    implied = np.arange(len(ended)) == 0 if name == "is_first" else 1 - ended.astype(np.float32)
    return values.dtype == implied.dtype and values.tobytes() == implied.tobytes()


def _is_boolean(array: Array) -> bool:
    return bool(((array == 0) | (array == 1)).all())


def _follows(last: Array, ended: Array) -> bool:
    """Return whether an export would write the same: every end is last, and so is the last step."""
    return bool((last | ~ended).all()) and (not len(last) or bool(last[-1]))
