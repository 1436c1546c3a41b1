"""An epoch killed with SIGKILL and resumed from the last checkpoint with another number of ranks.

Every rank is a process that reads its batches, pauses as if it trained, and logs the ids with the library's state.
All ranks are killed at once. The checkpoint is the last step that all ranks logged. From its states the epoch is
read to its end with another number of ranks and the same global batch, and compared with an undisturbed epoch.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.harness.timing import RunOptions
from benchmarks.results import Measurement, Outcome
from benchmarks.streams.peers import OURS, peer_notes
from benchmarks.streams.spec import SourceSpec
from benchmarks.streams.testbed import MakeSpec, Testbed, find_free_port, last_line, open_testbed

__all__ = ["run"]

_GLOBAL_BATCH = 64
_SHARD_ROWS = 200
_SECOND_DATASET_FIRST_ID = 1_000_000
_KILL_AFTER_STEPS = 25
_TIMEOUT_S = 60.0
_RANK_CHANGES = ((4, 2), (2, 4))
_CASES: Mapping[str, Mapping[str, Any]] = {"plain": {}, "filtered": {"keep": 0.5}, "mixed": {"weights": [0.7, 0.3]}}
_STATELESS = ("webdataset",)
_NEEDS_SAME_CACHE = ("litdata",)
"""Peers whose state names the cache directory and is rejected with another one."""


@dataclass(frozen=True, slots=True)
class _Log:
    """Global batches that all ranks logged, and the states after the last of them."""

    batches: list[list[int]]
    states: Sequence[Any]


@dataclass(frozen=True, slots=True)
class _Comparison:
    """Resumed epoch compared with an undisturbed one."""

    lost: int
    repeated: int
    same_batches_share: float


def run(options: RunOptions) -> Outcome:
    rows = 1_600 if options.is_smoke else 4_800
    measurements: list[Measurement] = []
    with open_testbed(options) as testbed:
        testbed.proxy.delay_s = 0.0
        specs, notes = testbed.prepare_all(SourceSpec("rows", rows, shard_rows=_SHARD_ROWS), without=_STATELESS)
        second = SourceSpec("rows", rows, shard_rows=_SHARD_ROWS, first=_SECOND_DATASET_FIRST_ID)
        mixed = {**_CASES["mixed"], "second": testbed.publish(second)("").url}
        for arm, make in specs.items():
            for case, extra in {**_CASES, "mixed": mixed}.items():
                if arm != OURS and (case == "mixed" or (case == "filtered" and arm != "lancedb")):
                    continue
                for before, after in _RANK_CHANGES:
                    name = f"{case}, {before} ranks, then {after}"
                    try:
                        found = _resume(testbed, arm, make, (before, after), extra)
                    except RuntimeError as error:
                        notes.append(f"{arm} fails, {name}: {last_line(error)}.")
                        continue
                    measurements += _measure(name, found) if arm == OURS else _measure_peer(name, arm, found)
        versions, skipped = peer_notes(testbed.peers)
        return Outcome(
            title="An epoch killed and resumed with other ranks",
            method=f"{rows:,} rows, global batches of {_GLOBAL_BATCH}, killed after about {_KILL_AFTER_STEPS} steps; "
            "once each.",
            measurements=measurements,
            notes=[
                *notes,
                *(f"{arm} has no state to resume from." for arm in _STATELESS),
                "Of the peers only Lance has a filter. No peer was measured with a mixture.",
                *versions,
            ],
            skipped=skipped,
            is_timed=False,
        )


def _resume(
    testbed: Testbed, arm: str, make: MakeSpec, ranks: tuple[int, int], extra: Mapping[str, Any]
) -> _Comparison:
    before, after = ranks
    if arm in _NEEDS_SAME_CACHE:
        spec = make(testbed.fresh_cache())
        make = lambda _: spec  # noqa: E731
    undisturbed = _log_epoch(testbed, arm, make, before, extra).batches
    kill_after = min(_KILL_AFTER_STEPS, len(undisturbed) // 2)
    first = _log_epoch(testbed, arm, make, before, extra, kill_after=kill_after)
    rest = _log_epoch(testbed, arm, make, after, extra, states=first.states)
    resumed = [*first.batches, *rest.batches]
    received, due = (Counter(number for batch in batches for number in batch) for batches in (resumed, undisturbed))
    same = sum(sorted(a) == sorted(b) for a, b in zip(resumed, undisturbed, strict=False))
    share = same / max(len(undisturbed), len(resumed))
    return _Comparison((due - received).total(), (received - due).total(), share)


def _log_epoch(
    testbed: Testbed,
    arm: str,
    make: MakeSpec,
    world_size: int,
    extra: Mapping[str, Any],
    *,
    states: Sequence[Any] | None = None,
    kill_after: int | None = None,
) -> _Log:
    """Run all ranks to the end of the epoch, or kill them after some steps."""
    directory, port = testbed.empty_directory("ranks"), find_free_port()
    logs = [directory / f"{rank}.jsonl" for rank in range(world_size)]
    spec = {**asdict(make(testbed.fresh_cache())), "batch_size": _GLOBAL_BATCH // world_size, "workers": 0, **extra}
    with ExitStack() as stack:
        workers = []
        for rank, log in enumerate(logs):
            numbers = {"RANK": rank, "WORLD_SIZE": world_size, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": world_size}
            environ = {name: str(value) for name, value in numbers.items()}
            environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "TMPDIR": str(directory)}
            worker = stack.enter_context(testbed.launch(arm, environ))
            worker.send("log_epoch", log=str(log), rank=rank, world_size=world_size, states=states, **spec)
            workers.append(worker)
        deadline = time.monotonic() + _TIMEOUT_S
        while not all(worker.has_answered() for worker in workers):
            if time.monotonic() > deadline:
                raise RuntimeError(f"the ranks did not finish within {_TIMEOUT_S:.0f} s")
            if kill_after is not None and min(map(_line_count, logs)) >= kill_after:
                break
            time.sleep(0.01)
        if kill_after is None:
            for worker in workers:
                worker.receive()
        for worker in workers:
            worker.kill()
    return _read_logs(logs)


def _line_count(log: Path) -> int:
    return log.read_bytes().count(b"\n") if log.exists() else 0


def _read_logs(logs: Sequence[Path]) -> _Log:
    """Read the steps that all ranks completed; ignore a line that was cut off by the kill."""
    ranks = [[json.loads(line) for line in log.read_text().split("\n")[:-1]] for log in logs]
    step_count = min(map(len, ranks))
    batches = [[number for rank in ranks for number in rank[step]["ids"]] for step in range(step_count)]
    return _Log(batches, [rank[step_count - 1]["state"] for rank in ranks] if step_count else [])


def _measure(case: str, found: _Comparison) -> list[Measurement]:
    return [
        Measurement(
            case=f"lost or repeated: {case}",
            unit="samples",
            ours=found.lost + found.repeated,
            detail=f"{found.lost:,} lost, {found.repeated:,} repeated",
            promise="resume-samples",
        ),
        Measurement(
            case=f"same batches: {case}",
            unit="% of the batches",
            ours=round(100 * found.same_batches_share, 1),
            promise="resume-batches",
        ),
    ]


def _measure_peer(case: str, arm: str, found: _Comparison) -> list[Measurement]:
    return [
        Measurement(
            case=f"same batches: {case}",
            unit="% of the batches",
            peer=round(100 * found.same_batches_share, 1),
            peer_name=arm,
            detail=f"{found.lost:,} lost, {found.repeated:,} repeated",
        )
    ]
