"""Killed with `kill -9` in the middle of an epoch, and gone on from the last checkpoint with another number of ranks.

Every rank is a process that takes its batches, pauses as if it trained, and writes down what it took together with
the library's own state. All ranks are killed at once. The last step that all of them wrote down is the checkpoint;
from its states the epoch is read to its end with another number of ranks and the same global batch. What came
before and after is compared with an epoch that nobody disturbed.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.harness.timing import Effort, Finding, Report
from benchmarks.streams.peers import OURS, peer_versions
from benchmarks.streams.spec import Spec
from benchmarks.streams.testbed import (
    MakeSpec,
    Source,
    Stage,
    free_port,
    last_line,
    lost_and_repeated,
    open_stage,
)

__all__ = ["run"]

_GLOBAL = 64
_ROWS = 4_800
_SHARD_ROWS = 200
_SECOND_FROM = 1_000_000
_KILLED_AFTER = 25
_PATIENCE_S = 60.0
_MOVES = ((4, 2), (2, 4))
_CASES: Mapping[str, Mapping[str, Any]] = {"plain": {}, "filtered": {"keep": 0.5}, "mixed": {"weights": [0.7, 0.3]}}
_NO_STATE = ("webdataset",)
_NEEDS_ITS_CACHE = ("litdata",)
"""Its state names the folder of its cache, and is refused elsewhere; so it goes on with the same one."""

_MEASURED = "Of the peers only Lance has a filter. None was measured with a mixture."

Batches = list[list[int]]


@dataclass(frozen=True, slots=True)
class _Written:
    """What the ranks wrote down: the global batches all of them took, and their states after the last of these."""

    batches: Batches
    states: Sequence[Any]


def run(effort: Effort) -> Report:
    rows = 1_600 if effort.quick else _ROWS
    findings, notes = [], []
    with open_stage(effort) as stage:
        stage.proxy.delay_s = 0.0
        specs, failed = stage.prepare_all(Source("rows", rows, shard_rows=_SHARD_ROWS), without=_NO_STATE)
        second = stage.publish(Source("rows", rows, shard_rows=_SHARD_ROWS, first=_SECOND_FROM))("").url
        notes += [*failed, *(f"{arm} has no state to go on from." for arm in _NO_STATE)]
        for arm, make in specs.items():
            for case, extra in _CASES.items():
                if arm != OURS and (case == "mixed" or (case == "filtered" and arm != "lancedb")):
                    continue
                extra = {**extra, "second": second} if case == "mixed" else extra
                for before, after in _MOVES:
                    name = f"{arm}: {case}, {before} ranks, then {after}"
                    try:
                        findings.append(_finding(name, arm, *_killed(stage, arm, make, (before, after), extra)))
                    except RuntimeError as error:
                        findings.append(Finding(case=name, ours="", peer=f"fails: {last_line(error)}"))
        return Report(
            "S4: killed and gone on with other ranks",
            f"{rows:,} rows, global batches of {_GLOBAL}, killed after about {_KILLED_AFTER} steps; once each.",
            findings,
            [*notes, _MEASURED, peer_versions(stage.peers)],
            is_timed=False,
        )


def _killed(
    stage: Stage, arm: str, make: MakeSpec, move: tuple[int, int], extra: Mapping[str, Any]
) -> tuple[int, int, float]:
    """How many samples were lost and repeated, and which share of the global batches was the same."""
    before, after = move
    if arm in _NEEDS_ITS_CACHE:
        make = partial(_with_cache, make, stage.fresh_cache())
    undisturbed = _walk(stage, arm, make, before, extra).batches
    first = _walk(stage, arm, make, before, extra, kill_after=min(_KILLED_AFTER, len(undisturbed) // 2))
    rest = _walk(stage, arm, make, after, extra, states=first.states)
    whole = [*first.batches, *rest.batches]
    flat, due = ([number for batch in batches for number in batch] for batches in (whole, undisturbed))
    same = sum(sorted(a) == sorted(b) for a, b in zip(whole, undisturbed, strict=False))
    return *lost_and_repeated(flat, due), same / max(len(undisturbed), len(whole))


def _with_cache(make: MakeSpec, cache: str, _: str) -> Spec:
    return make(cache)


def _walk(
    stage: Stage,
    arm: str,
    make: MakeSpec,
    world_size: int,
    extra: Mapping[str, Any],
    *,
    states: Sequence[Any] | None = None,
    kill_after: int | None = None,
) -> _Written:
    """All ranks at once, to the end of the epoch or until they are killed."""
    folder, port = stage.folder("walk"), free_port()
    logs = [folder / f"{rank}.jsonl" for rank in range(world_size)]
    with ExitStack() as stack:
        spec = {**asdict(make(stage.fresh_cache())), "batch_size": _GLOBAL // world_size, "workers": 0, **extra}
        children = []
        for rank, log in enumerate(logs):
            ranked = {"RANK": rank, "WORLD_SIZE": world_size, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": world_size}
            environ = {name: str(value) for name, value in ranked.items()}
            environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "TMPDIR": str(folder)}
            child = stack.enter_context(stage.launch(arm, environ))
            child.tell("walk", log=str(log), rank=rank, world_size=world_size, states=states, **spec)
            children.append(child)
        deadline = time.monotonic() + _PATIENCE_S
        while not all(child.has_answered() for child in children):
            if time.monotonic() > deadline:
                raise RuntimeError("it hangs")
            if kill_after is not None and min(map(_line_count, logs)) >= kill_after:
                break
            time.sleep(0.01)
        if kill_after is None:
            for child in children:
                child.hear()
        for child in children:
            child.kill()
    return _read(logs)


def _line_count(log: Path) -> int:
    return log.read_bytes().count(b"\n") if log.exists() else 0


def _read(logs: Sequence[Path]) -> _Written:
    """A line that was being written when its process was killed does not count."""
    written = [[json.loads(line) for line in log.read_text().split("\n")[:-1]] for log in logs]
    common = min(map(len, written))
    batches = [[number for rank in written for number in rank[step]["ids"]] for step in range(common)]
    return _Written(batches, [rank[common - 1]["state"] for rank in written] if common else [])


def _finding(name: str, arm: str, lost: int, repeated: int, same: float) -> Finding:
    told = f"{lost:,} lost, {repeated:,} repeated, {same:.1%} of the batches the same"
    is_ours = arm == OURS
    return Finding(
        case=name,
        ours=told if is_ours else "",
        peer="" if is_ours else told,
        target="0, 0, 100 %" if is_ours else "",
        is_met=(lost, repeated, same) == (0, 0, 1.0) if is_ours else None,
    )
