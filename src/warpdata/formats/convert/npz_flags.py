"""How rewards and endings are told in a Dreamer NPZ, both ways.

An NPZ says `is_last` and `is_terminal` where an episode says `truncated` and `done`, and repeats itself in
`is_first` and `discount`. Those two are dropped where they follow from the others, and kept as observations
where they do not.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from warpdata.formats.convert.episode_fields import Array, info_of
from warpdata.formats.convert.report import Ledger
from warpdata.formats.wshard import WShardFile

__all__ = ["LIKE_FLAGS", "TakenFlags", "derived_flags", "is_mistakable", "taken_flags"]

LIKE_FLAGS = ("is_first", "is_last", "discount")
"""Observations with these names are kept, where an import tells them from flags."""


def derived_flags(file: WShardFile, own: set[str], ledger: Ledger) -> dict[str, Array]:
    """The arrays that every NPZ has. Those named in `own` are written already, as observations of these names."""
    info = info_of(file)
    length = info.length
    done = file["done"].read() if "done" in file else None
    truncated = file["truncated"].read() if "truncated" in file else None
    ended = np.zeros(length, np.bool_) if done is None else done
    last = ended if truncated is None else ended | truncated
    if length:
        last = last.copy()
        last[-1] = True
    if done is None:
        ledger.added("is_terminal", "the episode does not say where it terminates: false everywhere")
    else:
        ledger.kept("done", "as is_terminal")
    if truncated is not None:
        if "is_last" in own or not np.array_equal(truncated, last & ~ended):
            ledger.changed("truncated", "an NPZ tells it as is_last where not is_terminal, and always at the last step")
        else:
            ledger.kept("truncated", "as is_last")
    out: dict[str, Array] = {"is_terminal": ended}
    if "reward" in file:
        out["reward"] = file["reward"].read()
        ledger.kept("reward")
    else:
        out["reward"] = np.zeros(length, np.float32)
        ledger.added("reward", "the episode has none: zeros")
    first = np.arange(length) == 0
    if info.chunk is not None and info.chunk.first_step:
        first[:] = False
    made = {"is_first": first, "is_last": last, "discount": 1 - ended.astype(np.float32)}
    for name, values in made.items():
        if name not in own:
            out[name] = values
            ledger.added(name, "it follows from the endings" if name != "is_first" else "true at the first step")
    return out


def is_mistakable(file: WShardFile, name: str, values: Array) -> bool:
    """Whether an import would take an observation with this name and these values for a flag."""
    length = info_of(file).length
    if values.shape != (length,):
        return False
    ended = file["done"].read() if "done" in file else np.zeros(length, np.bool_)
    if name == "is_last":
        return _is_boolean(values) and _follows(values != 0, ended)
    return _is_implied(name, values, ended)


@dataclass(slots=True)
class TakenFlags:
    """What the arrays of an NPZ say in an episode's own words. `used` are those that are accounted for."""

    reward: Array | None = None
    done: Array | None = None
    truncated: Array | None = None
    timestamps_ns: Array | None = None
    used: set[str] = field(default_factory=set)


def taken_flags(arrays: dict[str, Array], length: int, ledger: Ledger) -> TakenFlags:
    """Take what has a meaning, and leave the rest to be observations."""
    out = TakenFlags()
    fit = {name: array for name, array in arrays.items() if array.shape == (length,)}
    _take_reward(fit, out, ledger)
    terminal = fit.get("is_terminal")
    if terminal is not None and _is_boolean(terminal):
        out.done = terminal != 0
        _settle("is_terminal", terminal, "done", out, ledger)
    ended = np.zeros(length, np.bool_) if out.done is None else out.done
    last = fit.get("is_last")
    if last is not None and _is_boolean(last) and _follows(last != 0, ended):
        out.truncated = (last != 0) & ~ended
        _settle("is_last", last, "done and truncated", out, ledger)
    if "timestamps_ns" in fit and fit["timestamps_ns"].dtype == np.dtype("<i8"):
        out.timestamps_ns = fit["timestamps_ns"]
        _settle("timestamps_ns", fit["timestamps_ns"], "time/timestamps_ns", out, ledger)
    for name in ("is_first", "discount"):
        if name in fit and _is_implied(name, fit[name], ended):
            out.used.add(name)
            ledger.kept(name, "it follows from the others, and is made anew by an export")
    return out


def _take_reward(fit: dict[str, Array], out: TakenFlags, ledger: Ledger) -> None:
    reward = fit.get("reward")
    if reward is None:
        return
    with np.errstate(over="ignore"):
        out.reward = reward.astype(np.float32)
    out.used.add("reward")
    if reward.dtype == np.dtype("<f4"):
        ledger.kept("reward")
    elif np.array_equal(out.reward.astype(np.float64), reward.astype(np.float64), equal_nan=True):
        ledger.changed("reward", f"{reward.dtype} became float32; every value is exact")
    else:
        ledger.changed("reward", f"{reward.dtype} became float32, and was rounded")


def _settle(name: str, array: Array, where: str, out: TakenFlags, ledger: Ledger) -> None:
    out.used.add(name)
    if array.dtype in (np.dtype(np.bool_), np.dtype("<i8")) and (array.dtype != np.int64 or name == "timestamps_ns"):
        ledger.kept(name, f"as {where}")
    else:
        ledger.changed(name, f"{array.dtype} became bool; every value is exact")


def _is_implied(name: str, values: Array, ended: Array) -> bool:
    """Whether a flag follows from the endings. Bits are compared, so that -0.0 does not pass for 0.0."""
    implied = np.arange(len(ended)) == 0 if name == "is_first" else 1 - ended.astype(np.float32)
    return values.dtype == implied.dtype and values.tobytes() == implied.tobytes()


def _is_boolean(array: Array) -> bool:
    return bool(((array == 0) | (array == 1)).all())


def _follows(last: Array, ended: Array) -> bool:
    """Whether an export would say the same: an end is last, and so is the last step."""
    return bool((last | ~ended).all()) and (not len(last) or bool(last[-1]))
